//! A byte stream on its way through a module: both directions pass in pieces that the guest can hold back and change.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Wake, Poll, ready};

use bytes::{Buf as _, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use gateway_core::stream::cut::{Cut, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::host::{Direction, Directions, Made};
use super::visit::{GuestContext, Stop};

/// Bytes that the guest is shown at a time.
const PIECE: usize = 16 << 10;

/// Why a session ends, as its record says.
pub(super) const FAILED: &str = "wasm_failed";
const CLOSED: &str = "wasm_closed";
const TOO_MUCH: &str = "wasm_body_too_large";

/// The guest's calls, and what it has decided.
struct Guest {
    visit: Arc<GuestContext>,
    calls: FuturesUnordered<BoxFuture<'static, Made>>,
}

/// Which ways the guest has asked to go on.
#[derive(Debug, Clone, Copy, Default)]
struct Resumed {
    up: bool,
    down: bool,
}

impl Guest {
    fn new(visit: Arc<GuestContext>) -> Self {
        Self { visit, calls: FuturesUnordered::new() }
    }

    /// After the guest was called: begins its calls, and looks at what it has decided. The reason, where it closes the session.
    fn decided(&self) -> Result<Result<Resumed, &'static str>, Stop> {
        for call in self.visit.take_calls()? {
            self.calls.push(self.visit.core.make(call));
        }
        self.visit.context(|context| {
            let (up, down) = (&mut context.request, &mut context.response);
            if up.is_closed || down.is_closed {
                return Err(CLOSED);
            }
            let resumed = (std::mem::take(&mut up.is_resumed), std::mem::take(&mut down.is_resumed));
            Ok(Resumed { up: resumed.0, down: resumed.1 })
        })
    }

    /// Tells the guest of calls that were answered. Also other contexts may end a pause: whoever waits is woken then.
    fn poll_calls(&mut self, cx: &mut Wake<'_>) -> Result<(), Stop> {
        // A gRPC stream may have had the guest ask for some.
        for call in self.visit.take_calls()? {
            self.calls.push(self.visit.core.make(call));
        }
        while let Poll::Ready(Some(made)) = self.calls.poll_next_unpin(cx) {
            self.visit.with(|vm| vm.answered(made))?;
            for call in self.visit.take_calls()? {
                self.calls.push(self.visit.core.make(call));
            }
        }
        let waker = cx.waker().clone();
        self.visit.context(|context| context.waker = Some(waker))
    }
}

/// A connection that the guest was told of and has not let go on yet.
pub(super) struct Opening(Guest);

/// What became of a connection.
pub(super) enum StreamStart {
    GoesOn,
    Waits(Opening),
    Refused(&'static str),
}

impl Opening {
    /// Tells the guest of a new connection.
    ///
    /// # Errors
    /// When the guest fails.
    pub(super) fn begin(visit: Arc<GuestContext>) -> Result<StreamStart, Stop> {
        let id = visit.id;
        let action = visit.with(|vm| vm.run(|all| all.on_new_connection.clone(), id, (id,)))?;
        let guest = Guest::new(visit);
        let decided = guest.decided()?;
        Ok(match decided {
            Err(reason) => StreamStart::Refused(reason),
            Ok(resumed) if action.unwrap_or(0) == 0 || resumed.up => StreamStart::GoesOn,
            Ok(_) => StreamStart::Waits(Self(guest)),
        })
    }

    /// Comes when the guest has decided; the reason, where it closes the connection.
    ///
    /// # Errors
    /// When the guest fails.
    pub(super) async fn decided(mut self) -> Result<Result<(), &'static str>, Stop> {
        std::future::poll_fn(|cx| {
            self.0.poll_calls(cx)?;
            match self.0.decided()? {
                Err(reason) => Poll::Ready(Ok(Err(reason))),
                Ok(Resumed { up: true, .. }) => Poll::Ready(Ok(Ok(()))),
                Ok(_) => Poll::Pending,
            }
        })
        .await
    }
}

/// One direction.
#[derive(Default)]
struct Pass {
    /// May go on.
    out: BytesMut,
    /// Bytes that the guest holds back.
    held: usize,
    is_paused: bool,
    ended: bool,
    is_seen: bool,
}

/// The client's end with the guest in front of it.
pub(super) struct Tap<'a> {
    client: Stream<'a>,
    cut: &'a Cut,
    guest: Guest,
    up: Pass,
    down: Pass,
    /// The guest has failed, and the session goes on without it.
    passes: bool,
    /// The session is over.
    is_cut: bool,
}

impl<'a> Tap<'a> {
    /// `sees` says which directions the guest looks at.
    pub(super) fn new(client: Stream<'a>, visit: Arc<GuestContext>, sees: Directions, cut: &'a Cut) -> Self {
        let pass = |is_seen| Pass { is_seen, ..Pass::default() };
        let (up, down) = (pass(sees.up), pass(sees.down));
        Self { client, cut, guest: Guest::new(visit), up, down, passes: false, is_cut: false }
    }

    fn cut(&mut self, reason: &'static str) -> io::Error {
        self.cut.note(reason);
        self.is_cut = true;
        io::Error::other(reason)
    }

    /// The guest has failed: the session goes on without it where that is configured and nothing is lost by it.
    fn stopped(&mut self, stop: &Stop) -> io::Result<()> {
        match stop {
            Stop::Pass if self.up.held == 0 && self.down.held == 0 => {
                self.passes = true;
                Ok(())
            }
            _ => Err(self.cut(FAILED)),
        }
    }

    /// Looks at what the guest has decided, and takes what may go on.
    fn settle(&mut self) -> io::Result<()> {
        let resumed = match self.guest.decided() {
            Ok(Ok(resumed)) => resumed,
            Ok(Err(reason)) => return Err(self.cut(reason)),
            Err(stop) => return self.stopped(&stop),
        };
        for (way, is_resumed) in [(Direction::Request, resumed.up), (Direction::Response, resumed.down)] {
            self.pass(way).is_paused &= !is_resumed;
            if self.pass(way).is_paused {
                continue;
            }
            match self.guest.visit.context(|context| context.side(way).body.take()) {
                Ok(bytes) => {
                    let pass = self.pass(way);
                    pass.out.unsplit(bytes.unwrap_or_default());
                    pass.held = 0;
                }
                Err(stop) => return self.stopped(&stop),
            }
        }
        Ok(())
    }

    fn pass(&mut self, way: Direction) -> &mut Pass {
        match way {
            Direction::Request => &mut self.up,
            Direction::Response => &mut self.down,
        }
    }

    /// Has the guest hear of answers to its calls, and does what they made it decide.
    fn drive(&mut self, cx: &mut Wake<'_>) -> io::Result<()> {
        if self.is_cut {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let is_told = !self.guest.calls.is_empty() || self.guest.visit.listens();
        if self.passes || !(is_told || self.up.is_paused || self.down.is_paused) {
            return Ok(());
        }
        match self.guest.poll_calls(cx) {
            Ok(()) => self.settle(),
            Err(stop) => self.stopped(&stop),
        }
    }

    /// Tells the guest of more bytes of a direction, or of its end.
    fn piece(&mut self, way: Direction, data: &[u8], is_end: bool) -> io::Result<()> {
        let (visit, limit) = (self.guest.visit.clone(), self.guest.visit.core.parts.rules.max_body);
        let pass = self.pass(way);
        pass.ended |= is_end;
        if !pass.is_seen {
            pass.out.extend_from_slice(data);
            // Where the guest has failed, it does not hear of it.
            drop(visit.context(|context| context.side(way).is_over = is_end));
            return Ok(());
        }
        if pass.held > 0 && pass.held + data.len() > limit {
            return Err(self.cut(TOO_MUCH));
        }
        let told = visit.context(|context| {
            let body = context.side(way).body.get_or_insert_default();
            body.extend_from_slice(data);
            context.side(way).is_over = is_end;
        });
        let id = visit.id;
        match told.and_then(|()| visit.with(|vm| vm.stream_data(way, id, is_end))) {
            Ok(action) => self.pass(way).is_paused = action.unwrap_or(0) != 0,
            Err(stop) => {
                self.stopped(&stop)?;
                // It held nothing back before, and what it was shown goes on as it came.
                let pass = self.pass(way);
                pass.out.extend_from_slice(data);
                return Ok(());
            }
        }
        let held = visit.context(|context| context.side(way).body.as_ref().map_or(0, BytesMut::len));
        self.pass(way).held = held.unwrap_or(0);
        self.settle()
    }

    /// Writes to the client what may go on.
    fn poll_out(&mut self, cx: &mut Wake<'_>) -> Poll<io::Result<()>> {
        while !self.down.out.is_empty() {
            match ready!(Pin::new(&mut self.client).poll_write(cx, &self.down.out)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(written) => self.down.out.advance(written),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Tap<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Wake<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            this.drive(cx)?;
            if !this.up.out.is_empty() {
                let take = this.up.out.len().min(buf.remaining());
                buf.put_slice(&this.up.out[..take]);
                this.up.out.advance(take);
                return Poll::Ready(Ok(()));
            }
            if this.passes {
                return Pin::new(&mut this.client).poll_read(cx, buf);
            }
            if this.up.ended {
                return if this.up.is_paused { Poll::Pending } else { Poll::Ready(Ok(())) };
            }
            let mut room = [0; PIECE];
            let mut read = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut this.client).poll_read(cx, &mut read))?;
            let is_end = read.filled().is_empty();
            this.piece(Direction::Request, read.filled(), is_end)?;
        }
    }
}

impl AsyncWrite for Tap<'_> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Wake<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.drive(cx)?;
        // No more than one piece waits for a slow client.
        ready!(this.poll_out(cx))?;
        if this.passes {
            return Pin::new(&mut this.client).poll_write(cx, data);
        }
        let piece = data.get(..PIECE).unwrap_or(data);
        this.piece(Direction::Response, piece, false)?;
        match this.poll_out(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(piece.len())),
        }
    }

    /// Comes when the guest holds nothing back any more: until then, whoever flushes looks again whenever something happens.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Wake<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.drive(cx)?;
        ready!(this.poll_out(cx))?;
        ready!(Pin::new(&mut this.client).poll_flush(cx))?;
        if this.down.held > 0 { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Wake<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.drive(cx)?;
        if !this.passes && !this.down.ended {
            this.piece(Direction::Response, &[], true)?;
        }
        ready!(this.poll_out(cx))?;
        if this.down.is_paused && !this.passes {
            return Poll::Pending;
        }
        Pin::new(&mut this.client).poll_shutdown(cx)
    }
}
