//! What a hook is told about where it runs.

use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use crate::balance::Target;
use crate::config::consumer::Consumers;
use crate::config::model::Proxy;
pub use crate::http::exchange::SeatNumber;
use crate::http::reply::Cause;
use crate::proxy_state::ProxyState;

/// Where a plugin runs right now: the proxy, who may be recognised, and the plugin's place in the chain, under which its
/// state is kept.
#[derive(Debug, Clone, Copy)]
pub struct Seat<'a> {
    around: Around<'a>,
    place: u16,
}

/// What all the seats of one exchange or session have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) state: &'a ProxyState,
    pub(crate) consumers: &'a Consumers,
    pub(crate) target: Option<&'a Target>,
}

impl From<Seat<'_>> for SeatNumber {
    fn from(seat: Seat<'_>) -> Self {
        Self(seat.place)
    }
}

impl<'a> Around<'a> {
    pub(crate) fn seat(self, place: u16) -> Seat<'a> {
        Seat { around: self, place }
    }

    pub(crate) fn with_target(self, target: Option<&'a Target>) -> Self {
        Self { target, ..self }
    }
}

impl<'a> Seat<'a> {
    /// The seat at this place of a proxy's chain, for a request that is not sent.
    pub fn unused(state: &'a ProxyState, consumers: &'a Consumers, place: u16) -> Self {
        Around { state, consumers, target: None }.seat(place)
    }

    /// The proxy with its targets, breakers and what is known of its plugins.
    pub fn state(&self) -> &'a ProxyState {
        self.around.state
    }

    /// The proxy as configured.
    pub fn proxy(&self) -> &'a Proxy {
        &self.around.state.proxy
    }

    /// Every consumer of the configuration that the exchange or session began with.
    pub fn consumers(&self) -> &'a Consumers {
        self.around.consumers
    }

    /// The target of the last attempt; `None` before a target was picked.
    pub fn target(&self) -> Option<&'a Target> {
        self.around.target
    }

    /// The plugin's place in the chain, beginning at 1. No other plugin config of this chain has the same.
    pub fn place(&self) -> u16 {
        self.place
    }
}

/// One attempt to have a request answered.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// Where it goes.
    pub target: &'a Target,
    /// 1 for the first.
    pub number: u32,
    /// When it began: before plugins were shown it.
    pub begun: Instant,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy)]
pub enum AttemptEnd<'a> {
    /// The target answered.
    Answered {
        /// The answer's status.
        status: StatusCode,
        /// From the start of the attempt to the head of the answer.
        first_byte: Duration,
        /// Whether a kept connection served it.
        reused: bool,
    },
    /// There was no answer.
    Failed {
        /// Why.
        cause: Cause,
        /// More, for logs; never for the client.
        source: Option<&'a (dyn std::error::Error + Send + Sync)>,
    },
    /// Another attempt of the same request was answered before, and this one was given up.
    Cancelled,
}
