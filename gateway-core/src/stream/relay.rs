//! Carrying bytes between two ends, with half-close, an idle timeout and an account of both directions.

mod clock;
mod direction;
pub(crate) mod scratch;

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::http::tunnel::{Duplex, Tunnel};
pub(crate) use clock::Clock;
pub(crate) use direction::{Direction, Watch};

/// Both ends of an exchange that switched protocols.
pub struct Switched<'e> {
    /// The client's.
    pub client: &'e mut Tunnel,
    /// The target's.
    pub target: &'e mut Tunnel,
}

/// How long a relay may last.
#[derive(Debug, Clone, Copy)]
pub struct RelayTimeouts {
    /// Without a byte in either direction; zero is for ever.
    pub idle: Duration,
    /// In all; zero is for ever.
    pub lifetime: Duration,
}

/// How a relay ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayOutcome {
    /// Both ends closed.
    Closed,
    /// The client's end failed.
    ClientReset,
    /// The target's end failed.
    TargetReset,
    /// Nothing moved for too long.
    Idle,
    /// It lasted as long as it may.
    Lifetime,
    /// The gateway drains.
    Drained,
    /// A plugin refused a message.
    Refused,
    /// An end broke the rules of its protocol.
    Violated,
    /// A message was larger than it may be.
    TooLarge,
}

impl RelayOutcome {
    /// A stable word for logs and metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::ClientReset => "client_reset",
            Self::TargetReset => "target_reset",
            Self::Idle => "idle",
            Self::Lifetime => "lifetime",
            Self::Drained => "drained",
            Self::Refused => "message_refused",
            Self::Violated => "protocol_violated",
            Self::TooLarge => "message_too_large",
        }
    }
}

/// Bytes carried so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carried {
    /// From the client to the target.
    pub up: u64,
    /// From the target to the client.
    pub down: u64,
}

/// Which of a direction's ends failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayEnd {
    /// The one bytes come from.
    Reader,
    /// The one they go to.
    Writer,
}

/// What a shortcut came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortened {
    /// The reader has ended, and everything it sent is with the writer.
    End,
    /// It is not worth it any more, or can't be had now; nothing is under way in it.
    Over,
}

/// A way past the relay's buffers for bytes that come in bulk, such as splice(2) between two sockets.
pub trait Shortcut<R, W> {
    /// Whether there is one at all.
    const EXISTS: bool = true;

    /// Moves what can be moved; `carried` counts.
    fn poll_move(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
        carried: &mut u64,
    ) -> Poll<Result<Shortened, RelayEnd>>;
}

/// No shortcut.
impl<R, W> Shortcut<R, W> for () {
    const EXISTS: bool = false;

    fn poll_move(
        &mut self,
        _cx: &mut Context<'_>,
        _reader: &mut R,
        _writer: &mut W,
        _carried: &mut u64,
    ) -> Poll<Result<Shortened, RelayEnd>> {
        Poll::Ready(Ok(Shortened::Over))
    }
}

/// Carries bytes both ways until both ends have closed. `carried` counts, also when the future is dropped.
pub async fn relay<C: Duplex, T: Duplex>(
    client: &mut C,
    target: &mut T,
    timeouts: RelayTimeouts,
    carried: &mut Carried,
) -> RelayOutcome {
    relay_by(client, target, (), (), timeouts, carried).await
}

/// As [`relay`], with shortcuts up and down.
pub async fn relay_by<C: Duplex, T: Duplex>(
    client: &mut C,
    target: &mut T,
    mut up_short: impl Shortcut<C, T>,
    mut down_short: impl Shortcut<T, C>,
    timeouts: RelayTimeouts,
    carried: &mut Carried,
) -> RelayOutcome {
    let mut up = Direction::<()>::default();
    let mut down = Direction::<()>::default();
    let mut clock = Clock::new(timeouts);
    poll_fn(|cx| {
        let before = *carried;
        let up_state = up.poll(cx, client, target, &mut up_short, &mut carried.up);
        let down_state = down.poll(cx, target, client, &mut down_short, &mut carried.down);
        match outcome(up_state, down_state) {
            Some(end) => Poll::Ready(end),
            None => clock.poll(cx, *carried != before),
        }
    })
    .await
}

/// How a relay ended, if it did.
pub(crate) fn outcome(
    up: Poll<Result<(), RelayEnd>>,
    down: Poll<Result<(), RelayEnd>>,
) -> Option<RelayOutcome> {
    match (up, down) {
        (Poll::Ready(Err(RelayEnd::Reader)), _) | (_, Poll::Ready(Err(RelayEnd::Writer))) => {
            Some(RelayOutcome::ClientReset)
        }
        (Poll::Ready(Err(RelayEnd::Writer)), _) | (_, Poll::Ready(Err(RelayEnd::Reader))) => {
            Some(RelayOutcome::TargetReset)
        }
        (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Some(RelayOutcome::Closed),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
