//! Changes to the query of a request, which leave every other parameter as the client wrote it.

use std::borrow::Cow;

use gateway_core::http::exchange::Exchange;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What stands in a parameter's name without being encoded (RFC 3986 §2.3).
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The parameters of a query, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Query(Vec<String>);

impl Query {
    /// The parameters of this query, without its `?`.
    pub fn of(query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Self(pairs.map(str::to_owned).collect())
    }

    /// Whether a parameter of this name is there.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|pair| is_named(pair, name))
    }

    /// Removes every parameter of this name, however it is encoded.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|pair| !is_named(pair, name));
    }

    /// Leaves the parameters whose decoded name fits; says whether any is gone.
    pub fn retain_names(&mut self, fits: impl Fn(&str) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|pair| fits(&decoded_name(pair)));
        self.0.len() < before
    }

    /// Adds a parameter; the value is encoded already.
    pub fn append(&mut self, name: &str, encoded: &str) {
        self.0.push(format!("{}={encoded}", utf8_percent_encode(name, NAME)));
    }

    /// Leaves exactly one parameter of this name, in the place of the first.
    pub fn set(&mut self, name: &str, encoded: &str) {
        let place = self.0.iter().position(|pair| is_named(pair, name)).unwrap_or(self.0.len());
        self.remove(name);
        self.0.insert(place, format!("{}={encoded}", utf8_percent_encode(name, NAME)));
    }

    /// Gives every parameter of a name another one.
    pub fn rename(&mut self, name: &str, new: &str) {
        for pair in self.0.iter_mut().filter(|pair| is_named(pair, name)) {
            let value = pair.split_once('=').map_or("", |(_, value)| value);
            *pair = format!("{}={value}", utf8_percent_encode(new, NAME));
        }
    }

    /// The query; `None` when nothing is in it.
    pub fn text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join("&"))
    }
}

/// The name of a parameter, decoded as [`is_named`] does.
fn decoded_name(pair: &str) -> String {
    let key = pair.split_once('=').map_or(pair, |(key, _)| key).replace('+', " ");
    percent_decode_str(&key).decode_utf8_lossy().into_owned()
}

/// Names are compared decoded: `%61` is `a`, and `+` is a space.
fn is_named(pair: &str, name: &str) -> bool {
    let key = pair.split_once('=').map_or(pair, |(key, _)| key);
    let spaced: Cow<'_, str> = if key.contains('+') { key.replace('+', " ").into() } else { key.into() };
    percent_decode_str(&spaced).eq(name.bytes())
}

/// Path and query as they are about to be forwarded, as far as plugins know.
pub fn current(exchange: &Exchange) -> (String, Option<String>) {
    let uri = &exchange.request.uri;
    let target = exchange.forward_path.as_deref();
    match target {
        Some(target) => match target.split_once('?') {
            Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
            None => (target.to_owned(), None),
        },
        None => (uri.path().to_owned(), uri.query().map(str::to_owned)),
    }
}

/// Puts a changed query in the place of the one that is about to be forwarded. False when it can't stand in a request.
pub fn replace(exchange: &mut Exchange, query: &Query) -> bool {
    let text = query.text();
    if let Some(target) = &mut exchange.forward_path {
        let path = target.split_once('?').map_or(target.as_str(), |(path, _)| path);
        *target = join(path, text.as_deref());
    }
    exchange.set_query(text.as_deref()).is_ok()
}

/// A path with its query.
pub fn join(path: &str, query: Option<&str>) -> String {
    query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"))
}
