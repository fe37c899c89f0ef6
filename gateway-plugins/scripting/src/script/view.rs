//! What a script sees of an exchange: its heads are moved out while a function runs, and back afterwards.

use std::net::IpAddr;
use std::sync::Arc;

use atomic_refcell::{AtomicRefCell, AtomicRefMut};
use bytes::Bytes;
use gateway_core::consumer::Identity;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::{Client, Exchange, Field};
use gateway_core::http::reply::Reply;
use gateway_core::plugin::Seat;
use gateway_core::route::Captures;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use rhai::{Dynamic, FnPtr, Map};

use crate::message;

/// A script's `request`.
#[derive(Debug, Clone)]
pub(super) struct Request(pub(super) View);

/// A script's `response`.
#[derive(Debug, Clone)]
pub(super) struct ScriptResponse(pub(super) View);

/// An exchange as a script sees it.
#[derive(Debug, Clone)]
pub(super) struct View(Arc<AtomicRefCell<MessageView>>);

/// What is seen, and what was changed.
#[derive(Debug)]
pub(super) struct MessageView {
    pub(super) method: Method,
    pub(super) uri: Uri,
    /// Path and query as another plugin has set them for the target.
    pub(super) forward_path: Option<String>,
    pub(super) version: http::Version,
    pub(super) client: Arc<Client>,
    pub(super) scheme: &'static str,
    pub(super) client_address: IpAddr,
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) captures: Option<Box<Captures>>,
    pub(super) request_id: Option<HeaderValue>,
    pub(super) proxy: Arc<str>,
    pub(super) request: Message,
    pub(super) response: Option<(StatusCode, Message)>,
    pub(super) from_target: bool,
    pub(super) did: Did,
}

/// A message's head and body.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) headers: HeaderMap,
    /// The body, where it was read.
    read: Option<ReadBody>,
    /// What it is replaced by.
    new_body: Option<Bytes>,
}

/// What a script asked for.
#[derive(Debug, Default)]
pub(super) struct Did {
    pub(super) path: Option<String>,
    pub(super) query: Option<String>,
    pub(super) upstream: Option<Arc<str>>,
    pub(super) send_once: bool,
    pub(super) reply: Option<OwnReply>,
    pub(super) fetch: Option<Box<Fetch>>,
    pub(super) notes: Vec<(&'static str, Field)>,
    /// What `request.set` keeps.
    pub(super) values: Map,
    /// Fields that were set or removed.
    pub(super) fields: Vec<HeaderName>,
}

/// What a script answers.
#[derive(Debug)]
pub(super) struct OwnReply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl OwnReply {
    fn into_reply(self) -> Box<Reply> {
        let reply = Reply::fixed(self.status, self.body).reason("script");
        Box::new(Reply { headers: self.headers, ..reply })
    }
}

/// A call that a script wants made.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) server: usize,
    pub(super) request: http::Request<Bytes>,
    pub(super) then: FnPtr,
}

/// What the functions of the request leave for those of the response.
#[derive(Debug)]
pub(super) struct Values(pub(super) Map);

/// Bodies that were read before a function runs.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    pub(super) request: Option<ReadBody>,
    pub(super) response: Option<ReadBody>,
}

/// A body that was read, with its trailers.
pub(super) type ReadBody = (Bytes, Option<HeaderMap>);

impl View {
    /// What a script sees of an exchange, and of its response. The heads stay where they are until [`Self::swap`].
    pub(super) fn new(
        exchange: &mut Exchange,
        response: Option<&Response<Body>>,
        bodies: Bodies,
        seat: Seat<'_>,
    ) -> Self {
        let values = exchange.state.of_mut::<Values>(seat).map(|values| std::mem::take(&mut values.0));
        let response = response.map(|response| (response.status(), Message::new(bodies.response)));
        Self(Arc::new(AtomicRefCell::new(MessageView {
            method: exchange.request.method.clone(),
            uri: exchange.request.uri.clone(),
            forward_path: exchange.forward_path.clone(),
            version: exchange.version(),
            client: exchange.client.clone(),
            scheme: exchange.scheme(),
            client_address: exchange.client_address,
            identity: exchange.identity.clone(),
            captures: None,
            request_id: Some(exchange.id()),
            proxy: Arc::from(seat.proxy().id.as_str()),
            request: Message::new(bodies.request),
            response,
            from_target: exchange.is_from_target(),
            did: Did { values: values.unwrap_or_default(), ..Did::default() },
        })))
    }

    /// What is seen. Never held while a script runs.
    pub(super) fn see(&self) -> AtomicRefMut<'_, MessageView> {
        self.0.borrow_mut()
    }

    /// Moves the heads out of the exchange before a function runs, and back afterwards: nothing is copied, and nothing is
    /// missing while a call is under way.
    pub(super) fn swap(&self, exchange: &mut Exchange, response: Option<&mut Response<Body>>) {
        let mut seen = self.see();
        std::mem::swap(&mut seen.captures, &mut exchange.captures);
        std::mem::swap(&mut seen.request.headers, &mut exchange.request.headers);
        if let (Some((_, message)), Some(response)) = (&mut seen.response, response) {
            std::mem::swap(&mut message.headers, response.headers_mut());
        }
    }

    /// Carries out what the script has changed, once the heads are back; the reply, where there is one.
    pub(super) fn finish(
        &self,
        exchange: &mut Exchange,
        response: Option<&mut Response<Body>>,
        seat: Seat<'_>,
    ) -> Option<Box<Reply>> {
        let mut seen = self.see();
        let seen = &mut *seen;
        let did = std::mem::take(&mut seen.did);
        match (seen.response.take(), response) {
            (Some((status, message)), Some(response)) => {
                *response.status_mut() = status;
                let has_no_body = exchange.method() == Method::HEAD
                    || status.is_informational()
                    || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
                if let Some(body) = message.into_body() {
                    *response.body_mut() = if has_no_body { Body::empty() } else { body };
                }
            }
            _ => {
                if let Some(body) = std::mem::take(&mut seen.request).into_body() {
                    exchange.body = body;
                }
                did.fields.iter().for_each(|name| exchange.body.withhold_trailer(name));
                retarget(exchange, did.path, did.query);
                if let Some(upstream) = did.upstream {
                    exchange.choose_upstream(upstream);
                }
                if did.send_once {
                    exchange.send_once();
                }
            }
        }
        for (name, value) in did.notes {
            exchange.note(name, value);
        }
        if !did.values.is_empty() {
            exchange.state.put(seat, Values(did.values));
        }
        did.reply.map(OwnReply::into_reply)
    }
}

/// Has the target see another path or query.
fn retarget(exchange: &mut Exchange, path: Option<String>, query: Option<String>) {
    if path.is_none() && query.is_none() {
        return;
    }
    let as_is = |query: &str| if query.is_empty() { String::new() } else { format!("?{query}") };
    let (old_path, old_query) = match &exchange.forward_path {
        Some(target) => {
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            (Some(path.to_owned()), query.to_owned())
        }
        None => (None, exchange.request.uri.query().unwrap_or_default().to_owned()),
    };
    match path.or(old_path) {
        Some(path) => {
            let query = as_is(&query.unwrap_or(old_query));
            exchange.forward_path = Some(format!("{path}{query}"));
        }
        None => {
            let query = query.filter(|query| !query.is_empty());
            // What the script set was checked; a query that can't be set leaves the request as it was.
            if let Err(error) = exchange.set_query(query.as_deref()) {
                tracing::debug!(%error, "a script's query can't be used");
            }
        }
    }
}

impl MessageView {
    /// The path that the target will see unless the proxy strips some of it.
    pub(super) fn path(&self) -> &str {
        let forwarded = || self.forward_path.as_deref().map(|it| it.split('?').next().unwrap_or(it));
        self.did.path.as_deref().or_else(forwarded).unwrap_or_else(|| self.uri.path())
    }

    /// The query, without its `?`.
    pub(super) fn query(&self) -> &str {
        let of_target = match &self.forward_path {
            Some(target) => target.split_once('?').map_or("", |(_, query)| query),
            None => self.uri.query().unwrap_or_default(),
        };
        self.did.query.as_deref().unwrap_or(of_target)
    }

    pub(super) fn message(&mut self, is_response: bool) -> Option<&mut Message> {
        match is_response {
            true => self.response.as_mut().map(|(_, message)| message),
            false => Some(&mut self.request),
        }
    }
}

impl Message {
    fn new(read: Option<ReadBody>) -> Self {
        Self { headers: HeaderMap::new(), read, new_body: None }
    }

    /// The body as it is now.
    pub(super) fn body(&self) -> Option<&Bytes> {
        self.new_body.as_ref().or_else(|| self.read.as_ref().map(|(body, _)| body))
    }

    /// The body to forward, where it was read or replaced, with the trailers that were read, such as the status of gRPC.
    fn into_body(self) -> Option<Body> {
        let (read, mut trailers) = self.read.map_or((None, None), |(body, trailers)| (Some(body), trailers));
        if let (Some(_), Some(trailers)) = (&self.new_body, &mut trailers) {
            message::forget_bytes(trailers);
        }
        let body = self.new_body.or(read)?;
        Some(match trailers {
            Some(trailers) => Body::full_with_trailers(body, trailers),
            None => Body::full(body),
        })
    }

    pub(super) fn replace_body(&mut self, body: Bytes) {
        // Rhai writes back what a method was called on: `response.body.len()` comes here with the body as it was.
        if self.body() == Some(&body) {
            return;
        }
        let had_length = self.headers.contains_key(CONTENT_LENGTH);
        message::forget_bytes(&mut self.headers);
        if had_length || !body.is_empty() {
            self.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        self.new_body = Some(body);
    }
}

/// A text, or `()` where there is none.
pub(super) fn text(value: Option<impl Into<String>>) -> Dynamic {
    value.map_or(Dynamic::UNIT, |value| Dynamic::from(value.into()))
}
