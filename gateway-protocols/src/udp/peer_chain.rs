//! The certificates that a peer shows behind its own. The engine hands over the first one alone; the others are read from
//! the transcript, which it hashes whole, the peer's list included, before it hands that one over.

use std::sync::OnceLock;

use rustls_pki_types::CertificateDer;

use super::hello::ByteReader;

const CERTIFICATE: usize = 11;

/// What a peer has shown in this handshake.
#[derive(Debug)]
pub(crate) struct PeerChain {
    peer: Peer,
    list: OnceLock<Vec<CertificateDer<'static>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// Its list comes after the gateway's.
    Client,
    /// Its list is the first.
    Target,
}

impl PeerChain {
    pub(crate) fn of_client() -> Self {
        Self { peer: Peer::Client, list: OnceLock::new() }
    }

    pub(crate) fn of_target() -> Self {
        Self { peer: Peer::Target, list: OnceLock::new() }
    }

    /// Looks for the list in what the engine hashes.
    pub(crate) fn look(&self, hashed: &[u8]) {
        if self.list.get().is_some() {
            return;
        }
        let before = usize::from(self.peer == Peer::Client);
        let list = match is_of_12(hashed) {
            true => lists_of_12(hashed).nth(before).and_then(|list| entries(list, false)),
            false => lists_of_13(hashed).nth(before).and_then(|list| entries(list, true)),
        };
        if let Some(list) = list {
            // Nobody else has set it: a handshake is on one thread.
            drop(self.list.set(list));
        }
    }

    /// The certificates behind the first. They prove nothing by themselves.
    pub(crate) fn intermediates(&self) -> &[CertificateDer<'static>] {
        self.list.get().and_then(|list| list.get(1..)).unwrap_or_default()
    }
}

/// A message of DTLS 1.2: its kind and its body (RFC 6347 §4.2.2). One that says that it is a fragment is none.
fn message_of_12<'d>(reader: &mut ByteReader<'d>) -> Option<(usize, &'d [u8])> {
    let (kind, length) = (reader.number(1)?, reader.number(3)?);
    let (_number, offset, body) = (reader.take(2)?, reader.number(3)?, reader.vector(3)?);
    (offset == 0 && body.len() == length).then_some((kind, body))
}

/// Whether a transcript is one of DTLS 1.2. In one of 1.3, six bytes of a hello's random would have to say so.
fn is_of_12(transcript: &[u8]) -> bool {
    message_of_12(&mut ByteReader(transcript)).is_some()
}

/// The lists of a transcript of DTLS 1.2.
fn lists_of_12(transcript: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = ByteReader(transcript);
    let messages = std::iter::from_fn(move || message_of_12(&mut reader));
    let lists = messages.filter(|(kind, _)| *kind == CERTIFICATE);
    lists.map_while(|(_, body)| ByteReader(body).vector(3))
}

/// Those of a transcript of DTLS 1.3 (RFC 9147 §5.2, RFC 8446 §4.4.2).
fn lists_of_13(transcript: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = ByteReader(transcript);
    let messages = std::iter::from_fn(move || Some((reader.number(1)?, reader.vector(3)?)));
    let lists = messages.filter(|(kind, _)| *kind == CERTIFICATE);
    lists.map_while(|(_, body)| {
        let mut body = ByteReader(body);
        let _context = body.vector(1)?;
        body.vector(3)
    })
}

fn entries(list: &[u8], has_extensions: bool) -> Option<Vec<CertificateDer<'static>>> {
    let (mut reader, mut certificates) = (ByteReader(list), Vec::new());
    while !reader.0.is_empty() {
        certificates.push(CertificateDer::from(reader.vector(3)?.to_vec()));
        if has_extensions {
            let _extensions = reader.vector(2)?;
        }
    }
    Some(certificates)
}

#[cfg(test)]
mod tests {
    use super::super::hello::{handshake, message, three};
    use super::*;

    /// A list of these, each with what is behind it.
    fn list(behind: &[u8]) -> Vec<u8> {
        let all = [&b"leaf"[..], b"between", b"root"];
        let list = all.map(|der| [&three(der.len())[..], der, behind].concat()).concat();
        [&three(list.len())[..], &list].concat()
    }

    fn of_12() -> Vec<u8> {
        let list = list(b"");
        [handshake(1, &[0, 0], b"hello"), handshake(11, &[0, 2], &list), handshake(14, &[0, 3], b"")].concat()
    }

    fn of_13() -> Vec<u8> {
        let list = [&[0][..], &list(&[0, 1, 7])].concat();
        [message(254, &[9; 32]), message(2, b"hello"), message(11, &list), message(15, b"signed")].concat()
    }

    /// The gateway's own list, where the peer is a client.
    fn own() -> [Vec<u8>; 2] {
        let own = |behind: &[u8]| [&three(6 + behind.len())[..], &three(3), b"own", behind].concat();
        [handshake(11, &[0, 1], &own(b"")), message(11, &[&[0][..], &own(&[0, 0])].concat())]
    }

    #[test]
    fn what_is_behind_the_first_is_read_in_both_versions() {
        for (transcript, own) in [of_12(), of_13()].into_iter().zip(own()) {
            let of_target = PeerChain::of_target();
            of_target.look(b"no transcript");
            assert!(of_target.intermediates().is_empty());
            of_target.look(&transcript);
            // Our own list comes later there.
            of_target.look(&[&transcript[..], &own].concat());
            let of_client = PeerChain::of_client();
            of_client.look(&own);
            of_client.look(&transcript);
            assert!(of_client.intermediates().is_empty(), "that is the gateway's");
            of_client.look(&[own, transcript].concat());
            for chain in [of_target, of_client] {
                let shown: Vec<&[u8]> = chain.intermediates().iter().map(AsRef::as_ref).collect();
                assert_eq!(shown, [&b"between"[..], b"root"]);
            }
        }
    }

    #[test]
    fn what_is_cut_off_has_no_list() {
        for (transcript, last) in [(of_12(), 12), (of_13(), 10)] {
            for cut in 0..transcript.len() - last {
                let chain = PeerChain::of_target();
                chain.look(&transcript[..cut]);
                assert!(chain.intermediates().is_empty(), "{cut}");
            }
        }
    }
}
