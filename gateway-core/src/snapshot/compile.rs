//! From what changed to the next snapshot, at a cost that goes by the size of the change.

mod found;
mod subsets;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, OnceLock};

use http::HeaderValue;
use tokio::time::Instant;

use super::discovery::{self, Services};
use super::{ProxyState, Route, Snapshot};
use crate::balance::{Target, Targets};
use crate::config::changes::{Changes, Edits};
use crate::config::model::{Backend, Id, Model, PluginConfig, Proxy, Scope, Traffic};
use crate::config::problem::Problems;
use crate::health::breaker::Breakers;
use crate::limit::budget::RetryBudget;
use crate::limit::concurrency::Concurrency;
use crate::limit::hedging::Hedger;
use crate::plugin::chain::Member;
use crate::plugin::unrouted::Unrouted;
use crate::plugin::{Chain, Registry};
use crate::pool::{Identity, Interner, KeyCache};

/// Turns changes into snapshots, remembering what must survive from one to the next.
pub struct Compiler {
    registry: Registry,
    interner: Interner,
    slots: ProxyNumbers,
    /// For the many proxies that retry nothing.
    no_budget: Arc<RetryBudget>,
    /// For the many proxies that limit no sessions.
    no_sessions: Arc<Concurrency>,
    /// Routes replaced or removed since keys were last swept.
    retired: usize,
    /// What names of services stand for.
    services: Services,
}

/// A snapshot not yet published, and what is new in it. Goes back to the compiler, published ([`Compiler::adopt`]) or
/// not ([`Compiler::discard`]).
#[derive(Debug)]
#[must_use]
pub struct Compiled {
    /// The next snapshot.
    pub snapshot: Snapshot,
    /// Routes that are new or took the place of older ones.
    pub put: Vec<Arc<Route>>,
    /// Routes whose proxy is gone.
    pub gone: Vec<Arc<Route>>,
    /// Whether any stream proxy is put, replaced or gone.
    pub streams_changed: bool,
    /// Slots given to proxies that had none.
    fresh: Vec<u32>,
}

impl Compiled {
    /// What a caller who can still correct the configuration is told, instead of closing the proxies that have it.
    ///
    /// # Errors
    /// Mistakes in the new routes' plugins.
    pub fn reject_mistakes(&self) -> Result<(), Problems> {
        let closed = self.put.iter().filter_map(|route| route.quarantine.as_deref());
        let mistakes = closed.flat_map(|problems| &problems.0).filter(|problem| problem.rejects);
        let mut problems = Problems::default();
        for problem in mistakes {
            // A config of several proxies is wrong once.
            if !problems.0.contains(problem) {
                problems.push(problem.clone());
            }
        }
        problems.into_result(())
    }
}

impl Compiled {
    /// Adds what was compiled against this one's snapshot, so that both are published as one.
    pub fn absorb(&mut self, later: Self) {
        self.snapshot = later.snapshot;
        self.put.extend(later.put);
        self.gone.extend(later.gone);
        self.streams_changed |= later.streams_changed;
        self.fresh.extend(later.fresh);
    }
}

/// Small numbers for proxies, the lowest free one first, so that tables of counters stay dense.
#[derive(Default)]
struct ProxyNumbers {
    free: BinaryHeap<Reverse<u32>>,
    next: u32,
}

impl ProxyNumbers {
    fn take(&mut self) -> u32 {
        self.free.pop().map_or_else(
            || {
                self.next += 1;
                self.next - 1
            },
            |Reverse(slot)| slot,
        )
    }
}

/// Keys are swept when so many routes were retired, or a share of all: a sweep walks over every key.
const SWEEP_AT: usize = 1024;

impl Compiler {
    /// A compiler with the plugins it may build.
    pub fn new(registry: Registry) -> Self {
        Self {
            registry,
            interner: Interner::default(),
            slots: ProxyNumbers::default(),
            no_budget: Arc::new(RetryBudget::new(0, Instant::now())),
            no_sessions: Concurrency::new(0),
            retired: 0,
            services: Services::new(),
        }
    }

    /// The known plugins.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Compiles a whole model. Targets that stay keep their health, latency and connections; plugins whose settings
    /// stay keep their state.
    pub fn compile(&mut self, model: &Model, previous: &Snapshot, now: Instant) -> Compiled {
        self.apply(previous.changes_to(model), previous, now)
    }

    /// Compiles what changed.
    ///
    /// Nothing of `previous` is touched, so that the result may as well be discarded.
    pub fn apply(&mut self, changes: Changes, previous: &Snapshot, now: Instant) -> Compiled {
        self.advance(changes, previous.clone(), now)
    }

    /// As [`Self::apply`], with a snapshot that is given up. What it shares with no other is changed in its place instead of
    /// copied: a configuration that grows chunk by chunk would else be copied once a chunk.
    pub fn advance(&mut self, changes: Changes, mut next: Snapshot, now: Instant) -> Compiled {
        next.revision = changes.revision.unwrap_or(next.revision + 1);
        next.settings = changes.settings.unwrap_or(next.settings);
        next.routes.set_fall_through(next.settings.host_fallthrough);
        changes.consumers.apply(&mut next.consumers);
        let Edits { put, gone } = &changes.upstreams;
        let known: Vec<_> = put.iter().map(|upstream| next.upstreams.get(&upstream.id).cloned()).collect();
        for id in gone {
            next.upstreams.remove(id);
            next.discovered.remove(id);
        }
        for (upstream, known) in put.iter().zip(known) {
            let found = discovery::expanded(upstream, &self.services);
            match &found {
                Some(_) => _ = next.discovered.insert(upstream.id.clone(), upstream.clone()),
                None => _ = next.discovered.remove(&upstream.id),
            }
            let targets = Targets::build(found.as_ref().unwrap_or(upstream), known.as_deref(), now);
            next.upstreams.insert(upstream.id.clone(), Arc::new(targets));
        }
        let mut globals_changed = false;
        for id in &changes.plugin_configs_gone {
            globals_changed |= next.plugins.remove(id).is_some_and(|(config, _)| is_global(&config));
        }
        let proxies = changes.proxies.put.iter().chain(changes.closed.iter().map(|(proxy, _)| proxy));
        globals_changed |=
            proxies.flat_map(|proxy| &proxy.plugins).any(|config| changes_globals(config, &next));
        let (put, gone, fresh) = (Vec::new(), Vec::new(), Vec::new());
        let mut compiled = Compiled { snapshot: next, put, gone, fresh, streams_changed: false };
        for id in &changes.proxies.gone {
            compiled.gone.extend(take_out(&mut compiled.snapshot, id));
        }
        let put = changes.proxies.put.into_iter().map(|proxy| (proxy, None));
        let put: Vec<_> =
            put.chain(changes.closed.into_iter().map(|(proxy, why)| (proxy, Some(why)))).collect();
        // All leave their places before any takes a new one: two may have swapped them.
        let before: Vec<_> =
            put.iter().map(|(proxy, _)| take_out(&mut compiled.snapshot, &proxy.id)).collect();
        for ((proxy, closed), before) in put.into_iter().zip(before) {
            let chain = match closed {
                Some(why) => Err(why),
                None => self.chain(&proxy, before.as_deref(), &mut compiled.snapshot),
            };
            let targets = targets(&proxy, before.as_deref(), &compiled.snapshot, now);
            let route = Arc::new(self.route(proxy, targets, chain, before.as_deref(), now));
            if before.is_none() {
                compiled.fresh.push(route.slot);
            }
            put_in(&mut compiled.snapshot, &route);
            compiled.streams_changed |= before.as_deref().is_some_and(is_stream);
            compiled.put.push(route);
        }
        for route in &compiled.put {
            if let Traffic::Http(rules) = &route.proxy.traffic {
                rules.matches.iter().for_each(|rule| compiled.snapshot.routes.prepare(rule));
            }
        }
        let touched = &mut compiled.put.iter().chain(&compiled.gone);
        compiled.streams_changed |= touched.any(|route| is_stream(route));
        retire_shared(&mut compiled);
        if globals_changed {
            let members = compiled.snapshot.plugins.iter().map(|(_, member)| member);
            compiled.snapshot.unrouted = Unrouted::build(&self.registry, members);
        }
        compiled
    }

    /// A compilation was thrown away.
    pub fn discard(&mut self, compiled: Compiled) {
        self.slots.free.extend(compiled.fresh.into_iter().map(Reverse));
    }

    /// A compilation was published: what the proxies that are gone held may be given to others.
    pub fn adopt(&mut self, compiled: &Compiled) {
        self.slots.free.extend(compiled.gone.iter().map(|route| Reverse(route.slot)));
        self.retired += compiled.gone.len() + compiled.put.len() - compiled.fresh.len();
        if self.retired >= SWEEP_AT.max(compiled.snapshot.by_id.len() / 8) {
            self.retired = 0;
            drop(self.interner.sweep());
        }
    }

    fn route(
        &mut self,
        proxy: Arc<Proxy>,
        targets: Arc<Targets>,
        chain: Result<Chain, Problems>,
        before: Option<&Route>,
        now: Instant,
    ) -> Route {
        let (mut chain, quarantine) = match chain {
            Ok(chain) => (chain, None),
            // Closed rather than open: a proxy never answers without its plugins.
            Err(problems) => (Chain::default(), Some(problems)),
        };
        let pool_keys = targets
            .list()
            .iter()
            .map(|target| self.interner.intern(identity(&proxy.backend, target)))
            .collect();
        let breakers = proxy.circuit_breaker.as_ref().map(|rules| {
            let before = before.and_then(|route| route.breakers.as_deref());
            Box::new(Breakers::build(rules, targets.keys(), before, now))
        });
        let budget = match (&*proxy.retry, before.map(|route| (&*route.proxy.retry, &route.budget))) {
            (rules, _) if rules.max_retries == 0 => self.no_budget.clone(),
            (rules, Some((old, budget)))
                if old.max_retries > 0 && old.budget_percent == rules.budget_percent =>
            {
                budget.clone()
            }
            (rules, _) => Arc::new(RetryBudget::new(rules.budget_percent, now)),
        };
        let max_sessions = match &proxy.traffic {
            Traffic::Stream(rules) => rules.max_sessions,
            Traffic::Http(_) => 0,
        };
        let sessions = match before.map(|route| &route.sessions) {
            _ if max_sessions == 0 => self.no_sessions.clone(),
            Some(sessions) if sessions.ceiling() > 0 => sessions.clone(),
            _ => Concurrency::new(max_sessions),
        };
        sessions.resize(max_sessions);
        let hedger = proxy.hedging().map(|rules| {
            let known = before.and_then(|route| route.hedger.as_ref());
            let known = known.filter(|known| known.rules() == rules).cloned();
            known.unwrap_or_else(|| Arc::new(Hedger::new(rules.clone(), now)))
        });
        let state = ProxyState {
            hedger,
            plugins: chain.known(),
            sessions,
            breakers,
            budget,
            pool_keys,
            chosen_keys: KeyCache::default(),
            allow: allow(&proxy),
            mark: OnceLock::new(),
            subset: subsets::used(&proxy, &targets),
            quarantine: quarantine.map(Box::new),
            slot: before.map_or_else(|| self.slots.take(), |route| route.slot),
            targets,
            proxy,
        };
        Route { state, chain }
    }

    /// Builds the proxy's plugins. One whose settings are those it had, and the files that are part of them, goes on with its
    /// state, and a shared one is built once for all.
    fn chain(&self, proxy: &Proxy, before: Option<&Route>, next: &mut Snapshot) -> Result<Chain, Problems> {
        let mut members = Vec::with_capacity(proxy.plugins.len());
        let mut problems = Problems::default();
        for config in &proxy.plugins {
            let is_shared = !matches!(config.scope, Scope::Proxy(_));
            let known = match is_shared {
                true => next.plugins.get(&config.id),
                false => before.and_then(|route| route.chain.member(&config.id)),
            };
            // What was built to check the settings is what runs.
            let checked = config.built.as_ref().and_then(Registry::plugin_of);
            let is_same = |(known, plugin): &&Member| {
                known == config
                    && checked.as_ref().is_none_or(|checked| checked.sources() == plugin.sources())
            };
            let member = match (known.filter(is_same), checked) {
                (Some(member), _) => member.clone(),
                (None, Some(plugin)) => (config.clone(), plugin),
                (None, None) => match self.build(config) {
                    Ok(member) => member,
                    Err(mut found) => {
                        problems.0.append(&mut found.0);
                        continue;
                    }
                },
            };
            if is_shared && known.is_none_or(|known| !Arc::ptr_eq(&known.0, &member.0)) {
                next.plugins.insert(config.id.clone(), member.clone());
            }
            members.push(member);
        }
        problems.into_result(())?;
        let chain = Chain::build(&self.registry, &members, &proxy.traffic)?;
        let unknown = chain.chooses().iter().filter(|id| next.upstreams.get(&***id).is_none());
        let mut problems = Problems::default();
        for id in unknown {
            problems.add(
                format!("proxies.{}", proxy.id),
                format!("a plugin sends to the upstream `{id}`, which does not exist"),
            );
        }
        problems.0.extend(subsets::problems(proxy, &chain, next));
        problems.into_result(chain)
    }

    fn build(&self, config: &Arc<PluginConfig>) -> Result<Member, Problems> {
        match self.registry.build(&config.plugin_name, Some(&config.id), &config.config.value()) {
            Ok(plugin) => Ok((config.clone(), plugin)),
            Err(mut problems) => {
                for problem in &mut problems.0 {
                    problem.path = format!("plugin_configs.{}.{}", config.id, problem.path);
                }
                Err(problems)
            }
        }
    }
}

fn is_global(config: &PluginConfig) -> bool {
    config.scope == Scope::Global
}

/// Whether a global plugin is new or was changed by this config, or is global no longer.
fn changes_globals(config: &Arc<PluginConfig>, before: &Snapshot) -> bool {
    let before = before.plugins.get(&config.id).map(|(before, _)| before);
    let is_same = before.is_some_and(|before| Arc::ptr_eq(before, config));
    !is_same && (is_global(config) || before.is_some_and(|before| is_global(before)))
}

/// Takes out plugins that several proxies shared and that are one proxy's own now.
fn retire_shared(compiled: &mut Compiled) {
    for config in compiled.put.iter().flat_map(|route| &route.proxy.plugins) {
        if matches!(config.scope, Scope::Proxy(_)) {
            compiled.snapshot.plugins.remove(&config.id);
        }
    }
}

/// Takes a proxy out of all tables.
fn take_out(next: &mut Snapshot, id: &Id) -> Option<Arc<Route>> {
    let route = next.by_id.remove(id)?;
    next.quarantined.remove(id);
    next.tended.remove(id);
    match &route.proxy.traffic {
        Traffic::Http(rules) => {
            for rule in &rules.matches {
                drop(next.routes.remove(rule, rules.priority));
            }
        }
        Traffic::Stream(_) => next.streams.remove(&route),
    }
    Some(route)
}

fn put_in(next: &mut Snapshot, route: &Arc<Route>) {
    let id = &route.proxy.id;
    next.by_id.insert(id.clone(), route.clone());
    if route.quarantine.is_some() {
        next.quarantined.insert(id.clone(), route.clone());
    }
    if route.is_tended() {
        next.tended.insert(id.clone(), route.clone());
    }
    match &route.proxy.traffic {
        Traffic::Http(rules) => {
            for rule in &rules.matches {
                // Ties were refused when the changes were made, so the first of two stands.
                next.routes.insert(rule, rules.priority, route.clone()).unwrap_or_default();
            }
        }
        Traffic::Stream(_) => next.streams.insert(route),
    }
}

fn is_stream(route: &Route) -> bool {
    matches!(route.proxy.traffic, Traffic::Stream(_))
}

/// The runtime form of the proxy's upstream: the named one's, or its own.
fn targets(proxy: &Proxy, before: Option<&Route>, next: &Snapshot, now: Instant) -> Arc<Targets> {
    let backend = &proxy.backend;
    let named = next.upstreams.get(&backend.upstream.id).filter(|_| backend.is_named);
    named.cloned().unwrap_or_else(|| {
        let known = before.filter(|route| !route.proxy.backend.is_named);
        Arc::new(Targets::build(&backend.upstream, known.map(|route| route.targets.as_ref()), now))
    })
}

/// What a connection to this target must have in common with another to stand in for it.
fn identity(backend: &Backend, target: &Target) -> Identity {
    Identity {
        scheme: backend.scheme,
        http: backend.http_version,
        host: target.rules.host.clone(),
        port: target.rules.port,
        dns_override: backend.dns_override(),
        tls: backend.tls.clone(),
        congestion: backend.pool.congestion,
        sockets: backend.sockets().cloned(),
        counted_as: target.counted_as(),
    }
}

fn allow(proxy: &Proxy) -> Option<Box<HeaderValue>> {
    let Traffic::Http(rules) = &proxy.traffic else { return None };
    let methods: Vec<&str> = rules.allowed_methods.as_ref()?.iter().map(http::Method::as_str).collect();
    HeaderValue::from_str(&methods.join(", ")).ok().map(Box::new)
}

#[cfg(test)]
mod tests;
