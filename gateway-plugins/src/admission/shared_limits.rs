//! Limits that several gateways share, counted in Redis or Valkey by one script with the server's own clock.

use std::hash::Hasher;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use gateway_core::plugin::World;
use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use gateway_plugin_common::redis_link::{Command, OnError, RedisConfig, RedisLink, Sha256};
use redis::Script;

use crate::admission::rate_table::Rule;
pub(crate) use gateway_plugin_common::redis_link::Away;

/// Takes from several limits of one key, or from none; `charge` takes from all of them whatever is left, `look` from none. `lease`
/// takes as many as fit, at most the last argument, and says how many; with less than what is asked for it takes nothing. The state
/// of a limit is the moment at which its allowance is whole again, in microseconds since 2026, so that numbers stay exact.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local time = redis.call('TIME')
local now = (tonumber(time[1]) - 1767225600) * 1000000 + tonumber(time[2])
local mode, owed, refused = ARGV[1], {}, 0
for i = 1, #KEYS do
  local whole = tonumber(redis.call('GET', KEYS[i]) or '0') or 0
  owed[i] = math.max(whole - now, 0)
  if refused == 0 and owed[i] + tonumber(ARGV[2 * i]) > tonumber(ARGV[2 * i + 1]) + 0.01 then refused = i end
end
local granted, asked = 1, 1
if mode == 'lease' and refused == 0 then
  asked = tonumber(ARGV[2 * #KEYS + 2])
  granted = tonumber(ARGV[2 * #KEYS + 3])
  for i = 1, #KEYS do
    local room = tonumber(ARGV[2 * i + 1]) + 0.01 - owed[i]
    granted = math.min(granted, math.floor(room / tonumber(ARGV[2 * i]) * asked))
  end
  granted = math.max(granted, asked)
end
if mode == 'charge' or (mode ~= 'look' and refused == 0) then
  for i = 1, #KEYS do
    local capacity = tonumber(ARGV[2 * i + 1])
    owed[i] = math.max(owed[i], math.min(owed[i] + tonumber(ARGV[2 * i]) / asked * granted, capacity))
    redis.call('SET', KEYS[i], string.format('%.3f', now + owed[i]), 'PX', math.ceil(owed[i] / 1000) + 1)
  end
end
local answer = { refused }
for i = 1, #KEYS do answer[i + 1] = math.ceil(owed[i] * 1000) end
if mode == 'lease' then answer[#KEYS + 2] = granted end
return answer
",
    )
});

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
pub(crate) struct SharedOutcome {
    /// The first limit that has no room.
    pub(crate) refused: Option<usize>,
    /// Until each limit's allowance is whole again.
    pub(crate) owed: Vec<Duration>,
}

/// The limits that gateways share.
pub(crate) struct SharedLimits {
    link: Arc<RedisLink>,
}

impl SharedLimits {
    /// Nothing is connected before [`Self::run`].
    pub(crate) fn new(config: &RedisConfig, world: &World) -> Self {
        Self { link: Arc::new(RedisLink::new(config, world)) }
    }

    pub(crate) fn on_error(&self) -> OnError {
        self.link.on_error()
    }

    /// Begins the hash of a key, the same on every gateway.
    pub(crate) fn hasher(&self) -> impl Hasher + use<> {
        Sha256::default()
    }

    /// Whether it is worth to ask now.
    pub(crate) fn is_up(&self) -> bool {
        self.link.is_up()
    }

    /// Asks, and waits for the answer for as long as the settings say.
    pub(crate) async fn ask(
        &self,
        key: u64,
        rules: &[Rule],
        mode: Mode,
        many: u64,
    ) -> Result<SharedOutcome, Away> {
        let command = self.command(key, rules, mode.word(), many);
        answer(self.link.ask(command).await?, rules).map(|(answer, _)| answer)
    }

    /// Looks at what is left without taking any, and blocks this thread for it; see [`RedisLink::ask_and_block`].
    pub(crate) fn look_and_block(
        &self,
        key: u64,
        rules: &[Rule],
        many: u64,
    ) -> Option<Result<SharedOutcome, Away>> {
        let answered = self.link.ask_and_block(self.command(key, rules, Mode::Look.word(), many))?;
        Some(answered.and_then(|said| answer(said, rules)).map(|(answer, _)| answer))
    }

    /// Takes as many as there is room for, but at least `many` and at most `most`, or none: says how many.
    pub(crate) async fn lease(
        &self,
        key: u64,
        rules: &[Rule],
        many: u64,
        most: u64,
    ) -> Result<(SharedOutcome, u64), Away> {
        let command = self.command(key, rules, "lease", many);
        let command = command.arg(many.to_string()).arg(most.to_string());
        answer(self.link.ask(command).await?, rules)
    }

    /// Asks, and does not wait. False where nothing could be asked.
    pub(crate) fn tell(&self, key: u64, rules: &[Rule], mode: Mode, many: u64) -> bool {
        self.link.tell(self.command(key, rules, mode.word(), many))
    }

    fn command(&self, key: u64, rules: &[Rule], mode: &str, many: u64) -> Command {
        // What is in braces decides where a cluster keeps a key: all limits of one caller are together.
        let prefix = self.link.prefix();
        let name = |(n, rule): (usize, &Rule)| {
            let (interval, capacity) = rule.micros(1);
            format!("{prefix}:{{{key:016x}}}:{n}:{interval}:{capacity}")
        };
        let command = Command::new(&SCRIPT, rules.iter().enumerate().map(name).collect());
        let command = command.arg(mode);
        rules.iter().fold(command, |command, rule| {
            let (cost, capacity) = rule.micros(many);
            command.arg(cost.to_string()).arg(capacity.to_string())
        })
    }

    /// Holds the connection, for as long as the plugin is in use.
    pub(crate) async fn run(self: Arc<Self>, control: TaskControl) -> Result<(), TaskError> {
        self.link.clone().run(control).await
    }

    #[cfg(test)]
    fn set_up(&self, up: bool) {
        self.link.set_up(up);
    }

    /// Comes when the connection is there, or not.
    #[cfg(test)]
    pub(crate) async fn becomes(&self, up: bool) {
        self.link.becomes(up).await;
    }
}

impl Mode {
    fn word(self) -> &'static str {
        match self {
            Self::Take => "take",
            Self::Look => "look",
            Self::Charge => "charge",
        }
    }
}

/// What the script said, and the number behind it.
fn answer(said: redis::Value, rules: &[Rule]) -> Result<(SharedOutcome, u64), Away> {
    let said: Vec<i64> = redis::from_redis_value(said).map_err(|_| Away)?;
    let mut numbers = said.into_iter().map(|number| u64::try_from(number).unwrap_or(0));
    let refused = numbers.next().and_then(|n| usize::try_from(n).ok()?.checked_sub(1));
    let owed: Vec<Duration> = numbers.by_ref().take(rules.len()).map(Duration::from_nanos).collect();
    if owed.len() != rules.len() {
        return Err(Away);
    }
    Ok((SharedOutcome { refused, owed }, numbers.next().unwrap_or(0)))
}

#[cfg(test)]
mod tests;
