//! Compresses responses in the coding that the client likes best: Zstandard, Brotli or gzip.
//!
//! Streams: nothing is held back while the target pauses, and event streams are flushed after each piece. Left alone are
//! responses that are encoded already, that say `no-transform`, answers to HEAD and ranges, 204, 205, 206 and 304, gRPC
//! and gRPC-Web, and media types that are compressed by nature. A strong `ETag` becomes a weak one, since the bytes are
//! others (RFC 9110 §8.8.3). `Vary: Accept-Encoding` is on every response that would be compressed for another client.
//!
//! With `adapt_to_load` levels fall while the gateway's CPUs are busy ([`load`]). With `dictionaries`, clients that hold one get
//! what is not in it ([`dictionary`]).

mod dictionary;
mod load;

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes;
use gateway_core::http::body::Body;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::Starter;
use gateway_core::plugin::{
    Capabilities, Capability, Family, Hooks, OnRequest, OnResponse, Plugin, Seat, Step, World,
};
use gateway_plugin_common::accept;
use gateway_plugin_common::coding::{Coding, Encoder, Prepared};
use gateway_plugin_common::headers;
use gateway_plugin_common::list_fields;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, RANGE, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use dictionary::{Dictionaries, DictionaryConfig};
use load::{AdaptToLoad, LevelByLoad};

/// Settings of `compression`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("older" = "leave_out"))]
pub(crate) struct Config {
    /// Content codings by preference, which decides if the client has none. Default `zstd`, `br`, `gzip`.
    algorithms: Vec<Coding>,
    /// Size below which responses are not compressed, if it is known. Default 256 bytes.
    min_content_length: Bytes,
    /// Media types to compress; `text/*` is every text. Default: texts, JSON, XML, JavaScript, WebAssembly, SVG,
    /// uncompressed fonts, and `+json` and `+xml`.
    content_types: Vec<String>,
    /// Media types to flush after each piece, so that clients receive events immediately. Default `text/event-stream`,
    /// `application/x-ndjson`, `application/stream+json`.
    flush_types: Vec<String>,
    /// Does not compress responses with a strong `ETag`, instead of weakening it. Default false.
    disable_on_etag: bool,
    /// Removes `Accept-Encoding` from requests, so that only the gateway compresses. Default false.
    remove_accept_encoding: bool,
    /// Level of gzip, 1 to 9. Default 6.
    #[schemars(range(min = 1, max = 9))]
    gzip_level: u32,
    /// Quality of Brotli, 0 to 11; above 6 is too slow for dynamic responses. Default 4.
    #[schemars(range(max = 11))]
    brotli_quality: u32,
    /// Level of Zstandard, 1 to 19. Default 3.
    #[schemars(range(min = 1, max = 19))]
    zstd_level: u32,
    /// Lowers the levels while the gateway's CPUs are busy. Default: the levels are constant.
    adapt_to_load: Option<AdaptToLoad>,
    /// Dictionaries that clients have or get from the gateway. Responses to such clients are compressed with them
    /// (`dcz`, RFC 9842) at `zstd_level`, but at least at level 3 (9 for a dictionary above 1 MiB); lower levels find
    /// too little in a dictionary. With `adapt_to_load`, the level never drops below that minimum. At most 32.
    #[schemars(length(max = 32))]
    dictionaries: Vec<DictionaryConfig>,
}

impl Default for Config {
    fn default() -> Self {
        let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect();
        Self {
            algorithms: vec![Coding::Zstd, Coding::Br, Coding::Gzip],
            min_content_length: Bytes(256),
            content_types: texts(TYPES),
            flush_types: texts(&["text/event-stream", "application/x-ndjson", "application/stream+json"]),
            disable_on_etag: false,
            remove_accept_encoding: false,
            gzip_level: 6,
            brotli_quality: 4,
            zstd_level: 3,
            adapt_to_load: None,
            dictionaries: Vec::new(),
        }
    }
}

/// What is compressed where nothing is said.
const TYPES: &[&str] = &[
    "text/*",
    "application/json",
    "application/javascript",
    "application/x-javascript",
    "application/xml",
    "application/x-ndjson",
    "application/wasm",
    "application/vnd.ms-fontobject",
    "application/graphql-response+json",
    "*+json",
    "*+xml",
    "font/ttf",
    "font/otf",
    "image/svg+xml",
    "image/bmp",
    "image/x-icon",
];

/// The plugin.
pub(crate) struct Compression {
    algorithms: Vec<(Coding, u32)>,
    by_load: Option<LevelByLoad>,
    min: u64,
    types: Vec<String>,
    flushed: Vec<String>,
    spares_etags: bool,
    hides: bool,
    zstd_level: u32,
    dictionaries: Option<Dictionaries>,
    done: Counter,
}

/// How a response is compressed.
enum Chosen {
    Coding(Coding, u32),
    Dictionary(Arc<Prepared>),
}

impl Chosen {
    /// The coding's name in `Content-Encoding`.
    fn name(&self) -> &'static str {
        match self {
            Self::Coding(coding, _) => coding.name(),
            Self::Dictionary(_) => dictionary::DCZ,
        }
    }

    /// An encoder; `None` where there is no memory for one.
    fn encoder(self, flushes: bool) -> Option<Encoder> {
        match self {
            Self::Coding(coding, level) => Encoder::new(coding, level, flushes).ok(),
            Self::Dictionary(dictionary) => Encoder::with_dictionary(dictionary, flushes).ok(),
        }
    }
}

/// What the client takes, for a response whose request does not say it any more.
struct Accepted(HeaderMap);

const RESPONSES: Metric =
    Metric::counter("ferrum_compression_responses_total", "Responses compressed by the gateway.");

impl Plugin for Compression {
    const NAME: &'static str = "compression";
    const FAMILY: Family = Family::Transformation;
    const SUMMARY: &'static str =
        "Compresses responses with Zstandard, Brotli or gzip, by the client's preference.";
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if config.algorithms.is_empty() {
            problems.add("config.algorithms", "there is none, so nothing would be compressed");
        }
        for (name, types) in [("content_types", &config.content_types), ("flush_types", &config.flush_types)]
        {
            for (n, text) in types.iter().enumerate() {
                if !text.contains('/') && !text.starts_with("*+") {
                    let problem =
                        problems.add(format!("config.{name}[{n}]"), format!("`{text}` is not a media type"));
                    problem.remedy = Some("such as `text/*`, `application/json` or `*+json`".into());
                }
            }
        }
        let level = |coding| match coding {
            Coding::Gzip => config.gzip_level,
            Coding::Br => config.brotli_quality,
            Coding::Zstd => config.zstd_level,
        };
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let by_load = config.adapt_to_load.and_then(|rules| LevelByLoad::new(rules, world, &mut problems));
        let levels = match by_load {
            Some(_) if config.zstd_level > 1 => vec![config.zstd_level, 1],
            _ => vec![config.zstd_level],
        };
        let dictionaries = Dictionaries::new(config.dictionaries, levels, world).unwrap_or_else(|more| {
            problems.extend(more.0);
            None
        });
        let lower = |types: Vec<String>| types.into_iter().map(|it| it.to_ascii_lowercase()).collect();
        problems.into_result(Self {
            algorithms: config.algorithms.iter().map(|coding| (*coding, level(*coding))).collect(),
            by_load,
            min: config.min_content_length.0,
            types: lower(config.content_types),
            flushed: lower(config.flush_types),
            spares_etags: config.disable_on_etag,
            hides: config.remove_accept_encoding,
            zstd_level: config.zstd_level,
            dictionaries,
            done: world.meters().counter(RESPONSES, &["plugin_config"], &[owner]),
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::TakesInspectedResponses])
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        if self.hides || self.dictionaries.as_ref().is_some_and(Dictionaries::serves) {
            hooks.on_request(self.clone());
        }
        hooks.on_response(self);
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        if let Some(dictionaries) = &self.dictionaries {
            dictionaries.start(starter);
        }
    }
}

impl OnRequest for Compression {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        if let Some(reply) = self.dictionaries.as_ref().and_then(|known| known.answer(exchange)) {
            return Step::Reply(reply);
        }
        if !self.hides {
            return Step::Next;
        }
        // Also of what is or calls itself gRPC, which has a field of its own for this.
        let mut kept = HeaderMap::new();
        for value in exchange.request.headers.get_all(ACCEPT_ENCODING) {
            kept.append(ACCEPT_ENCODING, value.clone());
        }
        exchange.request.headers.remove(ACCEPT_ENCODING);
        exchange.state.put(seat, Accepted(kept));
        Step::Next
    }
}

impl OnResponse for Compression {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        if exchange.dialect == Dialect::Plain && response.status() == StatusCode::NOT_MODIFIED {
            self.not_modified(exchange, response.headers_mut());
            return Step::Next;
        }
        if exchange.request.headers.contains_key(RANGE) {
            self.of_a_range(exchange, response);
            return Step::Next;
        }
        let kept = exchange.state.of::<Accepted>(seat);
        let accepted = kept.map_or(&exchange.request.headers, |Accepted(kept)| kept);
        self.announce(exchange, accepted, response);
        let Some(essence) = self.compressible(exchange, response) else { return Step::Next };
        let flushes = fits(&self.flushed, &essence);
        let chosen = self.choose(exchange, accepted, response.headers());
        let headers = response.headers_mut();
        self.vary(exchange, headers);
        let Some(chosen) = chosen else { return Step::Next };
        let name = chosen.name();
        if exchange.request.method == Method::HEAD {
            // The head that GET would get.
            encoded(headers, name);
            return Step::Next;
        }
        if let (Chosen::Dictionary(_), Some(dictionaries)) = (&chosen, &self.dictionaries) {
            dictionaries.done.add(1);
        }
        // Without memory for an encoder the response goes out as it is.
        let Some(encoder) = chosen.encoder(flushes) else { return Step::Next };
        encoded(headers, name);
        let body = std::mem::take(response.body_mut());
        *response.body_mut() = body.transform(encoder);
        self.done.add(1);
        Step::Next
    }
}

/// What the head says of compressed bytes.
fn encoded(headers: &mut HeaderMap, coding: &'static str) {
    headers::forget_bytes(headers);
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
    weaken(headers);
}

impl Compression {
    /// Says with a 304 what was said with the 200 (RFC 9110 §15.4.5): `Vary`, and the weak `ETag` of what was compressed.
    /// The head of a 304 need not have a media type; then the tag that the client knows says whether it was.
    fn not_modified(&self, exchange: &Exchange, headers: &mut HeaderMap) {
        if headers.contains_key(CONTENT_ENCODING)
            || says(headers, "no-transform")
            || (self.spares_etags && has_strong_tag(headers))
        {
            return;
        }
        let essence = essence(headers);
        if essence.as_ref().is_some_and(|essence| !self.takes(essence)) {
            return;
        }
        // They are those of the plain form, and the client may have another.
        headers::forget_bytes(headers);
        self.vary(exchange, headers);
        let weak = headers.get(ETAG).map(|tag| [b"W/", tag.as_bytes()].concat());
        let mut known = exchange.request.headers.get_all(IF_NONE_MATCH).into_iter();
        let is_known = |field: &HeaderValue| {
            weak.as_ref().is_some_and(|weak| field.as_bytes().windows(weak.len()).any(|part| part == weak))
        };
        if known.any(is_known) {
            weaken(headers);
        }
    }

    /// Says with what answers a range what the whole answer says (RFC 9110 §15.3.7): whose `Vary` it is.
    fn of_a_range(&self, exchange: &Exchange, response: &mut Response<Body>) {
        let headers = response.headers();
        let is_part = exchange.dialect == Dialect::Plain
            && matches!(response.status(), StatusCode::OK | StatusCode::PARTIAL_CONTENT)
            && !headers.contains_key(CONTENT_ENCODING)
            && !says(headers, "no-transform")
            && !(self.spares_etags && has_strong_tag(headers));
        if is_part && essence(headers).is_some_and(|essence| self.takes(&essence)) {
            self.vary(exchange, response.headers_mut());
        }
    }

    /// Whether bodies of this media type are compressed.
    fn takes(&self, essence: &str) -> bool {
        let is_grpc = essence.starts_with("application/grpc");
        !is_grpc && (fits(&self.types, essence) || fits(&self.flushed, essence))
    }

    /// The media type of a response that may be compressed.
    fn compressible(&self, exchange: &Exchange, response: &Response<Body>) -> Option<String> {
        let headers = response.headers();
        let is_head = exchange.request.method == Method::HEAD;
        let is_plain = exchange.dialect == Dialect::Plain
            || response
                .extensions()
                .get::<crate::transformation::grpc_json_transcoding::JsonAnswer>()
                .is_some();
        let is_whole = is_plain
            && !matches!(response.status().as_u16(), 100..=199 | 204..=206 | 304)
            && !headers.contains_key(CONTENT_ENCODING)
            && !headers.contains_key(CONTENT_RANGE)
            && (is_head || !response.body().is_empty());
        if !is_whole || says(headers, "no-transform") || (self.spares_etags && has_strong_tag(headers)) {
            return None;
        }
        let said = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let exact = || response.body().exact_length().filter(|_| !is_head);
        if said.or_else(exact).is_some_and(|length: u64| length < self.min) {
            return None;
        }
        essence(headers).filter(|essence| self.takes(essence))
    }

    /// What the client likes best; `None` where it likes the plain bytes at least as much. A dictionary that it holds comes first
    /// among what it likes alike.
    fn choose(&self, exchange: &Exchange, accepted: &HeaderMap, response: &HeaderMap) -> Option<Chosen> {
        let quality = |name: &str, any: bool| {
            accept::quality(accepted, ACCEPT_ENCODING, |member| {
                if member.eq_ignore_ascii_case(name) { 2 } else { u8::from(any && member == "*") }
            })
        };
        let mut best: Option<((Coding, u32), u16)> = None;
        for (coding, level) in &self.algorithms {
            let wanted = quality(coding.name(), true).unwrap_or(0);
            if wanted > 0 && best.is_none_or(|(_, known)| wanted > known) {
                best = Some(((*coding, *level), wanted));
            }
        }
        let plain = quality("identity", false).unwrap_or(0);
        let level =
            |coding, level| self.by_load.as_ref().map_or(level, |by_load| by_load.level(coding, level));
        let note = |is_lowered| {
            if let Some(by_load) = self.by_load.as_ref().filter(|_| is_lowered) {
                by_load.lowered();
            }
        };
        if let Some(dictionaries) = &self.dictionaries {
            let wanted = quality(dictionary::DCZ, false).unwrap_or(0);
            if wanted > 0 && wanted >= plain && best.is_none_or(|(_, known)| wanted >= known) {
                let by_load = || level(Coding::Zstd, self.zstd_level);
                if let Some(held) = dictionaries.held(exchange, response, self.zstd_level, by_load) {
                    note(held.is_lowered);
                    return Some(Chosen::Dictionary(held.prepared));
                }
            }
        }
        let ((coding, known), _) = best.filter(|(_, wanted)| *wanted >= plain)?;
        let level = level(coding, known);
        note(level < known);
        Some(Chosen::Coding(coding, level))
    }

    /// Points to the dictionaries with a page.
    fn announce(&self, exchange: &Exchange, accepted: &HeaderMap, response: &mut Response<Body>) {
        let Some(dictionaries) = &self.dictionaries else { return };
        let is_page = response.status() == StatusCode::OK
            && essence(response.headers()).is_some_and(|it| it == "text/html");
        if is_page && dictionaries.announce(exchange, accepted, response.headers_mut()) {
            add_vary(response.headers_mut(), "Accept-Encoding");
            add_vary(response.headers_mut(), "Available-Dictionary");
        }
    }

    /// Says that other clients get other bytes.
    fn vary(&self, exchange: &Exchange, headers: &mut HeaderMap) {
        add_vary(headers, "Accept-Encoding");
        if self.dictionaries.as_ref().is_some_and(|known| known.concerns(exchange)) {
            add_vary(headers, "Available-Dictionary");
        }
    }
}

/// The media type, in lower case and without parameters.
fn essence(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next()?.trim().to_ascii_lowercase())
}

/// Whether a media type is among those of a list.
fn fits(types: &[String], essence: &str) -> bool {
    types.iter().any(|wanted| {
        if let Some(suffix) = wanted.strip_prefix('*').filter(|suffix| suffix.starts_with('+')) {
            return essence.ends_with(suffix);
        }
        match wanted.strip_suffix("/*") {
            Some(main) => essence.split_once('/').is_some_and(|(of, _)| of == main),
            None => wanted == essence,
        }
    })
}

/// Whether `Cache-Control` has this directive.
fn says(headers: &HeaderMap, directive: &str) -> bool {
    let values = headers.get_all(CACHE_CONTROL).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(directive))
}

fn has_strong_tag(headers: &HeaderMap) -> bool {
    headers.get(ETAG).is_some_and(|tag| !tag.as_bytes().starts_with(b"W/"))
}

fn weaken(headers: &mut HeaderMap) {
    if !has_strong_tag(headers) {
        return;
    }
    let weak = headers.get(ETAG).map(|tag| [b"W/", tag.as_bytes()].concat());
    if let Some(weak) = weak.and_then(|weak| HeaderValue::from_bytes(&weak).ok()) {
        headers.insert(ETAG, weak);
    }
}

/// Names a request's field in `Vary`.
fn add_vary(headers: &mut HeaderMap, name: &'static str) {
    list_fields::add_names(headers, VARY, &HeaderValue::from_static(name));
}

#[cfg(test)]
mod tests;
