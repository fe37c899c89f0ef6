//! Lets browsers call gRPC services: gRPC-Web becomes gRPC on the way in, and gRPC becomes gRPC-Web on the way out.
//!
//! Both forms are taken, binary (`application/grpc-web`, `+proto`) and Base64 (`application/grpc-web-text`). The target
//! sees plain gRPC; its trailers reach the browser as the last frame of the body, since browsers show no trailers.
//! Requests of other types pass untouched.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use gateway_core::config::problem::Problems;
use gateway_core::http::body::{Body, BodyError, Transform, TransformOutput};
use gateway_core::http::dialect::{self, Dialect};
use gateway_core::http::exchange::{Exchange, LateStatus};
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Family, Hooks, OnRequest, OnResponse, Plugin, Seat, Step, World};
use gateway_plugin_common::list_fields;
use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, ALLOW, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `grpc_web`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Response headers that scripts of other origins may read, in addition to `grpc-status` and `grpc-message`, which
    /// are always in `access-control-expose-headers`. Default none.
    expose_headers: Vec<String>,
}

/// The plugin.
pub(crate) struct GrpcWeb {
    exposed: HeaderValue,
}

/// How this exchange's client writes its bodies.
#[derive(Debug, Clone)]
struct Spoken {
    text: bool,
    content_type: HeaderValue,
}

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// The flag of a frame that holds trailers.
const TRAILERS: u8 = 0x80;

impl Plugin for GrpcWeb {
    const NAME: &'static str = "grpc_web";
    const FAMILY: Family = Family::Transformation;
    const SUMMARY: &'static str =
        "Translates gRPC-Web in both directions, so that browsers can call gRPC services.";
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        for (n, name) in config.expose_headers.iter().enumerate() {
            if HeaderName::from_bytes(name.as_bytes()).is_err() {
                problems.add(
                    format!("config.expose_headers[{n}]"),
                    format!("`{name}` is not a valid header name"),
                );
            }
        }
        let mut names = vec!["grpc-status".to_owned(), "grpc-message".to_owned()];
        names.extend(config.expose_headers);
        let exposed = HeaderValue::from_str(&names.join(", "));
        let exposed = exposed.unwrap_or_else(|_| HeaderValue::from_static("grpc-status, grpc-message"));
        problems.into_result(Self { exposed })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self.clone());
        hooks.on_response(self);
    }
}

impl OnRequest for GrpcWeb {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let Some(spoken) = spoken(exchange) else { return Step::Next };
        if exchange.request.method != Method::POST {
            return Step::reply(
                Reply::new(Cause::MethodNotAllowed).header(ALLOW, HeaderValue::from_static("POST")),
            );
        }
        exchange.dialect = Dialect::Grpc;
        exchange.request.headers.insert(CONTENT_TYPE, GRPC);
        exchange.request.headers.remove("x-grpc-web");
        if spoken.text {
            exchange.request.headers.remove(CONTENT_LENGTH);
            let body = std::mem::take(&mut exchange.body);
            exchange.body = body.transform(Decoded { rest: BytesMut::new() });
        }
        exchange.state.put(seat, spoken);
        Step::Next
    }
}

impl OnResponse for GrpcWeb {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let Some(spoken) = exchange.state.of::<Spoken>(seat) else { return Step::Next };
        let is_grpc = response.headers().get(CONTENT_TYPE).is_some_and(|value| {
            value.as_bytes().strip_prefix(GRPC.as_bytes()).is_some_and(|rest| !rest.starts_with(b"-web"))
        });
        if !is_grpc {
            return Step::Next;
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, spoken.content_type.clone());
        headers.remove(CONTENT_LENGTH);
        list_fields::add_names(headers, ACCESS_CONTROL_EXPOSE_HEADERS, &self.exposed);
        let trailers_only = headers.contains_key("grpc-status");
        let body = std::mem::take(response.body_mut());
        if !(body.is_empty() && trailers_only) {
            // A trailers-only response has its status in the head already.
            let text = spoken.text;
            *response.body_mut() = body.transform(Encoded { text, status: exchange.late_status() });
        }
        Step::Next
    }
}

/// Whether a request speaks gRPC-Web, and how.
fn spoken(exchange: &Exchange) -> Option<Spoken> {
    let headers = &exchange.request.headers;
    let text = dialect::GrpcWeb::of(headers)? == dialect::GrpcWeb::Text;
    Some(Spoken { text, content_type: headers.get(CONTENT_TYPE)?.clone() })
}

/// A Base64 body, decoded as it comes. Clients may pad each message on its own, so padding can stand anywhere.
struct Decoded {
    /// Characters that don't make a whole group yet.
    rest: BytesMut,
}

impl Transform for Decoded {
    fn data(&mut self, data: Bytes, out: &mut TransformOutput) -> Result<(), BodyError> {
        let mut decoded = BytesMut::with_capacity(data.len());
        for c in data.iter().filter(|c| !c.is_ascii_whitespace()) {
            self.rest.put_u8(*c);
            if self.rest.len() == 4 {
                let group = STANDARD.decode(&self.rest).map_err(|_| BodyError::Framing("Base64"))?;
                decoded.extend_from_slice(&group);
                self.rest.clear();
            }
        }
        out.data(decoded.freeze());
        Ok(())
    }

    fn end(&mut self, _out: &mut TransformOutput) -> Result<(), BodyError> {
        if self.rest.is_empty() { Ok(()) } else { Err(BodyError::Framing("Base64")) }
    }
}

/// A gRPC body whose trailers become its last frame.
struct Encoded {
    text: bool,
    /// For the record: there are no trailers left when the response goes out.
    status: LateStatus,
}

impl Encoded {
    fn written(&self, data: Bytes) -> Bytes {
        if self.text { Bytes::from(STANDARD.encode(&data)) } else { data }
    }
}

impl Transform for Encoded {
    fn data(&mut self, data: Bytes, out: &mut TransformOutput) -> Result<(), BodyError> {
        out.data(self.written(data));
        Ok(())
    }

    fn trailers(&mut self, trailers: HeaderMap, out: &mut TransformOutput) -> Result<(), BodyError> {
        self.status.set(&trailers);
        out.data(self.written(trailer_frame(&trailers)));
        Ok(())
    }
}

/// Trailers as a frame: the flag, the length, then the fields like an HTTP/1.1 head.
fn trailer_frame(trailers: &HeaderMap) -> Bytes {
    let mut fields = BytesMut::new();
    for (name, value) in trailers {
        fields.put_slice(name.as_str().as_bytes());
        fields.put_slice(b": ");
        fields.put_slice(value.as_bytes());
        fields.put_slice(b"\r\n");
    }
    let mut frame = BytesMut::with_capacity(fields.len() + 5);
    frame.put_u8(TRAILERS);
    frame.put_u32(u32::try_from(fields.len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(&fields);
    frame.freeze()
}

#[cfg(test)]
mod tests;
