//! Where an admin listener is, as people write it.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use axum::http::uri::Authority;

/// The port of an admin listener unless something else is said.
const DEFAULT_PORT: u16 = 9000;

/// An admin listener: `HOST:PORT`, `HOST`, or `http://HOST:PORT`; the host is a name or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AdminAddress {
    host: String,
    port: u16,
}

/// Why a text is no admin listener.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadAddress {
    #[error(
        "the admin API is served in plain HTTP; reach it on the machine itself, or through an SSH tunnel"
    )]
    Encrypted,
    #[error("`{0}` is not an admin listener; write HOST:PORT or http://HOST:PORT")]
    Malformed(String),
}

impl FromStr for AdminAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress::Malformed(text.to_owned());
        if text.starts_with("https://") {
            return Err(BadAddress::Encrypted);
        }
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let authority: Authority = rest.strip_suffix('/').unwrap_or(rest).parse().map_err(|_| bad())?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let after = authority.as_str().strip_prefix(authority.host()).ok_or_else(bad)?;
        let port = match after.strip_prefix(':') {
            None if after.is_empty() => DEFAULT_PORT,
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?,
            None => return Err(bad()),
        };
        if host.is_empty() { Err(bad()) } else { Ok(Self { host, port }) }
    }
}

impl From<SocketAddr> for AdminAddress {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl Default for AdminAddress {
    fn default() -> Self {
        Self { host: "127.0.0.1".to_owned(), port: DEFAULT_PORT }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl AdminAddress {
    /// Connects to the first of its addresses that answers.
    pub(super) fn connect(&self, timeout: Duration) -> io::Result<TcpStream> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(tcp) => return Ok(tcp),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
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
        ] {
            assert_eq!(text.parse::<AdminAddress>().unwrap().to_string(), shown);
        }
        for text in ["", ":9000", "a:0", "a:99999", "a:b", "http://a/v1", "a b"] {
            assert!(matches!(text.parse::<AdminAddress>(), Err(BadAddress::Malformed(_))), "{text}");
        }
        assert_eq!("https://a".parse::<AdminAddress>(), Err(BadAddress::Encrypted));
    }
}
