//! What is sent of a file: bytes in memory, or pieces read while the client takes them.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gateway_core::http::body::{Body, BodyError, FileBody, FilePiece};
use gateway_core::plugin::World;
use http_body::{Body as HttpBody, Frame, SizeHint};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::root::{Stamp, Wait, stamp};

/// Bytes read at a time.
const PIECE: u64 = 128 << 10;
/// Bytes that the kernel sends at a time, without a look at its cache in between.
const SENT_PIECE: u64 = 512 << 10;
/// What is shorter than this is read: it goes out with the head, in one write.
const SENT_LEAST: u64 = 32 << 10;
/// Before a piece is asked for again when all threads for slow work are busy.
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// The contents of a file.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Memory(Bytes),
    File(Arc<OwnedFd>),
}

/// Reads a file into memory, whole.
///
/// # Errors
/// What the system says; [`io::ErrorKind::WouldBlock`] where the disk may not be waited for, and
/// [`io::ErrorKind::Interrupted`] where the file was changed meanwhile.
pub(super) fn read_whole(file: &OwnedFd, expected: Stamp, wait: Wait) -> io::Result<Bytes> {
    let mut bytes = BytesMut::zeroed(usize::try_from(expected.size).map_err(io::Error::other)?);
    let mut filled = 0;
    while filled < bytes.len() {
        match read_at(file, &mut bytes[filled..], filled as u64, wait)? {
            0 => return Err(io::ErrorKind::Interrupted.into()),
            n => filled += n,
        }
    }
    if stamp(file)? != expected {
        return Err(io::ErrorKind::Interrupted.into());
    }
    Ok(bytes.freeze())
}

fn read_at(file: &OwnedFd, into: &mut [u8], at: u64, wait: Wait) -> io::Result<usize> {
    let flags = match wait {
        Wait::May => ReadWriteFlags::empty(),
        Wait::Never => ReadWriteFlags::NOWAIT,
    };
    loop {
        match preadv2(file, &mut [IoSliceMut::new(into)], at, flags) {
            Err(Errno::INTR) => {}
            // A file system that can't say whether it would wait.
            Err(Errno::OPNOTSUPP) if wait == Wait::Never => return Err(io::ErrorKind::WouldBlock.into()),
            read => return Ok(read?),
        }
    }
}

/// One piece of a body.
#[derive(Debug, Clone)]
pub(super) enum Segment {
    /// These bytes, such as what parts several ranges.
    Text(Bytes),
    /// This part of the file, from its first byte to the one behind its last.
    Range(u64, u64),
}

/// The body that these segments make.
pub(super) fn body(content: &Content, segments: Vec<Segment>, world: &World) -> Body {
    let length = segments.iter().map(Segment::length).sum::<u64>();
    if length == 0 {
        return Body::empty();
    }
    match content {
        Content::Memory(bytes) => match segments.as_slice() {
            [Segment::Range(from, to)] => Body::full(slice(bytes, *from, *to)),
            segments => {
                let mut all = BytesMut::with_capacity(usize::try_from(length).unwrap_or(0));
                for segment in segments {
                    match segment {
                        Segment::Text(text) => all.extend_from_slice(text),
                        Segment::Range(from, to) => all.extend_from_slice(&slice(bytes, *from, *to)),
                    }
                }
                Body::full(all)
            }
        },
        Content::File(file) => Body::file(FileReader {
            file: file.clone(),
            segments: segments.into(),
            left: length,
            world: world.clone(),
            reading: None,
        }),
    }
}

impl Segment {
    fn length(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Range(from, to) => to.saturating_sub(*from),
        }
    }
}

fn slice(bytes: &Bytes, from: u64, to: u64) -> Bytes {
    let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(bytes.len());
    bytes.slice(at(from)..at(to).max(at(from)))
}

type PendingRead = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send>>;

/// Reads a file while its client takes it: at once what the kernel has, the rest on another thread.
struct FileReader {
    file: Arc<OwnedFd>,
    segments: VecDeque<Segment>,
    left: u64,
    world: World,
    reading: Option<PendingRead>,
}

impl FileReader {
    /// Takes what was read off the segment under way.
    fn took(&mut self, bytes: &Bytes) -> Result<(), BodyError> {
        let n = bytes.len() as u64;
        // The file has become shorter than it was said to be.
        if n == 0 {
            return Err(BodyError::Incomplete);
        }
        self.advance_by(n);
        Ok(())
    }

    /// Counts bytes of the segment under way.
    fn advance_by(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
        if let Some(Segment::Range(from, to)) = self.segments.front_mut() {
            *from += bytes;
            if from >= to {
                self.segments.pop_front();
            }
        }
    }

    /// Whether the kernel has this byte of the file in its cache.
    fn is_cached(&self, at: u64) -> bool {
        matches!(read_at(&self.file, &mut [0], at, Wait::Never), Ok(1))
    }

    fn read(&mut self, from: u64, to: u64) -> Option<io::Result<Bytes>> {
        let size = usize::try_from((to - from).min(PIECE)).unwrap_or(0);
        let mut piece = BytesMut::zeroed(size);
        match read_at(&self.file, &mut piece, from, Wait::Never) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Some(Err(error)),
            Ok(n) => {
                piece.truncate(n);
                return Some(Ok(piece.freeze()));
            }
        }
        let (file, world) = (self.file.clone(), self.world.clone());
        self.reading = Some(Box::pin(async move {
            loop {
                let file = file.clone();
                let read = world.run_blocking(move || {
                    let mut piece = BytesMut::zeroed(size);
                    let n = read_at(&file, &mut piece, from, Wait::May)?;
                    piece.truncate(n);
                    Ok(piece.freeze())
                });
                match read.await {
                    Ok(read) => return read,
                    Err(_) => tokio::time::sleep(BUSY_PAUSE).await,
                }
            }
        }));
        None
    }
}

impl FileBody for FileReader {
    fn cached(&self) -> Option<FilePiece> {
        let Some(Segment::Range(from, to)) = self.segments.front() else { return None };
        let length = (to - from).min(SENT_PIECE);
        // Both ends: what lies between was read with them.
        let is_cached = self.reading.is_none()
            && length >= SENT_LEAST
            && self.is_cached(from + length - 1)
            && self.is_cached(*from);
        is_cached.then(|| FilePiece { file: self.file.clone(), from: *from, length })
    }

    fn advance(mut self: Pin<&mut Self>, bytes: u64) {
        self.advance_by(bytes);
    }
}

impl HttpBody for FileReader {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        loop {
            let read = match &mut this.reading {
                Some(reading) => {
                    let read = ready!(reading.as_mut().poll(cx));
                    this.reading = None;
                    Some(read)
                }
                None => match this.segments.front() {
                    None => return Poll::Ready(None),
                    Some(Segment::Text(text)) => {
                        let text = text.clone();
                        this.segments.pop_front();
                        this.left = this.left.saturating_sub(text.len() as u64);
                        return Poll::Ready(Some(Ok(Frame::data(text))));
                    }
                    Some(Segment::Range(from, to)) => {
                        let (from, to) = (*from, *to);
                        this.read(from, to)
                    }
                },
            };
            let Some(read) = read else { continue };
            let bytes = match read {
                Ok(bytes) => bytes,
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            };
            if let Err(error) = this.took(&bytes) {
                this.segments.clear();
                return Poll::Ready(Some(Err(error)));
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.segments.is_empty() && self.reading.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
