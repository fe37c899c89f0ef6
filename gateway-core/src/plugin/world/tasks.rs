//! Background work of plugins: refreshes, flushes, probes. Started after a configuration is published, ended with the
//! plugin, restarted with a growing pause when it fails.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use super::Owner;

/// Runs tasks on a runtime of its own, never on a worker. Implemented by the program.
pub trait Tasks: Send + Sync {
    /// Runs a task until its control says that it ends. A failed or panicked run is logged, counted and started again
    /// after a growing pause; a run that comes to `Ok` is over.
    fn run(&self, name: TaskName, task: Task, control: TaskControl);

    /// Has every worker do this once, before it accepts connections of what is published with it.
    fn on_each_worker(&self, work: WorkerTask) {
        let _ = work;
    }
}

/// What every worker is to do once, on its own thread and within its runtime.
#[derive(Clone)]
pub struct WorkerTask(Arc<dyn Fn() + Send + Sync>);

impl WorkerTask {
    /// Does it on this thread.
    pub fn run(&self) {
        (self.0)();
    }
}

impl fmt::Debug for WorkerTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerTask")
    }
}

/// One run of a task; called again after a failure.
pub type Task = Box<dyn FnMut(TaskControl) -> Run + Send>;

/// What a run comes to: over, or failed for this reason.
pub type Run = Pin<Box<dyn Future<Output = Result<(), TaskError>> + Send>>;

/// Why a run failed, for the log and for `/v1/status`. `?` makes it of any error, `into()` of a text.
pub struct TaskError(Box<dyn Error + Send + Sync>);

// `TaskError` is no `Error` itself: this would be two conversions from it then.
impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for TaskError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whose task it is, and which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskName {
    /// The plugin and its config.
    pub owner: Owner,
    /// The task's name within the plugin.
    pub task: &'static str,
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.owner.plugin, self.owner.config, self.task)
    }
}

/// Tells a task when to end, and takes what the task says of itself.
#[derive(Debug, Clone)]
pub struct TaskControl {
    plugin: watch::Receiver<bool>,
    drain: Option<watch::Receiver<bool>>,
    health: TaskHealth,
}

/// Whether a task that goes on can do its work: a server it needs may be away. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct TaskHealth(Arc<Mutex<Option<(Instant, String)>>>);

impl TaskHealth {
    /// The work fails for this reason; the beginning is kept until it works again.
    pub fn fails(&self, why: &str) {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = failing.take().map_or_else(Instant::now, |(since, _)| since);
        *failing = Some((since, why.to_owned()));
    }

    /// The work is done again.
    pub fn works(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Since when it fails, and why it failed last; `None` while it works.
    pub fn failing(&self) -> Option<(Instant, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl TaskControl {
    /// Comes when the task has to end: its plugin is gone, or the gateway drains. What is buffered is flushed then; the
    /// drain waits for it for a bounded time.
    pub async fn ended(&mut self) {
        // An error is the sender dropped, which is the end as well.
        let Self { plugin, drain, .. } = self;
        match drain {
            None => drop(plugin.wait_for(|ended| *ended).await),
            Some(drain) => tokio::select! {
                _ = plugin.wait_for(|ended| *ended) => {}
                _ = drain.wait_for(|ended| *ended) => {}
            },
        }
    }

    /// Whether the task has to end.
    pub fn is_ended(&self) -> bool {
        let is_over = |it: &watch::Receiver<bool>| *it.borrow() || it.has_changed().is_err();
        is_over(&self.plugin) || self.drain.as_ref().is_some_and(is_over)
    }

    /// Where the task says whether it can do its work.
    pub fn health(&self) -> &TaskHealth {
        &self.health
    }

    /// A control and what ends it.
    pub fn new() -> (TaskHandle, Self) {
        let (sender, receiver) = watch::channel(false);
        (TaskHandle(sender), Self { plugin: receiver, drain: None, health: TaskHealth::default() })
    }

    /// The same, ended by this as well.
    #[must_use]
    pub fn with_drain(self, drain: watch::Receiver<bool>) -> Self {
        Self { drain: Some(drain), ..self }
    }
}

/// Ends its task when dropped.
#[derive(Debug)]
pub struct TaskHandle(watch::Sender<bool>);

impl Drop for TaskHandle {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// Where a plugin starts its tasks.
pub struct Starter<'a> {
    tasks: &'a dyn Tasks,
    owner: Owner,
    handles: Vec<TaskHandle>,
}

impl<'a> Starter<'a> {
    /// For the tasks of one plugin.
    pub fn new(tasks: &'a dyn Tasks, owner: Owner) -> Self {
        Self { tasks, owner, handles: Vec::new() }
    }

    /// Starts a task. `run` is called for each run; what it captures lives as long as the task.
    pub fn task<F>(&mut self, name: &'static str, mut run: impl FnMut(TaskControl) -> F + Send + 'static)
    where
        F: Future<Output = Result<(), TaskError>> + Send + 'static,
    {
        let (handle, control) = TaskControl::new();
        self.handles.push(handle);
        let name = TaskName { owner: self.owner.clone(), task: name };
        self.tasks.run(name, Box::new(move |control| Box::pin(run(control))), control);
    }

    /// Has every worker do this once: what each of them keeps for itself is ready before a request needs it. It holds the worker up.
    pub fn on_each_worker(&mut self, work: impl Fn() + Send + Sync + 'static) {
        self.tasks.on_each_worker(WorkerTask(Arc::new(work)));
    }

    /// The started tasks; they end when this is dropped.
    pub(crate) fn into_handles(self) -> Vec<TaskHandle> {
        self.handles
    }
}

/// Runs nothing. For checks and tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTasks;

impl Tasks for NoTasks {
    fn run(&self, _name: TaskName, _task: Task, _control: TaskControl) {}
}
