//! A proxy.

use std::sync::Arc;
use std::time::Duration;

use super::known::NamedObjects;
use super::{Notes, ObjectPlace, backend, hedging, traffic, words};
use crate::file;
use crate::model::{
    AuthMode, Backend, BackendHttp, Backoff, CircuitBreaker, Id, LoadPriority, PluginConfig, PoolRules,
    Proxy, RareProxy, Retry, Scheme, Scope, Timeouts, Traffic, Upstream,
};
use crate::problem::Problems;

/// Resolves a proxy against the upstreams and plugin configs it may name.
///
/// # Errors
/// Every problem in it.
pub fn proxy(written: &file::Proxy, place: ObjectPlace<'_>, known: &NamedObjects) -> Result<Proxy, Problems> {
    let mut notes = Notes::new(place.at);
    let id = words::id(&mut notes, written.id.as_deref());
    let protocol = backend::protocol(&mut notes, written);
    let traffic =
        protocol.and_then(|it| traffic::traffic(&mut notes, written, it.scheme, known.shared_values()));
    // A proxy without an id has its other problems looked for all the same.
    let id = id.map(|id| known.shared_proxy_id(id));
    let name = id.clone().unwrap_or_else(|| Id(Arc::from("")));
    let owned_by = written.owner.as_deref().and_then(|owner| notes.value("owner", words::valid_id(owner)));
    let plugins = plugins(&mut notes, written, &name, owned_by.as_ref(), known);
    // Where plugins are not built, nobody knows what they do.
    let answers = |plugin: &Arc<PluginConfig>| {
        plugin.built.is_none() || traffic.as_ref().is_some_and(|traffic| plugin.needs_no_target(traffic))
    };
    let answers = plugins.iter().any(answers) || known.has_broken_plugin(name.as_str(), &written.plugins);
    let owner = backend::Owner { id: &name, answers };
    let backend = protocol.and_then(|it| backend::backend(&mut notes, written, it, place, owner, known));
    if written.same_caller.is_some() && written.auth_mode != Some(file::AuthMode::All) {
        notes.add("same_caller", "has no effect without `auth_mode: all`").remedy =
            Some("remove it, or write `auth_mode: all`".to_owned());
    }
    if let Some(traffic) = &traffic {
        idle_plugins(&mut notes, &plugins, traffic);
    }
    let retry = written.retry.as_ref().map(|retry| self::retry(&mut notes, retry)).unwrap_or_default();
    let hedging = written.hedging.as_ref().and_then(|it| hedging::hedging(&mut notes, it, traffic.as_ref()));
    let (Some(id), Some(traffic), Some(backend), true) = (id, traffic, backend, notes.problems.is_empty())
    else {
        return Err(notes.problems);
    };
    Ok(Proxy {
        id,
        name: words::label(written.name.as_ref()),
        traffic,
        backend,
        timeouts: timeouts(written).shared(),
        retry: retry.shared(),
        rare: (owned_by.is_some() || hedging.is_some())
            .then(|| Box::new(RareProxy { owner: owned_by, hedging })),
        circuit_breaker: written.circuit_breaker.as_ref().map(|rules| Box::new(circuit_breaker(rules))),
        auth_mode: match written.auth_mode {
            Some(file::AuthMode::Multi) => AuthMode::Multi,
            Some(file::AuthMode::All) => AuthMode::All { same_caller: written.same_caller.unwrap_or(true) },
            Some(file::AuthMode::Single) | None => AuthMode::Single,
        },
        load_priority: match written.load_priority {
            Some(file::LoadPriority::Low) => LoadPriority::Low,
            Some(file::LoadPriority::High) => LoadPriority::High,
            Some(file::LoadPriority::Normal) | None => LoadPriority::Normal,
        },
        plugins: plugins.into(),
    })
}

/// What is left of a proxy that can't be resolved: the requests or ports it takes, and no way on. `None` when not even
/// that can be told. Where its hosts are known and its path is not, it takes everything for them that no other proxy does.
pub(crate) fn closed_proxy(
    written: &file::Proxy,
    place: ObjectPlace<'_>,
    known: &NamedObjects,
) -> Option<Proxy> {
    let mut notes = Notes::new(place.at);
    let id = words::id(&mut notes, written.id.as_deref())?;
    let backend::TargetProtocol { scheme, version: http_version } = backend::protocol(&mut notes, written)
        .unwrap_or(backend::TargetProtocol { scheme: Scheme::Http, version: BackendHttp::Auto });
    let traffic = traffic::traffic(&mut notes, written, scheme, known.shared_values()).or_else(|| {
        let anywhere = file::Proxy { listen_path: None, ..written.clone() };
        traffic::traffic(&mut notes, &anywhere, scheme, known.shared_values())
    })?;
    let upstream = Upstream::new(id.clone(), Vec::new());
    let backend = Backend {
        scheme,
        http_version,
        alt_svc: false,
        upstream: Arc::new(upstream),
        is_named: false,
        tags: Box::default(),
        tls: None,
        pool: PoolRules::default().shared(),
        rare: None,
    };
    Some(Proxy {
        id,
        name: words::label(written.name.as_ref()),
        traffic,
        backend,
        timeouts: Timeouts::default().shared(),
        retry: Retry::default().shared(),
        rare: None,
        circuit_breaker: None,
        auth_mode: AuthMode::default(),
        load_priority: LoadPriority::default(),
        plugins: Box::default(),
    })
}

fn timeouts(written: &file::Proxy) -> Timeouts {
    let defaults = Timeouts::default();
    Timeouts {
        connect: words::millis(written.backend_connect_timeout, defaults.connect),
        first_byte: words::millis(written.backend_first_byte_timeout, defaults.first_byte),
        idle: words::millis(written.backend_idle_timeout, defaults.idle),
        total: words::millis(written.total_timeout, defaults.total),
    }
}

fn retry(notes: &mut Notes<'_>, written: &file::Retry) -> Retry {
    let defaults = Retry::default();
    let methods = match &written.retryable_methods {
        Some(methods) => words::methods(notes, "retry.retryable_methods", methods),
        None => defaults.methods,
    };
    Retry {
        max_retries: written.max_retries.unwrap_or(3),
        status_codes: written.retryable_status_codes.clone().unwrap_or_default(),
        methods,
        grpc_methods: hedging::grpc_methods(notes, "retry.grpc_methods", written.grpc_methods.as_deref()),
        on_connect_failure: written.retry_on_connect_failure.unwrap_or(defaults.on_connect_failure),
        backoff: backoff(notes, written.backoff),
        budget_percent: written.budget_percent.unwrap_or(defaults.budget_percent),
    }
}

fn backoff(notes: &mut Notes<'_>, written: Option<file::Backoff>) -> Backoff {
    match written {
        None => Backoff::None,
        Some(file::Backoff::Fixed(fixed)) => {
            Backoff::Fixed(Duration::from_millis(fixed.delay.map_or(100, |delay| delay.0)))
        }
        Some(file::Backoff::Exponential(exponential)) => {
            let base = exponential.base.map_or(100, |base| base.0);
            let max = exponential.max.map_or(10_000, |max| max.0);
            if base > max {
                notes.add("retry.backoff.exponential.base", format!("{base} is more than `max`, {max}"));
            }
            Backoff::Exponential { base: Duration::from_millis(base), max: Duration::from_millis(max) }
        }
    }
}

fn circuit_breaker(written: &file::CircuitBreaker) -> CircuitBreaker {
    CircuitBreaker {
        failure_threshold: written.failure_threshold.unwrap_or(5),
        success_threshold: written.success_threshold.unwrap_or(3),
        open_for: words::seconds(written.timeout, 30),
        status_codes: written.failure_status_codes.clone().unwrap_or_else(|| vec![500, 502, 503, 504]),
        half_open_max_requests: written.half_open_max_requests.unwrap_or(1),
        trip_on_connection_errors: written.trip_on_connection_errors.unwrap_or(true),
    }
}

/// Refuses plugins that were put on this proxy and could do nothing for its traffic. Global ones were put on no proxy:
/// where one that guards can't, the proxy is closed.
fn idle_plugins(notes: &mut Notes<'_>, plugins: &[Arc<PluginConfig>], traffic: &Traffic) {
    for config in plugins.iter().filter(|config| config.scope != Scope::Global) {
        let Some(built) = &config.built else { continue };
        if let Some(problem) = super::plugin::idle(config, built.hooks(), built.capabilities(), traffic) {
            notes.add("", problem.message).remedy = problem.remedy;
        }
    }
}

/// The plugins that run for a proxy: those of its owner, those that name it, those it names, and every global one whose plugin isn't
/// among the latter two already.
fn plugins(
    notes: &mut Notes<'_>,
    written: &file::Proxy,
    id: &Id,
    owner: Option<&Id>,
    known: &NamedObjects,
) -> Vec<Arc<PluginConfig>> {
    let mut own: Vec<Arc<PluginConfig>> = known.scoped(id.as_str()).cloned().collect();
    let mut seen: Vec<&str> = Vec::new();
    for (n, file::Plugin { plugin_config_id }) in written.plugins.iter().enumerate() {
        let at = || format!("plugins[{n}].plugin_config_id");
        if seen.contains(&plugin_config_id.as_str()) {
            notes.add(&at(), format!("`{plugin_config_id}` is listed twice")).remedy =
                Some("remove it".to_owned());
            continue;
        }
        seen.push(plugin_config_id);
        if own.iter().all(|config| config.id.as_str() != plugin_config_id) {
            own.extend(named_plugin(notes, &at(), plugin_config_id, id, known));
        }
    }
    let mut unique: Vec<Arc<PluginConfig>> = Vec::with_capacity(own.len());
    for config in own {
        if unique.iter().all(|other| other.id != config.id) {
            unique.push(config);
        }
    }
    let globals = known.globals().iter();
    let missing: Vec<_> =
        globals.filter(|g| unique.iter().all(|own| own.plugin_name != g.plugin_name)).cloned().collect();
    unique.extend(missing);
    known.owned(owner).cloned().chain(unique).collect()
}

/// The plugin config a proxy names, when it is switched on and may be named.
fn named_plugin(
    notes: &mut Notes<'_>,
    at: &str,
    named: &str,
    id: &Id,
    known: &NamedObjects,
) -> Option<Arc<PluginConfig>> {
    let Some(configured) = known.plugin(named) else {
        if !known.is_broken_plugin(named) {
            let near = words::did_you_mean(named, known.plugin_ids());
            notes.add(at, format!("there is no plugin config `{named}`")).remedy =
                near.or_else(|| Some("write it under `plugin_configs`".to_owned()));
        }
        return None;
    };
    match &configured.config.scope {
        Scope::Global => {
            notes.add(at, format!("`{named}` has scope `global` and runs for every proxy")).remedy =
                Some("remove it here, or give it scope `proxy_group`".to_owned());
            None
        }
        Scope::Proxy(other) if other != id => {
            notes.add(at, format!("`{named}` belongs to the proxy `{other}`")).remedy =
                Some("remove it here, or give it scope `proxy_group`".to_owned());
            None
        }
        Scope::Owner(owner) => {
            notes.add(at, format!("`{named}` runs for all proxies of the owner `{owner}`")).remedy =
                Some("write `owner` instead, or give it scope `proxy_group`".to_owned());
            None
        }
        Scope::Proxy(_) | Scope::ProxyGroup => configured.enabled.then(|| configured.config.clone()),
    }
}
