//! From a listening socket to a connection of a known version.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use gateway_core::config::model::Settings;
use gateway_core::http::exchange::Client;
use gateway_core::http::handshake::Handshake;
use gateway_core::stream::pipeline;
use gateway_core::stream::session::Session;
use rustls::ServerConfig;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::client_tls::{facts, trust};
pub use super::entrance::Entrance;
use super::entrance::{Listening, UNIX_ADDRESS};
use super::proxied::Addresses;
use super::{ConnectionControl, h1, h2};
use crate::buffer::HEAD_BYTES;
use crate::link::{Link, Rewound};
use crate::timer::deadline;
use crate::tls::challenge::is_challenge;
use crate::tls::early::EarlyStream;
use crate::tls::handshake_failure;
use crate::tls::trust::{Generation, while_trusted};
use crate::worker::Worker;

/// What an HTTP/2 client with prior knowledge sends first (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A pause after running out of file descriptors: accepting again at once would only spin.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);
/// How long a CA that checks a name may take to read the end of its connection.
const CHALLENGE_END: Duration = Duration::from_secs(1);

/// Accepts until the worker stops listening.
pub(crate) async fn accept(
    worker: Arc<Worker>,
    listener: Arc<Listening>,
    entrance: Entrance,
) -> Result<(), String> {
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

/// Serves a connection from its first byte to its last. Each way it may take is a future of its own on the heap, so
/// that a connection costs what its own way needs and not what the largest would.
pub(crate) async fn serve(
    worker: Arc<Worker>,
    mut tcp: TcpStream,
    peer: SocketAddr,
    entrance: Entrance,
    entry: Arc<ConnectionControl>,
) {
    let local = match tcp.local_addr() {
        Ok(local) if tcp.set_nodelay(true).is_ok() => local,
        Ok(_) => return,
        // A Unix socket has neither.
        Err(_) if peer == UNIX_ADDRESS => UNIX_ADDRESS,
        Err(_) => return,
    };
    let settings = worker.snapshot().settings.clone();
    let mut ends = Addresses::new(peer, local, &settings);
    if settings.accept_proxy_protocol
        && entrance.stream_port().is_none()
        && !Box::pin(announced(&worker, &mut tcp, &mut ends, &settings)).await
    {
        return;
    }
    let since = worker.shared().client_trust.generation();
    let (link, tls, trusted) = match entrance {
        Entrance::Stream { port, tls } => {
            return Box::pin(super::tcp::serve(&worker, tcp, ends, port, tls)).await;
        }
        Entrance::Plain => (Link::Tcp(tcp), None, None),
        Entrance::Tls(config) => {
            let config = config.load_full();
            let (accepted, timeout) = (Instant::now(), settings.client_timeouts.handshake);
            if config.max_early_data_size > 0 {
                drop(settings);
                let serving = EarlyServing { worker: &worker, ends, entry: &entry, since };
                return Box::pin(serve_early(serving, tcp, config, timeout)).await;
            }
            let acceptor = TlsAcceptor::from(config);
            let accepting = acceptor.accept(Rewound::from(tcp));
            match Box::pin(tokio::time::timeout_at(deadline(timeout), accepting)).await {
                Ok(Ok(tls)) if is_challenge(tls.get_ref().1) => return end_challenge(tls).await,
                Ok(Ok(tls)) => {
                    let mut facts = facts(tls.get_ref().1);
                    let trusted = match trust(&worker, tls.get_ref().1, &mut facts, since) {
                        Ok(trusted) => trusted,
                        Err(error) => return failed(&worker, ends, &error, accepted),
                    };
                    (Link::from(TlsStream::Server(tls)), Some(facts), trusted)
                }
                Ok(Err(error)) => return failed(&worker, ends, &error, accepted),
                Err(_) => return refused(&worker, ends, "handshake_timeout", accepted),
            }
        }
    };
    drop(settings);
    let client = Arc::new(Client::new(ends.peer, ends.local, ends.trusted, tls));
    match trusted {
        None => by_alpn(&worker, link, client, &entry).await,
        trusted => Box::pin(while_trusted(trusted, by_alpn(&worker, link, client, &entry))).await,
    }
}

/// Serves a connection by the protocol that was agreed on in its handshake, if there was one.
async fn by_alpn(worker: &Arc<Worker>, link: Link, client: Arc<Client>, entry: &ConnectionControl) {
    match link.alpn() {
        Some(b"h2") => Box::pin(h2::serve(worker, link, client, entry)).await,
        _ => by_preface(worker, link, client, entry).await,
    }
}

/// Reads the PROXY protocol header of an HTTP connection; one without it is recorded and false.
async fn announced(worker: &Worker, tcp: &mut TcpStream, ends: &mut Addresses, settings: &Settings) -> bool {
    let (accepted, deadline) = (Instant::now(), deadline(settings.client_timeouts.handshake));
    let reading = tokio::time::timeout_at(deadline, ends.read_header(tcp, settings));
    let Err(reason) = reading.await.unwrap_or(Err("handshake_timeout")) else { return true };
    refused(worker, *ends, reason, accepted);
    false
}

/// Records a connection that never came to a request.
fn refused(worker: &Worker, ends: Addresses, reason: &'static str, accepted: Instant) {
    let client = Arc::new(Client::new(ends.peer, ends.local, ends.trusted, None));
    let mut session = Session::new(client);
    session.started = accepted;
    pipeline::refuse(worker.recorder().as_ref(), "http", session, reason);
}

/// Records a failed TLS handshake. A client that only connects and leaves, as health checks do, is no failure.
fn failed(worker: &Worker, ends: Addresses, error: &io::Error, accepted: Instant) {
    tracing::debug!(peer = %ends.peer, %error, "TLS handshake failed");
    if let Some(reason) = handshake_failure(error) {
        refused(worker, ends, reason, accepted);
    }
}

/// Ends the connection of a CA that has seen what it wanted to (RFC 8737 §3): nothing is sent over it.
async fn end_challenge(mut tls: impl AsyncWrite + Unpin) {
    let ending = tokio::time::timeout(CHALLENGE_END, tls.shutdown());
    drop(ending.await);
}

/// A connection whose requests may come before its handshake is over.
struct EarlyServing<'w> {
    worker: &'w Arc<Worker>,
    ends: Addresses,
    entry: &'w ConnectionControl,
    since: Generation,
}

/// Serves a TLS connection whose requests may come before the handshake is over.
async fn serve_early(
    serving: EarlyServing<'_>,
    tcp: TcpStream,
    config: Arc<ServerConfig>,
    timeout: Duration,
) {
    let EarlyServing { worker, ends, entry, since } = serving;
    let (accepted, deadline) = (Instant::now(), deadline(timeout));
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
    let mut client = Client::new(ends.peer, ends.local, ends.trusted, Some(facts));
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
    let (link, client) = (Link::from(early), Arc::new(client));
    let serving = before_and_after(&handshake, deadline, by_alpn(worker, link, client, entry));
    while_trusted(trusted, serving).await;
}

/// Serves a connection that has until `deadline` to finish its handshake.
pub(super) async fn before_and_after(
    handshake: &Handshake,
    deadline: Instant,
    serving: impl Future<Output = ()>,
) {
    let mut serving = pin!(serving);
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

/// What the first bytes of a connection say.
enum Version {
    Http1,
    Http2,
    /// The connection is lost.
    None,
}

/// Looks at the first bytes: HTTP/2 with prior knowledge begins with its preface, everything else is HTTP/1.
async fn by_preface(worker: &Arc<Worker>, mut link: Link, client: Arc<Client>, entry: &ConnectionControl) {
    let mut buffer = BytesMut::new();
    let timeout = worker.snapshot().settings.client_timeouts.header;
    let sniffing = async {
        loop {
            let read = poll_fn(|cx| link.poll_fill(cx, &mut buffer, HEAD_BYTES)).await;
            let common = buffer.len().min(PREFACE.len());
            if read.is_err() {
                // Nothing can be read any more, such as after a fatal TLS alert; reading again could wait for ever.
                return Version::None;
            }
            if buffer[..common] != PREFACE[..common] || matches!(read, Ok(0)) {
                return Version::Http1;
            }
            if common == PREFACE.len() {
                return Version::Http2;
            }
        }
    };
    // A client that sends nothing at all opened the connection early; it is closed in silence.
    match tokio::time::timeout_at(deadline(timeout), sniffing).await {
        Ok(Version::Http2) => {
            Box::pin(h2::serve(worker, Rewound::new(buffer, link), client, entry)).await;
        }
        Ok(Version::Http1) => Box::pin(h1::serve(worker, link, client, entry, buffer)).await,
        Ok(Version::None) => h1::lost(worker, &client, (!buffer.is_empty()).then_some(&buffer)),
        Err(_) if buffer.is_empty() => {}
        Err(_) => Box::pin(h1::serve(worker, link, client, entry, buffer)).await,
    }
}
