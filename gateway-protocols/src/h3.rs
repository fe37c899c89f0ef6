//! HTTP/3 (RFC 9114) for both directions, over quinn's streams.
//!
//! [`frame::Frames`] and [`crate::qpack`] are the protocol's octets and know no stream. A request's stream has a
//! [`reader::MessageReader`] and a [`writer::Writer`], which belong to whoever has the exchange; [`peer::attend`] looks after
//! the connection's other streams (what they say is [`incoming`]'s), and [`link::H3Link`] is what all of them share. None of them is a task.

pub(crate) mod body;
pub(crate) mod frame;
pub(crate) mod incoming;
pub(crate) mod link;
pub(crate) mod peer;
pub(crate) mod reader;
pub(crate) mod settings;
pub(crate) mod writer;

use std::fmt;

/// An error code (RFC 9114 §8.1, RFC 9204 §6).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u64);

impl Code {
    pub(crate) const NO_ERROR: Self = Self(0x100);
    pub(crate) const INTERNAL_ERROR: Self = Self(0x102);
    pub(crate) const STREAM_CREATION_ERROR: Self = Self(0x103);
    pub(crate) const CLOSED_CRITICAL_STREAM: Self = Self(0x104);
    pub(crate) const FRAME_UNEXPECTED: Self = Self(0x105);
    pub(crate) const FRAME_ERROR: Self = Self(0x106);
    pub(crate) const EXCESSIVE_LOAD: Self = Self(0x107);
    pub(crate) const ID_ERROR: Self = Self(0x108);
    pub(crate) const SETTINGS_ERROR: Self = Self(0x109);
    pub(crate) const MISSING_SETTINGS: Self = Self(0x10a);
    pub(crate) const REQUEST_REJECTED: Self = Self(0x10b);
    pub(crate) const REQUEST_CANCELLED: Self = Self(0x10c);
    pub(crate) const REQUEST_INCOMPLETE: Self = Self(0x10d);
    pub(crate) const MESSAGE_ERROR: Self = Self(0x10e);
    pub(crate) const QPACK_DECOMPRESSION_FAILED: Self = Self(0x200);
    pub(crate) const QPACK_ENCODER_STREAM: Self = Self(0x201);
    pub(crate) const QPACK_DECODER_STREAM: Self = Self(0x202);
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 17] = [
            "H3_NO_ERROR",
            "H3_GENERAL_PROTOCOL_ERROR",
            "H3_INTERNAL_ERROR",
            "H3_STREAM_CREATION_ERROR",
            "H3_CLOSED_CRITICAL_STREAM",
            "H3_FRAME_UNEXPECTED",
            "H3_FRAME_ERROR",
            "H3_EXCESSIVE_LOAD",
            "H3_ID_ERROR",
            "H3_SETTINGS_ERROR",
            "H3_MISSING_SETTINGS",
            "H3_REQUEST_REJECTED",
            "H3_REQUEST_CANCELLED",
            "H3_REQUEST_INCOMPLETE",
            "H3_MESSAGE_ERROR",
            "H3_CONNECT_ERROR",
            "H3_VERSION_FALLBACK",
        ];
        let at = self.0.checked_sub(0x100).and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| NAMES.get(at)) {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What ends a connection (RFC 9114 §8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {note}")]
pub(crate) struct H3Error {
    pub(crate) code: Code,
    /// For whoever debugs the peer; goes out with the close.
    pub(crate) note: &'static str,
}

impl H3Error {
    pub(crate) fn new(code: Code, note: &'static str) -> Self {
        Self { code, note }
    }
}

/// Why a stream came to an early end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamError {
    /// The peer reset it, or wants no more of it.
    #[error("the peer ended the stream: {0}")]
    Reset(Code),
    /// We had to end it.
    #[error("the stream was refused: {0}")]
    Refused(Code),
    /// The connection is gone; what was said about it, if anything.
    #[error("the connection ended: {0}")]
    Lost(Code),
    /// Nothing moved for too long.
    #[error("the stream stalled")]
    Late,
}
