//! The values of template variables for one request.

use std::net::IpAddr;

use http::Version;

use super::position::ValueKind;
use super::write::Sink;
use super::{Facts, Unrenderable};
use crate::config::consumer::{Identity, find_claim};
use crate::config::template::{NamedVariable, Variable};
use crate::http::exchange::ClientTls;
use crate::request_values;
use crate::route::host_name;

type RenderResult = Result<(), Unrenderable>;

/// Writes the value; writes nothing if there is none.
pub(super) fn write(variable: &Variable, facts: &Facts<'_>, sink: &mut Sink<'_>) -> RenderResult {
    let head = &facts.exchange.request;
    match variable {
        Variable::Known(known) => write_known(*known, facts, sink),
        Variable::RequestHeader(name) => sink.some(facts.exchange.header(name).as_deref()),
        Variable::RequestQuery(name) => sink.some(request_values::query(head.uri.query(), name).as_deref()),
        Variable::RequestCookie(name) => sink.some(request_values::cookie(&head.headers, name)),
        Variable::Claim(way) => {
            match facts.exchange.identity.as_ref().and_then(|caller| claim(caller, way)) {
                Some(value) => write_claim(value, sink),
                None => Ok(()),
            }
        }
        Variable::Capture(name) => {
            let captures = facts.exchange.captures.as_deref();
            sink.some_of(ValueKind::Path, captures.and_then(|captures| captures.get(name)).map(str::as_bytes))
        }
        Variable::ResponseHeader(name) => {
            let headers = facts.response.map(|(_, headers)| headers);
            sink.some(headers.and_then(|headers| request_values::header(headers, name)).as_deref())
        }
    }
}

fn write_known(variable: NamedVariable, facts: &Facts<'_>, sink: &mut Sink<'_>) -> RenderResult {
    let exchange = facts.exchange;
    let head = &exchange.request;
    match variable {
        NamedVariable::RequestId => sink.some(Some(exchange.id().as_bytes())),
        NamedVariable::TraceId => exchange.trace.map_or(Ok(()), |context| sink.display(context.trace)),
        NamedVariable::SpanId => exchange.trace.map_or(Ok(()), |context| sink.display(context.span)),
        NamedVariable::Method => sink.text(head.method.as_str()),
        NamedVariable::Scheme => sink.text(exchange.scheme()),
        NamedVariable::Host => {
            host_name(exchange.authority(), |host| sink.some_of(ValueKind::Authority, Some(host.as_bytes())))
        }
        NamedVariable::Authority => {
            sink.some_of(ValueKind::Authority, exchange.authority().map(str::as_bytes))
        }
        NamedVariable::Path => sink.some_of(ValueKind::Path, Some(head.uri.path().as_bytes())),
        NamedVariable::Query => sink.some_of(ValueKind::Query, head.uri.query().map(str::as_bytes)),
        NamedVariable::PathAndQuery => {
            let target = head.uri.path_and_query().map(|target| target.as_str().as_bytes());
            sink.some_of(ValueKind::Target, target)
        }
        NamedVariable::Version => sink.text(version(head.version)),
        NamedVariable::ClientAddress => sink.display(exchange.client_address),
        NamedVariable::ClientPort => sink.number(exchange.client.peer.port()),
        NamedVariable::ServerAddress => sink.display(IpAddr::to_canonical(&exchange.client.local.ip())),
        NamedVariable::ServerPort => sink.number(exchange.client.local.port()),
        NamedVariable::ConsumerId
        | NamedVariable::ConsumerUsername
        | NamedVariable::ConsumerCustomId
        | NamedVariable::ConsumerGroup
        | NamedVariable::IdentityName => match exchange.identity.as_deref() {
            Some(caller) => write_caller(variable, caller, sink),
            None => Ok(()),
        },
        NamedVariable::TlsServerName
        | NamedVariable::TlsVersion
        | NamedVariable::TlsCipher
        | NamedVariable::TlsSubject
        | NamedVariable::TlsCommonName
        | NamedVariable::TlsSan => match &exchange.client.tls {
            Some(tls) => write_tls(variable, tls, facts, sink),
            None => Ok(()),
        },
        NamedVariable::ProxyId => sink.some(facts.proxy.map(str::as_bytes)),
        NamedVariable::TargetHost => {
            sink.some_of(ValueKind::Authority, facts.target.map(|target| target.rules.host.as_bytes()))
        }
        NamedVariable::TargetPort => facts.target.map_or(Ok(()), |target| sink.number(target.rules.port)),
        NamedVariable::TargetAuthority => {
            sink.some_of(ValueKind::Authority, facts.target.map(|target| target.authority().as_bytes()))
        }
        NamedVariable::Status => {
            let ended = facts.record.map(|record| record.status);
            let status = facts.response.map(|(status, _)| status.as_u16()).or(ended);
            status.map_or(Ok(()), |status| sink.number(status))
        }
        NamedVariable::RequestBytes
        | NamedVariable::ResponseBytes
        | NamedVariable::Time
        | NamedVariable::Duration
        | NamedVariable::FirstByte
        | NamedVariable::LastByte
        | NamedVariable::Attempts
        | NamedVariable::Cause => write_end(variable, facts, sink),
    }
}

fn write_caller(variable: NamedVariable, caller: &Identity, sink: &mut Sink<'_>) -> RenderResult {
    let consumer = caller.consumer.as_deref();
    match variable {
        NamedVariable::ConsumerId => sink.some(consumer.map(|consumer| consumer.id.as_str().as_bytes())),
        NamedVariable::ConsumerUsername => sink.some(consumer.map(|consumer| consumer.username.as_bytes())),
        NamedVariable::ConsumerCustomId => {
            sink.some(consumer.and_then(|consumer| consumer.custom_id.as_deref()).map(str::as_bytes))
        }
        NamedVariable::ConsumerGroup => {
            let groups = consumer.map_or(&[][..], |consumer| &consumer.acl_groups);
            for (n, group) in groups.iter().enumerate() {
                if n > 0 {
                    sink.text(",")?;
                }
                sink.text(group)?;
            }
            Ok(())
        }
        _ => sink.text(&caller.name),
    }
}

fn write_tls(
    variable: NamedVariable,
    tls: &ClientTls,
    facts: &Facts<'_>,
    sink: &mut Sink<'_>,
) -> RenderResult {
    let names = || facts.exchange.client.certificate_names();
    match variable {
        NamedVariable::TlsVersion => sink.text(tls.version),
        NamedVariable::TlsCipher => sink.text(tls.cipher),
        NamedVariable::TlsSubject => sink.some(names().map(|names| names.subject.as_bytes())),
        NamedVariable::TlsCommonName => {
            sink.some(names().and_then(|names| names.common_name.as_deref()).map(str::as_bytes))
        }
        NamedVariable::TlsSan => {
            sink.some(names().and_then(|names| names.alternative.first()).map(|name| name.as_bytes()))
        }
        _ => sink.some(tls.server_name.as_deref().map(str::as_bytes)),
    }
}

fn write_end(variable: NamedVariable, facts: &Facts<'_>, sink: &mut Sink<'_>) -> RenderResult {
    let Some(record) = facts.record else { return Ok(()) };
    match variable {
        NamedVariable::RequestBytes => sink.number(record.request_bytes),
        NamedVariable::ResponseBytes => sink.number(record.response_bytes),
        NamedVariable::FirstByte | NamedVariable::LastByte => {
            let is_first = variable == NamedVariable::FirstByte;
            match if is_first { record.first_byte } else { record.last_byte } {
                Some(took) => sink.number(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
                None => Ok(()),
            }
        }
        NamedVariable::Attempts => sink.number(record.attempts),
        NamedVariable::Time => sink.some(facts.begun.map(str::as_bytes)),
        NamedVariable::Cause => sink.some(record.cause.map(|cause| cause.reason().as_bytes())),
        _ => sink.number(u64::try_from(record.duration.as_millis()).unwrap_or(u64::MAX)),
    }
}

fn claim<'i>(caller: &'i Identity, way: &[Box<str>]) -> Option<&'i serde_json::Value> {
    find_claim(caller.claims.as_deref()?, &way.join("."))
}

/// Writes strings, numbers and booleans as they are, and the items of a list with commas between them. Writes nothing for a map.
fn write_claim(value: &serde_json::Value, sink: &mut Sink<'_>) -> RenderResult {
    use serde_json::Value;
    match value {
        Value::String(text) => sink.text(text),
        Value::Number(number) => sink.display(number),
        Value::Bool(value) => sink.text(if *value { "true" } else { "false" }),
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    sink.text(",")?;
                }
                if !item.is_array() {
                    write_claim(item, sink)?;
                }
            }
            Ok(())
        }
        Value::Null | Value::Object(_) => Ok(()),
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_11 => "HTTP/1.1",
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/3",
    }
}
