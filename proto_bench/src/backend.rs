//! Echo servers for every protocol, as cheap as we can make them: a backend that is slow measures itself.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustls::ServerConfig;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol as IpProtocol, SockRef, Socket, Type};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::task::spawn_local;

use crate::tls::{self, Identity, TlsError};

mod accept;
pub mod answer;
mod dtls;
mod h1;
mod h2;
mod h3;
mod tcp;
mod udp;
mod ws;

/// What one port speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// HTTP/1.1 and WebSocket.
    Http,
    /// HTTP/1.1, WebSocket and HTTP/2 over TLS, chosen by ALPN.
    Https,
    /// HTTP/2 with prior knowledge; gRPC too.
    H2c,
    /// HTTP/3.
    H3,
    /// Raw bytes.
    Tcp,
    /// Raw bytes over TLS.
    Tls,
    /// Datagrams.
    Udp,
    /// Datagrams over DTLS 1.2.
    Dtls,
}

/// What to serve, and where.
#[derive(Debug, Clone)]
pub struct Options {
    pub services: Vec<Service>,
    pub address: IpAddr,
    /// The first service's port, the next one's is one higher; 0 lets the system choose each.
    pub first_port: u16,
    /// Threads, each with its own sockets.
    pub threads: usize,
}

/// Where the services listen; what `proto_bench backend` prints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    pub pid: u32,
    pub http: Option<SocketAddr>,
    pub https: Option<SocketAddr>,
    pub h2c: Option<SocketAddr>,
    pub h3: Option<SocketAddr>,
    pub tcp: Option<SocketAddr>,
    pub tls: Option<SocketAddr>,
    pub udp: Option<SocketAddr>,
    pub dtls: Option<SocketAddr>,
}

/// Running echo servers; they stop when this is dropped.
#[derive(Debug)]
pub struct Backend {
    pub ports: Ports,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// Why a backend cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// What every service of a thread may need.
#[derive(Clone)]
pub(crate) struct Kit {
    pub(crate) identity: Arc<Identity>,
    pub(crate) https: Arc<ServerConfig>,
    pub(crate) tls: Arc<ServerConfig>,
}

/// One thread's socket of one service.
enum Door {
    Stream(Service, TcpListener),
    Datagram(Service, UdpSocket),
}

const BACKLOG: i32 = 8192;
/// Asked of the kernel, which grants what `net.core.rmem_max` allows.
const SOCKET_BUFFER: usize = 8 * 1024 * 1024;

impl Service {
    pub const ALL: [Self; 8] =
        [Self::Http, Self::Https, Self::H2c, Self::H3, Self::Tcp, Self::Tls, Self::Udp, Self::Dtls];

    fn is_datagram(self) -> bool {
        matches!(self, Self::H3 | Self::Udp | Self::Dtls)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            services: Service::ALL.to_vec(),
            address: Ipv4Addr::LOCALHOST.into(),
            first_port: 0,
            threads: thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl Backend {
    /// Binds everything and starts serving.
    ///
    /// # Errors
    /// A port that is taken, or no thread.
    pub fn start(options: &Options, identity: Identity) -> Result<Self, BackendError> {
        tls::install_process_provider();
        let kit = Kit {
            https: Arc::new(tls::server_config(&identity, &[b"h2", b"http/1.1"])?),
            tls: Arc::new(tls::server_config(&identity, &[])?),
            identity: Arc::new(identity),
        };
        let threads = options.threads.max(1);
        let mut doors: Vec<Vec<Door>> = (0..threads).map(|_| Vec::new()).collect();
        let mut ports = Ports { pid: std::process::id(), ..Ports::default() };
        for (offset, service) in (0..).zip(&options.services) {
            let port = if options.first_port == 0 { 0 } else { options.first_port + offset };
            let mut address = SocketAddr::new(options.address, port);
            for doors in &mut doors {
                let door = bind(*service, &mut address)
                    .map_err(|source| BackendError::Listen { address, source })?;
                doors.push(door);
            }
            *ports.slot(*service) = Some(address);
        }
        let (stop, stopped) = watch::channel(false);
        let threads = (0..)
            .zip(doors)
            .map(|(number, doors): (usize, _)| {
                let (kit, stopped) = (kit.clone(), stopped.clone());
                thread::Builder::new()
                    .name(format!("echo-{number}"))
                    .spawn(move || serve(doors, &kit, stopped))
                    .map_err(BackendError::Thread)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { ports, stop, threads })
    }

    /// Serves until the process is told to end.
    pub fn wait(mut self) {
        for thread in std::mem::take(&mut self.threads) {
            drop(thread.join());
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for thread in std::mem::take(&mut self.threads) {
            drop(thread.join());
        }
    }
}

impl Ports {
    fn slot(&mut self, service: Service) -> &mut Option<SocketAddr> {
        match service {
            Service::Http => &mut self.http,
            Service::Https => &mut self.https,
            Service::H2c => &mut self.h2c,
            Service::H3 => &mut self.h3,
            Service::Tcp => &mut self.tcp,
            Service::Tls => &mut self.tls,
            Service::Udp => &mut self.udp,
            Service::Dtls => &mut self.dtls,
        }
    }

    /// Where a service listens, if it does.
    #[must_use]
    pub fn of(&self, service: Service) -> Option<SocketAddr> {
        *self.clone().slot(service)
    }
}

fn bind(service: Service, address: &mut SocketAddr) -> io::Result<Door> {
    let (kind, protocol) =
        if service.is_datagram() { (Type::DGRAM, IpProtocol::UDP) } else { (Type::STREAM, IpProtocol::TCP) };
    let socket = Socket::new(Domain::for_address(*address), kind, Some(protocol))?;
    // A chosen port must be wholly ours; with the port known, the threads share it.
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    if !service.is_datagram() {
        socket.set_reuse_address(true)?;
    }
    socket.bind(&(*address).into())?;
    if address.port() == 0 {
        *address = socket.local_addr()?.as_socket().unwrap_or(*address);
    }
    if service.is_datagram() {
        grow_buffers(&SockRef::from(&socket));
        return Ok(Door::Datagram(service, socket.into()));
    }
    socket.listen(BACKLOG)?;
    Ok(Door::Stream(service, socket.into()))
}

/// Datagrams that do not fit are lost, and a lost datagram makes a row void.
fn grow_buffers(socket: &SockRef<'_>) {
    // The kernel clamps these to its maximum; a refusal leaves the default.
    drop(socket.set_recv_buffer_size(SOCKET_BUFFER));
    drop(socket.set_send_buffer_size(SOCKET_BUFFER));
}

fn serve(doors: Vec<Door>, kit: &Kit, mut stopped: watch::Receiver<bool>) -> io::Result<()> {
    let runtime =
        Builder::new_current_thread().enable_all().event_interval(127).build_local(LocalOptions::default())?;
    runtime.block_on(async {
        for door in doors {
            open(door, kit)?;
        }
        // An error means that the owner is gone, which ends the serving too.
        drop(stopped.wait_for(|stop| *stop).await);
        Ok::<_, io::Error>(())
    })?;
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(())
}

fn open(door: Door, kit: &Kit) -> io::Result<()> {
    match door {
        Door::Stream(service, listener) => {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            spawn_local(accept::run(listener, service, kit.clone()));
        }
        Door::Datagram(Service::H3, socket) => h3::start(socket, kit)?,
        Door::Datagram(Service::Dtls, socket) => dtls::start(socket)?,
        Door::Datagram(_, socket) => {
            spawn_local(udp::run(tokio::net::UdpSocket::from_std(socket)?));
        }
    }
    Ok(())
}
