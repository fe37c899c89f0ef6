//! Bulk in one direction at an offered load, as iperf3 does it, with every byte checked at the other end.
//!
//! A sender in this process paces bytes by the clock and never catches up on more than a moment's worth; a sink in this process
//! compares each byte with what must stand at its place. Between both lies whatever is measured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::measure::process;

pub mod content;
pub mod tcp;
pub mod udp;

/// What is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    Tcp,
    Udp,
}

/// One round.
#[derive(Debug, Clone)]
pub struct BulkPlan {
    pub carrier: Carrier,
    /// Where senders connect or send to; the sink's own address without it.
    pub to: Option<SocketAddr>,
    /// Bits a second over all streams; as fast as it goes without one.
    pub rate: Option<f64>,
    /// Connections, or flows of datagrams.
    pub streams: u32,
    /// Bytes of a datagram's payload.
    pub datagram: usize,
    /// Load before the window that is not counted.
    pub omit: Duration,
    /// The measured window.
    pub window: Duration,
    /// The process whose CPU time is asked for.
    pub subject: Option<u32>,
}

/// What came of a round.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BulkOutcome {
    pub window_seconds: f64,
    /// Bytes that the sink got within the window.
    pub bytes: u64,
    /// Megabits (10^6) a second.
    pub megabits: f64,
    /// Bytes of the whole round, at both ends; they differ where something was lost.
    pub sent: u64,
    pub received: u64,
    /// Datagrams of the whole round, at both ends; 0 for TCP.
    pub datagrams_sent: u64,
    pub datagrams_received: u64,
    /// CPU seconds of the subject within the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// CPU seconds of the whole machine within the window, with the generator's and the kernel's.
    pub machine_cpu_seconds: f64,
    /// TCP segments that this machine (this network namespace) sent again within the window.
    pub retransmitted: u64,
    /// What makes the round void.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub void: Vec<String>,
}

/// What senders and sink count, and when they stop.
#[derive(Debug, Default)]
pub struct Shared {
    pub stop: AtomicBool,
    pub sent: AtomicU64,
    pub received: AtomicU64,
    pub datagrams_sent: AtomicU64,
    pub datagrams_received: AtomicU64,
    /// Bytes, or datagrams, that were not what must stand at their place.
    pub wrong: AtomicU64,
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// Why a round could not be run.
#[derive(Debug, thiserror::Error)]
pub enum BulkError {
    #[error("the sink cannot listen: {0}")]
    Listen(#[source] std::io::Error),
    #[error("a sender failed: {0}")]
    Send(#[source] std::io::Error),
    #[error("the sink failed: {0}")]
    Receive(#[source] std::io::Error),
    #[error("a thread of the generator panicked")]
    Panicked,
}

/// The end of a bulk path: it is there before the program under test starts, which has to know its address.
#[derive(Debug)]
pub enum Sink {
    Tcp(tcp::Sink),
    Udp(udp::Sink),
}

impl Sink {
    /// Listens there; on a free port where that is 0.
    ///
    /// # Errors
    /// The port is taken.
    pub fn open(carrier: Carrier, at: SocketAddr) -> Result<Self, BulkError> {
        match carrier {
            Carrier::Tcp => tcp::Sink::open(at).map(Self::Tcp),
            Carrier::Udp => udp::Sink::open(at).map(Self::Udp),
        }
        .map_err(BulkError::Listen)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Tcp(sink) => sink.address,
            Self::Udp(sink) => sink.address,
        }
    }

    /// Runs one round.
    ///
    /// # Errors
    /// A connection that fails before the round ends.
    pub fn round(&self, plan: &BulkPlan) -> Result<BulkOutcome, BulkError> {
        let shared = Arc::new(Shared::default());
        let to = plan.to.unwrap_or_else(|| self.address());
        let retransmitted = retransmitted_segments();
        let (receiving, sending) = match self {
            Self::Tcp(sink) => {
                let receiving = sink.start(plan.streams, &shared);
                (receiving, tcp::senders(plan, to, &shared))
            }
            Self::Udp(sink) => (vec![sink.start(&shared)], udp::senders(plan, to, &shared)),
        };
        thread::sleep(plan.omit);
        let (begun, before) = (Instant::now(), shared.received.load(Relaxed));
        let cpu_before = plan.subject.and_then(process::usage);
        let busy_before = process::machine_time().busy;
        thread::sleep(plan.window);
        let bytes = shared.received.load(Relaxed) - before;
        let window = begun.elapsed();
        let cpu_after = plan.subject.and_then(process::usage);
        let busy = process::machine_time().busy.saturating_sub(busy_before);
        shared.stop.store(true, Relaxed);
        for sender in sending {
            sender.join().map_err(|_| BulkError::Panicked)?.map_err(BulkError::Send)?;
        }
        for sink in receiving {
            sink.join().map_err(|_| BulkError::Panicked)?.map_err(BulkError::Receive)?;
        }
        let cpu = cpu_before.zip(cpu_after).map(|(before, after)| after.cpu.saturating_sub(before.cpu));
        let mut outcome = BulkOutcome {
            window_seconds: window.as_secs_f64(),
            bytes,
            megabits: megabits(bytes, window),
            sent: shared.sent.load(Relaxed),
            received: shared.received.load(Relaxed),
            datagrams_sent: shared.datagrams_sent.load(Relaxed),
            datagrams_received: shared.datagrams_received.load(Relaxed),
            cpu_seconds: cpu.map(|cpu| cpu.as_secs_f64()),
            machine_cpu_seconds: busy.as_secs_f64(),
            retransmitted: retransmitted_segments().saturating_sub(retransmitted),
            void: Vec::new(),
        };
        outcome.judge(plan.carrier, shared.wrong.load(Relaxed));
        Ok(outcome)
    }
}

impl BulkOutcome {
    fn judge(&mut self, carrier: Carrier, wrong: u64) {
        if wrong > 0 {
            self.void.push(format!("{wrong} pieces had other bytes than were sent"));
        }
        if self.bytes == 0 {
            self.void.push("nothing arrived within the window".to_owned());
        }
        if carrier == Carrier::Tcp && self.sent != self.received {
            self.void.push(format!("{} bytes were sent, {} arrived", self.sent, self.received));
        }
        if self.received > self.sent {
            self.void.push("more arrived than was sent".to_owned());
        }
    }

    /// Microseconds of the subject's CPU time for each MiB.
    #[must_use]
    pub fn cpu_us_per_mib(&self) -> Option<f64> {
        (self.bytes > 0).then_some(self.cpu_seconds? * 1e6 / (count(self.bytes) / 1_048_576.0))
    }

    /// The same of the whole machine.
    #[must_use]
    pub fn machine_us_per_mib(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.machine_cpu_seconds * 1e6 / (count(self.bytes) / 1_048_576.0))
    }

    /// Per cent of the datagrams that did not arrive.
    #[must_use]
    pub fn lost_percent(&self) -> f64 {
        let lost = self.datagrams_sent.saturating_sub(self.datagrams_received);
        if self.datagrams_sent == 0 { 0.0 } else { 100.0 * count(lost) / count(self.datagrams_sent) }
    }
}

/// Paces bytes by the clock.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes a second; none is as fast as it goes.
    rate: Option<f64>,
    begun: Instant,
    given: f64,
}

/// What a sender that was held up may catch up on.
const BURST: Duration = Duration::from_millis(2);
/// The shortest sleep that is worth it: below it the sender spins through its turn.
const TICK: Duration = Duration::from_micros(60);

impl Pace {
    pub(crate) fn new(bits: Option<f64>) -> Self {
        Self { rate: bits.map(|bits| bits / 8.0), begun: Instant::now(), given: 0.0 }
    }

    /// Waits until so many bytes may be sent.
    pub(crate) fn wait(&mut self, bytes: usize) {
        let Some(rate) = self.rate else { return };
        self.given += count(bytes as u64);
        loop {
            let due = self.begun.elapsed().as_secs_f64() * rate;
            if due > self.given + rate * BURST.as_secs_f64() {
                // What could not be sent in time is not offered a second time.
                self.begun += Duration::from_secs_f64((due - self.given) / rate - BURST.as_secs_f64());
            }
            let early = Duration::from_secs_f64(((self.given - due) / rate).max(0.0));
            if early.is_zero() {
                return;
            }
            if early > TICK {
                thread::sleep(early - TICK);
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Segments that this network namespace sent again since it began.
fn retransmitted_segments() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap_or_default();
    let mut rows =
        text.lines().filter_map(|line| line.strip_prefix("Tcp: ")).map(str::split_ascii_whitespace);
    let (Some(names), Some(mut values)) = (rows.next(), rows.next()) else { return 0 };
    let at = names.into_iter().position(|name| name == "RetransSegs");
    at.and_then(|at| values.nth(at)?.parse().ok()).unwrap_or(0)
}

/// Megabits a second.
#[must_use]
pub fn megabits(bytes: u64, time: Duration) -> f64 {
    count(bytes) * 8.0 / 1e6 / time.as_secs_f64()
}

#[allow(clippy::cast_precision_loss, reason = "exact up to 2^53 bytes")]
fn count(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests;
