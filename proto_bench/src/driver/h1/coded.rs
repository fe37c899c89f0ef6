//! Bodies in a content coding: decoded and compared, but only once for the same bytes.

use std::cell::RefCell;
use std::io::Read as _;

use flate2::read::GzDecoder;

use crate::driver::Fault;
use crate::driver::fault::compare;
use crate::plan::Coding;

/// The coding of all answers, and an encoded body that was found right.
pub(super) struct Coded {
    coding: Coding,
    right: RefCell<Vec<u8>>,
}

impl Coded {
    pub(super) fn new(coding: Coding) -> Self {
        Self { coding, right: RefCell::default() }
    }

    /// Checks that an encoded body is this content.
    ///
    /// # Errors
    /// It is not of the coding, or another content.
    pub(super) fn compare(&self, got: &[u8], content: &[u8]) -> Result<(), Fault> {
        if !got.is_empty() && *self.right.borrow() == got {
            return Ok(());
        }
        let Coding::Gzip = self.coding;
        let mut decoded = Vec::with_capacity(content.len());
        // One byte more than is right shows that there is too much.
        let most = content.len() as u64 + 1;
        GzDecoder::new(got)
            .take(most)
            .read_to_end(&mut decoded)
            .map_err(|error| Fault::protocol(format!("the body is not in gzip: {error}")))?;
        compare(&decoded, content)?;
        got.clone_into(&mut self.right.borrow_mut());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn encoded(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        encoder.write_all(content).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn what_is_encoded_must_be_the_content() {
        let coded = Coded::new(Coding::Gzip);
        let right = encoded(b"content");
        for _ in 0..2 {
            coded.compare(&right, b"content").expect("right");
        }
        for wrong in [encoded(b"contend"), encoded(b"content and more"), b"content".to_vec(), Vec::new()] {
            assert!(coded.compare(&wrong, b"content").is_err());
        }
        coded.compare(&right, b"content").expect("still right");
    }
}
