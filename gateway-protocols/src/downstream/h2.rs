//! HTTP/2 with a client: many exchanges at a time on one connection, all of them in its one task.

mod respond;
pub(super) mod slots;
pub(super) mod tunnel;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use atomic_refcell::AtomicRefCell;
use gateway_core::config::model::Settings;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::{Client, Exchange};
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::snapshot::Snapshot;
use http::{HeaderValue, Method, Request, Uri, Version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::coop::has_budget_remaining;
use tokio::time::Instant;

use crate::h2::Role;
use crate::h2::body;
use crate::h2::connection::{Connection, NewRequest, Rules};
use crate::h2::handle::{Cell, Handle};
use crate::h2::head::{RequestHead, Unreadable};
use crate::h2::settings::Settings as Told;
use crate::h2::wire::{self, Wire};
use crate::registry::ConnectionControl;
use crate::timer::Timer;
use crate::worker::Worker;
use respond::Responder;
use slots::{JobSlot, Slots};

/// What one stream may send before it is read.
const STREAM_WINDOW: u32 = 256 << 10;
/// What one connection may send before it is read.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// How long a client without streams may take to answer a GOAWAY.
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a closed connection is still read, so that the client gets to see what it was told last.
const LINGER: Duration = Duration::from_secs(1);
/// How long a connection without streams keeps what the next ones would need again.
const REST: Duration = Duration::from_secs(1);
/// Reads in a row before other connections have their turn.
const MAX_READS: usize = 32;

/// One connection.
struct Server<'w, T> {
    worker: &'w Arc<Worker>,
    client: Arc<Client>,
    entry: &'w ConnectionControl,
    cell: Cell,
    wire: Wire<T>,
    slots: Slots<'w, NewRequest>,
    alarm: Timer,
    idle: Idle,
}

/// Closes a connection without streams after a while.
struct Idle {
    timer: Timer,
    timeout: Duration,
    leaving: bool,
    resting: bool,
}

fn rules(settings: &Settings) -> Rules {
    let limits = &settings.limits;
    Rules {
        role: Role::Server,
        settings: Told {
            max_concurrent_streams: Some(limits.max_concurrent_streams),
            initial_window_size: STREAM_WINDOW,
            max_header_list_size: Some(u32::try_from(limits.max_header_size).unwrap_or(u32::MAX)),
            enable_connect_protocol: true,
            ..Told::default()
        },
        connection_window: CONNECTION_WINDOW,
        adaptive_window: false,
        max_header_list: limits.max_header_size,
        timeout: settings.client_timeouts.header,
        stall: settings.client_timeouts.body,
        keep_alive: (Duration::ZERO, Duration::ZERO),
    }
}

/// Serves a connection until it ends.
pub(super) async fn serve<T>(worker: &Arc<Worker>, io: T, client: Arc<Client>, entry: &ConnectionControl)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let (rules, timeout) = {
        let settings = &worker.snapshot().settings;
        (rules(settings), settings.client_timeouts.keep_alive)
    };
    let mut server = Server {
        worker,
        client,
        entry,
        cell: Arc::new(AtomicRefCell::new(Connection::new(rules, Instant::now()))),
        wire: Wire::new(io),
        slots: Slots::new(),
        alarm: Timer::default(),
        idle: Idle { timer: Timer::default(), timeout, leaving: false, resting: false },
    };
    let polite = poll_fn(|cx| server.poll(cx)).await;
    let Server { mut wire, slots, .. } = server;
    // What is still under way can't be answered any more: it is recorded, and lets its targets go, now.
    drop(slots);
    if polite {
        let mut shut = false;
        let closing = poll_fn(|cx| wire.poll_close(cx, &mut shut));
        drop(tokio::time::timeout(LINGER, closing).await);
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Server<'_, T> {
    /// Serves until the connection is over; whether the client deserves a proper end of the stream.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.slots.attend();
        if let Ok(mut connection) = self.cell.try_borrow_mut() {
            connection.attend();
        }
        for _ in 0..MAX_READS {
            let polite = ready!(self.turn(cx));
            if let Some(polite) = polite {
                return Poll::Ready(polite);
            }
            // Without a budget left every socket says that it is not ready, and has us called again.
            if !has_budget_remaining() {
                break;
            }
        }
        // Others want their turn; there is more to do here.
        self.leave_watch(cx);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Runs what can run, writes what there is, reads once; pending when there is nothing left to do.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Option<bool>> {
        let worker = self.worker;
        let ran = self.slots.run(|| worker.panicked());
        let written = self.wire.poll_write(cx, &self.cell);
        let over = self.cell.try_borrow().is_ok_and(|connection| connection.is_over());
        match written {
            Poll::Ready(Err(error)) => return self.lost(Err(error)),
            Poll::Ready(Ok(())) if over => return self.over(),
            _ => {}
        }
        match self.wire.poll_read(cx, &self.cell) {
            Poll::Ready(Ok(true)) => {
                self.accept();
                return Poll::Ready(None);
            }
            Poll::Ready(ended) => {
                // What a client sent before it closed is answered where nothing has to be waited for.
                let _written = self.wire.poll_write(cx, &self.cell);
                return self.lost(ended);
            }
            Poll::Pending => {}
        }
        if ran || !self.watch(cx) {
            return Poll::Ready(None);
        }
        Poll::Pending
    }

    /// Waits; false when something has happened in the meantime.
    fn watch(&mut self, cx: &mut Context<'_>) -> bool {
        if self.look_after(cx) {
            return false;
        }
        self.leave_watch(cx)
    }

    fn leave_watch(&self, cx: &Context<'_>) -> bool {
        if let Ok(mut connection) = self.cell.try_borrow_mut() {
            connection.watch(cx);
        }
        self.slots.watch(cx)
    }

    /// Deadlines, drains and silence; true when there is something to write because of them.
    fn look_after(&mut self, cx: &mut Context<'_>) -> bool {
        let Ok(mut connection) = self.cell.try_borrow_mut() else { return false };
        self.alarm.set_at(connection.alarm());
        if self.alarm.poll_elapsed(cx).is_ready() {
            connection.expire(Instant::now());
            return true;
        }
        self.entry.watch(cx);
        let idle = &mut self.idle;
        let is_idle = self.slots.is_idle() && connection.is_idle();
        if !is_idle {
            self.entry.is_in_use();
        }
        if !idle.leaving && (self.entry.is_draining() || (is_idle && self.entry.leaves_when_idle())) {
            idle.leaving = true;
            idle.timer.clear();
            connection.leave();
            return true;
        }
        if !is_idle {
            idle.timer.clear();
            idle.resting = false;
            return false;
        }
        let timeout = if idle.leaving { GOAWAY_TIMEOUT } else { idle.timeout };
        if !idle.timer.is_set() {
            let after = if idle.resting { timeout.saturating_sub(REST) } else { timeout.min(REST) };
            // The rest is reckoned from what was read last, which costs no look at the clock; zero is no timeout.
            let from = if idle.resting || timeout <= REST { Instant::now() } else { connection.now() };
            idle.timer.set_at((!timeout.is_zero()).then(|| from + after));
        }
        if idle.timer.poll_elapsed(cx).is_pending() {
            return false;
        }
        if !idle.resting && timeout > REST {
            idle.resting = true;
            connection.rest();
            self.slots.rest();
            return true;
        }
        // A client that does not answer the GOAWAY is not waited for.
        match idle.leaving {
            true => connection.lose(wire::ended(Ok(false))),
            false => connection.leave(),
        }
        (idle.leaving, idle.resting) = (true, false);
        true
    }

    /// Hands requests that have come to slots.
    fn accept(&mut self) {
        loop {
            let arrival =
                self.cell.try_borrow_mut().ok().and_then(|mut connection| connection.next_arrival());
            let Some(arrival) = arrival else { return };
            let worker: &Worker = self.worker;
            let (cell, client) = (&self.cell, &self.client);
            self.slots
                .start(arrival, |job_slot| work(worker, cell.clone(), client.clone(), self.entry, job_slot));
        }
    }

    /// Everything is said and written.
    fn over(&mut self) -> Poll<Option<bool>> {
        let fault = self.cell.try_borrow().ok().and_then(|connection| connection.end());
        match fault {
            Some(_) => self.lost(Ok(true)),
            None => Poll::Ready(Some(true)),
        }
    }

    /// Ends the exchanges of a connection that is gone.
    fn lost(&mut self, how: std::io::Result<bool>) -> Poll<Option<bool>> {
        let polite = matches!(how, Ok(true));
        if let Ok(mut connection) = self.cell.try_borrow_mut() {
            connection.lose(wire::ended(how));
        }
        let worker = self.worker;
        self.slots.run(|| worker.panicked());
        Poll::Ready(Some(polite))
    }
}

/// Serves one exchange after the other.
async fn work(
    worker: &Worker,
    cell: Cell,
    client: Arc<Client>,
    entry: &ConnectionControl,
    job_slot: Arc<JobSlot<NewRequest>>,
) {
    let mut snapshots = worker.snapshots();
    loop {
        let NewRequest { stream, head } = job_slot.job().await;
        let stream = stream.map(|(key, _)| Handle::adopt(&cell, key));
        let snapshot: &Snapshot = snapshots.load();
        match (head, stream) {
            (Ok(head), Some(stream)) => exchange(worker, snapshot, head, stream, &client, entry).await,
            (Ok(_), None) => {}
            (Err(unreadable), stream) => refuse(worker, snapshot, unreadable, stream, &client).await,
        }
        job_slot.done();
    }
}

/// Serves one exchange.
async fn exchange(
    worker: &Worker,
    snapshot: &Snapshot,
    head: RequestHead,
    stream: Handle,
    client: &Arc<Client>,
    entry: &ConnectionControl,
) {
    let idle = snapshot.settings.client_timeouts.body;
    let RequestHead { mut request, length } = head;
    let is_head = *request.method() == Method::HEAD;
    let asks_upgrade = tunnel::asked(&mut request);
    let body = if asks_upgrade { Body::empty() } else { body::body(&stream, length, idle) };
    let gone = stream.fate().is_some();
    let mut exchange = Box::new(Exchange::new(request.map(|()| body), client.clone()));
    exchange.upgrade = asks_upgrade.then_some(HeaderValue::from_static("websocket"));
    if gone {
        // Reset before anybody looked at it; that is worth a record and nothing else.
        return worker.pipeline().abandon(exchange, Cause::ClientGone);
    }
    let alt_svc = client.tls.as_ref().and_then(|_| worker.alt_svc());
    let entry = asks_upgrade.then_some(entry);
    let mut responder =
        Responder { stream: &stream, head: is_head, idle, upgrade: entry, mark: None, alt_svc };
    let mut serving = std::pin::pin!(worker.pipeline().serve(snapshot, exchange, &mut responder));
    poll_fn(|cx| {
        if serving.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        // A client that resets the stream no longer waits: dropping the exchange records that and frees the target.
        stream.poll_fate(cx).map(drop)
    })
    .await;
}

/// Answers what is no request where that is possible, and records it like one.
async fn refuse(
    worker: &Worker,
    snapshot: &Snapshot,
    unreadable: Unreadable,
    stream: Option<Handle>,
    client: &Arc<Client>,
) {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::from_bytes(b"-").unwrap_or(Method::GET);
    *request.uri_mut() = Uri::from_static("/");
    *request.version_mut() = Version::HTTP_2;
    let exchange = Box::new(Exchange::new(request, client.clone()));
    let Some(stream) = stream.filter(|_| unreadable.answerable) else {
        return worker.pipeline().abandon(exchange, unreadable.cause);
    };
    let idle = snapshot.settings.client_timeouts.body;
    let mut responder =
        Responder { stream: &stream, head: false, idle, upgrade: None, mark: None, alt_svc: None };
    worker.pipeline().refuse(snapshot, exchange, Reply::new(unreadable.cause), &mut responder).await;
}
