//! The instances of one worker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::guest_error::GuestError;
use super::host::Parts;
use super::vm::{Template, Vm};

/// Instances that still serve the exchanges they began with, for each worker; beyond it the oldest ends.
const MAX_RETIRED: usize = 8;
/// How long a worker waits before it starts an instance again that could not be started.
const START_AGAIN: Duration = Duration::from_secs(1);

/// The instances of one worker.
#[derive(Default)]
pub(super) struct Pool {
    current: Option<Vm>,
    /// Those that only end what they have begun; the oldest first.
    retired: Vec<Vm>,
    failed: Option<(Instant, GuestError)>,
}

impl Pool {
    /// The instance that takes new exchanges, started where there is none; and whether it was started now.
    ///
    /// # Errors
    /// What keeps it from starting.
    pub(super) fn current(
        &mut self,
        template: &Template,
        parts: &Arc<Parts>,
    ) -> Result<(&mut Vm, bool), GuestError> {
        if self.current.as_ref().is_some_and(|vm| vm.is_full()) {
            self.retire_current();
        }
        if let Some((at, error)) = &self.failed
            && at.elapsed() < START_AGAIN
        {
            return Err(error.clone());
        }
        let is_new = self.current.is_none();
        if is_new {
            match Vm::start(template, parts) {
                Ok(vm) => self.current = Some(vm),
                Err(error) => {
                    self.failed = Some((Instant::now(), error.clone()));
                    return Err(error);
                }
            }
            self.failed = None;
        }
        self.current.as_mut().map(|vm| (vm, is_new)).ok_or(GuestError::InUse)
    }

    /// The instance of this generation, if it is still there.
    pub(super) fn find(&mut self, generation: u64) -> Option<&mut Vm> {
        self.current.iter_mut().chain(&mut self.retired).find(|vm| vm.generation == generation)
    }

    /// Has an instance take no more exchanges, after it has failed.
    pub(super) fn retire(&mut self, generation: u64) {
        if self.current.as_ref().is_some_and(|vm| vm.generation == generation) {
            self.retire_current();
        }
    }

    fn retire_current(&mut self) {
        self.retired.extend(self.current.take());
        self.sweep();
        if self.retired.len() > MAX_RETIRED {
            self.retired.remove(0);
        }
    }

    /// Drops retired instances that have nothing more to do.
    pub(super) fn sweep(&mut self) {
        self.retired.retain_mut(|vm| vm.exchanges() > 0);
    }
}
