//! The tests that `matrix` and `compare` run: what the client speaks, what the proxy speaks to the backend, and the
//! load. A proxy takes part in a test only where it does the same work as all others.

use std::time::Duration;

use bytes::Bytes;

use super::firewall;
use crate::backend::{Ports, answer};
use crate::plan::{Method, Pace, Plan, Protocol, Target};

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Test {
    H1,
    H1Tls,
    H2,
    H2c,
    H3,
    Grpc,
    Ws,
    Tcp,
    TcpTls,
    Udp,
    Dtls,
    Fixed,
    FixedH2,
    KeyAuth,
    Post16k,
    Get64k,
    FreshTls,
    Routes,
    TcpBulk,
    Idle10k,
    WafOff,
    WafGet,
    WafForm,
    WafJson,
    WafAttack,
    WafOwn,
}

/// Routes of [`Test::Routes`].
pub const ROUTES: u32 = 30_000;
/// The key that [`Test::KeyAuth`] sends.
pub const KEY: &str = "bench-key-0123456789abcdef";
/// Body of the fixed answer.
pub const FIXED_BODY: &str = "sixty-four bytes, all of them the proxy's own, no backend asked.";

impl Test {
    /// The ten protocols, in the order of the published table.
    pub const TEN: [Self; 10] = [
        Self::H1,
        Self::H1Tls,
        Self::H2,
        Self::H3,
        Self::Grpc,
        Self::Ws,
        Self::Tcp,
        Self::TcpTls,
        Self::Udp,
        Self::Dtls,
    ];

    /// What `compare` runs unless told.
    pub const ALL: [Self; 20] = [
        Self::H1,
        Self::H1Tls,
        Self::H2,
        Self::H2c,
        Self::Grpc,
        Self::H3,
        Self::Ws,
        Self::Tcp,
        Self::TcpBulk,
        Self::TcpTls,
        Self::Udp,
        Self::Dtls,
        Self::Fixed,
        Self::FixedH2,
        Self::KeyAuth,
        Self::Post16k,
        Self::Get64k,
        Self::FreshTls,
        Self::Routes,
        Self::Idle10k,
    ];

    /// Its id in result files.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::H1 => "h1",
            Self::H1Tls => "h1-tls",
            Self::H2 => "h2",
            Self::H2c => "h2c",
            Self::H3 => "h3",
            Self::Grpc => "grpc",
            Self::Ws => "ws",
            Self::Tcp => "tcp",
            Self::TcpTls => "tcp-tls",
            Self::Udp => "udp",
            Self::Dtls => "udp-dtls",
            Self::Fixed => "fixed",
            Self::FixedH2 => "fixed-h2c",
            Self::KeyAuth => "key-auth",
            Self::Post16k => "post-16k",
            Self::Get64k => "get-64k",
            Self::FreshTls => "fresh-tls",
            Self::Routes => "routes-30k",
            Self::TcpBulk => "tcp-bulk",
            Self::Idle10k => "idle-10k",
            Self::WafOff => "waf-off",
            Self::WafGet => "waf-get",
            Self::WafForm => "waf-form",
            Self::WafJson => "waf-json",
            Self::WafAttack => "waf-attack",
            Self::WafOwn => "waf-own",
        }
    }

    /// Its name in tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::H1 => "HTTP/1.1",
            Self::H1Tls => "HTTP/1.1+TLS",
            Self::H2 => "HTTP/2",
            Self::H2c => "h2c → h2c",
            Self::H3 => "HTTP/3",
            Self::Grpc => "gRPC",
            Self::Ws => "WebSocket",
            Self::Tcp => "TCP",
            Self::TcpTls => "TCP+TLS",
            Self::Udp => "UDP",
            Self::Dtls => "UDP+DTLS",
            Self::Fixed => "fixed in-proxy answer",
            Self::FixedH2 => "fixed in-proxy answer, h2c",
            Self::KeyAuth => "key authentication",
            Self::Post16k => "POST 16 KiB",
            Self::Get64k => "64 KiB response",
            Self::FreshTls => "new TLS connection and one request",
            Self::Routes => "30,000 routes",
            Self::TcpBulk => "TCP bulk, 64 KiB echoes",
            Self::Idle10k => "10,000 connections at 5,000/s",
            Self::WafOff => "the firewall's GET, no firewall",
            Self::WafGet => "firewall, clean GET",
            Self::WafForm => "firewall, form of 1 KiB",
            Self::WafJson => "firewall, JSON of 100 values",
            Self::WafAttack => "firewall, SQL injection",
            Self::WafOwn => "firewall, own rules, clean GET",
        }
    }

    /// Whether requests are inspected by a firewall, each by the same rules, which must be given.
    #[must_use]
    pub fn needs_rules(self) -> bool {
        matches!(self, Self::WafGet | Self::WafForm | Self::WafJson | Self::WafAttack)
    }

    /// Whether requests are inspected by a firewall.
    #[must_use]
    pub fn inspects(self) -> bool {
        self.needs_rules() || self == Self::WafOwn
    }

    /// Whether the proxy answers by itself.
    #[must_use]
    pub fn is_fixed(self) -> bool {
        matches!(self, Self::Fixed | Self::FixedH2)
    }

    /// What the client speaks, and whether over TLS.
    #[must_use]
    pub fn front(self) -> (Protocol, bool) {
        match self {
            Self::Idle10k
            | Self::H1
            | Self::Fixed
            | Self::KeyAuth
            | Self::Post16k
            | Self::Get64k
            | Self::Routes
            | Self::WafOff
            | Self::WafGet
            | Self::WafForm
            | Self::WafJson
            | Self::WafAttack
            | Self::WafOwn => (Protocol::Http1, false),
            Self::H1Tls | Self::FreshTls => (Protocol::Http1, true),
            Self::H2 => (Protocol::Http2, true),
            Self::H2c | Self::FixedH2 => (Protocol::Http2, false),
            Self::H3 => (Protocol::Http3, true),
            Self::Grpc => (Protocol::Grpc, false),
            Self::Ws => (Protocol::WebSocket, false),
            Self::Tcp | Self::TcpBulk => (Protocol::Tcp, false),
            Self::TcpTls => (Protocol::Tcp, true),
            Self::Udp => (Protocol::Udp, false),
            Self::Dtls => (Protocol::Dtls, true),
        }
    }

    /// What the proxy speaks to the backend: always without TLS, so that a TLS row costs one TLS on either way.
    #[must_use]
    pub fn back(self) -> Protocol {
        match self {
            Self::H2c => Protocol::Http2,
            Self::Grpc => Protocol::Grpc,
            Self::Ws => Protocol::WebSocket,
            Self::Tcp | Self::TcpBulk | Self::TcpTls => Protocol::Tcp,
            Self::Udp | Self::Dtls => Protocol::Udp,
            _ => Protocol::Http1,
        }
    }

    /// The way of a request through a proxy, or without one.
    #[must_use]
    pub fn path(self, subject: Option<&str>) -> String {
        let (front, tls) = self.front();
        let tls = if tls && !matches!(front, Protocol::Http3 | Protocol::Dtls) { " over TLS" } else { "" };
        let front = format!("{}{tls}", protocol_name(front));
        match subject {
            Some(subject) if self.is_fixed() => format!("{front} → {subject}"),
            Some(subject) => format!("{front} → {subject} → {}", protocol_name(self.back())),
            None => format!("{front} → backend"),
        }
    }

    /// Makes a plan this test's plan. Connections and payload stay as the user wants them, except where the test is
    /// about them.
    pub fn shape(self, plan: &mut Plan, connections: u32, streams: u32) {
        let (protocol, _) = self.front();
        if protocol.multiplexes() {
            (plan.load.connections, plan.load.streams) = (connections, streams);
        }
        match self {
            Self::Fixed | Self::FixedH2 => {
                plan.message.method = Method::Get;
                plan.expect_content(Bytes::from_static(FIXED_BODY.as_bytes()));
            }
            Self::Post16k => plan.message.payload = 16 * 1024,
            Self::TcpBulk => plan.message.payload = 64 * 1024,
            Self::Get64k => {
                plan.message.method = Method::Get;
                plan.expect_content(answer::sized(64 * 1024).into());
                plan.target.path = "/size/65536".to_owned();
            }
            Self::KeyAuth => plan.message.headers.push(("x-api-key".to_owned(), KEY.to_owned())),
            Self::FreshTls => plan.message.fresh = true,
            Self::Idle10k => {
                plan.load.connections = 10_000;
                plan.load.pace = Pace::Open { rate: 5_000.0 };
                // Connections that the listen queue dropped come back after the kernel's retransmissions.
                plan.timing.warm_up = plan.timing.warm_up.max(Duration::from_secs(4));
            }
            Self::Routes => plan.target.path = format!("/svc/{}/echo", ROUTES / 2),
            _ if self.inspects() || self == Self::WafOff => firewall::shape(self, plan, false),
            _ => {}
        }
    }

    /// For a firewall's test, requests that must be judged the other way: attacks in place of clean requests, a clean one in place
    /// of an attack.
    #[must_use]
    pub fn counterpart(self, plan: &Plan) -> Option<Plan> {
        self.inspects().then(|| {
            let mut plan = plan.clone();
            firewall::shape(self, &mut plan, true);
            plan
        })
    }

    /// Slices of this test, where so many are asked for: the ports of ten thousand connections are not free again at once.
    #[must_use]
    pub fn slices(self, asked: u32) -> u32 {
        if self == Self::Idle10k { asked.min(2) } else { asked }
    }

    /// The target of the direct row: what the client would speak to the proxy, spoken to the backend.
    #[must_use]
    pub fn direct(self, ports: &Ports) -> Option<Target> {
        let (protocol, tls) = self.front();
        // No proxy, no key, no routes, no firewall, no answer of its own: these rows compare proxies only.
        if self.is_fixed() || self.inspects() || matches!(self, Self::KeyAuth | Self::Routes) {
            return None;
        }
        Some(Target::at(protocol, tls, super::upstream(ports, protocol, tls)?))
    }
}

fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http1 => "HTTP/1.1",
        Protocol::Http2 => "HTTP/2",
        Protocol::Http3 => "HTTP/3",
        Protocol::Grpc => "gRPC",
        Protocol::WebSocket => "WebSocket",
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Dtls => "DTLS",
    }
}
