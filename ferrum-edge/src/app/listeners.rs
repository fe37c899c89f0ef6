//! The gateway's listening sockets, bound before anything runs and handed to the workers.

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Mutex, PoisonError};

use gateway_core::config::model::Settings;
use gateway_core::config::snapshot::Snapshot;
use gateway_core::stream::table::{Transport, rules};
use gateway_protocols::downstream::accept::Entrance;
use gateway_protocols::downstream::bind;
use gateway_protocols::quic::Crossroads;
use gateway_protocols::worker::Order;

use super::tls::Frontend;
use super::{Addresses, Crew, StartError};

/// Bound sockets, one a worker for each listener.
pub(super) struct Listeners {
    http: Vec<TcpListener>,
    https: Vec<TcpListener>,
    quic: Vec<(UdpSocket, quinn::ServerConfig)>,
}

impl Listeners {
    /// Binds whatever the settings ask for.
    pub(super) fn bind(settings: &Settings, frontend: &Frontend, workers: usize) -> Result<Self, StartError> {
        // Without a certificate there is nothing to show to a TLS client.
        let https = settings.https.filter(|_| !settings.tls.certificates.is_empty());
        let http = bind_for("http", settings.http, workers)?;
        let https = bind_for("https", https, workers)?;
        let mut quic = Vec::new();
        if settings.http3
            && let Some(address) = https.first().and_then(|socket| socket.local_addr().ok())
        {
            // The port number is that of https, also an ephemeral one.
            let sockets = bind::udp_for_workers(address, workers);
            let sockets =
                sockets.map_err(|source| StartError::Bind { listener: "http3", address, source })?;
            for socket in sockets {
                quic.push((socket, frontend.quic(settings)?));
            }
        }
        Ok(Self { http, https, quic })
    }

    pub(super) fn addresses(&self) -> Addresses {
        let of = |sockets: &[TcpListener]| sockets.first().and_then(|socket| socket.local_addr().ok());
        Addresses { http: of(&self.http), https: of(&self.https) }
    }

    /// The port of HTTP/3, when it is served.
    pub(super) fn http3_port(&self) -> Option<u16> {
        Some(self.quic.first()?.0.local_addr().ok()?.port())
    }

    /// Gives each worker its sockets.
    pub(super) fn hand_out(self, crews: &[Crew], frontend: &Frontend) {
        let mut crossroads = Crossroads::new(crews.len());
        for (worker, ((socket, config), crew)) in self.quic.into_iter().zip(crews).enumerate() {
            if let Some(place) = crossroads.place(worker) {
                crew.tell(Order::Quic(socket, Box::new(config), place));
            }
        }
        let plain = self.http.into_iter().zip(crews).map(|(socket, crew)| (socket, Entrance::Plain, crew));
        let tls = self.https.into_iter().zip(crews).map(|(socket, crew)| (socket, frontend.entrance(), crew));
        for (socket, entrance, crew) in plain.chain(tls) {
            crew.tell(Order::Listen(socket, entrance));
        }
    }
}

/// The ports of stream proxies, opened and closed as configurations come and go.
#[derive(Default)]
pub(super) struct StreamPorts {
    open: Mutex<HashSet<(Transport, u16)>>,
}

/// Sockets for ports that are new in a snapshot, bound and not yet listened on by anybody.
pub(super) struct NewPorts {
    tcp: HashMap<u16, Vec<TcpListener>>,
    udp: HashMap<u16, Vec<UdpSocket>>,
    gone: Vec<(Transport, u16)>,
}

impl StreamPorts {
    /// Binds what a snapshot needs and is not open yet. Nothing changes until [`StreamPorts::apply`].
    pub(super) fn prepare(
        &self,
        snapshot: &Snapshot,
        frontend: &Frontend,
        workers: usize,
    ) -> Result<NewPorts, StartError> {
        check_certificates(snapshot, frontend)?;
        let wanted: HashSet<(Transport, u16)> = snapshot.streams.ports().collect();
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = open.difference(&wanted).copied().collect();
        let mut ports = NewPorts { tcp: HashMap::new(), udp: HashMap::new(), gone };
        for &(transport, port) in wanted.difference(&open) {
            let address = SocketAddr::new(snapshot.settings.stream_address, port);
            match transport {
                Transport::Tcp => {
                    ports.tcp.insert(port, bind_for("a stream proxy", Some(address), workers)?);
                }
                Transport::Udp => {
                    let sockets = bind::udp_for_workers(address, workers);
                    let listener = "a UDP proxy";
                    ports.udp.insert(
                        port,
                        sockets.map_err(|source| StartError::Bind { listener, address, source })?,
                    );
                }
            }
        }
        Ok(ports)
    }

    /// Opens the new ports and closes those that are gone; sessions on them go on.
    pub(super) fn apply(&self, ports: NewPorts, crews: &[Crew], frontend: &Frontend) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for (port, sockets) in ports.udp {
            open.insert((Transport::Udp, port));
            for (socket, crew) in sockets.into_iter().zip(crews) {
                crew.tell(Order::Datagrams(socket, port, frontend.dtls()));
            }
        }
        for (port, sockets) in ports.tcp {
            open.insert((Transport::Tcp, port));
            for (socket, crew) in sockets.into_iter().zip(crews) {
                crew.tell(Order::Listen(socket, Entrance::Stream { port, tls: frontend.stream_config() }));
            }
        }
        for (transport, port) in ports.gone {
            open.remove(&(transport, port));
            crews.iter().for_each(|crew| {
                crew.tell(match transport {
                    Transport::Tcp => Order::Unlisten(port),
                    Transport::Udp => Order::EndDatagrams(port),
                });
            });
        }
    }
}

/// A proxy that terminates encryption must have something to show.
fn check_certificates(snapshot: &Snapshot, frontend: &Frontend) -> Result<(), StartError> {
    for (transport, port) in snapshot.streams.ports() {
        for route in snapshot.streams.on(transport, port) {
            let terminates = rules(route).is_some_and(|rules| rules.frontend_tls);
            let (has, wanted) = match transport {
                Transport::Tcp => (!snapshot.settings.tls.certificates.is_empty(), "a certificate"),
                Transport::Udp => {
                    (frontend.dtls().has_certificate(), "a certificate with an ECDSA key, for DTLS")
                }
            };
            if terminates && !has {
                return Err(StartError::NoCertificate { proxy: route.proxy.id.to_string(), wanted });
            }
        }
    }
    Ok(())
}

fn bind_for(
    listener: &'static str,
    address: Option<SocketAddr>,
    workers: usize,
) -> Result<Vec<TcpListener>, StartError> {
    let Some(address) = address else { return Ok(Vec::new()) };
    bind::tcp_for_workers(address, workers).map_err(|source| StartError::Bind { listener, address, source })
}
