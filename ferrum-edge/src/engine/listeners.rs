//! The gateway's listening sockets, bound before anything runs and handed to the workers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gateway_core::config::model::{Congestion, Id, Settings};
use gateway_core::snapshot::streams::{StreamPort, Transport, places, rules};
use gateway_core::snapshot::{Route, Snapshot};
use gateway_protocols::downstream::accept::Entrance;
use gateway_protocols::downstream::bind::{self, Inherited, Sending, Sharing};
use gateway_protocols::handover::DatagramHandover;
use gateway_protocols::quic::Demultiplexer;
use gateway_protocols::worker::Order;
use tokio::sync::mpsc::UnboundedSender;

use super::error::StartError;
use super::port_holder;
use super::tls::Frontend;
use super::unix_socket::{self, SocketFile};

/// Where the gateway listens; ephemeral ports are settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// The first address of plain HTTP.
    pub http: Option<SocketAddr>,
    /// The first address of HTTP over TLS.
    pub https: Option<SocketAddr>,
    /// Every address of plain HTTP.
    pub all_http: Vec<SocketAddr>,
    /// Every address of HTTP over TLS.
    pub all_https: Vec<SocketAddr>,
}

/// Bound sockets, one a worker for each listener, or more where more are inherited.
pub(crate) struct Listeners {
    http: Vec<Vec<TcpListener>>,
    https: Vec<Vec<TcpListener>>,
    quic: Vec<Vec<UdpSocket>>,
    unix: Vec<UnixListener>,
    /// The file of those, removed when the gateway ends.
    file: Option<SocketFile>,
    sending: Sending,
}

impl Listeners {
    /// Binds whatever the settings ask for.
    pub(crate) fn bind(
        settings: &Settings,
        frontend: &Frontend,
        workers: usize,
        inherited: &mut Inherited,
    ) -> Result<Self, StartError> {
        let sharing = settings.share_ports.into();
        let sending = sending(settings)?;
        let mut bound = |name, at| bind_for(name, at, workers, sharing, inherited);
        let http: Vec<_> = settings.http_addresses().map(|at| bound("http", at)).collect::<Result<_, _>>()?;
        let https: Vec<_> =
            settings.https_addresses().map(|at| bound("https", at)).collect::<Result<_, _>>()?;
        let mut quic = Vec::new();
        // The port is that of https, also an ephemeral one.
        let is_for_quic = |(asked, bound): (SocketAddr, &Vec<TcpListener>)| {
            let is_one = settings.http3_addresses().any(|address| address == asked);
            bound.first().filter(|_| is_one)?.local_addr().ok()
        };
        for address in settings.https_addresses().zip(&https).filter_map(is_for_quic) {
            let sockets = bind::udp_for_workers(address, workers, sharing, inherited);
            let sockets =
                sockets.map_err(|source| StartError::Bind { listener: "http3", address, source })?;
            quic.push(sockets);
        }
        if !quic.is_empty() {
            frontend.serve_quic(settings)?;
        }
        let (unix, file) = unix_for_workers(settings, workers, sharing)?;
        Ok(Self { http, https, quic, unix, file, sending })
    }

    pub(crate) fn addresses(&self) -> Addresses {
        let of = |listeners: &[Vec<TcpListener>]| -> Vec<SocketAddr> {
            let first = |sockets: &Vec<TcpListener>| sockets.first()?.local_addr().ok();
            listeners.iter().filter_map(first).collect()
        };
        let (http, https) = (of(&self.http), of(&self.https));
        Addresses {
            http: http.first().copied(),
            https: https.first().copied(),
            all_http: http,
            all_https: https,
        }
    }

    /// The port of HTTP/3, when it is served.
    pub(crate) fn http3_port(&self) -> Option<u16> {
        Some(self.quic.first()?.first()?.local_addr().ok()?.port())
    }

    /// Listens, and gives each worker its sockets; what is left is to be kept for as long as they listen.
    ///
    /// # Errors
    /// When the kernel refuses; no worker has got anything then.
    pub(crate) fn hand_out(
        mut self,
        workers: &[UnboundedSender<Order>],
        frontend: &Frontend,
        datagrams: &Arc<DatagramHandover>,
    ) -> Result<Option<SocketFile>, StartError> {
        for (listener, sockets) in [("http", &self.http), ("https", &self.https)] {
            sockets.iter().try_for_each(|sockets| listen(listener, sockets, self.sending))?;
        }
        if let Some(file) = &mut self.file {
            let placed = file.place();
            placed.map_err(|source| StartError::Socket { path: file.path().to_owned(), source })?;
        }
        for (socket, worker) in self.unix.into_iter().zip(workers) {
            give(worker, Order::ListenUnix(socket));
        }
        for (sockets, rules) in self.quic.into_iter().zip(std::iter::repeat(frontend.quic())) {
            let Some(local) = sockets.first().and_then(|socket| socket.local_addr().ok()) else { continue };
            let mut demultiplexer = Demultiplexer::new(sockets.len(), local, datagrams.clone());
            for (index, (socket, worker)) in sockets.into_iter().zip(workers.iter().cycle()).enumerate() {
                if let (Some(place), Some(rules)) = (demultiplexer.place(index), rules.clone()) {
                    give(worker, Order::Quic(socket, rules, place));
                }
            }
        }
        let plain = self.http.into_iter().map(|sockets| (sockets, Entrance::Plain));
        let tls = self.https.into_iter().map(|sockets| (sockets, frontend.entrance()));
        for (sockets, entrance) in plain.chain(tls) {
            for (socket, worker) in sockets.into_iter().zip(workers.iter().cycle()) {
                give(worker, Order::Listen(socket, entrance.clone()));
            }
        }
        Ok(self.file)
    }
}

/// The one Unix socket for HTTP, once for each worker.
fn unix_for_workers(
    settings: &Settings,
    workers: usize,
    sharing: Sharing,
) -> Result<(Vec<UnixListener>, Option<SocketFile>), StartError> {
    let Some((path, mode)) = &settings.http_socket else { return Ok((Vec::new(), None)) };
    let failed = |source| StartError::Socket { path: path.clone(), source };
    let (first, file) = unix_socket::bind(path, *mode, sharing).map_err(failed)?;
    let mut sockets = Vec::with_capacity(workers);
    for _ in 1..workers {
        sockets.push(first.try_clone().map_err(failed)?);
    }
    sockets.push(first);
    Ok((sockets, Some(file)))
}

/// The ports of stream proxies, opened and closed as configurations come and go.
#[derive(Default)]
pub(crate) struct StreamPorts {
    open: Mutex<HashSet<(Transport, u16)>>,
    /// Why proxies have closed ports; tried again now and then.
    failed: Mutex<BTreeMap<Id, String>>,
    /// For good: this gateway only answers for its database.
    closed: AtomicBool,
}

/// Sockets for ports that are new in a snapshot, bound and not yet listened on by anybody.
#[derive(Default)]
pub(crate) struct NewPorts {
    sending: Sending,
    tcp: HashMap<u16, Vec<TcpListener>>,
    udp: HashMap<u16, Vec<UdpSocket>>,
    gone: Vec<(Transport, u16)>,
}

/// What a port that can't be used means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ports {
    /// The configuration as a whole is refused, when the port of a proxy that is put can never be used, as without a certificate.
    /// So are mistakes in its plugins, and settings of its sockets that this machine can't apply. A port in use by another program
    /// affects its proxy alone, as with [`Ports::Possible`].
    Available,
    /// All ports of that proxy which are not open stay closed, and the log and the status say so; they are tried again now and then.
    Possible,
    /// No port is opened at all.
    Closed,
}

impl Ports {
    /// Whether this error of a port that is asked for rejects the configuration as a whole.
    fn rejects(self, error: &StartError) -> bool {
        match self {
            Self::Available => !error.is_port_in_use(),
            Self::Possible | Self::Closed => false,
        }
    }
}

impl StreamPorts {
    /// Binds what a snapshot needs and is not open yet, for the proxies that are put and for those whose ports could
    /// not be opened before. Nothing changes until [`StreamPorts::apply`].
    pub(crate) fn prepare(
        &self,
        snapshot: &Snapshot,
        put: &[Arc<Route>],
        frontend: &Frontend,
        workers: usize,
        inherited: &mut Inherited,
        ports: Ports,
    ) -> Result<NewPorts, StartError> {
        if ports == Ports::Closed || self.are_closed() {
            self.closed.store(true, Ordering::Relaxed);
            return Ok(NewPorts::default());
        }
        let wanted: HashSet<(Transport, u16)> = snapshot.streams.ports().collect();
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let asked: HashSet<(Transport, u16)> = put.iter().flat_map(|route| places(route)).collect();
        let gone = open.difference(&wanted).copied().collect();
        let mut new = NewPorts { gone, sending: sending(&snapshot.settings)?, ..NewPorts::default() };
        let (mut failing, mut looks) = (HashMap::new(), HolderLookups::default());
        for &(transport, port) in &wanted {
            let is_open = open.contains(&(transport, port));
            let bound = certified(snapshot, frontend, transport, port).and_then(|()| match is_open {
                true => Ok(()),
                false => new.bind(transport, port, &snapshot.settings, workers, inherited),
            });
            match bound {
                Ok(()) => {}
                // What somebody else's port is doesn't stand in the way of a change of another's.
                Err(error) if ports.rejects(&error) && asked.contains(&(transport, port)) => {
                    return Err(error);
                }
                Err(error) => {
                    let holder = error.is_port_in_use().then(|| looks.find(transport, port)).flatten();
                    failing.insert((transport, port), format!("{error}{}", holder.unwrap_or_default()));
                }
            }
        }
        self.leave_closed(snapshot, &mut new, &failing);
        Ok(new)
    }

    /// Keeps the new ports of proxies closed of which one can't be opened: a range is open as a whole, or not at all.
    fn leave_closed(
        &self,
        snapshot: &Snapshot,
        new: &mut NewPorts,
        failing: &HashMap<(Transport, u16), String>,
    ) {
        let mut failed = BTreeMap::new();
        let mut needed = HashSet::new();
        if !failing.is_empty() {
            for (id, route) in snapshot.by_id.iter() {
                match places(route).find_map(|place| failing.get(&place)) {
                    Some(why) => drop(failed.insert(id.clone(), why.clone())),
                    None => needed.extend(places(route)),
                }
            }
            new.tcp.retain(|port, _| needed.contains(&(Transport::Tcp, *port)));
            new.udp.retain(|port, _| needed.contains(&(Transport::Udp, *port)));
        }
        let mut known = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        for (proxy, error) in failed.iter().filter(|(proxy, why)| known.get(*proxy) != Some(*why)) {
            tracing::error!(%proxy, %error, "a stream proxy's ports stay closed, and are tried again");
        }
        let is_there = |proxy: &Id| snapshot.by_id.get(proxy).is_some();
        for proxy in known.keys().filter(|proxy| !failed.contains_key(*proxy) && is_there(proxy)) {
            tracing::info!(%proxy, "the ports of a stream proxy can be opened");
        }
        *known = failed;
    }

    /// Whether no port is opened at all: see [`Ports::Closed`].
    pub(super) fn are_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Why proxies have closed ports.
    pub(crate) fn failed(&self) -> BTreeMap<Id, String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts the new ports as open before they are: nobody else is to bind them.
    pub(crate) fn reserve(&self, ports: &NewPorts) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.extend(ports.udp.keys().map(|port| (Transport::Udp, *port)));
        open.extend(ports.tcp.keys().map(|port| (Transport::Tcp, *port)));
    }

    /// Opens no port any more: the gateway drains.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Opens the new ports and closes those that are gone; sessions on them go on.
    pub(crate) fn apply(&self, ports: NewPorts, workers: &[UnboundedSender<Order>], frontend: &Frontend) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for (port, sockets) in ports.udp {
            open.insert((Transport::Udp, port));
            for (socket, worker) in sockets.into_iter().zip(workers.iter().cycle()) {
                give(worker, Order::Datagrams(socket, port, frontend.dtls()));
            }
        }
        for (port, sockets) in ports.tcp {
            if let Err(error) = listen("a stream proxy", &sockets, ports.sending) {
                tracing::error!(port, %error, "a stream proxy's port stays closed");
                open.remove(&(Transport::Tcp, port));
                continue;
            }
            open.insert((Transport::Tcp, port));
            for (socket, worker) in sockets.into_iter().zip(workers.iter().cycle()) {
                let entrance = Entrance::Stream { port, tls: frontend.stream_config() };
                give(worker, Order::Listen(socket, entrance));
            }
        }
        for (transport, port) in ports.gone {
            open.remove(&(transport, port));
            workers.iter().for_each(|worker| {
                let order = match transport {
                    Transport::Tcp => Order::Unlisten(port),
                    Transport::Udp => Order::EndDatagrams(port),
                };
                give(worker, order);
            });
        }
    }
}

/// Finds the processes of ports in use, as often as is affordable each time that ports are tried.
struct HolderLookups(usize);

impl Default for HolderLookups {
    fn default() -> Self {
        Self(8)
    }
}

impl HolderLookups {
    /// The process that has a port, as the end of a message.
    fn find(&mut self, transport: Transport, port: u16) -> Option<String> {
        self.0 = self.0.checked_sub(1)?;
        let (id, name) = port_holder::find(port, transport)?;
        Some(format!("; process {id} ({name}) has the port"))
    }
}

impl NewPorts {
    /// Has the kernel take connections; nobody accepts them before the ports are applied.
    ///
    /// # Errors
    /// When it refuses.
    pub(crate) fn listen(&self) -> Result<(), StartError> {
        self.tcp.values().try_for_each(|sockets| listen("a stream proxy", sockets, self.sending))
    }

    fn bind(
        &mut self,
        transport: Transport,
        port: u16,
        settings: &Settings,
        workers: usize,
        inherited: &mut Inherited,
    ) -> Result<(), StartError> {
        let address = SocketAddr::new(settings.stream_address, port);
        let sharing = settings.share_ports.into();
        match transport {
            Transport::Tcp => {
                let sockets = bind_for("a stream proxy", address, workers, sharing, inherited)?;
                self.tcp.insert(port, sockets);
            }
            Transport::Udp => {
                let sockets = bind::udp_for_workers(address, workers, sharing, inherited);
                let listener = "a UDP proxy";
                let sockets = sockets.map_err(|source| StartError::Bind { listener, address, source })?;
                self.udp.insert(port, sockets);
            }
        }
        Ok(())
    }
}

/// A proxy that terminates encryption must have something to show.
fn certified(
    snapshot: &Snapshot,
    frontend: &Frontend,
    transport: Transport,
    port: u16,
) -> Result<(), StartError> {
    for route in snapshot.streams.on(transport, port).into_iter().flat_map(StreamPort::routes) {
        let terminates = rules(route).is_some_and(|rules| rules.frontend_tls);
        if !terminates {
            continue;
        }
        let problem = match transport {
            Transport::Tcp => {
                snapshot.settings.tls.certificates.is_empty().then(|| "there is no certificate".into())
            }
            Transport::Udp => frontend.dtls().problem(),
        };
        if let Some(reason) = problem {
            return Err(StartError::NoCertificate { proxy: route.proxy.id.to_string(), reason });
        }
    }
    Ok(())
}

fn sending(settings: &Settings) -> Result<Sending, StartError> {
    if let Some(congestion) = &settings.congestion {
        known(congestion, "gateway.congestion_control")?;
    }
    Ok(Sending { unsent: settings.limits.max_unsent, congestion: settings.congestion })
}

/// Has the kernel take connections, which wait until a worker accepts them.
fn listen(listener: &'static str, sockets: &[TcpListener], sending: Sending) -> Result<(), StartError> {
    sockets.iter().try_for_each(|socket| {
        bind::listen(socket, sending).map_err(|source| match socket.local_addr() {
            Ok(address) => StartError::Bind { listener, address, source },
            Err(source) => StartError::Thread(source),
        })
    })
}

/// Refuses a congestion control that the kernel has not got.
pub(crate) fn known(congestion: &Congestion, setting: &str) -> Result<(), StartError> {
    bind::has_congestion(congestion).map_err(|source| StartError::Congestion {
        name: congestion.name().to_owned(),
        setting: setting.to_owned(),
        source,
    })
}

fn bind_for(
    listener: &'static str,
    address: SocketAddr,
    workers: usize,
    sharing: Sharing,
    inherited: &mut Inherited,
) -> Result<Vec<TcpListener>, StartError> {
    bind::tcp_for_workers(address, workers, sharing, inherited).map_err(|source| StartError::Bind {
        listener,
        address,
        source,
    })
}

/// Gives an order. It always arrives; where a worker has ended it is a defect worth a line in the log.
pub(crate) fn give(worker: &UnboundedSender<Order>, order: Order) {
    if worker.send(order).is_err() {
        tracing::error!("a worker takes no orders any more");
    }
}
