//! Datagrams to one server: found by the gateway's own name servers, again and again, and not faster than it can take them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::CallError;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep};

/// After so long the server's name is looked up again; the resolver knows how long its answers are good.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(10);
/// Datagrams sent before a pause. A receiver's default buffer on Linux holds about 90 small ones; what comes while it is full is lost
/// without a word.
const BURST: usize = 32;
/// The pause; a receiver that is worth its name has emptied its buffer by then.
const PAUSE: Duration = Duration::from_millis(1);

/// A server, and the socket to it.
pub(super) struct DatagramServer {
    world: World,
    host: Arc<str>,
    port: u16,
    open: Option<OpenSocket>,
}

/// Why nothing can be sent to a server.
#[derive(Debug, thiserror::Error)]
pub(super) enum DatagramError {
    #[error(transparent)]
    Lookup(#[from] CallError),
    #[error("{0} has no address")]
    NoAddress(Arc<str>),
    #[error("no socket to {server}: {error}")]
    Socket { server: SocketAddr, error: io::Error },
    #[error("there is no socket")]
    NoSocket,
}

struct OpenSocket {
    socket: UdpSocket,
    server: SocketAddr,
    looked_up: Instant,
}

impl DatagramServer {
    pub(super) fn new(host: &Arc<str>, port: u16, world: &World) -> Self {
        Self { world: world.clone(), host: host.clone(), port, open: None }
    }

    /// The socket, connected to where the server is now.
    ///
    /// # Errors
    /// When its name is unknown and was never known, or there is no socket.
    pub(super) async fn socket(&mut self) -> Result<&UdpSocket, DatagramError> {
        let is_fresh = self.open.as_ref().is_some_and(|open| open.looked_up.elapsed() < LOOKUP_INTERVAL);
        if !is_fresh {
            self.look_up().await?;
        }
        self.open.as_ref().map(|open| &open.socket).ok_or(DatagramError::NoSocket)
    }

    async fn look_up(&mut self) -> Result<(), DatagramError> {
        let found = self.world.resolve(&self.host, self.port).await;
        let servers = match (found, &mut self.open) {
            (Ok(servers), _) => servers,
            // Name servers that are away don't keep records from a server that is not.
            (Err(_), Some(open)) => {
                open.looked_up = Instant::now();
                return Ok(());
            }
            (Err(error), None) => return Err(error.into()),
        };
        match &mut self.open {
            Some(open) if servers.contains(&open.server) => open.looked_up = Instant::now(),
            _ => {
                let server = servers.first().ok_or_else(|| DatagramError::NoAddress(self.host.clone()))?;
                let socket = connected(*server).await;
                let socket = socket.map_err(|error| DatagramError::Socket { server: *server, error })?;
                self.open = Some(OpenSocket { socket, server: *server, looked_up: Instant::now() });
            }
        }
        Ok(())
    }

    /// Opens a new socket the next time.
    pub(super) fn close(&mut self) {
        self.open = None;
    }
}

async fn connected(server: SocketAddr) -> io::Result<UdpSocket> {
    let any = match server {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    Ok(socket)
}

/// Waits before the datagram of this number, of so many in all, where the server needs time. Who is to send more at a time sends
/// larger bursts: there are at most 16 pauses.
pub(super) async fn pace(number: usize, of: usize) {
    let burst = BURST.max(of / 16);
    if number > 0 && number.is_multiple_of(burst) {
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use gateway_core::config::problem::Problems;
    use gateway_core::http::reply::Cause;
    use gateway_core::plugin::world::Reach;
    use gateway_core::plugin::world::calls::{Call, Calls, Client, Endpoint, Nowhere};
    use gateway_core::plugin::world::{blocking, files, meters};

    use super::*;

    /// A name server with one name.
    #[derive(Default)]
    struct OneName(Mutex<Option<SocketAddr>>);

    impl Calls for OneName {
        fn client(&self, endpoint: Endpoint) -> Result<Client, Problems> {
            Nowhere.client(endpoint)
        }

        fn resolve<'a>(&'a self, _host: &'a Arc<str>, _port: u16) -> Call<'a, Vec<SocketAddr>> {
            let known = *self.0.lock().unwrap();
            Box::pin(std::future::ready(
                known.map(|known| vec![known]).ok_or_else(|| CallError::new(Cause::DnsFailed)),
            ))
        }
    }

    fn world(names: &Arc<OneName>) -> World {
        World::new(Reach {
            gateway: Arc::from("g"),
            calls: names.clone(),
            files: Arc::new(files::NoFiles),
            blocking: Arc::new(blocking::Inline),
            meters: meters::Meters::default(),
            variables: Arc::default(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_moves_is_found_again() {
        let names = Arc::new(OneName::default());
        let mut server = DatagramServer::new(&Arc::from("logs.test"), 514, &world(&names));
        assert!(server.socket().await.unwrap_err().to_string().contains("dns_failed"));
        let [one, other] = [UdpSocket::bind("127.0.0.1:0").await, UdpSocket::bind("127.0.0.1:0").await];
        let [one, other] = [one, other].map(|socket| socket.unwrap().local_addr().unwrap());
        let peer = |socket: &UdpSocket| socket.peer_addr().unwrap();
        *names.0.lock().unwrap() = Some(one);
        assert_eq!(peer(server.socket().await.unwrap()), one);
        *names.0.lock().unwrap() = Some(other);
        assert_eq!(peer(server.socket().await.unwrap()), one, "it was looked up just now");
        tokio::time::advance(LOOKUP_INTERVAL).await;
        assert_eq!(peer(server.socket().await.unwrap()), other);
        // The name servers are away: the last answer is better than none.
        *names.0.lock().unwrap() = None;
        tokio::time::advance(LOOKUP_INTERVAL).await;
        assert_eq!(peer(server.socket().await.unwrap()), other);
    }

    #[tokio::test(start_paused = true)]
    async fn many_datagrams_come_in_bursts() {
        let begun = Instant::now();
        for number in 0..500 {
            pace(number, 500).await;
        }
        assert!(begun.elapsed() >= PAUSE * 15, "{:?}", begun.elapsed());
        let begun = Instant::now();
        for number in 0..BURST {
            pace(number, BURST).await;
        }
        assert_eq!(begun.elapsed(), Duration::ZERO, "few of them wait for nothing");
    }
}
