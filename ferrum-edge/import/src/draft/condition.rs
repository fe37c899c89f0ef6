//! Conditions as they are written: of `matches`, and of `when`.

use serde_json::{Map, Value};

use super::matcher::Matcher;
use super::settings::{Any, Flag, Numbers, One, Setting, Text, Texts, draft, settings};

/// How a path or another text is compared; a text alone is a prefix of paths, and others are the same.
pub(crate) trait Compared: Setting {}
impl Compared for &str {}
impl Compared for String {}
impl Compared for Matcher {}
impl Compared for &Matcher {}
impl Compared for Value {}

/// Conditions, in the making or as they are.
pub(crate) trait Conditions: Setting {}
impl<T: Conditions> Conditions for Option<T> {}
impl Conditions for Vec<Match> {}
impl Conditions for Vec<Value> {}
impl<const N: usize> Conditions for [Match; N] {}
impl<const N: usize> Conditions for [Value; N] {}

settings! {
    /// Which requests match: all of these.
    Match: "proxies/matches" {
        methods: Texts, path: Compared, hosts: Texts, scheme: Text, ports: Numbers, headers: Any, query: Any,
        query_string: Compared, authority: Compared, cookies: Any, grpc: One<Grpc>, clients: Texts, addresses: Texts, tls: One<Tls>,
        consumers: Texts, groups: Texts, all: Conditions, any: Conditions, not: Any,
    }
    /// gRPC calls.
    Grpc: "proxies/matches/grpc" {}
    /// Facts of the client's TLS handshake.
    Tls: "proxies/matches/tls" { server_names: Texts, client_certificate: One<Certificate> }
    /// Client certificates.
    Certificate: "proxies/matches/tls/client_certificate" { present: Flag }
}

impl Match {
    /// A condition that is written already.
    pub(crate) fn of_condition(condition: Value) -> Self {
        match condition {
            Value::Object(fields) => Self(fields),
            _ => Self::default(),
        }
    }

    /// Requests that match this and `facet`. Of a field that both have, that of `facet` comes under `all`.
    pub(crate) fn with_facet(mut self, facet: &Self) -> Self {
        for (key, value) in &facet.0 {
            if !self.0.contains_key(key) {
                self.0.insert(key.clone(), value.clone());
                continue;
            }
            let one = Value::Object(Map::from_iter([(key.clone(), value.clone())]));
            match self.0.get_mut("all") {
                Some(Value::Array(all)) => all.push(one),
                _ => self.all([one]),
            }
        }
        self
    }

    /// Requests by one header.
    pub(crate) fn of_header(name: impl Into<String>, how: Matcher) -> Self {
        let by_name: Map<String, Value> = Map::from_iter([(name.into(), how.into())]);
        draft!(Match { headers: by_name })
    }
}
