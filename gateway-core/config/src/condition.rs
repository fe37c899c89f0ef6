//! The gateway's one matching language: which requests are meant.
//!
//! Routes, plugins (`when`), log filters and cache rules all use it. [`written::Condition`] is what users write, a
//! mapping whose keys all have to hold, with `all`, `any` and `not` to combine more. [`compile()`] checks it, with every
//! problem at once, and makes a [`Condition`], which is evaluated without a lock and, for ordinary heads, without an
//! allocation.

mod compile;
mod excludes;
pub(crate) mod text;
pub mod written;

use http::{HeaderName, Method};
use ipnet::IpNet;

use super::pattern::{HostPattern, PathPattern};
pub use compile::{Use, compile};
pub use text::Text;

/// Conditions within conditions.
pub const MAX_DEPTH: usize = 16;
/// Parts of one condition, all levels together.
pub const MAX_PARTS: usize = 1024;

/// Which requests are meant, compiled.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// All have to hold.
    pub parts: Box<[ConditionPart]>,
}

/// One thing that a condition asks for, named as users write it.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the settings, which have descriptions")]
pub enum ConditionPart {
    Methods(Box<[Method]>),
    Path {
        pattern: PathPattern,
        /// Holds only if every way in which a target may read the path is covered, where otherwise one is enough.
        is_strict: bool,
    },
    Hosts(Box<[HostPattern]>),
    Encrypted(bool),
    Ports(Box<[u16]>),
    Addresses(Box<[IpNet]>),
    Header(HeaderName, Text),
    Query(Box<str>, Text),
    QueryString(Text),
    Authority(Text),
    Cookie(Box<str>, Text),
    Grpc {
        service: Option<Box<str>>,
        method: Option<Box<str>>,
        /// Holds also for what may become a call further on.
        is_wide: bool,
    },
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
pub struct MediaType {
    pub(crate) main: Box<str>,
    pub(crate) sub: Box<str>,
}

impl MediaType {
    /// Whether a `Content-Type` is of it.
    pub fn covers(&self, value: &[u8]) -> bool {
        let essence = value.split(|c| *c == b';').next().unwrap_or_default().trim_ascii();
        let Some(slash) = memchr::memchr(b'/', essence) else { return false };
        let (main, sub) = (&essence[..slash], &essence[slash + 1..]);
        main.eq_ignore_ascii_case(self.main.as_bytes())
            && (self.sub.is_empty() || sub.eq_ignore_ascii_case(self.sub.as_bytes()))
    }
}

/// What is asked of a client's certificate.
#[derive(Debug, Clone, PartialEq)]
pub struct Certificate {
    /// Whether there has to be one, or must not be.
    pub present: bool,
    /// Its subject, as RFC 4514 writes it.
    pub subject: Option<Text>,
    /// Its last common name.
    pub common_name: Option<Text>,
    /// One of its alternative names.
    pub san: Option<Text>,
}

impl Condition {
    /// What it asks of the listener that a request came to: scheme, port and address; `None` where it asks nothing.
    pub fn of_listener(&self) -> Option<Self> {
        let parts: Vec<ConditionPart> =
            self.parts.iter().filter(|part| part.is_of_listener()).cloned().collect();
        (!parts.is_empty()).then(|| Self { parts: parts.into() })
    }

    /// The ports that it asks for; `None` where it holds on any.
    pub fn ports(&self) -> Option<&[u16]> {
        self.parts.iter().find_map(|part| match part {
            ConditionPart::Ports(ports) => Some(&**ports),
            _ => None,
        })
    }

    /// Whether it holds only for requests that came over plain HTTP.
    pub fn requires_plain_http(&self) -> bool {
        self.parts.iter().any(|part| *part == ConditionPart::Encrypted(false))
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
            ConditionPart::Consumers(_) | ConditionPart::Groups(_) => true,
            ConditionPart::Any(several) => several.iter().any(Self::asks_for_caller),
            ConditionPart::Not(other) => other.asks_for_caller(),
            _ => false,
        })
    }

    /// The consumers and the groups that it names, whatever it asks of them.
    pub fn names_callers<'c>(&'c self, consumers: &mut Vec<&'c str>, groups: &mut Vec<&'c str>) {
        for part in &self.parts {
            match part {
                ConditionPart::Consumers(names) => consumers.extend(names.iter().map(|name| &**name)),
                ConditionPart::Groups(names) => groups.extend(names.iter().map(|name| &**name)),
                ConditionPart::Any(several) => {
                    several.iter().for_each(|other| other.names_callers(consumers, groups));
                }
                ConditionPart::Not(other) => other.names_callers(consumers, groups),
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
            ConditionPart::Header(name, _) => Some(name),
            _ => None,
        })
    }
}

impl ConditionPart {
    /// The key that it is written by.
    fn key(&self) -> &'static str {
        match self {
            Self::Methods(_) => "methods",
            Self::Path { .. } => "path",
            Self::Hosts(_) => "hosts",
            Self::Encrypted(_) => "scheme",
            Self::Ports(_) => "ports",
            Self::Addresses(_) => "addresses",
            Self::Header(..) => "headers",
            Self::Query(..) => "query",
            Self::QueryString(_) => "query_string",
            Self::Authority(_) => "authority",
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
    pub fn place(&self) -> String {
        match self {
            Self::Header(name, _) => format!("headers.{name}"),
            Self::Query(name, _) => format!("query.{name}"),
            Self::Cookie(name, _) => format!("cookies.{name}"),
            _ => self.key().to_owned(),
        }
    }
}
