//! Reading a message's body by its framing, without a socket.

use bytes::{Bytes, BytesMut};
use gateway_core::http::body::BodyError;
use http::HeaderMap;

use super::chunked::{ChunkPiece, Chunked};
use super::head::Framing;

/// What is left to read of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoder {
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked(Chunked),
    /// Everything until the connection ends.
    UntilClose,
    /// Nothing.
    Done,
}

/// One step of reading.
#[derive(Debug)]
pub enum BodyStep {
    /// Bytes of the body.
    Data(Bytes),
    /// Trailers; nothing follows.
    Trailers(HeaderMap),
    /// Nothing is left.
    End,
    /// More bytes are needed.
    More,
}

impl From<Framing> for Decoder {
    fn from(framing: Framing) -> Self {
        match framing {
            Framing::None => Self::Done,
            Framing::Length(bytes) => Self::Length(bytes),
            Framing::Chunked => Self::Chunked(Chunked::default()),
            Framing::UntilClose => Self::UntilClose,
        }
    }
}

impl Decoder {
    /// Whether nothing is left.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Done | Self::Length(0) => true,
            Self::Chunked(chunked) => chunked.is_done(),
            _ => false,
        }
    }

    /// The length still to come, where it is known.
    pub fn exact_length(&self) -> Option<u64> {
        match self {
            Self::Length(bytes) => Some(*bytes),
            Self::Done => Some(0),
            Self::Chunked(_) | Self::UntilClose => None,
        }
    }

    /// Bytes worth reading at a time.
    pub fn wants(&self) -> usize {
        match self {
            Self::Length(bytes) => usize::try_from(*bytes).unwrap_or(usize::MAX),
            Self::Chunked(_) | Self::UntilClose => usize::MAX,
            Self::Done => 0,
        }
    }

    /// Takes the next piece off `buffer`.
    ///
    /// # Errors
    /// Broken framing.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<BodyStep, BodyError> {
        match self {
            Self::Done | Self::Length(0) => {
                *self = Self::Done;
                Ok(BodyStep::End)
            }
            Self::Length(left) => {
                if buffer.is_empty() {
                    return Ok(BodyStep::More);
                }
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                *left -= take as u64;
                Ok(BodyStep::Data(buffer.split_to(take).freeze()))
            }
            Self::UntilClose if buffer.is_empty() => Ok(BodyStep::More),
            Self::UntilClose => Ok(BodyStep::Data(buffer.split().freeze())),
            Self::Chunked(chunked) => {
                match chunked.next(buffer).map_err(|error| BodyError::Framing(error.0))? {
                    ChunkPiece::Data(data) => Ok(BodyStep::Data(data)),
                    ChunkPiece::More => Ok(BodyStep::More),
                    ChunkPiece::End(trailers) => {
                        *self = Self::Done;
                        Ok(trailers.map_or(BodyStep::End, BodyStep::Trailers))
                    }
                }
            }
        }
    }

    /// What the end of the connection means here.
    ///
    /// # Errors
    /// [`BodyError::Incomplete`], unless the body ends with its connection.
    pub fn end_of_stream(&mut self) -> Result<(), BodyError> {
        if *self == Self::UntilClose || self.is_done() {
            *self = Self::Done;
            return Ok(());
        }
        Err(BodyError::Incomplete)
    }
}
