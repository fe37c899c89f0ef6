//! What the engine says to a client in DTLS 1.2, put right. It shows one certificate where there is a chain, and it confirms
//! secure renegotiation to clients that did not ask for it, which some refuse (RFC 5246 §7.4.1.4). What goes out is changed
//! here, and so is every transcript that the engine hashes or checks a signature of, for both must be the same.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;

use super::hello::{ByteReader, HANDSHAKE, Hello, extension, extensions, handshake, record, short, three};

const SERVER_HELLO: usize = 2;
const CERTIFICATE: usize = 11;
const SERVER_HELLO_DONE: usize = 14;
const RENEGOTIATION_INFO: u16 = 0xFF01;
/// The cipher suite that stands for the extension (RFC 5746 §3.3).
const RENEGOTIATION_SUITE: u16 = 0x00FF;
/// Bytes of a certificate message in one datagram.
const FRAGMENT: usize = 1100;
/// Record numbers that each record of the engine has room for: a chain takes more records than a leaf.
const ROOM: u64 = 64;
/// Bytes of a whole chain at most, so that it fits in that room.
pub(crate) const MAX_CHAIN: usize = 48 << 10;

/// How a client's handshake differs from what the engine believes.
#[derive(Debug)]
pub(crate) struct Flight {
    /// The body of the certificate message, where it is not the engine's.
    certificates: Option<Arc<[u8]>>,
    /// Whether the client asked about renegotiation.
    renegotiation: bool,
}

/// The body of a certificate message with this chain (RFC 5246 §7.4.2); `None` where it is too long.
pub(crate) fn certificates(chain: &[CertificateDer<'_>]) -> Option<Arc<[u8]>> {
    let mut list = Vec::new();
    for certificate in chain {
        list.extend_from_slice(&three(certificate.len()));
        list.extend_from_slice(certificate);
    }
    (list.len() <= MAX_CHAIN).then(|| [&three(list.len())[..], &list].concat().into())
}

impl Flight {
    /// For a client with this hello; `None` where nothing is to be put right.
    pub(crate) fn new(hello: &Hello<'_>, certificates: Option<Arc<[u8]>>) -> Option<Self> {
        let renegotiation = hello.offers(RENEGOTIATION_SUITE) || hello.has(RENEGOTIATION_INFO);
        (certificates.is_some() || !renegotiation).then_some(Self { certificates, renegotiation })
    }

    /// The datagrams to send instead of one of the engine's; `None` where it is right as it is.
    pub(crate) fn datagrams(&self, said: &[u8]) -> Option<Vec<Vec<u8>>> {
        // Most have keys from their first byte on; nothing of those is ours to change.
        if said.get(3..5)? != [0, 0] {
            return None;
        }
        let (mut all, mut current, mut rest) = (Vec::new(), Vec::new(), ByteReader(said));
        while !rest.0.is_empty() {
            let whole = rest.0;
            let kind = *rest.take(1)?.first()?;
            // Nor of DTLS 1.3's short heads.
            let version = rest.take(2).filter(|_| (20..=26).contains(&kind))?;
            let epoch = rest.number(2)?;
            let number = u64::try_from(rest.number(6)?).ok()?;
            let body = rest.vector(2)?;
            if epoch != 0 {
                current.extend_from_slice(whole.get(..whole.len() - rest.0.len())?);
                continue;
            }
            let number = if self.certificates.is_some() { number.checked_mul(ROOM)? } else { number };
            match (kind == HANDSHAKE).then(|| Message::read(body)).flatten() {
                Some(message) if message.kind == CERTIFICATE && self.certificates.is_some() => {
                    if message.offset == 0 {
                        all.extend(
                            Some(std::mem::take(&mut current)).filter(|datagram| !datagram.is_empty()),
                        );
                        all.extend(self.fragments(version, number, message.number));
                    }
                }
                Some(message) if message.kind == SERVER_HELLO && message.is_whole() => {
                    let hello = handshake(2, message.number, &self.server_hello(message.body)?);
                    current.extend(record(kind, version, number, &hello));
                }
                _ => current.extend(record(kind, version, number, body)),
            }
        }
        all.extend(Some(current).filter(|datagram| !datagram.is_empty()));
        Some(all)
    }

    /// The certificate message in datagrams that fit everywhere.
    fn fragments(&self, version: &[u8], first: u64, number: &[u8]) -> Vec<Vec<u8>> {
        let body = self.certificates.as_deref().unwrap_or_default();
        let pieces = body.chunks(FRAGMENT).enumerate().zip(first..);
        let datagrams = pieces.map(|((at, piece), sequence)| {
            let offset = three(at * FRAGMENT);
            let head = [&[11], &three(body.len())[..], number, &offset, &three(piece.len())].concat();
            record(HANDSHAKE, version, sequence, &[&head, piece].concat())
        });
        datagrams.collect()
    }

    /// A ServerHello without what the client did not ask for.
    fn server_hello(&self, body: &[u8]) -> Option<Vec<u8>> {
        if self.renegotiation {
            return Some(body.to_vec());
        }
        let mut reader = ByteReader(body);
        reader.take(34)?;
        reader.vector(1)?;
        reader.take(3)?;
        let head = body.get(..body.len() - reader.0.len())?;
        if reader.0.is_empty() {
            return Some(body.to_vec());
        }
        let listed = reader.vector(2)?;
        let mut kept = Vec::with_capacity(listed.len());
        for (kind, data) in extensions(listed).filter(|(kind, _)| *kind != RENEGOTIATION_INFO) {
            extension(&mut kept, kind, data);
        }
        Some([head, &short(kept.len()), &kept].concat())
    }

    /// A transcript of the engine as the client knows it; `None` where these bytes are something else.
    pub(crate) fn transcript(&self, engine: &[u8]) -> Option<Vec<u8>> {
        let (mut right, mut rest, mut begun, mut done) =
            (Vec::with_capacity(engine.len()), engine, false, false);
        while !rest.is_empty() {
            let message = Message::read_first(rest).filter(Message::is_whole)?;
            // A ClientHello is the first.
            if !std::mem::replace(&mut begun, true) && message.kind != 1 {
                return None;
            }
            let (whole, after) = rest.split_at_checked(Message::HEAD + message.body.len())?;
            match (message.kind, &self.certificates) {
                (SERVER_HELLO, _) => {
                    right.extend(handshake(2, message.number, &self.server_hello(message.body)?));
                }
                // The client's own comes later.
                (CERTIFICATE, Some(certificates)) if !done => {
                    right.extend(handshake(11, message.number, certificates));
                }
                _ => right.extend_from_slice(whole),
            }
            done |= message.kind == SERVER_HELLO_DONE;
            rest = after;
        }
        begun.then_some(right)
    }
}

/// A handshake message, or a piece of one.
struct Message<'d> {
    kind: usize,
    length: usize,
    number: &'d [u8],
    offset: usize,
    body: &'d [u8],
}

impl<'d> Message<'d> {
    const HEAD: usize = 12;

    /// The only one of a record.
    fn read(record: &'d [u8]) -> Option<Self> {
        Self::read_first(record).filter(|message| Self::HEAD + message.body.len() == record.len())
    }

    fn read_first(bytes: &'d [u8]) -> Option<Self> {
        let mut reader = ByteReader(bytes);
        let (kind, length) = (reader.number(1)?, reader.number(3)?);
        let (number, offset) = (reader.take(2)?, reader.number(3)?);
        Some(Self { kind, length, number, offset, body: reader.vector(3)? })
    }

    fn is_whole(&self) -> bool {
        self.offset == 0 && self.body.len() == self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_hello(extensions: &[u8]) -> Vec<u8> {
        [&[0xFE, 0xFD][..], &[7; 32], &[0, 0xC0, 0x2C, 0], &short(extensions.len()), extensions].concat()
    }

    /// A flight as the engine says it: a hello, a certificate, the end.
    fn said() -> (Vec<u8>, Vec<u8>) {
        let hello = handshake(2, &[0, 1], &server_hello(b"\x00\x17\x00\x00\xff\x01\x00\x01\x00"));
        let leaf = handshake(11, &[0, 2], b"\x00\x00\x06\x00\x00\x03abc");
        let done = handshake(14, &[0, 3], b"");
        let datagram =
            [(1, &hello), (2, &leaf), (3, &done)].map(|(n, body)| record(HANDSHAKE, &[0xFE, 0xFD], n, body));
        let client = handshake(1, &[0, 1], b"hello");
        (datagram.concat(), [client, hello, leaf, done].concat())
    }

    #[test]
    fn what_was_not_asked_for_is_left_out() {
        let flight = Flight { certificates: None, renegotiation: false };
        let (datagram, transcript) = said();
        let hello = handshake(2, &[0, 1], &server_hello(b"\x00\x17\x00\x00"));
        let [out] = flight.datagrams(&datagram).unwrap().try_into().unwrap();
        assert_eq!(out[..13 + hello.len()], record(HANDSHAKE, &[0xFE, 0xFD], 1, &hello));
        assert_eq!(out.len(), datagram.len() - 5);
        let right = flight.transcript(&transcript).unwrap();
        assert_eq!(right.len(), transcript.len() - 5);
        assert!(right.windows(hello.len()).any(|part| part == hello));
    }

    #[test]
    fn a_chain_takes_the_place_of_the_leaf() {
        let chain = [vec![1; 900], vec![2; 900]].map(CertificateDer::from);
        let flight = Flight { certificates: certificates(&chain), renegotiation: true };
        let (datagram, transcript) = said();
        let out = flight.datagrams(&datagram).unwrap();
        let numbers: Vec<_> = out.iter().map(|datagram| datagram[10]).collect();
        // The hello, two fragments, the end; each record has a number of its own.
        assert_eq!(numbers, [64, 128, 129, 192]);
        assert!(out.iter().all(|datagram| datagram.len() < 1200));
        let right = flight.transcript(&transcript).unwrap();
        assert_eq!(right.len(), transcript.len() - 9 + 3 + 2 * 903);
        // Records with keys stay as they are, also behind one without.
        let with_keys = [22, 0xFE, 0xFD, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 9];
        assert_eq!(flight.datagrams(&with_keys), None);
        let change = [20, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 1];
        let out = flight.datagrams(&[change, with_keys].concat()).unwrap().concat();
        // The fourth record, with the room of four before it.
        assert_eq!((&out[9..11], &out[14..]), (&[1, 0][..], &with_keys[..]));
    }

    #[test]
    fn what_is_no_transcript_stays_as_it_is() {
        let flight = Flight { certificates: None, renegotiation: false };
        let (_, transcript) = said();
        for cut in 1..transcript.len() {
            let _read = flight.transcript(&transcript[..cut]);
        }
        assert!(flight.transcript(b"").is_none());
        assert!(flight.transcript(&transcript[17..]).is_none());
        assert!(flight.transcript(&[0x17; 40]).is_none());
    }
}
