//! Heads as a processor gets them, and what it may change of them.

use bytes::Bytes;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};

use super::protocol::{self, HeaderMutation, HttpHeaders, ImmediateResponse};
use super::session::Failure;
use crate::shared;

/// Header fields that a message may have after a processor has changed it.
const MAX_FIELDS: usize = 1000;

fn field(key: &str, value: &[u8]) -> protocol::HeaderValue {
    let raw_value = Bytes::copy_from_slice(value);
    protocol::HeaderValue { key: key.to_owned(), value: String::new(), raw_value }
}

fn fields(headers: &HeaderMap) -> impl Iterator<Item = protocol::HeaderValue> {
    headers.iter().map(|(name, value)| field(name.as_str(), value.as_bytes()))
}

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
        field(":scheme", shared::scheme(exchange).as_bytes()),
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

/// What of a change is not about header fields.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) path: Option<String>,
    pub(super) status: Option<StatusCode>,
}

/// Changes header fields. What frames a message, and who is asked, is left as it is.
///
/// # Errors
/// A name or value that can't be written.
pub(super) fn apply(mutation: &HeaderMutation, headers: &mut HeaderMap) -> Result<Line, Failure> {
    let mut line = Line::default();
    for name in &mutation.remove_headers {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes())
            && !shared::is_framing(&name)
        {
            headers.remove(name);
        }
    }
    for option in &mutation.set_headers {
        let Some(field) = &option.header else { continue };
        let value = if field.raw_value.is_empty() { field.value.as_bytes() } else { &field.raw_value };
        let bad = || Failure::Broken(format!("the processor sets `{}` to what can't be written", field.key));
        match field.key.as_str() {
            ":path" => line.path = Some(path(value).ok_or_else(bad)?),
            ":status" => {
                let status = StatusCode::from_bytes(value).ok();
                line.status = Some(status.filter(|status| !status.is_informational()).ok_or_else(bad)?);
            }
            key if key.starts_with(':') => {}
            key => {
                let name = HeaderName::from_bytes(key.as_bytes()).map_err(|_| bad())?;
                let value = HeaderValue::from_bytes(value).map_err(|_| bad())?;
                if !shared::is_framing(&name) {
                    write(headers, name, value, option);
                }
            }
        }
        if headers.len() > MAX_FIELDS {
            return Err(Failure::Broken("the processor adds too many header fields".to_owned()));
        }
    }
    Ok(line)
}

fn write(
    headers: &mut HeaderMap,
    name: HeaderName,
    value: HeaderValue,
    option: &protocol::HeaderValueOption,
) {
    if value.is_empty() && !option.keep_empty_value {
        // An empty value takes the field away.
        headers.remove(name);
        return;
    }
    let is_there = headers.contains_key(&name);
    match (option.append.as_ref().map(|append| append.value), option.append_action) {
        (Some(true), _) => drop(headers.try_append(name, value)),
        (None, 1) if is_there => {}
        (None, 3) if !is_there => {}
        _ => drop(headers.try_insert(name, value)),
    }
}

/// A path with its query, if it can be one: absolute, encoded, without dot segments.
fn path(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let is_plain = |text: &str| text.bytes().all(|c| c.is_ascii_graphic() && c != b'#' && c != b'\\');
    let is_dots = |segment: &str| {
        let decoded = segment.to_ascii_lowercase().replace("%2e", ".");
        matches!(decoded.split(';').next(), Some("." | ".."))
    };
    let is_good = path.starts_with('/') && is_plain(path) && is_plain(query) && !path.split('/').any(is_dots);
    is_good.then(|| text.to_owned())
}

/// An immediate response as the client gets it.
///
/// # Errors
/// One that can't be sent.
pub(super) fn reply(said: &ImmediateResponse, dialect: Dialect) -> Result<Reply, Failure> {
    let code = said.status.as_ref().map_or(200, |status| status.code);
    let status = u16::try_from(code).ok().filter(|code| (200..=599).contains(code));
    let Some(status) = status.and_then(|code| StatusCode::from_u16(code).ok()) else {
        return Err(Failure::Broken(format!("the processor answers with the status {code}")));
    };
    let mut headers = HeaderMap::new();
    if !said.body.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    }
    if let Some(mutation) = &said.headers {
        apply(mutation, &mut headers)?;
    }
    if let (Dialect::Grpc, Some(grpc)) = (dialect, &said.grpc_status) {
        let mut response = Response::new(gateway_core::http::body::Body::empty());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from(grpc.status));
        let message = percent_encoding::percent_encode(&said.body, percent_encoding::CONTROLS).to_string();
        if let Ok(message) = HeaderValue::from_str(&message) {
            headers.insert("grpc-message", message);
        }
        *response.headers_mut() = headers;
        return Ok(Reply::response(response).reason("ext_proc"));
    }
    let reply = Reply::fixed(status, said.body.clone()).reason("ext_proc");
    Ok(Reply { headers, ..Reply { cause: Cause::Plugin, ..reply } })
}
