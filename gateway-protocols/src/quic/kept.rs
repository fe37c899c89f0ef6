//! The sockets of a gateway whose place another one took: each connection that goes on gets one that is connected to its client.
//!
//! The kernel gives such a socket what its client sends, and everything else on the port to the next gateway: whoever connects
//! anew gets through to that one.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Endpoint, Runtime, UdpPoller};

use crate::downstream::bind;

/// Connections with a socket each; with more of them a worker keeps its socket, and refuses new ones.
const MAX_KEPT: usize = 256;

/// Gives each of these clients a socket of its own, in the place of the endpoint's. Of a client there may be the address of ours that
/// it speaks to.
///
/// # Errors
/// When there are too many, or a socket can't be had: the endpoint has its own as before.
pub(crate) fn keep(endpoint: &Endpoint, peers: &[(SocketAddr, Option<IpAddr>)]) -> io::Result<()> {
    if peers.is_empty() {
        return Ok(());
    }
    if peers.len() > MAX_KEPT {
        return Err(io::Error::other("too many connections for a socket each"));
    }
    let local = endpoint.local_addr()?;
    let mut sockets: Vec<(SocketAddr, Arc<dyn AsyncUdpSocket>)> = Vec::new();
    for (peer, at) in peers {
        if sockets.iter().any(|(known, _)| known == peer) {
            continue;
        }
        let socket = quinn::TokioRuntime.wrap_udp_socket(connected(local, *peer, *at)?)?;
        sockets.push((*peer, socket));
    }
    endpoint.rebind_abstract(Arc::new(KeptSockets { sockets, local, turn: AtomicUsize::new(0) }))
}

fn connected(local: SocketAddr, peer: SocketAddr, at: Option<IpAddr>) -> io::Result<UdpSocket> {
    let ip = match (local.ip(), at) {
        (IpAddr::V6(any), Some(IpAddr::V4(at))) if any.is_unspecified() => at.to_ipv6_mapped().into(),
        (any, Some(at)) if any.is_unspecified() => at,
        (ip, _) => ip,
    };
    let socket = bind::udp(SocketAddr::new(ip, local.port()))?;
    socket.connect(peer)?;
    Ok(socket)
}

/// Sockets by their clients' addresses; never empty.
struct KeptSockets {
    sockets: Vec<(SocketAddr, Arc<dyn AsyncUdpSocket>)>,
    local: SocketAddr,
    /// Whose turn it is to be read first.
    turn: AtomicUsize,
}

impl fmt::Debug for KeptSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeptSockets({})", self.sockets.len())
    }
}

impl AsyncUdpSocket for KeptSockets {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AllWritable(
            self.sockets.iter().map(|(_, socket)| socket.clone().create_io_poller()).collect(),
        ))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let own = self.sockets.iter().find(|(peer, _)| *peer == transmit.destination);
        // Packets for others are refusals and the like, and as well lost.
        own.map_or(Ok(()), |(_, socket)| socket.try_send(transmit))
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let first = self.turn.fetch_add(1, Relaxed) % self.sockets.len().max(1);
        let (behind, ahead) = self.sockets.split_at(first);
        for (_, socket) in ahead.iter().chain(behind) {
            if let Poll::Ready(received) = socket.poll_recv(cx, bufs, meta) {
                return Poll::Ready(received);
            }
        }
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn max_transmit_segments(&self) -> usize {
        self.sockets.iter().map(|(_, socket)| socket.max_transmit_segments()).min().unwrap_or(1)
    }

    fn max_receive_segments(&self) -> usize {
        self.sockets.iter().map(|(_, socket)| socket.max_receive_segments()).max().unwrap_or(1)
    }

    fn may_fragment(&self) -> bool {
        self.sockets.iter().any(|(_, socket)| socket.may_fragment())
    }
}

/// Ready when all of the sockets are: which of them was full is not known.
#[derive(Debug)]
struct AllWritable(Vec<Pin<Box<dyn UdpPoller>>>);

impl UdpPoller for AllWritable {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        for poller in &mut self.0 {
            ready!(poller.as_mut().poll_writable(cx))?;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
    use rustls::RootCertStore;
    use rustls_pki_types::PrivatePkcs8KeyDer;

    use super::*;

    async fn soon<F: Future>(what: F) -> F::Output {
        tokio::time::timeout(Duration::from_secs(20), what).await.expect("nothing happened")
    }

    fn configs() -> (quinn::ServerConfig, quinn::ClientConfig) {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let made =
            rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
        let builder = rustls::ServerConfig::builder_with_provider(crate::tls::provider());
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let server = builder.with_single_cert(vec![made.der().clone()], key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.der().clone()).unwrap();
        let builder = rustls::ClientConfig::builder_with_provider(crate::tls::provider());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let client = builder.with_root_certificates(roots).with_no_client_auth();
        (
            quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(server).unwrap())),
            quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(client).unwrap())),
        )
    }

    fn endpoint(socket: UdpSocket, config: &quinn::ServerConfig) -> Endpoint {
        let runtime = Arc::new(quinn::TokioRuntime);
        Endpoint::new(quinn::EndpointConfig::default(), Some(config.clone()), socket, runtime).unwrap()
    }

    async fn client(config: &quinn::ClientConfig, to: SocketAddr) -> (Endpoint, quinn::Connecting) {
        let endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let connecting = endpoint.connect_with(config.clone(), to, "a.test").unwrap();
        (endpoint, connecting)
    }

    /// A message over a stream of its own.
    async fn says(from: &quinn::Connection, to: &quinn::Connection, text: &[u8]) {
        let mut send = soon(from.open_uni()).await.unwrap();
        soon(send.write_all(text)).await.unwrap();
        send.finish().unwrap();
        let mut recv = soon(to.accept_uni()).await.unwrap();
        assert_eq!(soon(recv.read_to_end(100)).await.unwrap(), text);
    }

    #[tokio::test]
    async fn connections_stay_and_new_ones_are_the_next_gateways() {
        let (server, config) = configs();
        for any in [[127, 0, 0, 1], [0, 0, 0, 0]] {
            let before = endpoint(bind::udp(SocketAddr::from((any, 0))).unwrap(), &server);
            let port = before.local_addr().unwrap().port();
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let mut connections = Vec::new();
            for _ in 0..3 {
                let (endpoint, connecting) = client(&config, address).await;
                let near = tokio::spawn(connecting.into_future());
                let far = soon(soon(before.accept()).await.unwrap().accept().unwrap()).await.unwrap();
                connections.push((endpoint, soon(near).await.unwrap().unwrap(), far));
            }
            let next = endpoint(bind::udp(SocketAddr::from((any, port))).unwrap(), &server);
            let peers: Vec<_> =
                connections.iter().map(|(_, _, far)| (far.remote_address(), far.local_ip())).collect();
            keep(&before, &peers).unwrap();
            for (_, near, far) in &connections {
                says(near, far, b"up").await;
                says(far, near, b"down").await;
            }
            // With two sockets on the port, half of them would have come to the first.
            for _ in 0..30 {
                let (_endpoint, connecting) = client(&config, address).await;
                let near = tokio::spawn(connecting.into_future());
                let far = soon(soon(next.accept()).await.unwrap().accept().unwrap()).await.unwrap();
                let near = soon(near).await.unwrap().unwrap();
                says(&near, &far, b"new").await;
            }
            for (_, near, far) in &connections {
                says(near, far, b"still").await;
            }
        }
    }

    #[tokio::test]
    async fn more_than_a_worker_can_keep_stay_where_they_are() {
        let (server, _) = configs();
        let endpoint = endpoint(bind::udp(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap(), &server);
        let peers: Vec<_> =
            (0..=MAX_KEPT).map(|n| (SocketAddr::from(([127, 0, 0, 1], 1 + n as u16)), None)).collect();
        keep(&endpoint, &peers).expect_err("too many");
        keep(&endpoint, &[]).unwrap();
    }
}
