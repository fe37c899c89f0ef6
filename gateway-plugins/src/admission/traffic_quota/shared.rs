//! Quotas shared by several gateways: every second, each gateway adds its usage in Redis or Valkey and reads the total.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use gateway_plugin_common::redis_link::{Away, Command, OnError, RedisLink};
use redis::Script;

use super::accounts::{Accounts, Unshared};
use super::unix_now;

/// Adds bytes to what all gateways have used, and says how many that are.
static ADD: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local used = redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return used
",
    )
});
/// Forgets what all gateways have used.
static FORGET: LazyLock<Script> = LazyLock::new(|| Script::new("return redis.call('DEL', KEYS[1])"));

/// How often the store is asked: so much later at most does a gateway learn what passed elsewhere.
const EVERY: Duration = Duration::from_secs(1);
/// How long a key stays after its period, in seconds: clocks of gateways differ.
const SPARE: u64 = 3600;

/// The quotas of plugin configs with one id.
pub(super) struct SharedAccounts {
    pub(super) link: Arc<RedisLink>,
}

impl SharedAccounts {
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

    async fn exchange(&self, accounts: &Accounts) -> Result<(), Away> {
        if !self.link.is_up() {
            return Err(Away);
        }
        for told in accounts.unshared() {
            let left = told.end.saturating_sub(unix_now()).saturating_add(SPARE).saturating_mul(1000);
            let command = Command::new(&ADD, vec![self.name(told)]);
            let answer = self.link.ask(command.arg(told.bytes.to_string()).arg(left.to_string())).await?;
            let total: i64 = redis::from_redis_value(answer).map_err(|_| Away)?;
            accounts.shared(told, u64::try_from(total).unwrap_or(0));
        }
        Ok(())
    }

    /// Forgets what all gateways have used of these keys and periods. The others learn of it with their next question.
    pub(super) fn forget(&self, keys: &[(u64, u64)]) {
        for (key, end) in keys {
            let told = Unshared { key: *key, end: *end, bytes: 0 };
            self.link.tell(Command::new(&FORGET, vec![self.name(told)]));
        }
    }

    fn name(&self, told: Unshared) -> String {
        format!("{}:{{{:016x}}}:traffic:{}", self.link.prefix(), told.key, told.end)
    }
}
