//! Reading the server name off a TLS ClientHello without taking part in the handshake (RFC 8446 §4.1.2, RFC 6066 §3).

/// What the first bytes of a connection tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// A ClientHello; the server name it asks for, in lower case, if it asks for one.
    Name(Option<String>),
    /// More bytes are needed.
    More,
    /// Not TLS.
    NotTls,
}

/// Bytes of a ClientHello that are read at most; post-quantum key shares make them about 2 KiB.
pub const MAX_HELLO: usize = 16 << 10;

/// Looks at the first bytes of a connection.
pub fn client_hello(bytes: &[u8]) -> Hello {
    let mut message = Vec::new();
    match handshake(bytes, &mut message) {
        Some(true) => name(&message).map_or(Hello::NotTls, Hello::Name),
        Some(false) if bytes.len() < MAX_HELLO => Hello::More,
        _ => Hello::NotTls,
    }
}

/// Looks at the first bytes of a handshake that has no records, as QUIC's (RFC 9001 §4).
pub fn client_hello_message(bytes: &[u8]) -> Hello {
    let &[kind, high, mid, low, ..] = bytes else { return Hello::More };
    let length = usize::from(high) << 16 | usize::from(mid) << 8 | usize::from(low);
    if kind != CLIENT_HELLO || length > MAX_HELLO {
        return Hello::NotTls;
    }
    match bytes.get(..length + 4) {
        Some(message) => name(message).map_or(Hello::NotTls, Hello::Name),
        None => Hello::More,
    }
}

/// Joins the handshake message from its records; `Some(true)` once it is whole, `None` when it is no handshake.
fn handshake(mut bytes: &[u8], message: &mut Vec<u8>) -> Option<bool> {
    loop {
        if let [kind, high, mid, low, ..] = message[..] {
            if kind != CLIENT_HELLO {
                return None;
            }
            let length = usize::from(high) << 16 | usize::from(mid) << 8 | usize::from(low);
            if length > MAX_HELLO {
                return None;
            }
            if message.len() >= length + 4 {
                message.truncate(length + 4);
                return Some(true);
            }
        }
        let [kind, major, _, high, low, rest @ ..] = bytes else {
            // What there is of a record's head must at least look like one.
            let fits = bytes.iter().zip([HANDSHAKE, 3]).all(|(byte, wanted)| *byte == wanted);
            return fits.then_some(false);
        };
        if *kind != HANDSHAKE || *major != 3 {
            return None;
        }
        let length = usize::from(*high) << 8 | usize::from(*low);
        if length == 0 || length > MAX_RECORD {
            return None;
        }
        let Some((record, after)) = rest.split_at_checked(length) else { return Some(false) };
        message.extend_from_slice(record);
        bytes = after;
    }
}

/// The ALPN protocols that a client offers (RFC 7301 §3.1), in its order; none unless `bytes` begin with a whole hello.
pub fn alpn_protocols(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut message = Vec::new();
    if handshake(bytes, &mut message) == Some(true) { alpn_of_message(&message) } else { Vec::new() }
}

/// As [`alpn_protocols`], of a hello without records, as in QUIC.
pub fn alpn_of_message(message: &[u8]) -> Vec<Vec<u8>> {
    let extensions = match client_hello_message(message) {
        Hello::Name(_) => extensions(message).flatten(),
        Hello::More | Hello::NotTls => None,
    };
    extensions.map(alpn_of_extensions).unwrap_or_default()
}

/// The ALPN protocols among a ClientHello's extensions, given without their length; none where they are malformed.
pub fn alpn_of_extensions(extensions: &[u8]) -> Vec<Vec<u8>> {
    let read = || {
        let extension = find_extension(extensions, ALPN)??;
        let mut list = HelloReader(extension);
        let length = list.u16()?;
        let mut list = HelloReader(list.take(length.into())?);
        let mut protocols = Vec::new();
        while !list.0.is_empty() {
            let length = list.u8()?;
            protocols.push(list.take(length.into())?.to_vec());
        }
        Some(protocols)
    };
    read().unwrap_or_default()
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const MAX_RECORD: usize = (16 << 10) + 256;

/// The server name of a whole ClientHello; `None` when it is malformed.
fn name(message: &[u8]) -> Option<Option<String>> {
    match extensions(message)? {
        Some(extensions) => server_name(extensions),
        None => Some(None),
    }
}

/// The extensions of a whole ClientHello, where it has any; `None` when it is malformed.
fn extensions(message: &[u8]) -> Option<Option<&[u8]>> {
    let mut hello = HelloReader(message.get(4..)?);
    hello.take(2 + 32)?;
    let session = hello.u8()?;
    hello.take(session.into())?;
    let suites = hello.u16()?;
    hello.take(suites.into())?;
    let compressions = hello.u8()?;
    hello.take(compressions.into())?;
    if hello.0.is_empty() {
        return Some(None);
    }
    let length = hello.u16()?;
    hello.take(length.into()).map(Some)
}

/// The server name among a ClientHello's extensions, given without their length; `None` when they are malformed.
pub fn server_name(extensions: &[u8]) -> Option<Option<String>> {
    match find_extension(extensions, SERVER_NAME)? {
        Some(body) => host_name(body).map(Some),
        None => Some(None),
    }
}

/// The first extension of this kind, where there is one; `None` when those before it are malformed.
fn find_extension(extensions: &[u8], wanted: u16) -> Option<Option<&[u8]>> {
    let mut extensions = HelloReader(extensions);
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let length = extensions.u16()?;
        let body = extensions.take(length.into())?;
        if kind == wanted {
            return Some(Some(body));
        }
    }
    Some(None)
}

fn host_name(body: &[u8]) -> Option<String> {
    let mut list = HelloReader(body);
    let length = list.u16()?;
    let mut list = HelloReader(list.take(length.into())?);
    while !list.0.is_empty() {
        let kind = list.u8()?;
        let length = list.u16()?;
        let name = list.take(length.into())?;
        if kind == 0 {
            let text = std::str::from_utf8(name).ok()?;
            let plain = !text.is_empty() && text.len() <= 253 && text.bytes().all(|c| c.is_ascii_graphic());
            return plain.then(|| text.to_ascii_lowercase());
        }
    }
    None
}

struct HelloReader<'a>(&'a [u8]);

impl<'a> HelloReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from(bytes[0]) << 8 | u16::from(bytes[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ClientHello for `name`, cut into records of `record` bytes.
    fn hello(name: Option<&str>, record: usize) -> Vec<u8> {
        let mut extensions = vec![0, 43, 0, 3, 2, 3, 4];
        if let Some(name) = name {
            let n = u16::try_from(name.len()).unwrap();
            extensions.extend_from_slice(&SERVER_NAME.to_be_bytes());
            extensions.extend_from_slice(&(n + 5).to_be_bytes());
            extensions.extend_from_slice(&(n + 3).to_be_bytes());
            extensions.push(0);
            extensions.extend_from_slice(&n.to_be_bytes());
            extensions.extend_from_slice(name.as_bytes());
        }
        let mut body = vec![3, 3];
        body.extend_from_slice(&[9; 32]);
        body.extend_from_slice(&[0, 0, 2, 0x13, 1, 1, 0]);
        body.extend_from_slice(&u16::try_from(extensions.len()).unwrap().to_be_bytes());
        body.extend_from_slice(&extensions);
        let mut message = vec![CLIENT_HELLO, 0];
        message.extend_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
        message.extend_from_slice(&body);
        message
            .chunks(record)
            .flat_map(|part| {
                let mut bytes = vec![HANDSHAKE, 3, 1];
                bytes.extend_from_slice(&u16::try_from(part.len()).unwrap().to_be_bytes());
                bytes.extend_from_slice(part);
                bytes
            })
            .collect()
    }

    #[test]
    fn names_are_read_in_any_slicing() {
        for record in [7, 50, 4000] {
            let bytes = hello(Some("API.Example.com"), record);
            for cut in 0..bytes.len() {
                assert_eq!(client_hello(&bytes[..cut]), Hello::More, "{cut}");
            }
            assert_eq!(client_hello(&bytes), Hello::Name(Some("api.example.com".into())));
        }
        assert_eq!(client_hello(&hello(None, 4000)), Hello::Name(None));
    }

    #[test]
    fn anything_else_is_no_tls() {
        for other in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\x16\x02\x00",
            b"\x15\x03\x01\x00\x02\x01\x00",
            b"\x16\x03\x01\x00\x00",
        ] {
            assert_eq!(client_hello(other), Hello::NotTls, "{other:?}");
        }
        let mut torn = hello(Some("a"), 4000);
        let last = torn.len() - 1;
        torn[last - 3] = 200;
        assert_eq!(client_hello(&torn), Hello::NotTls);
        assert_eq!(
            client_hello(&[HANDSHAKE, 3, 1, 0x40, 0, CLIENT_HELLO, 0xff, 0xff, 0xff].repeat(3000)),
            Hello::NotTls
        );
    }
}
