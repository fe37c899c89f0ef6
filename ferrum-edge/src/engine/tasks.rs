//! Plugins' background tasks, on one thread of their own with connections of their own.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use gateway_core::config::model::RedisServers;
use gateway_core::plugin::World;
use gateway_core::plugin::world::tasks::{
    Run, Task, TaskControl, TaskError, TaskHealth, TaskName, Tasks, WorkerTask,
};
use gateway_protocols::worker::{Order, SharedByWorkers};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::export::moment::moment;

/// The first pause before a failed task runs again; it doubles up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// How long a start and a reload wait for connections to Redis.
const FIRST_CONNECTIONS: Duration = Duration::from_secs(5);
/// Tasks named in `/v1/status`; their number is always given.
const MAX_SHOWN: usize = 200;

/// The plugins' tasks of one gateway. Its thread starts with the first task.
pub(crate) struct PluginTasks {
    shared: Arc<SharedByWorkers>,
    runtime: OnceLock<Option<Handle>>,
    workers: Box<[UnboundedSender<Order>]>,
    drain: watch::Sender<bool>,
    known: Arc<TaskList>,
}

#[derive(Default)]
struct TaskList(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    tasks: BTreeMap<u64, Status>,
}

/// How one task is doing.
struct Status {
    name: TaskName,
    failures: u64,
    last_failure: Option<String>,
    /// What the running task says of itself.
    health: TaskHealth,
}

impl TaskList {
    fn with<T>(&self, see: impl FnOnce(&mut Table) -> T) -> T {
        see(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PluginTasks {
    /// No task yet. The workers take orders there.
    pub(crate) fn new(shared: Arc<SharedByWorkers>, workers: Box<[UnboundedSender<Order>]>) -> Self {
        let (drain, _) = watch::channel(false);
        Self { shared, runtime: OnceLock::new(), workers, drain, known: Arc::default() }
    }

    /// Asks every task to flush and end, and waits for them, at most this long. Says whether all ended.
    pub(crate) fn end(&self, within: Duration) -> bool {
        self.drain.send_replace(true);
        let until = std::time::Instant::now() + within;
        while self.count() > 0 && std::time::Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        self.count() == 0
    }

    fn count(&self) -> usize {
        self.known.with(|table| table.tasks.len())
    }

    /// Waits until plugins have tried to connect to these servers, a few seconds at most, so that what they share is there from
    /// the first request on. Connects where the tasks run, which use the connections.
    pub(crate) fn connect(&self, world: &World, servers: Option<&RedisServers>) {
        let attempts = world.prepare_redis(servers);
        if attempts.is_empty() {
            return;
        }
        let Some(runtime) = self.runtime() else { return };
        let (done, tried) = std::sync::mpsc::sync_channel(1);
        runtime.spawn(async move {
            let all = tokio::time::timeout(FIRST_CONNECTIONS, futures_util::future::join_all(attempts));
            _ = done.send(all.await.is_ok());
        });
        if tried.recv() == Ok(false) {
            tracing::warn!("still connecting to Redis; `on_error` decides until then");
        }
    }

    /// The tasks as `/v1/status` shows them.
    pub(crate) fn status(&self) -> Value {
        self.known.with(|table| {
            let shown: Vec<Value> = table
                .tasks
                .values()
                .take(MAX_SHOWN)
                .map(|task| {
                    let failing = task.health.failing();
                    json!({
                        "plugin": task.name.owner.plugin,
                        "plugin_config": task.name.owner.config.as_str(),
                        "task": task.name.task,
                        "failures": task.failures,
                        "last_failure": task.last_failure,
                        "failing_since": failing.as_ref().map(|(since, _)| moment(*since)),
                        "last_error": failing.map(|(_, why)| why),
                    })
                })
                .collect();
            json!({ "running": table.tasks.len(), "tasks": shown })
        })
    }

    fn runtime(&self) -> Option<&Handle> {
        let start = || match start(self.shared.clone(), self.drain.subscribe()) {
            Ok(handle) => Some(handle),
            Err(error) => {
                tracing::error!(%error, "cannot start the thread of plugins' tasks");
                None
            }
        };
        self.runtime.get_or_init(start).as_ref()
    }
}

impl Drop for PluginTasks {
    fn drop(&mut self) {
        self.drain.send_replace(true);
    }
}

impl Tasks for PluginTasks {
    fn on_each_worker(&self, work: WorkerTask) {
        // One that takes no orders any more serves nothing either.
        self.workers.iter().for_each(|worker| drop(worker.send(Order::Run(work.clone()))));
    }

    fn run(&self, name: TaskName, task: Task, control: TaskControl) {
        let Some(runtime) = self.runtime() else { return };
        let control = control.with_drain(self.drain.subscribe());
        let known = self.known.clone();
        let health = control.health().clone();
        let number = known.with(|table| {
            table.next += 1;
            table
                .tasks
                .insert(table.next, Status { name: name.clone(), failures: 0, last_failure: None, health });
            table.next
        });
        runtime.spawn(async move {
            supervise(&name, task, control, &known, number).await;
            known.with(|table| table.tasks.remove(&number));
        });
    }
}

/// Runs a task again after each failure, until it is over or has to end.
async fn supervise(name: &TaskName, mut task: Task, mut control: TaskControl, known: &TaskList, number: u64) {
    let mut pause = PAUSE;
    loop {
        let begun = Instant::now();
        let why = match once(task(control.clone())).await {
            Ok(()) => return,
            Err(why) => why,
        };
        tracing::warn!(task = %name, error = %why, "a plugin's task failed");
        known.with(|table| {
            if let Some(status) = table.tasks.get_mut(&number) {
                status.failures += 1;
                status.last_failure = Some(why.to_string());
            }
        });
        // One that ran well for long starts over with short pauses.
        pause = if begun.elapsed() > MAX_PAUSE { PAUSE } else { (pause * 2).min(MAX_PAUSE) };
        tokio::select! {
            () = control.ended() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn once(run: Run) -> Result<(), TaskError> {
    AssertUnwindSafe(run).catch_unwind().await.unwrap_or_else(|_| Err("it panicked".into()))
}

/// Starts the thread; it ends some time after the drain has begun.
fn start(shared: Arc<SharedByWorkers>, mut drain: watch::Receiver<bool>) -> std::io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name("plugin-tasks".to_owned()).spawn(move || {
        runtime.block_on(async {
            shared.overload.collected().count_on_this_thread();
            gateway_protocols::calls::lend_beside(&shared);
            drop(shared);
            until_drained(&mut drain).await;
        });
    })?;
    Ok(handle)
}

async fn until_drained(drain: &mut watch::Receiver<bool>) {
    drop(drain.wait_for(|drained| *drained).await);
    // What has to be flushed gets its time; whoever drains waits for less.
    tokio::time::sleep(MAX_PAUSE).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use gateway_core::plugin::world::Owner;

    use super::*;

    fn name() -> TaskName {
        let owner = Owner { plugin: "p", config: "c".parse().expect("an id") };
        TaskName { owner, task: "t" }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_fails_or_panics_runs_again_until_it_is_over() {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = runs.clone();
        let task: Task = Box::new(move |_| {
            let run = counted.fetch_add(1, Relaxed);
            Box::pin(async move {
                match run {
                    0 => Err("no".into()),
                    1 => panic!("a defect of the task"),
                    _ => Ok(()),
                }
            })
        });
        let (_handle, control) = TaskControl::new();
        supervise(&name(), task, control, &TaskList::default(), 1).await;
        assert_eq!(runs.load(Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_ends_with_its_plugin() {
        let (handle, control) = TaskControl::new();
        let task: Task = Box::new(|mut control: TaskControl| {
            Box::pin(async move {
                control.ended().await;
                Ok(())
            })
        });
        drop(handle);
        supervise(&name(), task, control, &TaskList::default(), 1).await;
    }
}
