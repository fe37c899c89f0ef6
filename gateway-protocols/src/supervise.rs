//! Keeps tasks that must never end running: a panic or an early end is caught, counted and logged, and the task is
//! started again after a pause.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use tokio::time::Instant;

/// The pause before the first restart; it doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause before a restart.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A task that ran for so long has recovered: its next failure starts with the first pause again.
const STABLE: Duration = Duration::from_secs(60);

/// The tasks of one gateway that must keep running, by name.
#[derive(Debug, Default)]
pub struct Tasks(Mutex<BTreeMap<&'static str, TaskState>>);

/// All tasks of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskState {
    /// Tasks that failed and wait to be started again.
    pub down: usize,
    /// Failures so far.
    pub failures: u64,
    /// The last failure, and when.
    pub last_failure: Option<(SystemTime, String)>,
}

impl Tasks {
    /// Runs what `start` makes until it ends with `Ok`. When it panics or ends with an error, it is started again.
    pub async fn supervise<F, E>(self: Arc<Self>, name: &'static str, mut start: impl FnMut() -> F)
    where
        F: Future<Output = Result<(), E>>,
        E: Display,
    {
        self.states().entry(name).or_default();
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            // `start` itself may panic, too.
            let running = AssertUnwindSafe(async { start().await }).catch_unwind();
            let cause = match running.await {
                Ok(Ok(())) => return,
                Ok(Err(cause)) => cause.to_string(),
                Err(payload) => format!("panicked: {}", text(&*payload)),
            };
            if began.elapsed() >= STABLE {
                pause = FIRST_PAUSE;
            }
            let down = self.down(name, &cause);
            tracing::error!(task = name, cause, "a task failed and is restarted");
            tokio::time::sleep(pause).await;
            drop(down);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Counts a failure that was caught and needs no restart.
    pub fn caught(&self, name: &'static str, payload: &(dyn Any + Send)) {
        let cause = format!("panicked: {}", text(payload));
        tracing::error!(task = name, cause, "a task failed and goes on");
        self.failed(name, &cause);
    }

    /// Every supervised task, by name.
    pub fn list(&self) -> Vec<(&'static str, TaskState)> {
        self.states().iter().map(|(name, state)| (*name, state.clone())).collect()
    }

    fn down(self: &Arc<Self>, name: &'static str, cause: &str) -> Down {
        self.failed(name, cause);
        self.states().entry(name).or_default().down += 1;
        Down { tasks: self.clone(), name }
    }

    fn failed(&self, name: &'static str, cause: &str) {
        let mut states = self.states();
        let state = states.entry(name).or_default();
        state.failures += 1;
        state.last_failure = Some((SystemTime::now(), cause.to_owned()));
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<&'static str, TaskState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that is down until this is dropped, also when its restart is cancelled.
struct Down {
    tasks: Arc<Tasks>,
    name: &'static str,
}

impl Drop for Down {
    fn drop(&mut self) {
        if let Some(state) = self.tasks.states().get_mut(self.name) {
            state.down -= 1;
        }
    }
}

/// The message of a panic.
fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_or_ends_is_started_again_until_it_is_done() {
        let tasks = Arc::new(Tasks::default());
        let runs = AtomicUsize::new(0);
        let start = || async {
            match runs.fetch_add(1, Ordering::Relaxed) {
                0 => panic!("one"),
                1 => Err("two".to_owned()),
                _ => Ok(()),
            }
        };
        tasks.clone().supervise("accept", start).await;
        assert_eq!(runs.into_inner(), 3);
        let (name, state) = tasks.list().remove(0);
        assert_eq!((name, state.down, state.failures), ("accept", 0, 2));
        assert_eq!(state.last_failure.unwrap().1, "two");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_counts_as_down_until_it_runs_again() {
        let tasks = Arc::new(Tasks::default());
        let down = || tasks.list().first().map(|(_, state)| state.down);
        let first = AtomicUsize::new(0);
        let start = || async {
            if first.fetch_add(1, Ordering::Relaxed) == 0 {
                Err("gone".to_owned())
            } else {
                std::future::pending().await
            }
        };
        let mut running = Box::pin(tasks.clone().supervise("follower", start));
        assert!((&mut running).now_or_never().is_none());
        assert_eq!(down(), Some(1));
        assert!(tokio::time::timeout(FIRST_PAUSE * 2, &mut running).await.is_err());
        assert_eq!((down(), first.load(Ordering::Relaxed)), (Some(0), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_cancelled_while_it_waits_is_not_down() {
        let tasks = Arc::new(Tasks::default());
        let mut running = Box::pin(tasks.clone().supervise("port", || async { Err("gone".to_owned()) }));
        assert!((&mut running).now_or_never().is_none());
        drop(running);
        assert_eq!(tasks.list()[0].1.down, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_are_bounded() {
        let tasks = Arc::new(Tasks::default());
        let runs = AtomicUsize::new(0);
        let start = || async {
            runs.fetch_add(1, Ordering::Relaxed);
            Err("gone".to_owned())
        };
        drop(tokio::time::timeout(Duration::from_secs(100), tasks.supervise("port", start)).await);
        // 0.1 + 0.2 + … + 6.4 s, and every 10 s from there on.
        assert!((14..=18).contains(&runs.load(Ordering::Relaxed)), "{runs:?}");
    }
}
