//! The control runtime: what goes on beside the traffic, on a thread of its own, so that it never delays a worker.
//!
//! Health probes, orders of certificates and the watch for changed certificate files always run here; the admin listener does where it is
//! asked for.

pub(crate) mod acme;
pub(crate) mod certificate_files;
mod certificates;
mod closed_ports;
pub(crate) mod discovery;
pub(crate) mod overload;
mod probes;

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::runtime::{Handle, Runtime};

use crate::engine::Engine;
use certificates::Watch;

/// The control runtime of one gateway; ends with it.
pub(crate) struct Control {
    runtime: Option<Runtime>,
}

/// Threads for work that waits for files, or takes long.
const BLOCKING_THREADS: usize = 4;
/// The stack of control threads: nothing here goes deep.
const STACK_BYTES: usize = 2 << 20;

impl Control {
    /// Starts the runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_stack_size(STACK_BYTES)
            .thread_name("control")
            .enable_all()
            .build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Looks after what serves: probes, certificates that are ordered, and the watch for changed certificate files.
    pub(crate) fn tend(&self, engine: &Arc<Engine>) {
        if let Some(runtime) = &self.runtime {
            let tasks = &engine.shared.tasks;
            let collected = engine.shared.overload.collected().clone();
            runtime.spawn(async move { collected.count_on_this_thread() });
            let with = engine.clone();
            runtime.spawn(tasks.clone().supervise("health_probes", move || probes::run(with.clone())));
            let with = engine.clone();
            runtime.spawn(tasks.clone().supervise("overload_watch", move || overload::run(with.clone())));
            let with = engine.clone();
            runtime.spawn(tasks.clone().supervise("closed_ports", move || closed_ports::run(with.clone())));
            let with = engine.clone();
            runtime.spawn(tasks.clone().supervise("service_discovery", move || discovery::run(with.clone())));
            let with = engine.clone();
            runtime.spawn(tasks.clone().supervise("acme", move || acme::run(with.clone())));
            let with = engine.clone();
            let mut is_first = true;
            let watch = move || {
                let watch = Watch::new(with.clone(), std::mem::take(&mut is_first));
                certificates::run(watch)
            };
            runtime.spawn(tasks.clone().supervise("certificate_watch", watch));
        }
    }

    /// Waits here for what runs there.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, result) = std::sync::mpsc::sync_channel(1);
        self.runtime.as_ref()?.spawn(async move { drop(done.send(work.await)) });
        result.recv().ok()
    }

    pub(crate) fn handle(&self) -> Option<&Handle> {
        self.runtime.as_ref().map(Runtime::handle)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waits for nothing, so that a gateway may also be dropped within another runtime.
            runtime.shutdown_background();
        }
    }
}
