//! A client and an origin that say the same in HTTP/1.1 and HTTP/2, so that one script is played over both.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::sync::mpsc;

use super::edge::Edge;
use super::h1::{Talker, malformed};
use super::wire::{Port, Wire, connect};
use super::{h2 as two, soon};

/// How one side of the gateway is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireProtocol {
    H1,
    H1Tls,
    H2,
    H2Tls,
}

impl WireProtocol {
    pub(crate) fn is_h2(self) -> bool {
        matches!(self, Self::H2 | Self::H2Tls)
    }

    pub(crate) fn is_tls(self) -> bool {
        matches!(self, Self::H1Tls | Self::H2Tls)
    }

    /// What ALPN offers; `None` without TLS.
    fn alpn(self) -> Option<&'static [&'static str]> {
        match self {
            Self::H1 | Self::H2 => None,
            Self::H1Tls => Some(&["http/1.1"]),
            Self::H2Tls => Some(&["h2"]),
        }
    }

    /// The fields of a proxy that make the gateway speak so to its target.
    pub(crate) fn backend(self, address: SocketAddr) -> String {
        let (scheme, version) =
            (if self.is_tls() { "https" } else { "http" }, if self.is_h2() { "2" } else { "1.1" });
        let port = address.port();
        let mut fields = format!(
            "backend_scheme: {scheme}, backend_http_version: '{version}', backend_host: 127.0.0.1, backend_port: {port}"
        );
        if self.is_tls() {
            fields.push_str(&format!(", backend_tls_ca_path: {:?}", super::tls::authority().ca()));
        }
        fields
    }
}

/// A request a client makes.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: Will,
}

/// What body will follow a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Will {
    Nothing,
    Length(usize),
    Stream,
}

/// A head that arrived.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
}

impl Got {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}

/// A client's side of one exchange.
pub(crate) enum Client {
    H1 { talker: Talker, method: Method },
    H2 { sending: SendStream<Bytes>, response: Box<ResponseFuture>, recv: Option<RecvStream> },
}

impl Client {
    /// Opens a connection and sends a request's head.
    pub(crate) async fn ask(edge: &Edge, kind: WireProtocol, ask: Ask<'_>) -> Self {
        let to = if kind.is_tls() { edge.https() } else { edge.http() };
        let io = connect(to, kind.alpn()).await;
        if !kind.is_h2() {
            let mut talker = Talker::new(Wire::new(io));
            let mut headers = vec![("host", "a.test")];
            headers.extend_from_slice(ask.headers);
            let length = match ask.body {
                Will::Nothing => Some(0),
                Will::Length(length) => Some(length),
                Will::Stream => None,
            };
            let line = format!("{} {} HTTP/1.1", ask.method, ask.path);
            talker.send_head(&line, &headers, length).await.expect("a request sent");
            return Self::H1 { talker, method: ask.method };
        }
        let mut requests = two::client(io).await;
        let scheme = if kind.is_tls() { "https" } else { "http" };
        let mut request = Request::new(());
        *request.method_mut() = ask.method;
        *request.uri_mut() = format!("{scheme}://a.test{}", ask.path).parse().expect("a URI");
        *request.headers_mut() = two::map(ask.headers);
        if let Will::Length(length) = ask.body {
            request.headers_mut().insert("content-length", length.into());
        }
        soon(std::future::poll_fn(|cx| requests.poll_ready(cx))).await.expect("room for a stream");
        let (response, sending) =
            requests.send_request(request, ask.body == Will::Nothing).expect("a request sent");
        Self::H2 { sending, response: Box::new(response), recv: None }
    }

    /// The next head, also an informational one.
    pub(crate) async fn head(&mut self) -> io::Result<Got> {
        match self {
            Self::H1 { talker, method } => {
                let head = talker.response(method).await?;
                Ok(Got { status: head.status(), headers: head.headers })
            }
            Self::H2 { response, recv, .. } => {
                let head = soon(std::future::poll_fn(|cx| {
                    if let std::task::Poll::Ready(Some(Ok(interim))) = response.poll_informational(cx) {
                        return std::task::Poll::Ready(Ok(interim.map(|()| None)));
                    }
                    Future::poll(std::pin::Pin::new(response), cx).map_ok(|head| head.map(Some))
                }))
                .await
                .map_err(io::Error::other)?;
                let (parts, body) = head.into_parts();
                *recv = body;
                Ok(Got { status: parts.status.as_u16(), headers: parts.headers })
            }
        }
    }

    /// The next piece of the answer's body; `None` at its end.
    pub(crate) async fn data(&mut self) -> io::Result<Option<Bytes>> {
        match self {
            Self::H1 { talker, .. } => talker.data().await,
            Self::H2 { recv, .. } => match recv {
                Some(recv) => two::data(recv).await,
                None => Err(malformed("no head yet")),
            },
        }
    }

    /// The rest of the answer's body.
    pub(crate) async fn body(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(data) = self.data().await? {
            body.extend_from_slice(&data);
        }
        Ok(body)
    }

    /// The trailers, after the body.
    pub(crate) async fn trailers(&mut self) -> io::Result<HeaderMap> {
        match self {
            Self::H1 { talker, .. } => Ok(std::mem::take(&mut talker.trailers)),
            Self::H2 { recv: Some(recv), .. } => {
                Ok(soon(recv.trailers()).await.map_err(io::Error::other)?.unwrap_or_default())
            }
            Self::H2 { .. } => Err(malformed("no head yet")),
        }
    }

    pub(crate) async fn send(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Self::H1 { talker, .. } => talker.send_data(data).await,
            Self::H2 { sending, .. } => two::send(sending, data, false).await,
        }
    }

    pub(crate) async fn finish(&mut self, trailers: &[(&str, &str)]) -> io::Result<()> {
        match self {
            Self::H1 { talker, .. } => talker.finish(trailers).await,
            Self::H2 { sending, .. } if trailers.is_empty() => two::send(sending, b"", true).await,
            Self::H2 { sending, .. } => sending.send_trailers(two::map(trailers)).map_err(io::Error::other),
        }
    }

    /// Goes away in the middle.
    pub(crate) fn hang_up(self) {
        if let Self::H2 { mut sending, .. } = self {
            sending.send_reset(Reason::CANCEL);
        }
    }
}

/// An origin: everything that connects to it may ask.
pub(crate) enum Origin {
    H1(Port),
    H2(mpsc::UnboundedReceiver<two::Stream>),
}

/// An origin's side of one exchange.
pub(crate) struct Served {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    side: Side,
}

enum Side {
    H1(Talker),
    H2 { recv: RecvStream, respond: SendResponse<Bytes>, sending: Option<SendStream<Bytes>> },
}

impl Origin {
    /// An origin, and what a proxy has to say to reach it.
    pub(crate) async fn listen(kind: WireProtocol) -> (Self, String) {
        let port = Port::listen(kind.alpn()).await;
        let backend = kind.backend(port.address);
        (if kind.is_h2() { Self::H2(two::origin(port)) } else { Self::H1(port) }, backend)
    }

    /// The next exchange; in HTTP/1.1 on a new connection.
    pub(crate) async fn serve(&mut self) -> Served {
        match self {
            Self::H1(port) => {
                let mut talker = Talker::new(Wire::new(port.accept().await));
                let head = talker.request().await.expect("a request");
                let mut words = head.line.split(' ');
                let method = words.next().and_then(|word| word.parse().ok()).expect("a method");
                let path = words.next().unwrap_or("").to_owned();
                Served { method, path, headers: head.headers, side: Side::H1(talker) }
            }
            Self::H2(streams) => {
                let (request, respond) = soon(streams.recv()).await.expect("a stream");
                let (parts, recv) = request.into_parts();
                let path = parts.uri.path_and_query().map_or("", |target| target.as_str()).to_owned();
                Served {
                    method: parts.method,
                    path,
                    headers: parts.headers,
                    side: Side::H2 { recv, respond, sending: None },
                }
            }
        }
    }
}

impl Served {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    /// The next piece of the request's body; `None` at its end.
    pub(crate) async fn data(&mut self) -> io::Result<Option<Bytes>> {
        match &mut self.side {
            Side::H1(talker) => talker.data().await,
            Side::H2 { recv, .. } => two::data(recv).await,
        }
    }

    /// The rest of the request's body.
    pub(crate) async fn body(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(data) = self.data().await? {
            body.extend_from_slice(&data);
        }
        Ok(body)
    }

    pub(crate) async fn trailers(&mut self) -> io::Result<HeaderMap> {
        match &mut self.side {
            Side::H1(talker) => Ok(std::mem::take(&mut talker.trailers)),
            Side::H2 { recv, .. } => {
                Ok(soon(recv.trailers()).await.map_err(io::Error::other)?.unwrap_or_default())
            }
        }
    }

    pub(crate) async fn interim(&mut self, status: u16, headers: &[(&str, &str)]) {
        match &mut self.side {
            Side::H1(talker) => {
                let line = format!("HTTP/1.1 {status} Interim");
                talker.send_head(&line, headers, Some(0)).await.expect("an interim head sent");
            }
            Side::H2 { respond, .. } => {
                respond.send_informational(response(status, headers)).expect("an interim head sent");
            }
        }
    }

    /// Sends the final head.
    pub(crate) async fn respond(&mut self, status: u16, headers: &[(&str, &str)], body: Will) {
        match &mut self.side {
            Side::H1(talker) => {
                let line = format!("HTTP/1.1 {status} Final");
                let length = match body {
                    Will::Nothing => Some(0),
                    Will::Length(length) => Some(length),
                    Will::Stream => None,
                };
                talker.send_head(&line, headers, length).await.expect("a head sent");
            }
            Side::H2 { respond, sending, .. } => {
                let mut head = response(status, headers);
                if let Will::Length(length) = body {
                    head.headers_mut().insert("content-length", length.into());
                }
                *sending = Some(respond.send_response(head, body == Will::Nothing).expect("a head sent"));
            }
        }
    }

    pub(crate) async fn send(&mut self, data: &[u8]) -> io::Result<()> {
        match &mut self.side {
            Side::H1(talker) => talker.send_data(data).await,
            Side::H2 { sending: Some(sending), .. } => two::send(sending, data, false).await,
            Side::H2 { .. } => Err(malformed("no head yet")),
        }
    }

    pub(crate) async fn finish(&mut self, trailers: &[(&str, &str)]) -> io::Result<()> {
        match &mut self.side {
            Side::H1(talker) => talker.finish(trailers).await,
            Side::H2 { sending: Some(sending), .. } if trailers.is_empty() => {
                two::send(sending, b"", true).await
            }
            Side::H2 { sending: Some(sending), .. } => {
                sending.send_trailers(two::map(trailers)).map_err(io::Error::other)
            }
            Side::H2 { .. } => Err(malformed("no head yet")),
        }
    }

    /// Breaks off: closes the connection, or resets the stream.
    pub(crate) fn break_off(self) {
        if let Side::H2 { mut respond, sending, .. } = self.side {
            match sending {
                Some(mut sending) => sending.send_reset(Reason::INTERNAL_ERROR),
                None => respond.send_reset(Reason::INTERNAL_ERROR),
            }
        }
    }

    /// Waits until the gateway has given this exchange up.
    pub(crate) async fn gone(mut self) {
        match &mut self.side {
            Side::H1(talker) => drop(talker.wire.rest().await),
            Side::H2 { sending: Some(sending), .. } => {
                drop(soon(std::future::poll_fn(|cx| sending.poll_reset(cx))).await);
            }
            Side::H2 { respond, .. } => drop(soon(std::future::poll_fn(|cx| respond.poll_reset(cx))).await),
        }
    }
}

fn response(status: u16, headers: &[(&str, &str)]) -> Response<()> {
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::from_u16(status).expect("a status");
    *head.headers_mut() = two::map(headers);
    head
}
