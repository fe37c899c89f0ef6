//! Whether a condition holds for a request.

use http::Method;
use http::header::CONTENT_TYPE;

use crate::certificate::CertificateNames;
use crate::config::condition::{Certificate, Condition, ConditionPart, MediaType};
use crate::http::dialect::Dialect;
use crate::http::exchange::{ClientTls, Exchange, canonical};
use crate::http::fields;
use crate::http::path::other_readings;
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

impl Condition {
    /// Whether a request is meant.
    #[inline]
    pub fn holds(&self, exchange: &Exchange) -> bool {
        self.holds_as(exchange, Assumed::default())
    }

    /// Whether the request would be meant if it was like this.
    pub(crate) fn holds_as(&self, exchange: &Exchange, assumed: Assumed<'_>) -> bool {
        self.all(Facts { exchange, assumed, status: None })
    }

    /// Whether a request that got this status is meant.
    pub fn holds_with(&self, exchange: &Exchange, status: u16) -> bool {
        self.all(Facts { exchange, assumed: Assumed::default(), status: Some(status) })
    }

    fn all(&self, facts: Facts<'_>) -> bool {
        self.parts.iter().all(|part| part.holds(facts))
    }

    /// What does not hold for a request, as it is written: `methods`, `headers.x-version`.
    pub fn failing(&self, exchange: &Exchange) -> Vec<String> {
        let facts = Facts { exchange, assumed: Assumed::default(), status: None };
        self.parts.iter().filter(|part| !part.holds(facts)).map(ConditionPart::place).collect()
    }
}

impl ConditionPart {
    fn holds(&self, facts: Facts<'_>) -> bool {
        let exchange = facts.exchange;
        let head = &exchange.request;
        match self {
            Self::Methods(methods) => methods.contains(facts.assumed.method.unwrap_or(&head.method)),
            Self::Path { pattern, is_strict } => {
                let sent = head.uri.path();
                match is_strict {
                    false => {
                        pattern.covers(sent) || other_readings(sent).any(|reading| pattern.covers(&reading))
                    }
                    true => {
                        pattern.covers(sent) && other_readings(sent).all(|reading| pattern.covers(&reading))
                    }
                }
            }
            Self::Hosts(hosts) => {
                host_name(exchange.authority(), |name| hosts.iter().any(|host| host.covers(name)))
            }
            Self::Encrypted(wanted) => exchange.client.tls.is_some() == *wanted,
            Self::Ports(ports) => ports.contains(&exchange.client.local.port()),
            Self::Addresses(blocks) => {
                let local = canonical(exchange.client.local.ip());
                blocks.iter().any(|block| block.contains(&local))
            }
            Self::Header(name, text) => text.fits(exchange.header(name).as_deref()),
            Self::Query(name, text) => text.fits(fields::query(head.uri.query(), name).as_deref()),
            Self::Authority(text) => text.fits(exchange.authority().map(str::as_bytes)),
            Self::QueryString(text) => text.fits(head.uri.query().map(str::as_bytes)),
            Self::Cookie(name, text) => text.fits(fields::cookie(&head.headers, name)),
            Self::Grpc { service, method, is_wide: false } => {
                is_call(exchange, service.as_deref(), method.as_deref())
            }
            Self::Grpc { service, method, is_wide: true } => {
                may_be_call(exchange, service.as_deref(), method.as_deref())
            }
            Self::ContentTypes(types) => {
                let value = head.headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
                value.is_some_and(|value| types.iter().any(|wanted| wanted.covers(value)))
            }
            Self::Clients(blocks) => blocks.iter().any(|block| block.contains(&exchange.client_address)),
            Self::ServerNames(names) => {
                let sent = || exchange.client.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
                let asked = facts.assumed.server_name.or_else(sent);
                asked.is_some_and(|_| host_name(asked, |asked| names.iter().any(|name| name.covers(asked))))
            }
            Self::Certificate(wanted) => wanted.fits(exchange),
            Self::Consumers(names) => exchange.identity.as_ref().is_some_and(|caller| {
                let username = caller.consumer.as_ref().map(|consumer| &*consumer.username);
                names.iter().any(|name| **name == *caller.name || username == Some(name))
            }),
            Self::Groups(names) => {
                let caller = exchange.identity.as_ref();
                let has =
                    |name: &str| caller.is_some_and(|caller| caller.groups().any(|group| **group == *name));
                names.iter().any(|name| has(name))
            }
            Self::Statuses(ranges) => {
                let within = |status: u16| ranges.iter().any(|(low, high)| (*low..=*high).contains(&status));
                facts.status.is_some_and(within)
            }
            Self::Any(conditions) => conditions.iter().any(|condition| condition.all(facts)),
            Self::Not(condition) => !condition.all(facts),
        }
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

impl MediaType {
    fn covers(&self, value: &[u8]) -> bool {
        let essence = value.split(|c| *c == b';').next().unwrap_or_default().trim_ascii();
        let Some(slash) = memchr::memchr(b'/', essence) else { return false };
        let (main, sub) = (&essence[..slash], &essence[slash + 1..]);
        main.eq_ignore_ascii_case(self.main.as_bytes())
            && (self.sub.is_empty() || sub.eq_ignore_ascii_case(self.sub.as_bytes()))
    }
}

impl Certificate {
    fn fits(&self, exchange: &Exchange) -> bool {
        let tls: Option<&ClientTls> = exchange.client.tls.as_ref();
        let is_there = tls.is_some_and(|tls| tls.certificate.is_some());
        if is_there != self.present || tls.is_none() {
            return false;
        }
        if self.subject.is_none() && self.common_name.is_none() && self.san.is_none() {
            return true;
        }
        // A certificate whose names can't be read is nobody's.
        exchange.client.certificate_names().is_some_and(|names| self.names(names))
    }

    fn names(&self, names: &CertificateNames) -> bool {
        let common = names.common_name.as_deref().map(str::as_bytes);
        self.subject.as_ref().is_none_or(|text| text.fits(Some(names.subject.as_bytes())))
            && self.common_name.as_ref().is_none_or(|text| text.fits(common))
            && self.san.as_ref().is_none_or(|text| match names.alternative.as_slice() {
                [] => text.fits(None),
                all => all.iter().any(|name| text.fits(Some(name.as_bytes()))),
            })
    }
}
