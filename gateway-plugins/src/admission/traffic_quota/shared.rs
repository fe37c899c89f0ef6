//! Quotas shared by several gateways: every second, each gateway adds its usage in Redis or Valkey and reads the total.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use gateway_plugin_common::redis_link::{Away, Command, OnError, RedisLink};
use redis::Script;
use tokio::sync::Notify;

use super::accounts::{Accounts, SharedTotal, Unshared};
use super::unix_now;

/// Adds what a gateway has used to what all have used: of the sum that the gateway tells, what it has not told before. Returns the
/// usage of all, and how often it was reset. Of a gateway that does not know of a reset yet it adds nothing. `KEYS[2]` has the sums by
/// gateway, and the resets; a store that lost its data takes both over from the gateways.
static ADD: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local resets = tonumber(redis.call('HGET', KEYS[2], 'resets') or '0')
if ARGV[3] == 'reset' then
  resets = resets + 1
  redis.call('DEL', KEYS[1], KEYS[2])
elseif ARGV[3] ~= '' and tonumber(ARGV[3]) < resets then
  return {tonumber(redis.call('GET', KEYS[1]) or '0'), resets}
elseif ARGV[3] ~= '' then
  resets = tonumber(ARGV[3])
end
local told = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or '0')
local new = math.max(tonumber(ARGV[2]) - told, 0)
local used = redis.call('INCRBY', KEYS[1], string.format('%.0f', new))
redis.call('HSET', KEYS[2], 'resets', string.format('%.0f', resets), ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {used, resets}
",
    )
});

/// How often the store is asked: so much later at most does a gateway learn what passed elsewhere.
const EVERY: Duration = Duration::from_secs(1);
/// How long a key stays after its period, in seconds: clocks of gateways differ.
const SPARE: u64 = 3600;

/// The quotas of plugin configs with one id.
pub(super) struct SharedAccounts {
    pub(super) link: Arc<RedisLink>,
    wake: Notify,
}

impl SharedAccounts {
    pub(super) fn new(link: Arc<RedisLink>) -> Self {
        Self { link, wake: Notify::new() }
    }

    /// Exchanges soon: a key was reset.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Tells and asks, for as long as the plugin is in use.
    ///
    /// # Errors
    /// Never; what the store can't be told now, it is told later.
    pub(super) async fn keep(
        self: Arc<Self>,
        accounts: Arc<Accounts>,
        mut control: TaskControl,
    ) -> Result<(), TaskError> {
        let mut ended = false;
        while !ended {
            tokio::select! {
                () = control.ended() => ended = true,
                () = tokio::time::sleep(EVERY) => {}
                () = self.wake.notified() => {}
            }
            accounts.advance(unix_now());
            let away = self.exchange(&accounts).await.is_err();
            match (away, self.link.on_error()) {
                (true, OnError::Allow) => accounts.set_limit(Some(u64::MAX)),
                (true, OnError::Deny) => accounts.set_limit(Some(0)),
                (true, OnError::Local) | (false, _) => accounts.set_limit(None),
            }
            match away {
                true => control.health().fails("the shared store is away"),
                false => control.health().works(),
            }
        }
        Ok(())
    }

    pub(super) async fn exchange(&self, accounts: &Accounts) -> Result<(), Away> {
        if !self.link.is_up() {
            return Err(Away);
        }
        for told in accounts.unshared() {
            let left = told.end.saturating_sub(unix_now()).saturating_add(SPARE).saturating_mul(1000);
            let resets = match told.resets {
                _ if told.is_reset => "reset".to_owned(),
                known => known.map_or_else(String::new, |known| known.to_string()),
            };
            let command = Command::new(&ADD, vec![self.name(told), format!("{}:told", self.name(told))])
                .arg(accounts.id().to_string())
                .arg(told.bytes.to_string())
                .arg(resets)
                .arg(left.to_string());
            let answer = self.link.ask(command).await?;
            let (used, resets): (i64, i64) = redis::from_redis_value(answer).map_err(|_| Away)?;
            let [used, resets] = [used, resets].map(|number| u64::try_from(number).unwrap_or(0));
            accounts.shared(told, SharedTotal { used, resets });
        }
        Ok(())
    }

    fn name(&self, told: Unshared) -> String {
        format!("{}:{{{:016x}}}:traffic:{}", self.link.prefix(), told.key, told.end)
    }
}
