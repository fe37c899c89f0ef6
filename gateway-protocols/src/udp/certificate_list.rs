//! Certificate messages of DTLS 1.3 with more than one certificate, which the engine can't say by itself. The engine is given
//! the whole list as if it were one certificate, with the heads of the later entries inside. What it says then has the
//! right length and differs from the right message in the length of the first entry alone. Those three bytes are put
//! right where the message is encrypted ([`super::cipher_suites`]), and in the transcript.

use rustls_pki_types::CertificateDer;

use super::hello::{ByteReader, HANDSHAKE, three};

const CERTIFICATE: usize = 11;
/// Bytes of a list at most, as the engine has it. It keeps twelve records of a flight to say them again; beside the list there
/// are five messages and a record more for each datagram that is full.
pub(crate) const MAX_LIST: usize = 6000;
/// A handshake message's head in a record, with the place of the fragment.
const FRAGMENT: usize = 12;
/// Where the first entry's length is in the message's body: behind an empty context and the list's length.
const FIRST: usize = 4;

/// How the certificate message differs from what the engine believes.
#[derive(Debug)]
pub(crate) struct CertificateList {
    /// The list as the engine has it: one certificate.
    believed: Vec<u8>,
    /// The length of the first entry.
    first: [u8; 3],
}

impl CertificateList {
    /// A list of these, of which there must be at least one; `None` where they are too long.
    pub(crate) fn new(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let (leaf, others) = chain.split_first()?;
        let mut believed = leaf.to_vec();
        for certificate in others {
            // No extensions of the one before, then this one.
            believed.extend_from_slice(&[0, 0]);
            believed.extend_from_slice(&three(certificate.len()));
            believed.extend_from_slice(certificate);
        }
        (believed.len() <= MAX_LIST).then(|| Self { believed, first: three(leaf.len()) })
    }

    /// What the engine is to show as its certificate.
    pub(crate) fn believed(&self) -> &[u8] {
        &self.believed
    }

    /// The length of the message's body: context, the list's length, the entry's, its certificate and extensions.
    fn length(&self) -> usize {
        1 + 3 + 3 + self.believed.len() + 2
    }

    /// Whether this is the body of the message as the engine believes it.
    fn is_believed(&self, body: &[u8]) -> bool {
        let mut reader = ByteReader(body);
        reader.vector(1).is_some_and(<[u8]>::is_empty)
            && reader.number(3) == Some(self.believed.len() + 5)
            && reader.vector(3) == Some(&self.believed)
    }

    /// Where the length of the first entry stands in a transcript; `None` where there is no such message in it.
    fn place(&self, transcript: &[u8]) -> Option<usize> {
        let mut reader = ByteReader(transcript);
        loop {
            let kind = reader.number(1)?;
            let body = reader.vector(3)?;
            // A client's own comes later, and may be anything.
            if kind == CERTIFICATE {
                let begin = transcript.len() - reader.0.len() - body.len();
                return self.is_believed(body).then_some(begin + FIRST);
            }
        }
    }

    /// A transcript as the client knows it; `None` where nothing is to be put right.
    pub(crate) fn transcript(&self, engine: &[u8]) -> Option<Vec<u8>> {
        let at = self.place(engine)?;
        let mut right = engine.to_vec();
        right.get_mut(at..at + self.first.len())?.copy_from_slice(&self.first);
        Some(right)
    }

    /// Puts a record right before it is encrypted: a fragment of the message, with its kind behind it.
    pub(crate) fn put_right(&self, record: &mut [u8]) {
        let Some((kind, fragment)) = record.split_last_mut() else { return };
        if *kind != HANDSHAKE {
            return;
        }
        let Some((head, body)) = fragment.split_at_mut_checked(FRAGMENT) else { return };
        let mut reader = ByteReader(head);
        let read = (reader.number(1), reader.number(3), reader.take(2), reader.number(3));
        let (Some(CERTIFICATE), Some(length), _, Some(offset)) = read else { return };
        if length != self.length() {
            return;
        }
        // The smallest fragment is one byte.
        for (byte, at) in self.first.iter().zip(FIRST..) {
            if let Some(place) = at.checked_sub(offset).and_then(|at| body.get_mut(at)) {
                *place = *byte;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hello::message;
    use super::*;

    fn list() -> CertificateList {
        CertificateList::new(&[vec![1; 300], vec![2; 5], vec![3; 7]].map(CertificateDer::from)).unwrap()
    }

    /// The body of a message with these entries.
    fn body(entries: &[&[u8]]) -> Vec<u8> {
        let list: Vec<_> =
            entries.iter().flat_map(|entry| [&three(entry.len())[..], entry, &[0, 0]].concat()).collect();
        [&[0][..], &three(list.len()), &list].concat()
    }

    fn believed() -> Vec<u8> {
        body(&[list().believed()])
    }

    fn right() -> Vec<u8> {
        body(&[&[1; 300], &[2; 5], &[3; 7]])
    }

    #[test]
    fn what_is_too_long_is_no_list() {
        let long = |length| [vec![1; length - 105], vec![2; 100]].map(CertificateDer::from);
        assert_eq!(CertificateList::new(&long(MAX_LIST)).unwrap().believed().len(), MAX_LIST);
        assert!(CertificateList::new(&long(MAX_LIST + 1)).is_none());
        assert!(CertificateList::new(&[]).is_none());
    }

    #[test]
    fn the_engines_message_differs_in_one_length() {
        assert_eq!(believed().len(), right().len());
        assert_eq!(list().length(), right().len());
        let differ = (0..right().len()).filter(|at| believed()[*at] != right()[*at]);
        assert!(differ.into_iter().all(|at| (FIRST..FIRST + 3).contains(&at)));
    }

    #[test]
    fn transcripts_have_the_right_list() {
        let transcript =
            |list: &[u8]| [message(1, b"hello"), message(11, list), message(20, b"end")].concat();
        assert_eq!(list().transcript(&transcript(&believed())), Some(transcript(&right())));
        // Another one, none yet, and one that is cut off.
        assert_eq!(list().transcript(&transcript(&body(&[&[1; 300]]))), None);
        assert_eq!(list().transcript(&message(1, b"hello")), None);
        let whole = transcript(&believed());
        for cut in 0..whole.len() - message(20, b"end").len() {
            assert_eq!(list().transcript(&whole[..cut]), None, "{cut}");
        }
        // A client's own list stays as it is.
        let both = |list: &[u8]| [transcript(list), message(11, &believed())].concat();
        assert_eq!(list().transcript(&both(&believed())), Some(both(&right())));
    }

    #[test]
    fn records_of_any_size_are_put_right() {
        let fragment = |kind: u8, (at, piece): (usize, &[u8]), inner: u8| {
            let head =
                [&[kind][..], &three(right().len()), &[0, 3], &three(at), &three(piece.len())].concat();
            [&head, piece, &[inner]].concat()
        };
        let put_right = |mut record: Vec<u8>| {
            list().put_right(&mut record);
            record
        };
        for size in [1, 2, 3, 4, 5, 6, 7, 8, 100, 1000] {
            let pieces = |body: &[u8]| {
                let pieces = body.chunks(size).enumerate();
                pieces.map(|(n, piece)| fragment(11, (n * size, piece), HANDSHAKE)).collect::<Vec<_>>()
            };
            let said: Vec<_> = pieces(&believed()).into_iter().map(put_right).collect();
            assert_eq!(said, pieces(&right()), "{size}");
        }
        // Other messages, other kinds of records, and what is too short for a message.
        let (body, short) = (believed(), vec![11; 9]);
        for record in [fragment(20, (0, &body), HANDSHAKE), fragment(11, (0, &body), 23), short, Vec::new()] {
            assert_eq!(put_right(record.clone()), record);
        }
    }
}
