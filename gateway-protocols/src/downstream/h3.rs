//! HTTP/3 with a client: a QUIC connection is a task, and each of its exchanges another on the same worker.

use std::future::{Future, poll_fn};
use std::net::UdpSocket;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ::h3::error::Code;
use ::h3::server::RequestStream;
use bytes::Bytes;
use gateway_core::http::body::Body;
use gateway_core::http::downstream::{Delivery, Downstream};
use gateway_core::http::exchange::{Client, ClientTls, Exchange};
use gateway_core::http::reply::Cause;
use gateway_core::stream::relay::Tunnel;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::task::JoinSet;

use super::{Entry, complete, cut_by};
use crate::h3::recv::RecvBody;
use crate::h3::send::{SendError, Whole, send_body};
use crate::quic::{self, Place};
use crate::worker::Worker;

type Sending = RequestStream<::h3_quinn::SendStream<Bytes>, Bytes>;
type Receiving = RequestStream<::h3_quinn::RecvStream, Bytes>;

/// Serves QUIC clients on a socket until the task is ended.
pub(crate) async fn serve(worker: Arc<Worker>, socket: UdpSocket, config: quinn::ServerConfig, place: Place) {
    let local = socket.local_addr();
    let endpoint = match quic::listen(socket, config, place) {
        Ok(endpoint) => endpoint,
        Err(error) => return tracing::error!(%error, ?local, "HTTP/3 could not be served"),
    };
    // Ends with the endpoint: connections are told, and none outlives the listener.
    while let Some(incoming) = endpoint.accept().await {
        let Some(permit) = worker.shared().overload.connection() else {
            incoming.refuse();
            worker.connection_refused();
            continue;
        };
        // An address is believed only once it has answered, when many connections are being made.
        if endpoint.open_connections() > VALIDATE_BEYOND && !incoming.remote_address_validated() {
            drop(incoming.retry());
            continue;
        }
        worker.spawn_counted(permit, |entry| connection(worker.clone(), incoming, entry));
    }
}

/// With more connections than this, a new client proves its address by a round trip first.
const VALIDATE_BEYOND: usize = 1000;

/// How long a client that was told goodbye may take to close. QUIC forgets what is not yet delivered when a
/// connection is closed, so that is left to the client; one that does not do it must not hold up a drain.
const LINGER: Duration = Duration::from_secs(1);

async fn connection(worker: Arc<Worker>, incoming: quinn::Incoming, entry: Arc<Entry>) {
    let settings = worker.snapshot().settings.clone();
    let accepting = async { incoming.accept().ok()?.await.ok() };
    let timeout = settings.client_timeouts.handshake;
    let Ok(Some(quic)) = tokio::time::timeout(timeout, accepting).await else { return };
    let peer = quic.remote_address();
    let trusted = settings.trusted_proxies.iter().any(|net| net.contains(&peer.ip().to_canonical()));
    let local = std::net::SocketAddr::new(
        quic.local_ip().unwrap_or(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)),
        settings.https.map_or(0, |address| address.port()),
    );
    let client = Arc::new(Client::new(peer, local, trusted, Some(facts(&quic))));
    let mut builder = ::h3::server::builder();
    builder.max_field_section_size(settings.limits.max_header_bytes as u64);
    drop(settings);
    let wire = builder.build::<_, Bytes>(::h3_quinn::Connection::new(quic.clone())).await;
    let Ok(mut wire) = wire else { return };
    // Dropped with the connection, which ends whatever is still under way: nobody waits for it any more.
    let mut exchanges = JoinSet::new();
    loop {
        let next = {
            let mut accepting = pin!(wire.accept());
            poll_fn(|cx| {
                entry.watch(cx);
                if entry.is_draining() { Poll::Ready(None) } else { accepting.as_mut().poll(cx).map(Some) }
            })
            .await
        };
        match next {
            Some(Ok(Some(resolver))) => {
                while exchanges.try_join_next().is_some() {}
                let (worker, mut client) = (worker.clone(), client.clone());
                if quic.remote_address() != client.peer {
                    // The client has moved; limits and logs go by where it is now.
                    let tls = client.tls.clone();
                    client = Arc::new(Client::new(quic.remote_address(), client.local, client.trusted, tls));
                }
                let guard = worker.clone();
                exchanges.spawn(async move {
                    guard
                        .guarded(async {
                            if let Ok((request, stream)) = resolver.resolve_request().await {
                                exchange(&worker, request, stream.split(), client).await;
                            }
                        })
                        .await;
                });
            }
            // The client sends nothing more, but still waits for its answers.
            Some(Ok(None)) => break,
            None if wire.shutdown(0).await.is_ok() => break,
            Some(Err(_)) | None => return,
        }
    }
    while exchanges.join_next().await.is_some() {}
    drop(tokio::time::timeout(LINGER, quic.closed()).await);
}

fn facts(quic: &quinn::Connection) -> ClientTls {
    let handshake = quic.handshake_data();
    let handshake = handshake.and_then(|data| data.downcast::<quinn::crypto::rustls::HandshakeData>().ok());
    let chain = quic.peer_identity();
    let chain =
        chain.and_then(|chain| chain.downcast::<Vec<rustls_pki_types::CertificateDer<'static>>>().ok());
    ClientTls {
        server_name: handshake.and_then(|data| data.server_name.as_deref().map(Arc::from)),
        version: "TLSv1.3",
        cipher: "unknown",
        certificate: chain.and_then(|chain| chain.first().map(|leaf| Arc::from(leaf.as_ref()))),
    }
}

/// Serves one exchange.
async fn exchange(
    worker: &Worker,
    request: Request<()>,
    (sending, receiving): (Sending, Receiving),
    client: Arc<Client>,
) {
    let snapshot = worker.snapshot();
    let idle = snapshot.settings.client_timeouts.body;
    let head = *request.method() == Method::HEAD;
    let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let bodiless = length == Some(0) || (length.is_none() && is_usually_bodiless(request.method()));
    let request = request.map(|()| match bodiless {
        // What such a request sends all the same is not read; its stream is stopped when it is dropped.
        true => Body::empty(),
        false => Body::stream(RecvBody::new(receiving, length, idle)),
    });
    let mut responder = Responder { sending: Whole::new(sending, Code::H3_INTERNAL_ERROR), head, idle };
    worker.pipeline().serve(&snapshot, Exchange::new(request, client), &mut responder).await;
}

/// The end of a stream is seen only by reading it; for these methods a missing length means that nothing follows.
fn is_usually_bodiless(method: &Method) -> bool {
    *method == Method::GET
        || *method == Method::HEAD
        || *method == Method::OPTIONS
        || *method == Method::DELETE
}

struct Responder {
    sending: Whole<Sending>,
    head: bool,
    idle: Duration,
}

impl Downstream for Responder {
    async fn interim(&mut self, status: StatusCode, headers: &HeaderMap) {
        let mut response = Response::new(());
        *response.status_mut() = status;
        response.headers_mut().clone_from(headers);
        // A client that can't take it is gone, which the final response will find out.
        drop(self.sending.stream.send_response(response).await);
    }

    /// The h3 crate knows no `:protocol` for WebSockets (RFC 9220), so no exchange over HTTP/3 asks for one.
    async fn upgrade(&mut self, _response: Response<()>) -> Option<Tunnel> {
        None
    }

    async fn respond(&mut self, response: Response<Body>) -> Delivery {
        let (parts, body) = response.into_parts();
        let status = parts.status;
        let mut response = Response::from_parts(parts, ());
        let bodiless = self.head || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        complete(response.headers_mut(), bodiless, &body);
        if self.sending.stream.send_response(response).await.is_err() {
            return Delivery { bytes: 0, cut: Some(Cause::ClientGone) };
        }
        let body = if bodiless { Body::empty() } else { body };
        let mut bytes = 0;
        let cut = match send_body(&mut self.sending, body, self.idle, &mut bytes).await {
            Ok(()) => None,
            Err(SendError::Body(error)) => Some(cut_by(&error)),
            Err(SendError::Stream) => Some(Cause::ClientGone),
        };
        Delivery { bytes, cut }
    }
}
