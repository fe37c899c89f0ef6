//! Where an issuer's keys come from: fetched, kept while the issuer is away, fetched again for a key that is not known.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::metrics::Metric;
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::{CallError, Client};
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use gateway_plugin_common::server_url::{self, ServerUrlError};
use gateway_plugin_common::strict_json;
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode, Uri};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::jose::jwk::KeySet;

/// Bytes of a key set or discovery document.
const MAX_DOCUMENT: u64 = 256 << 10;

/// How often keys are fetched, and how long they are good for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Between two fetches of keys that are known.
    pub(crate) refresh: Duration,
    /// Between two fetches that requests cause.
    pub(crate) at_least: Duration,
    /// The same for as long as there are no keys at all, so that a server that starts late is soon found.
    pub(crate) at_first: Duration,
    /// How long keys are used after the last fetch that worked.
    pub(crate) max_age: Duration,
    /// How long one fetch may take.
    pub(crate) timeout: Duration,
    /// The setting that says so; empty where none does.
    pub(crate) timeout_setting: &'static str,
}

/// The keys of one issuer.
pub(crate) struct Source {
    world: World,
    issuer: String,
    ca_path: Option<std::path::PathBuf>,
    pace: Pace,
    first: (Client, Uri),
    is_discovery: bool,
    held: Arc<IssuerState>,
    fetched: Counter,
    failed: Counter,
}

/// What is known of an issuer; outlives a change of settings.
#[derive(Default)]
struct IssuerState {
    keys: ArcSwapOption<(Instant, Arc<KeySet>)>,
    /// The discovery document that named them.
    about: ArcSwapOption<Map<String, Value>>,
    /// The last fetch; the lock lets one ask at a time.
    asked: Mutex<Option<Attempt>>,
    /// Why the last fetch failed, if it did.
    failure: ArcSwapOption<String>,
}

/// A fetch of keys.
#[derive(Clone, Copy)]
struct Attempt {
    at: Instant,
    /// Not while it goes on, so that one that is broken off has not worked.
    has_worked: bool,
}

/// What is known of a key after asking for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyFreshness {
    /// The keys are those that the issuer gave when it was last asked: one that is not among them is none of its keys.
    Fresh,
    /// The issuer gave no keys when it was last asked: it may have others by now.
    Failed,
}

const FETCHES: Metric = Metric::counter(
    "ferrum_jwks_auth_fetches_total",
    "Fetches of issuers' keys by issuer and result: ok or failed.",
);

impl Source {
    /// The keys behind `url`, which is a key set's or a discovery document's.
    pub(crate) fn new(
        world: &World,
        issuer: &str,
        ca_path: Option<std::path::PathBuf>,
        url: &str,
        is_discovery: bool,
        pace: Pace,
    ) -> Result<Self, Problems> {
        let first = client(world, url, ca_path.clone(), pace).map_err(|error| Problems::one("", error))?;
        let count = |result| world.meters().counter(FETCHES, &["issuer", "result"], &[issuer, result]);
        Ok(Self {
            issuer: issuer.to_owned(),
            ca_path,
            pace,
            first,
            is_discovery,
            held: world.kept(&format!("{issuer} {url}"), IssuerState::default),
            fetched: count("ok"),
            failed: count("failed"),
            world: world.clone(),
        })
    }

    /// The keys, unless they are too old.
    pub(crate) fn keys(&self) -> Option<Arc<KeySet>> {
        let held = self.held.keys.load();
        let (fetched, keys) = &**held.as_ref()?;
        (fetched.elapsed() < self.pace.max_age).then(|| keys.clone())
    }

    /// The discovery document, where the keys were found by one.
    pub(crate) fn about(&self) -> Option<Arc<Map<String, Value>>> {
        self.held.about.load_full()
    }

    /// Why there are no keys.
    pub(crate) fn why(&self) -> String {
        match self.held.failure.load().as_deref() {
            Some(why) => why.clone(),
            None => format!("{} does not answer in time", self.first.1),
        }
    }

    /// Seconds after which it makes sense to ask again for what could not be had.
    pub(crate) fn retry_after(&self) -> HeaderValue {
        HeaderValue::from(self.pace.at_least.as_secs().max(1))
    }

    /// Has the keys fetched that are to take the place of `known`, unless somebody has just done so or tried to. One
    /// fetch at a time; everybody who asks meanwhile waits for it, and no longer than one fetch may take. It goes on when who
    /// asked leaves: otherwise those who leave at once could keep new keys from everybody else.
    pub(crate) async fn ask(self: &Arc<Self>, known: Option<&Arc<KeySet>>) -> KeyFreshness {
        if let Ok(asked) = self.held.asked.try_lock()
            && let Some(answer) = self.settled(*asked, known)
        {
            return answer;
        }
        let (source, known, within) = (self.clone(), known.cloned(), self.pace.timeout);
        let asking = tokio::spawn(async move {
            tokio::time::timeout(within, source.ask_in_turn(known.as_ref()))
                .await
                .unwrap_or(KeyFreshness::Failed)
        });
        asking.await.unwrap_or(KeyFreshness::Failed)
    }

    async fn ask_in_turn(&self, known: Option<&Arc<KeySet>>) -> KeyFreshness {
        let mut asked = self.held.asked.lock().await;
        if let Some(answer) = self.settled(*asked, known) {
            return answer;
        }
        // A failure is counted, and leaves what is known as it is.
        match self.fetch(&mut asked).await {
            Ok(()) => KeyFreshness::Fresh,
            Err(_) => KeyFreshness::Failed,
        }
    }

    /// What can be said without another fetch, if it is too early for one or somebody else's has brought newer keys.
    fn settled(&self, asked: Option<Attempt>, known: Option<&Arc<KeySet>>) -> Option<KeyFreshness> {
        let now = self.keys();
        let is_newer = match (&now, known) {
            (Some(now), Some(known)) => !Arc::ptr_eq(now, known),
            (now, _) => now.is_some(),
        };
        let pause = if now.is_some() { self.pace.at_least } else { self.pace.at_first };
        if !is_newer && asked.is_none_or(|last| last.at.elapsed() >= pause) {
            return None;
        }
        Some(if asked.is_some_and(|last| last.has_worked) {
            KeyFreshness::Fresh
        } else {
            KeyFreshness::Failed
        })
    }

    /// Keeps the keys fresh until the plugin is gone.
    pub(crate) async fn keep_fresh(self: Arc<Self>, mut control: TaskControl) -> Result<(), TaskError> {
        while !control.is_ended() {
            {
                let mut asked = self.held.asked.lock().await;
                self.fetch(&mut asked).await?;
            }
            tokio::select! {
                () = control.ended() => {}
                () = tokio::time::sleep(self.pace.refresh) => {}
            }
        }
        Ok(())
    }

    async fn fetch(&self, asked: &mut Option<Attempt>) -> Result<(), KeysError> {
        let at = Instant::now();
        *asked = Some(Attempt { at, has_worked: false });
        let fetched = self.fetch_keys().await;
        *asked = Some(Attempt { at, has_worked: fetched.is_ok() });
        match &fetched {
            Ok(keys) => {
                self.fetched.add(1);
                self.held.failure.store(None);
                self.held.keys.store(Some(Arc::new((Instant::now(), keys.clone()))));
            }
            Err(why) => {
                self.failed.add(1);
                self.held.failure.store(Some(Arc::new(why.to_string())));
            }
        }
        fetched.map(drop)
    }

    async fn fetch_keys(&self) -> Result<Arc<KeySet>, KeysError> {
        let (first, uri) = &self.first;
        let document = get(first, uri).await?;
        if !self.is_discovery {
            return KeySet::read(&document).ok_or_else(|| KeysError::NoKeySet(uri.clone()));
        }
        let about = strict_json::object(&document).ok_or_else(|| KeysError::NoDiscovery(uri.clone()))?;
        let text = |name: &str| about.get(name).and_then(Value::as_str);
        // OpenID Connect Discovery §4.3: otherwise one issuer could speak for another.
        if text("issuer") != Some(self.issuer.as_str()) {
            return Err(KeysError::OtherIssuer(uri.clone()));
        }
        let url = text("jwks_uri").ok_or_else(|| KeysError::NoJwksUri(uri.clone()))?;
        if uri.scheme_str() == Some("https") && !url.starts_with("https://") {
            return Err(KeysError::NotEncrypted(uri.clone()));
        }
        let (client, uri) = client(&self.world, url, self.ca_path.clone(), self.pace)?;
        let keys = KeySet::read(&get(&client, &uri).await?).ok_or(KeysError::NoKeySet(uri))?;
        self.held.about.store(Some(Arc::new(about)));
        Ok(keys)
    }
}

/// Why there are no new keys.
#[derive(Debug, Error)]
enum KeysError {
    #[error("{0} has no key set")]
    NoKeySet(Uri),
    #[error("{0} is no discovery document")]
    NoDiscovery(Uri),
    #[error("{0} is of another issuer")]
    OtherIssuer(Uri),
    #[error("{0} has no `jwks_uri`")]
    NoJwksUri(Uri),
    #[error("{0} names keys that are not behind https")]
    NotEncrypted(Uri),
    /// The URL that the discovery document names.
    #[error(transparent)]
    Client(#[from] ServerUrlError),
    #[error("{uri}: {error}")]
    Call { uri: Uri, error: CallError },
    #[error("{uri} answers {status}")]
    Status { uri: Uri, status: StatusCode },
}

fn client(
    world: &World,
    url: &str,
    ca_path: Option<std::path::PathBuf>,
    pace: Pace,
) -> Result<(Client, Uri), ServerUrlError> {
    server_url::own_client(world, url, |endpoint| {
        let mut endpoint = endpoint.trusting(ca_path).within_setting(pace.timeout, pace.timeout_setting);
        endpoint.max_response = MAX_DOCUMENT;
        endpoint
    })
}

async fn get(client: &Client, uri: &Uri) -> Result<bytes::Bytes, KeysError> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = uri.clone();
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
    let called = |error| KeysError::Call { uri: uri.clone(), error };
    let response = client.fetch(request).await.map_err(called)?;
    if response.status() != StatusCode::OK {
        return Err(KeysError::Status { uri: uri.clone(), status: response.status() });
    }
    Ok(response.into_body())
}
