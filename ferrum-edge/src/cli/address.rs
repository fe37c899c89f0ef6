//! Where an admin listener is, as people write it, and a connection to it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::uri::Authority;
use gateway_core::config::model::BackendTls;
use gateway_protocols::tls;
use rustls::{ClientConnection, StreamOwned};

use crate::variables::variable;

/// The port of an admin listener unless something else is said.
const DEFAULT_PORT: u16 = 9000;
/// For a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An admin listener: `HOST:PORT`, `HOST`, `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`; the host is a name or
/// an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AdminAddress {
    /// HTTP, in the clear or over TLS.
    Tcp { host: String, port: u16, is_tls: bool },
    /// A Unix socket.
    Unix(PathBuf),
}

/// A text is no admin listener.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an admin listener; write HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:PATH")]
pub(super) struct BadAddress(String);

impl FromStr for AdminAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        let path = text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text));
        if let Some(path) = path {
            return if path.is_empty() { Err(bad()) } else { Ok(Self::Unix(path.into())) };
        }
        let (is_tls, rest) = match text.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix("http://").unwrap_or(text)),
        };
        let authority: Authority = rest.strip_suffix('/').unwrap_or(rest).parse().map_err(|_| bad())?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let after = authority.as_str().strip_prefix(authority.host()).ok_or_else(bad)?;
        let port = match after.strip_prefix(':') {
            None if after.is_empty() => DEFAULT_PORT,
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?,
            None => return Err(bad()),
        };
        if host.is_empty() { Err(bad()) } else { Ok(Self::Tcp { host, port, is_tls }) }
    }
}

impl AdminAddress {
    /// Whether it is on this machine for certain.
    pub(super) fn is_loopback(&self) -> bool {
        match self {
            Self::Unix(_) => false,
            Self::Tcp { host, .. } => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
        }
    }

    /// Whether both lead to the same listener: every name of this machine is the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let port = |address: &Self| match address {
            Self::Tcp { port, .. } if address.is_loopback() => Some(*port),
            _ => None,
        };
        self == other || port(self).is_some_and(|own| port(other) == Some(own))
    }
}

impl From<SocketAddr> for AdminAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp { host: address.ip().to_string(), port: address.port(), is_tls: false }
    }
}

impl Default for AdminAddress {
    fn default() -> Self {
        Self::Tcp { host: "127.0.0.1".to_owned(), port: DEFAULT_PORT, is_tls: false }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { is_tls: true, .. } => write!(f, "https://{}", self.host()),
            Self::Tcp { .. } => f.write_str(&self.host()),
        }
    }
}

impl AdminAddress {
    /// What goes into `Host`.
    pub(super) fn host(&self) -> String {
        match self {
            Self::Unix(_) => "localhost".to_owned(),
            Self::Tcp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Tcp { host, port, .. } => format!("{host}:{port}"),
        }
    }

    /// Connects, to the first of its addresses that answers. TLS is checked against `FERRUM_ADMIN_CA_CERT`, else against
    /// the public roots.
    ///
    /// # Errors
    /// When nobody answers, or the certificate is not trusted.
    pub(super) fn connect(&self, answer_timeout: Duration) -> io::Result<AdminConnection> {
        let (host, port, is_tls) = match self {
            Self::Unix(path) => {
                let unix = UnixStream::connect(path)?;
                unix.set_read_timeout(Some(answer_timeout))?;
                unix.set_write_timeout(Some(answer_timeout))?;
                return Ok(Box::new(unix));
            }
            Self::Tcp { host, port, is_tls } => (host.as_str(), *port, *is_tls),
        };
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(tcp) => {
                    tcp.set_read_timeout(Some(answer_timeout))?;
                    tcp.set_write_timeout(Some(answer_timeout))?;
                    return if is_tls { encrypted(tcp, host) } else { Ok(Box::new(tcp)) };
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// A connection to an admin listener.
pub(super) type AdminConnection = Box<dyn Stream>;

/// Read from and written to.
pub(super) trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

fn encrypted(tcp: TcpStream, host: &str) -> io::Result<AdminConnection> {
    let path = |name: &str| {
        let value = variable(name).map_err(|problem| io::Error::other(problem.to_string()))?;
        Ok::<_, io::Error>(value.map(PathBuf::from))
    };
    let client_cert = path("FERRUM_ADMIN_CLIENT_CERT")?.zip(path("FERRUM_ADMIN_CLIENT_KEY")?);
    let ca_path = path("FERRUM_ADMIN_CA_CERT")?;
    let rules = BackendTls { verify: true, ca_path, client_cert, server_name: None };
    let config = tls::client::build(&rules, None).map_err(io::Error::other)?;
    let name = host.to_owned().try_into().map_err(io::Error::other)?;
    let session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(session, tcp);
    // Fails here rather than in the middle of a request.
    stream.conn.complete_io(&mut stream.sock)?;
    Ok(Box::new(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (text, shown) in [
            ("127.0.0.1:9000", "127.0.0.1:9000"),
            ("localhost:9001", "localhost:9001"),
            ("gateway.internal", "gateway.internal:9000"),
            ("http://localhost:9000/", "localhost:9000"),
            ("[::1]:9000", "[::1]:9000"),
            ("http://[::1]", "[::1]:9000"),
            ("https://gateway.internal:9443/", "https://gateway.internal:9443"),
            ("unix:/run/edge.sock", "unix:/run/edge.sock"),
            ("/run/edge.sock", "unix:/run/edge.sock"),
        ] {
            assert_eq!(text.parse::<AdminAddress>().unwrap().to_string(), shown);
        }
        for text in ["", ":9000", "a:0", "a:99999", "a:b", "http://a/v1", "a b", "unix:", "ftp://a"] {
            assert_eq!(text.parse::<AdminAddress>(), Err(BadAddress(text.to_owned())), "{text}");
        }
    }
}
