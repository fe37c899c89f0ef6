//! What a stored response is found by.
//!
//! The key is what the target gets to see of the request: proxy, scheme, host, path and query, an upstream or host that
//! another plugin chose, and what the settings add. A query parameter that is left out of the key is taken out of the
//! request too, so that target and cache can't read it differently; for the same reason the target gets the host as the key has it.

use std::borrow::Cow;
use std::sync::Arc;

use gateway_core::consumer::Identity;
use gateway_core::http::credentials::is_credential_field;
use gateway_core::http::exchange::Exchange;
use gateway_core::plugin::Seat;
use gateway_core::{http::forwarding, request_values};
use gateway_plugin_common::accept;
use gateway_plugin_common::query;
use gateway_plugin_common::query::Query;
use http::header::{ACCEPT_ENCODING, ACCEPT_LANGUAGE, COOKIE, Entry, HOST, HeaderName};
use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

/// Parts of a key are put together in place up to this many bytes.
pub(super) type Bytes = SmallVec<[u8; 256]>;

/// Ends a part of a key; no part can have it.
const END: u8 = 0;

/// Fields by which some targets let a request be another one than it is. Whoever sends one of them gets an answer of
/// their own, which is not stored.
const OVERRIDES: &[&str] = &[
    "x-original-url",
    "x-rewrite-url",
    "x-original-host",
    "x-host",
    "x-forwarded-server",
    "x-forwarded-scheme",
    "x-forwarded-ssl",
    "x-forwarded-path",
    "x-forwarded-uri",
    "x-http-host-override",
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-url-scheme",
    "x-scheme",
    "x-script-name",
    "x-proxycontextpath",
    "front-end-https",
    "base-url",
];

/// What of a request makes its key, as configured.
#[derive(Debug, Default)]
pub(super) struct Recipe {
    pub(super) headers: Vec<HeaderName>,
    pub(super) cookies: Vec<String>,
    pub(super) per_caller: bool,
    /// Names of query parameters that don't count; `utm_*` is every one that begins so.
    pub(super) ignored: Vec<Pattern>,
}

/// The name of a parameter, or its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) text: String,
    pub(super) is_prefix: bool,
}

/// The key of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Key {
    /// Proxy, scheme, host, path and query.
    pub(super) place: Bytes,
    /// What else tells responses of one place apart; mostly nothing, which then takes no room.
    pub(super) parts: Vec<u8>,
    /// Where the URL begins in `place`.
    url: usize,
}

impl Pattern {
    pub(super) fn read(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(prefix) => Self { text: prefix.to_owned(), is_prefix: true },
            None => Self { text: text.to_owned(), is_prefix: false },
        }
    }

    fn fits(&self, name: &str) -> bool {
        if self.is_prefix { name.starts_with(&self.text) } else { name == self.text }
    }
}

impl Recipe {
    /// The key of a request, which loses the query parameters that don't count. `None` where the request can't have one.
    pub(super) fn key(&self, exchange: &mut Exchange, seat: Seat<'_>) -> Option<Key> {
        if let Some(query) = self.counted(exchange)
            && !query::replace(exchange, &query)
        {
            return None;
        }
        let host = exchange.authority().and_then(|authority| respelled(authority, exchange.scheme()));
        if let Some(host) = host
            && let Entry::Occupied(mut field) = exchange.request.headers.entry(HOST)
        {
            field.insert(HeaderValue::try_from(host).ok()?);
        }
        let target = exchange.request.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut key = self.at(exchange, seat, target)?;
        self.add_parts(&mut key.parts, exchange);
        Some(key)
    }

    /// The place that a request is about, which is left as it is.
    pub(super) fn place(&self, exchange: &Exchange, seat: Seat<'_>) -> Option<Key> {
        let uri = &exchange.request.uri;
        match self.counted(exchange) {
            Some(query) => {
                let target = query::join(uri.path(), query.text().as_deref());
                self.at(exchange, seat, &target)
            }
            None => self.at(exchange, seat, uri.path_and_query().map_or("/", |target| target.as_str())),
        }
    }

    fn at(&self, exchange: &Exchange, seat: Seat<'_>, target: &str) -> Option<Key> {
        let mut key = Key::default();
        let place = &mut key.place;
        push(place, seat.proxy().id.as_str().as_bytes());
        push(place, exchange.scheme().as_bytes());
        key.url = place.len();
        for part in authority_parts(exchange.authority()?, exchange.scheme()) {
            place.extend_from_slice(part.as_bytes());
        }
        place[key.url..].make_ascii_lowercase();
        place.extend_from_slice(target.as_bytes());
        Some(key)
    }

    /// The query without the parameters that don't count; `None` where it has none of them.
    fn counted(&self, exchange: &Exchange) -> Option<Query> {
        if self.ignored.is_empty() {
            return None;
        }
        let (_, query) = query::current(exchange);
        self.counted_of(query.as_deref())
    }

    /// The same for any query.
    fn counted_of(&self, query: Option<&str>) -> Option<Query> {
        let mut query = Query::of(query);
        query.retain_names(|name| !self.ignored.iter().any(|pattern| pattern.fits(name))).then_some(query)
    }

    /// Path and query as keys have them.
    pub(super) fn target<'t>(&self, target: &'t str) -> Cow<'t, str> {
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        match self.counted_of(query) {
            Some(query) => query::join(path, query.text().as_deref()).into(),
            None => target.into(),
        }
    }

    fn add_parts(&self, parts: &mut Vec<u8>, exchange: &Exchange) {
        let headers = &exchange.request.headers;
        let mut add = |name: &str, value: Option<&[u8]>| {
            let Some(value) = value else { return };
            for part in [name.as_bytes(), value] {
                parts.extend_from_slice(part);
                parts.push(END);
            }
        };
        // What plugins made of the request counts as well as what it was.
        add("path", exchange.forward_path.as_deref().map(str::as_bytes));
        add("upstream", exchange.upstream().map(|id| id.as_bytes()));
        for (tag, value) in exchange.subset().iter().flat_map(|subset| subset.tags()) {
            add("tag", Some(tag.as_bytes()));
            add("tag value", Some(value.as_bytes()));
        }
        add("host", exchange.forward_host().map(HeaderValue::as_bytes));
        if exchange.client.trusted {
            // A trusted proxy's word, which goes on to the target.
            for name in [&forwarding::X_FORWARDED_HOST, &forwarding::X_FORWARDED_PROTO, &PREFIX, &PORT] {
                add(name.as_str(), request_values::header(headers, name).as_deref());
            }
            let forwarded = request_values::header(headers, &http::header::FORWARDED);
            add("forwarded", forwarded.as_deref().filter(|value| names_host(value)));
        }
        for name in &self.headers {
            add(name.as_str(), request_values::header(headers, name).as_deref());
        }
        for name in &self.cookies {
            add("cookie", Some(name.as_bytes()).filter(|_| request_values::cookie(headers, name).is_some()));
            // Of several, some targets take the first and some the last.
            request_values::cookies(headers, name).for_each(|value| add(name, Some(value)));
            cookies_read_as(headers, name).for_each(|pair| add("cookie as sent", Some(pair)));
        }
        if self.per_caller {
            let identity = exchange.identity.as_deref();
            add("caller", identity.map(|identity| identity.name.as_bytes()));
            add("issuer", identity.and_then(Identity::issuer).map(str::as_bytes));
        }
    }

    /// Whether a field of the request could make its response another one than its key says.
    pub(super) fn is_overridden(&self, headers: &HeaderMap) -> bool {
        let is_one = |name: &HeaderName| OVERRIDES.contains(&name.as_str()) && !self.headers.contains(name);
        headers.keys().any(is_one)
    }

    /// Whether the request says who sends it in a way that the key does not tell apart.
    pub(super) fn is_somebody(&self, exchange: &Exchange, seat: Seat<'_>) -> bool {
        match &exchange.identity {
            Some(_) => !self.per_caller,
            // Who was let in by another server's word is somebody too, by whatever that server went by.
            None => exchange.is_checked() || self.has_credentials(&exchange.request.headers, seat),
        }
    }

    /// Whether it has a credential that the key does not tell apart: by one of the well-known fields, or where a plugin of the proxy
    /// reads one. Cookies of other names are no credentials by themselves.
    fn has_credentials(&self, headers: &HeaderMap, seat: Seat<'_>) -> bool {
        let places = seat.state().plugins.credentials.as_deref();
        let is_one = |name: &HeaderName| {
            let is_declared = seat.state().plugins.read_credential_in(name);
            name != COOKIE && (is_declared || is_credential_field(name)) && !self.headers.contains(name)
        };
        let is_cookie = |name: &str| {
            request_values::cookie(headers, name).is_some() && !self.cookies.iter().any(|known| known == name)
        };
        headers.keys().any(is_one)
            || (!self.headers.contains(&COOKIE)
                && places.is_some_and(|places| places.cookies.iter().any(|name| is_cookie(name))))
    }

    /// Whether it has a cookie that the key does not tell apart.
    pub(super) fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let pairs =
            headers.get_all(COOKIE).into_iter().flat_map(|field| field.as_bytes().split(|c| *c == b';'));
        let mut names = pairs.map(|pair| pair.split(|c| *c == b'=').next().unwrap_or_default().trim_ascii());
        !self.headers.contains(&COOKIE)
            && names.any(|name| !self.cookies.iter().any(|known| known.as_bytes() == name))
    }
}

/// Cookies that some targets take for the one of this name, by blanks around it or by what is encoded in it.
fn cookies_read_as<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h [u8]> {
    let pairs = headers.get_all(COOKIE).into_iter().flat_map(|field| field.as_bytes().split(|c| *c == b';'));
    pairs.map(<[u8]>::trim_ascii).filter(move |pair| {
        let said = pair.split(|c| *c == b'=').next().unwrap_or_default();
        let read: Cow<'_, [u8]> = percent_encoding::percent_decode(said).into();
        said != name.as_bytes() && read.trim_ascii() == name.as_bytes()
    })
}

static PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
static PORT: HeaderName = HeaderName::from_static("x-forwarded-port");

/// Whether a `Forwarded` says more than where the client is.
fn names_host(value: &[u8]) -> bool {
    value.windows(5).any(|text| text.eq_ignore_ascii_case(b"host="))
}

/// A host, and a colon with its port: without the port that the scheme has anyway, and without the dot behind a full name.
fn authority_parts<'a>(authority: &'a str, scheme: &str) -> [&'a str; 2] {
    let at = authority.rfind(':').filter(|_| !authority.ends_with(']')).unwrap_or(authority.len());
    let (host, port) = authority.split_at_checked(at).unwrap_or((authority, ""));
    let is_default =
        port == ":" || (scheme == "http" && port == ":80") || (scheme == "https" && port == ":443");
    [host.strip_suffix('.').unwrap_or(host), if is_default { "" } else { port }]
}

/// An authority as keys have it.
pub(super) fn normal_authority(authority: &str, scheme: &str) -> String {
    authority_parts(authority, scheme).concat().to_ascii_lowercase()
}

/// The same, where that is more than a difference of case.
fn respelled(authority: &str, scheme: &str) -> Option<String> {
    let parts = authority_parts(authority, scheme);
    let length: usize = parts.iter().map(|part| part.len()).sum();
    (length < authority.len()).then(|| parts.concat())
}

fn push(bytes: &mut Bytes, part: &[u8]) {
    bytes.extend_from_slice(part);
    bytes.push(END);
}

impl Key {
    /// Host, path and query, as purges name them.
    pub(super) fn url(&self) -> &str {
        self.place.get(self.url..).and_then(|url| std::str::from_utf8(url).ok()).unwrap_or_default()
    }

    /// The same place over the other scheme, and at another target where one is given. For invalidation.
    pub(super) fn sibling(&self, scheme: &str, target: Option<&str>) -> Bytes {
        let mut place = Bytes::new();
        let proxy = self.place.split(|c| *c == END).next().unwrap_or_default();
        push(&mut place, proxy);
        push(&mut place, scheme.as_bytes());
        let url = self.url();
        let url = match target {
            None => url,
            Some(_) => url.split('/').next().unwrap_or_default(),
        };
        place.extend_from_slice(url.as_bytes());
        place.extend_from_slice(target.unwrap_or_default().as_bytes());
        place
    }

    /// The host, with its port if the client gave one.
    pub(super) fn host(&self) -> &str {
        self.url().split('/').next().unwrap_or_default()
    }

    /// Where the number is found by which responses of this place are told apart.
    pub(super) fn anchor(&self) -> Bytes {
        anchor_of(&self.place)
    }

    /// What stored responses of one place are told apart by, where anything is.
    pub(super) fn within(&self, epoch: u64) -> Bytes {
        let mut bytes = self.place.clone();
        bytes.push(END);
        bytes.extend_from_slice(&epoch.to_be_bytes());
        bytes.extend_from_slice(&self.parts);
        bytes
    }
}

/// The key of a place's anchor. No place has one like it.
pub(super) fn anchor_of(place: &Bytes) -> Bytes {
    let mut anchor = place.clone();
    anchor.extend_from_slice(&[END, b'#']);
    anchor
}

/// The codings that responses come in, in the order in which they are named to the target.
const CODINGS: [&str; 3] = ["gzip", "br", "zstd"];
/// What is said of each set of them.
const SETS: [&str; 8] = ["", "gzip", "br", "gzip, br", "zstd", "gzip, zstd", "br, zstd", "gzip, br, zstd"];

/// What a client takes, in one of a few spellings, so that responses don't multiply by how clients write it. Empty is
/// none of the codings.
pub(super) fn accept_encoding(headers: &HeaderMap) -> &'static str {
    if !headers.contains_key(ACCEPT_ENCODING) {
        return "";
    }
    let takes = |coding: &str| {
        let rank =
            |member: &str| if member.eq_ignore_ascii_case(coding) { 2 } else { u8::from(member == "*") };
        accept::quality(headers, ACCEPT_ENCODING, rank).is_some_and(|quality| quality > 0)
    };
    let set = CODINGS.iter().enumerate().map(|(n, coding)| usize::from(takes(coding)) << n).sum::<usize>();
    SETS.get(set).copied().unwrap_or_default()
}

/// A list as requests are told apart by it, where that is another one than it is: without blanks around its members, and languages
/// in lower case (RFC 9110 §12.5.4). `None` leaves it as it is.
fn normal_list(name: &HeaderName, value: &[u8]) -> Option<Bytes> {
    let is_language = *name == ACCEPT_LANGUAGE;
    let is_list = value.contains(&b',') && !value.contains(&b'"');
    if !is_list && !is_language {
        return None;
    }
    let mut normal = Bytes::new();
    for member in value.split(|c| *c == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty()) {
        if !normal.is_empty() {
            normal.push(b',');
        }
        normal.extend_from_slice(member);
    }
    if is_language {
        normal.make_ascii_lowercase();
    }
    Some(normal)
}

/// The fields of a request that a response was chosen by, with their values.
pub(super) type Variant = Box<[(HeaderName, Option<Box<[u8]>>)]>;

/// A request as responses are chosen by it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chooser<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) accept_encoding: &'static str,
}

impl Chooser<'_> {
    /// What the response with this `Vary` was chosen by.
    pub(super) fn variant(&self, names: Vec<HeaderName>) -> Variant {
        let each = names.into_iter().map(|name| {
            let value = self.with(&name, |value| value.map(Box::from));
            (name, value)
        });
        each.collect()
    }

    /// Whether a response chosen by `variant` is this request's as well.
    pub(super) fn fits(&self, variant: &Variant) -> bool {
        variant.iter().all(|(name, known)| self.with(name, |value| value == known.as_deref()))
    }

    fn with<T>(&self, name: &HeaderName, see: impl FnOnce(Option<&[u8]>) -> T) -> T {
        if *name == ACCEPT_ENCODING {
            return see(Some(self.accept_encoding.as_bytes()).filter(|set| !set.is_empty()));
        }
        let value = request_values::header(self.headers, name);
        match value.as_deref().and_then(|value| normal_list(name, value)) {
            Some(normal) => see(Some(&normal)),
            None => see(value.as_deref()),
        }
    }

    /// What requests that may wait for one answer have in common, as far as that is known before the answer.
    pub(super) fn flight(&self, key: &Key, known: Option<&Variant>) -> Arc<[u8]> {
        let mut bytes: Vec<u8> = key.place.to_vec();
        let mut add = |part: &[u8]| {
            bytes.push(END);
            bytes.extend_from_slice(part);
        };
        add(&key.parts);
        add(self.accept_encoding.as_bytes());
        for (name, _) in known.into_iter().flat_map(|known| known.iter()) {
            self.with(name, |value| add(value.unwrap_or(b"\x01")));
        }
        bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_encodings_have_few_spellings() {
        for (text, expected) in [
            ("gzip, deflate, br", "gzip, br"),
            ("br;q=1.0, gzip;q=0.5, *;q=0", "gzip, br"),
            ("*", "gzip, br, zstd"),
            ("gzip;q=0, *", "br, zstd"),
            ("identity", ""),
            ("zstd", "zstd"),
            ("GZIP", "gzip"),
            ("", ""),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(text));
            assert_eq!(accept_encoding(&headers), expected, "{text}");
        }
    }

    #[test]
    fn lists_have_one_spelling() {
        for (name, value, expected) in [
            ("accept-language", "DE, en-GB;q=0.5", Some("de,en-gb;q=0.5")),
            ("accept-language", "DE", Some("de")),
            ("accept", "a/b , c/d,", Some("a/b,c/d")),
            ("accept", "a/B", None),
            ("x", "\"a , b\", c", None),
        ] {
            let normal = normal_list(&HeaderName::from_static(name), value.as_bytes());
            assert_eq!(normal.as_deref(), expected.map(str::as_bytes), "{value}");
        }
    }

    #[test]
    fn authorities() {
        for (scheme, authority, expected) in [
            ("http", "A.test", "a.test"),
            ("http", "a.test.:80", "a.test"),
            ("http", "a.test:", "a.test"),
            ("http", "a.test:443", "a.test:443"),
            ("https", "a.test:443", "a.test"),
            ("https", "a.test:80", "a.test:80"),
            ("http", "[::1]:80", "[::1]"),
            ("http", "[::1]", "[::1]"),
            ("https", "[::80]:81", "[::80]:81"),
        ] {
            assert_eq!(normal_authority(authority, scheme), expected, "{scheme} {authority}");
        }
    }

    #[test]
    fn siblings() {
        let mut key = Key::default();
        push(&mut key.place, b"proxy");
        push(&mut key.place, b"https");
        key.url = key.place.len();
        key.place.extend_from_slice(b"a.test:1/x?y=/z");
        assert_eq!((key.url(), key.host()), ("a.test:1/x?y=/z", "a.test:1"));
        assert_eq!(&key.sibling("https", None)[..], &key.place[..]);
        assert_eq!(&key.sibling("http", Some("/b"))[..], b"proxy\0http\0a.test:1/b");
    }
}
