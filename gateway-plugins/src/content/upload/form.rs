//! A form as it comes: its parts one after another, each within its limits.

use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::World;
use http_body::Frame;
use multer::{Field, Multipart};

use super::UploadRefusal;
use super::kind::{self, LOOKED_AT};
use super::pace::Pace;
use super::settings::Limits;
use super::write::{self, Hidden};

/// Bytes that may come before a part or the rest of it is understood: the heads of parts are that long at the most.
const MAX_AHEAD: u64 = 256 << 10;
/// Bytes that are written at a time.
const PIECE: usize = 256 << 10;
/// Characters of a file's or field's name that are repeated.
const MAX_NAME: usize = 255;

/// A file that was stored.
pub(super) struct Stored {
    pub(super) field: String,
    /// What the client calls it.
    pub(super) filename: String,
    /// Its name in the folder.
    pub(super) stored: String,
    pub(super) bytes: u64,
    pub(super) kind: &'static str,
    pub(super) sha256: String,
}

/// What a form had.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) files: Vec<Stored>,
    pub(super) fields: Vec<(String, String)>,
}

/// A form that is being read.
pub(super) struct Form {
    limits: Arc<Limits>,
    world: World,
    taken: Taken,
    /// Files that are written and not shown yet.
    hidden: Vec<Hidden>,
    ahead: Arc<AtomicU64>,
    failure: Failure,
}

fn too_large(what: &str) -> UploadRefusal {
    UploadRefusal::Status(413, "upload_too_large", format!("{what} than is taken"))
}

fn bad(why: &str) -> UploadRefusal {
    UploadRefusal::Status(400, "upload_malformed", why.to_owned())
}

/// The system said no.
fn failed(error: &std::io::Error) -> UploadRefusal {
    tracing::error!(%error, "an upload can't be stored");
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            UploadRefusal::Status(507, "upload_no_space", "there is no space left".into())
        }
        _ => UploadRefusal::Status(500, "upload_failed", "the upload can't be stored".into()),
    }
}

impl Form {
    pub(super) fn new(limits: Arc<Limits>, world: World) -> Self {
        Self {
            limits,
            world,
            taken: Taken::default(),
            hidden: Vec::new(),
            ahead: Arc::default(),
            failure: Arc::default(),
        }
    }

    /// Takes a whole form; its files are shown when all of them are there.
    ///
    /// # Errors
    /// Why it is not taken. Nothing of it is left then.
    pub(super) async fn take(mut self, body: Body, boundary: String) -> Result<Taken, UploadRefusal> {
        let (folder, wanted) = (self.limits.folder.clone(), self.limits.free);
        let expected = body.exact_length().unwrap_or(0);
        self.beside(move || {
            write::make(&folder)?;
            match write::free(&folder)? < wanted.saturating_add(expected) {
                true => Err(ErrorKind::StorageFull.into()),
                false => Ok(()),
            }
        })
        .await?;
        let body = body.limited(self.limits.body);
        let mut parts = Multipart::new(
            Pieces {
                body,
                ahead: self.ahead.clone(),
                failure: self.failure.clone(),
                pace: Pace::new(self.limits.rate),
            },
            boundary,
        );
        loop {
            let part = parts.next_field().await.map_err(|_| self.unreadable())?;
            self.ahead.store(0, Relaxed);
            let Some(part) = part else { break };
            self.part(part).await?;
        }
        if self.taken.files.is_empty() {
            return Err(bad("the form has no file"));
        }
        self.show().await
    }

    async fn part(&mut self, part: Field<'static>) -> Result<(), UploadRefusal> {
        let name = shortened(part.name().unwrap_or_default());
        match part.file_name().map(shortened) {
            // A form with a file that was not chosen.
            Some(filename) if filename.is_empty() => self.empty(part).await,
            Some(filename) => self.file(part, name, filename).await,
            None => self.field(part, name).await,
        }
    }

    /// What a form that can't be read is answered with.
    fn unreadable(&self) -> UploadRefusal {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or_else(|| bad("the form is malformed"), |error| UploadRefusal::Reply(error.into_reply()))
    }

    /// The next bytes of a part.
    async fn chunk(&self, part: &mut Field<'static>) -> Result<Option<Bytes>, UploadRefusal> {
        let chunk = part.chunk().await.map_err(|_| self.unreadable())?;
        self.ahead.store(0, Relaxed);
        Ok(chunk)
    }

    async fn empty(&self, mut part: Field<'static>) -> Result<(), UploadRefusal> {
        match self.chunk(&mut part).await? {
            Some(chunk) if !chunk.is_empty() => Err(bad("a file has no name")),
            _ => Ok(()),
        }
    }

    async fn field(&mut self, mut part: Field<'static>, name: String) -> Result<(), UploadRefusal> {
        if self.taken.fields.len() >= self.limits.fields {
            return Err(too_large("the form has more fields"));
        }
        let mut value = BytesMut::new();
        while let Some(chunk) = self.chunk(&mut part).await? {
            if (value.len() + chunk.len()) as u64 > self.limits.field {
                return Err(too_large("a field is larger"));
            }
            value.extend_from_slice(&chunk);
        }
        let value = String::from_utf8(value.into()).map_err(|_| bad("a field is not UTF-8"))?;
        self.taken.fields.push((name, value));
        Ok(())
    }

    async fn file(
        &mut self,
        mut part: Field<'static>,
        field: String,
        filename: String,
    ) -> Result<(), UploadRefusal> {
        if self.taken.files.len() >= self.limits.files {
            return Err(too_large("the form has more files"));
        }
        if !self.limits.takes_files_in(&field) {
            return Err(bad("this field takes no files"));
        }
        let mut waiting = BytesMut::new();
        let (mut bytes, mut is_over) = (0_u64, false);
        let mut hidden: Option<Hidden> = None;
        let mut kind = "";
        while !is_over {
            let least = if hidden.is_none() { LOOKED_AT } else { PIECE };
            while waiting.len() < least && !is_over {
                match self.chunk(&mut part).await? {
                    Some(chunk) => {
                        bytes += chunk.len() as u64;
                        if bytes > self.limits.file {
                            return Err(too_large("a file is larger"));
                        }
                        waiting.extend_from_slice(&chunk);
                    }
                    None => is_over = true,
                }
            }
            let piece = waiting.split().freeze();
            let ending = match hidden {
                Some(_) => "",
                None => {
                    let (found, ending) = kind::of(&piece[..piece.len().min(LOOKED_AT)], is_over);
                    if !self.limits.takes(found) {
                        let why = format!("files of the type {found} are not taken");
                        return Err(UploadRefusal::Status(415, "upload_type", why));
                    }
                    kind = found;
                    ending
                }
            };
            hidden = Some(self.written(hidden, ending, piece).await?);
        }
        let Some(hidden) = hidden else { return Err(bad("a file can't be read")) };
        let (mode, stored) = (self.limits.mode, hidden.name.clone());
        let (hidden, sha256) =
            self.beside(move || hidden.finish(mode).map(|digest| (hidden, digest))).await?;
        self.hidden.push(hidden);
        self.taken.files.push(Stored { field, filename, stored, bytes, kind, sha256 });
        Ok(())
    }

    /// Writes a piece of a file, which is made with the first one.
    async fn written(
        &self,
        hidden: Option<Hidden>,
        ending: &'static str,
        piece: Bytes,
    ) -> Result<Hidden, UploadRefusal> {
        let folder = self.limits.folder.clone();
        self.beside(move || {
            let mut hidden = match hidden {
                Some(hidden) => hidden,
                None => Hidden::create(&folder, ending)?,
            };
            hidden.write(&piece)?;
            Ok(hidden)
        })
        .await
    }

    /// Gives all files their names; where one can't have it, none stays.
    async fn show(mut self) -> Result<Taken, UploadRefusal> {
        let mut hidden = std::mem::take(&mut self.hidden);
        let folder = self.limits.folder.clone();
        self.beside(move || {
            hidden.iter_mut().try_for_each(|file| file.show(&folder))?;
            hidden.iter_mut().for_each(Hidden::keep);
            Ok(())
        })
        .await?;
        Ok(self.taken)
    }

    async fn beside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, UploadRefusal> {
        match self.world.run_blocking(work).await {
            Ok(done) => done.map_err(|error| failed(&error)),
            Err(_) => Err(UploadRefusal::Status(503, "upload_busy", "too much is being written".into())),
        }
    }
}

/// What a client gets that sends less than the minimum rate.
fn too_slow() -> Reply {
    Reply::new(Cause::RequestTimeout).reason("upload_too_slow").detail("the upload came too slowly").closing()
}

/// The data of a body. It ends with an error when so much comes that is not understood, or when it comes too slowly.
struct Pieces {
    body: Body,
    ahead: Arc<AtomicU64>,
    failure: Failure,
    pace: Pace,
}

/// Why a body ended early; the parser's errors can't carry it.
type Failure = Arc<Mutex<Option<BodyError>>>;

/// The body ended early.
#[derive(Debug, thiserror::Error)]
#[error("the body ended early")]
struct Early;

impl Stream for Pieces {
    type Item = Result<Bytes, Early>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let why = loop {
            let Poll::Ready(frame) = self.body.poll_next(cx) else {
                ready!(self.pace.poll_late(cx));
                break BodyError::Refused(Box::new(too_slow()));
            };
            let Some(frame) = frame else { return Poll::Ready(None) };
            // Trailers say nothing here.
            let data = match frame.map(Frame::into_data) {
                Ok(Ok(data)) => data,
                Ok(Err(_)) => continue,
                Err(error) => break error,
            };
            self.pace.received(data.len());
            // One piece may be large; what counts is that still more is asked for.
            if self.ahead.fetch_add(data.len() as u64, Relaxed) > MAX_AHEAD {
                break BodyError::Framing("the head of a part is too long");
            }
            return Poll::Ready(Some(Ok(data)));
        };
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        Poll::Ready(Some(Err(Early)))
    }
}

/// A name as it is repeated in the answer.
fn shortened(name: &str) -> String {
    name.chars().take(MAX_NAME).collect()
}
