//! Hashes of a client's handshake that a test looks into or changes.

use dimpl::crypto::{Buf, HashAlgorithm, HashContext, HashProvider, aws_lc_rs};

/// Hashes what this makes of each piece; `None` leaves it as it is.
#[derive(Debug)]
pub(super) struct Hashes(pub(super) fn(&[u8]) -> Option<Vec<u8>>);

#[derive(Debug)]
struct Hash {
    inner: Box<dyn HashContext>,
    make: fn(&[u8]) -> Option<Vec<u8>>,
}

impl HashProvider for Hashes {
    fn create_hash(&self, algorithm: HashAlgorithm) -> Box<dyn HashContext> {
        let inner = aws_lc_rs::default_provider().hash_provider.create_hash(algorithm);
        Box::new(Hash { inner, make: self.0 })
    }
}

impl HashContext for Hash {
    fn update(&mut self, data: &[u8]) {
        match (self.make)(data) {
            Some(made) => self.inner.update(&made),
            None => self.inner.update(data),
        }
    }

    fn clone_and_finalize(&self, out: &mut Buf) {
        self.inner.clone_and_finalize(out);
    }
}
