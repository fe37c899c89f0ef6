//! THE table of the admin API: router and OpenAPI are made of it.

use axum::http::Method;
use axum::routing::{MethodRouter, delete, get, patch, post, put};

use super::access::Role;
use super::{
    Admin, actions, bulk, effective, health, history, metrics, openapi, resources, sessions, status, targets,
};

/// One thing that can be asked for.
pub(super) struct Endpoint {
    pub(super) method: Method,
    /// As the router and OpenAPI write it.
    pub(super) path: &'static str,
    /// One sentence.
    pub(super) summary: &'static str,
    /// What a caller needs, looked at before a body is read; `None` for what anybody may ask who reaches the listener.
    pub(super) role: Option<Role>,
    /// The query's keys, with what they mean.
    pub(super) query: &'static [(&'static str, &'static str)],
    /// What is sent.
    pub(super) body: Option<Body>,
    /// The status of a good answer.
    pub(super) status: u16,
    pub(super) route: fn() -> MethodRouter<Admin>,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// One object of the kind in the path.
    Object,
    /// Some fields of it (RFC 7396).
    Patch,
    /// A target of an upstream.
    Target,
    /// Lists of objects by kind, and ids to delete.
    Batch,
    /// A whole configuration.
    File,
    /// What a plugin's action takes.
    Action,
}

const WRITE: &[(&str, &str)] =
    &[("validate_only", "Checks everything and writes nothing."), ("note", "Why, for the history.")];
const BULK: &[(&str, &str)] = &[
    ("validate_only", "Checks everything and writes nothing."),
    ("details", "Answers with what is done to each object."),
    ("note", "Why, for the history."),
];
const ROLLBACK: &[(&str, &str)] = &[
    ("keep_credentials", "Consumers keep the credentials they have now, and those that come back have none."),
    ("validate_only", "Checks everything and writes nothing."),
    ("details", "Answers with what is done to each object."),
    ("note", "Why, for the history."),
];
const IMPORT: &[(&str, &str)] = &[
    ("prune", "`false` keeps what the document doesn't have. Default true."),
    ("validate_only", "Checks everything and writes nothing."),
    ("details", "Answers with what is done to each object."),
    ("note", "Why, for the history."),
];
const ACTION: &[(&str, &str)] =
    &[("plugin_config", "Only the plugin of this config. Default all of the name.")];
const SESSIONS: &[(&str, &str)] = &[
    ("proxy", "Only those of this proxy."),
    ("consumer", "Only those of the consumer with this name."),
    ("after", "Where the page begins: `next` of the page before."),
    ("limit", "Sessions of a page, 1 to 1000. Default 100."),
];
const ENDED: &[(&str, &str)] =
    &[("proxy", "Those of this proxy."), ("consumer", "Those of the consumer with this name.")];
const LIST: &[(&str, &str)] = &[
    ("after", "Where the page begins: `next` of the page before."),
    ("limit", "Objects of a page, 1 to 1000. Default 100."),
];
const REVISIONS: &[(&str, &str)] = &[
    ("before", "Only older ones: `next` of the page before."),
    ("limit", "Revisions of a page, 1 to 1000. Default 50."),
];
const DIFF: &[(&str, &str)] =
    &[("from", "The revision before. Required."), ("to", "The revision after. Default the newest.")];

/// A row without a body.
fn asked(
    method: Method,
    path: &'static str,
    summary: &'static str,
    (role, query): (Option<Role>, &'static [(&'static str, &'static str)]),
    route: fn() -> MethodRouter<Admin>,
) -> Endpoint {
    Endpoint { method, path, summary, role, query, body: None, status: 200, route }
}

/// A row with a body.
fn sent(body: Body, status: u16, endpoint: Endpoint) -> Endpoint {
    Endpoint { body: Some(body), status, ..endpoint }
}

/// Every endpoint.
#[rustfmt::skip]
pub(super) fn all() -> Vec<Endpoint> {
    use Method as M;
    let (open, read, write, admin) = (None, Some(Role::Read), Some(Role::Write), Some(Role::Admin));
    vec![
        asked(M::GET, "/livez", "Whether the process answers.", (open, &[]), || get(health::live)),
        asked(M::GET, "/healthz", "As /livez.", (open, &[]), || get(health::live)),
        asked(M::GET, "/readyz", "Whether traffic should come here.", (open, &[]), || get(health::ready)),
        asked(M::GET, "/startupz", "Whether the start is over.", (open, &[]), || get(health::started)),
        asked(M::GET, "/metrics", "Metrics as Prometheus reads them.", (open, &[]), || get(metrics)),
        asked(M::GET, "/v1/status", "How the gateway stands: revision, database, listeners, closed proxies, targets.", (open, &[]), || get(status::status)),
        asked(M::GET, "/v1/openapi.json", "This description.", (open, &[]), || get(openapi::document)),
        asked(M::GET, "/v1/{kind}", "A page of objects, in the order of ids. Any other key of the query is a field that has to have the value.", (read, LIST), || get(resources::list)),
        sent(Body::Object, 201, asked(M::POST, "/v1/{kind}", "Creates an object; without an id it is given one.", (write, WRITE), || post(resources::create))),
        asked(M::GET, "/v1/{kind}/{id}", "One object. Credentials are never shown.", (read, &[]), || get(resources::get)),
        sent(Body::Object, 200, asked(M::PUT, "/v1/{kind}/{id}", "Creates or replaces an object. A consumer sent without `credentials` keeps those it has.", (write, WRITE), || put(resources::put))),
        sent(Body::Patch, 200, asked(M::PATCH, "/v1/{kind}/{id}", "Changes some fields of an object.", (write, WRITE), || patch(resources::patch))),
        Endpoint { status: 204, ..asked(M::DELETE, "/v1/{kind}/{id}", "Deletes an object; with a proxy its own plugin configs.", (write, WRITE), || delete(resources::delete)) },
        asked(M::GET, "/v1/proxies/{id}/effective", "What is served for a proxy, everything it inherits included.", (read, &[]), || get(effective::effective)),
        sent(Body::Action, 200, asked(M::POST, actions::PATH, "Has the plugins of this name do something on this gateway, such as `response_cache` `purge`. `ferrum-edge plugins` lists what they can do.", (write, ACTION), || post(actions::act))),
        asked(M::GET, "/v1/upstreams/{id}/targets", "The targets of an upstream.", (read, &[]), || get(targets::list)),
        sent(Body::Target, 200, asked(M::PUT, "/v1/upstreams/{id}/targets/{target}", "Adds or changes the target `host:port`.", (write, WRITE), || put(targets::put))),
        asked(M::DELETE, "/v1/upstreams/{id}/targets/{target}", "Takes a target out.", (write, WRITE), || delete(targets::delete)),
        asked(M::GET, sessions::PATH, "The TCP streams, WebSockets and streams of events of this gateway that are open.", (read, SESSIONS), || get(sessions::list)),
        asked(M::DELETE, sessions::PATH, "Ends all of a proxy or a consumer.", (write, ENDED), || delete(sessions::end_all)),
        Endpoint { status: 204, ..asked(M::DELETE, sessions::ONE, "Ends one of them.", (write, &[]), || delete(sessions::end)) },
        sent(Body::Batch, 200, asked(M::POST, "/v1/batch", "Puts and deletes objects of all kinds; all of it or nothing.", (write, BULK), || post(bulk::batch))),
        sent(Body::File, 200, asked(M::POST, "/v1/import", "Makes the configuration this one, as one change.", (admin, IMPORT), || post(bulk::import))),
        asked(M::GET, "/v1/export", "The whole configuration. For the role admin with credentials as they are stored, for others without.", (read, &[]), || get(bulk::export)),
        asked(M::GET, "/v1/revisions", "What was changed, when and by whom, the newest first.", (read, REVISIONS), || get(history::list)),
        asked(M::GET, "/v1/revisions/{revision}", "One revision with what it changed.", (read, &[]), || get(history::get)),
        asked(M::POST, "/v1/revisions/{revision}/rollback", "Makes the configuration what it was then, as a new revision.", (admin, ROLLBACK), || post(history::rollback)),
        asked(M::GET, "/v1/diff", "What is different between two revisions.", (read, DIFF), || get(history::diff)),
    ]
}
