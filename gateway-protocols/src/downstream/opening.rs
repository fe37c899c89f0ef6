//! What comes before a connection's first request: the TLS handshake, and the first bytes where no handshake names the version.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use gateway_core::http::exchange::{Client, ClientTls};
use rustls::ServerConfig;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::client_tls::{facts, trust};
use super::connection::{TcpConnection, failed, refused};
use super::h1;
use crate::buffer::HEAD_BYTES;
use crate::link::{Link, Rewound};
use crate::registry::ConnectionControl;
use crate::timer::deadline;
use crate::tls::challenge::is_challenge;
use crate::tls::trust::{Generation, Trusted};
use crate::worker::Worker;

/// What an HTTP/2 client with prior knowledge sends first (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long a CA that checks a name may take to read the end of its connection.
const CHALLENGE_END: Duration = Duration::from_secs(1);

/// A connection whose HTTP version is known.
pub(super) struct OpenedConnection {
    pub(super) link: Link,
    pub(super) client: Arc<Client>,
    /// Where the client showed a certificate.
    pub(super) trusted: Option<Trusted>,
    pub(super) version: Version,
}

/// What a connection speaks, with the bytes of it that were read to find out.
pub(super) enum Version {
    Http1(BytesMut),
    Http2(BytesMut),
}

/// Opens a connection; `None` when it ended before its version was known, which is recorded then. `since` is from before `config` was
/// asked for.
pub(super) async fn open(
    worker: &Worker,
    entry: &ConnectionControl,
    TcpConnection { tcp, ends }: TcpConnection,
    config: Option<Arc<ServerConfig>>,
    since: Generation,
) -> Option<OpenedConnection> {
    let Shaken { mut link, facts, trusted } = match config {
        None => Shaken { link: Link::Tcp(tcp), facts: None, trusted: None },
        // What a handshake needs, only those have who do one.
        Some(config) => Box::pin(shake(worker, entry, TcpConnection { tcp, ends }, config, since)).await?,
    };
    let client = Arc::new(ends.client(facts));
    let version = version(worker, &mut link, &client).await?;
    Some(OpenedConnection { link, client, trusted, version })
}

/// A connection behind its handshake, if it has one.
struct Shaken {
    link: Link,
    facts: Option<ClientTls>,
    trusted: Option<Trusted>,
}

/// Does the TLS handshake. One that fails is recorded.
async fn shake(
    worker: &Worker,
    entry: &ConnectionControl,
    TcpConnection { tcp, ends }: TcpConnection,
    config: Arc<ServerConfig>,
    since: Generation,
) -> Option<Shaken> {
    let timeout = worker.snapshot().settings.client_timeouts.handshake;
    let (accepted, deadline) = (Instant::now(), deadline(timeout));
    if tokio::time::timeout_at(deadline, sends_plain_http(&tcp)).await == Ok(true) {
        Box::pin(refuse_plain(worker, entry, TcpConnection { tcp, ends })).await;
        return None;
    }
    let accepting = TlsAcceptor::from(config).accept(Rewound::from(tcp));
    let tls = match tokio::time::timeout_at(deadline, accepting).await {
        Ok(Ok(tls)) => tls,
        Ok(Err(error)) => {
            failed(worker, ends, &error, accepted);
            return None;
        }
        Err(_) => {
            refused(worker, ends, "handshake_timeout", accepted);
            return None;
        }
    };
    if is_challenge(tls.get_ref().1) {
        Box::pin(end_challenge(tls)).await;
        return None;
    }
    let mut facts = facts(tls.get_ref().1);
    match trust(worker, tls.get_ref().1, &mut facts, since) {
        Ok(trusted) => Some(Shaken { link: Link::from(TlsStream::Server(tls)), facts: Some(facts), trusted }),
        Err(error) => {
            failed(worker, ends, &error, accepted);
            None
        }
    }
}

/// Whether a client that should begin a TLS handshake sends the first letter of a method instead. The byte stays to be read.
pub(super) async fn sends_plain_http(tcp: &TcpStream) -> bool {
    let mut first = [0];
    // The types of TLS records (RFC 8446 §5.1) are no letters.
    matches!(tcp.peek(&mut first).await, Ok(1)) && first[0].is_ascii_alphabetic()
}

/// Answers such a client with 400, as other servers do.
pub(super) async fn refuse_plain(
    worker: &Worker,
    entry: &ConnectionControl,
    TcpConnection { tcp, ends }: TcpConnection,
) {
    let client = Arc::new(ends.client(None));
    let timeout = worker.snapshot().settings.client_timeouts.header;
    h1::refuse_plain(worker, Link::Tcp(tcp), client, entry, timeout).await;
}

/// Ends the connection of a CA that has seen what it wanted to (RFC 8737 §3): nothing is sent over it.
async fn end_challenge(mut tls: impl AsyncWrite + Unpin) {
    let ending = tokio::time::timeout(CHALLENGE_END, tls.shutdown());
    drop(ending.await);
}

/// What a connection speaks: what was agreed on in its handshake, or what its first bytes say. HTTP/2 with prior knowledge begins
/// with its preface, everything else is HTTP/1. `None` when the connection ended before that, which is recorded then.
pub(super) async fn version(worker: &Worker, link: &mut Link, client: &Arc<Client>) -> Option<Version> {
    let mut buffer = BytesMut::new();
    if link.alpn() == Some(b"h2") {
        return Some(Version::Http2(buffer));
    }
    let timeout = worker.snapshot().settings.client_timeouts.header;
    let sniffing = async {
        loop {
            let read = poll_fn(|cx| link.poll_fill(cx, &mut buffer, HEAD_BYTES)).await;
            let common = buffer.len().min(PREFACE.len());
            if read.is_err() {
                // Nothing can be read any more, such as after a fatal TLS alert; reading again could wait for ever.
                return Sniffed::Lost;
            }
            if buffer[..common] != PREFACE[..common] || matches!(read, Ok(0)) {
                return Sniffed::Http1;
            }
            if common == PREFACE.len() {
                return Sniffed::Http2;
            }
        }
    };
    // A client that sends nothing at all opened the connection early; it is closed in silence.
    match tokio::time::timeout_at(deadline(timeout), sniffing).await {
        Ok(Sniffed::Http2) => Some(Version::Http2(buffer)),
        Ok(Sniffed::Http1) => Some(Version::Http1(buffer)),
        Ok(Sniffed::Lost) => {
            h1::lost(worker, client, (!buffer.is_empty()).then_some(&buffer));
            None
        }
        Err(_) if buffer.is_empty() => None,
        Err(_) => Some(Version::Http1(buffer)),
    }
}

/// What the first bytes of a connection are.
enum Sniffed {
    Http1,
    Http2,
    /// The connection is lost.
    Lost,
}
