//! What is served for one proxy, everything it inherits included: `/v1/proxies/{id}/effective`.

use std::collections::HashMap;

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::model::{
    Algorithm, AuthMode, BackendHttp, FastCgi, Hedging, HostPattern, LoadPriority, Parameters, PathPolicy,
    PluginConfig, Retry, Scope, Traffic,
};
use gateway_core::config::units::Unit;
use gateway_core::snapshot::{Route, Snapshot};
use serde_json::{Value, json};

use super::problem::problem;
use super::request::AuthorizedRequest;
use super::status;
use crate::source::database::Documents;
use crate::store::Object;

/// `GET /v1/proxies/{id}/effective`.
pub(super) async fn effective(asked: AuthorizedRequest, Path(id): Path<String>) -> Response {
    if let Err(refused) = asked.may_see(ObjectKind::Proxies, &id) {
        return *refused;
    }
    let snapshot = asked.reconciler.engine().snapshot();
    let written = match snapshot.by_id.get(id.as_str()) {
        Some(route) => written(&asked, &plugin_configs(route)).await,
        None => HashMap::new(),
    };
    served(&snapshot, &id, |_| written)
}

/// What is served for the proxy of this id; `written` finds plugin configs as they were written.
pub(super) fn served(
    snapshot: &Snapshot,
    id: &str,
    written: impl FnOnce(&[String]) -> HashMap<String, Value>,
) -> Response {
    if let Some(route) = snapshot.by_id.get(id) {
        let mut answer = document(route, &written(&plugin_configs(route)));
        answer["revision"] = json!(snapshot.revision);
        return Json(answer).into_response();
    }
    let detail = format!("No proxy `{id}` is served");
    problem(StatusCode::NOT_FOUND, "not_found", &detail)
}

/// The ids of the plugin configs of a route.
fn plugin_configs(route: &Route) -> Vec<String> {
    route.chain.members().map(|(config, _)| config.id.to_string()).collect()
}

/// The plugin configs of a proxy as they are stored, without secrets, by the id of the plugin config. What is served has values in it that
/// references such as `${env:X}` stand for, and nobody who may read configurations may read those.
async fn written(asked: &AuthorizedRequest, ids: &[String]) -> HashMap<String, Value> {
    let store = asked.reconciler.store();
    if store.away().is_some() {
        return HashMap::new();
    }
    let found = store.get_many(ObjectKind::PluginConfigs, ids).await.unwrap_or_default();
    let settings = |object: Object| {
        let shown = Documents::shown(object.kind, &object.document);
        (object.id, shown)
    };
    found.into_iter().map(settings).collect()
}

fn document(route: &Route, written: &HashMap<String, Value>) -> Value {
    let proxy = &route.proxy;
    let plugins = route.chain.members().map(|(config, _)| plugin(config, written));
    let now = tokio::time::Instant::now();
    let targets = route.targets.list().iter().map(|target| status::target(target, now));
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let closed = route
        .quarantine
        .as_ref()
        .map(|problems| problems.0.iter().map(ToString::to_string).collect::<Vec<_>>());
    json!({
        "id": proxy.id.as_str(),
        "name": proxy.name.as_deref(),
        "closed": closed,
        "traffic": traffic(&proxy.traffic),
        // In the order in which requests meet them.
        "plugins": plugins.collect::<Vec<_>>(),
        "auth_mode": match proxy.auth_mode {
            AuthMode::Single => "single",
            AuthMode::Multi => "multi",
            AuthMode::All { .. } => "all",
        },
        "same_caller": matches!(proxy.auth_mode, AuthMode::All { same_caller: true }),
        "backend": {
            "scheme": proxy.backend.scheme.as_str(),
            "http_version": match proxy.backend.http_version {
                BackendHttp::Auto => "auto",
                BackendHttp::Http1 => "1.1",
                BackendHttp::Http2 => "2",
                BackendHttp::Http3 => "3",
                BackendHttp::Same => "same",
                BackendHttp::FastCgi => "fastcgi",
            },
            "fastcgi": proxy.backend.fastcgi().map(fastcgi),
            "heeds_alt_svc": proxy.backend.alt_svc,
            "verifies_certificate": proxy.backend.tls.as_ref().map(|tls| tls.verify),
            "upstream": proxy.backend.upstream.id.as_str(),
            "upstream_is_shared": proxy.backend.is_named,
            "algorithm": algorithm(proxy.backend.upstream.algorithm),
            "tags": proxy.backend.tags.iter().map(|(name, value)| (name.to_string(), json!(value)))
                .collect::<serde_json::Map<_, _>>(),
            "targets": targets.collect::<Vec<_>>(),
        },
        "owner": proxy.owner().map(|owner| owner.as_str()),
        "load_priority": match proxy.load_priority {
            LoadPriority::Low => "low",
            LoadPriority::Normal => "normal",
            LoadPriority::High => "high",
        },
        "timeouts_ms": {
            "connect": millis(proxy.timeouts.connect),
            "first_byte": millis(proxy.timeouts.first_byte),
            "idle": millis(proxy.timeouts.idle),
            "total": millis(proxy.timeouts.total),
        },
        "retry": retry(&proxy.retry),
        "hedging": proxy.hedging().map(hedging),
        "circuit_breaker": proxy.circuit_breaker.as_ref().map(|rules| json!({
            "failure_threshold": rules.failure_threshold,
            "success_threshold": rules.success_threshold,
            "timeout": rules.open_for.as_secs(),
            "failure_status_codes": rules.status_codes,
            "half_open_max_requests": rules.half_open_max_requests,
        })),
    })
}

fn plugin(config: &PluginConfig, written: &HashMap<String, Value>) -> Value {
    let scope = match &config.scope {
        Scope::Global => "global",
        Scope::Proxy(_) => "proxy",
        Scope::ProxyGroup => "proxy_group",
        Scope::Owner(_) => "owner",
    };
    let written = written.get(config.id.as_str());
    json!({
        "id": config.id.as_str(),
        "plugin_name": &*config.plugin_name,
        "scope": scope,
        "config": written.map(|written| &written["config"]),
        "when": written.map(|written| &written["when"]),
    })
}

fn hedging(rules: &Hedging) -> Value {
    json!({
        "delay": Unit::Milliseconds.canonical(u64::try_from(rules.delay.as_millis()).unwrap_or(u64::MAX)),
        "delay_percentile": rules.percentile,
        "max_hedges": rules.max_hedges,
        "budget_percent": rules.budget_percent,
        "methods": rules.methods.iter().map(http::Method::as_str).collect::<Vec<_>>(),
        "grpc_methods": rules.grpc_methods.iter().map(|path| &**path).collect::<Vec<_>>(),
        "max_body": rules.max_body,
    })
}

fn fastcgi(rules: &FastCgi) -> Value {
    let scripts = rules.scripts.as_ref().map(|scripts| {
        json!({
            "root": scripts.root,
            "local_root": scripts.local_root,
            "index": scripts.index,
            "split_path": scripts.endings,
        })
    });
    json!({
        "scripts": scripts,
        // Values may be secrets.
        "params": rules.params.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "keep_alive": rules.keep_alive,
        "unsized_body": rules.unsized_body,
    })
}

fn retry(rules: &Retry) -> Value {
    json!({
        "max_retries": rules.max_retries,
        "status_codes": rules.status_codes,
        "methods": rules.methods.iter().map(http::Method::as_str).collect::<Vec<_>>(),
        "grpc_methods": rules.grpc_methods,
        "on_connect_failure": rules.on_connect_failure,
        "budget_percent": rules.budget_percent,
    })
}

/// As written in a configuration.
fn algorithm(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::RoundRobin => "round_robin",
        Algorithm::WeightedRoundRobin => "weighted_round_robin",
        Algorithm::LeastConnections => "least_connections",
        Algorithm::LeastLatency => "least_latency",
        Algorithm::ConsistentHashing => "consistent_hashing",
        Algorithm::Maglev => "maglev",
        Algorithm::Random => "random",
        Algorithm::PowerOfTwo => "power_of_two",
    }
}

fn path_policy(policy: PathPolicy) -> &'static str {
    match policy {
        PathPolicy::Refuse => "refuse",
        PathPolicy::Keep => "keep",
        PathPolicy::Decode => "decode",
    }
}

fn traffic(traffic: &Traffic) -> Value {
    match traffic {
        Traffic::Http(rules) => json!({
            "kind": "http",
            "matches": rules.matches.iter().map(|rule| json!({
                "hosts": hosts(&rule.hosts),
                "path": rule.path.written(),
                "conditions": rule.condition.as_ref().map_or(0, |condition| condition.weight()),
            })).collect::<Vec<_>>(),
            "priority": rules.priority,
            "allowed_methods": rules.allowed_methods.as_ref().map(|methods| {
                methods.iter().map(http::Method::as_str).collect::<Vec<_>>()
            }),
            "strip_listen_path": rules.strip_listen_path,
            "backend_path": rules.backend_path.as_deref(),
            "path_rules": {
                "encoded_slash": path_policy(rules.path_rules.encoded_slash),
                "backslash": path_policy(rules.path_rules.backslash),
                "double_encoding": path_policy(rules.path_rules.double_encoding),
                "parameters": match rules.path_rules.parameters {
                    Parameters::Keep => "keep",
                    Parameters::Remove => "remove",
                    Parameters::Refuse => "refuse",
                },
            },
            "preserve_host_header": rules.preserve_host_header,
            "early_data": rules.early_data,
            "max_request_body": rules.max_request_body,
        }),
        Traffic::Stream(rules) => json!({
            "kind": "stream",
            "listen_ports": [rules.listen_ports.0, rules.listen_ports.1],
            "frontend_tls": rules.frontend_tls,
            "passthrough": rules.passthrough,
            "server_names": hosts(&rules.server_names),
            "alpn": rules.alpn.iter().map(|it| String::from_utf8_lossy(it)).collect::<Vec<_>>(),
        }),
    }
}

fn hosts(patterns: &[HostPattern]) -> Vec<String> {
    let shown = |pattern: &HostPattern| match pattern {
        HostPattern::Exact(name) => name.to_string(),
        HostPattern::Suffix(suffix) => format!("*{suffix}"),
    };
    patterns.iter().map(shown).collect()
}
