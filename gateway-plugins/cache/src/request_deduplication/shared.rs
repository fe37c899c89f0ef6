//! The keys that several gateways remember together, in Redis or Valkey.
//!
//! A key's value is a letter for what is known of it, what its request looks like, and more: `p` under way, with a token and
//! the moment from which on nobody can be at it any more; `d` with the stored answer; `u` not known; `s` carried out, and its
//! answer is not stored.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use gateway_plugin_common::hex::hex;
use gateway_plugin_common::redis_link::{Away, Command, RedisLink};
use redis::{Script, Value};
use tokio::time::Instant;

use super::saved::Saved;
use super::{Key, KeyStatus, Print, RequestOutcome};

/// Bytes of answers that may be on their way to the store.
pub(super) const MAX_UNDER_WAY: usize = 64 << 20;
/// How long the task may take to send an answer, at most, beyond the time for the request itself.
const SPARE: Duration = Duration::from_secs(30);

/// Claims whose fate is being said again and again, because it is not known whether the store has them.
const MAX_LOOSE: usize = 10_000;
/// The pauses between two attempts to say so.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Claims a key, or says what is known of it.
static CLAIM: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local held = redis.call('GET', KEYS[1])
if held then
  if string.sub(held, 2, 33) ~= ARGV[1] then return 'm' end
  local state = string.sub(held, 1, 1)
  if state == 'p' and (tonumber(string.sub(held, 50)) or 0) < now then state = 'u' end
  if state == 'd' then return held end
  if state ~= 'u' or ARGV[5] == '0' then return state end
end
local until_then = string.format('%.0f', now + tonumber(ARGV[3]))
redis.call('SET', KEYS[1], 'p' .. ARGV[1] .. ARGV[2] .. until_then, 'PX', ARGV[4])
return 'n'
",
    )
});

/// Says what became of the request that claimed a key, unless another one has claimed it since.
static SETTLE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 1, 1) ~= 'p' or string.sub(held, 34, 49) ~= ARGV[2] then return 0 end
if ARGV[3] == 'f' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[3] .. ARGV[1] .. ARGV[5], 'PX', ARGV[4])
end
return 1
",
    )
});

/// The keys of plugin configs with one id.
pub(super) struct SharedKeys {
    pub(super) link: Arc<RedisLink>,
    under_way: AtomicUsize,
    loose: AtomicUsize,
}

/// What the first request with a key holds on to.
pub(super) struct Claim {
    shared: Arc<SharedKeys>,
    name: String,
    print: Print,
    token: [u8; 16],
    ttl: Duration,
    /// Nothing was heard of it: the store may have it, or get it yet.
    is_loose: bool,
}

/// A claim while the store is asked. Whoever waits for the answer no more, such as a client that has left, gives the key back.
struct Asking(Option<Claim>);

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(claim) = self.0.take() {
            claim.settle(&RequestOutcome::Free);
        }
    }
}

/// What was found for a request.
pub(super) enum SharedClaim {
    /// It is the first.
    First(Claim),
    /// The first is under way.
    Pending,
    Held(KeyStatus),
}

impl SharedKeys {
    pub(super) fn new(link: RedisLink) -> Self {
        Self { link: Arc::new(link), under_way: AtomicUsize::new(0), loose: AtomicUsize::new(0) }
    }

    /// Claims a key for as long as a request may take, or says what is known of it.
    ///
    /// # Errors
    /// There was no answer in time. The store may carry the claim out all the same, so that whoever gets it has to settle it.
    pub(super) async fn claim(
        self: &Arc<Self>,
        key: Key,
        print: Print,
        within: Duration,
        ttl: Duration,
        retries: bool,
    ) -> Result<SharedClaim, Option<Claim>> {
        let name = format!("{}:{{{}}}", self.link.prefix(), hex(&key));
        let mut token = [0; 16];
        aws_lc_rs::rand::fill(&mut token).map_err(|_| None)?;
        let command = Command::new(&CLAIM, vec![name.clone()])
            .arg(print)
            .arg(token)
            .arg(millis(within.saturating_add(SPARE)))
            .arg(millis(ttl))
            .arg(if retries { "1" } else { "0" });
        let mut asking =
            Asking(Some(Claim { shared: self.clone(), name, print, token, ttl, is_loose: true }));
        let answer = self.link.ask(command).await;
        let claim = asking.0.take();
        let held = match answer {
            Ok(Value::BulkString(bytes)) => bytes,
            Ok(Value::SimpleString(text)) => text.into_bytes(),
            _ => return Err(claim),
        };
        let held = match held.first() {
            Some(b'n') => {
                let claim = claim.map(|claim| Claim { is_loose: false, ..claim });
                return claim.map(SharedClaim::First).ok_or(None);
            }
            Some(b'p') => return Ok(SharedClaim::Pending),
            Some(b'm') => KeyStatus::Other,
            Some(b's') => KeyStatus::Spent,
            Some(b'd') => match held.get(33..).and_then(Saved::decode) {
                Some(saved) => KeyStatus::Answered(Arc::new(saved)),
                None => KeyStatus::Spent,
            },
            _ => KeyStatus::Unknown,
        };
        Ok(SharedClaim::Held(held))
    }
}

impl SharedKeys {
    /// Says what became of a claim of which nothing was heard, until the store has it or the key would be forgotten anyway. A claim
    /// that stood would have the key's requests refused, though nothing was sent.
    async fn settle_loose(&self, command: Command, ttl: Duration) {
        if self.loose.fetch_add(1, Relaxed) < MAX_LOOSE {
            let until = Instant::now() + ttl;
            let (mut pause, mut unfound) = (PAUSES.0, 0);
            while Instant::now() < until {
                match self.link.ask(command.clone()).await {
                    // It had not come yet, as it went by another connection, or is answered already: once more, to be sure.
                    Ok(Value::Int(0)) if unfound == 0 => unfound = 1,
                    Ok(_) => break,
                    Err(Away) => {}
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
        self.loose.fetch_sub(1, Relaxed);
    }
}

impl Claim {
    /// The request has ended. Where this can't be said, the key is not known from the moment on at which the request must have
    /// ended.
    pub(super) fn settle(self, outcome: &RequestOutcome) {
        let shared = self.shared.clone();
        let (state, bytes) = match outcome {
            RequestOutcome::Free => ("f", Vec::new()),
            RequestOutcome::Unknown => ("u", Vec::new()),
            RequestOutcome::Spent => ("s", Vec::new()),
            RequestOutcome::Answered(saved) => {
                let weight = usize::try_from(saved.weight()).unwrap_or(usize::MAX);
                match shared.under_way.load(Relaxed).saturating_add(weight) > MAX_UNDER_WAY {
                    true => ("s", Vec::new()),
                    false => ("d", saved.encode()),
                }
            }
        };
        let size = bytes.len();
        let command = Command::new(&SETTLE, vec![self.name.clone()])
            .arg(self.print)
            .arg(self.token)
            .arg(state)
            .arg(millis(self.ttl))
            .arg(bytes);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            shared.link.tell(command);
            return;
        };
        shared.under_way.fetch_add(size, Relaxed);
        if self.is_loose {
            drop(runtime.spawn(async move {
                shared.settle_loose(command, self.ttl).await;
                shared.under_way.fetch_sub(size, Relaxed);
            }));
            return;
        }
        drop(runtime.spawn(async move {
            // Whether it was said makes no difference any more: there is nobody left who could do something else.
            let _said = shared.link.ask(command).await;
            shared.under_way.fetch_sub(size, Relaxed);
        }));
    }
}

fn millis(time: Duration) -> String {
    time.as_millis().max(1).to_string()
}
