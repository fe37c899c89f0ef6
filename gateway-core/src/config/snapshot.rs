//! A compiled configuration: what traffic reads. Published whole, in one swap; a request sees one from beginning to end.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use tokio::time::Instant;

use super::index::Index;
use super::model::{Backend, Id, Model, Proxy, Settings, TargetRules, Traffic, Upstream};
use super::problem::Problems;
use crate::balance::Targets;
use crate::consumer::Consumers;
use crate::health::breaker::Breakers;
use crate::limit::budget::RetryBudget;
use crate::limit::concurrency::Concurrency;
use crate::plugin::entry::Attend;
use crate::plugin::{Chain, Registry, World};
use crate::pool::{Identity, Interner, Key};
use crate::route::RouteTable;
use crate::stream::table::StreamTable;

/// A proxy with everything its traffic needs, ready to be used.
pub struct Route {
    /// The proxy as configured.
    pub proxy: Arc<Proxy>,
    /// Its plugins, compiled.
    pub chain: Chain,
    /// Its targets, shared by the proxies of one upstream.
    pub targets: Arc<Targets>,
    /// Its circuit breakers, one a target.
    pub breakers: Option<Breakers>,
    /// What retries may cost.
    pub budget: Arc<RetryBudget>,
    /// For each target the trust domain its connections belong to.
    pub pool_keys: Box<[Arc<Key>]>,
    /// Counts the proxy's UDP sessions over all workers.
    pub sessions: Arc<Concurrency>,
    /// `Allow`, when methods are limited.
    pub allow: Option<HeaderValue>,
    /// Why the proxy is closed; it answers 503 to everything.
    pub quarantine: Option<Problems>,
    /// A small number of its own, kept over reloads, for tables of counters.
    pub slot: u32,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Route({})", self.proxy.id)
    }
}

/// A whole compiled configuration.
pub struct Snapshot {
    /// Counts up with each one published; the first is 1.
    pub revision: u64,
    /// What holds for the gateway as a whole.
    pub settings: Arc<Settings>,
    /// HTTP proxies by host and path.
    pub routes: RouteTable<Arc<Route>>,
    /// Stream proxies.
    pub streams: StreamTable,
    /// Every proxy by its id.
    pub by_id: Index<Id, Arc<Route>>,
    /// Consumers by their credentials.
    pub consumers: Consumers,
    /// Named upstreams, by id, also those no proxy uses. A proxy's own target is found in its route.
    pub upstreams: HashMap<Id, Arc<Targets>>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot(revision {}, {} proxies)", self.revision, self.by_id.len())
    }
}

impl Snapshot {
    /// Nothing configured yet.
    pub fn empty(settings: Arc<Settings>) -> Self {
        Self {
            revision: 0,
            settings,
            routes: RouteTable::new(),
            streams: StreamTable::default(),
            by_id: Index::new(),
            consumers: Consumers::default(),
            upstreams: HashMap::new(),
        }
    }
}

/// Turns models into snapshots, remembering what must survive from one to the next.
pub struct Compiler {
    registry: Registry,
    world: World,
    interner: Interner,
    slots: Slots,
}

/// Small numbers for proxies, the lowest free one first, so that tables of counters stay dense.
#[derive(Default)]
struct Slots {
    by_id: HashMap<Id, u32>,
    free: BinaryHeap<Reverse<u32>>,
    next: u32,
}

impl Slots {
    fn of(&mut self, id: &Id) -> u32 {
        if let Some(slot) = self.by_id.get(id) {
            return *slot;
        }
        let slot = self.free.pop().map_or_else(
            || {
                self.next += 1;
                self.next - 1
            },
            |Reverse(slot)| slot,
        );
        self.by_id.insert(id.clone(), slot);
        slot
    }

    fn keep(&mut self, alive: impl Fn(&Id) -> bool) {
        let free = &mut self.free;
        self.by_id.retain(|id, slot| {
            let keep = alive(id);
            if !keep {
                free.push(Reverse(*slot));
            }
            keep
        });
    }
}

impl Compiler {
    /// A compiler with the plugins it may build.
    pub fn new(registry: Registry, world: World) -> Self {
        Self { registry, world, interner: Interner::default(), slots: Slots::default() }
    }

    /// The known plugins.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The world plugins are built in.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Compiles a whole model. Targets that stay keep their health, latency and connections.
    pub fn compile(&mut self, model: &Model, previous: &Snapshot, now: Instant) -> Snapshot {
        let mut next = Snapshot::empty(model.settings.clone());
        next.revision = previous.revision + 1;
        next.consumers = Consumers::new(&model.consumers);
        for upstream in &model.upstreams {
            let known = previous.upstreams.get(&upstream.id).map(Arc::as_ref);
            next.upstreams.insert(upstream.id.clone(), Arc::new(Targets::build(upstream, known, now)));
        }
        let named: HashMap<*const Upstream, &Id> =
            model.upstreams.iter().map(|upstream| (Arc::as_ptr(upstream), &upstream.id)).collect();
        let mut built = HashMap::new();
        for proxy in &model.proxies {
            let before = previous.by_id.get(&proxy.id).map(Arc::as_ref);
            let group = &proxy.backend.upstream;
            let shared = named.get(&Arc::as_ptr(group)).and_then(|id| next.upstreams.get(*id)).cloned();
            let targets = shared.unwrap_or_else(|| {
                let known = before.filter(|route| route.proxy.backend.upstream.id == group.id);
                Arc::new(Targets::build(group, known.map(|route| route.targets.as_ref()), now))
            });
            let route = Arc::new(self.route(proxy, targets, (before, now), &mut built));
            next.by_id.insert(proxy.id.clone(), route.clone());
            match &proxy.traffic {
                // Overlaps were refused when the model was made, so the first of two stands.
                Traffic::Http(rules) => drop(next.routes.insert(&rules.hosts, &rules.path, route)),
                Traffic::Stream(_) => next.streams.insert(&route),
            }
        }
        self.slots.keep(|id| next.by_id.contains_key(id));
        drop(self.interner.sweep());
        next
    }

    fn route(
        &mut self,
        proxy: &Arc<Proxy>,
        targets: Arc<Targets>,
        (before, now): (Option<&Route>, Instant),
        built: &mut HashMap<Id, Arc<dyn Attend>>,
    ) -> Route {
        let (chain, quarantine) = match self.plugins(proxy, built) {
            Ok(chain) => (chain, None),
            // Closed rather than open: a proxy never answers without its plugins.
            Err(problems) => (Chain::default(), Some(problems)),
        };
        let pool_keys = targets
            .list()
            .iter()
            .map(|target| self.interner.intern(identity(&proxy.backend, &target.rules)))
            .collect();
        let breakers = proxy.circuit_breaker.as_ref().map(|rules| {
            Breakers::build(rules, &targets, before.and_then(|route| route.breakers.as_ref()), now)
        });
        let budget = before
            .filter(|route| route.proxy.retry.budget_percent == proxy.retry.budget_percent)
            .map_or_else(
                || Arc::new(RetryBudget::new(proxy.retry.budget_percent, now)),
                |route| route.budget.clone(),
            );
        let max_sessions = match &proxy.traffic {
            Traffic::Stream(rules) => rules.max_sessions,
            Traffic::Http(_) => 0,
        };
        let sessions = before.map_or_else(|| Concurrency::new(max_sessions), |route| route.sessions.clone());
        sessions.resize(max_sessions);
        Route {
            sessions,
            chain,
            breakers,
            budget,
            pool_keys,
            allow: allow(proxy),
            quarantine,
            slot: self.slots.of(&proxy.id),
            targets,
            proxy: proxy.clone(),
        }
    }

    /// Builds the proxy's plugins, each config once for all proxies that share it.
    fn plugins(&self, proxy: &Proxy, built: &mut HashMap<Id, Arc<dyn Attend>>) -> Result<Chain, Problems> {
        let mut members = Vec::with_capacity(proxy.plugins.len());
        let mut problems = Problems::default();
        for config in &proxy.plugins {
            let plugin = match built.get(&config.id) {
                Some(plugin) => plugin.clone(),
                None => match self.registry.build(&config.plugin_name, &config.config, &self.world) {
                    Ok(plugin) => {
                        built.insert(config.id.clone(), plugin.clone());
                        plugin
                    }
                    Err(Problems(mut found)) => {
                        for problem in &mut found {
                            problem.path = format!("plugin_configs.{}.{}", config.id, problem.path);
                        }
                        problems.0.append(&mut found);
                        continue;
                    }
                },
            };
            members.push((config.clone(), plugin));
        }
        problems.into_result(Chain::build(&self.registry, &members))
    }
}

/// What a connection to this target must have in common with another to stand in for it.
fn identity(backend: &Backend, target: &TargetRules) -> Identity {
    Identity {
        scheme: backend.scheme,
        http: backend.http_version,
        host: target.host.clone(),
        port: target.port,
        dns_override: backend.dns_override,
        tls: backend.tls.clone(),
    }
}

fn allow(proxy: &Proxy) -> Option<HeaderValue> {
    let Traffic::Http(rules) = &proxy.traffic else { return None };
    let methods: Vec<&str> = rules.allowed_methods.as_ref()?.iter().map(http::Method::as_str).collect();
    HeaderValue::from_str(&methods.join(", ")).ok()
}
