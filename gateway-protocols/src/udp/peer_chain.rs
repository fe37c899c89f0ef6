//! The certificates that a target shows behind its own. The engine hands over the first one alone; the others are read from
//! the transcript, which it hashes whole, the target's list included, before it hands that one over.

use std::sync::OnceLock;

use rustls_pki_types::CertificateDer;

use super::hello::Reader;

const CERTIFICATE: usize = 11;

/// What a target has shown in this handshake.
#[derive(Debug, Default)]
pub(super) struct PeerChain(OnceLock<Vec<CertificateDer<'static>>>);

impl PeerChain {
    /// Looks for the list in what the engine hashes.
    pub(super) fn look(&self, hashed: &[u8]) {
        if self.0.get().is_none()
            && let Some(list) = if is_of_12(hashed) { list_of_12(hashed) } else { list_of_13(hashed) }
        {
            // Nobody else has set it: a handshake is on one thread.
            drop(self.0.set(list));
        }
    }

    /// The certificates behind the first. They prove nothing by themselves.
    pub(super) fn intermediates(&self) -> &[CertificateDer<'static>] {
        self.0.get().and_then(|list| list.get(1..)).unwrap_or_default()
    }
}

/// A message of DTLS 1.2: its kind and its body (RFC 6347 §4.2.2). One that says that it is a fragment is none.
fn message_of_12<'d>(reader: &mut Reader<'d>) -> Option<(usize, &'d [u8])> {
    let (kind, length) = (reader.number(1)?, reader.number(3)?);
    let (_number, offset, body) = (reader.take(2)?, reader.number(3)?, reader.vector(3)?);
    (offset == 0 && body.len() == length).then_some((kind, body))
}

/// Whether a transcript is one of DTLS 1.2. In one of 1.3, six bytes of a hello's random would have to say so.
fn is_of_12(transcript: &[u8]) -> bool {
    message_of_12(&mut Reader(transcript)).is_some()
}

/// The first list of a transcript of DTLS 1.2.
fn list_of_12(transcript: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let mut reader = Reader(transcript);
    loop {
        let (kind, body) = message_of_12(&mut reader)?;
        if kind == CERTIFICATE {
            return entries(Reader(body).vector(3)?, false);
        }
    }
}

/// That of a transcript of DTLS 1.3 (RFC 9147 §5.2, RFC 8446 §4.4.2).
fn list_of_13(transcript: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let mut reader = Reader(transcript);
    loop {
        let (kind, body) = (reader.number(1)?, reader.vector(3)?);
        if kind == CERTIFICATE {
            let mut body = Reader(body);
            let _context = body.vector(1)?;
            return entries(body.vector(3)?, true);
        }
    }
}

fn entries(list: &[u8], has_extensions: bool) -> Option<Vec<CertificateDer<'static>>> {
    let (mut reader, mut certificates) = (Reader(list), Vec::new());
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

    #[test]
    fn what_is_behind_the_first_is_read_in_both_versions() {
        for transcript in [of_12(), of_13()] {
            let chain = PeerChain::default();
            chain.look(b"no transcript");
            assert!(chain.intermediates().is_empty());
            chain.look(&transcript);
            let shown: Vec<&[u8]> = chain.intermediates().iter().map(AsRef::as_ref).collect();
            assert_eq!(shown, [&b"between"[..], b"root"]);
            // Our own list comes later.
            chain.look(&[transcript, handshake(11, &[0, 4], &three(0))].concat());
            assert_eq!(chain.intermediates().len(), 2);
        }
    }

    #[test]
    fn what_is_cut_off_has_no_list() {
        for (transcript, last) in [(of_12(), 12), (of_13(), 10)] {
            for cut in 0..transcript.len() - last {
                let chain = PeerChain::default();
                chain.look(&transcript[..cut]);
                assert!(chain.intermediates().is_empty(), "{cut}");
            }
        }
    }
}
