//! Names of targets: resolved off the request path, kept for their time to live, served stale when the answer is late.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use dashmap::DashMap;
use hickory_resolver::TokioResolver;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Resolves names and remembers the answers; one for all workers.
pub struct Dns {
    resolver: Option<TokioResolver>,
    names: DashMap<Arc<str>, Arc<Name>>,
}

/// What is known about one name.
#[derive(Default)]
struct Name {
    answer: ArcSwapOption<Answer>,
    /// Held by the one task that asks; others that have no answer yet wait for it.
    asking: Mutex<()>,
    refreshing: AtomicBool,
}

#[derive(Debug)]
struct Answer {
    addresses: Box<[IpAddr]>,
    expires: Instant,
}

/// A name that has no address.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// The resolver said no, or did not answer.
    #[error("{name} could not be resolved: {reason}")]
    Failed {
        /// The name.
        name: Arc<str>,
        /// The resolver's words.
        reason: String,
    },
    /// No resolver could be configured from the system's files.
    #[error("{name} could not be resolved: this system has no resolver configuration")]
    NoResolver {
        /// The name.
        name: Arc<str>,
    },
}

/// Names remembered at the most; beyond that a name is resolved each time a connection is made.
const MAX_NAMES: usize = 100_000;
/// An answer is kept at least so long, so that a TTL of 0 does not become a query a connection.
const MIN_TTL: Duration = Duration::from_secs(1);
/// An answer is kept at most so long.
const MAX_TTL: Duration = Duration::from_secs(3600);
/// An expired answer still serves for so long while a new one is asked for.
const STALE: Duration = Duration::from_secs(3600);

impl Default for Dns {
    fn default() -> Self {
        let resolver = TokioResolver::builder_tokio().and_then(|builder| builder.build());
        let resolver = resolver
            .inspect_err(
                |error| tracing::warn!(%error, "no system resolver; only addresses and localhost resolve"),
            )
            .ok();
        Self { resolver, names: DashMap::new() }
    }
}

impl Dns {
    /// The addresses of a host; never empty. `ttl` says how long they are kept instead of the answer's own word.
    ///
    /// # Errors
    /// When the name has none, or nobody answers and no earlier answer is left.
    pub async fn resolve(
        self: &Arc<Self>,
        host: &Arc<str>,
        port: u16,
        ttl: Option<Duration>,
    ) -> Result<Vec<SocketAddr>, DnsError> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let name = self.name(host);
        let now = Instant::now();
        if let Some(answer) = name.answer.load_full() {
            if answer.expires > now {
                return Ok(answer.with_port(port));
            }
            if answer.expires + STALE > now {
                self.refresh(host.clone(), name, ttl);
                return Ok(answer.with_port(port));
            }
        }
        let _asking = name.asking.lock().await;
        if let Some(answer) = name.answer.load_full().filter(|answer| answer.expires > now) {
            return Ok(answer.with_port(port));
        }
        let answer = Arc::new(self.ask(host, ttl).await?);
        name.answer.store(Some(answer.clone()));
        Ok(answer.with_port(port))
    }

    fn name(&self, host: &Arc<str>) -> Arc<Name> {
        if let Some(name) = self.names.get(host) {
            return name.clone();
        }
        let name = Arc::new(Name::default());
        if self.names.len() < MAX_NAMES {
            self.names.insert(host.clone(), name.clone());
        }
        name
    }

    /// Asks again in the background; a failure keeps the old answer.
    fn refresh(self: &Arc<Self>, host: Arc<str>, name: Arc<Name>, ttl: Option<Duration>) {
        if name.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let dns = self.clone();
        tokio::spawn(async move {
            match dns.ask(&host, ttl).await {
                Ok(answer) => name.answer.store(Some(Arc::new(answer))),
                Err(error) => {
                    tracing::warn!(%error, "keeping the last known addresses");
                    // A resolver that fails at once would otherwise be asked for each connection.
                    tokio::time::sleep(MIN_TTL).await;
                }
            }
            name.refreshing.store(false, Ordering::Release);
        });
    }

    async fn ask(&self, host: &Arc<str>, ttl: Option<Duration>) -> Result<Answer, DnsError> {
        if &**host == "localhost" || host.ends_with(".localhost") {
            // RFC 6761 §6.3: never asked of anybody. IPv4 first, where most development servers listen.
            let addresses = Box::new([IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])]);
            return Ok(Answer { addresses, expires: Instant::now() + MAX_TTL });
        }
        let Some(resolver) = &self.resolver else { return Err(DnsError::NoResolver { name: host.clone() }) };
        let found = resolver
            .lookup_ip(&**host)
            .await
            .map_err(|error| DnsError::Failed { name: host.clone(), reason: error.to_string() })?;
        let mut addresses: Vec<IpAddr> = found.iter().collect();
        addresses.sort_by_key(IpAddr::is_ipv6);
        if addresses.is_empty() {
            return Err(DnsError::Failed { name: host.clone(), reason: "no addresses".into() });
        }
        let left = found.valid_until().saturating_duration_since(std::time::Instant::now());
        let ttl = ttl.unwrap_or_else(|| left.clamp(MIN_TTL, MAX_TTL));
        Ok(Answer { addresses: addresses.into(), expires: Instant::now() + ttl })
    }
}

impl Answer {
    /// The addresses from a random place on, so that connections spread over them.
    fn with_port(&self, port: u16) -> Vec<SocketAddr> {
        let count = self.addresses.len();
        let families =
            self.addresses.iter().any(IpAddr::is_ipv4) && self.addresses.iter().any(IpAddr::is_ipv6);
        // With both families the order is a preference, which a rotation would undo.
        let start = if families || count < 2 { 0 } else { fastrand::usize(..count) };
        (0..count).map(|n| SocketAddr::new(self.addresses[(start + n) % count], port)).collect()
    }
}
