//! What another server is asked about a request.

use bytes::Bytes;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::Seat;
use gateway_core::template::{MAX_RENDERED, Render, Template, TextContext};
use gateway_plugin_common::facts;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use schemars::JsonSchema;
use serde::Deserialize;

/// Protocol of the authorization request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Convention {
    /// Traefik's ForwardAuth.
    #[default]
    Traefik,
    /// nginx's `auth_request`.
    Nginx,
    /// Envoy's `ext_authz` over HTTP.
    Envoy,
    /// Envoy's `ext_authz` over gRPC.
    EnvoyGrpc,
}

/// How questions are put.
pub(super) struct Question {
    pub(super) uri: Uri,
    pub(super) convention: Convention,
    /// Header fields that are sent; `None` is all.
    pub(super) headers: Option<Vec<HeaderName>>,
    pub(super) preserve_method: bool,
    pub(super) preserve_host: bool,
    /// Whether the request's query is that of the question.
    pub(super) preserve_query: bool,
    /// Bytes of a body that is sent along; `None` sends none.
    pub(super) body: Option<u64>,
    /// Fields that are set, or removed where their text is empty.
    pub(super) set: Vec<(HeaderName, Template)>,
}

/// Fields that say where a request comes from and how it was: what a client writes there counts for nothing.
const OURS: [&str; 12] = [
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-method",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-uri",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-real-ip",
    "forwarded",
    "x-consumer-username",
];

impl Question {
    /// The question about this request, whose body is whole again afterwards.
    ///
    /// # Errors
    /// The refusal of a body that is too large, or broken, or of a request for which a field can't be made.
    pub(super) async fn about(
        &self,
        exchange: &mut Exchange,
        seat: Seat<'_>,
    ) -> Result<Request<Body>, Box<Reply>> {
        let body = match self.body {
            Some(limit) => read(&mut exchange.body, limit).await?,
            None => Bytes::new(),
        };
        let method = match (self.convention, self.preserve_method) {
            (Convention::Envoy, _) | (_, true) => exchange.request.method.clone(),
            _ => Method::GET,
        };
        let mut request = Request::new(Body::full(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.target(exchange).ok_or_else(|| {
            Box::new(Reply::new(Cause::BadRequest).detail("the request's target can't be checked"))
        })?;
        let mut fields = self.fields(exchange);
        self.set_fields(exchange, seat, &mut fields)?;
        *request.headers_mut() = fields;
        Ok(request)
    }

    /// Sets the fields that templates make. A request for which one can't be made is not asked about without it.
    fn set_fields(
        &self,
        exchange: &Exchange,
        seat: Seat<'_>,
        fields: &mut HeaderMap,
    ) -> Result<(), Box<Reply>> {
        let facts = facts::of(exchange, seat);
        let mut text = Vec::new();
        for (name, template) in &self.set {
            text.clear();
            let made = template.render(&facts, TextContext::Text, MAX_RENDERED, &mut text).ok();
            let value = made.and_then(|()| HeaderValue::from_bytes(&text).ok()).ok_or_else(|| {
                let detail = format!("{name} of the authorization request can't be made");
                Box::new(Reply::new(Cause::BadRequest).detail(detail))
            })?;
            if value.is_empty() {
                fields.remove(name);
            } else {
                fields.insert(name.clone(), value);
            }
        }
        Ok(())
    }

    /// The URL that is asked.
    fn target(&self, exchange: &Exchange) -> Option<Uri> {
        let query = exchange.request.uri.query().filter(|_| self.preserve_query);
        let path = match (self.convention, query) {
            (Convention::Envoy, _) => {
                format!("{}{}", self.uri.path().trim_end_matches('/'), original(exchange))
            }
            (_, Some(query)) => format!("{}?{query}", self.uri.path()),
            (_, None) => return Some(self.uri.clone()),
        };
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query = Some(path.parse().ok()?);
        Uri::from_parts(parts).ok()
    }

    fn fields(&self, exchange: &Exchange) -> HeaderMap {
        let all = &exchange.request.headers;
        let mut sent = HeaderMap::new();
        match &self.headers {
            None if self.convention == Convention::Envoy => copy(all, &mut sent, &[AUTHORIZATION, COOKIE]),
            None => sent.clone_from(all),
            Some(names) => copy(all, &mut sent, names),
        }
        // Framing is the call's own.
        for name in [CONTENT_LENGTH, EXPECT, HOST] {
            sent.remove(name);
        }
        if self.body.is_some() {
            copy(all, &mut sent, &[CONTENT_TYPE, CONTENT_ENCODING]);
        }
        for name in OURS {
            sent.remove(name);
        }
        let mut put = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                sent.insert(name, value);
            }
        };
        let host = exchange.authority().unwrap_or_default();
        put("x-forwarded-for", &exchange.client_address.to_string());
        put("x-forwarded-proto", exchange.scheme());
        put("x-forwarded-host", host);
        if self.preserve_host {
            put("host", host);
        }
        match self.convention {
            Convention::Traefik => {
                put("x-forwarded-method", exchange.request.method.as_str());
                put("x-forwarded-uri", &original(exchange));
            }
            Convention::Nginx => {
                put("x-original-method", exchange.request.method.as_str());
                put("x-original-uri", &original(exchange));
                put("x-original-url", &format!("{}://{host}{}", exchange.scheme(), original(exchange)));
                put("x-real-ip", &exchange.client_address.to_string());
            }
            Convention::Envoy => put("host", host),
            // It has a question of its own.
            Convention::EnvoyGrpc => {}
        }
        if let Some(identity) = &exchange.identity {
            put("x-consumer-username", &identity.name);
        }
        sent
    }
}

/// Puts fields of these names in the place of those that are there.
fn copy(from: &HeaderMap, to: &mut HeaderMap, names: &[HeaderName]) {
    for name in names {
        to.remove(name);
        for value in from.get_all(name) {
            to.append(name, value.clone());
        }
    }
}

/// Path and query as the gateway routes by them and the target reads them: as the client spelled them, `/a/../b` would be judged as
/// another path than it is.
pub(super) fn original(exchange: &Exchange) -> String {
    let uri = &exchange.request.uri;
    uri.path_and_query().map_or_else(|| uri.path().to_owned(), |target| target.as_str().to_owned())
}

pub(super) async fn read(body: &mut Body, limit: u64) -> Result<Bytes, Box<Reply>> {
    let too_large = || {
        let reply = Reply::new(Cause::BodyTooLarge).detail("the body is too large to be checked");
        Box::new(reply.reason("forward_auth_body_too_large"))
    };
    if body.exact_length().is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    match body.peek(limit.saturating_add(1)).await {
        Ok(bytes) if bytes.len() as u64 > limit => Err(too_large()),
        Ok(bytes) => Ok(bytes),
        Err(BodyError::TooLarge { .. }) => Err(too_large()),
        Err(BodyError::NoRoom) => Err(Box::new(Reply::new(Cause::Overloaded))),
        Err(_) => Err(Box::new(Reply::new(Cause::BadRequest).detail("the body was cut off"))),
    }
}
