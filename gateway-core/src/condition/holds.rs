//! Whether a condition holds for a request.

use http::Method;
use http::header::CONTENT_TYPE;

use crate::certificate::CertificateNames;
use crate::config::condition::{Certificate, Condition, ConditionPart};
use crate::http::dialect::Dialect;
use crate::http::exchange::{ClientTls, Exchange, canonical};
use crate::http::path::other_readings;
use crate::request_values;
use crate::route::host_name;

/// What a condition is asked about.
#[derive(Clone, Copy)]
struct Facts<'a> {
    exchange: &'a Exchange,
    assumed: Assumed<'a>,
    status: Option<u16>,
}

/// What a request is taken to be where that differs from what it is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Assumed<'a> {
    /// The method that a preflight asks about.
    pub(crate) method: Option<&'a Method>,
    /// The TLS server name, as if the connection had been opened for the host that is asked.
    pub(crate) server_name: Option<&'a str>,
}

/// Asks a condition about requests.
pub trait Holds {
    /// Whether a request is meant.
    fn holds(&self, exchange: &Exchange) -> bool;

    /// Whether a request that got this status is meant.
    fn holds_with(&self, exchange: &Exchange, status: u16) -> bool;

    /// What does not hold for a request, as it is written: `methods`, `headers.x-version`.
    fn failing(&self, exchange: &Exchange) -> Vec<String>;
}

impl Holds for Condition {
    #[inline]
    fn holds(&self, exchange: &Exchange) -> bool {
        holds_as(self, exchange, Assumed::default())
    }

    fn holds_with(&self, exchange: &Exchange, status: u16) -> bool {
        all(self, Facts { exchange, assumed: Assumed::default(), status: Some(status) })
    }

    fn failing(&self, exchange: &Exchange) -> Vec<String> {
        let facts = Facts { exchange, assumed: Assumed::default(), status: None };
        self.parts.iter().filter(|part| !part_holds(part, facts)).map(ConditionPart::place).collect()
    }
}

impl Exchange {
    /// Whether the plugin at this place runs for this exchange; decided once.
    #[inline(never)]
    pub(crate) fn decide(&mut self, place: u16, when: &Condition) -> bool {
        if let Some(runs) = self.decision(place) {
            return runs;
        }
        let runs = when.holds(self);
        self.note_decision(place, runs);
        runs
    }

    /// The same, where nothing can be noted any more.
    pub(crate) fn decided(&self, place: u16, when: &Condition) -> bool {
        self.decision(place).unwrap_or_else(|| when.holds(self))
    }
}

/// Whether the request would be meant if it was like this.
pub(crate) fn holds_as(condition: &Condition, exchange: &Exchange, assumed: Assumed<'_>) -> bool {
    all(condition, Facts { exchange, assumed, status: None })
}

fn all(condition: &Condition, facts: Facts<'_>) -> bool {
    condition.parts.iter().all(|part| part_holds(part, facts))
}

fn part_holds(part: &ConditionPart, facts: Facts<'_>) -> bool {
    let exchange = facts.exchange;
    let head = &exchange.request;
    match part {
        ConditionPart::Methods(methods) => methods.contains(facts.assumed.method.unwrap_or(&head.method)),
        ConditionPart::Path { pattern, is_strict } => {
            let sent = head.uri.path();
            match is_strict {
                false => pattern.covers(sent) || other_readings(sent).any(|reading| pattern.covers(&reading)),
                true => pattern.covers(sent) && other_readings(sent).all(|reading| pattern.covers(&reading)),
            }
        }
        ConditionPart::Hosts(hosts) => {
            host_name(exchange.authority(), |name| hosts.iter().any(|host| host.covers(name)))
        }
        ConditionPart::Encrypted(wanted) => exchange.client.tls.is_some() == *wanted,
        ConditionPart::Ports(ports) => ports.contains(&exchange.client.port),
        ConditionPart::Addresses(blocks) => {
            let local = canonical(exchange.client.local.ip());
            blocks.iter().any(|block| block.contains(&local))
        }
        ConditionPart::Header(name, text) => text.fits(exchange.header(name).as_deref()),
        ConditionPart::Query(name, text) => {
            text.fits(request_values::query(head.uri.query(), name).as_deref())
        }
        ConditionPart::Authority(text) => text.fits(exchange.authority().map(str::as_bytes)),
        ConditionPart::QueryString(text) => text.fits(head.uri.query().map(str::as_bytes)),
        ConditionPart::Cookie(name, text) => text.fits(request_values::cookie(&head.headers, name)),
        ConditionPart::Grpc { service, method, is_wide: false } => {
            is_call(exchange, service.as_deref(), method.as_deref())
        }
        ConditionPart::Grpc { service, method, is_wide: true } => {
            may_be_call(exchange, service.as_deref(), method.as_deref())
        }
        ConditionPart::ContentTypes(types) => {
            let value = head.headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
            value.is_some_and(|value| types.iter().any(|wanted| wanted.covers(value)))
        }
        ConditionPart::Clients(blocks) => blocks.iter().any(|block| block.contains(&exchange.client_address)),
        ConditionPart::ServerNames(names) => {
            let sent = || exchange.client.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
            let asked = facts.assumed.server_name.or_else(sent);
            asked.is_some_and(|_| host_name(asked, |asked| names.iter().any(|name| name.covers(asked))))
        }
        ConditionPart::Certificate(wanted) => fits(wanted, exchange),
        ConditionPart::Consumers(names) => exchange.identity.as_ref().is_some_and(|caller| {
            let username = caller.consumer.as_ref().map(|consumer| &*consumer.username);
            names.iter().any(|name| **name == *caller.name || username == Some(name))
        }),
        ConditionPart::Groups(names) => {
            let caller = exchange.identity.as_ref();
            let has = |name: &str| caller.is_some_and(|caller| caller.groups().any(|group| **group == *name));
            names.iter().any(|name| has(name))
        }
        ConditionPart::Statuses(ranges) => {
            let within = |status: u16| ranges.iter().any(|(low, high)| (*low..=*high).contains(&status));
            facts.status.is_some_and(within)
        }
        ConditionPart::Any(conditions) => conditions.iter().any(|condition| all(condition, facts)),
        ConditionPart::Not(condition) => !all(condition, facts),
    }
}

/// The service and the method that a path names.
fn call_of(exchange: &Exchange) -> Option<(&str, &str)> {
    exchange.request.uri.path().strip_prefix('/')?.rsplit_once('/')
}

/// Whether it is a gRPC call of this service and method.
fn is_call(exchange: &Exchange, service: Option<&str>, method: Option<&str>) -> bool {
    exchange.dialect == Dialect::Grpc
        && call_of(exchange).is_some_and(|(s, m)| {
            service.is_none_or(|service| service == s) && method.is_none_or(|method| method == m)
        })
}

/// Whether it is a call, or may become one. Where a service is named, every POST to it may, whatever its content type says:
/// there are servers that don't look at it, and gRPC-Web and JSON become calls further on.
fn may_be_call(exchange: &Exchange, service: Option<&str>, method: Option<&str>) -> bool {
    let is_meant = match service {
        Some(_) => exchange.method() == Method::POST,
        None => exchange.dialect == Dialect::Grpc || exchange.web_call().is_some(),
    };
    // Before the service may stand a prefix that the proxy takes away.
    let is_service = |whole: &str, name: &str| {
        whole.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    is_meant
        && call_of(exchange).is_some_and(|(s, m)| {
            service.is_none_or(|service| is_service(s, service)) && method.is_none_or(|method| method == m)
        })
}

fn fits(wanted: &Certificate, exchange: &Exchange) -> bool {
    let tls: Option<&ClientTls> = exchange.client.tls.as_ref();
    let is_there = tls.is_some_and(|tls| tls.certificate.is_some());
    if is_there != wanted.present || tls.is_none() {
        return false;
    }
    if wanted.subject.is_none() && wanted.common_name.is_none() && wanted.san.is_none() {
        return true;
    }
    // A certificate whose names can't be read is nobody's.
    exchange.client.certificate_names().is_some_and(|names| names_fit(wanted, names))
}

fn names_fit(wanted: &Certificate, names: &CertificateNames) -> bool {
    let common = names.common_name.as_deref().map(str::as_bytes);
    wanted.subject.as_ref().is_none_or(|text| text.fits(Some(names.subject.as_bytes())))
        && wanted.common_name.as_ref().is_none_or(|text| text.fits(common))
        && wanted.san.as_ref().is_none_or(|text| match names.alternative.as_slice() {
            [] => text.fits(None),
            all => all.iter().any(|name| text.fits(Some(name.as_bytes()))),
        })
}
