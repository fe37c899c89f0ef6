//! What has to happen in time. There is one alarm a connection: deadlines are values, and cost nothing until one passes.

use std::time::Duration;

use tokio::time::Instant;

use super::super::frame;
use super::super::stream::Stream;
use super::super::{H2Error, Reason};
use super::{Connection, Rules};

/// What is asked with our last-but-one GOAWAY: its answer shows that the peer has heard.
pub(super) const GOAWAY_PING: [u8; 8] = *b"goaway-1";
/// What is asked to see whether the peer is still there.
const ALIVE_PING: [u8; 8] = *b"alive...";

/// Deadlines of a connection; those of its streams stand in the streams.
#[derive(Debug)]
pub(super) struct Clock {
    /// When something was last read.
    pub(super) now: Instant,
    /// When to look next; `None` is never.
    alarm: Option<Instant>,
    timeout: Duration,
    /// Until when the peer's settings have to be there.
    greeting: Option<Instant>,
    /// Until when the header block under way has to be there.
    block: Option<Instant>,
    /// Until when something of what waits has to be written.
    write: Option<Instant>,
    /// When the next ping goes out, or, while one is under way, until when its answer has to be there.
    ping: Option<Instant>,
    asked: bool,
    interval: Duration,
}

impl Clock {
    pub(super) fn new(rules: &Rules, now: Instant) -> Self {
        let after = |time: Duration| (!time.is_zero()).then(|| now + time);
        let (greeting, ping) = (after(rules.timeout), after(rules.keep_alive.0));
        let alarm = earlier(greeting, ping);
        Self {
            now,
            alarm,
            timeout: rules.timeout,
            greeting,
            block: None,
            write: None,
            ping,
            asked: false,
            interval: rules.keep_alive.0,
        }
    }

    pub(super) fn greeted(&mut self) {
        self.greeting = None;
    }

    pub(super) fn block_began(&mut self) {
        if !self.timeout.is_zero() {
            let until = self.now + self.timeout;
            self.block = Some(until);
            self.alarm = earlier(self.alarm, Some(until));
        }
    }

    pub(super) fn block_ended(&mut self) {
        self.block = None;
    }

    pub(super) fn moved(&mut self) {
        self.write = None;
    }

    pub(super) fn answered(&mut self) {
        if std::mem::take(&mut self.asked) {
            self.ping = Some(self.now + self.interval);
            self.alarm = earlier(self.alarm, self.ping);
        }
    }
}

/// The earlier of two instants that may never come.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl Connection {
    /// When something was last read, or a deadline looked at.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now
    }

    /// When to call [`Connection::expire`] next.
    pub(crate) fn alarm(&self) -> Option<Instant> {
        self.clock.alarm
    }

    /// Looks at everything that may be late.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.clock.now = now;
        let late = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        if late(self.clock.write) {
            return self.lose(H2Error::timeout(Reason::CANCEL, "nothing was read for too long"));
        }
        if self.end.is_some() {
            // All that is left is to write what was said last.
            self.clock.alarm = self.clock.write;
            return;
        }
        if late(self.clock.greeting) {
            return self.fail(H2Error::timeout(Reason::SETTINGS_TIMEOUT, "no settings in time"));
        }
        if late(self.clock.block) {
            return self.fail(H2Error::timeout(Reason::ENHANCE_YOUR_CALM, "a header block took too long"));
        }
        if late(self.clock.ping) && !self.ping_due(now) {
            return self.lose(H2Error::timeout(Reason::CANCEL, "a ping was left unanswered"));
        }
        self.end_discards(now);
        let clock = &self.clock;
        let mut alarm =
            [clock.greeting, clock.block, clock.write, clock.ping].into_iter().fold(None, earlier);
        for (_, stream) in self.streams.iter_mut() {
            for slot in [&mut stream.reader, &mut stream.writer] {
                if slot.until.is_some_and(|until| until <= now) {
                    slot.until = None;
                    slot.late = true;
                    slot.wake();
                }
                alarm = earlier(alarm, slot.until);
            }
            alarm = earlier(alarm, stream.discard.as_ref().map(|discard| discard.until));
        }
        self.clock.alarm = alarm;
    }

    /// Resets streams whose clients had long enough to end them.
    fn end_discards(&mut self, now: Instant) {
        let late = |stream: &Stream| stream.discard.as_ref().is_some_and(|discard| discard.until <= now);
        let late: Vec<usize> =
            self.streams.iter_mut().filter(|(_, stream)| late(stream)).map(|(key, _)| key).collect();
        late.into_iter().for_each(|key| self.reset(key, Reason::NO_ERROR));
    }

    /// Sends a ping; false when the last one is still unanswered.
    fn ping_due(&mut self, now: Instant) -> bool {
        let (interval, timeout) = self.rules.keep_alive;
        if std::mem::replace(&mut self.clock.asked, true) {
            return false;
        }
        frame::ping(self.out.buffer(), false, ALIVE_PING);
        self.clock.ping = Some(now + if timeout.is_zero() { interval } else { timeout });
        self.wake_driver();
        true
    }

    /// Something has to happen by then.
    pub(crate) fn arm(&mut self, until: Instant) {
        if self.clock.alarm.is_none_or(|alarm| until < alarm) {
            self.clock.alarm = Some(until);
            self.wake_driver();
        }
    }

    /// The socket takes nothing now.
    pub(crate) fn blocked(&mut self, now: impl FnOnce() -> Instant) {
        if self.clock.write.is_none() && !self.rules.stall.is_zero() {
            let until = now() + self.rules.stall;
            self.clock.write = Some(until);
            self.arm(until);
        }
    }
}
