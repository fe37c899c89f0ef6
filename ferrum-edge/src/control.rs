//! The control runtime: what goes on beside the traffic, on a thread of its own, so that it never delays a worker.
//!
//! Health probes and the watch for changed certificate files always run here; the admin listener does where it is
//! asked for.

mod certificates;
mod probes;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gateway_core::config::snapshot::Snapshot;
use gateway_protocols::worker::Shared;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;

use crate::app::{Addresses, Frontend, Gateway, StartError};
use crate::export::Telemetry;

/// What the control side sees of a running gateway.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) shared: Arc<Shared>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) frontend: Arc<Frontend>,
    pub(crate) draining: Arc<AtomicBool>,
    pub(crate) addresses: Addresses,
    pub(crate) workers: usize,
}

impl View {
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

/// The control runtime of one gateway; ends with it.
pub(crate) struct Control {
    runtime: Option<Runtime>,
    view: View,
    revision: watch::Sender<u64>,
}

/// Threads for work that waits for files.
const BLOCKING_THREADS: usize = 2;
/// The stack of control threads: nothing here goes deep.
const STACK_BYTES: usize = 512 << 10;

impl Control {
    /// Starts the runtime with the probes and the watch.
    pub(crate) fn start(view: View) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_stack_size(STACK_BYTES)
            .thread_name("control")
            .enable_all()
            .build()?;
        let (revision, changes) = watch::channel(view.snapshot().revision);
        runtime.spawn(probes::run(view.clone(), changes));
        runtime.spawn(certificates::run(view.clone()));
        Ok(Self { runtime: Some(runtime), view, revision })
    }

    /// Another configuration is in use.
    pub(crate) fn configured(&self, revision: u64) {
        self.revision.send_replace(revision);
    }

    fn handle(&self) -> Option<&Handle> {
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
    /// What the control side sees.
    #[cfg(test)]
    pub(crate) fn view(&self) -> View {
        self.control().view.clone()
    }

    /// Serves health, status and metrics over plain HTTP on `address`, until the gateway is dropped; says where it
    /// listens. Anybody who reaches the address may read them: keep it to loopback or a network of your own.
    ///
    /// # Errors
    /// When the address can't be listened on.
    pub fn serve_admin(&self, address: SocketAddr) -> Result<SocketAddr, StartError> {
        let failed = |source| StartError::Bind { listener: "admin", address, source };
        let Some(handle) = self.control().handle() else {
            return Err(failed(io::ErrorKind::NotConnected.into()));
        };
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let _inside = handle.enter();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        handle.spawn(crate::admin::serve(listener, self.control().view.clone()));
        Ok(local)
    }
}
