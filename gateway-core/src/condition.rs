//! The gateway's one matching language: which requests are meant.
//!
//! Routes, plugins (`when`), log filters and cache rules all use it. [`written::Condition`] is what users write, a
//! mapping whose keys all have to hold, with `all`, `any` and `not` to combine more. [`compile`] checks it, with every
//! problem at once, and makes a [`Condition`], which is evaluated without a lock and, for ordinary heads, without an
//! allocation.

mod compile;
mod excludes;
mod text;
pub mod written;

use http::header::CONTENT_TYPE;
use http::{HeaderName, Method};
use ipnet::IpNet;

use crate::certificate::Names;
use crate::config::model::{HostPattern, PathPattern};
use crate::http::dialect::Dialect;
use crate::http::exchange::{ClientTls, Exchange, canonical};
use crate::http::fields;
use crate::route::host_name;
pub use compile::{Use, compile};
use text::Text;
pub(crate) use text::{not_a_regex, whole};

/// Conditions within conditions.
pub const MAX_DEPTH: usize = 16;
/// Parts of one condition, all levels together.
pub const MAX_PARTS: usize = 1024;

/// Which requests are meant, compiled.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// All have to hold.
    parts: Box<[Part]>,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Methods(Box<[Method]>),
    Path(PathPattern),
    Hosts(Box<[HostPattern]>),
    Encrypted(bool),
    Ports(Box<[u16]>),
    Addresses(Box<[IpNet]>),
    Header(HeaderName, Text),
    Query(Box<str>, Text),
    Cookie(Box<str>, Text),
    Grpc { service: Option<Box<str>>, method: Option<Box<str>> },
    ContentTypes(Box<[MediaType]>),
    Clients(Box<[IpNet]>),
    ServerNames(Box<[HostPattern]>),
    Certificate(Box<Certificate>),
    Consumers(Box<[Box<str>]>),
    Groups(Box<[Box<str>]>),
    Statuses(Box<[(u16, u16)]>),
    Any(Box<[Condition]>),
    Not(Condition),
}

/// A media type; an empty subtype is any.
#[derive(Debug, Clone, PartialEq)]
struct MediaType {
    main: Box<str>,
    sub: Box<str>,
}

#[derive(Debug, Clone, PartialEq)]
struct Certificate {
    present: bool,
    subject: Option<Text>,
    common_name: Option<Text>,
    san: Option<Text>,
}

/// What a condition is asked about.
#[derive(Clone, Copy)]
struct Facts<'a> {
    exchange: &'a Exchange,
    status: Option<u16>,
}

impl Condition {
    /// Whether a request is meant.
    #[inline]
    pub fn holds(&self, exchange: &Exchange) -> bool {
        self.all(Facts { exchange, status: None })
    }

    /// Whether a request that got this status is meant.
    pub fn holds_with(&self, exchange: &Exchange, status: u16) -> bool {
        self.all(Facts { exchange, status: Some(status) })
    }

    fn all(&self, facts: Facts<'_>) -> bool {
        self.parts.iter().all(|part| part.holds(facts))
    }

    /// What does not hold for a request, as it is written: `methods`, `headers.x-version`.
    pub fn failing(&self, exchange: &Exchange) -> Vec<String> {
        let facts = Facts { exchange, status: None };
        self.parts.iter().filter(|part| !part.holds(facts)).map(Part::place).collect()
    }

    /// What it asks of the listener that a request came to: scheme, port and address; `None` where it asks nothing.
    pub fn of_listener(&self) -> Option<Self> {
        let parts: Vec<Part> = self.parts.iter().filter(|part| part.is_of_listener()).cloned().collect();
        (!parts.is_empty()).then(|| Self { parts: parts.into() })
    }

    /// The ports that it asks for; `None` where it holds on any.
    pub fn ports(&self) -> Option<&[u16]> {
        self.parts.iter().find_map(|part| match part {
            Part::Ports(ports) => Some(&**ports),
            _ => None,
        })
    }

    /// How many conditions it is made of, by which the more special of two goes first: each key counts one, each named
    /// header, parameter and cookie counts one, `all` counts what is in it, `any` and `not` count one each.
    pub fn weight(&self) -> usize {
        self.parts.len()
    }

    /// True when every request is meant.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether it asks who the caller is, which is not known before authentication.
    pub fn asks_for_caller(&self) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Consumers(_) | Part::Groups(_) => true,
            Part::Any(several) => several.iter().any(Self::asks_for_caller),
            Part::Not(other) => other.asks_for_caller(),
            _ => false,
        })
    }

    /// The consumers and the groups that it names, whatever it asks of them.
    pub fn names_callers<'c>(&'c self, consumers: &mut Vec<&'c str>, groups: &mut Vec<&'c str>) {
        for part in &self.parts {
            match part {
                Part::Consumers(names) => consumers.extend(names.iter().map(|name| &**name)),
                Part::Groups(names) => groups.extend(names.iter().map(|name| &**name)),
                Part::Any(several) => {
                    several.iter().for_each(|other| other.names_callers(consumers, groups));
                }
                Part::Not(other) => other.names_callers(consumers, groups),
                _ => {}
            }
        }
    }

    /// Whether no request can be meant by both, as far as that is plain to see.
    pub fn excludes(&self, other: &Self) -> bool {
        excludes::conditions(self, other)
    }

    /// Whether it asks for a header of this name, so that answers vary by it.
    pub fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.parts.iter().filter_map(|part| match part {
            Part::Header(name, _) => Some(name),
            _ => None,
        })
    }
}

impl Part {
    /// The key that it is written by.
    fn key(&self) -> &'static str {
        match self {
            Self::Methods(_) => "methods",
            Self::Path(_) => "path",
            Self::Hosts(_) => "hosts",
            Self::Encrypted(_) => "scheme",
            Self::Ports(_) => "ports",
            Self::Addresses(_) => "addresses",
            Self::Header(..) => "headers",
            Self::Query(..) => "query",
            Self::Cookie(..) => "cookies",
            Self::Grpc { .. } => "grpc",
            Self::ContentTypes(_) => "content_types",
            Self::Clients(_) => "clients",
            Self::ServerNames(_) => "tls.server_names",
            Self::Certificate(_) => "tls.client_certificate",
            Self::Consumers(_) => "consumers",
            Self::Groups(_) => "groups",
            Self::Statuses(_) => "statuses",
            Self::Any(_) => "any",
            Self::Not(_) => "not",
        }
    }

    fn is_of_listener(&self) -> bool {
        match self {
            Self::Encrypted(_) | Self::Ports(_) | Self::Addresses(_) => true,
            Self::Not(other) => other.parts.iter().all(Self::is_of_listener),
            _ => false,
        }
    }

    /// The key, with the name of the header, parameter or cookie.
    fn place(&self) -> String {
        match self {
            Self::Header(name, _) => format!("headers.{name}"),
            Self::Query(name, _) => format!("query.{name}"),
            Self::Cookie(name, _) => format!("cookies.{name}"),
            _ => self.key().to_owned(),
        }
    }

    fn holds(&self, facts: Facts<'_>) -> bool {
        let exchange = facts.exchange;
        let head = &exchange.request;
        match self {
            Self::Methods(methods) => methods.contains(&head.method),
            Self::Path(path) => path.covers(head.uri.path()),
            Self::Hosts(hosts) => {
                host_name(exchange.authority(), |name| hosts.iter().any(|host| host.covers(name)))
            }
            Self::Encrypted(wanted) => exchange.client.tls.is_some() == *wanted,
            Self::Ports(ports) => ports.contains(&exchange.client.local.port()),
            Self::Addresses(blocks) => {
                let local = canonical(exchange.client.local.ip());
                blocks.iter().any(|block| block.contains(&local))
            }
            Self::Header(name, text) => text.fits(fields::header(&head.headers, name).as_deref()),
            Self::Query(name, text) => text.fits(fields::query(head.uri.query(), name).as_deref()),
            Self::Cookie(name, text) => text.fits(fields::cookie(&head.headers, name)),
            Self::Grpc { service, method } => is_call(exchange, service.as_deref(), method.as_deref()),
            Self::ContentTypes(types) => {
                let value = head.headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
                value.is_some_and(|value| types.iter().any(|wanted| wanted.covers(value)))
            }
            Self::Clients(blocks) => blocks.iter().any(|block| block.contains(&exchange.client_address)),
            Self::ServerNames(names) => {
                let asked = exchange.client.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
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

/// Whether it is a gRPC call of this service and method.
fn is_call(exchange: &Exchange, service: Option<&str>, method: Option<&str>) -> bool {
    if exchange.dialect != Dialect::Grpc {
        return false;
    }
    let path = exchange.request.uri.path();
    let parts = path.strip_prefix('/').and_then(|path| path.rsplit_once('/'));
    parts.is_some_and(|(s, m)| {
        service.is_none_or(|service| service == s) && method.is_none_or(|method| method == m)
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

    fn names(&self, names: &Names) -> bool {
        let common = names.common_name.as_deref().map(str::as_bytes);
        self.subject.as_ref().is_none_or(|text| text.fits(Some(names.subject.as_bytes())))
            && self.common_name.as_ref().is_none_or(|text| text.fits(common))
            && self.san.as_ref().is_none_or(|text| match names.alternative.as_slice() {
                [] => text.fits(None),
                all => all.iter().any(|name| text.fits(Some(name.as_bytes()))),
            })
    }
}

#[cfg(test)]
mod tests;
