//! Offers gRPC services as HTTP with JSON, by the `google.api.http` options of their methods.
//!
//! A request whose method and path fit a rule becomes a call: fields come from the path, the query and the body, as the
//! rule says. The answer's message becomes JSON, a stream of messages a JSON array or lines of JSON, and an error an
//! HTTP status by `google.rpc.Code` with `{"code", "message", "details"}`. A `google.api.HttpBody` is a body as it is, not JSON.
//! Calls that stream from the client are not offered. gRPC calls pass untouched to methods that a rule offers; `unmatched` decides
//! on all others, reflection among them.

mod answer;
mod bind;
mod encode;
mod field_path;
mod http_body;
mod service;
mod template;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes as Size;
use gateway_core::http::body::{Body, BodyError, GrpcPrefix};
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::{Exchange, LateStatus};
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Family, Hooks, OnRequest, OnResponse, Plugin, Seat, Step, Verdict, World};
use gateway_plugin_common::headers;
use gateway_plugin_common::query;
use http::header::{ACCEPT, ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use prost_reflect::{DescriptorPool, FieldDescriptor, MessageDescriptor, SerializeOptions};
use schemars::JsonSchema;
use serde::Deserialize;

use answer::{Status, Streamed, Writing};
use encode::RequestReading;
use http_body::RawBody;
use service::{Binding, Calls, MatchedCall};

/// Bytes of a descriptor set.
const MAX_SET: u64 = 16 << 20;

/// Settings of `grpc_json_transcoding`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// File with the descriptor set, as `protoc --include_imports --descriptor_set_out=FILE` or `buf build -o FILE`
    /// writes it; at most 16 MiB. The gateway reads it when the configuration is loaded. This or `descriptor_set` is
    /// required.
    #[schemars(extend("format" = "path"))]
    descriptor_set_path: Option<PathBuf>,
    /// The descriptor set in Base64.
    descriptor_set: Option<String>,
    /// Services to offer, with their packages: `shop.v1.Orders`. Default all in the descriptor set.
    services: Vec<String>,
    /// Also offers methods without a `google.api.http` option: `POST /shop.v1.Orders/Place` with the message as the
    /// body. Default false.
    auto_mapping: bool,
    /// What happens to requests that match no rule: `reject` answers 404, or 405 if the path has other methods, and
    /// UNIMPLEMENTED for gRPC calls of methods without a rule, including server reflection and health checks; `pass`
    /// sends them to the target unchanged. Default `reject`.
    unmatched: Unmatched,
    /// Ignores query parameters and fields of bodies that the message does not have, instead of answering 400. Default
    /// false.
    ignore_unknown_fields: bool,
    /// Format of streamed messages: `array` as one JSON array, `lines` as one line for each message
    /// (`application/x-ndjson`). Clients that request this type in `Accept` always get lines. Default `array`.
    streams: Streams,
    /// Writes fields by their names in the definition (`order_id`) instead of `orderId`. Default false.
    preserve_field_names: bool,
    /// Also writes fields with default values. Default false.
    print_default_values: bool,
    /// Writes enums by number. Default false: by name.
    print_enum_numbers: bool,
    /// Size of the largest request body, and of the largest response message. Default 4 MiB.
    max_message: Size,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Unmatched {
    #[default]
    Reject,
    Pass,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Streams {
    #[default]
    Array,
    Lines,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            descriptor_set_path: None,
            descriptor_set: None,
            services: Vec::new(),
            auto_mapping: false,
            unmatched: Unmatched::Reject,
            ignore_unknown_fields: false,
            streams: Streams::Array,
            preserve_field_names: false,
            print_default_values: false,
            print_enum_numbers: false,
            max_message: Size(4 << 20),
        }
    }
}

/// The plugin.
pub(crate) struct GrpcJsonTranscoding {
    calls: Calls,
    unmatched: Unmatched,
    reading: RequestReading,
    writing: Writing,
    streams: Streams,
}

/// Marks a request that another config of this plugin has made a call of.
#[derive(Clone, Copy)]
struct Transcoded;

/// A request that became a call: what its answer is.
#[derive(Debug, Clone)]
struct Called {
    output: MessageDescriptor,
    field: Option<FieldDescriptor>,
    is_streamed: bool,
    lines: bool,
}

impl Called {
    /// Whether what it answers is a body as it is.
    fn is_raw(&self) -> bool {
        http_body::is_raw(&self.output, self.field.as_ref())
    }
}

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");

impl Plugin for GrpcJsonTranscoding {
    const NAME: &'static str = "grpc_json_transcoding";
    const FAMILY: Family = Family::Transformation;
    const SUMMARY: &'static str =
        "Offers gRPC services as HTTP with JSON, by the `google.api.http` options of their methods.";
    const EXAMPLE: &'static str = include_str!("../../examples/grpc_json_transcoding.yaml");
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let set = match (&config.descriptor_set_path, &config.descriptor_set) {
            (Some(path), None) => world.settings_file(path, MAX_SET).map_err(|error| {
                let why = format!("{} can't be read: {error}", path.display());
                Problems::one("config.descriptor_set_path", why)
            })?,
            (None, Some(text)) => {
                let decoded = STANDARD.decode(text.trim()).ok().filter(|set| set.len() as u64 <= MAX_SET);
                decoded.map(Bytes::from).ok_or_else(|| {
                    Problems::one("config.descriptor_set", "is not Base64 of at most 16 MiB")
                })?
            }
            _ => {
                return Err(Problems::one(
                    "config",
                    "needs either `descriptor_set_path` or `descriptor_set`",
                ));
            }
        };
        let pool = DescriptorPool::decode(&*set)
            .map_err(|error| Problems::one("config", format!("the descriptor set can't be used: {error}")))?;
        let limit = config.max_message.0;
        if limit == 0 || limit > u64::from(u32::MAX) {
            return Err(Problems::one("config.max_message", "must be from 1 byte to 4 GiB"));
        }
        let options = SerializeOptions::new()
            .skip_default_fields(!config.print_default_values)
            .use_proto_field_name(config.preserve_field_names)
            .use_enum_numbers(config.print_enum_numbers);
        Ok(Self {
            calls: Calls::read(&pool, &config.services, config.auto_mapping)?,
            unmatched: config.unmatched,
            reading: RequestReading { ignores_unknown: config.ignore_unknown_fields },
            writing: Writing { options, limit },
            streams: config.streams,
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self.clone());
        hooks.on_response(self);
    }
}

/// An error as these clients get it.
fn refusal(status: &Status, http: StatusCode) -> Reply {
    let body = status.json().to_string();
    Reply::fixed(http, body).header(CONTENT_TYPE, JSON).reason("grpc_json_transcoding")
}

impl OnRequest for GrpcJsonTranscoding {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let (path, query) = query::current(exchange);
        if exchange.dialect == Dialect::Grpc {
            let is_transcoded = exchange.request.extensions.get::<Transcoded>().is_some();
            if self.unmatched == Unmatched::Pass || is_transcoded || self.calls.offers(&path) {
                return Step::Next;
            }
            let reply = Reply::new(Cause::NoRoute).reason("grpc_json_transcoding");
            return Step::reply(reply.detail("there is no call at this path"));
        }
        let found = self.calls.find(exchange.method(), &path);
        let binding = match found {
            MatchedCall::Call(_) if exchange.dialect == Dialect::Upgrade => {
                let status = Status::new(12, "calls are not made over WebSockets");
                return Step::reply(refusal(&status, StatusCode::NOT_IMPLEMENTED));
            }
            MatchedCall::Call(binding) => binding,
            MatchedCall::OtherMethods(_) | MatchedCall::Nothing if self.unmatched == Unmatched::Pass => {
                return Step::Next;
            }
            MatchedCall::OtherMethods(methods) => {
                let status = Status::new(12, "this path has other methods");
                let reply = refusal(&status, StatusCode::METHOD_NOT_ALLOWED);
                return Step::reply(match headers::allow(methods.iter()) {
                    Some(methods) => reply.header(ALLOW, methods),
                    None => reply,
                });
            }
            MatchedCall::Nothing => {
                let status = Status::new(5, "there is no call at this path");
                return Step::reply(refusal(&status, StatusCode::NOT_FOUND));
            }
        };
        if exchange.request.headers.contains_key(CONTENT_ENCODING) {
            let status = Status::new(3, "the body is compressed");
            return Step::reply(refusal(&status, StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        Step::wait(self.call(exchange, seat, binding, path, query))
    }
}

impl GrpcJsonTranscoding {
    /// Makes a call of a request.
    async fn call(
        &self,
        exchange: &mut Exchange,
        seat: Seat<'_>,
        binding: &Binding,
        path: String,
        query: Option<String>,
    ) -> Verdict {
        let body = match exchange.body.collect(self.writing.limit).await {
            Ok((body, _)) => body,
            Err(error) => return Verdict::Reply(error.into_reply()),
        };
        let content_type = exchange.request.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default();
        let read = bind::message(binding, &path, query.as_deref(), &body, content_type, self.reading);
        let message = match read {
            Ok(message) => message,
            Err(why) => {
                let status = Status::new(3, why.to_string());
                return Verdict::Reply(Box::new(refusal(&status, status.http())));
            }
        };
        drop(body);
        let length = message.len();
        let mut frame = BytesMut::with_capacity(GrpcPrefix::BYTES + length);
        GrpcPrefix { compressed: false, length }.write(&mut frame);
        frame.put_slice(&message);
        exchange.body = Body::full(frame.freeze());
        exchange.dialect = Dialect::Grpc;
        exchange.request.extensions.insert(Transcoded);
        exchange.request.method = Method::POST;
        exchange.forward_path = Some(binding.path.to_string());
        let headers = &mut exchange.request.headers;
        let asks_for_lines = headers.get_all(ACCEPT).iter().any(|value| {
            let members = value.to_str().unwrap_or_default().split(',');
            members.map(|member| member.split(';').next().unwrap_or_default().trim()).any(|it| it == LINES)
        });
        headers.insert(CONTENT_TYPE, GRPC);
        for name in ["content-length", "grpc-accept-encoding", "grpc-encoding"] {
            headers.remove(name);
        }
        let called = Called {
            output: binding.output.clone(),
            field: binding.response_body.clone(),
            is_streamed: binding.is_streamed,
            lines: self.streams == Streams::Lines || asks_for_lines,
        };
        exchange.state.put(seat, called);
        Verdict::Next
    }

    /// Makes an answer of the whole response to a call.
    async fn unary(&self, response: &mut Response<Body>, called: &Called) -> Result<RawBody, Status> {
        let limit = self.writing.limit.saturating_add(5);
        let (bytes, trailers) = response.body_mut().collect(limit).await.map_err(|error| {
            Status::new(if matches!(error, BodyError::TooLarge { .. }) { 8 } else { 14 }, error.to_string())
        })?;
        let trailers = trailers.as_ref().unwrap_or_else(|| response.headers());
        let status = Status::of(trailers, &called.output)
            .unwrap_or_else(|| Status::new(2, "the call ended without a status"));
        if status.code != 0 {
            return Err(status);
        }
        let mut rest = BytesMut::from(&*bytes);
        let internal = |error: BodyError| Status::new(13, error.to_string());
        let message = answer::next(&mut rest, self.writing.limit).map_err(internal)?;
        let message = message.filter(|_| rest.is_empty());
        let message = message.ok_or_else(|| Status::new(13, "the answer is not one message"))?;
        if called.is_raw() {
            return http_body::read(&message, &called.output, called.field.as_ref()).map_err(internal);
        }
        let written = answer::written(&message, &called.output, called.field.as_ref(), &self.writing);
        Ok(RawBody { content_type: JSON, data: written.map_err(internal)?.into() })
    }

    async fn answer(&self, response: &mut Response<Body>, called: Called, ending: LateStatus) -> Verdict {
        let (status, RawBody { content_type, data }) = match self.unary(response, &called).await {
            Ok(body) => {
                ending.set_code(0);
                (StatusCode::OK, body)
            }
            Err(status) => {
                status.note(&ending);
                let data = status.json().to_string().into();
                (status.http(), RawBody { content_type: JSON, data })
            }
        };
        finish(response, status, Body::full(data), content_type);
        Verdict::Next
    }

    /// Makes a body of a stream of its pieces.
    async fn stream_raw(&self, response: &mut Response<Body>, called: Called, ending: LateStatus) -> Verdict {
        let (about, field) = (&called.output, called.field.as_ref());
        let begun = http_body::beginning(response.body_mut(), about, field, self.writing.limit).await;
        let begun = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let status = Status::new(13, error.to_string());
                status.note(&ending);
                finish(response, status.http(), Body::full(status.json().to_string()), JSON);
                return Verdict::Next;
            }
        };
        let status = begun.trailers.as_ref().and_then(|trailers| Status::of(trailers, about));
        if let Some(status) = status.as_ref().filter(|status| status.code != 0 && begun.rest.is_empty()) {
            status.note(&ending);
            finish(response, status.http(), Body::full(status.json().to_string()), JSON);
            return Verdict::Next;
        }
        let streamed = Streamed { rest: begun.rest, status, ..self.streamed(called, ending) };
        let body = std::mem::take(response.body_mut()).transform(streamed);
        finish(response, StatusCode::OK, body, begun.content_type);
        Verdict::Next
    }

    fn streamed(&self, called: Called, ending: LateStatus) -> Streamed {
        Streamed {
            is_raw: called.is_raw(),
            about: called.output,
            field: called.field,
            writing: self.writing.clone(),
            lines: called.lines,
            rest: BytesMut::new(),
            has_begun: false,
            status: None,
            ending,
        }
    }
}

/// Marks a response of a gRPC call that is JSON, in its extensions: it is compressed as others are.
#[derive(Clone, Copy)]
pub(crate) struct JsonAnswer;

/// Puts an answer in the place of a gRPC response.
fn finish(response: &mut Response<Body>, status: StatusCode, body: Body, content_type: HeaderValue) {
    let headers = response.headers_mut();
    for name in ["grpc-status", "grpc-message", "grpc-status-details-bin", "grpc-encoding", "trailer"] {
        headers.remove(name);
    }
    headers.remove(CONTENT_LENGTH);
    headers.insert(CONTENT_TYPE, content_type);
    response.extensions_mut().insert(JsonAnswer);
    *response.status_mut() = status;
    *response.body_mut() = body;
}

impl OnResponse for GrpcJsonTranscoding {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let Some(called) = exchange.state.of::<Called>(seat).cloned() else { return Step::Next };
        let kind: Cow<'_, [u8]> = response
            .headers()
            .get(CONTENT_TYPE)
            .map_or_else(Cow::default, |value| value.as_bytes().to_vec().into());
        if !kind.starts_with(GRPC.as_bytes()) {
            return Step::Next;
        }
        // An error that is said in the head, the gateway's own among them, is one for streams as well.
        let early = Status::of(response.headers(), &called.output).filter(|status| status.code != 0);
        let ending = exchange.late_status();
        if let Some(status) = early {
            status.note(&ending);
            let body = Body::full(status.json().to_string());
            finish(response, status.http(), body, JSON);
            return Step::Next;
        }
        if !called.is_streamed {
            return Step::wait(self.answer(response, called, ending));
        }
        if called.is_raw() {
            return Step::wait(self.stream_raw(response, called, ending));
        }
        let status = Status::of(response.headers(), &called.output);
        let content_type = if called.lines { LINES } else { JSON };
        let streamed = Streamed { status, ..self.streamed(called, ending) };
        let body = std::mem::take(response.body_mut()).transform(streamed);
        finish(response, StatusCode::OK, body, content_type);
        Step::Next
    }
}

/// For the fuzzer: JSON becomes the message that the library makes of it.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(data: &[u8]) {
    encode::fuzz(data);
}

#[cfg(test)]
mod tests;
