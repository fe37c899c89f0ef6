//! HTTP/2 (RFC 9113) for both directions.
//!
//! [`connection::Connection`] is the protocol: octets in, messages out, octets to write out. It knows no socket and waits
//! for nothing. Those who have an exchange on it hold a [`handle::Handle`] each; [`wire::Wire`] moves its octets. All of it
//! belongs to one worker, so the connection lives in a cell that checks and never waits.

pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod flood;
pub(crate) mod flow;
pub(crate) mod frame;
pub(crate) mod handle;
pub(crate) mod head;
pub(crate) mod output;
pub(crate) mod send;
pub(crate) mod settings;
pub(crate) mod stream;
pub(crate) mod wire;

use std::fmt;

/// Which end of a connection we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Client,
}

/// An error code (RFC 9113 §7).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reason(pub(crate) u32);

impl Reason {
    pub(crate) const NO_ERROR: Self = Self(0);
    pub(crate) const PROTOCOL_ERROR: Self = Self(1);
    pub(crate) const INTERNAL_ERROR: Self = Self(2);
    pub(crate) const FLOW_CONTROL_ERROR: Self = Self(3);
    pub(crate) const SETTINGS_TIMEOUT: Self = Self(4);
    pub(crate) const STREAM_CLOSED: Self = Self(5);
    pub(crate) const FRAME_SIZE_ERROR: Self = Self(6);
    pub(crate) const REFUSED_STREAM: Self = Self(7);
    pub(crate) const CANCEL: Self = Self(8);
    pub(crate) const COMPRESSION_ERROR: Self = Self(9);
    pub(crate) const ENHANCE_YOUR_CALM: Self = Self(11);
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        match NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What ends a connection (RFC 9113 §5.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {note}")]
pub(crate) struct H2Error {
    pub(crate) reason: Reason,
    /// For whoever debugs the peer; goes out with GOAWAY.
    pub(crate) note: &'static str,
    /// The peer said nothing wrong, but nothing in time.
    pub(crate) is_timeout: bool,
}

impl H2Error {
    pub(crate) fn new(reason: Reason, note: &'static str) -> Self {
        Self { reason, note, is_timeout: false }
    }

    pub(crate) fn timeout(reason: Reason, note: &'static str) -> Self {
        Self { reason, note, is_timeout: true }
    }

    pub(crate) fn protocol(note: &'static str) -> Self {
        Self::new(Reason::PROTOCOL_ERROR, note)
    }
}
