//! Proxies to measure: how each is configured and started for each test. One file a proxy.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};

use crate::backend::Ports;
use crate::plan::Protocol;
use crate::process::find;

pub mod caddy;
mod coraza;
pub mod envoy;
pub mod firewall;
pub mod gateway;
pub mod haproxy;
pub mod nginx;
mod relay;
pub mod tests;

pub use firewall::Rules;
pub use tests::Test;

/// A proxy that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Peer {
    Nginx,
    Haproxy,
    Envoy,
    Caddy,
    /// nginx with ModSecurity 3 (Debian's `libnginx-mod-http-modsecurity`), for the firewall tests.
    NginxModsecurity,
    /// A reverse proxy with Coraza, for the firewall tests.
    Coraza,
    /// Reads and writes bytes and nothing else: the floor under every proxy.
    Relay,
    Gateway,
}

/// Where a proxy listens and where it forwards to.
#[derive(Debug, Clone)]
pub struct Site<'a> {
    pub listen: SocketAddr,
    pub backend: &'a Ports,
    /// Holds cert.pem, key.pem and both.pem, and takes the proxy's files.
    pub directory: &'a Path,
    pub workers: usize,
    /// Port of the gateway's admin API.
    pub admin: SocketAddr,
    /// What the firewalls of [`Test::needs_rules`] are given.
    pub rules: Option<&'a Rules>,
}

/// A proxy made ready for one test.
#[derive(Debug, Clone)]
pub struct Setup {
    pub command: Vec<String>,
    pub files: Vec<(PathBuf, String)>,
}

impl Peer {
    pub const ALL: [Self; 8] = [
        Self::Nginx,
        Self::Haproxy,
        Self::Envoy,
        Self::Caddy,
        Self::NginxModsecurity,
        Self::Coraza,
        Self::Relay,
        Self::Gateway,
    ];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            Self::Caddy => "caddy",
            Self::NginxModsecurity => "nginx-modsecurity",
            Self::Coraza => "coraza",
            Self::Relay => "relay",
            Self::Gateway => "gateway",
        }
    }

    /// Whether it has a part in a test: what a firewall is asked is no work for a proxy without one.
    #[must_use]
    pub fn takes_part(self, test: Test) -> bool {
        match self {
            Self::Gateway => true,
            Self::NginxModsecurity => test.needs_rules(),
            Self::Coraza => test.needs_rules() || test == Test::WafOff,
            Self::Nginx | Self::Haproxy | Self::Envoy | Self::Caddy | Self::Relay => !test.inspects(),
        }
    }

    /// Its program, if it is on this machine: as given, for the gateway and Coraza, else where programs are.
    #[must_use]
    pub fn program(self, given: Option<&Path>) -> Option<PathBuf> {
        match self {
            Self::Gateway => gateway::find_program(given),
            Self::Coraza => given_or_beside(given, coraza::PROGRAM),
            Self::NginxModsecurity => nginx::modsecurity_module().and_then(|_| find("nginx")),
            Self::Relay => std::env::current_exe().ok(),
            peer => find(peer.name()),
        }
    }

    /// How it says its version.
    #[must_use]
    pub fn version_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Nginx | Self::NginxModsecurity | Self::Haproxy => &["-v"],
            Self::Coraza => &["-version"],
            Self::Envoy | Self::Relay => &["--version"],
            Self::Caddy | Self::Gateway => &["version"],
        }
    }

    /// The configuration for a test, or nothing where the proxy cannot do that work.
    #[must_use]
    pub fn setup(self, test: Test, program: &Path, site: &Site<'_>) -> Option<Setup> {
        if !self.takes_part(test) {
            return None;
        }
        match self {
            Self::Nginx | Self::NginxModsecurity => nginx::setup(test, program, site),
            Self::Coraza => coraza::setup(test, program, site),
            Self::Haproxy => haproxy::setup(test, program, site),
            Self::Envoy => envoy::setup(test, program, site),
            Self::Caddy => caddy::setup(test, program, site),
            Self::Relay => relay::setup(test, program, site),
            Self::Gateway => gateway::setup(test, program, site),
        }
    }
}

impl Setup {
    /// The configuration files as one text, for the result file.
    #[must_use]
    pub fn text(&self) -> String {
        const LONGEST: usize = 2_500;
        let mut out = String::new();
        for (path, text) in &self.files {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let shown: String = text.chars().take(LONGEST).collect();
            let cut = if shown.len() < text.len() { "\n[cut]\n" } else { "" };
            out.push_str(&format!("# {name}\n{shown}{cut}"));
        }
        out
    }
}

/// A program as given, else beside ours, else in the search path.
fn given_or_beside(given: Option<&Path>, name: &str) -> Option<PathBuf> {
    if let Some(given) = given {
        return Some(given.to_owned()).filter(|path| path.exists());
    }
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(name)));
    beside.filter(|path| path.exists()).or_else(|| find(name))
}

/// A port of loopback that was free a moment ago, for both TCP and UDP.
///
/// # Errors
/// No port is left.
pub fn free_port() -> std::io::Result<SocketAddr> {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        if UdpSocket::bind(address).is_ok() {
            return Ok(address);
        }
    }
}

/// The backend's address for what a proxy speaks to it.
pub(crate) fn upstream(ports: &Ports, protocol: Protocol, tls: bool) -> Option<SocketAddr> {
    match (protocol, tls) {
        (Protocol::Http1 | Protocol::WebSocket, false) => ports.http,
        (Protocol::Http1 | Protocol::WebSocket | Protocol::Http2, true) => ports.https,
        (Protocol::Http2 | Protocol::Grpc, false) => ports.h2c,
        (Protocol::Grpc, true) => ports.https,
        (Protocol::Http3, _) => ports.h3,
        (Protocol::Tcp, false) => ports.tcp,
        (Protocol::Tcp, true) => ports.tls,
        (Protocol::Udp, _) => ports.udp,
        (Protocol::Dtls, _) => ports.dtls,
    }
}

/// Versions of the proxies that are here.
#[must_use]
pub fn versions(found: &[(Peer, PathBuf)]) -> BTreeMap<String, String> {
    found
        .iter()
        .flat_map(|(peer, program)| {
            let program = program.to_string_lossy();
            crate::measure::machine::versions(&[(peer.name(), program.as_ref(), peer.version_arguments())])
        })
        .collect()
}
