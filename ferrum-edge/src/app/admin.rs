//! The admin listeners of a running gateway.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use gateway_core::config::model::Settings;
use gateway_protocols::downstream::bind::{self, Inherited};
use tokio::runtime::Handle;

use super::Gateway;
use crate::access::Access;
use crate::admin::{Admin, Listener};
use crate::engine::admin_listeners::HandedSocket;
use crate::engine::error::StartError;
use crate::engine::unix_socket::{self, SocketFile};

/// Nobody but its owner connects to the admin API's Unix socket.
const SOCKET_MODE: u32 = 0o600;

/// The sockets that the settings ask for, bound and not yet served. Made before the gateway starts, so that one that can't
/// be had costs no traffic.
pub(crate) struct AdminSockets {
    tcp: Option<TcpListener>,
    unix: Option<(UnixListener, SocketFile)>,
}

impl AdminSockets {
    /// Gives back the inherited sockets that are for others.
    ///
    /// # Errors
    /// When the address or the Unix socket can't be listened on.
    pub(crate) fn bind(
        settings: &Settings,
        mut inherited: Inherited,
    ) -> Result<(Self, Inherited), StartError> {
        let sharing = settings.share_ports.into();
        let mut bound = |address| {
            let failed = |source| StartError::Bind { listener: "admin", address, source };
            bind::tcp_alone(address, sharing, &mut inherited).map_err(failed)
        };
        let tcp = settings.admin.map(&mut bound).transpose()?;
        let unix = settings.admin_socket.as_deref().map(|path| {
            let failed = |source| StartError::Socket { path: path.to_owned(), source };
            unix_socket::bind(path, SOCKET_MODE, sharing).map_err(failed)
        });
        Ok((Self { tcp, unix: unix.transpose()? }, inherited))
    }
}

impl Gateway {
    /// What the admin listener serves.
    pub(crate) fn admin(&self) -> Admin {
        Admin {
            engine: self.engine.clone(),
            reconciler: self.reconciler.clone(),
            given_access: self.admin_access.clone(),
            #[cfg(feature = "fleet")]
            fleet: self.fleet.clone(),
            plugins: self.engine.plugins(),
            pages: Arc::default(),
            #[cfg(feature = "console")]
            console: Arc::default(),
        }
    }

    /// Serves health, status and metrics on `address`, and the admin API when the configuration lies in a database, until
    /// the gateway is dropped; says where it listens. With `gateway.admin_tls` that is by TLS. Unless
    /// `gateway.admin_require_token` is set, health, status and metrics may be read by anybody who reaches the address.
    ///
    /// # Errors
    /// When the address can't be listened on.
    pub fn serve_admin(&self, address: SocketAddr) -> Result<SocketAddr, StartError> {
        let failed = |source| StartError::Bind { listener: "admin", address, source };
        let sharing = self.engine().snapshot().settings.share_ports.into();
        let tcp = bind::tcp_alone(address, sharing, &mut Inherited::default()).map_err(failed)?;
        let served = self.serve_admin_on(AdminSockets { tcp: Some(tcp), unix: None });
        Ok(served.map_err(failed)?.unwrap_or(address))
    }

    /// Opens the admin API to these callers if neither a database nor the environment sets any. For admin listeners
    /// that are served afterwards.
    pub fn set_admin_access(&mut self, access: Access) {
        self.admin_access = Some(Arc::new(access));
    }

    /// Serves the same on a Unix socket that only this user may connect to. Removed when the gateway ends.
    ///
    /// # Errors
    /// When somebody listens there already, or it can't be created.
    pub fn serve_admin_socket(&self, path: &Path) -> Result<(), StartError> {
        let failed = |source| StartError::Socket { path: path.to_owned(), source };
        let sharing = self.engine().snapshot().settings.share_ports.into();
        let unix = unix_socket::bind(path, SOCKET_MODE, sharing).map_err(failed)?;
        self.serve_admin_on(AdminSockets { tcp: None, unix: Some(unix) }).map(drop).map_err(failed)
    }

    /// Serves the admin API on sockets that are bound; says the address.
    ///
    /// # Errors
    /// When the gateway ends, or what the system says of the Unix socket's file.
    pub(crate) fn serve_admin_on(&self, sockets: AdminSockets) -> io::Result<Option<SocketAddr>> {
        let Some(handle) = self.control().handle() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let _inside = handle.enter();
        let mut address = None;
        if let Some(listener) = sockets.tcp {
            address = Some(listener.local_addr()?);
            let listener = tokio::net::TcpListener::from_std(listener)?;
            self.tend_admin(handle, Listener::Tcp(listener, self.engine().admin_tls.config()));
        }
        if let Some((listener, mut file)) = sockets.unix {
            file.place()?;
            self.tend_admin(handle, Listener::unix(listener, file)?);
        }
        Ok(address)
    }

    /// Accepts no more clients of the admin API: another gateway answers them.
    pub(crate) fn close_admin(&self) {
        self.engine().admin_listeners.close();
    }

    fn tend_admin(&self, handle: &Handle, listener: Listener) {
        let listener = Arc::new(listener);
        let (admin, accepted) = (self.admin(), listener.clone());
        let tasks = admin.engine.shared.tasks.clone();
        let start = move || crate::admin::serve(accepted.clone(), admin.clone());
        let task = handle.spawn(tasks.supervise("admin_accept", start));
        let is_handed_on = matches!(*listener, Listener::Tcp(..));
        let socket = is_handed_on.then_some(listener as HandedSocket);
        self.engine().admin_listeners.add(socket, task.abort_handle());
    }
}
