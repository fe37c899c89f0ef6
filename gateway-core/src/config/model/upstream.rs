//! Upstreams: groups of targets, how one is picked, how it is told whether they are well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Id;

/// A named group of targets and how one is picked.
#[derive(Debug, PartialEq)]
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
    /// The cookie given to clients without one, when a cookie is what is hashed.
    pub hash_cookie: Option<Box<HashCookie>>,
    /// Asks targets how they are.
    pub active_health: Option<Box<ActiveHealth>>,
    /// Learns from traffic how targets are.
    pub passive_health: Option<Box<PassiveHealth>>,
}

/// One member of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetRules {
    /// A name or an address, in lower case, without brackets.
    pub host: Arc<str>,
    /// 1–65535.
    pub port: u16,
    /// Share of traffic. Default 1.
    pub weight: u16,
    /// Replaces the proxy's `backend_path`.
    pub path: Option<Arc<str>>,
    /// For people and plugins.
    pub tags: BTreeMap<String, String>,
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
    /// Any.
    Random,
    /// The less busy of two picked at random.
    PowerOfTwo,
}

/// What consistent hashing hashes.
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

/// The cookie that keeps a client at its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashCookie {
    /// Default `/`.
    pub path: Arc<str>,
    /// How long the client keeps it; zero ends with the browser's session. Default an hour.
    pub ttl: Duration,
    /// Default none: the host that was asked.
    pub domain: Option<Arc<str>>,
    /// Hidden from scripts. Default true.
    pub http_only: bool,
    /// Only over TLS. Default false.
    pub secure: bool,
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Open a connection.
    Tcp,
    /// Send a datagram and wait for any answer.
    Udp {
        /// What to send.
        payload: Vec<u8>,
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
    /// Tried again after so long; zero waits for an active probe. Default 30 s.
    pub healthy_after: Duration,
}
