//! What is read off the first bytes of a stream: the PROXY protocol, and the server name of a ClientHello.

use gateway_core::stream::proxy_protocol::{self, Extensions, Header, MAX_HEADER};
use gateway_core::stream::sniff::{self, Hello, MAX_HELLO};
use rustls::server::Acceptor;

use super::pieces;

/// A header of the PROXY protocol, as soon as it is there; what we would write for its ends says the same.
pub(super) fn proxy_protocol(data: &[u8]) {
    let header = pieces::decided_once(data, &Header::More, proxy_protocol::parse);
    assert!(header != Header::More || data.len() < MAX_HEADER, "a header has an end");
    let Header::Ends(length, ends) = header else { return };
    assert!(length <= data.len(), "a header is where it was read");
    assert_eq!(proxy_protocol::parse(&data[..length]), header, "and nothing behind it belongs to it");
    assert_eq!(proxy_protocol::parse(&data[..length - 1]), Header::More);
    let Some((source, destination)) = ends else { return };
    for version in [1, 2] {
        let written = proxy_protocol::header(version, source, destination, Extensions::default());
        let Header::Ends(length, Some((from, to))) = proxy_protocol::parse(&written) else {
            panic!("what was written in version {version} can't be read");
        };
        assert_eq!(length, written.len());
        assert_eq!((from.port(), to.port()), (source.port(), destination.port()));
        assert_eq!(from.ip().to_canonical(), source.ip().to_canonical());
        assert_eq!(to.ip().to_canonical(), destination.ip().to_canonical());
    }
}

/// A ClientHello; where rustls reads a name from it too, it is the same one.
pub(super) fn sniff(data: &[u8]) {
    let hello = pieces::decided_once(data, &Hello::More, sniff::client_hello);
    assert!(hello != Hello::More || data.len() < MAX_HELLO, "a hello has an end");
    let _alone = pieces::decided_once(data, &Hello::More, sniff::client_hello_message);
    let mut acceptor = Acceptor::default();
    let mut input = data;
    while !input.is_empty() {
        if !matches!(acceptor.read_tls(&mut input), Ok(1..)) {
            return;
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let theirs = accepted.client_hello().server_name().map(str::to_ascii_lowercase);
                if theirs.is_some() {
                    assert_eq!(hello, Hello::Name(theirs), "rustls reads another name");
                }
                return;
            }
            Err(_) => return,
        }
    }
}
