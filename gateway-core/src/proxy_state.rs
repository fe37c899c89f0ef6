//! A proxy as its traffic knows it: what plugins and records see of a route.

mod plugins;

use std::fmt;
use std::sync::{Arc, OnceLock};

use http::HeaderValue;

use crate::balance::Targets;
use crate::config::model::{BackendTls, Proxy};
use crate::config::problem::Problems;
use crate::health::breaker::Breakers;
use crate::http::mark::Mark;
use crate::limit::budget::RetryBudget;
use crate::limit::concurrency::Concurrency;
use crate::limit::hedging::Hedger;
use crate::pool::{Key, KeyCache};
pub use plugins::{CredentialPlaces, Plugins};

/// A proxy with the state of its traffic: its targets and what is counted of them.
pub struct ProxyState {
    /// The proxy as configured.
    pub proxy: Arc<Proxy>,
    /// What is known of its plugins.
    pub plugins: Plugins,
    /// Its targets, shared by the proxies of one upstream.
    pub targets: Arc<Targets>,
    /// For each target whether it has the proxy's `backend_tags`; `None` uses all.
    pub subset: Option<Box<[bool]>>,
    /// What it is known by in `Via`; made when it is first asked for.
    pub(crate) mark: OnceLock<Box<Mark>>,
    /// Its circuit breakers, one a target.
    pub breakers: Option<Box<Breakers>>,
    /// What retries may cost; one that nobody counts with where nothing is retried.
    pub budget: Arc<RetryBudget>,
    /// What its hedging knows; `None` where nothing is hedged.
    pub hedger: Option<Arc<Hedger>>,
    /// For each target the trust domain its connections belong to.
    pub pool_keys: Box<[Arc<Key>]>,
    /// The same for targets of upstreams that plugins choose.
    pub chosen_keys: KeyCache,
    /// Counts the proxy's UDP sessions over all workers.
    pub sessions: Arc<Concurrency>,
    /// `Allow`, when methods are limited.
    pub allow: Option<Box<HeaderValue>>,
    /// Why the proxy is closed; it answers 503 to everything.
    pub quarantine: Option<Box<Problems>>,
    /// A small number of its own, kept over reloads, for tables of counters.
    pub slot: u32,
}

impl ProxyState {
    /// What it is known by in `Via`.
    pub fn mark(&self, via: Option<&Arc<str>>) -> &Mark {
        self.mark.get_or_init(|| Box::new(Mark::new(&self.proxy, via)))
    }

    /// Whether somebody beside the traffic looks after it: its targets are probed, or its TLS files are watched.
    pub(crate) fn is_tended(&self) -> bool {
        let backend = &self.proxy.backend;
        let has_files = |tls: &BackendTls| tls.ca_path.is_some() || tls.client_cert.is_some();
        backend.upstream.active_health.is_some() || backend.tls.as_deref().is_some_and(has_files)
    }
}

impl fmt::Debug for ProxyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyState({})", self.proxy.id)
    }
}
