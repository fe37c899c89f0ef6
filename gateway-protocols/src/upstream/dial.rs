//! Making connections to targets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use gateway_core::balance::{AllBusy, ConnectionLimit, ConnectionPlace, Target};
use gateway_core::config::model::{
    Backend, BackendHttp, BackendTls, Id, PoolRules, SocketRules, StarttlsRules, Timeouts, socket_path,
};
use gateway_core::http::upstream::{Call, Phases};
use gateway_core::snapshot::Route;
use gateway_core::snapshot::streams::rules;
use gateway_core::stream::starttls::TargetDialogue;
use rustls::ClientConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::{TlsConnector, TlsStream};

use super::dial_error::DialError;
use super::{Recall, Version, h3, socket, wanted};
use crate::dns::{Dns, DnsError, ResolvedAddress};
use crate::link::{Link, Rewound};
use crate::outgoing;
use crate::recorder::ConnectionRecorder;
use crate::starttls::ask_target;
use crate::tls::client::{ClientConfigs, server_name};

/// For QUIC to a target whose connect timeout is off.
const QUIC_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes connections.
pub(crate) struct Dialler {
    pub(crate) dns: Arc<Dns>,
    pub(crate) tls: Arc<ClientConfigs>,
    /// Where connections are counted and there may be no more: asks for one that is kept.
    pub(crate) recall: Arc<Recall>,
    /// Told of each connection, where somebody counts.
    pub(crate) recorder: Option<Arc<dyn ConnectionRecorder>>,
}

/// Everything a connection depends on, independent of the exchange that asks for it.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub(crate) key: u64,
    upstream: Id,
    pub(crate) rules: PoolRules,
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
    /// Whether the port is one the target has named, and not its own.
    alternative: bool,
    dns_override: Option<IpAddr>,
    dns_ttl: Option<Duration>,
    sockets: Option<Arc<SocketRules>>,
    /// From where to connect, where the target is to see the client's address.
    pub(crate) client: Option<IpAddr>,
    tls: Option<Arc<BackendTls>>,
    /// In place of the target's host: the name to ask it for.
    pub(crate) name: Option<Arc<str>>,
    /// `None` for streams.
    http: Option<BackendHttp>,
    /// Bytes the target gets before anything else, also before a TLS handshake.
    pub(crate) preface: Vec<u8>,
    /// Plain text around TLS.
    pub(crate) starttls: StarttlsRules,
    timeout: Duration,
    limit: Option<ConnectionLimit>,
    /// Whether one exchange or session has the connection for itself.
    is_alone: bool,
    /// Whether the connection is worth that another one is closed.
    waits: bool,
}

impl Destination {
    /// Where a call goes.
    pub(crate) fn of(call: &Call<'_>) -> Self {
        let to = Self::to(call.backend, call.timeouts, call.target);
        Self {
            key: super::key(call),
            upstream: call.chosen.and_then(|id| id.parse().ok()).unwrap_or(to.upstream),
            http: Some(wanted(call)),
            is_alone: false,
            ..to
        }
    }

    /// Where a stream goes; its connection is nobody else's.
    pub(crate) fn of_stream(route: &Route, target: &Target) -> Self {
        let starttls = rules(route).map(|rules| rules.starttls).unwrap_or_default();
        Self { starttls, ..Self::to(&route.proxy.backend, &route.proxy.timeouts, target) }
    }

    /// A connection of its own to a target.
    pub(crate) fn to(backend: &Backend, timeouts: &Timeouts, target: &Target) -> Self {
        Self {
            key: 0,
            upstream: backend.upstream.id.clone(),
            rules: *backend.pool,
            host: target.rules.host.clone(),
            port: target.rules.port,
            alternative: false,
            dns_override: backend.dns_override(),
            dns_ttl: backend.dns_ttl(),
            sockets: backend.sockets().cloned(),
            client: None,
            tls: backend.tls.clone(),
            name: None,
            http: None,
            preface: Vec::new(),
            starttls: StarttlsRules::default(),
            timeout: timeouts.connect,
            limit: target.connection_limit(),
            is_alone: true,
            waits: true,
        }
    }
}

impl Destination {
    /// The same, for one exchange at a time.
    pub(crate) fn alone(self) -> Self {
        Self { is_alone: true, ..self }
    }

    /// The same, only if the target may have one more connection now.
    pub(crate) fn at_leisure(self) -> Self {
        Self { waits: false, ..self }
    }

    /// The same target where it says that it is too.
    pub(crate) fn at(self, port: u16) -> Self {
        Self { port, alternative: true, ..self }
    }

    /// What tells the target where it is asked, when that is not where it is configured to be (RFC 7838 §5).
    fn alt_used(&self) -> Option<String> {
        let is_v6 = self.host.contains(':');
        let (open, close) = if is_v6 { ("[", "]") } else { ("", "") };
        self.alternative.then(|| format!("{open}{}{close}:{}", self.host, self.port))
    }
}

/// A connection just made.
pub(crate) struct Dialled {
    pub(crate) link: Link,
    pub(crate) version: Version,
    pub(crate) phases: Phases,
    /// Its place among the target's connections, where they are counted.
    pub(crate) place: Option<ConnectionPlace>,
    /// Where it leads, if the target was found by its name.
    pub(crate) resolved: Option<Arc<ResolvedAddress>>,
}

impl Dialler {
    /// Resolves, connects and, where wanted, encrypts, all within the connect timeout.
    pub(crate) async fn dial(&self, to: &Destination) -> Result<Dialled, DialError> {
        let place = self.place(to).await?;
        let dialled = match to.timeout.is_zero() {
            true => self.connect(to, None).await,
            false => {
                let until = Instant::now() + to.timeout;
                tokio::time::timeout_at(until, self.connect(to, Some(until)))
                    .await
                    .unwrap_or(Err(DialError::Timeout(to.timeout)))
            }
        };
        dialled.inspect(|dialled| self.tell(to, dialled.phases)).map(|dialled| Dialled { place, ..dialled })
    }

    /// A place among the target's connections; waits no longer than connecting may take. `None` where they are not counted.
    async fn place(&self, to: &Destination) -> Result<Option<ConnectionPlace>, DialError> {
        let Some(limit) = &to.limit else { return Ok(None) };
        if !to.waits {
            return limit.try_place(to.is_alone).map(Some).ok_or(DialError::ALL_BUSY);
        }
        let placing = limit.place(to.is_alone, || self.recall.ask());
        let placed = match to.timeout.is_zero() {
            true => placing.await,
            false => tokio::time::timeout(to.timeout, placing)
                .await
                .map_err(|_| DialError::NoPlace { waited: true })?,
        };
        placed.map(Some).map_err(|AllBusy| DialError::ALL_BUSY)
    }

    fn tell(&self, to: &Destination, phases: Phases) {
        if let Some(recorder) = &self.recorder {
            recorder.dialled(&to.upstream, phases);
        }
    }

    /// The target's addresses.
    async fn addresses(&self, to: &Destination, phases: &mut Phases) -> Result<Vec<SocketAddr>, DialError> {
        if let Some(address) = to.dns_override {
            return Ok(vec![SocketAddr::new(address, to.port)]);
        }
        let begun = Instant::now();
        let addresses = self.dns.resolve(&to.host, to.port, to.dns_ttl).await?;
        if to.host.parse::<IpAddr>().is_err() {
            phases.dns = Some(begun.elapsed());
        }
        Ok(addresses)
    }

    /// Resolves and connects over QUIC, within half of the connect timeout: the other half is for TLS.
    pub(crate) async fn dial_quic(&self, to: &Destination) -> Result<h3::H3Connection, DialError> {
        let place = self.place(to).await?;
        let connecting = async {
            let mut phases = Phases::default();
            let rules = to.tls.as_ref().ok_or(DialError::NoHttp2)?;
            let addresses = self.addresses(to, &mut phases).await?;
            let mut config = ClientConfig::clone(&*self.tls.of(rules, Some(BackendHttp::Http3))?);
            config.alpn_protocols = vec![b"h3".to_vec()];
            let name = rules.server_name.as_deref().unwrap_or(&to.host);
            let begun = Instant::now();
            let opened = h3::H3Connection::open(&addresses, name, Arc::new(config), to.alt_used()).await?;
            let resolved = self.resolved(to, opened.peer());
            let connection = opened.at(resolved, place);
            phases.connect = Some(begun.elapsed());
            self.tell(to, phases);
            Ok(connection)
        };
        let timeout = if to.timeout.is_zero() { QUIC_TIMEOUT } else { to.timeout / 2 };
        tokio::time::timeout(timeout, connecting).await.unwrap_or(Err(DialError::Timeout(timeout)))
    }

    /// `until` is when the connection has to be ready.
    async fn connect(&self, to: &Destination, until: Option<Instant>) -> Result<Dialled, DialError> {
        let mut phases = Phases::default();
        let mut tcp = self.tcp(to, &mut phases).await?;
        let agreed = |source| DialError::Starttls { host: to.host.clone(), source };
        if let Some(protocol) = to.starttls.backend {
            ask_target(&mut tcp, TargetDialogue::new(protocol)).await.map_err(agreed)?;
        }
        let address = if socket_path(&to.host).is_some() { None } else { tcp.peer_addr().ok() };
        let resolved = address.and_then(|address| self.resolved(to, address));
        let Some(rules) = &to.tls else {
            let version = if to.http == Some(BackendHttp::Http2) { Version::Http2 } else { Version::Http1 };
            if let Some(protocol) = to.starttls.duplicate_greeting() {
                let greeting = TargetDialogue::greeting_only(protocol);
                ask_target(&mut tcp, greeting).await.map_err(agreed)?;
            }
            return Ok(Dialled { link: Link::Tcp(tcp), version, phases, resolved, place: None });
        };
        let begun = Instant::now();
        let config = self.tls.of(rules, to.http)?;
        let name = server_name(rules, to.name.as_ref().unwrap_or(&to.host))?;
        let address = address.map_or_else(|| to.host.to_string(), |address| address.to_string());
        let connecting = TlsConnector::from(config).connect(name, Rewound::from(tcp));
        let tls = match until {
            // Said here, and not by who waits for all of it: TCP did work.
            Some(until) => tokio::time::timeout_at(until, connecting)
                .await
                .map_err(|_| DialError::Silent { address, within: to.timeout })?,
            None => connecting.await,
        };
        let tls = tls.map_err(|source| DialError::Handshake { host: to.host.clone(), source })?;
        phases.tls = Some(begun.elapsed());
        let mut link = Link::from(TlsStream::Client(tls));
        if let Some(protocol) = to.starttls.duplicate_greeting() {
            ask_target(&mut link, TargetDialogue::greeting_only(protocol)).await.map_err(agreed)?;
        }
        let version = if link.alpn() == Some(b"h2") { Version::Http2 } else { Version::Http1 };
        if to.http == Some(BackendHttp::Http2) && version != Version::Http2 {
            return Err(DialError::NoHttp2);
        }
        Ok(Dialled { link, version, phases, resolved, place: None })
    }

    fn resolved(&self, to: &Destination, address: SocketAddr) -> Option<Arc<ResolvedAddress>> {
        if to.dns_override.is_some() {
            return None;
        }
        self.dns.resolved(&to.host, address.ip(), to.dns_ttl)
    }

    /// Tries the target's addresses in turn.
    async fn tcp(&self, to: &Destination, phases: &mut Phases) -> Result<TcpStream, DialError> {
        let begun = Instant::now();
        if let Some(path) = socket_path(&to.host) {
            let failed = |source| DialError::Socket { host: to.host.clone(), source };
            let mut stream = socket::connect(path).map_err(failed)?;
            phases.connect = Some(begun.elapsed());
            stream.write_all(&to.preface).await.map_err(failed)?;
            return Ok(stream);
        }
        let addresses = self.addresses(to, phases).await?;
        let begun = Instant::now();
        // One address that swallows everything must not use up the time of the others.
        let share = to.timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut last = None;
        for address in addresses {
            let connecting = outgoing::connect(address, to.sockets.as_deref(), to.client);
            let connected = match share.is_zero() {
                true => connecting.await,
                false => tokio::time::timeout(share, connecting)
                    .await
                    .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
            };
            match connected {
                Ok(mut tcp) => {
                    phases.connect = Some(begun.elapsed());
                    let failed = |source| DialError::Connect { address, source };
                    // Requests are written whole; waiting for more to send would only delay them.
                    tcp.set_nodelay(true).map_err(failed)?;
                    if !to.rules.tcp_keepalive.is_zero() {
                        // A target that vanished without a word is noticed also by a connection that only waits.
                        let probes = TcpKeepalive::new().with_time(to.rules.tcp_keepalive);
                        SockRef::from(&tcp).set_tcp_keepalive(&probes).map_err(failed)?;
                    }
                    if let Some(congestion) = &to.rules.congestion {
                        let name = congestion.name().as_bytes();
                        SockRef::from(&tcp).set_tcp_congestion(name).map_err(failed)?;
                    }
                    if !to.preface.is_empty() {
                        tcp.write_all(&to.preface).await.map_err(failed)?;
                    }
                    return Ok(tcp);
                }
                Err(source) => last = Some(DialError::Connect { address, source }),
            }
        }
        Err(last.unwrap_or_else(|| DialError::Dns(DnsError::NoResolver { name: to.host.clone() })))
    }
}
