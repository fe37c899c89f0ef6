//! Password checks: done off the worker, so many at a time, and remembered for a short while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use gateway_core::consumer::Consumers;
use gateway_core::plugin::World;
use gateway_core::plugin::world::blocking::Busy;
use serde_json::Value;

use super::credential::PASSWORD;
use super::password::Stored;
use crate::credential::checked::{Print, Secrets};
use crate::turns::Turns;

/// Consumers among whom a hash is looked for that unknown users are checked against.
const SAMPLE: usize = 1000;

/// Does checks off the worker, so many at a time.
pub(super) struct Checks {
    turns: Turns,
    world: World,
}

impl Checks {
    pub(super) fn new(world: &World, at_a_time: usize, max_waiting: usize) -> Self {
        Self { turns: Turns::new(at_a_time, max_waiting), world: world.clone() }
    }

    /// Does the work off the worker as soon as there is room.
    ///
    /// # Errors
    /// [`Busy`] when as many checks wait as may wait.
    pub(super) async fn run(&self, work: impl FnOnce() -> bool + Send + 'static) -> Result<bool, Busy> {
        let _turn = self.turns.take().await?;
        self.world.run_blocking(work).await
    }
}

/// Checks that went well. The stored hashes are part of what they are kept under, so that a changed password counts at once.
pub(super) type Memory = Secrets<()>;

/// What a check is kept under.
pub(super) fn print(memory: &Memory, user: &str, stored: &[Stored], password: &[u8]) -> Print {
    let hashes = stored.iter().map(|stored| stored.text().as_bytes());
    let parts: Vec<&[u8]> = std::iter::once(user.as_bytes()).chain(hashes).chain([password]).collect();
    memory.print(&parts)
}

/// A real hash that passwords of unknown users are checked against, so that time does not tell whether a user exists.
/// It is of the same kind and cost as the hash that was checked last.
#[derive(Default)]
pub(super) struct Decoy {
    hash: ArcSwapOption<Stored>,
    looked: AtomicBool,
}

impl Decoy {
    /// One like this hash.
    pub(super) fn learn(&self, stored: &Stored) {
        if stored.is_slow() && self.hash.load().as_ref().is_none_or(|known| known.cost() != stored.cost()) {
            self.hash.store(Some(Arc::new(stored.clone())));
        }
    }

    /// The hash to check against; `None` where no user has one.
    pub(super) fn get(&self, consumers: &Consumers) -> Option<Arc<Stored>> {
        let known = self.hash.load_full();
        if known.is_some() || self.looked.swap(true, Relaxed) {
            return known;
        }
        let all = consumers.iter().take(SAMPLE).filter_map(|(_, identity)| identity.consumer.as_ref());
        let slow = all.flat_map(|consumer| consumer.secrets(&PASSWORD)).find_map(|secret| {
            let hash = secret.expose().get("password_hash").and_then(Value::as_str)?;
            Stored::hash(hash).ok()
        });
        slow.inspect(|stored| self.learn(stored)).map(Arc::new)
    }
}
