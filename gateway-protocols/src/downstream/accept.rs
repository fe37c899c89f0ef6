//! From a listening socket to a connection of a known version.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use gateway_core::config::model::Settings;
use gateway_core::http::exchange::Client;
use gateway_core::http::handshake::Handshake;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::client_tls::{facts, trust};
use super::connection::{TcpConnection, failed, refused};
use super::opening::{self, OpenedConnection, Version};
use super::{h1, h2};
use crate::buffer::HEAD_BYTES;
pub use crate::entrance::Entrance;
use crate::entrance::Listening;
use crate::link::{Link, Rewound};
use crate::registry::ConnectionControl;
use crate::timer::deadline;
use crate::tls::challenge::is_challenge;
use crate::tls::early::EarlyStream;
use crate::tls::trust::{Generation, while_trusted};
use crate::worker::Worker;

/// A pause after running out of file descriptors: accepting again at once would only spin.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);

/// Accepts until the worker stops listening.
pub(crate) async fn accept(
    worker: Arc<Worker>,
    listener: Arc<Listening>,
    entrance: Entrance,
) -> Result<(), Infallible> {
    loop {
        match listener.accept().await {
            Ok((tcp, peer)) => worker.place(tcp, peer, &entrance),
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "accepting connections failed; trying again");
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
            }
        }
    }
}

/// Errors of a connection that died in the queue, not of the listener.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// Serves a connection from its first byte to its last. An HTTP/1.1 connection is idle most of the time and waits here; what
/// comes before it, and each other way a connection may take, is a future of its own on the heap that lasts no longer than it has
/// to.
pub(crate) async fn serve(
    worker: Arc<Worker>,
    tcp: TcpStream,
    peer: SocketAddr,
    entrance: Entrance,
    entry: Arc<ConnectionControl>,
) {
    let arrival = {
        let settings = worker.snapshot().settings.clone();
        let Some(mut arrival) = TcpConnection::of(tcp, peer, &settings) else { return };
        if settings.accept_proxy_protocol
            && entrance.stream_port().is_none()
            && !Box::pin(announced(&worker, &mut arrival, &settings)).await
        {
            return;
        }
        arrival
    };
    // Before the rules of the handshake are.
    let since = worker.shared().client_trust.generation();
    let config = match entrance {
        Entrance::Stream { port, tls } => {
            let _mark = entry.stream();
            return Box::pin(super::tcp::serve(&worker, arrival, port, tls)).await;
        }
        Entrance::Plain => None,
        Entrance::Tls(config) => Some(config.load_full()),
    };
    if let Some(config) = config.as_ref().filter(|config| config.max_early_data_size > 0) {
        let serving = EarlyServing { worker: &worker, entry: &entry, since };
        return Box::pin(serve_early(serving, arrival, config.clone())).await;
    }
    let opening = Box::pin(opening::open(&worker, &entry, arrival, config, since)).await;
    let Some(OpenedConnection { link, client, trusted, version }) = opening else { return };
    match version {
        Version::Http1(buffer) if trusted.is_none() => {
            h1::serve(&worker, link, client, &entry, buffer).await;
        }
        version => {
            let serving = Box::pin(speak(&worker, link, client, &entry, version));
            while_trusted(trusted, pin!(serving)).await;
        }
    }
}

/// Serves a connection whose version is known.
async fn speak(
    worker: &Arc<Worker>,
    link: Link,
    client: Arc<Client>,
    entry: &ConnectionControl,
    version: Version,
) {
    match version {
        Version::Http1(buffer) => h1::serve(worker, link, client, entry, buffer).await,
        Version::Http2(buffer) => h2::serve(worker, Rewound::new(buffer, link), client, entry).await,
    }
}

/// Reads the PROXY protocol header of an HTTP connection; one without it is recorded and false.
async fn announced(worker: &Worker, arrival: &mut TcpConnection, settings: &Settings) -> bool {
    let (accepted, deadline) = (Instant::now(), deadline(settings.client_timeouts.handshake));
    let TcpConnection { tcp, ends } = arrival;
    let reading = tokio::time::timeout_at(deadline, ends.read_header(tcp, settings));
    let Err(reason) = reading.await.unwrap_or(Err("handshake_timeout")) else { return true };
    refused(worker, *ends, reason, accepted);
    false
}

/// A connection whose requests may come before its handshake is over.
struct EarlyServing<'w> {
    worker: &'w Arc<Worker>,
    entry: &'w ConnectionControl,
    since: Generation,
}

/// Serves a TLS connection whose requests may come before the handshake is over.
async fn serve_early(serving: EarlyServing<'_>, arrival: TcpConnection, config: Arc<ServerConfig>) {
    let EarlyServing { worker, entry, since } = serving;
    let TcpConnection { tcp, ends } = arrival;
    let timeout = worker.snapshot().settings.client_timeouts.handshake;
    let (accepted, deadline) = (Instant::now(), deadline(timeout));
    if tokio::time::timeout_at(deadline, opening::sends_plain_http(&tcp)).await == Ok(true) {
        return Box::pin(opening::refuse_plain(worker, entry, TcpConnection { tcp, ends })).await;
    }
    let early = match tokio::time::timeout_at(deadline, EarlyStream::accept(tcp, config)).await {
        Ok(Ok(early)) => early,
        Ok(Err(error)) => return failed(worker, ends, &error, accepted),
        Err(_) => return refused(worker, ends, "handshake_timeout", accepted),
    };
    let mut facts = facts(early.session());
    let trusted = match trust(worker, early.session(), &mut facts, since) {
        Ok(trusted) => trusted,
        Err(error) => return failed(worker, ends, &error, accepted),
    };
    let mut client = ends.client(Some(facts));
    let handshake = early.handshake().clone();
    if is_challenge(early.session()) {
        let mut link = Link::from(early);
        // The client's part of the handshake is still to be read, and nothing else is.
        let mut buffer = BytesMut::new();
        let reading = poll_fn(|cx| link.poll_fill(cx, &mut buffer, HEAD_BYTES));
        drop(tokio::time::timeout_at(deadline, reading).await);
        return;
    }
    if !handshake.is_over() {
        client.handshake = Some(handshake.clone());
    }
    let (mut link, client) = (Link::from(early), Arc::new(client));
    let serving = pin!(async {
        let Some(version) = Box::pin(opening::version(worker, &mut link, &client)).await else { return };
        Box::pin(speak(worker, link, client, entry, version)).await;
    });
    let serving = pin!(before_and_after(&handshake, deadline, serving));
    while_trusted(trusted, serving).await;
}

/// Serves a connection that has until `deadline` to finish its handshake.
pub(super) async fn before_and_after(
    handshake: &Handshake,
    deadline: Instant,
    mut serving: Pin<&mut impl Future<Output = ()>>,
) {
    tokio::select! {
        () = &mut serving => return,
        finished = tokio::time::timeout_at(deadline, handshake.over()) => {
            if finished.is_err() {
                return;
            }
        }
    }
    serving.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the future of a connection takes, which is about what an idle connection costs in memory.
    fn bytes<F>(
        _serve: impl FnOnce(Arc<Worker>, TcpStream, SocketAddr, Entrance, Arc<ConnectionControl>) -> F,
    ) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        let bytes = bytes(serve);
        assert!(bytes <= 1024, "{bytes} bytes: a future that is seldom needed belongs into a box");
    }
}
