//! Sockets to targets, where they lead, and what is sent over them first.

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
    /// Copies streams through the gateway where the kernel could move them. Default false.
    pub copies: bool,
}

/// How a target's name is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DnsRules {
    /// Used instead of looking the name up.
    pub address: Option<IpAddr>,
    /// How long a looked-up address is used; `None` is what the name server says.
    pub ttl: Option<Duration>,
}

/// Which datagrams begin with a PROXY header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeaderDatagrams {
    /// Each one.
    #[default]
    Every,
    /// The first one of a session.
    First,
}

/// PROXY headers of a stream proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProxyHeaders {
    /// Which datagrams of clients have one.
    pub accepted: HeaderDatagrams,
    /// Which datagrams to targets have one.
    pub sent: HeaderDatagrams,
    /// What one for a target says beside the ends.
    pub extensions: ProxyExtensions,
}

/// What a PROXY header of version 2 says beside the ends of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProxyExtensions {
    /// The application protocol of the connection.
    pub alpn: bool,
    /// What names the connection to all proxies on its way.
    pub unique_id: bool,
    /// The server name that the client asked for.
    pub authority: bool,
    /// Facts of the client's TLS.
    pub tls: bool,
    /// A CRC32c of the header.
    pub checksum: bool,
}
