//! The messages of a gRPC body (gRPC over HTTP/2, "Length-Prefixed-Message").

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::HeaderMap;

use super::transform::{Transform, TransformOutput};
use super::{Body, BodyError};

/// One message of a gRPC body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcMessage {
    /// Compressed by the body's `grpc-encoding`.
    pub compressed: bool,
    /// Its bytes, without flag and length.
    pub payload: Bytes,
}

/// What comes before each message of a gRPC body: a flag and a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrpcPrefix {
    /// The message is compressed by the body's `grpc-encoding`.
    pub compressed: bool,
    /// The bytes of the message that follow.
    pub length: usize,
}

impl GrpcPrefix {
    /// The bytes that it takes.
    pub const BYTES: usize = 5;

    /// Reads the prefix that `bytes` begin with; `None` where less than that has come.
    ///
    /// # Errors
    /// [`BodyError::Framing`] when the flag is neither 0 nor 1, [`BodyError::TooLarge`] when the message is larger than
    /// `limit` bytes.
    pub fn read(bytes: &[u8], limit: u64) -> Result<Option<Self>, BodyError> {
        let Some(([flag, length @ ..], _)) = bytes.split_first_chunk::<{ Self::BYTES }>() else {
            return Ok(None);
        };
        let compressed = match flag {
            0 => false,
            1 => true,
            _ => return Err(BodyError::Framing("unknown flag of a gRPC message")),
        };
        let length = u32::from_be_bytes(*length);
        if u64::from(length) > limit {
            return Err(BodyError::TooLarge { limit });
        }
        Ok(Some(Self { compressed, length: usize::try_from(length).unwrap_or(usize::MAX) }))
    }

    /// Writes it; the message has to follow.
    pub fn write(self, out: &mut BytesMut) {
        out.put_u8(u8::from(self.compressed));
        out.put_u32(u32::try_from(self.length).unwrap_or(u32::MAX));
    }
}

/// Sees each message of a gRPC body.
pub trait GrpcMessages: Send + 'static {
    /// A message came. `None` drops it.
    ///
    /// # Errors
    /// Ends the body.
    fn message(&mut self, message: GrpcMessage) -> Result<Option<GrpcMessage>, BodyError>;

    /// The trailers came; they may be changed.
    ///
    /// # Errors
    /// Ends the body.
    fn trailers(&mut self, trailers: &mut HeaderMap) -> Result<(), BodyError> {
        let _ = trailers;
        Ok(())
    }
}

impl Body {
    /// This gRPC body with each of its messages, of at most `limit` bytes, shown to `messages`. A larger one ends the
    /// body with [`BodyError::TooLarge`], one that is cut off with [`BodyError::Framing`].
    #[must_use]
    pub fn grpc_messages(self, limit: u64, messages: impl GrpcMessages) -> Self {
        self.transform(Messages { limit, messages, rest: BytesMut::new() })
    }
}

impl GrpcMessage {
    /// With flag and length, as it stands in a body.
    pub fn write(&self, out: &mut BytesMut) {
        out.reserve(GrpcPrefix::BYTES + self.payload.len());
        GrpcPrefix { compressed: self.compressed, length: self.payload.len() }.write(out);
        out.extend_from_slice(&self.payload);
    }
}

struct Messages<M> {
    limit: u64,
    messages: M,
    rest: BytesMut,
}

impl<M: GrpcMessages> Messages<M> {
    fn next(&mut self) -> Result<Option<GrpcMessage>, BodyError> {
        let Some(prefix) = GrpcPrefix::read(&self.rest, self.limit)? else { return Ok(None) };
        if self.rest.len() - GrpcPrefix::BYTES < prefix.length {
            return Ok(None);
        }
        self.rest.advance(GrpcPrefix::BYTES);
        let payload = self.rest.split_to(prefix.length).freeze();
        Ok(Some(GrpcMessage { compressed: prefix.compressed, payload }))
    }
}

impl<M: GrpcMessages> Transform for Messages<M> {
    fn data(&mut self, data: Bytes, out: &mut TransformOutput) -> Result<(), BodyError> {
        self.rest.extend_from_slice(&data);
        while let Some(message) = self.next()? {
            if let Some(message) = self.messages.message(message)? {
                let mut bytes = BytesMut::new();
                message.write(&mut bytes);
                out.data(bytes.freeze());
            }
        }
        Ok(())
    }

    fn trailers(&mut self, mut trailers: HeaderMap, out: &mut TransformOutput) -> Result<(), BodyError> {
        self.messages.trailers(&mut trailers)?;
        out.trailers(trailers);
        Ok(())
    }

    fn end(&mut self, _out: &mut TransformOutput) -> Result<(), BodyError> {
        if self.rest.is_empty() { Ok(()) } else { Err(BodyError::Framing("a gRPC message is cut off")) }
    }
}
