//! A shared connection to a target, and the task that moves its octets.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use atomic_refcell::AtomicRefCell;
use gateway_core::balance::ConnectionPlace;
use gateway_core::config::model::Http2Rules;
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::dns::ResolvedAddress;
use crate::h2::Role;
use crate::h2::connection::{self, Extra, LimitWatch, RequestLine, Rules};
use crate::h2::handle::{Cell, Handle};
use crate::h2::settings::Settings;
use crate::h2::wire::{self, Wire};
use crate::timer::Timer;

/// Heads of targets may be this large.
const MAX_HEADER_LIST: u32 = 64 << 10;
/// For a target to say its settings, and from a header block's first frame to its last.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// For a target to take anything of what waits for it.
const STALL: Duration = Duration::from_secs(120);
/// For what was said last to be taken.
const LINGER: Duration = Duration::from_secs(1);
/// Reads in a row before others have their turn.
const MAX_READS: usize = 32;

/// A connection to a target, shared by many exchanges; a task of its own drives it, until nobody holds it and its
/// last stream is over.
#[derive(Debug)]
pub(crate) struct H2Connection {
    cell: Cell,
    /// Streams the operator allows at a time.
    most: usize,
    /// Rung when one of its streams ends, for those who wait for room.
    pub(crate) waiters: Arc<Notify>,
    /// Where it leads, if the target was found by its name.
    resolved: Option<Arc<ResolvedAddress>>,
}

fn rules(rules: &Http2Rules) -> Rules {
    Rules {
        role: Role::Client,
        settings: Settings {
            enable_push: false,
            initial_window_size: rules.stream_window,
            max_frame_size: rules.max_frame_size,
            max_header_list_size: Some(MAX_HEADER_LIST),
            ..Settings::default()
        },
        connection_window: rules.connection_window,
        adaptive_window: rules.adaptive_window,
        max_header_list: MAX_HEADER_LIST as usize,
        timeout: CLOSE_TIMEOUT,
        stall: STALL,
        keep_alive: (rules.keep_alive_interval, rules.keep_alive_timeout),
    }
}

impl H2Connection {
    /// Speaks HTTP/2 over a link just made, which gives its place back once it is closed.
    pub(crate) fn open_on<T>(
        io: T,
        told: &Http2Rules,
        waiters: Arc<Notify>,
        place: Option<ConnectionPlace>,
    ) -> Self
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = connection::Connection::new(rules(told), Instant::now());
        let cell: Cell = Arc::new(AtomicRefCell::new(connection));
        let most = told.max_concurrent_streams.and_then(|streams| usize::try_from(streams).ok());
        let most = most.unwrap_or(usize::MAX);
        let mut driver = Driver { cell: cell.clone(), wire: Wire::new(io), alarm: Timer::default() };
        tokio::spawn(async move {
            poll_fn(|cx| driver.poll(cx)).await;
            let mut shut = false;
            drop(tokio::time::timeout(LINGER, poll_fn(|cx| driver.wire.poll_close(cx, &mut shut))).await);
            drop(driver);
            drop(place);
        });
        Self { cell, most, waiters, resolved: None }
    }

    /// The same, which leads there.
    pub(crate) fn at(mut self, resolved: Option<Arc<ResolvedAddress>>) -> Self {
        self.resolved = resolved;
        self
    }

    /// Whether its target's name still leads where it leads.
    pub(crate) fn is_current(&self, now: Instant) -> bool {
        self.resolved.as_ref().is_none_or(|resolved| resolved.is_current(now))
    }

    /// Has somebody told how many streams the target allows from now on.
    pub(crate) fn watch_limit(&self, mut watch: impl FnMut(usize) + Send + Sync + 'static) {
        let most = self.most;
        if let Ok(mut connection) = self.cell.try_borrow_mut() {
            connection.on_limit = Some(LimitWatch::new(move |streams| watch(streams.min(most))));
        }
    }

    /// Whether streams can still be opened on it.
    pub(crate) fn is_open(&self) -> bool {
        self.cell.try_borrow().is_ok_and(|connection| connection.is_open())
    }

    /// Whether the target has begun as HTTP/2 does.
    pub(crate) fn has_spoken(&self) -> bool {
        self.cell.try_borrow().is_ok_and(|connection| connection.has_spoken())
    }

    /// Streams the target allows at a time.
    pub(crate) fn max_streams(&self) -> usize {
        let streams = self.cell.try_borrow().map_or(0, |connection| connection.peer_streams());
        usize::try_from(streams).unwrap_or(usize::MAX).min(self.most)
    }

    /// Whether a stream can be opened now, or it is certain that none ever can.
    pub(crate) fn has_room(&self) -> bool {
        self.cell.try_borrow().is_ok_and(|connection| connection.has_room() || !connection.is_open())
    }

    /// Opens a stream and sends a request's head on it; waits for a place where the target allows none now. `None` when
    /// no stream can be opened any more.
    pub(crate) async fn open(
        &self,
        line: &RequestLine<'_>,
        headers: &HeaderMap,
        extra: &Extra<'_>,
        ends: bool,
    ) -> Option<Handle> {
        poll_fn(|cx| {
            let Ok(mut connection) = self.cell.try_borrow_mut() else { return Poll::Ready(None) };
            if connection.is_open() && !connection.has_room() {
                connection.await_room(cx);
                return Poll::Pending;
            }
            Poll::Ready(connection.request(line, headers, extra, ends))
        })
        .await
        .map(|(key, _)| Handle::adopt(&self.cell, key))
    }
}

impl Clone for H2Connection {
    fn clone(&self) -> Self {
        if let Ok(mut connection) = self.cell.try_borrow_mut() {
            connection.owners += 1;
        }
        Self {
            cell: self.cell.clone(),
            most: self.most,
            waiters: self.waiters.clone(),
            resolved: self.resolved.clone(),
        }
    }
}

impl Drop for H2Connection {
    fn drop(&mut self) {
        if let Ok(mut connection) = self.cell.try_borrow_mut() {
            connection.owners -= 1;
            if connection.owners == 0 {
                connection.leave();
            }
        }
    }
}

struct Driver<T> {
    cell: Cell,
    wire: Wire<T>,
    alarm: Timer,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Driver<T> {
    /// Moves octets until the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Ok(mut connection) = self.cell.try_borrow_mut() {
            connection.attend();
        }
        for _ in 0..MAX_READS {
            let written = self.wire.poll_write(cx, &self.cell);
            let over = self.cell.try_borrow().is_ok_and(|connection| connection.is_over());
            match written {
                Poll::Ready(Err(error)) => return self.lost(Err(error)),
                Poll::Ready(Ok(())) if over => return Poll::Ready(()),
                _ => {}
            }
            match self.wire.poll_read(cx, &self.cell) {
                Poll::Ready(Ok(true)) => self.tell_limit(),
                Poll::Ready(ended) => return self.lost(ended),
                Poll::Pending => {
                    if !self.look_after(cx) {
                        return Poll::Pending;
                    }
                }
            }
        }
        // Others want their turn; there is more to do here.
        if let Ok(mut connection) = self.cell.try_borrow_mut() {
            connection.watch(cx);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Waits; true when a deadline has passed instead.
    fn look_after(&mut self, cx: &mut Context<'_>) -> bool {
        let Ok(mut connection) = self.cell.try_borrow_mut() else { return false };
        self.alarm.set_at(connection.alarm());
        if self.alarm.poll_elapsed(cx).is_ready() {
            connection.expire(Instant::now());
            return true;
        }
        connection.watch(cx);
        false
    }

    /// Passes on how many streams the target allows, where that has changed.
    fn tell_limit(&self) {
        let told = self.cell.try_borrow_mut().ok().and_then(|mut connection| {
            let changed = connection.take_limit_change();
            let watch = connection.on_limit.take_if(|_| changed)?;
            Some((watch, connection.peer_streams()))
        });
        if let Some((mut watch, streams)) = told {
            watch.tell(usize::try_from(streams).unwrap_or(usize::MAX));
            if let Ok(mut connection) = self.cell.try_borrow_mut() {
                connection.on_limit = Some(watch);
            }
        }
    }

    fn lost(&self, how: std::io::Result<bool>) -> Poll<()> {
        if let Ok(mut connection) = self.cell.try_borrow_mut() {
            connection.lose(wire::ended(how));
        }
        Poll::Ready(())
    }
}
