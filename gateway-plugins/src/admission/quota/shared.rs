//! Quotas that several gateways share, counted in Redis or Valkey by one script.

use std::sync::{Arc, LazyLock};

use gateway_core::plugin::world::meters::Counter;
use gateway_plugin_common::redis_link::{Away, Command, RedisLink};
use redis::Script;

use super::table::Ask;

/// Takes from several quotas of one caller, or from none.
static TAKE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local many, refused, used = tonumber(ARGV[1]), 0, {}
for i = 1, #KEYS do
  used[i] = tonumber(redis.call('GET', KEYS[i]) or '0') or 0
  if refused == 0 and used[i] + many > tonumber(ARGV[2 * i]) then refused = i end
end
if refused == 0 then
  for i = 1, #KEYS do
    used[i] = redis.call('INCRBY', KEYS[i], ARGV[1])
    redis.call('PEXPIRE', KEYS[i], ARGV[2 * i + 1])
  end
end
local answer = { refused }
for i = 1, #KEYS do answer[i + 1] = used[i] end
return answer
",
    )
});

/// How much of several quotas is used.
static LOOK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local used = {}
for i = 1, #KEYS do used[i] = tonumber(redis.call('GET', KEYS[i]) or '0') or 0 end
return used
",
    )
});

/// How long a key stays after its period, in seconds: clocks of gateways differ.
const SPARE: u64 = 60;

/// The quotas of plugin configs with one id.
pub(super) struct SharedQuotas {
    pub(super) link: Arc<RedisLink>,
    pub(super) asked: Counter,
    pub(super) local: Counter,
    pub(super) allowed: Counter,
    pub(super) denied: Counter,
}

impl SharedQuotas {
    /// Takes so many from all of them, or from none: how much of each is used then, and the first that has no room.
    pub(super) async fn take(
        &self,
        key: u64,
        asks: &[Ask],
        many: u64,
        now: u64,
    ) -> Result<(Vec<u64>, Option<usize>), Away> {
        if !self.link.is_up() {
            return Err(Away);
        }
        let command = Command::new(&TAKE, self.names(key, asks)).arg(many.to_string());
        let command = asks.iter().fold(command, |command, ask| {
            let left = ask.end.saturating_sub(now).saturating_add(SPARE).saturating_mul(1000);
            command.arg(ask.limit.to_string()).arg(left.to_string())
        });
        let answered = self.link.ask(command).await?;
        let answered: Vec<i64> = redis::from_redis_value(answered).map_err(|_| Away)?;
        let mut numbers = answered.into_iter().map(|number| u64::try_from(number).unwrap_or(0));
        let refused = numbers.next().and_then(|n| usize::try_from(n).ok()?.checked_sub(1));
        let used: Vec<u64> = numbers.collect();
        if used.len() != asks.len() {
            return Err(Away);
        }
        self.asked.add(1);
        Ok((used, refused))
    }

    /// How much of each is used, without taking any; blocks this thread, see [`RedisLink::ask_and_block`].
    pub(super) fn look_and_block(&self, key: u64, asks: &[Ask]) -> Option<Result<Vec<u64>, Away>> {
        if !self.link.is_up() {
            return Some(Err(Away));
        }
        let answered = self.link.ask_and_block(Command::new(&LOOK, self.names(key, asks)))?;
        let read = |answered| redis::from_redis_value::<Vec<i64>>(answered).map_err(|_| Away);
        let used = answered.and_then(read);
        Some(used.map(|used| used.into_iter().map(|number| u64::try_from(number).unwrap_or(0)).collect()))
    }

    /// Names of the counters. What is in braces decides where a cluster keeps a key: all quotas of one caller are together.
    fn names(&self, key: u64, asks: &[Ask]) -> Vec<String> {
        let prefix = self.link.prefix();
        let name = |ask: &Ask| format!("{prefix}:{{{key:016x}}}:quota:{:016x}:{}", ask.id, ask.end);
        asks.iter().map(name).collect()
    }
}
