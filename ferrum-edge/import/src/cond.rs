//! Conditions put together: what holds always, never, or for some requests.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::draft::{Certificate, Compared, Grpc, Match, Matcher, Text, Texts, Tls, draft};

/// Conditions of a list that are compared with one another one by one.
const FEW: usize = 16;

/// When something holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cond {
    Always,
    Never,
    /// For the requests that a condition of the gateway's means.
    Is(Value),
}

impl Cond {
    pub(crate) fn is(one: impl Into<Value>) -> Self {
        Self::Is(one.into())
    }

    /// The path, in one of the gateway's ways.
    pub(crate) fn path(how: &str, text: &str) -> Self {
        Self::Is(keyed("path", keyed(how, text.into())))
    }

    pub(crate) fn path_is(how: Matcher) -> Self {
        Self::is(draft!(Match { path: how }))
    }

    /// Methods; the gateway's GET stands for HEAD, too, which is taken out unless it is among them.
    pub(crate) fn methods(list: &[&str]) -> Self {
        let cond = Self::is(draft!(Match { methods: list }));
        let without = list.contains(&"GET") && !list.contains(&"HEAD");
        if without { cond.and(Self::is(draft!(Match { methods: ["HEAD"] })).negate()) } else { cond }
    }

    /// Names, and `*.suffix` for all below one.
    pub(crate) fn hosts(names: impl Texts) -> Self {
        Self::is(draft!(Match { hosts: names }))
    }

    /// The host as it was sent, with its port.
    pub(crate) fn authority(how: Matcher) -> Self {
        Self::is(draft!(Match { authority: how }))
    }

    pub(crate) fn scheme(scheme: impl Text) -> Self {
        Self::is(draft!(Match { scheme }))
    }

    pub(crate) fn port(number: u16) -> Self {
        Self::is(draft!(Match { ports: [number] }))
    }

    /// Networks of clients.
    pub(crate) fn clients(networks: impl Texts) -> Self {
        Self::is(draft!(Match { clients: networks }))
    }

    pub(crate) fn header(name: impl Into<String>, how: Matcher) -> Self {
        Self::is(Match::of_header(name, how))
    }

    /// A parameter of the query, decoded.
    pub(crate) fn query(name: impl Into<String>, how: Matcher) -> Self {
        Self::is(draft!(Match { query: keyed(name, how.into()) }))
    }

    pub(crate) fn cookie(name: impl Into<String>, how: Matcher) -> Self {
        Self::is(draft!(Match { cookies: keyed(name, how.into()) }))
    }

    /// The query as it was sent.
    pub(crate) fn query_string(how: Matcher) -> Self {
        Self::is(draft!(Match { query_string: how }))
    }

    pub(crate) fn grpc() -> Self {
        Self::is(draft!(Match { grpc: Grpc::default() }))
    }

    /// Connections over TLS.
    pub(crate) fn tls() -> Self {
        Self::is(draft!(Match { tls: Tls::default() }))
    }

    /// Names that clients ask for in the handshake.
    pub(crate) fn server_names(names: impl Texts) -> Self {
        Self::is(draft!(Match { tls: draft!(Tls { server_names: names }) }))
    }

    /// Clients that show a certificate.
    pub(crate) fn client_certificate() -> Self {
        let shown = draft!(Certificate { present: true });
        Self::is(draft!(Match { tls: draft!(Tls { client_certificate: shown }) }))
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self::all([self, other])
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self::any([self, other])
    }

    /// Conditions of a list joined by this key, each once.
    fn join(list: impl IntoIterator<Item = Value>, key: &str) -> Self {
        let mut parts: Vec<Value> = Vec::new();
        let mut known: HashSet<String> = HashSet::new();
        for part in list.into_iter().flat_map(|one| flat(one, key)) {
            let is_new = match parts.len() {
                0..FEW => !parts.contains(&part),
                FEW => {
                    known = parts.iter().map(Value::to_string).collect();
                    known.insert(part.to_string())
                }
                _ => known.insert(part.to_string()),
            };
            if is_new {
                parts.push(part);
            }
        }
        Self::joined(parts, key)
    }

    fn joined(mut parts: Vec<Value>, key: &str) -> Self {
        match parts.len() {
            1 => Self::Is(parts.swap_remove(0)),
            _ => Self::Is(keyed(key, Value::Array(parts))),
        }
    }

    pub(crate) fn negate(self) -> Self {
        match self {
            Self::Always => Self::Never,
            Self::Never => Self::Always,
            Self::Is(Value::Object(mut one)) if one.len() == 1 && one.contains_key("not") => {
                Self::Is(one.remove("not").unwrap_or_default())
            }
            Self::Is(one) => Self::Is(keyed("not", one)),
        }
    }

    /// All of these.
    pub(crate) fn all(list: impl IntoIterator<Item = Self>) -> Self {
        Self::of_list(list, &Self::Always, &Self::Never, "all")
    }

    /// Any of these.
    pub(crate) fn any(list: impl IntoIterator<Item = Self>) -> Self {
        Self::of_list(list, &Self::Never, &Self::Always, "any")
    }

    /// A list joined by this key: `none` says nothing in it, and `whole` all.
    fn of_list(list: impl IntoIterator<Item = Self>, none: &Self, whole: &Self, key: &str) -> Self {
        let (mut parts, mut is_whole) = (Vec::new(), false);
        for one in list {
            is_whole |= one == *whole;
            if let Self::Is(value) = one {
                parts.push(value);
            }
        }
        match parts.len() {
            _ if is_whole => whole.clone(),
            0 => none.clone(),
            1 => Self::Is(parts.swap_remove(0)),
            _ => Self::join(parts, key),
        }
    }

    /// What the first of several that holds says; `last` where none does.
    pub(crate) fn first(list: impl DoubleEndedIterator<Item = (Self, bool)>, last: bool) -> Self {
        let start = if last { Self::Always } else { Self::Never };
        list.rev()
            .fold(start, |rest, (cond, says)| if says { cond.or(rest) } else { cond.negate().and(rest) })
    }

    /// For `when`: none where it always holds.
    pub(crate) fn when(&self) -> Option<Value> {
        match self {
            Self::Is(value) => Some(value.clone()),
            Self::Always => None,
            Self::Never => Self::path_is(Matcher::regex(".*")).negate().when(),
        }
    }

    /// As an entry of a proxy's `matches` with this path.
    pub(crate) fn with_path(&self, path: impl Compared) -> Match {
        let mut made = draft!(Match { path });
        match self {
            Self::Is(Value::Object(one)) if one.contains_key("path") || one.contains_key("hosts") => {
                made.all([Value::Object(one.clone())]);
            }
            Self::Is(Value::Object(one)) => {
                made.extend(one.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            _ => {}
        }
        made
    }

    /// Bytes that it takes, written down.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Is(value) => {
                let mut count = ByteCount(0);
                // Counting doesn't fail.
                drop(serde_json::to_writer(&mut count, value));
                count.0
            }
            _ => 0,
        }
    }

    /// How many single conditions it is made of, up to about this many.
    pub(crate) fn parts(&self, most: usize) -> usize {
        fn count(value: &Value, most: usize, made: &mut usize) {
            for (key, value) in value.as_object().into_iter().flatten() {
                *made += 1;
                match (key.as_str(), value) {
                    _ if *made > most => return,
                    ("all" | "any", Value::Array(list)) => list.iter().for_each(|one| count(one, most, made)),
                    ("not", one) => count(one, most, made),
                    _ => {}
                }
            }
        }
        let mut made = 0;
        if let Self::Is(value) = self {
            count(value, most, &mut made);
        }
        made
    }

    /// How deep conditions are in one another.
    pub(crate) fn depth(&self) -> usize {
        fn of(value: &Value) -> usize {
            let inner = |value: &Value| match value {
                Value::Array(list) => list.iter().map(of).max().unwrap_or(0),
                other => of(other),
            };
            ["all", "any", "not"]
                .iter()
                .filter_map(|key| value.get(key))
                .map(|it| 1 + inner(it))
                .max()
                .unwrap_or(0)
        }
        match self {
            Self::Is(value) => of(value),
            _ => 0,
        }
    }
}

/// Counts what is written to it.
struct ByteCount(usize);

impl std::io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An object with one key; `json!` would copy the value.
pub(crate) fn keyed(key: impl Into<String>, value: Value) -> Value {
    Value::Object(Map::from_iter([(key.into(), value)]))
}

fn flat(value: Value, key: &str) -> Vec<Value> {
    match value {
        Value::Object(mut one) if one.len() == 1 && one.get(key).is_some_and(Value::is_array) => {
            match one.remove(key) {
                Some(Value::Array(list)) => list,
                _ => Vec::new(),
            }
        }
        other => vec![other],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn c(name: &str) -> Cond {
        Cond::is(json!({ "methods": [name] }))
    }

    #[test]
    fn conditions_put_together() {
        assert_eq!(c("A").and(Cond::Always), c("A"));
        assert_eq!(c("A").or(Cond::Always), Cond::Always);
        assert_eq!(c("A").negate().negate(), c("A"));
        let three = Cond::all([c("A"), c("B"), c("C")]);
        assert_eq!(
            three,
            Cond::is(json!({ "all": [{ "methods": ["A"] }, { "methods": ["B"] }, { "methods": ["C"] }] }))
        );
        // The first that holds says: A denies, B allows, all others are denied.
        let denied = Cond::first([(c("A"), true), (c("B"), false)].into_iter(), true);
        assert_eq!(denied, c("A").or(c("B").negate()));
        assert_eq!(three.depth(), 1);
        assert_eq!((three.parts(9), three.negate().parts(9), Cond::Always.parts(9)), (4, 5, 0));
    }
}
