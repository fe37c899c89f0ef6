//! Everything that can be wrong with an answer; one fault makes its row void.

use std::io;

use serde::{Deserialize, Serialize};

use super::Stamp;

/// Why a round trip does not count.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("handshake failed: {0}")]
    Handshake(String),
    #[error("no answer in time")]
    Timeout,
    #[error("connection closed before the answer")]
    Closed,
    /// By its GOAWAY the server has not processed the request, so it may be sent again.
    #[error("the server closes the connection and has not processed the request")]
    Unprocessed,
    #[error("connection broke: {0}")]
    Io(#[from] io::Error),
    #[error("protocol broken: {0}")]
    Protocol(String),
    #[error("status {got}, expected {expected}")]
    Status { got: u16, expected: u16 },
    #[error("grpc-status {0}")]
    GrpcStatus(String),
    #[error("{got} bytes, expected {expected}")]
    Length { got: usize, expected: usize },
    #[error("byte {at} of the answer is wrong")]
    Content { at: usize },
    #[error("the answer belongs to another request ({got:?} instead of {expected:?})")]
    Swapped { got: Stamp, expected: Stamp },
}

/// The kinds faults are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    Connect,
    Handshake,
    Timeout,
    Closed,
    Io,
    Protocol,
    Status,
    Length,
    Content,
    Swapped,
}

impl Fault {
    /// The kind it is counted by.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Connect(_) => FaultKind::Connect,
            Self::Handshake(_) => FaultKind::Handshake,
            Self::Timeout => FaultKind::Timeout,
            Self::Closed | Self::Unprocessed => FaultKind::Closed,
            Self::Io(_) => FaultKind::Io,
            Self::Protocol(_) => FaultKind::Protocol,
            Self::Status { .. } | Self::GrpcStatus(_) => FaultKind::Status,
            Self::Length { .. } => FaultKind::Length,
            Self::Content { .. } => FaultKind::Content,
            Self::Swapped { .. } => FaultKind::Swapped,
        }
    }

    /// Whether the connection can carry no further request. A wrong status or content arrives in a well-framed
    /// answer, so the lane may go on; a wrong length of a byte stream is told as `Protocol` or `Closed` instead.
    #[must_use]
    pub fn ends_connection(&self) -> bool {
        !matches!(
            self,
            Self::Status { .. }
                | Self::GrpcStatus(_)
                | Self::Length { .. }
                | Self::Content { .. }
                | Self::Swapped { .. }
        )
    }

    /// A handshake fault from any error.
    pub fn handshake(error: impl std::fmt::Display) -> Self {
        Self::Handshake(error.to_string())
    }

    /// A protocol fault from any error.
    pub fn protocol(error: impl std::fmt::Display) -> Self {
        Self::Protocol(error.to_string())
    }
}

impl FaultKind {
    /// The kind in words, for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect failures",
            Self::Handshake => "handshake failures",
            Self::Timeout => "answers missing",
            Self::Closed => "connections closed early",
            Self::Io => "connections broken",
            Self::Protocol => "protocol errors",
            Self::Status => "wrong statuses",
            Self::Length => "wrong lengths",
            Self::Content => "wrong contents",
            Self::Swapped => "swapped answers",
        }
    }

    /// What a user may try.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Connect => {
                "check that the server runs at this address; with fewer connections (-c) it may accept all of them"
            }
            Self::Handshake => {
                "check the scheme: https:// and h2:// need a server that speaks TLS, and h2:// and h3:// its version"
            }
            Self::Timeout => "raise --timeout, or lower the load with -c or -r",
            Self::Closed | Self::Io => {
                "look into the server's log; where it closes each connection, use --fresh"
            }
            Self::Protocol => "check the scheme: the server answers in another protocol",
            Self::Status => "if this status is right, give it with --expect-status",
            Self::Length | Self::Content => {
                "a server that does not send back what it gets needs --method GET; --expect-size, --expect-body and --no-verify-body say what \
                 its answers are"
            }
            Self::Swapped => {
                "look for a cache or a shared buffer on the way: answers reach other requests than their own"
            }
        }
    }
}

/// Compares an answer's body with what was expected, byte by byte.
pub(super) fn compare(got: &[u8], expected: &[u8]) -> Result<(), Fault> {
    if got.len() != expected.len() {
        return Err(Fault::Length { got: got.len(), expected: expected.len() });
    }
    if got == expected {
        return Ok(());
    }
    let at = got.iter().zip(expected).position(|(got, expected)| got != expected).unwrap_or_default();
    Err(Fault::Content { at })
}
