//! The PROXY protocol header at the beginning of a connection.

use std::io;
use std::net::SocketAddr;

use bytes::BytesMut;
use gateway_core::config::model::Settings;
use gateway_core::http::exchange::{Client, ClientTls};
use gateway_core::stream::proxy_protocol::{self, Header, ReceivedExtensions};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Bytes looked at at a time.
const LOOK: usize = 1 << 10;

/// Who is at the ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    /// The port that the gateway listens on; a header does not change it.
    port: u16,
    /// Whether the peer is a trusted proxy.
    pub(super) trusted: bool,
}

impl Addresses {
    pub(super) fn new(peer: SocketAddr, local: SocketAddr, settings: &Settings) -> Self {
        let trusted = settings.trusted_proxies.iter().any(|net| net.contains(&peer.ip().to_canonical()));
        Self { peer, local, port: local.port(), trusted }
    }

    /// The client of a connection with these ends.
    pub(super) fn client(&self, tls: Option<ClientTls>) -> Client {
        Client::new(self.peer, self.local, self.trusted, tls).at_port(self.port)
    }

    /// Reads the header a trusted proxy has to send, and not one byte more. Anybody else's connection is refused: its
    /// header, or its absence, can't be told from a lie.
    ///
    /// Returns what the header says beside the ends.
    ///
    /// # Errors
    /// Why the connection is refused; a stable word for its record.
    pub(super) async fn read_header(
        &mut self,
        tcp: &mut TcpStream,
        settings: &Settings,
    ) -> Result<ReceivedExtensions, &'static str> {
        if !self.trusted {
            return Err("proxy_protocol_untrusted");
        }
        let (mut header, mut look) = (BytesMut::new(), [0; LOOK]);
        loop {
            let known = header.len();
            let seen = match tcp.peek(&mut look).await {
                Ok(0) => return Err("closed_early"),
                Ok(length) => length,
                Err(error) => return Err(broken(&error)),
            };
            header.extend_from_slice(&look[..seen]);
            let (taken, whole) = match proxy_protocol::parse(&header) {
                Header::More => (seen, None),
                Header::Ends(length, ends) => (length - known, Some(ends)),
                Header::Malformed => return Err("proxy_protocol_malformed"),
            };
            tcp.read_exact(&mut look[..taken]).await.map_err(|error| broken(&error))?;
            let Some(ends) = whole else { continue };
            if let Some((source, destination)) = ends {
                (self.peer, self.local) = (source, destination);
                let from = source.ip().to_canonical();
                self.trusted = settings.trusted_proxies.iter().any(|net| net.contains(&from));
            }
            // Servers compare names without regard to case.
            let mut told = proxy_protocol::read_extensions(&header);
            if let Some(name) = &mut told.authority {
                name.make_ascii_lowercase();
            }
            return Ok(told);
        }
    }
}

fn broken(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "closed_early",
        _ => "client_reset",
    }
}
