//! The messages of a gRPC body (gRPC over HTTP/2, "Length-Prefixed-Message").

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::HeaderMap;

use super::transform::{Output, Transform};
use super::{Body, BodyError};

/// One message of a gRPC body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcMessage {
    /// Compressed by the body's `grpc-encoding`.
    pub compressed: bool,
    /// Its bytes, without flag and length.
    pub payload: Bytes,
}

/// Flag and length before each message.
const PREFIX: usize = 5;

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
        out.reserve(PREFIX + self.payload.len());
        out.put_u8(u8::from(self.compressed));
        out.put_u32(u32::try_from(self.payload.len()).unwrap_or(u32::MAX));
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
        let Some((flag, length)) = self
            .rest
            .split_first_chunk::<PREFIX>()
            .map(|(prefix, _)| (prefix[0], u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]])))
        else {
            return Ok(None);
        };
        if flag > 1 {
            return Err(BodyError::Framing("unknown flag of a gRPC message"));
        }
        if u64::from(length) > self.limit {
            return Err(BodyError::TooLarge { limit: self.limit });
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if self.rest.len() - PREFIX < length {
            return Ok(None);
        }
        self.rest.advance(PREFIX);
        Ok(Some(GrpcMessage { compressed: flag == 1, payload: self.rest.split_to(length).freeze() }))
    }
}

impl<M: GrpcMessages> Transform for Messages<M> {
    fn data(&mut self, data: Bytes, out: &mut Output) -> Result<(), BodyError> {
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

    fn trailers(&mut self, mut trailers: HeaderMap, out: &mut Output) -> Result<(), BodyError> {
        self.messages.trailers(&mut trailers)?;
        out.trailers(trailers);
        Ok(())
    }

    fn end(&mut self, _out: &mut Output) -> Result<(), BodyError> {
        if self.rest.is_empty() { Ok(()) } else { Err(BodyError::Framing("a gRPC message is cut off")) }
    }
}
