//! Counts the answers of one thread; threads are added up after the round.

use std::collections::BTreeMap;
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::driver::{Fault, FaultKind, VerifiedAnswer};
use crate::pace::{OpenSchedule, Turn, Window};

/// Records answers as they come. One a thread, so nothing here is shared.
#[derive(Debug)]
pub struct Recorder {
    window: Window,
    open: bool,
    tally: Tally,
    last_status: (u16, u64),
}

/// The counts of a round, in nanoseconds and bytes.
#[derive(Debug, Clone)]
pub struct Tally {
    /// From the moment a request was due (open loop) or sent (closed loop) to its whole answer.
    pub latency: Histogram<u64>,
    /// From the moment a request was really sent; differs from `latency` in the open loop only.
    pub service: Histogram<u64>,
    /// Time to open a connection, handshakes included.
    pub connect: Histogram<u64>,
    /// How late the generator itself woke idle lanes (open loop).
    pub lateness: Histogram<u64>,
    /// Verified answers that came within the window.
    pub completed: u64,
    /// Body bytes of those answers.
    pub body_bytes: u64,
    /// Answers that did not prove which request they belong to.
    pub unstamped: u64,
    pub statuses: BTreeMap<u16, u64>,
    pub faults: BTreeMap<FaultKind, (u64, String)>,
    /// Requests due in the window that no lane was free to send (open loop).
    pub never_started: u64,
    /// Time that counted requests were in flight before the window (closed loop).
    pub outside_ns: u64,
    /// Time within the window that requests were in flight whose answers came after it (closed loop).
    pub unfinished_ns: u64,
    pub opened: u64,
    pub reopened: u64,
    pub negotiated: Option<String>,
}

impl Recorder {
    /// Records for one window.
    #[must_use]
    pub fn new(window: Window, open: bool) -> Self {
        Self { window, open, tally: Tally::default(), last_status: (0, 0) }
    }

    /// Takes over what was counted while connecting.
    pub fn take_over(&mut self, earlier: &Tally) {
        self.tally.add(earlier);
    }

    /// A verified answer came. Returns its latency in nanoseconds where that counts.
    pub fn answer(&mut self, turn: Turn, now: Instant, answer: VerifiedAnswer) -> Option<u64> {
        let taken = nanoseconds(turn.intended, now);
        let in_time = self.window.counts(now);
        if in_time {
            self.tally.completed += 1;
            self.tally.body_bytes += answer.body as u64;
            self.tally.unstamped += u64::from(!answer.stamped);
            self.count_status(answer.status);
        }
        // In the open loop a request belongs to the window when it was due in it, however late its answer: leaving
        // out the late ones would be the omission this loop exists to avoid.
        let counts = if self.open { self.window.counts(turn.intended) } else { in_time };
        if counts {
            self.tally.latency.saturating_record(taken);
        }
        if self.open && counts {
            self.tally.service.saturating_record(nanoseconds(turn.sent, now));
        }
        if !self.open {
            self.account_for_edges(turn.intended, now);
        }
        counts.then_some(taken)
    }

    /// A connection was opened within the load, for one request.
    pub fn connected(&mut self, begun: Instant, negotiated: Option<String>) {
        self.tally.opened(begun, negotiated);
    }

    /// A request that spans an edge of the window is counted on one side of it only. How long it was in flight on
    /// the other side is kept for Little's law, which would otherwise seem broken whenever a stall meets an edge.
    fn account_for_edges(&mut self, begun: Instant, ended: Instant) {
        let Window { from, until, .. } = self.window;
        if begun < from && self.window.counts(ended) {
            self.tally.outside_ns += nanoseconds(begun, from);
        }
        if begun < until && ended >= until {
            self.tally.unfinished_ns += nanoseconds(begun.max(from), until);
        }
    }

    /// Something went wrong; counted at any time, warm-up included.
    pub fn fault(&mut self, fault: &Fault) {
        self.tally.fault(fault);
    }

    /// A request was due and never sent; what it has waited so far stands for its latency.
    pub fn never_started(&mut self, due: Instant) {
        self.tally.never_started += 1;
        self.tally.latency.saturating_record(nanoseconds(due, Instant::now()));
    }

    /// Takes over how late a schedule woke its lanes.
    pub fn take_lateness(&mut self, schedule: &OpenSchedule) {
        schedule.add_lateness(&mut self.tally.lateness);
    }

    /// Verified answers so far, for progress.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.tally.completed
    }

    /// A lost connection was opened again.
    pub fn reopened(&mut self) {
        self.tally.reopened += 1;
    }

    /// Ends recording.
    #[must_use]
    pub fn into_tally(mut self) -> Tally {
        self.flush_status();
        self.tally
    }

    fn count_status(&mut self, status: u16) {
        if self.last_status.0 != status {
            self.flush_status();
            self.last_status = (status, 0);
        }
        self.last_status.1 += 1;
    }

    fn flush_status(&mut self) {
        let (status, count) = std::mem::take(&mut self.last_status);
        if status != 0 {
            *self.tally.statuses.entry(status).or_default() += count;
        }
    }
}

impl Tally {
    /// Latencies above this count as this: one hour.
    const LONGEST_NS: u64 = 3_600_000_000_000;

    /// A connection was opened in this time.
    pub fn opened(&mut self, begun: Instant, negotiated: Option<String>) {
        self.opened += 1;
        self.connect.saturating_record(nanoseconds(begun, Instant::now()));
        self.negotiated = self.negotiated.take().or(negotiated);
    }

    /// Something went wrong.
    pub fn fault(&mut self, fault: &Fault) {
        if let Fault::Status { got, .. } = fault {
            *self.statuses.entry(*got).or_default() += 1;
        }
        let entry = self.faults.entry(fault.kind()).or_insert_with(|| (0, fault.to_string()));
        entry.0 += 1;
    }

    /// Adds what another thread counted.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.latency, &other.latency),
            (&mut self.service, &other.service),
            (&mut self.connect, &other.connect),
            (&mut self.lateness, &other.lateness),
        ] {
            mine.add(theirs).expect("all histograms are made with the same bounds");
        }
        self.completed += other.completed;
        self.body_bytes += other.body_bytes;
        self.unstamped += other.unstamped;
        self.never_started += other.never_started;
        self.outside_ns += other.outside_ns;
        self.unfinished_ns += other.unfinished_ns;
        self.opened += other.opened;
        self.reopened += other.reopened;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        for (kind, (count, example)) in &other.faults {
            self.faults.entry(*kind).or_insert_with(|| (0, example.clone())).0 += count;
        }
        if self.negotiated.is_none() {
            self.negotiated.clone_from(&other.negotiated);
        }
    }

    /// All faults together.
    #[must_use]
    pub fn fault_count(&self) -> u64 {
        self.faults.values().map(|(count, _)| count).sum()
    }
}

impl Default for Tally {
    fn default() -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, Self::LONGEST_NS, 3)
                .expect("1 ns to 1 h in three digits is a valid range")
        };
        Self {
            latency: histogram(),
            service: histogram(),
            connect: histogram(),
            lateness: histogram(),
            completed: 0,
            body_bytes: 0,
            unstamped: 0,
            statuses: BTreeMap::new(),
            faults: BTreeMap::new(),
            never_started: 0,
            outside_ns: 0,
            unfinished_ns: 0,
            opened: 0,
            reopened: 0,
            negotiated: None,
        }
    }
}

fn nanoseconds(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}
