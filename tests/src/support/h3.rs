//! HTTP/3 by the quinn and h3 crates: a client, and an origin whose streams a test serves.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use ferrum_edge::core::plugin::Registry;
use h3::client::SendRequest;
use h3::error::StreamError;
use http::{HeaderMap, Request, Response};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, ServerConfig};
use tokio::sync::mpsc;

use super::edge::Edge;
use super::{soon, tls};

/// A client's connection.
pub(crate) struct Client {
    pub(crate) endpoint: Endpoint,
    pub(crate) quic: quinn::Connection,
    requests: SendRequest<h3_quinn::OpenStreams, Bytes>,
}

/// A client's stream.
pub(crate) struct Stream(pub(crate) h3::client::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>);

/// An answer read to its end.
pub(crate) struct Answer {
    pub(crate) head: Response<()>,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

/// A gateway that serves HTTP/3. The UDP port of its https port may be somebody else's; then another is tried.
pub(crate) fn edge_with(settings: &str, spec: &str) -> Edge {
    edge_plugged(&ferrum_edge::plugins(), settings, spec)
}

/// As [`edge_with`], with plugins of the test's own.
pub(crate) fn edge_plugged(registry: &Registry, settings: &str, spec: &str) -> Edge {
    let settings = format!("  http3: true\n{settings}");
    let start = || Edge::start_plugged(registry.clone(), &settings, spec);
    for _ in 0..5 {
        if let Ok(edge) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(start)) {
            return edge;
        }
    }
    start()
}

impl Client {
    pub(crate) async fn open(to: SocketAddr) -> Self {
        Self::open_with(to, "").await
    }

    /// A client that prefers the cipher suite whose name ends like this.
    pub(crate) async fn open_with(to: SocketAddr, suite: &str) -> Self {
        Self::open_as(to, tls::authority().client_preferring(&["h3"], suite)).await
    }

    /// This client, whose ALPN is `h3`.
    pub(crate) async fn open_as(to: SocketAddr, client: Arc<rustls::ClientConfig>) -> Self {
        let endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a socket");
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(client).expect("TLS 1.3")));
        let connecting = endpoint.connect_with(config, to, "gateway.test").expect("a connection begun");
        let quic = soon(connecting).await.expect("a connection");
        Self::over(endpoint, quic).await
    }

    /// HTTP/3 on a connection.
    pub(crate) async fn over(endpoint: Endpoint, quic: quinn::Connection) -> Self {
        let (mut driver, requests) =
            soon(h3::client::new(h3_quinn::Connection::new(quic.clone()))).await.expect("HTTP/3");
        tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
        Self { endpoint, quic, requests }
    }

    /// Sends a request's head.
    pub(crate) async fn begin(&self, method: &str, path: &str) -> Stream {
        let request = Request::builder().method(method).uri(format!("https://a.test{path}"));
        self.send(request.body(()).expect("a request")).await
    }

    pub(crate) async fn send(&self, request: Request<()>) -> Stream {
        Stream(soon(self.requests.clone().send_request(request)).await.expect("a stream"))
    }

    /// A request without a body and its whole answer.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        let mut stream = self.begin("GET", path).await;
        stream.finish().await;
        stream.answer().await.expect("an answer")
    }
}

impl Stream {
    pub(crate) async fn data(&mut self, data: impl Into<Bytes>) {
        soon(self.0.send_data(data.into())).await.expect("data sent");
    }

    pub(crate) async fn finish(&mut self) {
        soon(self.0.finish()).await.expect("the end sent");
    }

    pub(crate) async fn head(&mut self) -> Result<Response<()>, StreamError> {
        soon(self.0.recv_response()).await
    }

    /// The next piece of the body; `None` at its end.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, StreamError> {
        let data = soon(self.0.recv_data()).await?;
        Ok(data.map(|mut data| data.copy_to_bytes(data.remaining())))
    }

    pub(crate) async fn answer(&mut self) -> Result<Answer, StreamError> {
        let head = self.head().await?;
        Ok(Answer { head, ..self.rest().await? })
    }

    /// What follows a head.
    pub(crate) async fn rest(&mut self) -> Result<Answer, StreamError> {
        let mut body = BytesMut::new();
        while let Some(piece) = self.piece().await? {
            body.extend_from_slice(&piece);
        }
        let trailers = soon(self.0.recv_trailers()).await?.unwrap_or_default();
        Ok(Answer { head: Response::new(()), body: body.freeze(), trailers })
    }
}

/// A stream an origin was sent.
pub(crate) type Served = (Request<()>, h3::server::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>);

/// An origin that speaks HTTP/3 at `address`, and all streams of all its connections.
pub(crate) fn origin(address: SocketAddr) -> io::Result<(SocketAddr, mpsc::UnboundedReceiver<Served>)> {
    let crypto = QuicServerConfig::try_from(tls::server(tls::localhost(), &["h3"])).expect("TLS 1.3");
    let endpoint = Endpoint::server(ServerConfig::with_crypto(Arc::new(crypto)), address)?;
    let address = endpoint.local_addr()?;
    let (sender, streams) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let Ok(quic) = incoming.await else { return };
                let wire = h3::server::Connection::new(h3_quinn::Connection::new(quic)).await;
                let Ok(mut wire) = wire else { return };
                while let Ok(Some(resolver)) = wire.accept().await {
                    let Ok(served) = resolver.resolve_request().await else { continue };
                    if sender.send(served).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok((address, streams))
}
