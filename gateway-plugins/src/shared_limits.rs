//! Limits that several gateways share, counted in Redis or Valkey by one script with the server's own clock.
//!
//! Workers put what they ask into a bounded queue; a task on the control runtime holds the connection, sends what is in the
//! queue without waiting for the answer before it, and connects again when the connection is lost. While there is none, and for a
//! second after several answers in a row that came too late, nobody waits: it is decided at once as `on_error` says.

mod connect;
mod settings;

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use aws_lc_rs::digest;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gateway_core::limit::epoch::Epoch;
use gateway_core::plugin::world::meters::Gauge;
use gateway_core::plugin::world::tasks::TaskControl;
use redis::Script;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::Instant;

use crate::rate_table::Rule;
use connect::Connection;
pub(crate) use settings::{OnError, RedisConfig, Server};

/// What is asked and not yet sent; further ones are decided as `on_error` says.
const MAX_QUEUED: usize = 8192;
/// What is sent and not yet answered.
const MAX_SENT: usize = 1024;
/// Late answers in a row after which nobody waits for a while.
const MAX_LATE: u64 = 5;
/// How long nobody waits then, in nanoseconds.
const REST: u64 = 1_000_000_000;
/// The pause before it connects again.
const PAUSE: Duration = Duration::from_millis(200);

/// Takes from several limits of one key, or from none; `charge` takes from all of them whatever is left, `look` from none. The state
/// of a limit is the moment at which its allowance is whole again, in microseconds since 2026, so that numbers stay exact.
const SCRIPT: &str = r"
local time = redis.call('TIME')
local now = (tonumber(time[1]) - 1767225600) * 1000000 + tonumber(time[2])
local mode, owed, refused = ARGV[1], {}, 0
for i = 1, #KEYS do
  local whole = tonumber(redis.call('GET', KEYS[i]) or '0') or 0
  owed[i] = math.max(whole - now, 0)
  if refused == 0 and owed[i] + tonumber(ARGV[2 * i]) > tonumber(ARGV[2 * i + 1]) + 0.01 then refused = i end
end
if mode == 'charge' or (mode == 'take' and refused == 0) then
  for i = 1, #KEYS do
    local capacity = tonumber(ARGV[2 * i + 1])
    owed[i] = math.max(owed[i], math.min(owed[i] + tonumber(ARGV[2 * i]), capacity))
    redis.call('SET', KEYS[i], string.format('%.3f', now + owed[i]), 'PX', math.ceil(owed[i] / 1000) + 1)
  end
end
local answer = { refused }
for i = 1, #KEYS do answer[i + 1] = math.ceil(owed[i] * 1000) end
return answer
";

/// What is done with limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Takes from all of them, or from none.
    Take,
    /// Takes from none.
    Look,
    /// Takes from all, whatever is left.
    Charge,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The first limit that has no room.
    pub(crate) refused: Option<usize>,
    /// Until each limit's allowance is whole again.
    pub(crate) owed: Vec<Duration>,
}

/// The store could not be asked, or did not answer in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Away;

struct Question {
    keys: Vec<String>,
    mode: Mode,
    /// Cost and capacity of each, in microseconds.
    rules: Vec<(f64, f64)>,
    answer: oneshot::Sender<Answer>,
}

/// The limits that gateways share.
pub(crate) struct SharedLimits {
    server: Server,
    sender: Sender<Question>,
    receiver: Mutex<Receiver<Question>>,
    up: watch::Sender<bool>,
    gauge: Gauge,
    epoch: Epoch,
    late: AtomicU64,
    rests_until: AtomicU64,
}

impl SharedLimits {
    /// Nothing is connected before [`Self::run`].
    pub(crate) fn new(server: Server, gauge: Gauge, now: Instant) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED);
        Self {
            server,
            sender,
            receiver: Mutex::new(receiver),
            up: watch::Sender::new(false),
            gauge,
            epoch: Epoch::starting(now),
            late: AtomicU64::new(0),
            rests_until: AtomicU64::new(0),
        }
    }

    pub(crate) fn on_error(&self) -> OnError {
        self.server.on_error
    }

    /// Begins the hash of a key, the same on every gateway.
    pub(crate) fn hasher(&self) -> impl Hasher + use<> {
        Sha256(digest::Context::new(&digest::SHA256))
    }

    /// Whether it is worth to ask now.
    pub(crate) fn is_up(&self) -> bool {
        *self.up.borrow() && self.epoch.nanos(Instant::now()) >= self.rests_until.load(Relaxed)
    }

    /// Asks, and waits for the answer for as long as the settings say.
    pub(crate) async fn ask(
        &self,
        key: u64,
        rules: &[Rule],
        (mode, many): (Mode, u64),
    ) -> Result<Answer, Away> {
        let receiver = self.put(key, rules, (mode, many)).ok_or(Away)?;
        match tokio::time::timeout(self.server.timeout, receiver).await {
            Ok(Ok(answer)) => {
                self.late.store(0, Relaxed);
                Ok(answer)
            }
            Ok(Err(_)) => Err(Away),
            Err(_) => {
                if self.late.fetch_add(1, Relaxed) + 1 >= MAX_LATE {
                    self.late.store(0, Relaxed);
                    self.rests_until.store(self.epoch.nanos(Instant::now()) + REST, Relaxed);
                }
                Err(Away)
            }
        }
    }

    /// Asks, and does not wait. False where nothing could be asked.
    pub(crate) fn tell(&self, key: u64, rules: &[Rule], (mode, many): (Mode, u64)) -> bool {
        self.is_up() && self.put(key, rules, (mode, many)).is_some()
    }

    fn put(&self, key: u64, rules: &[Rule], (mode, many): (Mode, u64)) -> Option<oneshot::Receiver<Answer>> {
        let (answer, receiver) = oneshot::channel();
        // What is in braces decides where a cluster keeps a key: all limits of one caller are together.
        let name = |(n, rule): (usize, &Rule)| {
            let (interval, capacity) = rule.micros(1);
            format!("{}:{{{key:016x}}}:{n}:{interval}:{capacity}", self.server.prefix)
        };
        let question = Question {
            keys: rules.iter().enumerate().map(name).collect(),
            mode,
            rules: rules.iter().map(|rule| rule.micros(many)).collect(),
            answer,
        };
        self.sender.try_send(question).ok()?;
        Some(receiver)
    }

    /// Holds the connection, for as long as the plugin is in use.
    pub(crate) async fn run(self: Arc<Self>, mut control: TaskControl) -> Result<(), String> {
        // The task of the settings before this may still hold it for a moment.
        let mut receiver = tokio::select! {
            receiver = self.receiver.lock() => receiver,
            () = control.ended() => return Ok(()),
        };
        let connection = tokio::select! {
            connection = self.server.connect() => connection?,
            () = control.ended() => return Ok(()),
        };
        self.set_up(true);
        let lost = tokio::select! {
            lost = serve(connection, &mut receiver) => Some(lost),
            () = control.ended() => None,
        };
        self.set_up(false);
        // Those who wait are told at once.
        while receiver.try_recv().is_ok() {}
        let Some(lost) = lost else { return Ok(()) };
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => Err(lost),
            () = control.ended() => Ok(()),
        }
    }

    fn set_up(&self, up: bool) {
        self.gauge.set(i64::from(up));
        self.up.send_replace(up);
    }

    /// Comes when the connection is there, or not.
    #[cfg(test)]
    pub(crate) async fn becomes(&self, up: bool) {
        drop(self.up.subscribe().wait_for(|is| *is == up).await);
    }
}

/// Sends what is asked until the connection is lost; says why it was.
async fn serve(connection: Connection, receiver: &mut Receiver<Question>) -> String {
    let script = Script::new(SCRIPT);
    let mut sent = FuturesUnordered::new();
    loop {
        let has_room = sent.len() < MAX_SENT;
        tokio::select! {
            question = receiver.recv(), if has_room => {
                let Some(question) = question else { return "nobody asks".into() };
                sent.push(send(connection.clone(), &script, question));
            }
            Some(done) = sent.next() => if let Err(lost) = done {
                return lost;
            },
        }
    }
}

async fn send(mut connection: Connection, script: &Script, question: Question) -> Result<(), String> {
    let mut call = script.prepare_invoke();
    question.keys.iter().for_each(|key| _ = call.key(key));
    call.arg(match question.mode {
        Mode::Take => "take",
        Mode::Look => "look",
        Mode::Charge => "charge",
    });
    for (cost, capacity) in &question.rules {
        call.arg(cost).arg(capacity);
    }
    let answered: Vec<i64> = connection.invoke(&call).await.map_err(|error| error.to_string())?;
    let mut numbers = answered.into_iter().map(|number| u64::try_from(number).unwrap_or(0));
    let refused = numbers.next().and_then(|n| usize::try_from(n).ok()?.checked_sub(1));
    let owed = numbers.map(Duration::from_nanos).collect();
    // Whoever asked may have gone.
    drop(question.answer.send(Answer { refused, owed }));
    Ok(())
}

/// The first 64 bits of a SHA-256: the same on every gateway, and nobody finds two callers with one key.
struct Sha256(digest::Context);

impl Hasher for Sha256 {
    fn finish(&self) -> u64 {
        let digest = self.0.clone().finish();
        digest.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

#[cfg(test)]
mod tests;
