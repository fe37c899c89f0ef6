//! The admin listener of a running gateway.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use gateway_protocols::downstream::bind;
use tokio::runtime::Handle;

use super::Gateway;
use super::error::StartError;
use crate::admin::{Admin, Listener};

impl Gateway {
    /// What the admin listener serves.
    pub(crate) fn admin(&self) -> Admin {
        Admin { engine: self.engine.clone(), reconciler: self.reconciler.clone() }
    }

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
