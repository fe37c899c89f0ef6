//! Lists that are fetched from URLs: each by a task of its own, again and again; the last good copy stays in force.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::plugin::World;
use gateway_core::plugin::world::blocking::Busy;
use gateway_core::plugin::world::calls::{CallError, Client};
use gateway_core::plugin::world::meters::{Counter, Gauge};
use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use gateway_plugin_common::hex::hex;
use gateway_plugin_common::server_url;
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Request, StatusCode, Uri};
use thiserror::Error;

use super::networks::{NetworkListError, Networks, Parts};
use super::{Config, MAX_FILE};

/// The networks that a URL had, kept over a change of settings.
#[derive(Default)]
pub(super) struct Fetched {
    networks: ArcSwapOption<Networks>,
    /// What the answer they are from was marked with.
    tag: Mutex<Option<HeaderValue>>,
}

/// One URL.
pub(super) struct Remote {
    world: World,
    client: Client,
    uri: Uri,
    every: Duration,
    copy: Option<PathBuf>,
    fetched: Arc<Fetched>,
    failed: Counter,
    fetches: Counter,
    entries: Gauge,
}

/// What a list's URLs say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListMatch {
    Yes,
    No,
    /// Not on any that is known, and one has not been fetched yet.
    Unknown,
}

/// What is counted about URLs.
pub(super) struct Counts {
    pub(super) fetched: Counter,
    pub(super) failed: Counter,
}

impl Remote {
    /// Reads one setting; what is wrong with it goes to `problems`.
    pub(super) fn new(
        place: &str,
        url: &str,
        config: &Config,
        world: &World,
        counts: &Counts,
        entries: Gauge,
        problems: &mut Problems,
    ) -> Option<Arc<Self>> {
        let server = server_url::client(world, url, |endpoint| {
            let mut endpoint = endpoint
                .trusting(config.ca_path.clone())
                .within_setting(config.url_timeout.duration(), "url_timeout");
            endpoint.max_response = config.max_url_size.0.min(MAX_FILE);
            endpoint
        });
        let (client, uri) = match server {
            Ok(server) => server,
            Err(why) => {
                problems.add(place, why);
                return None;
            }
        };
        let digest = digest(&SHA256, url.as_bytes());
        let name = hex(digest.as_ref().get(..16).unwrap_or_default());
        let copy = config.copy_path.as_ref().map(|folder| folder.join(format!("{name}.list")));
        let fetched = world.kept(&format!("list of {url}"), Fetched::default);
        let remote = Self {
            world: world.clone(),
            client,
            uri,
            every: config.url_refresh.duration(),
            copy,
            fetched,
            failed: counts.failed.clone(),
            fetches: counts.fetched.clone(),
            entries,
        };
        remote.read_copy();
        Some(Arc::new(remote))
    }

    /// Takes the copy of an earlier run, where nothing has been fetched.
    fn read_copy(&self) {
        let Some(path) = self.copy.as_ref().filter(|_| self.fetched.networks.load().is_none()) else {
            return;
        };
        match self.world.files().read(path, MAX_FILE) {
            Ok(bytes) => match parse(&bytes) {
                Ok(networks) => self.take(networks),
                Err(why) => tracing::warn!(path = %path.display(), %why, "the copy of a list can't be used"),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(path = %path.display(), %error, "the copy of a list can't be read"),
        }
    }

    fn take(&self, networks: Networks) {
        self.entries.set(i64::try_from(networks.len()).unwrap_or(i64::MAX));
        self.fetched.networks.store(Some(Arc::new(networks)));
    }

    /// Fetches the list at once, then now and then, for as long as the plugin is in use.
    ///
    /// # Errors
    /// It can't be fetched or used; what was fetched before stays in force, and it is tried again soon.
    pub(super) async fn keep_fresh(self: Arc<Self>, mut control: TaskControl) -> Result<(), TaskError> {
        loop {
            let fetched = tokio::select! {
                () = control.ended() => return Ok(()),
                fetched = self.fetch() => fetched,
            };
            if let Err(why) = fetched {
                self.failed.add(1);
                return Err(format!("{}: {why}", self.uri).into());
            }
            self.fetches.add(1);
            tokio::select! {
                () = control.ended() => return Ok(()),
                () = tokio::time::sleep(self.every) => {}
            }
        }
    }

    async fn fetch(self: &Arc<Self>) -> Result<(), FetchError> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = self.uri.clone();
        let known = self.fetched.networks.load().is_some();
        let tag = self.fetched.tag.lock().unwrap_or_else(PoisonError::into_inner).clone().filter(|_| known);
        if let Some(tag) = tag {
            request.headers_mut().insert(IF_NONE_MATCH, tag);
        }
        let response = self.client.fetch(request).await?;
        match response.status() {
            StatusCode::NOT_MODIFIED if known => return Ok(()),
            StatusCode::OK => {}
            status => return Err(FetchError::Status(status)),
        }
        let tag = response.headers().get(ETAG).cloned();
        let (bytes, remote) = (response.into_body(), self.clone());
        let work = move || remote.replace(&bytes);
        self.world.run_blocking(work).await??;
        *self.fetched.tag.lock().unwrap_or_else(PoisonError::into_inner) = tag;
        Ok(())
    }

    /// Puts a list in force, and keeps a copy of it.
    fn replace(&self, bytes: &Bytes) -> Result<(), FetchError> {
        self.take(parse(bytes)?);
        let Some(path) = &self.copy else { return Ok(()) };
        let written = self.world.files().replace(path, bytes);
        written.map_err(|error| FetchError::Copy { path: path.clone(), error })
    }

    /// What it says of an address.
    pub(super) fn find(&self, address: std::net::IpAddr) -> ListMatch {
        match &*self.fetched.networks.load() {
            Some(networks) if networks.contains(address) => ListMatch::Yes,
            Some(_) => ListMatch::No,
            None => ListMatch::Unknown,
        }
    }
}

/// Why a list was not fetched.
#[derive(Debug, Error)]
enum FetchError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the answer is {0}")]
    Status(StatusCode),
    #[error(transparent)]
    List(#[from] NetworkListError),
    /// All threads for slow work are.
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error("{} can't be written: {error}", .path.display())]
    Copy { path: PathBuf, error: io::Error },
}

fn parse(bytes: &[u8]) -> Result<Networks, NetworkListError> {
    let mut parts = Parts::default();
    parts.add_lines(bytes)?;
    Ok(parts.into_networks())
}

/// What several say together.
pub(super) fn find(remotes: &[Arc<Remote>], address: std::net::IpAddr) -> ListMatch {
    let mut found = ListMatch::No;
    for remote in remotes {
        match remote.find(address) {
            ListMatch::Yes => return ListMatch::Yes,
            ListMatch::Unknown => found = ListMatch::Unknown,
            ListMatch::No => {}
        }
    }
    found
}
