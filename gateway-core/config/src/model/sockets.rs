//! Sockets to targets.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How sockets to targets are made.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SocketRules {
    /// Connects from this address of this machine.
    pub source: Option<IpAddr>,
    /// Connects through this network interface.
    pub interface: Option<Arc<str>>,
    /// Connects from the client's address; streams only. Default false.
    pub transparent: bool,
    /// How long sent data may stay unacknowledged. `None` is the system's limit.
    pub user_timeout: Option<Duration>,
    /// Connects by Multipath TCP. Default false.
    pub mptcp: bool,
}
