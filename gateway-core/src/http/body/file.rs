//! Bodies that are part of a file: what the kernel can send without anybody having read it.

use super::{Body, BodyKind, FileBody, FilePiece};

impl Body {
    /// A body that is read from a file.
    pub fn file(body: impl FileBody + 'static) -> Self {
        Self::pulled(BodyKind::File(Box::pin(body)))
    }

    /// The piece of a file that comes next, for those who can have the kernel send it ([`FileBody::cached`]). What exceeds a
    /// limit is not given out here.
    pub fn cached_piece(&self) -> Option<FilePiece> {
        let BodyKind::File(file) = &self.kind else { return None };
        let left = self.allowed - self.passed.bytes().min(self.allowed);
        file.cached().filter(|piece| piece.length <= left)
    }

    /// Counts the first bytes of that piece as passed.
    pub fn advance(&mut self, bytes: u64) {
        if let BodyKind::File(file) = &mut self.kind {
            file.as_mut().advance(bytes);
            self.passed.add(bytes);
        }
    }
}
