//! A DTLS client's first words, read without keeping anything: is there a cookie in them, and what were the words
//! before the cookie?

/// A ClientHello that is whole in one datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hello<'d> {
    /// The record's version, epoch and sequence number, as they came.
    record: &'d [u8],
    /// The message's number, as it came.
    number: &'d [u8],
    /// The message's body, from `client_version` on.
    body: &'d [u8],
    pub(crate) random: &'d [u8; 32],
    session: &'d [u8],
    /// The cookie of DTLS 1.2.
    legacy_cookie: &'d [u8],
    /// Cipher suites and compression methods, with their lengths.
    choices: &'d [u8],
    /// Without their length.
    extensions: &'d [u8],
}

/// A record's head.
const RECORD: usize = 13;
/// A handshake message's head.
const MESSAGE: usize = 12;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const CLIENT_HELLO: u8 = 1;
/// DTLS 1.0 as hellos and records name it.
pub(crate) const DTLS_1_0: [u8; 2] = [0xFE, 0xFF];
/// DTLS 1.3 as hellos name it.
const DTLS_1_3: [u8; 2] = [0xFE, 0xFC];
/// Extensions (RFC 7685, RFC 8446 §4.2, RFC 9147 §5.3).
pub(crate) const SERVER_NAME: u16 = 0;
const PADDING: u16 = 21;
const SUPPORTED_VERSIONS: u16 = 43;
pub(crate) const COOKIE: u16 = 44;
pub(crate) const KEY_SHARE: u16 = 51;

/// Takes bytes from the front.
pub(crate) struct ByteReader<'d>(pub(super) &'d [u8]);

impl<'d> ByteReader<'d> {
    pub(crate) fn take(&mut self, length: usize) -> Option<&'d [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of so many bytes.
    pub(crate) fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Bytes after their length, which takes so many bytes.
    pub(crate) fn vector(&mut self, bytes: usize) -> Option<&'d [u8]> {
        let length = self.number(bytes)?;
        self.take(length)
    }
}

/// Each with its kind, until the bytes end.
pub(crate) fn extensions(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut reader = ByteReader(bytes);
    std::iter::from_fn(move || {
        let kind = u16::try_from(reader.number(2)?).ok()?;
        Some((kind, reader.vector(2)?))
    })
}

impl<'d> Hello<'d> {
    /// Reads one; `None` for anything else, also for one that comes in pieces, of which nothing could be said without
    /// keeping them (RFC 9147 §5.1).
    pub(crate) fn read(datagram: &'d [u8]) -> Option<Self> {
        let record = datagram.get(1..11)?;
        let mut reader = ByteReader(datagram);
        // Type, version and epoch: a handshake record before there are keys.
        if reader.number(1)? != usize::from(HANDSHAKE) || reader.take(2)?.first() != Some(&0xFE) {
            return None;
        }
        if reader.number(2)? != 0 {
            return None;
        }
        reader.take(6)?;
        let mut message = ByteReader(reader.vector(2)?);
        if message.number(1)? != usize::from(CLIENT_HELLO) {
            return None;
        }
        let length = message.number(3)?;
        let number = message.take(2)?;
        if message.number(3)? != 0 || message.number(3)? != length {
            return None;
        }
        let body = message.take(length)?;
        let mut reader = ByteReader(body);
        reader.take(2)?;
        let random = reader.take(32)?.first_chunk()?;
        let session = reader.vector(1)?;
        let legacy_cookie = reader.vector(1)?;
        let from = reader.0;
        reader.vector(2)?;
        reader.vector(1)?;
        let choices = from.get(..from.len() - reader.0.len())?;
        let extensions = if reader.0.is_empty() { &[] } else { reader.vector(2)? };
        Some(Self { record, number, body, random, session, legacy_cookie, choices, extensions })
    }

    /// The cookie, of either version.
    pub(crate) fn cookie(&self) -> Option<&'d [u8]> {
        if !self.legacy_cookie.is_empty() {
            return Some(self.legacy_cookie);
        }
        let (_, data) = self.extensions().find(|(kind, _)| *kind == COOKIE)?;
        ByteReader(data).vector(2)
    }

    /// Bytes of padding, if it has that extension.
    pub(crate) fn padding(&self) -> Option<u16> {
        let (_, data) = self.extensions().find(|(kind, _)| *kind == PADDING)?;
        u16::try_from(data.len()).ok()
    }

    /// The server name it asks for, if it asks for one; `None` when its extensions are malformed.
    pub(crate) fn server_name(&self) -> Option<Option<String>> {
        gateway_core::stream::sniff::server_name(self.extensions)
    }

    /// The ALPN protocols it offers, in its order.
    pub(crate) fn alpn_protocols(&self) -> Vec<Vec<u8>> {
        gateway_core::stream::sniff::alpn_of_extensions(self.extensions)
    }

    /// Whether it has an extension.
    pub(crate) fn has(&self, wanted: u16) -> bool {
        self.extensions().any(|(kind, _)| kind == wanted)
    }

    /// Whether it offers a cipher suite.
    pub(crate) fn offers(&self, suite: u16) -> bool {
        let suites = ByteReader(self.choices).vector(2).unwrap_or_default();
        suites.chunks_exact(2).any(|offered| offered == suite.to_be_bytes())
    }

    /// Whether it offers DTLS 1.3, which is then what the engine speaks.
    pub(crate) fn offers_13(&self) -> bool {
        let versions = self.extensions().find(|(kind, _)| *kind == SUPPORTED_VERSIONS);
        let versions = versions.and_then(|(_, data)| ByteReader(data).vector(1)).unwrap_or_default();
        versions.chunks_exact(2).any(|version| version == DTLS_1_3)
    }

    /// Whether it knows no later version than DTLS 1.0.
    pub(crate) fn is_outdated(&self) -> bool {
        self.body.starts_with(&DTLS_1_0) && !self.extensions().any(|(kind, _)| kind == SUPPORTED_VERSIONS)
    }

    fn extensions(&self) -> impl Iterator<Item = (u16, &'d [u8])> + use<'d> {
        extensions(self.extensions)
    }

    /// The hello before this one, which had no cookie and so much padding. Everything else is the same (RFC 8446
    /// §4.1.2), and of DTLS 1.2 only that matters.
    pub(crate) fn without_cookie(&self, padding: Option<u16>) -> Vec<u8> {
        let mut extensions = Vec::with_capacity(self.extensions.len() + 4);
        let mut padded = false;
        let mut pad = |extensions: &mut Vec<u8>| {
            if let Some(length) = padding.filter(|_| !std::mem::replace(&mut padded, true)) {
                extension(extensions, PADDING, &vec![0; usize::from(length)]);
            }
        };
        for (kind, data) in self.extensions() {
            match kind {
                COOKIE => {}
                PADDING => pad(&mut extensions),
                _ => extension(&mut extensions, kind, data),
            }
        }
        pad(&mut extensions);
        self.first(&extensions)
    }

    /// A hello before this one that has neither a cookie nor a key share.
    pub(crate) fn without_key_share(&self) -> Vec<u8> {
        let mut extensions = Vec::with_capacity(self.extensions.len());
        for (kind, data) in self.extensions() {
            match kind {
                COOKIE => {}
                KEY_SHARE => extension(&mut extensions, kind, &[0, 0]),
                _ => extension(&mut extensions, kind, data),
            }
        }
        self.first(&extensions)
    }

    /// This hello with another cookie (DTLS 1.3).
    pub(crate) fn with_cookie(&self, cookie: &[u8]) -> Vec<u8> {
        let mut extensions = Vec::with_capacity(self.extensions.len());
        for (kind, data) in self.extensions() {
            match kind {
                COOKIE => extension(&mut extensions, kind, &[&short(cookie.len())[..], cookie].concat()),
                _ => extension(&mut extensions, kind, data),
            }
        }
        datagram(CLIENT_HELLO, self.record, self.number, &self.body_with(&extensions))
    }

    /// This hello without one extension and with another one, as a datagram and as the message's body. What it grows by is taken
    /// from its padding.
    pub(crate) fn offering(&self, without: u16, with: Option<(u16, &[u8])>) -> (Vec<u8>, Vec<u8>) {
        let mut extensions = Vec::with_capacity(self.extensions.len() + 64);
        let size = |(_, data): (u16, &[u8])| 4 + data.len();
        let less = self.extensions().find(|(kind, _)| *kind == without).map_or(0, size);
        let more = with.map_or(0, size).saturating_sub(less);
        let others = self.extensions().filter(|(kind, _)| *kind != without);
        for (kind, data) in with.into_iter().chain(others) {
            let spare = if kind == PADDING { more } else { 0 };
            extension(&mut extensions, kind, data.get(spare..).unwrap_or_default());
        }
        let body = self.body_of(self.legacy_cookie, &extensions);
        (datagram(CLIENT_HELLO, self.record, self.number, &body), body)
    }

    /// The message's body, as it came.
    pub(crate) fn body(&self) -> &'d [u8] {
        self.body
    }

    /// The very first datagram of a client, with these extensions.
    fn first(&self, extensions: &[u8]) -> Vec<u8> {
        let mut record = [0; 10];
        for (to, from) in record.iter_mut().zip(self.record.iter().take(2)) {
            *to = *from;
        }
        datagram(CLIENT_HELLO, &record, &[0, 0], &self.body_with(extensions))
    }

    /// The body with other extensions, and without the cookie of DTLS 1.2.
    fn body_with(&self, extensions: &[u8]) -> Vec<u8> {
        self.body_of(&[], extensions)
    }

    fn body_of(&self, cookie: &[u8], extensions: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.body.len() + extensions.len());
        body.extend_from_slice(self.body.get(..34).unwrap_or_default());
        body.push(u8::try_from(self.session.len()).unwrap_or_default());
        body.extend_from_slice(self.session);
        body.push(u8::try_from(cookie.len()).unwrap_or_default());
        body.extend_from_slice(cookie);
        body.extend_from_slice(self.choices);
        if !self.extensions.is_empty() {
            body.extend_from_slice(&short(extensions.len()));
            body.extend_from_slice(extensions);
        }
        body
    }
}

/// A record with one whole handshake message. Its head is the record's version, epoch and sequence number, and the
/// message's own number.
pub(crate) fn datagram(kind: u8, record: &[u8], number: &[u8], body: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(RECORD + MESSAGE + body.len());
    datagram.push(HANDSHAKE);
    datagram.extend_from_slice(record);
    datagram.extend_from_slice(&short(MESSAGE + body.len()));
    datagram.push(kind);
    datagram.extend_from_slice(&three(body.len()));
    datagram.extend_from_slice(number);
    datagram.extend_from_slice(&[0; 3]);
    datagram.extend_from_slice(&three(body.len()));
    datagram.extend_from_slice(body);
    datagram
}

/// A record in epoch 0.
pub(crate) fn record(kind: u8, version: &[u8], number: u64, body: &[u8]) -> Vec<u8> {
    let number = number.to_be_bytes();
    let number = number.get(2..).unwrap_or_default();
    [&[kind][..], version, &[0, 0], number, &short(body.len()), body].concat()
}

/// A whole handshake message of DTLS 1.2, with the number it has.
pub(crate) fn handshake(kind: u8, number: &[u8], body: &[u8]) -> Vec<u8> {
    let length = three(body.len());
    [&[kind][..], &length, number, &[0; 3], &length, body].concat()
}

/// A handshake message as a transcript has it (RFC 9147 §5.2).
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &three(body.len()), body].concat()
}

pub(crate) fn extension(out: &mut Vec<u8>, kind: u16, data: &[u8]) {
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&short(data.len()));
    out.extend_from_slice(data);
}

/// A length in two bytes; everything here came in one datagram.
pub(crate) fn short(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or_default().to_be_bytes()
}

pub(crate) fn three(length: usize) -> [u8; 3] {
    let [_, rest @ ..] = u32::try_from(length).unwrap_or_default().to_be_bytes();
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hello of DTLS 1.3 in the `number`th record and message, with this cookie and so much padding.
    fn hello(number: u8, cookie: Option<&[u8]>, padding: Option<usize>) -> Vec<u8> {
        let mut extensions = Vec::new();
        extension(&mut extensions, 43, &[4, 0xFE, 0xFC, 0xFE, 0xFD]);
        if let Some(cookie) = cookie {
            extension(&mut extensions, COOKIE, &[&short(cookie.len())[..], cookie].concat());
        }
        extension(&mut extensions, 0, b"\x00\x09\x00\x00\x06a.test");
        if let Some(padding) = padding {
            extension(&mut extensions, PADDING, &vec![0; padding]);
        }
        let mut body = vec![0xFE, 0xFD];
        body.extend_from_slice(&[7; 32]);
        body.extend_from_slice(&[2, 5, 5, 0, 0, 2, 0x13, 1, 1, 0]);
        body.extend_from_slice(&short(extensions.len()));
        body.extend_from_slice(&extensions);
        let mut datagram = vec![HANDSHAKE, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, number];
        datagram.extend_from_slice(&short(MESSAGE + body.len()));
        datagram.push(CLIENT_HELLO);
        datagram.extend_from_slice(&three(body.len()));
        datagram.extend_from_slice(&[0, number, 0, 0, 0]);
        datagram.extend_from_slice(&three(body.len()));
        datagram.extend_from_slice(&body);
        datagram
    }

    #[test]
    fn the_first_hello_follows_from_the_second() {
        for padding in [None, Some(0), Some(300)] {
            let first = hello(0, None, padding);
            // With the cookie there is less room for padding, or none.
            for rest in [padding, None] {
                let second = hello(1, Some(&[9; 32]), rest);
                let read = Hello::read(&second).unwrap();
                assert_eq!(read.cookie(), Some(&[9; 32][..]));
                assert!(read.offers_13());
                let padding = padding.map(|length| u16::try_from(length).unwrap());
                assert_eq!(read.without_cookie(padding), first);
            }
            let read = Hello::read(&first).unwrap();
            assert_eq!((read.cookie(), read.padding().map(usize::from)), (None, padding));
            assert_eq!(read.server_name(), Some(Some("a.test".to_owned())));
        }
    }

    #[test]
    fn what_is_no_whole_hello_is_none() {
        let whole = hello(1, Some(&[9; 32]), Some(10));
        for cut in 0..whole.len() {
            assert!(Hello::read(&whole[..cut]).is_none(), "{cut}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut other = whole.clone();
                other[at] ^= 1 << bit;
                // Whatever it is, reading it ends.
                if let Some(read) = Hello::read(&other) {
                    let _seen = (read.cookie(), read.padding(), read.server_name());
                    read.without_cookie(Some(5));
                }
            }
        }
        let mut piece = whole;
        // The message's first half, as its own head says.
        piece[24] /= 2;
        assert!(Hello::read(&piece).is_none());
    }
}
