//! The values that templates ask for, as a request has them.

use std::net::IpAddr;

use http::Version;

use super::position::ValueKind;
use super::write::Sink;
use super::{Facts, Unrenderable};
use crate::config::consumer::{Identity, find_claim};
use crate::config::template::{NamedVariable, Variable};
use crate::http::exchange::ClientTls;
use crate::http::fields;
use crate::route::host_name;

type RenderResult = Result<(), Unrenderable>;

impl Variable {
    /// Writes the value, or nothing where there is none.
    pub(super) fn write(&self, facts: &Facts<'_>, sink: &mut Sink<'_>) -> RenderResult {
        let head = &facts.exchange.request;
        match self {
            Self::Known(known) => known.write(facts, sink),
            Self::RequestHeader(name) => sink.some(facts.exchange.header(name).as_deref()),
            Self::RequestQuery(name) => sink.some(fields::query(head.uri.query(), name).as_deref()),
            Self::RequestCookie(name) => sink.some(fields::cookie(&head.headers, name)),
            Self::Claim(way) => {
                match facts.exchange.identity.as_ref().and_then(|caller| claim(caller, way)) {
                    Some(value) => write_claim(value, sink),
                    None => Ok(()),
                }
            }
            Self::Capture(name) => {
                let captures = facts.exchange.captures.as_deref();
                sink.some_of(
                    ValueKind::Path,
                    captures.and_then(|captures| captures.get(name)).map(str::as_bytes),
                )
            }
            Self::ResponseHeader(name) => {
                let headers = facts.response.map(|(_, headers)| headers);
                sink.some(headers.and_then(|headers| fields::header(headers, name)).as_deref())
            }
        }
    }
}

impl NamedVariable {
    fn write(self, facts: &Facts<'_>, sink: &mut Sink<'_>) -> RenderResult {
        let exchange = facts.exchange;
        let head = &exchange.request;
        match self {
            Self::RequestId => sink.some(Some(exchange.id().as_bytes())),
            Self::TraceId => exchange.trace.map_or(Ok(()), |context| sink.display(context.trace)),
            Self::SpanId => exchange.trace.map_or(Ok(()), |context| sink.display(context.span)),
            Self::Method => sink.text(head.method.as_str()),
            Self::Scheme => sink.text(exchange.scheme()),
            Self::Host => host_name(exchange.authority(), |host| {
                sink.some_of(ValueKind::Authority, Some(host.as_bytes()))
            }),
            Self::Authority => sink.some_of(ValueKind::Authority, exchange.authority().map(str::as_bytes)),
            Self::Path => sink.some_of(ValueKind::Path, Some(head.uri.path().as_bytes())),
            Self::Query => sink.some_of(ValueKind::Query, head.uri.query().map(str::as_bytes)),
            Self::PathAndQuery => {
                let target = head.uri.path_and_query().map(|target| target.as_str().as_bytes());
                sink.some_of(ValueKind::Target, target)
            }
            Self::Version => sink.text(version(head.version)),
            Self::ClientAddress => sink.display(exchange.client_address),
            Self::ClientPort => sink.number(exchange.client.peer.port()),
            Self::ServerAddress => sink.display(IpAddr::to_canonical(&exchange.client.local.ip())),
            Self::ServerPort => sink.number(exchange.client.local.port()),
            Self::ConsumerId
            | Self::ConsumerUsername
            | Self::ConsumerCustomId
            | Self::ConsumerGroup
            | Self::IdentityName => match exchange.identity.as_deref() {
                Some(caller) => self.write_caller(caller, sink),
                None => Ok(()),
            },
            Self::TlsServerName
            | Self::TlsVersion
            | Self::TlsCipher
            | Self::TlsSubject
            | Self::TlsCommonName
            | Self::TlsSan => match &exchange.client.tls {
                Some(tls) => self.write_tls(tls, facts, sink),
                None => Ok(()),
            },
            Self::ProxyId => sink.some(facts.proxy.map(str::as_bytes)),
            Self::TargetHost => {
                sink.some_of(ValueKind::Authority, facts.target.map(|target| target.rules.host.as_bytes()))
            }
            Self::TargetPort => facts.target.map_or(Ok(()), |target| sink.number(target.rules.port)),
            Self::TargetAuthority => {
                sink.some_of(ValueKind::Authority, facts.target.map(|target| target.authority().as_bytes()))
            }
            Self::Status => {
                let ended = facts.record.map(|record| record.status);
                let status = facts.response.map(|(status, _)| status.as_u16()).or(ended);
                status.map_or(Ok(()), |status| sink.number(status))
            }
            Self::RequestBytes
            | Self::ResponseBytes
            | Self::Time
            | Self::Duration
            | Self::FirstByte
            | Self::Attempts
            | Self::Cause => self.write_end(facts, sink),
        }
    }

    fn write_caller(self, caller: &Identity, sink: &mut Sink<'_>) -> RenderResult {
        let consumer = caller.consumer.as_deref();
        match self {
            Self::ConsumerId => sink.some(consumer.map(|consumer| consumer.id.as_str().as_bytes())),
            Self::ConsumerUsername => sink.some(consumer.map(|consumer| consumer.username.as_bytes())),
            Self::ConsumerCustomId => {
                sink.some(consumer.and_then(|consumer| consumer.custom_id.as_deref()).map(str::as_bytes))
            }
            Self::ConsumerGroup => {
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

    fn write_tls(self, tls: &ClientTls, facts: &Facts<'_>, sink: &mut Sink<'_>) -> RenderResult {
        let names = || facts.exchange.client.certificate_names();
        match self {
            Self::TlsVersion => sink.text(tls.version),
            Self::TlsCipher => sink.text(tls.cipher),
            Self::TlsSubject => sink.some(names().map(|names| names.subject.as_bytes())),
            Self::TlsCommonName => {
                sink.some(names().and_then(|names| names.common_name.as_deref()).map(str::as_bytes))
            }
            Self::TlsSan => {
                sink.some(names().and_then(|names| names.alternative.first()).map(|name| name.as_bytes()))
            }
            _ => sink.some(tls.server_name.as_deref().map(str::as_bytes)),
        }
    }

    fn write_end(self, facts: &Facts<'_>, sink: &mut Sink<'_>) -> RenderResult {
        let Some(record) = facts.record else { return Ok(()) };
        match self {
            Self::RequestBytes => sink.number(record.request_bytes),
            Self::ResponseBytes => sink.number(record.response_bytes),
            Self::FirstByte => match record.first_byte {
                Some(took) => sink.number(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
                None => Ok(()),
            },
            Self::Attempts => sink.number(record.attempts),
            Self::Time => sink.some(facts.begun.map(str::as_bytes)),
            Self::Cause => sink.some(record.cause.map(|cause| cause.reason().as_bytes())),
            _ => sink.number(u64::try_from(record.duration.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

fn claim<'i>(caller: &'i Identity, way: &[Box<str>]) -> Option<&'i serde_json::Value> {
    find_claim(caller.claims.as_deref()?, &way.join("."))
}

/// Texts, numbers and truth values as they are; the items of a list with commas between; nothing of a map.
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
