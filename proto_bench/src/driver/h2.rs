//! HTTP/2 on the `h2` crate: one connection, as many requests in flight as it has lanes.

use std::future::poll_fn;
use std::rc::Rc;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{self, SendRequest};
use http::{HeaderMap, HeaderName, HeaderValue, Method as HttpMethod, Request, Uri, Version};
use tokio::task::spawn_local;

use super::choice::Choice;
use super::fault::compare;
use super::link::Linker;
use super::{Driver, Fault, Lane, NewConnection, Pattern, Stamp, VerifiedAnswer};
use crate::plan::{Expect, ExpectBody, Method, Plan};

/// Opens HTTP/2 connections.
pub struct H2 {
    linker: Linker,
    shape: Rc<Choice<H2Plan>>,
    streams: u32,
}

/// What all requests of a plan have in common.
pub(super) struct H2Plan {
    pub(super) head: Head,
    pub(super) pattern: Pattern,
    pub(super) expect: Expect,
    pub(super) content: Bytes,
}

/// A request's head, to be cloned for each request.
pub(super) struct Head {
    method: HttpMethod,
    uri: Uri,
    headers: HeaderMap,
}

/// One place for a request in flight on a connection.
pub struct Stream {
    sender: SendRequest<Bytes>,
    shape: Rc<Choice<H2Plan>>,
    body: Vec<u8>,
}

/// The name of the header in which a request without a body carries its stamp.
pub(super) const STAMP_HEADER: HeaderName = HeaderName::from_static("x-bench-stamp");

const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;

impl H2 {
    /// Prepares what all connections of a thread share.
    ///
    /// # Errors
    /// What makes every connection impossible, such as an unreadable root certificate.
    pub fn new(plan: &Rc<Plan>) -> Result<Self, Fault> {
        let payload = if plan.message.method == Method::Get { 0 } else { plan.message.payload };
        let shape = Choice::new(plan, |plan| {
            Ok(H2Plan {
                head: Head::new(plan)?,
                pattern: Pattern::new(payload),
                expect: plan.expect,
                content: plan.content.clone(),
            })
        })?;
        Ok(Self { linker: Linker::new(plan)?, shape: Rc::new(shape), streams: plan.load.streams.max(1) })
    }
}

impl Driver for H2 {
    type Lane = Stream;

    async fn connect(&self) -> Result<NewConnection<Stream>, Fault> {
        let (sender, negotiated) = open(&self.linker).await?;
        let lane = || Stream { sender: sender.clone(), shape: Rc::clone(&self.shape), body: Vec::new() };
        Ok(NewConnection { lanes: (0..self.streams).map(|_| lane()).collect(), negotiated })
    }
}

/// Opens a connection and lets it run beside its lanes.
pub(super) async fn open(linker: &Linker) -> Result<(SendRequest<Bytes>, Option<String>), Fault> {
    let (link, negotiated) = linker.open().await?;
    let (sender, connection) = client::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .enable_push(false)
        .handshake(link)
        .await
        .map_err(Fault::handshake)?;
    // Its errors reach every lane through their requests.
    spawn_local(async move { drop(connection.await) });
    Ok((sender, negotiated))
}

impl Lane for Stream {
    async fn round_trip(&mut self, stamp: Stamp) -> Result<VerifiedAnswer, Fault> {
        let choice = Rc::clone(&self.shape);
        let shape = choice.at(choice.place(stamp));
        let mut request = shape.head.request(stamp);
        if shape.pattern.size() > 0 {
            request.headers_mut().insert(http::header::CONTENT_LENGTH, shape.pattern.size().into());
        }
        let mut payload = vec![0; shape.pattern.size()];
        shape.pattern.write(stamp, &mut payload);
        let (head, mut body) = exchange(&mut self.sender, request, payload.into()).await?;
        self.body.clear();
        collect(&mut body, &mut self.body).await?;
        verify(shape, &head, stamp, &self.body)
    }
}

/// Sends a whole request and returns the answer's head and its body, still to be read.
pub(super) async fn exchange(
    sender: &mut SendRequest<Bytes>,
    request: Request<()>,
    payload: Bytes,
) -> Result<(http::response::Parts, RecvStream), Fault> {
    poll_fn(|cx| sender.poll_ready(cx)).await.map_err(fault)?;
    let (response, mut sending) = sender.send_request(request, payload.is_empty()).map_err(fault)?;
    if !payload.is_empty() {
        sending.send_data(payload, true).map_err(fault)?;
    }
    let (head, body) = response.await.map_err(fault)?.into_parts();
    Ok((head, body))
}

/// Reads a body to its end and gives the window back.
pub(super) async fn collect(body: &mut RecvStream, into: &mut Vec<u8>) -> Result<(), Fault> {
    while let Some(chunk) = body.data().await {
        let chunk = chunk.map_err(fault)?;
        into.extend_from_slice(&chunk);
        body.flow_control().release_capacity(chunk.len()).map_err(fault)?;
        if into.len() > LARGEST_BODY {
            return Err(Fault::protocol("body above 64 MiB"));
        }
    }
    Ok(())
}

/// Checks an answer with a plain body.
pub(super) fn verify(
    shape: &H2Plan,
    head: &http::response::Parts,
    stamp: Stamp,
    body: &[u8],
) -> Result<VerifiedAnswer, Fault> {
    let status = head.status.as_u16();
    if status != shape.expect.status {
        return Err(Fault::Status { got: status, expected: shape.expect.status });
    }
    let mut stamped = false;
    if let Some(echoed) = head.headers.get(STAMP_HEADER) {
        if echoed.as_bytes() != stamp.hex() {
            return Err(Fault::protocol("the stamp of another request came back"));
        }
        stamped = true;
    }
    match shape.expect.body {
        ExpectBody::Echo => {
            shape.pattern.check(stamp, body)?;
            stamped = true;
        }
        ExpectBody::Content(_) => compare(body, &shape.content)?,
        ExpectBody::Size(expected) if body.len() != expected => {
            return Err(Fault::Length { got: body.len(), expected });
        }
        ExpectBody::Size(_) | ExpectBody::Unverified => {}
    }
    Ok(VerifiedAnswer { status, body: body.len(), stamped, last: false })
}

/// Bytes of an answer's body at most.
pub(super) const LARGEST_BODY: usize = 64 * 1024 * 1024;

impl Head {
    pub(super) fn new(plan: &Plan) -> Result<Self, Fault> {
        let scheme = if plan.target.tls { "https" } else { "http" };
        let uri = format!("{scheme}://{}{}", plan.target.authority(), plan.target.path);
        let mut headers = HeaderMap::new();
        for (name, value) in &plan.message.headers {
            let name = HeaderName::try_from(name.as_str()).map_err(Fault::protocol)?;
            headers.append(name, HeaderValue::try_from(value.as_str()).map_err(Fault::protocol)?);
        }
        let method = match plan.message.method {
            Method::Post => HttpMethod::POST,
            Method::Get => HttpMethod::GET,
        };
        Ok(Self { method, uri: uri.parse().map_err(Fault::protocol)?, headers })
    }

    /// The same head with a header more.
    pub(super) fn with(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    /// One request of this stamp.
    pub(super) fn request(&self, stamp: Stamp) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = self.headers.clone();
        if self.method == HttpMethod::GET
            && let Ok(value) = HeaderValue::from_bytes(&stamp.hex())
        {
            request.headers_mut().insert(STAMP_HEADER, value);
        }
        request
    }
}

pub(super) fn fault(error: h2::Error) -> Fault {
    if error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR) {
        // RFC 9113 §6.8: what was sent above the GOAWAY's last stream was not processed.
        return Fault::Unprocessed;
    }
    if error.is_io() { Fault::Closed } else { Fault::protocol(error) }
}
