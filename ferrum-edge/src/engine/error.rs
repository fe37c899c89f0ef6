//! Why a gateway does not start, or does not take a new configuration.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use gateway_core::config::model::Transport;
use gateway_core::config::problem::Problems;
use gateway_protocols::tls::server::ServerTlsError;

use super::port_holder;
use crate::audit::log::AuditLogError;
use crate::export::access_log::AccessLogError;
#[cfg(feature = "database")]
use crate::store::LoadError;

/// Why the gateway could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The fleet: a control plane can't serve edges, or an edge has no configuration.
    #[error("{0}")]
    Fleet(String),
    /// An address can't be listened on.
    #[error("cannot listen on {address} for {listener}: {source}{}", remedy(source))]
    Bind {
        /// `http` or `https`.
        listener: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Plugins are set to what their proxy can't give them.
    #[error("{0}")]
    Mistakes(Problems),
    /// The kernel has not got a congestion control.
    #[error("{setting}: the kernel has no congestion control `{name}` for this gateway: {source}")]
    Congestion {
        /// Its name.
        name: String,
        /// The setting that names it.
        setting: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// This machine can't make sockets to targets as a proxy specifies.
    #[error("proxy `{proxy}`: {setting}: this machine can't do that: {source}")]
    Sockets {
        /// The proxy.
        proxy: String,
        /// The setting.
        setting: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A Unix socket can't be listened on.
    #[error("cannot listen on the socket {}: {source}", path.display())]
    Socket {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Certificates are of no use.
    #[error(transparent)]
    Tls(#[from] ServerTlsError),
    /// A proxy terminates TLS or DTLS without anything to show.
    #[error("proxy `{proxy}` has `frontend_tls: true`, which `gateway.tls` does not allow: {reason}")]
    NoCertificate {
        /// The proxy's id.
        proxy: String,
        /// What is missing or not possible.
        reason: String,
    },
    /// The database has nothing to serve.
    #[cfg(feature = "database")]
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A thread could not be started.
    #[error("a worker could not be started: {0}")]
    Thread(io::Error),
    /// A place that access records or metrics go to can't be used.
    #[error("{0}")]
    LogSinks(Problems),
    /// The access log can't be opened.
    #[error(transparent)]
    AccessLog(#[from] AccessLogError),
    /// The audit log can't be opened.
    #[error(transparent)]
    AuditLog(#[from] AuditLogError),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process listens there: stop it, choose another port, or have both share it (`gateway.share_ports`)"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need root or CAP_NET_BIND_SERVICE: choose another port or grant it"
        }
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        _ => "",
    }
}

impl StartError {
    /// The process that has the port, as the end of a message.
    pub(crate) fn port_holder(&self) -> Option<String> {
        let Self::Bind { address, .. } = self else { return None };
        if !self.is_port_in_use() {
            return None;
        }
        let (id, name) = port_holder::find(address.port(), Transport::Tcp)?;
        Some(format!("; process {id} ({name}) has the port"))
    }

    /// Whether another program has the port.
    pub(crate) fn is_port_in_use(&self) -> bool {
        matches!(self, Self::Bind { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
    }
}

/// Why a new configuration was not put in use. The old one goes on serving.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// It is wrong in itself.
    #[error("{0}")]
    Problems(#[from] Problems),
    /// Its certificates are of no use.
    #[error(transparent)]
    Tls(#[from] ServerTlsError),
    /// A port it needs can't be listened on.
    #[error(transparent)]
    Port(#[from] StartError),
    /// The audit log can't be opened.
    #[error(transparent)]
    AuditLog(#[from] AuditLogError),
}
