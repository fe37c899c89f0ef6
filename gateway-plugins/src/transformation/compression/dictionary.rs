//! Dictionaries that clients hold already (RFC 9842): responses are compressed against them by Zstandard, which is `dcz`.
//!
//! A client learns from `Use-As-Dictionary` for which paths a response may be a dictionary, and names the one it holds by its
//! SHA-256 in `Available-Dictionary`. Here the dictionaries are files: what pages of a site have in common, or versions of a
//! script that clients have from before. A dictionary with a `url` is served by the plugin itself, and pages point to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::config::units::Seconds;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::path::{InvalidPath, in_request_spelling};
use gateway_core::http::reply::Reply;
use gateway_core::metrics::Metric;
use gateway_core::plugin::World;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::Starter;
use gateway_plugin_common::accept;
use gateway_plugin_common::coding::{DictionaryError, Prepared};
use gateway_plugin_common::conditional::{self, Precondition, Validators};
use gateway_plugin_common::list_fields;
use gateway_plugin_common::watched::Watched;
use gateway_plugin_common::wildcard::Wildcard;
use http::header::InvalidHeaderValue;
use http::header::{
    ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LINK,
    ORIGIN,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

/// The coding's name.
pub(super) const DCZ: &str = "dcz";
const AVAILABLE_DICTIONARY: HeaderName = HeaderName::from_static("available-dictionary");
const USE_AS_DICTIONARY: HeaderName = HeaderName::from_static("use-as-dictionary");
/// The largest dictionary. In larger ones Zstandard finds only what stands at their ends, at any level that is fast enough.
const MAX_FILE: u64 = 2 << 20;
/// The lowest level at which Zstandard finds nearly all of what a response has in common with a dictionary: level 1 misses half of
/// it even in small ones.
const LEAST_LEVEL: u32 = 3;
/// The same for dictionaries above [`LARGE`].
const LEAST_LEVEL_OF_LARGE: u32 = 9;
const LARGE: usize = 1 << 20;
const MAX_DICTIONARIES: usize = 32;
/// Bytes of an id (RFC 9842 §2.1.3).
const MAX_ID: usize = 1024;
/// Files are looked at this often.
const REFRESH: Duration = Duration::from_secs(5);

/// A dictionary.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DictionaryConfig {
    /// File with the dictionary, of at most 2 MiB: any bytes that it has in common with responses. The gateway reads it
    /// again when it changes.
    #[schemars(extend("format" = "path"))]
    path: PathBuf,
    /// Request paths for which the dictionary is used, with `*` for any characters, such as `/shop/*`.
    #[serde(rename = "match")]
    paths: String,
    /// Path at which the gateway serves the dictionary. HTML pages then refer clients to it with `Link`. Default none:
    /// clients have it from elsewhere, such as an earlier version of a file with `Use-As-Dictionary`.
    url: Option<String>,
    /// Destinations of the responses for which the dictionary is used, as in `Sec-Fetch-Dest`, such as `document`.
    /// Default any. Requires `url`.
    #[serde(default)]
    destinations: Vec<String>,
    /// Name that clients return in `Dictionary-ID`. Default none. Requires `url`.
    id: Option<String>,
    /// How long clients may cache the dictionary. Default 7 days. Requires `url`.
    max_age: Option<Seconds>,
}

const WEEK: Seconds = Seconds(7 * 24 * 3600);

const RESPONSES: Metric = Metric::counter(
    "ferrum_compression_dictionary_responses_total",
    "Responses compressed with a dictionary that the client holds.",
);

/// The dictionaries of a plugin.
pub(super) struct Dictionaries {
    rules: Vec<Rules>,
    /// One for each of the rules, in their order.
    files: Arc<Watched<Vec<Dictionary>>>,
    pub(super) done: Counter,
}

/// What is said of a dictionary.
struct Rules {
    paths: Wildcard,
    served: Option<Served>,
}

/// A dictionary that the gateway serves.
struct Served {
    url: String,
    use_as: HeaderValue,
    link: HeaderValue,
    cache_control: HeaderValue,
}

/// What is read from a file.
struct Dictionary {
    bytes: Bytes,
    hash: [u8; 32],
    /// By level.
    prepared: Vec<Arc<Prepared>>,
}

/// The dictionary that a client holds, for one response.
pub(super) struct HeldDictionary {
    pub(super) prepared: Arc<Prepared>,
    /// Its level is lower than it would be without the load.
    pub(super) is_lowered: bool,
}

impl Dictionaries {
    /// Reads the dictionaries and prepares them for each of the levels. `None` where there are none.
    ///
    /// # Errors
    /// Settings that mean nothing, and files that can't be used.
    pub(super) fn new(
        configs: Vec<DictionaryConfig>,
        levels: Vec<u32>,
        world: &World,
    ) -> Result<Option<Self>, Problems> {
        if configs.is_empty() {
            return Ok(None);
        }
        let mut problems = Problems::default();
        if configs.len() > MAX_DICTIONARIES {
            let text = format!("there are {}; at most {MAX_DICTIONARIES} are kept in memory", configs.len());
            problems.add("config.dictionaries", text);
            return Err(problems);
        }
        let mut rules = Vec::with_capacity(configs.len());
        for (n, config) in configs.iter().enumerate() {
            match Rules::read(config) {
                Err(error) => {
                    problems.add(format!("config.dictionaries[{n}].{}", error.setting()), error);
                }
                Ok(read) => {
                    let url = read.served.as_ref().map(|served| &served.url);
                    if url.is_some() && rules.iter().any(|known: &Rules| known.url() == url) {
                        problems
                            .add(format!("config.dictionaries[{n}].url"), "another dictionary has this path");
                    }
                    rules.push(read);
                }
            }
        }
        let paths = configs.into_iter().map(|config| config.path).collect();
        let add = move |all: &mut Vec<Dictionary>, bytes: &[u8]| {
            all.push(Dictionary::new(bytes, &levels)?);
            Ok::<_, DictionaryError>(())
        };
        match Watched::new(world, "config.dictionaries", paths, MAX_FILE, add) {
            Err(more) => problems.extend(more.0),
            Ok(files) if problems.is_empty() => {
                let owner = world.owner().map_or("", |owner| owner.config.as_str());
                let done = world.meters().counter(RESPONSES, &["plugin_config"], &[owner]);
                return Ok(Some(Self { rules, files: Arc::new(files), done }));
            }
            Ok(_) => {}
        }
        Err(problems)
    }

    /// Has the files read again when they change.
    pub(super) fn start(&self, starter: &mut Starter<'_>) {
        let files = self.files.clone();
        starter.task("dictionaries", move |control| files.clone().keep_fresh(REFRESH, control));
    }

    /// Whether a dictionary is served.
    pub(super) fn serves(&self) -> bool {
        self.rules.iter().any(|rules| rules.served.is_some())
    }

    /// Whether responses to this request differ by the dictionary that a client holds.
    pub(super) fn concerns(&self, exchange: &Exchange) -> bool {
        self.rules.iter().any(|rules| rules.paths.fits(exchange.path()))
    }

    /// The dictionary that a client holds, prepared for the level nearest to the one that the load leaves; `None` where the response
    /// should not be compressed with it.
    pub(super) fn held(
        &self,
        exchange: &Exchange,
        response: &HeaderMap,
        level: u32,
        by_load: impl FnOnce() -> u32,
    ) -> Option<HeldDictionary> {
        let hash = available(&exchange.request.headers)?;
        if !is_readable(&exchange.request.headers, response) {
            return None;
        }
        let dictionaries = self.files.get();
        let mut all = dictionaries.iter().zip(&self.rules);
        let (dictionary, _) = all.find(|(it, rules)| it.hash == hash && rules.paths.fits(exchange.path()))?;
        let nearest = |level: u32| dictionary.prepared.iter().min_by_key(|it| it.level.abs_diff(level));
        let (usual, prepared) = (nearest(level)?, nearest(by_load())?.clone());
        Some(HeldDictionary { is_lowered: prepared.level < usual.level, prepared })
    }

    /// The answer to a request for a dictionary.
    pub(super) fn answer(&self, exchange: &Exchange) -> Option<Box<Reply>> {
        let method = exchange.method();
        if !matches!(*method, Method::GET | Method::HEAD) {
            return None;
        }
        let (n, served) = self.rules.iter().enumerate().find_map(|(n, rules)| {
            let served = rules.served.as_ref()?;
            (served.url == exchange.path()).then_some((n, served))
        })?;
        let dictionaries = self.files.get();
        let dictionary = dictionaries.get(n)?;
        let mut response = Response::new(Body::empty());
        let tag = HeaderValue::try_from(format!("\"{}\"", BASE64.encode(dictionary.hash))).ok()?;
        let have = Validators { etag: Some(tag.as_bytes()), modified: None };
        let outcome = conditional::evaluate(&exchange.request.headers, method, have);
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, served.cache_control.clone());
        headers.insert(USE_AS_DICTIONARY, served.use_as.clone());
        headers.insert(ETAG, tag);
        match outcome {
            Precondition::Failed => *response.status_mut() = StatusCode::PRECONDITION_FAILED,
            Precondition::NotModified => *response.status_mut() = StatusCode::NOT_MODIFIED,
            Precondition::Proceed => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
                match *method == Method::HEAD {
                    true => _ = headers.insert(CONTENT_LENGTH, HeaderValue::from(dictionary.bytes.len())),
                    false => *response.body_mut() = Body::full(dictionary.bytes.clone()),
                }
            }
        }
        let mut reply = Reply::response(response);
        reply.is_error = Some(false);
        Some(Box::new(reply.reason("dictionary")))
    }

    /// Points a client to the dictionaries that it does not hold, with a page. Whether any is served.
    pub(super) fn announce(
        &self,
        exchange: &Exchange,
        accepted: &HeaderMap,
        response: &mut HeaderMap,
    ) -> bool {
        if quality(accepted) > 0 {
            let held = available(&exchange.request.headers);
            for (dictionary, rules) in self.files.get().iter().zip(&self.rules) {
                if let Some(served) = rules.served.as_ref().filter(|_| held != Some(dictionary.hash)) {
                    list_fields::append_once(response, LINK, served.link.clone());
                }
            }
        }
        self.serves()
    }
}

/// Why the settings of a dictionary can't be used.
#[derive(Debug, thiserror::Error)]
enum RuleError {
    #[error("`{0}` is not a path with `*`, such as `/shop/*`")]
    Pattern(String),
    #[error(transparent)]
    Spelling(#[from] InvalidPath),
    /// This setting has no effect where the target serves the dictionary.
    #[error("is said with the dictionary where the gateway serves it: set `url` too")]
    WithoutUrl(&'static str),
    #[error("`{0}` is not a plain path, such as `/dictionaries/shop`")]
    Url(String),
    #[error("`{0}` is no destination, such as `document` or `script`")]
    Destination(String),
    #[error("is 1 to {MAX_ID} characters of ASCII without quotes and backslashes")]
    Id,
    #[error(transparent)]
    Field(#[from] InvalidHeaderValue),
}

impl RuleError {
    /// The setting that is wrong.
    fn setting(&self) -> &'static str {
        match self {
            Self::Pattern(_) | Self::Spelling(_) => "match",
            Self::WithoutUrl(setting) => setting,
            Self::Url(_) | Self::Field(_) => "url",
            Self::Destination(_) => "destinations",
            Self::Id => "id",
        }
    }
}

impl Rules {
    fn read(config: &DictionaryConfig) -> Result<Self, RuleError> {
        let pattern = &config.paths;
        // Anything else has a meaning of its own in a URL pattern.
        let is_plain = |c: char| c.is_ascii_graphic() && !"\"\\(){}:?#+".contains(c);
        if !pattern.starts_with('/') || !pattern.chars().all(is_plain) {
            return Err(RuleError::Pattern(pattern.clone()));
        }
        let spelled = in_request_spelling(pattern)?;
        let rest = [
            ("destinations", !config.destinations.is_empty()),
            ("id", config.id.is_some()),
            ("max_age", config.max_age.is_some()),
        ];
        if let (None, Some((name, _))) = (&config.url, rest.into_iter().find(|(_, is_given)| *is_given)) {
            return Err(RuleError::WithoutUrl(name));
        }
        let served = config.url.as_deref().map(|url| Served::read(url, config)).transpose()?;
        Ok(Self { paths: Wildcard::read(&spelled), served })
    }

    fn url(&self) -> Option<&String> {
        self.served.as_ref().map(|served| &served.url)
    }
}

impl Served {
    fn read(url: &str, config: &DictionaryConfig) -> Result<Self, RuleError> {
        let is_path = |c: char| c.is_ascii_graphic() && !"\"<>\\?#*%".contains(c);
        if !url.starts_with('/') || url.starts_with("//") || !url.chars().all(is_path) {
            return Err(RuleError::Url(url.to_owned()));
        }
        let mut use_as = format!("match=\"{}\"", config.paths);
        if !config.destinations.is_empty() {
            let is_name = |it: &String| !it.is_empty() && it.bytes().all(|c| c.is_ascii_lowercase());
            if let Some(other) = config.destinations.iter().find(|it| !is_name(it)) {
                return Err(RuleError::Destination(other.clone()));
            }
            let quoted: Vec<_> = config.destinations.iter().map(|it| format!("\"{it}\"")).collect();
            use_as.push_str(&format!(", match-dest=({})", quoted.join(" ")));
        }
        if let Some(id) = &config.id {
            let is_plain = |c: u8| (c == b' ' || c.is_ascii_graphic()) && c != b'"' && c != b'\\';
            if id.is_empty() || id.len() > MAX_ID || !id.bytes().all(is_plain) {
                return Err(RuleError::Id);
            }
            use_as.push_str(&format!(", id=\"{id}\""));
        }
        Ok(Self {
            url: url.to_owned(),
            use_as: HeaderValue::try_from(use_as)?,
            link: HeaderValue::try_from(format!("<{url}>; rel=\"compression-dictionary\""))?,
            cache_control: HeaderValue::try_from(format!("max-age={}", config.max_age.unwrap_or(WEEK).0))?,
        })
    }
}

impl Dictionary {
    fn new(bytes: &[u8], levels: &[u32]) -> Result<Self, DictionaryError> {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
        let least = if bytes.len() > LARGE { LEAST_LEVEL_OF_LARGE } else { LEAST_LEVEL };
        let mut levels: Vec<u32> = levels.iter().map(|level| (*level).max(least)).collect();
        levels.dedup();
        let prepare = |level: u32| Prepared::new(bytes, &hash, level).map(Arc::new);
        let prepared = levels.into_iter().map(prepare).collect::<Result<_, _>>()?;
        Ok(Self { bytes: Bytes::copy_from_slice(bytes), hash, prepared })
    }
}

/// How much a client likes `dcz`; `*` says nothing of it.
pub(super) fn quality(accepted: &HeaderMap) -> u16 {
    let rank = |member: &str| u8::from(member.eq_ignore_ascii_case(DCZ));
    accept::quality(accepted, ACCEPT_ENCODING, rank).unwrap_or(0)
}

/// The hash of the dictionary that a client holds (RFC 9842 §2.2): one byte sequence (RFC 9651 §3.3.5).
fn available(request: &HeaderMap) -> Option<[u8; 32]> {
    let mut all = request.get_all(AVAILABLE_DICTIONARY).into_iter();
    let (Some(value), None) = (all.next(), all.next()) else { return None };
    let encoded = value.as_bytes().trim_ascii().strip_prefix(b":")?.strip_suffix(b":")?;
    BASE64.decode(encoded).ok()?.try_into().ok()
}

/// Whether the page that asks may read the response. One that may not could learn from its length what it has in common with
/// the dictionary (RFC 9842 §9.3). Clients that say nothing of it are no browsers.
fn is_readable(request: &HeaderMap, response: &HeaderMap) -> bool {
    let said = |name: &str| request.get(name).map(HeaderValue::as_bytes);
    match (said("sec-fetch-site"), said("sec-fetch-mode")) {
        (None, _) | (Some(b"same-origin"), _) | (_, Some(b"navigate" | b"same-origin")) => true,
        (_, Some(b"cors")) => {
            let allowed = response.get(ACCESS_CONTROL_ALLOW_ORIGIN).map(HeaderValue::as_bytes);
            allowed.is_some_and(|allowed| allowed == b"*" || Some(allowed) == said(ORIGIN.as_str()))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
