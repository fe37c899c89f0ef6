//! Warm-up: URLs that are fetched through the gateway's own listener, so that they are stored before anybody asks.
//!
//! They go the way any client's request goes: the same proxy, the same plugins, the same key.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gateway_core::config::problem::{Problem, Problems};
use gateway_core::http::body::Body;
use gateway_core::metrics::Metric;
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::{Client, Endpoint, EndpointError};
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use http::header::{ACCEPT_ENCODING, HOST, USER_AGENT};
use http::{HeaderValue, Request, StatusCode, Uri};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;

/// URLs that can be configured, and that can wait.
const MAX_URLS: usize = 10_000;
/// Tries of a URL that the gateway's listener did not answer, a second apart.
const TRIES: u32 = 10;
/// The pause between them.
const PAUSE: Duration = Duration::from_secs(1);
/// How long one may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest body that is read; more is never stored.
const MAX_BODY: u64 = 1 << 30;

const WARMED: Metric = Metric::counter(
    "ferrum_response_cache_warm_up_total",
    "URLs of warm-ups: fetched, refused (status 400 or more), or failed.",
);

/// URLs to fetch in advance.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WarmUp {
    /// URLs, at most 10,000, such as `https://example.com/`, with the scheme and host that clients use. Default none:
    /// only those of `ferrum-edge cache warm`.
    #[serde(default)]
    urls: Vec<String>,
    /// Listeners of this gateway to fetch through, such as `http://127.0.0.1:8000`: one for each scheme. The
    /// certificate of an `https` listener is not verified.
    through: Vec<String>,
    /// Concurrent fetches, 1 to 64. Default 4.
    #[serde(default = "at_once")]
    #[schemars(range(min = 1, max = 64))]
    concurrency: usize,
    /// `Accept-Encoding` of the requests, so that the variant that clients request is stored. Default `gzip, br`.
    #[serde(default = "encodings")]
    accept_encoding: String,
}

fn at_once() -> usize {
    4
}

fn encodings() -> String {
    "gzip, br".into()
}

/// Settings of it, checked.
#[derive(Debug, Default)]
pub(super) struct Warm {
    urls: Vec<Uri>,
    through: Vec<(Endpoint, &'static str)>,
    concurrency: usize,
    accept_encoding: Option<HeaderValue>,
}

impl WarmUp {
    pub(super) fn read(self, problems: &mut Problems) -> Warm {
        let mut through = Vec::new();
        for (n, text) in self.through.iter().enumerate() {
            let at = format!("config.warm_up.through[{n}]");
            match Endpoint::of_url(text) {
                Ok((_, uri)) if uri.path_and_query().is_some_and(|target| target.as_str() != "/") => {
                    problems.add(at, "has a path");
                }
                Ok((mut endpoint, _)) => {
                    let scheme = if endpoint.encrypted { "https" } else { "http" };
                    if through.iter().any(|(_, known)| *known == scheme) {
                        problems.add(&at, format!("there is another one with {scheme}"));
                    }
                    endpoint.tls.verify = false;
                    endpoint.max_response = MAX_BODY;
                    through.push((endpoint.within(TIMEOUT), scheme));
                }
                Err(why) => {
                    problems.add(at, why);
                }
            }
        }
        if self.urls.len() > MAX_URLS {
            problems
                .add("config.warm_up.urls", format!("has {} URLs; {MAX_URLS} are the most", self.urls.len()));
        }
        let schemes: Vec<&str> = through.iter().map(|(_, scheme)| *scheme).collect();
        let mut urls = Vec::new();
        for (n, text) in self.urls.iter().take(MAX_URLS).enumerate() {
            match url(text, &schemes) {
                Ok(url) => urls.push(url),
                Err(why) => _ = problems.add(format!("config.warm_up.urls[{n}]"), why),
            }
        }
        let accept_encoding = match self.accept_encoding.as_str() {
            "" => None,
            text => HeaderValue::from_str(text)
                .inspect_err(|_| {
                    _ = problems.add("config.warm_up.accept_encoding", "is not a header's value")
                })
                .ok(),
        };
        Warm { urls, through, concurrency: self.concurrency.max(1), accept_encoding }
    }
}

/// Why a URL can't be fetched.
#[derive(Debug, thiserror::Error)]
enum WarmUrlError {
    #[error(transparent)]
    Url(#[from] EndpointError),
    #[error("`{url}` can't be fetched: `through` has no listener with {scheme}")]
    NoListener { url: String, scheme: String },
}

/// A URL that can be fetched through a listener with one of these schemes.
fn url(text: &str, schemes: &[&str]) -> Result<Uri, WarmUrlError> {
    let (_, uri) = Endpoint::of_url(text)?;
    let scheme = uri.scheme_str().unwrap_or_default().to_owned();
    match schemes.contains(&scheme.as_str()) {
        true => Ok(uri),
        false => Err(WarmUrlError::NoListener { url: text.to_owned(), scheme }),
    }
}

/// Fetches URLs, some at a time.
pub(super) struct Warmer {
    settings: Warm,
    clients: Vec<(&'static str, Client)>,
    waiting: Mutex<VecDeque<Uri>>,
    work: Notify,
    fetched: Counter,
    refused: Counter,
    failed: Counter,
}

/// The URLs of one action.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WarmRequest {
    urls: Option<Vec<String>>,
}

impl Warmer {
    /// Fetches nothing before [`Self::run`].
    ///
    /// # Errors
    /// What is wrong with the listeners.
    pub(super) fn new(settings: Warm, world: &World) -> Result<Self, Problems> {
        let mut clients = Vec::new();
        for (endpoint, scheme) in &settings.through {
            clients.push((*scheme, world.client(endpoint.clone())?));
        }
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count =
            |outcome| world.meters().counter(WARMED, &["plugin_config", "outcome"], &[owner, outcome]);
        Ok(Self {
            clients,
            waiting: Mutex::new(settings.urls.iter().cloned().collect()),
            work: Notify::new(),
            fetched: count("fetched"),
            refused: count("refused"),
            failed: count("failed"),
            settings,
        })
    }

    /// Whether there is a listener to fetch through.
    pub(super) fn is_ready(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Takes more URLs; says how many.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn add(&self, input: &Value) -> Result<usize, Problems> {
        let written =
            WarmRequest::deserialize(input).map_err(|error| Problems::one("", error.to_string()))?;
        if !self.is_ready() {
            let problem = Problem::new("", "there is no listener to fetch through");
            return Err(Problems(vec![problem.remedy("set `warm_up.through` of the plugin config")]));
        }
        let schemes: Vec<&str> = self.clients.iter().map(|(scheme, _)| *scheme).collect();
        let mut problems = Problems::default();
        let urls: Vec<Uri> = match &written.urls {
            None => self.settings.urls.clone(),
            Some(texts) => {
                let read = texts.iter().enumerate().map(|(n, text)| (n, url(text, &schemes)));
                let read = read.filter_map(|(n, read)| {
                    read.inspect_err(|why| _ = problems.add(format!("urls[{n}]"), why)).ok()
                });
                read.collect()
            }
        };
        problems.into_result(())?;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() + urls.len() > MAX_URLS {
            let why = format!("{} URLs wait already; {MAX_URLS} may", waiting.len());
            return Err(Problems::one("urls", why));
        }
        let count = urls.len();
        waiting.extend(urls);
        drop(waiting);
        self.work.notify_one();
        Ok(count)
    }

    /// Fetches what there is to be fetched, for as long as the plugin is in use.
    pub(super) async fn run(self: Arc<Self>, mut control: TaskControl) -> Result<(), TaskError> {
        let mut under_way = FuturesUnordered::new();
        loop {
            while under_way.len() < self.settings.concurrency {
                let next = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(url) = next else { break };
                under_way.push(self.fetch(url));
            }
            tokio::select! {
                Some(()) = under_way.next() => {}
                () = self.work.notified() => {}
                () = control.ended() => return Ok(()),
            }
        }
    }

    /// Fetches one; what the listener does not answer yet is tried again.
    async fn fetch(&self, url: Uri) {
        let client = self.clients.iter().find(|(scheme, _)| Some(*scheme) == url.scheme_str());
        let Some((_, client)) = client else { return };
        let mut tries = 1;
        loop {
            match client.send(self.request(&url)).await {
                Ok(response) => {
                    let status = response.status();
                    let is_whole = drained(response.into_body()).await;
                    return match (status, is_whole) {
                        (_, false) => self.fail(&url, "the body was cut off"),
                        (status, true) if status.as_u16() >= 400 => self.refuse(&url, status),
                        (_, true) => self.fetched.add(1),
                    };
                }
                Err(error) if tries == TRIES => return self.fail(&url, &error.to_string()),
                Err(_) => {
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn refuse(&self, url: &Uri, status: StatusCode) {
        self.refused.add(1);
        tracing::info!(host = url.host(), path = url.path(), status = status.as_u16(), "warm-up was refused");
    }

    fn fail(&self, url: &Uri, why: &str) {
        self.failed.add(1);
        tracing::warn!(host = url.host(), path = url.path(), error = why, "warm-up failed");
    }

    fn request(&self, url: &Uri) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = url.clone();
        let headers = request.headers_mut();
        if let Some(host) = url.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
            headers.insert(HOST, host);
        }
        if let Some(encodings) = &self.settings.accept_encoding {
            headers.insert(ACCEPT_ENCODING, encodings.clone());
        }
        headers.insert(USER_AGENT, HeaderValue::from_static("ferrum-edge warm-up"));
        request
    }
}

/// Reads a body to its end without keeping it; says whether it came whole.
async fn drained(mut body: Body) -> bool {
    let reading = async {
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(TIMEOUT, reading).await.unwrap_or(false)
}
