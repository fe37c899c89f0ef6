//! The control runtime: what goes on beside the traffic, on a thread of its own, so that it never delays a worker.
//!
//! Health probes and the watch for changed certificate files always run here; the admin listener does where it is
//! asked for.

mod certificates;
pub(crate) mod overload;
mod probes;
mod tasks;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use gateway_protocols::downstream::bind;
use tokio::runtime::{Handle, Runtime};

use crate::admin::Listener;
use crate::app::{Engine, Gateway, StartError};
use certificates::Watch;
pub(crate) use tasks::PluginTasks;

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

    /// Looks after what serves: probes, and the watch for changed certificate files.
    pub(crate) fn tend(&self, engine: &Arc<Engine>) {
        if let Some(runtime) = &self.runtime {
            let tasks = &engine.shared.tasks;
            let with = engine.clone();
            runtime.spawn(tasks.clone().supervise("health_probes", move || probes::run(with.clone())));
            let with = engine.clone();
            runtime.spawn(tasks.clone().supervise("overload_watch", move || overload::run(with.clone())));
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

impl Gateway {
    /// Serves health, status and metrics on `address`, and the admin API when the configuration lies in a database, until
    /// the gateway is dropped; says where it listens. With `gateway.admin_tls` that is by TLS. Unless
    /// `gateway.admin_require_token` is set, health, status and metrics may be read by anybody who reaches the address.
    ///
    /// # Errors
    /// When the address can't be listened on.
    pub fn serve_admin(&self, address: SocketAddr) -> Result<SocketAddr, StartError> {
        let failed = |source| StartError::Bind { listener: "admin", address, source };
        let Some(handle) = self.control().handle() else {
            return Err(failed(io::ErrorKind::NotConnected.into()));
        };
        let sharing = self.engine().snapshot().settings.share_ports.into();
        let listener = bind::tcp_alone(address, sharing).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let _inside = handle.enter();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        self.tend_admin(handle, Listener::Tcp(listener, self.engine().admin_tls.config()));
        Ok(local)
    }

    /// Serves the same on a Unix socket that only this user may connect to. Removed when the gateway ends.
    ///
    /// # Errors
    /// When somebody listens there already, or it can't be created.
    pub fn serve_admin_socket(&self, path: &Path) -> Result<(), StartError> {
        let failed = |source| StartError::Socket { path: path.to_owned(), source };
        let Some(handle) = self.control().handle() else {
            return Err(failed(io::ErrorKind::NotConnected.into()));
        };
        let sharing = self.engine().snapshot().settings.share_ports.into();
        let _inside = handle.enter();
        self.tend_admin(handle, Listener::unix(path, sharing).map_err(failed)?);
        Ok(())
    }

    fn tend_admin(&self, handle: &Handle, listener: Listener) {
        let listener = Arc::new(listener);
        let admin = self.admin();
        let tasks = admin.engine.shared.tasks.clone();
        let start = move || crate::admin::serve(listener.clone(), admin.clone());
        handle.spawn(tasks.supervise("admin_accept", start));
    }
}
