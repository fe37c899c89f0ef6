//! Heads as a processor gets them, and what it may change of them.

use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Reply, final_status};
use gateway_plugin_common::envoy::{self, field, fields};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, StatusCode};

use super::protocol::{self, HeaderMutation, HttpHeaders, ImmediateResponse};
use super::session::Failure;
pub(super) use gateway_plugin_common::envoy::RequestLine;

/// Path and query as the target sees them, unless its proxy strips some of the path.
fn target(exchange: &Exchange) -> String {
    exchange.forward_path.clone().unwrap_or_else(|| {
        exchange.request.uri.path_and_query().map_or_else(|| "/".to_owned(), |it| it.as_str().to_owned())
    })
}

/// A request's head.
pub(super) fn request_head(exchange: &Exchange, end_of_stream: bool) -> HttpHeaders {
    let line = [
        field(":method", exchange.method().as_str().as_bytes()),
        field(":path", target(exchange).as_bytes()),
        field(":authority", exchange.authority().unwrap_or_default().as_bytes()),
        field(":scheme", exchange.scheme().as_bytes()),
    ];
    let own = fields(&exchange.request.headers).filter(|field| field.key != "host");
    let headers = line.into_iter().chain(own).collect();
    HttpHeaders { headers: Some(protocol::HeaderMap { headers }), end_of_stream }
}

/// A response's head.
pub(super) fn response_head(status: StatusCode, headers: &HeaderMap, end_of_stream: bool) -> HttpHeaders {
    let line = field(":status", status.as_str().as_bytes());
    let headers = std::iter::once(line).chain(fields(headers)).collect();
    HttpHeaders { headers: Some(protocol::HeaderMap { headers }), end_of_stream }
}

/// Trailers.
pub(super) fn trailers(trailers: &HeaderMap) -> protocol::HttpTrailers {
    protocol::HttpTrailers { trailers: Some(protocol::HeaderMap { headers: fields(trailers).collect() }) }
}

/// Changes header fields. What frames a message, and who is asked, is left as it is.
///
/// # Errors
/// A name or value that can't be written.
pub(super) fn apply(mutation: &HeaderMutation, headers: &mut HeaderMap) -> Result<RequestLine, Failure> {
    envoy::apply(mutation, headers).map_err(|error| Failure::Broken(error.to_string()))
}

/// Bytes of an immediate response's body that gRPC clients get as its message.
const MAX_MESSAGE: usize = 1024;

/// An immediate response as the client gets it.
///
/// # Errors
/// One that can't be sent.
pub(super) fn reply(said: &ImmediateResponse) -> Result<Reply, Failure> {
    let code = said.status.as_ref().map_or(200, |status| status.code);
    let Some(status) = final_status(code) else {
        return Err(Failure::Broken(format!("the processor answers with the status {code}")));
    };
    let mut headers = HeaderMap::new();
    if !said.body.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    }
    if let Some(mutation) = &said.headers {
        apply(mutation, &mut headers)?;
    }
    let reply = Reply::fixed(status, said.body.clone()).reason("ext_proc");
    let Some(grpc) = &said.grpc_status else { return Ok(Reply { headers, ..reply }) };
    let Ok(code) = u8::try_from(grpc.status) else {
        return Err(Failure::Broken(format!("the processor answers with the gRPC status {}", grpc.status)));
    };
    let message = said.body.get(..MAX_MESSAGE).unwrap_or(&said.body);
    let detail = Some(String::from_utf8_lossy(message).into_owned().into());
    Ok(Reply { headers, grpc_status: Some(code), detail, ..reply })
}
