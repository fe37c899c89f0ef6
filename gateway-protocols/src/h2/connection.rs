//! A connection as a state machine: octets in, messages out, octets to write out (RFC 9113 §3 to §6).

mod arrivals;
mod frames;
mod sending;
mod time;

use std::collections::VecDeque;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::time::Instant;

use super::flood::Floods;
use super::flow::Inflow;
use super::frame::{
    self, FrameType, HEAD_BYTES, Head, INITIAL_WINDOW, MAX_MAX_FRAME, MIN_MAX_FRAME, PREFACE,
};
use super::head::{RequestHead, Unreadable};
use super::output::FrameOutput;
use super::settings::Settings;
use super::stream::{StreamError, Streams, register};
use super::{H2Error, Reason, Role};
use crate::hpack::{Decoder, Encoder};

pub(crate) use sending::{Extra, RequestLine};

/// Bytes that wait to be written before whoever sends a body has to wait.
pub(crate) const MAX_QUEUED: usize = 128 << 10;
/// With so many bytes waiting the peer is not read: it does not read either.
const MAX_UNREAD: usize = 2 * MAX_QUEUED;
/// The largest window an adaptive one grows to, unless it was configured larger.
pub(crate) const MAX_ADAPTIVE_WINDOW: u32 = 16 << 20;
/// Streams that were reset but whose exchange is not over yet, beside those open.
const MAX_LINGERING: usize = 128;
/// Octets of a request that are read and forgotten once it is answered, ...
pub(crate) const MAX_DISCARD: usize = 16 << 20;
/// ... and for how long. Many clients look at the answer only when they have sent everything.
pub(crate) const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// What we tell the peer, and expect of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) role: Role,
    pub(crate) settings: Settings,
    pub(crate) connection_window: u32,
    /// Windows grow while their readers keep up.
    pub(crate) adaptive_window: bool,
    /// Octets of a header list, counted by RFC 9113 §6.5.2.
    pub(crate) max_header_list: usize,
    /// For the peer's preface and settings, and from a header block's first frame to its last; zero is no limit.
    pub(crate) timeout: Duration,
    /// For the peer to take anything of what waits for it; zero is no limit.
    pub(crate) stall: Duration,
    /// Between two pings, and for their answers; zero is no pings.
    pub(crate) keep_alive: (Duration, Duration),
}

/// A request that has come.
#[derive(Debug)]
pub(crate) struct NewRequest {
    /// Its stream, where there is still one.
    pub(crate) stream: Option<(usize, u32)>,
    pub(crate) head: Result<RequestHead, Unreadable>,
}

/// How far the beginning is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Preface,
    FirstSettings,
    Open,
}

/// How far the end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    /// Told that we will go; streams the peer opened before it heard are still taken (RFC 9113 §6.8).
    Announced,
    /// Streams beyond this one are not looked at.
    Final(u32),
}

/// A header block whose end has not come.
#[derive(Debug)]
struct Block {
    stream: u32,
    ends: bool,
    data: BytesMut,
    frames: u32,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    rules: Rules,
    peer: Settings,
    /// The peer has confirmed our settings.
    settled: bool,
    decoder: Decoder,
    encoder: Encoder,
    streams: Streams,
    out: FrameOutput,
    inflow: Inflow,
    window: i64,
    phase: Phase,
    block: Option<Block>,
    last_peer: u32,
    next_own: u32,
    leaving: Leaving,
    /// The peer opens no more streams, or takes no more.
    peer_leaves: bool,
    end: Option<H2Error>,
    arrivals: VecDeque<NewRequest>,
    /// Streams that wait for the connection's window, or for what is queued to be written.
    senders: VecDeque<usize>,
    /// Those who wait to open a stream.
    openers: Vec<Waker>,
    driver: Option<Waker>,
    /// The driver has been woken and has not come yet.
    woken: bool,
    floods: Floods,
    clock: time::Clock,
    /// Those who keep it open though it has no streams.
    pub(crate) owners: usize,
    /// What the peer allows at a time has changed since somebody looked.
    limit_changed: bool,
    /// Who is told about that, by the driver.
    pub(crate) on_limit: Option<LimitWatch>,
}

/// Told how many streams the peer allows at a time.
pub(crate) struct LimitWatch(Box<dyn FnMut(usize) + Send + Sync>);

impl LimitWatch {
    pub(crate) fn new(watch: impl FnMut(usize) + Send + Sync + 'static) -> Self {
        Self(Box::new(watch))
    }

    pub(crate) fn tell(&mut self, streams: usize) {
        (self.0)(streams);
    }
}

impl std::fmt::Debug for LimitWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LimitWatch")
    }
}

impl Connection {
    /// A connection that has its own beginning ready to be written.
    pub(crate) fn new(rules: Rules, now: Instant) -> Self {
        let mut rules = rules;
        rules.settings.max_frame_size = rules.settings.max_frame_size.clamp(MIN_MAX_FRAME, MAX_MAX_FRAME);
        rules.settings.initial_window_size = rules.settings.initial_window_size.min(frame::MAX_WINDOW as u32);
        let mut out = FrameOutput::default();
        if rules.role == Role::Client {
            out.buffer().extend_from_slice(PREFACE);
        }
        rules.settings.write(out.buffer());
        let (inflow, more) = Inflow::of_connection(rules.connection_window);
        if let Some(more) = more {
            frame::window_update(out.buffer(), 0, more);
        }
        Self {
            peer: Settings::default(),
            settled: false,
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            streams: Streams::default(),
            out,
            inflow,
            window: i64::from(INITIAL_WINDOW),
            phase: if rules.role == Role::Server { Phase::Preface } else { Phase::FirstSettings },
            block: None,
            last_peer: 0,
            next_own: 1,
            leaving: Leaving::No,
            peer_leaves: false,
            end: None,
            arrivals: VecDeque::new(),
            senders: VecDeque::new(),
            openers: Vec::new(),
            driver: None,
            woken: false,
            floods: Floods::default(),
            clock: time::Clock::new(&rules, now),
            owners: 1,
            limit_changed: false,
            on_limit: None,
            rules,
        }
    }

    /// Takes in what was read; incomplete frames stay in `buffer`.
    pub(crate) fn receive(&mut self, buffer: &mut BytesMut, now: Instant) {
        self.clock.now = now;
        if let Err(fault) = self.parse(buffer) {
            self.fail(fault);
        }
        if self.end.is_some() {
            buffer.clear();
        }
    }

    fn parse(&mut self, buffer: &mut BytesMut) -> Result<(), H2Error> {
        if self.phase == Phase::Preface && !self.preface(buffer)? {
            return Ok(());
        }
        while self.end.is_none() {
            let Some(head) = Head::parse(buffer) else { break };
            self.expects(&head)?;
            let length = HEAD_BYTES + head.length;
            if buffer.len() < length {
                break;
            }
            match head.kind {
                FrameType::Data | FrameType::Headers | FrameType::Continuation => {
                    let mut payload = buffer.split_to(length).freeze();
                    payload.advance(HEAD_BYTES);
                    self.bulky(head, payload)?;
                }
                _ => {
                    self.control(head, &buffer[HEAD_BYTES..length])?;
                    buffer.advance(length);
                }
            }
        }
        Ok(())
    }

    /// Takes a client's preface; false while it is not all there.
    fn preface(&mut self, buffer: &mut BytesMut) -> Result<bool, H2Error> {
        let common = buffer.len().min(PREFACE.len());
        if buffer[..common] != PREFACE[..common] {
            return Err(H2Error::protocol("no preface"));
        }
        if common < PREFACE.len() {
            return Ok(false);
        }
        buffer.advance(common);
        self.phase = Phase::FirstSettings;
        Ok(true)
    }

    /// Checks what can be checked before a frame's payload is there.
    fn expects(&mut self, head: &Head) -> Result<(), H2Error> {
        if head.length > self.rules.settings.max_frame_size as usize {
            return Err(H2Error::new(Reason::FRAME_SIZE_ERROR, "a frame is too large"));
        }
        if self.phase == Phase::FirstSettings {
            if head.kind != FrameType::Settings || head.has(frame::flag::ACK) {
                return Err(H2Error::protocol("the first frame is not SETTINGS"));
            }
            self.phase = Phase::Open;
            self.clock.greeted();
        }
        match &self.block {
            Some(block) if head.kind != FrameType::Continuation || head.stream != block.stream => {
                Err(H2Error::protocol("a header block was interrupted"))
            }
            None if head.kind == FrameType::Continuation => Err(H2Error::protocol("CONTINUATION of nothing")),
            _ => Ok(()),
        }
    }

    fn bulky(&mut self, head: Head, payload: Bytes) -> Result<(), H2Error> {
        match head.kind {
            FrameType::Data => self.data(&head, payload),
            FrameType::Headers => self.headers(&head, payload),
            _ => self.continuation(&head, &payload),
        }
    }

    /// Octets the next read had better bring: the rest of the frame whose beginning is in `buffer`.
    pub(crate) fn wanted(&self, buffer: &[u8]) -> usize {
        Head::parse(buffer).map_or(0, |head| HEAD_BYTES + head.length)
    }

    /// Whether the peer is to be read.
    pub(crate) fn may_read(&self) -> bool {
        self.end.is_none() && self.out.len() < MAX_UNREAD
    }

    /// What waits to be written.
    pub(crate) fn output(&mut self) -> &mut FrameOutput {
        &mut self.out
    }

    /// Something was written.
    pub(crate) fn written(&mut self) {
        self.clock.moved();
        if self.out.len() <= MAX_QUEUED / 2 {
            self.wake_senders();
        }
    }

    /// The next request.
    pub(crate) fn next_arrival(&mut self) -> Option<NewRequest> {
        self.arrivals.pop_front()
    }

    /// Whether nobody holds a stream or waits for one.
    pub(crate) fn is_idle(&self) -> bool {
        self.streams.len() == 0 && self.arrivals.is_empty()
    }

    /// Streams the peer takes at a time.
    pub(crate) fn peer_streams(&self) -> u32 {
        self.peer.streams()
    }

    /// Whether that has changed since last asked.
    pub(crate) fn take_limit_change(&mut self) -> bool {
        std::mem::take(&mut self.limit_changed)
    }

    /// What ended the connection.
    pub(crate) fn end(&self) -> Option<H2Error> {
        self.end
    }

    /// Whether a stream could ever be opened on it.
    pub(crate) fn is_open(&self) -> bool {
        self.end.is_none() && !self.peer_leaves && self.leaving == Leaving::No && self.next_own < 1 << 31
    }

    /// Whether the peer has begun as HTTP/2 does.
    pub(crate) fn has_spoken(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether a stream could be opened now.
    pub(crate) fn has_room(&self) -> bool {
        self.streams.active < self.peer.streams() as usize
    }

    /// Begins to leave: the peer may finish what it has begun. Clients' targets are told at once.
    pub(crate) fn leave(&mut self) {
        if self.end.is_some() || self.leaving != Leaving::No {
            return;
        }
        if self.rules.role == Role::Client {
            self.last_goaway(Reason::NO_ERROR, "");
        } else {
            self.leaving = Leaving::Announced;
            frame::goaway(self.out.buffer(), (1 << 31) - 1, Reason::NO_ERROR, "");
            frame::ping(self.out.buffer(), false, time::GOAWAY_PING);
        }
        self.wake_driver();
    }

    /// Streams from now on are not looked at.
    fn last_goaway(&mut self, reason: Reason, note: &str) {
        if !matches!(self.leaving, Leaving::Final(_)) {
            self.leaving = Leaving::Final(self.last_peer);
            frame::goaway(self.out.buffer(), self.last_peer, reason, note);
        }
    }

    /// Whether everything is said: what is left is to write it and to close.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some()
            || ((matches!(self.leaving, Leaving::Final(_)) || self.peer_leaves) && self.is_idle())
    }

    /// Ends the connection because of what the peer did.
    pub(crate) fn fail(&mut self, fault: H2Error) {
        if self.end.is_some() {
            return;
        }
        tracing::debug!(%fault, role = ?self.rules.role, "an HTTP/2 connection failed");
        frame::goaway(self.out.buffer(), self.last_peer, fault.reason, fault.note);
        self.cut(fault);
    }

    /// The connection is gone, whatever the reason; nothing more is said, not even what waits to be.
    pub(crate) fn lose(&mut self, fault: H2Error) {
        self.out = FrameOutput::default();
        self.cut(fault);
    }

    /// Ends all streams.
    fn cut(&mut self, fault: H2Error) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(fault);
        self.senders.clear();
        self.block = None;
        let fate = match fault.is_timeout {
            true => StreamError::TimedOut(fault.note),
            false => StreamError::Lost(fault.reason),
        };
        self.streams.forget_discarded();
        for (_, stream) in self.streams.iter_mut() {
            stream.fate.get_or_insert(fate);
            stream.wake();
        }
        self.openers.drain(..).for_each(Waker::wake);
        self.wake_driver();
    }

    /// The driver is at work, and needs no waking.
    pub(crate) fn attend(&mut self) {
        self.woken = true;
    }

    /// The driver goes, and wants to be woken when there is something to write or a deadline that is earlier.
    pub(crate) fn watch(&mut self, cx: &Context<'_>) {
        self.woken = false;
        register(&mut self.driver, cx);
    }

    /// Has the driver come.
    pub(crate) fn wake_driver(&mut self) {
        if !std::mem::replace(&mut self.woken, true)
            && let Some(waker) = &self.driver
        {
            waker.wake_by_ref();
        }
    }

    /// Those who wait for room may try again.
    fn wake_senders(&mut self) {
        while let Some(key) = self.senders.pop_front() {
            if let Some(stream) = self.streams.of(key) {
                stream.queued = false;
                stream.writer.wake();
            }
        }
    }

    /// Wants to be woken when a stream may be opened.
    pub(crate) fn await_room(&mut self, cx: &Context<'_>) {
        if !self.openers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.openers.push(cx.waker().clone());
        }
    }

    /// Gives memory back while nothing happens.
    pub(crate) fn rest(&mut self) {
        self.out.rest();
        self.streams.rest();
        self.arrivals = VecDeque::new();
    }
}

#[cfg(test)]
pub(crate) mod tests;
