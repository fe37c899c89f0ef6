//! Bodies that are part of a file, which the kernel can send without anybody having read them.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body::Body as HttpBody;

use super::{Body, BodyError, BodyKind};

/// A body that is read from a file. Whoever can't have the kernel send it pulls it as any other.
pub trait FileBody: HttpBody<Data = Bytes, Error = BodyError> + Send {
    /// The piece of the file that comes next, where the kernel can send it without waiting for a disk, and sooner than it
    /// would be read.
    fn cached(&self) -> Option<FilePiece>;

    /// Counts the first bytes of that piece as sent.
    fn advance(self: Pin<&mut Self>, bytes: u64);
}

/// A piece of a file.
#[derive(Debug)]
pub struct FilePiece {
    /// The file.
    pub file: Arc<OwnedFd>,
    /// Where the piece begins, in bytes.
    pub from: u64,
    /// Its bytes; not zero.
    pub length: u64,
}

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
