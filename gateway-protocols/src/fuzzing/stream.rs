//! What is read off the first bytes of a stream: the PROXY protocol, plain text before TLS, and the server name of a ClientHello.

use bytes::BytesMut;
use gateway_core::stream::proxy_protocol::{self, Extensions, Header, MAX_HEADER};
use gateway_core::stream::sniff::{self, Hello, MAX_HELLO};
use gateway_core::stream::starttls::{self, ClientStep, Starttls, TargetDialogue, TargetStep};
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
    let written = proxy_protocol::datagram_header(source, destination, Extensions::default());
    let read = proxy_protocol::parse_datagram(&written);
    assert!(
        matches!(read, Some((length, Some(_))) if length == written.len()),
        "a datagram's header is read: {read:?}"
    );
    if let Some((length, _)) = proxy_protocol::parse_datagram(data) {
        assert_eq!(
            header,
            Header::Ends(length, ends),
            "a datagram's header is that of a connection but for its kind"
        );
    }
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

/// What a client or target says before TLS: each step takes something off, or waits within a limit, and no byte passes behind a consent.
fn starttls(data: &[u8]) {
    const MOST: usize = 17 << 10;
    for protocol in [Starttls::Postgres, Starttls::Smtp, Starttls::Imap, Starttls::Pop3] {
        let mut received = BytesMut::from(data);
        loop {
            let before = received.len();
            match starttls::client_step(protocol, &mut received) {
                ClientStep::Answer(_) => assert!(received.len() < before, "an answer without a request"),
                ClientStep::Begin(said) => {
                    assert!(said.is_empty() || received.is_empty(), "plain text goes on behind the request");
                    break;
                }
                ClientStep::More => {
                    assert!(before < MOST, "a request has an end");
                    break;
                }
                ClientStep::End(..) => break,
            }
        }
        let mut received = BytesMut::from(data);
        let mut dialogue = TargetDialogue::new(protocol);
        loop {
            match dialogue.step(&mut received) {
                TargetStep::Send(text) => assert!(!text.is_empty()),
                TargetStep::Ready => {
                    assert!(received.is_empty(), "plain text goes on behind the consent");
                    break;
                }
                TargetStep::More => {
                    assert!(received.len() < MOST, "an answer has an end");
                    break;
                }
                TargetStep::Failed(_) => break,
            }
        }
    }
}

/// A ClientHello; where rustls reads a name from it too, it is the same one.
pub(super) fn sniff(data: &[u8]) {
    starttls(data);
    let hello = pieces::decided_once(data, &Hello::More, sniff::client_hello);
    assert!(hello != Hello::More || data.len() < MAX_HELLO, "a hello has an end");
    let _alone = pieces::decided_once(data, &Hello::More, sniff::client_hello_message);
    let alpn = sniff::alpn_protocols(data);
    let mut acceptor = Acceptor::default();
    let mut input = data;
    while !input.is_empty() {
        if !matches!(acceptor.read_tls(&mut input), Ok(1..)) {
            return;
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                if let Some(protocols) = accepted.client_hello().alpn() {
                    assert!(alpn.iter().map(Vec::as_slice).eq(protocols), "rustls reads other protocols");
                }
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
