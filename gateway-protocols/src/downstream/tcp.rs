//! Byte streams on ports of their own: PROXY protocol, server name, TLS, then the stream pipeline.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::BytesMut;
use gateway_core::http::exchange::uuid;
use gateway_core::pipeline::revocation::Current;
use gateway_core::pipeline::stream;
use gateway_core::snapshot::streams::{Transport, rules};
use gateway_core::snapshot::{Route, Snapshot};
use gateway_core::stream::proxy_protocol::ReceivedExtensions;
use gateway_core::stream::session::Session;
use gateway_core::stream::sniff::{self, Hello};
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::client_tls::{facts, trust};
use super::connection::TcpConnection;
use super::proxied::Addresses;
use crate::link::{Link, Rewound};
use crate::starttls::answer_client;
use crate::timer::deadline;
use crate::tls::handshake_failure;
use crate::tls::trust::while_trusted;
use crate::upstream::Inbound;
use crate::worker::Worker;

/// A connection whose proxy is not known yet.
struct NewConnection {
    tcp: TcpStream,
    ahead: BytesMut,
    ends: Addresses,
    /// The server name it asks for, where that was looked at.
    name: Option<String>,
    /// What its PROXY header says, and what the next one is to say.
    told: Option<Box<ReceivedExtensions>>,
    accepted: Instant,
}

/// Why a connection ends before it has a proxy; a stable word for its record.
type RefusalReason = &'static str;

/// Serves a connection on a stream port from its first byte to its last.
pub(super) async fn serve(
    worker: &Worker,
    TcpConnection { tcp, ends }: TcpConnection,
    port: u16,
    tls: Arc<ArcSwap<ServerConfig>>,
) {
    let snapshot = worker.snapshot();
    let mut arrival =
        NewConnection { tcp, ahead: BytesMut::new(), ends, name: None, told: None, accepted: Instant::now() };
    let timeout = snapshot.settings.client_timeouts.handshake;
    // On the heap while it lasts, as the handshake is: what is carried afterwards may last for hours.
    let arriving = Box::pin(arrive(&mut arrival, &snapshot, port));
    let chosen =
        tokio::time::timeout_at(deadline(timeout), arriving).await.unwrap_or(Err("handshake_timeout"));
    let NewConnection { tcp, ahead, ends, name, told, accepted } = arrival;
    let client = |tls| Arc::new(ends.client(tls));
    let asked: Option<Arc<str>> = name.map(Arc::from);
    let refuse = |reason| {
        let mut session = Session::new(client(None));
        session.started = accepted;
        session.server_name.clone_from(&asked);
        stream::refuse(worker.recorder().as_ref(), "tcp", session, reason);
    };
    let route = match chosen {
        Ok(route) => route,
        Err(reason) => return refuse(reason),
    };
    if !worker.shared().overload.admits(route.proxy.load_priority) {
        return refuse("overloaded");
    }
    let terminates = rules(&route).is_some_and(|rules| rules.frontend_tls);
    let since = worker.shared().client_trust.generation();
    let (mut inbound, facts, trusted) = if terminates {
        let accepting = TlsAcceptor::from(tls.load_full()).accept(Rewound::new(ahead, tcp));
        match Box::pin(tokio::time::timeout_at(deadline(timeout), accepting)).await {
            Ok(Ok(stream)) => {
                let mut facts = facts(stream.get_ref().1);
                let Ok(trusted) = trust(worker, stream.get_ref().1, &mut facts, since) else {
                    return refuse("tls_certificate_error");
                };
                let link = Link::from(TlsStream::Server(stream));
                (Inbound { link, ahead: BytesMut::new() }, Some(facts), trusted)
            }
            Ok(Err(error)) => return refuse(handshake_failure(&error).unwrap_or("handshake_failed")),
            Err(_) => return refuse("handshake_timeout"),
        }
    } else {
        (Inbound { link: Link::Tcp(tcp), ahead }, None, None)
    };
    let mut session = Session::new(client(facts));
    if session.server_name.is_none() {
        session.server_name = asked;
    }
    session.take_told(told);
    let serving = stream::Serving {
        route: &route,
        consumers: &snapshot.consumers,
        protocol: "tcp",
        current: Some(worker.shared().clone() as Arc<dyn Current>),
    };
    let recorder = worker.recorder().as_ref();
    let serving = stream::serve(worker.outbound(), recorder, serving, session, &mut inbound);
    while_trusted(trusted, Box::pin(serving).as_mut()).await;
}

/// Reads as much as it takes to choose a proxy.
async fn arrive(
    arrival: &mut NewConnection,
    snapshot: &Snapshot,
    port: u16,
) -> Result<Arc<Route>, RefusalReason> {
    let proxies = snapshot.streams.on(Transport::Tcp, port).ok_or("no_route")?;
    if proxies.accepts_proxy_headers() {
        let mut told = arrival.ends.read_header(&mut arrival.tcp, &snapshot.settings).await?;
        arrival.name = told.authority.take();
        arrival.told = (told != ReceivedExtensions::default()).then(|| Box::new(told));
    }
    if let Some(protocol) = proxies.starttls() {
        answer_client(&mut arrival.tcp, &mut arrival.ahead, protocol).await?;
    }
    let mut alpn = Vec::new();
    if proxies.asks_for_name() {
        let named = arrival.server_name().await?;
        arrival.name = named.or_else(|| arrival.name.take());
        // Only proxies that pass a hello on choose by protocol, and those ask for its name, too.
        if proxies.asks_for_alpn() {
            alpn = sniff::alpn_protocols(&arrival.ahead);
        }
    }
    let route = proxies.find(arrival.name.as_deref(), &alpn).ok_or("no_route")?;
    arrival.tell(route, &alpn);
    Ok(route.clone())
}

impl NewConnection {
    /// Adds what the proxy's PROXY header says and the client's did not.
    fn tell(&mut self, route: &Route, offered: &[Vec<u8>]) {
        let Some(rules) = rules(route).filter(|rules| rules.send_proxy_protocol.is_some()) else { return };
        let wanted = rules.proxy_headers.extensions;
        if !(wanted.alpn || wanted.unique_id) {
            return;
        }
        let told = self.told.get_or_insert_default();
        let is_taken = |protocol: &&Vec<u8>| rules.alpn.iter().any(|taken| **taken == ***protocol);
        if wanted.alpn && told.alpn.is_none() {
            told.alpn = offered.iter().find(is_taken).map(|protocol| protocol.as_slice().into());
        }
        if wanted.unique_id && told.unique_id.is_none() {
            told.unique_id = Some(uuid(fastrand::u128(..)).as_bytes().into());
        }
    }

    async fn fill(&mut self) -> Result<(), RefusalReason> {
        let (tcp, ahead) = (&mut self.tcp, &mut self.ahead);
        let read = tokio::io::AsyncReadExt::read_buf(tcp, ahead).await;
        match read {
            Ok(0) => Err("closed_early"),
            Err(_) => Err("client_reset"),
            Ok(_) => Ok(()),
        }
    }

    /// The server name of a TLS client; `None` for a client that names none or speaks something else.
    async fn server_name(&mut self) -> Result<Option<String>, RefusalReason> {
        loop {
            match sniff::client_hello(&self.ahead) {
                Hello::Name(name) => return Ok(name),
                Hello::NotTls => return Ok(None),
                Hello::More => self.fill().await?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<'w, F>(
        _serve: impl FnOnce(&'w Worker, TcpConnection, u16, Arc<ArcSwap<ServerConfig>>) -> F,
    ) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_stream_is_small() {
        let bytes = bytes(serve);
        assert!(bytes <= 1280, "{bytes} bytes: a future that is seldom needed belongs into a box");
    }
}
