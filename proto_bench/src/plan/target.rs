//! A target as users write it, `scheme://host:port/path`, resolved once before the round.

use std::net::{SocketAddr, ToSocketAddrs};

use super::Protocol;

/// Whom a round loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub protocol: Protocol,
    pub tls: bool,
    /// Host as written; goes into `Host`, `:authority` and SNI.
    pub host: String,
    pub address: SocketAddr,
    /// Path and query; `/` where none was written.
    pub path: String,
}

/// Why a target could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error(
        "`{0}` has no scheme: write http://, https://, h2://, h2c://, h3://, grpc://, grpcs://, ws://, wss://, tcp://, tls://, udp:// or dtls://"
    )]
    NoScheme(String),
    #[error("unknown scheme `{0}`")]
    UnknownScheme(String),
    #[error("`{0}` needs a port")]
    NoPort(String),
    #[error("cannot resolve `{host}`: {source}")]
    Resolve { host: String, source: std::io::Error },
    #[error("`{0}` resolves to no address")]
    NoAddress(String),
}

/// The method of the echo service.
const ECHO_METHOD: &str = "/bench.Echo/Unary";

impl Target {
    /// Reads `scheme://host:port/path` and resolves the host.
    ///
    /// # Errors
    /// An unknown scheme, a missing port where the scheme has no default, or a host that does not resolve.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| TargetError::NoScheme(text.to_owned()))?;
        let (protocol, tls, default_port) =
            scheme_facts(scheme).ok_or_else(|| TargetError::UnknownScheme(scheme.to_owned()))?;
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            // A gRPC call needs a method; this is the one that `proto_bench backend` serves.
            None if protocol == Protocol::Grpc => (rest, ECHO_METHOD),
            None => (rest, "/"),
        };
        let (host, port) = split_port(authority);
        let port = port.or(default_port).ok_or_else(|| TargetError::NoPort(authority.to_owned()))?;
        let address = resolve(host, port)?;
        Ok(Self { protocol, tls, host: host.to_owned(), address, path: path.to_owned() })
    }

    /// A target on a known address, as `matrix` and tests make them.
    #[must_use]
    pub fn at(protocol: Protocol, tls: bool, address: SocketAddr) -> Self {
        let path = match protocol {
            Protocol::WebSocket => "/ws",
            Protocol::Grpc => ECHO_METHOD,
            _ => "/echo",
        };
        Self { protocol, tls, host: "localhost".to_owned(), address, path: path.to_owned() }
    }

    /// The same target with another path.
    #[must_use]
    pub fn with_path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// The value of `Host` and `:authority`.
    #[must_use]
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.address.port())
    }

    /// The target as a URL, for reports.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = match (self.protocol, self.tls) {
            (Protocol::Http1, false) => "http",
            (Protocol::Http1, true) => "https",
            (Protocol::Http2, false) => "h2c",
            (Protocol::Http2, true) => "h2",
            (Protocol::Http3, _) => "h3",
            (Protocol::Grpc, false) => "grpc",
            (Protocol::Grpc, true) => "grpcs",
            (Protocol::WebSocket, false) => "ws",
            (Protocol::WebSocket, true) => "wss",
            (Protocol::Tcp, false) => "tcp",
            (Protocol::Tcp, true) => "tls",
            (Protocol::Udp, _) => "udp",
            (Protocol::Dtls, _) => "dtls",
        };
        let path = if self.protocol.has_status() || self.protocol == Protocol::WebSocket {
            self.path.as_str()
        } else {
            ""
        };
        format!("{scheme}://{}{path}", self.address)
    }
}

fn scheme_facts(scheme: &str) -> Option<(Protocol, bool, Option<u16>)> {
    Some(match scheme {
        "http" => (Protocol::Http1, false, Some(80)),
        "https" => (Protocol::Http1, true, Some(443)),
        "h2c" => (Protocol::Http2, false, Some(80)),
        "h2" => (Protocol::Http2, true, Some(443)),
        "h3" => (Protocol::Http3, true, Some(443)),
        "grpc" => (Protocol::Grpc, false, None),
        "grpcs" => (Protocol::Grpc, true, Some(443)),
        "ws" => (Protocol::WebSocket, false, Some(80)),
        "wss" => (Protocol::WebSocket, true, Some(443)),
        "tcp" => (Protocol::Tcp, false, None),
        "tls" => (Protocol::Tcp, true, None),
        "udp" => (Protocol::Udp, false, None),
        "dtls" => (Protocol::Dtls, true, None),
        _ => return None,
    })
}

fn split_port(authority: &str) -> (&str, Option<u16>) {
    // An IPv6 literal has colons of its own; only what follows the bracket can be a port.
    let search_from = authority.rfind(']').unwrap_or(0);
    match authority.rfind(':').filter(|at| *at > search_from || search_from == 0) {
        Some(at) => {
            let (host, port) = authority.split_at(at);
            (host.trim_matches(['[', ']']), port.trim_start_matches(':').parse().ok())
        }
        None => (authority.trim_matches(['[', ']']), None),
    }
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, TargetError> {
    (host, port)
        .to_socket_addrs()
        .map_err(|source| TargetError::Resolve { host: host.to_owned(), source })?
        // Loopback servers mostly listen on IPv4 only, while `localhost` lists ::1 first.
        .min_by_key(SocketAddr::is_ipv6)
        .ok_or_else(|| TargetError::NoAddress(host.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_name_protocol_and_tls() {
        let check = |text: &str, protocol, tls, port, path: &str| {
            let target = Target::parse(text).expect(text);
            assert_eq!((target.protocol, target.tls), (protocol, tls), "{text}");
            assert_eq!((target.address.port(), target.path.as_str()), (port, path), "{text}");
        };
        check("http://127.0.0.1:3000/echo?x=1", Protocol::Http1, false, 3000, "/echo?x=1");
        check("https://127.0.0.1", Protocol::Http1, true, 443, "/");
        check("h2c://[::1]:81", Protocol::Http2, false, 81, "/");
        check("dtls://127.0.0.1:5004", Protocol::Dtls, true, 5004, "/");
        check("grpc://127.0.0.1:8000", Protocol::Grpc, false, 8000, "/bench.Echo/Unary");
    }

    #[test]
    fn bad_targets_say_what_is_missing() {
        for text in ["127.0.0.1:80", "gopher://127.0.0.1:70", "tcp://127.0.0.1"] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }
}
