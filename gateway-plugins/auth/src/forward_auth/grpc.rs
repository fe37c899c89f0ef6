//! Envoy's external authorization protocol over gRPC (`envoy.service.auth.v3`): the question, the answer, and what the answer
//! changes. Numbers and types of the messages are those of the published definition; fields that are left out are skipped when
//! they are read.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use gateway_core::http::body::{Body, BodyError, GrpcPrefix};
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply, final_status};
use gateway_core::plugin::world::calls::Client;
use gateway_plugin_common::envoy::{self, HeaderMutation, HeaderValueOption, HttpStatus, MutationError};
use gateway_plugin_common::query::{self, Query};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, TE};
use http::{HeaderMap, Method, Request, StatusCode, Uri, Version};
use prost::Message as _;

use super::question::{original, read};
use crate::oauth;

/// The path of the protocol's only method.
pub(super) const PATH: &str = "/envoy.service.auth.v3.Authorization/Check";
/// Bytes of an answer.
const MAX_ANSWER: u64 = 1 << 20;
/// Parameters of the query that an answer may set or remove.
const MAX_PARAMETERS: usize = 100;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) attributes: Option<Attributes>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Attributes {
    #[prost(message, optional, tag = "1")]
    pub(super) source: Option<Peer>,
    #[prost(message, optional, tag = "2")]
    pub(super) destination: Option<Peer>,
    #[prost(message, optional, tag = "4")]
    pub(super) request: Option<AboutRequest>,
    #[prost(map = "string, string", tag = "10")]
    pub(super) context_extensions: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Peer {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<Address>,
    #[prost(string, tag = "4")]
    pub(super) principal: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Address {
    #[prost(message, optional, tag = "1")]
    pub(super) socket_address: Option<SocketAddress>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SocketAddress {
    #[prost(string, tag = "2")]
    pub(super) address: String,
    #[prost(uint32, tag = "3")]
    pub(super) port: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AboutRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) time: Option<Timestamp>,
    #[prost(message, optional, tag = "2")]
    pub(super) http: Option<HttpRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpRequest {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) method: String,
    #[prost(map = "string, string", tag = "3")]
    pub(super) headers: HashMap<String, String>,
    #[prost(string, tag = "4")]
    pub(super) path: String,
    #[prost(string, tag = "5")]
    pub(super) host: String,
    #[prost(string, tag = "6")]
    pub(super) scheme: String,
    /// The body's length; -1 where it is not known.
    #[prost(int64, tag = "9")]
    pub(super) size: i64,
    #[prost(string, tag = "10")]
    pub(super) protocol: String,
    #[prost(string, tag = "11")]
    pub(super) body: String,
    #[prost(bytes = "bytes", tag = "12")]
    pub(super) raw_body: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(oneof = "CheckResult", tags = "2, 3")]
    pub(super) said: Option<CheckResult>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Status {
    /// 0 lets the request pass.
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum CheckResult {
    #[prost(message, tag = "2")]
    Denied(Denied),
    #[prost(message, tag = "3")]
    Allowed(Allowed),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Denied {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<HttpStatus>,
    #[prost(message, repeated, tag = "2")]
    pub(super) headers: Vec<HeaderValueOption>,
    #[prost(string, tag = "3")]
    pub(super) body: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Allowed {
    #[prost(message, repeated, tag = "2")]
    pub(super) headers: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "5")]
    pub(super) headers_to_remove: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(super) response_headers_to_add: Vec<HeaderValueOption>,
    #[prost(message, repeated, tag = "7")]
    pub(super) query_parameters_to_set: Vec<QueryParameter>,
    #[prost(string, repeated, tag = "8")]
    pub(super) query_parameters_to_remove: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct QueryParameter {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// How such a server is asked.
pub(super) struct Grpc {
    /// Header fields that are told; `None` is all.
    pub(super) headers: Option<Vec<HeaderName>>,
    /// Bytes of the body that are told; `None` tells none.
    pub(super) body: Option<u64>,
    /// Tells the first bytes of a longer body.
    pub(super) partial: bool,
    pub(super) context: HashMap<String, String>,
    pub(super) timeout: Duration,
}

/// Why there is no answer.
pub(super) struct NoAnswer(pub(super) String);

impl From<MutationError> for NoAnswer {
    fn from(error: MutationError) -> Self {
        Self(error.to_string())
    }
}

impl Grpc {
    /// The question about this request, whose body is whole again afterwards.
    ///
    /// # Errors
    /// The refusal of a body that is too large, or broken.
    pub(super) async fn about(&self, exchange: &mut Exchange) -> Result<CheckRequest, Box<Reply>> {
        let length = exchange.body.exact_length();
        let body = match self.body {
            Some(limit) if self.partial => match exchange.body.peek(limit).await {
                Ok(bytes) => bytes,
                Err(BodyError::NoRoom) => return Err(Box::new(Reply::new(Cause::Overloaded))),
                Err(BodyError::Refused(reply)) => return Err(reply),
                Err(_) => {
                    return Err(Box::new(Reply::new(Cause::BadRequest).detail("the body was cut off")));
                }
            },
            Some(limit) => read(&mut exchange.body, limit).await?,
            None => Bytes::new(),
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let time = Timestamp {
            seconds: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(now.subsec_nanos()).unwrap_or(0),
        };
        let peer = |address: std::net::IpAddr, port: u16, principal: String| Peer {
            address: Some(Address {
                socket_address: Some(SocketAddress { address: address.to_string(), port: port.into() }),
            }),
            principal,
        };
        let client = &exchange.client;
        // Behind a trusted proxy the port is that of another connection.
        let port =
            if client.peer.ip().to_canonical() == exchange.client_address { client.peer.port() } else { 0 };
        let who = exchange.identity.as_ref().map(|identity| identity.name.to_string());
        Ok(CheckRequest {
            attributes: Some(Attributes {
                source: Some(peer(exchange.client_address, port, who.unwrap_or_default())),
                destination: Some(peer(client.local.ip().to_canonical(), client.local.port(), String::new())),
                request: Some(AboutRequest {
                    time: Some(time),
                    http: Some(self.http(exchange, length, body)),
                }),
                context_extensions: self.context.clone(),
            }),
        })
    }

    fn http(&self, exchange: &Exchange, length: Option<u64>, body: Bytes) -> HttpRequest {
        let path = original(exchange);
        let host = exchange.authority().unwrap_or_default().to_owned();
        let method = exchange.method().as_str().to_owned();
        let scheme = exchange.scheme().to_owned();
        let mut headers: HashMap<String, String> = HashMap::new();
        for (name, value) in &exchange.request.headers {
            if name == http::header::HOST || self.headers.as_ref().is_some_and(|told| !told.contains(name)) {
                continue;
            }
            let value = String::from_utf8_lossy(value.as_bytes());
            let told = headers.entry(name.as_str().to_owned()).or_default();
            if !told.is_empty() {
                // Cookies can't be joined by commas.
                told.push_str(if name == http::header::COOKIE { "; " } else { "," });
            }
            told.push_str(&value);
        }
        for (name, value) in
            [(":method", &method), (":path", &path), (":authority", &host), (":scheme", &scheme)]
        {
            headers.insert(name.to_owned(), value.clone());
        }
        let (body, raw_body) = match String::from_utf8(body.to_vec()) {
            Ok(text) => (text, Bytes::new()),
            Err(_) => (String::new(), body),
        };
        let protocol = match exchange.version() {
            Version::HTTP_10 => "HTTP/1.0",
            Version::HTTP_2 => "HTTP/2",
            Version::HTTP_3 => "HTTP/3",
            _ => "HTTP/1.1",
        };
        let id = exchange.id().to_str().unwrap_or_default().to_owned();
        let size = length.and_then(|length| i64::try_from(length).ok()).unwrap_or(-1);
        HttpRequest {
            id,
            method,
            headers,
            path,
            host,
            scheme,
            size,
            protocol: protocol.into(),
            body,
            raw_body,
        }
    }

    /// Asks, and waits for the answer.
    pub(super) async fn ask(&self, client: &Client, asked: &CheckRequest) -> Result<CheckResponse, NoAnswer> {
        let call = async {
            let mut request = Request::new(Body::full(framed(asked)));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = Uri::from_static(PATH);
            let headers = request.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert(TE, HeaderValue::from_static("trailers"));
            let millis = format!("{}m", self.timeout.as_millis().clamp(1, 99_999_999));
            headers.extend(
                HeaderValue::try_from(millis).map(|value| (HeaderName::from_static("grpc-timeout"), value)),
            );
            let response = client.send(request).await.map_err(|error| NoAnswer(error.to_string()))?;
            let (head, mut body) = response.into_parts();
            if !head.status.is_success() {
                return Err(NoAnswer(format!("it answers {}", head.status)));
            }
            let (bytes, trailers) =
                body.collect(MAX_ANSWER).await.map_err(|error| NoAnswer(error.to_string()))?;
            message(&bytes, trailers.as_ref().unwrap_or(&head.headers))
        };
        match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => answer,
            Err(_) => Err(NoAnswer("it does not answer in time".into())),
        }
    }
}

fn framed(asked: &CheckRequest) -> Bytes {
    let length = asked.encoded_len();
    let mut out = BytesMut::with_capacity(GrpcPrefix::BYTES + length);
    GrpcPrefix { compressed: false, length }.write(&mut out);
    // There is room for it.
    let _encoded = asked.encode(&mut out);
    out.freeze()
}

/// The one message of a call that ended well.
fn message(bytes: &Bytes, end: &HeaderMap) -> Result<CheckResponse, NoAnswer> {
    let status = end.get("grpc-status").and_then(|status| status.to_str().ok()).unwrap_or("none");
    if status != "0" {
        let text = end.get("grpc-message").map(|text| String::from_utf8_lossy(text.as_bytes()));
        return Err(NoAnswer(format!("it ends with the gRPC status {status}: {}", text.unwrap_or_default())));
    }
    let bad = || NoAnswer("its answer can't be read".into());
    let prefix = GrpcPrefix::read(bytes, MAX_ANSWER).map_err(|_| bad())?.ok_or_else(bad)?;
    let message = bytes.get(GrpcPrefix::BYTES..).unwrap_or_default();
    if prefix.compressed || prefix.length != message.len() {
        return Err(bad());
    }
    CheckResponse::decode(message).map_err(|_| bad())
}

/// Fields for the client's response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ForResponse {
    pub(super) add: HeaderMap,
    pub(super) set: HeaderMap,
}

impl Allowed {
    /// Changes the request as the answer says; the fields that it has set, and those for the response.
    pub(super) fn apply(self, exchange: &mut Exchange) -> Result<(HeaderMap, ForResponse), NoAnswer> {
        let mut said = HeaderMap::new();
        let alone = HeaderMutation { set_headers: self.headers.clone(), remove_headers: Vec::new() };
        envoy::apply(&alone, &mut said)?;
        let mutation = HeaderMutation { set_headers: self.headers, remove_headers: self.headers_to_remove };
        envoy::withhold_trailers(&mutation, &mut exchange.body);
        let line = envoy::apply(&mutation, &mut exchange.request.headers)?;
        if line.path.is_some() {
            exchange.forward_path = line.path;
        }
        let parameters = (self.query_parameters_to_set, self.query_parameters_to_remove);
        if parameters.0.len() + parameters.1.len() > MAX_PARAMETERS {
            return Err(NoAnswer("it changes too many parameters".into()));
        }
        if !parameters.0.is_empty() || !parameters.1.is_empty() {
            let (_, before) = query::current(exchange);
            let mut changed = Query::of(before.as_deref());
            parameters.1.iter().for_each(|name| changed.remove(name));
            for QueryParameter { key, value } in &parameters.0 {
                changed.set(key, &oauth::encoded(value));
            }
            if !query::replace(exchange, &changed) {
                return Err(NoAnswer("it sets a query that can't be written".into()));
            }
        }
        let mut response = ForResponse::default();
        for option in self.response_headers_to_add {
            // A cookie goes with the others that there are, whether or not it says so.
            let is_cookie = option.is_plain()
                && option.header.as_ref().is_some_and(|field| field.key.eq_ignore_ascii_case("set-cookie"));
            let adds = is_cookie || option.append.as_ref().is_some_and(|append| append.value);
            let headers = if adds { &mut response.add } else { &mut response.set };
            let mutation =
                HeaderMutation { set_headers: vec![option.among_its_own()], remove_headers: Vec::new() };
            envoy::apply(&mutation, headers)?;
        }
        Ok((said, response))
    }
}

impl Denied {
    /// What the client gets.
    pub(super) fn reply(self, dialect: Dialect) -> Result<Reply, NoAnswer> {
        let code = self.status.as_ref().map_or(403, |status| status.code);
        let Some(status) = final_status(code) else {
            return Err(NoAnswer(format!("it refuses with the status {code}")));
        };
        let cause = match status {
            StatusCode::UNAUTHORIZED => Cause::Unauthenticated,
            StatusCode::FORBIDDEN => Cause::Forbidden,
            _ => Cause::Plugin,
        };
        // A success that does not pass must not look like one to the client.
        let status = if status.is_success() { StatusCode::FORBIDDEN } else { status };
        let mut reply = Reply::new(cause).status(status).reason("forward_auth_refused");
        let set_headers = self.headers.into_iter().map(HeaderValueOption::among_its_own).collect();
        let mutation = HeaderMutation { set_headers, remove_headers: Vec::new() };
        envoy::apply(&mutation, &mut reply.headers)?;
        if dialect == Dialect::Grpc {
            reply.headers.remove(CONTENT_TYPE);
            return Ok(if self.body.is_empty() { reply } else { reply.detail(self.body) });
        }
        if !self.body.is_empty() && !reply.headers.contains_key(CONTENT_TYPE) {
            reply.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        }
        reply.body = Some(Body::full(self.body));
        Ok(reply)
    }
}
