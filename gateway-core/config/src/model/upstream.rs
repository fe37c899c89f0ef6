//! Upstreams: groups of targets, how one is picked, how it is told whether they are well.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::Id;
use crate::condition::Text;

/// A named group of targets and how one is picked.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    /// Unique among upstreams.
    pub id: Id,
    /// For people.
    pub name: Option<Arc<str>>,
    /// Where to; never empty.
    pub targets: Vec<Arc<TargetRules>>,
    /// How one is picked.
    pub algorithm: Algorithm,
    /// What consistent hashing hashes.
    pub hash_on: HashOn,
    /// Keeps a client at its target by a cookie.
    pub affinity: Option<Box<Affinity>>,
    /// What only some upstreams need; `None` is the default of each.
    pub sharing: Option<Box<Sharing>>,
    /// Asks targets how they are.
    pub active_health: Option<Box<ActiveHealth>>,
    /// Learns from traffic how targets are.
    pub passive_health: Option<Box<PassiveHealth>>,
}

impl Upstream {
    /// An upstream with the defaults of everything else.
    pub fn new(id: Id, targets: Vec<Arc<TargetRules>>) -> Self {
        Self {
            id,
            name: None,
            targets,
            algorithm: Algorithm::default(),
            hash_on: HashOn::default(),
            affinity: None,
            sharing: None,
            active_health: None,
            passive_health: None,
        }
    }
}

/// How targets share the traffic when some of them are cold, unhealthy or full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sharing {
    /// A target that recovered or was added gets its full share after this time; zero gives it at once. Default zero.
    pub slow_start: Duration,
    /// With fewer healthy targets than this percentage, all get traffic. Default 0.
    pub panic_threshold_percent: u8,
    /// Exchanges that may wait while every target is at its `max_requests` or `max_connections`. Default 0.
    pub max_waiting: u32,
    /// How long one waits. Default 1 s.
    pub wait: Duration,
}

/// The cookie that keeps a client at its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affinity {
    /// The cookie's name.
    pub cookie: Arc<str>,
    /// Whether the cookie names the target; else it is a random text that [`HashOn::Cookie`] hashes.
    pub names_target: bool,
    /// How the client is to treat it.
    pub attributes: CookieAttributes,
}

/// What a target's host that is a Unix socket begins with.
pub const UNIX: &str = "unix:";

/// The path of the Unix socket that a target's host is.
pub fn socket_path(host: &str) -> Option<&str> {
    host.strip_prefix(UNIX)
}

/// What the host of a target begins with that is found by SRV records.
pub const SERVICE: &str = "srv:";

/// The name of the service whose servers a target stands for.
pub fn service_name(host: &str) -> Option<&str> {
    host.strip_prefix(SERVICE)
}

/// One member of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetRules {
    /// A name or an address, in lower case, without brackets; or `unix:` and the path of a Unix socket; or `srv:`
    /// and the name of a service whose servers are found by DNS, in an upstream only.
    pub host: Arc<str>,
    /// 1–65535; 0 for a Unix socket and a service.
    pub port: u16,
    /// Share of traffic; 0 drains the target. Default 1.
    pub weight: u16,
    /// Gets traffic only while no healthy target has a lower one. Default 0.
    pub priority: u8,
    /// Exchanges and sessions at a time, over all workers. `None` is no limit.
    pub max_requests: Option<NonZeroU32>,
    /// Connections at a time, over all workers. `None` is no limit.
    pub max_connections: Option<NonZeroU32>,
    /// Replaces the proxy's `backend_path`.
    pub path: Option<Arc<str>>,
    /// What a proxy's `backend_tags` choose by.
    pub tags: BTreeMap<String, String>,
}

impl TargetRules {
    /// A target with the defaults of everything else.
    pub fn new(host: Arc<str>, port: u16) -> Self {
        Self {
            host,
            port,
            weight: 1,
            priority: 0,
            max_requests: None,
            max_connections: None,
            path: None,
            tags: BTreeMap::new(),
        }
    }

    /// The path of the Unix socket that it is.
    pub fn socket(&self) -> Option<&str> {
        socket_path(&self.host)
    }

    /// Whether it has all of these tags.
    pub fn has_tags(&self, wanted: &[(String, String)]) -> bool {
        wanted.iter().all(|(name, value)| self.tags.get(name) == Some(value))
    }
}

/// How a target is picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// In turn by weight, smoothly interleaved.
    WeightedRoundRobin,
    /// The one with fewest exchanges in flight, by weight.
    LeastConnections,
    /// The one that answered fastest of late.
    LeastLatency,
    /// The one the key hashes to; moves few keys when targets change.
    ConsistentHashing,
    /// Where a table leads that the targets share by weight.
    Maglev,
    /// Any.
    Random,
    /// The less busy of two picked at random.
    PowerOfTwo,
}

impl Algorithm {
    /// Whether it picks by the hash of [`Upstream::hash_on`].
    pub fn hashes(self) -> bool {
        matches!(self, Self::ConsistentHashing | Self::Maglev)
    }
}

/// What algorithms that hash take from an exchange or session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HashOn {
    /// The client's address.
    #[default]
    Ip,
    /// A request header; the client's address when absent.
    Header(http::HeaderName),
    /// A cookie; the client's address when absent.
    Cookie(Arc<str>),
}

/// How a client is to treat a cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CookieAttributes {
    /// Default `/`.
    pub path: Arc<str>,
    /// How long the client keeps it; zero ends with the browser's session. Default an hour.
    pub ttl: Duration,
    /// Default none: the host that was asked.
    pub domain: Option<Arc<str>>,
    /// Hidden from scripts. Default true.
    pub http_only: bool,
    /// Only over TLS. Default false.
    /// `None`: over HTTPS only.
    pub secure: Option<bool>,
    /// With which requests from other sites it is sent; `None` doesn't say.
    pub same_site: Option<SameSite>,
}

/// With which requests from other sites a cookie is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameSite {
    /// None.
    Strict,
    /// Navigations.
    Lax,
    /// All.
    None,
}

/// Asking targets how they are.
#[derive(Debug, Clone, PartialEq)]
pub struct ActiveHealth {
    /// How to ask.
    pub probe: Probe,
    /// From one probe to the next. Default 10 s.
    pub interval: Duration,
    /// For one probe. Default 5 s.
    pub timeout: Duration,
    /// Good answers until healthy again. Default 3.
    pub healthy_threshold: u32,
    /// Bad answers until unhealthy. Default 3.
    pub unhealthy_threshold: u32,
}

/// How a target is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Probe {
    /// GET a path and look at the status.
    Http {
        /// Default `/health`.
        path: Arc<str>,
        /// Default 200 and 302.
        healthy_status_codes: Vec<u16>,
        /// Over TLS.
        tls: bool,
    },
    /// GET a page of a FastCGI server's own.
    FastCgi {
        /// Default `/ping`.
        path: Arc<str>,
        /// Default 200.
        healthy_status_codes: Vec<u16>,
    },
    /// Open a connection, send and read.
    Tcp {
        /// Over TLS.
        tls: bool,
        /// What to send; may be empty.
        send: Box<[u8]>,
        /// What the answer has to be; `None` does not wait for one.
        expect: Option<Text>,
    },
    /// Send a datagram and wait for an answer.
    Udp {
        /// What to send.
        payload: Vec<u8>,
        /// What the answer has to be; `None` takes any.
        expect: Option<Text>,
    },
    /// Begin a PostgreSQL session.
    Postgres,
    /// Read the greeting of MySQL.
    Mysql,
    /// `PING` Redis.
    Redis {
        /// Over TLS.
        tls: bool,
    },
    /// `grpc.health.v1.Health/Check`.
    Grpc {
        /// Empty asks for the server as a whole.
        service: Arc<str>,
        /// Over TLS.
        tls: bool,
    },
}

/// Learning from traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassiveHealth {
    /// Statuses that count as failure. Default 500 502 503 504.
    pub unhealthy_status_codes: Vec<u16>,
    /// Failures within the window until unhealthy. Default 3.
    pub unhealthy_threshold: u32,
    /// Default 30 s.
    pub window: Duration,
    /// Tried again after so long, and twice as long after the second time in a row, and so on; zero waits for an active
    /// probe. Default 30 s.
    pub healthy_after: Duration,
    /// The longest time until it is tried again. Default 300 s.
    pub healthy_after_max: Duration,
    /// How many of the targets may be out at a time, in percent, rounded up. Default 100.
    pub max_ejected_percent: u8,
}
