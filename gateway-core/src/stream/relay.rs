//! Carrying bytes between two ends, with half-close, an idle timeout and an account of both directions.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Anything bytes flow through in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// One end of an exchange that switched protocols.
pub type Tunnel = Box<dyn Duplex>;

/// How long a relay may last.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Without a byte in either direction; zero is for ever.
    pub idle: Duration,
    /// In all; zero is for ever.
    pub lifetime: Duration,
}

/// How a relay ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
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
}

impl End {
    /// A stable word for logs and metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::ClientReset => "client_reset",
            Self::TargetReset => "target_reset",
            Self::Idle => "idle",
            Self::Lifetime => "lifetime",
            Self::Drained => "drained",
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

/// Bytes read at a time; a direction holds its buffer only while it has something in it or is reading.
const BUFFER: usize = 16 << 10;

/// Carries bytes both ways until both ends have closed. `carried` counts, also when the future is dropped.
pub async fn relay<C: Duplex, T: Duplex>(
    client: &mut C,
    target: &mut T,
    patience: Patience,
    carried: &mut Carried,
) -> End {
    let mut up = Direction::default();
    let mut down = Direction::default();
    let mut clock = Clock::new(patience);
    poll_fn(|cx| {
        let (up_state, up_moved) = up.poll(cx, client, target, &mut carried.up);
        let (down_state, down_moved) = down.poll(cx, target, client, &mut carried.down);
        match (up_state, down_state) {
            (Poll::Ready(Err(Side::Reader)), _) | (_, Poll::Ready(Err(Side::Writer))) => {
                return Poll::Ready(End::ClientReset);
            }
            (Poll::Ready(Err(Side::Writer)), _) | (_, Poll::Ready(Err(Side::Reader))) => {
                return Poll::Ready(End::TargetReset);
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(End::Closed),
            _ => {}
        }
        clock.poll(cx, up_moved || down_moved)
    })
    .await
}

/// Which of a direction's ends failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Reader,
    Writer,
}

/// One direction of a relay.
#[derive(Default)]
struct Direction {
    buffer: Option<Box<[u8]>>,
    start: usize,
    end: usize,
    stage: Stage,
    unflushed: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// The reader has ended; the writer is to be told once everything is written.
    Closing,
    Closed,
}

impl Direction {
    /// Moves what can be moved; also says whether anything was.
    fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
        carried: &mut u64,
    ) -> (Poll<Result<(), Side>>, bool) {
        let before = *carried;
        let state = self.advance(cx, reader, writer, carried);
        (state, *carried != before)
    }

    fn advance<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
        carried: &mut u64,
    ) -> Poll<Result<(), Side>> {
        loop {
            if self.start < self.end {
                let pending = self.buffer.as_deref().and_then(|buffer| buffer.get(self.start..self.end));
                let pending = pending.unwrap_or_default();
                let written = ready!(Pin::new(&mut *writer).poll_write(cx, pending));
                match written {
                    Ok(0) | Err(_) => return Poll::Ready(Err(Side::Writer)),
                    Ok(written) => {
                        self.start += written;
                        *carried += written as u64;
                        self.unflushed = true;
                    }
                }
                continue;
            }
            match self.stage {
                Stage::Closed => return Poll::Ready(Ok(())),
                Stage::Closing => {
                    // The other side may have gone already; then there is nobody left to tell.
                    let _told = ready!(Pin::new(&mut *writer).poll_shutdown(cx));
                    self.stage = Stage::Closed;
                    self.buffer = None;
                }
                Stage::Open => match self.poll_read(cx, reader) {
                    Poll::Ready(Ok(0)) => self.stage = Stage::Closing,
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(Side::Reader)),
                    Poll::Pending => {
                        if self.unflushed {
                            match ready!(Pin::new(&mut *writer).poll_flush(cx)) {
                                Ok(()) => self.unflushed = false,
                                Err(_) => return Poll::Ready(Err(Side::Writer)),
                            }
                        }
                        return Poll::Pending;
                    }
                },
            }
        }
    }

    fn poll_read<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
    ) -> Poll<io::Result<usize>> {
        let buffer = self.buffer.get_or_insert_with(|| vec![0; BUFFER].into_boxed_slice());
        let mut read = ReadBuf::new(buffer);
        match Pin::new(reader).poll_read(cx, &mut read) {
            Poll::Ready(Ok(())) => {
                (self.start, self.end) = (0, read.filled().len());
                Poll::Ready(Ok(self.end))
            }
            other => other.map_ok(|()| 0),
        }
    }
}

/// The idle timeout and the lifetime of a relay, by one timer that is moved lazily.
struct Clock {
    patience: Patience,
    end: Option<Instant>,
    last_moved: Instant,
    /// Bytes moved since the clock was last read; reading it for every message would cost more than the message.
    moved: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Clock {
    fn new(patience: Patience) -> Self {
        let now = Instant::now();
        let end = (!patience.lifetime.is_zero()).then(|| now + patience.lifetime);
        Self { patience, end, last_moved: now, moved: false, timer: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>, moved: bool) -> Poll<End> {
        self.moved |= moved;
        if self.patience.idle.is_zero() && self.end.is_none() {
            return Poll::Pending;
        }
        loop {
            let deadline = self.deadline();
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            ready!(timer.as_mut().poll(cx));
            let now = Instant::now();
            if self.end.is_some_and(|end| now >= end) {
                return Poll::Ready(End::Lifetime);
            }
            if std::mem::take(&mut self.moved) {
                // Something moved since the timer was armed; when exactly is not worth knowing.
                self.last_moved = now;
            } else if !self.patience.idle.is_zero() && now >= self.last_moved + self.patience.idle {
                return Poll::Ready(End::Idle);
            }
            let next = self.deadline();
            if let Some(timer) = &mut self.timer {
                timer.as_mut().reset(next);
            }
        }
    }

    fn deadline(&self) -> Instant {
        let idle = (!self.patience.idle.is_zero()).then(|| self.last_moved + self.patience.idle);
        match (idle, self.end) {
            (Some(idle), Some(end)) => idle.min(end),
            (Some(at), None) | (None, Some(at)) => at,
            (None, None) => self.last_moved,
        }
    }
}

#[cfg(test)]
mod tests;
