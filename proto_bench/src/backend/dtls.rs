//! A DTLS 1.2 echo server: one listening socket a thread, and a connected socket for each association, so that the
//! kernel sorts the datagrams.

use std::cell::RefCell;
use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;
use tokio::task::spawn_local;
use tokio::time::timeout;
use webrtc_dtls::config::Config;
use webrtc_dtls::conn::DTLSConn;
use webrtc_dtls::crypto::Certificate;

use crate::driver::Fault;
use crate::driver::dtls::common_config;
use crate::driver::dtls::gate::Gate;
use crate::driver::dtls::record::{Content, OVERHEAD, Records};

type Peers = Rc<RefCell<HashSet<SocketAddr>>>;

const LARGEST: usize = 16 * 1024 + OVERHEAD;
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
const IDLE_LIMIT: Duration = Duration::from_secs(120);

/// Serves one socket beside what else its thread does.
pub(super) fn start(socket: std::net::UdpSocket) -> io::Result<()> {
    let certificate =
        Certificate::generate_self_signed(vec!["localhost".to_owned()]).map_err(io::Error::other)?;
    let listener = UdpSocket::from_std(socket)?;
    spawn_local(async move { drop(listen(listener, certificate).await) });
    Ok(())
}

async fn listen(listener: UdpSocket, certificate: Certificate) -> io::Result<()> {
    let local = listener.local_addr()?;
    let peers = Peers::default();
    let mut buffer = vec![0; LARGEST];
    loop {
        // ICMP errors of earlier sends are reported here and concern nobody any more.
        let Ok((count, peer)) = listener.recv_from(&mut buffer).await else { continue };
        // Copies of a first flight can wait here while its association has begun.
        if !peers.borrow_mut().insert(peer) {
            continue;
        }
        let (early, peers) = (buffer[..count].to_vec(), Rc::clone(&peers));
        let config = Config { certificates: vec![certificate.clone()], ..common_config() };
        let connected = connected(local, peer);
        spawn_local(async move {
            if let Ok(socket) = connected {
                // What a peer does wrong ends its association alone.
                drop(serve(Arc::new(socket), early, config).await);
            }
            peers.borrow_mut().remove(&peer);
        });
    }
}

fn connected(local: SocketAddr, peer: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&local.into())?;
    socket.connect(&peer.into())?;
    let socket = UdpSocket::from_std(socket.into())?;
    // Between bind and connect a stranger's first flight may have slipped in; its client sends it again.
    while SockRef::from(&socket).take_error().is_ok() && socket.try_recv(&mut [0; 1]).is_ok() {}
    Ok(socket)
}

async fn serve(socket: Arc<UdpSocket>, early: Vec<u8>, config: Config) -> Result<(), Fault> {
    let gate = Arc::new(Gate::new(Arc::clone(&socket), vec![early]));
    let handshake = DTLSConn::new(Arc::clone(&gate) as _, config, false, None);
    let connection =
        timeout(HANDSHAKE_LIMIT, handshake).await.map_err(Fault::handshake)?.map_err(Fault::handshake)?;
    gate.close();
    let mut records = Records::take_over(&connection, false).await?;
    let (mut received, mut plain, mut sent) = (vec![0; LARGEST], Vec::new(), Vec::new());
    if let Some(count) = already_read(&connection, &mut received).await {
        records.seal(Content::Application, &received[..count], &mut sent)?;
        socket.send(&sent).await?;
    }
    drop(connection);
    loop {
        let count = match socket.try_recv(&mut received) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                timeout(IDLE_LIMIT, socket.readable()).await.map_err(Fault::protocol)??;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match records.open(&mut received[..count])? {
            Some((Content::Application, payload)) => {
                plain.clear();
                plain.extend_from_slice(payload);
            }
            Some((Content::Alert, _)) => return Ok(()),
            None => continue,
        }
        records.seal(Content::Application, &plain, &mut sent)?;
        socket.send(&sent).await?;
    }
}

/// A message that webrtc-dtls read before the gate was closed.
async fn already_read(connection: &DTLSConn, buffer: &mut [u8]) -> Option<usize> {
    let mut reading = pin!(connection.read(buffer, None));
    poll_fn(|cx| match reading.as_mut().poll(cx) {
        Poll::Ready(read) => Poll::Ready(read.ok()),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
