//! Asking a target how it is: over HTTP, gRPC, FastCGI, TCP or UDP, or in the words of a database.
//!
//! Every probe makes a connection of its own, since making one is half of what is asked. Probes run beside the
//! traffic, never on a worker.

mod databases;
mod dialogue;
mod grpc;
mod http;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::balance::Target;
use gateway_core::condition::Text;
use gateway_core::config::model::{ActiveHealth, BackendHttp, BackendTls, Probe};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::Instant;
use tokio_rustls::{TlsConnector, TlsStream};

use crate::dns::{Dns, DnsError};
use crate::link::Link;
use crate::tls::client::{ClientConfigs, ClientTlsError, server_name};
use crate::upstream::{fastcgi, socket};

/// How long before its end a probe stops waiting for the rest of an answer.
const MOMENT: Duration = Duration::from_millis(5);

/// Asks targets.
pub struct Prober {
    dns: Arc<Dns>,
    tls: Arc<ClientConfigs>,
}

/// Why a target counts as bad.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Its name has no address.
    #[error(transparent)]
    Dns(#[from] DnsError),
    /// It can't be reached, or broke off.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The proxy's TLS rules can't be carried out.
    #[error(transparent)]
    TlsRules(#[from] ClientTlsError),
    /// It did not answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// It answered with a status that is none of the healthy ones.
    #[error("status {0}")]
    Status(u16),
    /// It answered something that is no HTTP.
    #[error("the answer is malformed")]
    Malformed,
    /// It answered something that is no FastCGI.
    #[error("the answer is no FastCGI response")]
    NotFastCgi,
    /// HTTP/2 failed.
    #[error("HTTP/2: {0}")]
    Http2(#[source] io::Error),
    /// It answered something else than was expected, of which this is the beginning.
    #[error("it answered `{0}`")]
    Unexpected(String),
    /// It ended the connection without an answer.
    #[error("it closed the connection without an answer")]
    Closed,
    /// The call ended with this gRPC status.
    #[error("grpc-status {0}")]
    Grpc(String),
    /// The service says that it does not serve; the number is its `ServingStatus`.
    #[error("the service is not serving (status {0})")]
    NotServing(u64),
}

impl Prober {
    /// A prober that resolves names and judges certificates as traffic does.
    pub fn new(dns: Arc<Dns>, tls: Arc<ClientConfigs>) -> Self {
        Self { dns, tls }
    }

    /// Asks once. `tls` says how certificates are judged where the probe is encrypted; without it they are verified
    /// against the public roots.
    ///
    /// # Errors
    /// Why the target counts as bad.
    pub async fn probe(
        &self,
        target: &Target,
        rules: &ActiveHealth,
        tls: Option<&BackendTls>,
    ) -> Result<(), ProbeError> {
        if rules.timeout.is_zero() {
            return self.ask(target, &rules.probe, tls, None).await;
        }
        // A dialogue ends a moment before the probe, so that it can report what the target said.
        let deadline = Instant::now() + rules.timeout - MOMENT.min(rules.timeout);
        let asking = self.ask(target, &rules.probe, tls, Some(deadline));
        tokio::time::timeout(rules.timeout, asking).await.unwrap_or(Err(ProbeError::Timeout(rules.timeout)))
    }

    async fn ask(
        &self,
        target: &Target,
        probe: &Probe,
        tls: Option<&BackendTls>,
        deadline: Option<Instant>,
    ) -> Result<(), ProbeError> {
        match probe {
            Probe::Tcp { tls: encrypted, send, expect } => {
                let mut link = self.link(target, *encrypted, tls, None).await?;
                dialogue::talk(&mut link, send, expect.as_ref(), deadline).await
            }
            Probe::Udp { payload, expect } => self.datagram(target, payload, expect.as_ref()).await,
            Probe::Postgres => databases::postgres(&mut self.connect(target).await?).await,
            Probe::Mysql => databases::mysql(&mut self.connect(target).await?).await,
            Probe::Redis { tls: encrypted } => {
                databases::redis(&mut self.link(target, *encrypted, tls, None).await?).await
            }
            Probe::FastCgi { path, healthy_status_codes } => {
                let link = Link::Tcp(self.connect(target).await?);
                let status = fastcgi::ping(link, path).await?.ok_or(ProbeError::NotFastCgi)?;
                healthy_status_codes.contains(&status).then_some(()).ok_or(ProbeError::Status(status))
            }
            Probe::Http { path, healthy_status_codes, tls: encrypted } => {
                let link = self.link(target, *encrypted, tls, Some(BackendHttp::Http1)).await?;
                let host = target.host_header(if *encrypted { 443 } else { 80 });
                let status = http::get(link, host, path).await?;
                healthy_status_codes.contains(&status).then_some(()).ok_or(ProbeError::Status(status))
            }
            Probe::Grpc { service, tls: encrypted } => {
                let link = self.link(target, *encrypted, tls, Some(BackendHttp::Http2)).await?;
                let scheme = if *encrypted { "https" } else { "http" };
                grpc::check(link, scheme, target.authority(), service).await
            }
        }
    }

    async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, ProbeError> {
        Ok(self.dns.resolve(&target.rules.host, target.rules.port, None).await?)
    }

    /// Tries the target's addresses in turn, as traffic does.
    async fn connect(&self, target: &Target) -> Result<TcpStream, ProbeError> {
        if let Some(path) = target.rules.socket() {
            return Ok(socket::connect(path)?);
        }
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in self.addresses(target).await? {
            match TcpStream::connect(address).await {
                Ok(tcp) => {
                    tcp.set_nodelay(true)?;
                    return Ok(tcp);
                }
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    async fn link(
        &self,
        target: &Target,
        encrypted: bool,
        rules: Option<&BackendTls>,
        http: Option<BackendHttp>,
    ) -> Result<Link, ProbeError> {
        let tcp = self.connect(target).await?;
        if !encrypted {
            return Ok(Link::Tcp(tcp));
        }
        let strict = BackendTls { verify: true, ca_path: None, client_cert: None, server_name: None };
        let rules = rules.unwrap_or(&strict);
        let config = self.tls.of(rules, http)?;
        let name = server_name(rules, &target.rules.host)?;
        let tls = TlsConnector::from(config).connect(name, crate::link::Rewound::from(tcp)).await?;
        Ok(Link::from(TlsStream::Client(tls)))
    }

    /// Any datagram from the target is a good answer where nothing else is expected; a closed port shows as an error.
    async fn datagram(
        &self,
        target: &Target,
        payload: &[u8],
        expect: Option<&Text>,
    ) -> Result<(), ProbeError> {
        let address = *self
            .addresses(target)
            .await?
            .first()
            .ok_or(io::ErrorKind::AddrNotAvailable)
            .map_err(io::Error::from)?;
        let any: SocketAddr =
            if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(address).await?;
        socket.send(payload).await?;
        let mut answer = [0; dialogue::MAX_ANSWER];
        let read = socket.recv(&mut answer).await?;
        let answer = answer.get(..read).unwrap_or_default();
        match expect {
            Some(expect) if !expect.fits(Some(answer)) => Err(dialogue::unexpected(answer)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
