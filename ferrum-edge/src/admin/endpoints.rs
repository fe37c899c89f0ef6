//! THE table of the admin API: router and OpenAPI are made of it.

use axum::http::Method;
use axum::routing::{MethodRouter, delete, get, patch, post, put};

use super::endpoint::{Body, Endpoint, Gate, Narrowed, Param, ResponseContent, Type, param};
use super::sessions::PROTOCOLS;
use super::{
    Admin, acme, actions, audit, bulk, catalogue, changes, counters, effective, explain, health, history,
    metrics, openapi, recent_records, records, resources, sessions, settings, status, targets, traffic,
    usage, workspaces, writing,
};
#[cfg(feature = "console")]
use super::{passkey_enrolment as passkeys, totp_enrolment, users};
use crate::access::Role;
use crate::audit::{KINDS, OUTCOMES, SOURCES};

const VALIDATE: Param = param("validate_only", Type::Switch, "Validates everything and writes nothing.");
const NOTE: Param = param("note", Type::Text, "Reason, for the history.");
const DETAILS: Param = param(
    "details",
    Type::Switch,
    "Also returns the change of each object, and with `validate_only` the changed fields.",
);
const VERBOSE: &[Param] = &[param("verbose", Type::Flag, "Lists every check.")];
const WRITE: &[Param] = &[VALIDATE, NOTE];
const BULK: &[Param] = &[VALIDATE, DETAILS, NOTE];
const ROLLBACK: &[Param] = &[
    param(
        "keep_credentials",
        Type::Switch,
        "Consumers keep their current credentials; restored consumers have none.",
    ),
    VALIDATE,
    DETAILS,
    NOTE,
];
const IMPORT: &[Param] = &[
    param(
        "prune",
        Type::Switch,
        "`false` keeps objects that the document does not contain. Default true; other values are rejected.",
    ),
    VALIDATE,
    DETAILS,
    NOTE,
];
const ACTION: &[Param] =
    &[param("plugin_config", Type::Text, "Only this plugin config. Default all with this plugin.")];
const RECORDS: &[Param] = &[
    param("proxy", Type::Text, "Only records of this proxy; may be given several times."),
    param(
        "status",
        Type::Status,
        "Only exchanges with this status, such as `404`, `5xx` or `500-504`; may be given several times.",
    ),
    SLOWER_THAN,
    CONSUMER,
    CLIENT,
    PATH_PREFIX,
];
const SLOWER_THAN: Param = param(
    "slower_than",
    Type::Number(0, u64::MAX),
    "Only records with at least this duration in milliseconds.",
);
const CONSUMER: Param =
    param("consumer", Type::Text, "Only records of the caller with this name; may be given several times.");
const CLIENT: Param = param(
    "client",
    Type::Network,
    "Only records from this address, or block such as `10.0.0.0/8`; may be given several times.",
);
const PATH_PREFIX: Param =
    param("path", Type::Text, "Only exchanges whose path begins with this; may be given several times.");
const RENEWAL: &[Param] = &[param("name", Type::Text, "One of the certificate's names.")];
const RECENT: &[Param] = &[
    param("limit", Type::Number(1, 1000), "Records. Default 10."),
    param("request_id", Type::Text, "Only the exchange with this `http.request.id`."),
    param("proxy", Type::Text, "Only records of this proxy; may be given several times."),
    param(
        "status",
        Type::Status,
        "Only exchanges with this status, such as `404`, `5xx` or `500-504`; may be given several times.",
    ),
    SLOWER_THAN,
    CONSUMER,
    CLIENT,
    PATH_PREFIX,
];
const TRAFFIC: &[Param] = &[param(
    "targets",
    Type::Switch,
    "`false` omits the state of targets. Default true; other values are rejected.",
)];
const SESSIONS: &[Param] = &[
    param("proxy", Type::Text, "Only sessions of this proxy."),
    param("owner", Type::Text, "Only sessions of proxies of this owner."),
    param("consumer", Type::Text, "Only sessions of the consumer with this name."),
    param(
        "protocol",
        Type::OneOf(&PROTOCOLS),
        "Only sessions with this protocol: `tcp`, `udp`, `dtls`, `websocket`, `event_stream`, `grpc` or `http`.",
    ),
    param("client", Type::Address, "Only sessions of the client with this address."),
    param("port", Type::Number(1, 65_535), "Only sessions on this port of the gateway."),
    param("after", Type::Page, "Start of the page: `next` of the previous page."),
    param("limit", Type::Number(1, 1000), "Sessions of a page. Default 100."),
];
const COUNTERS: &[Param] = &[
    param("proxy", Type::Text, "Only sessions of this proxy."),
    param("owner", Type::Text, "Only sessions of proxies of this owner."),
    param("consumer", Type::Text, "Only sessions of the consumer with this name."),
    param(
        "protocol",
        Type::OneOf(&PROTOCOLS),
        "Only sessions with this protocol: `tcp`, `udp`, `dtls`, `websocket`, `event_stream`, `grpc` or `http`.",
    ),
    param("client", Type::Address, "Only sessions of the client with this address."),
    param("port", Type::Number(1, 65_535), "Only sessions on this port of the gateway."),
    param("interval", Type::Number(1, 3600), "Interval of events in seconds. Default 1."),
];
const USAGE: &[Param] = &[
    param("plugin_config", Type::Text, "Only quotas of this plugin config."),
    param("key", Type::Text, "Only this key, such as a consumer, a proxy or an address."),
    param(
        "history",
        Type::OneOf(&["minute", "hour"]),
        "Also lists the bytes of each minute (7 days) or hour (90 days).",
    ),
    param("since", Type::Number(0, u64::MAX), "Start of the history, in seconds since 1970."),
    param(
        "top",
        Type::Number(1, usage::MAX_TOP as u64),
        "Shows only this many keys of each quota: those with the highest usage, in descending order.",
    ),
];
const ENDED: &[Param] = &[
    param("proxy", Type::Text, "Those of this proxy."),
    param("owner", Type::Text, "Those of proxies of this owner."),
    param("consumer", Type::Text, "Those of the consumer with this name."),
    param(
        "protocol",
        Type::OneOf(&PROTOCOLS),
        "Those of this protocol: `tcp`, `udp`, `dtls`, `websocket`, `event_stream`, `grpc` or `http`.",
    ),
    param("client", Type::Address, "Those of the client with this address."),
    param("port", Type::Number(1, 65_535), "Those of this port of the gateway."),
];
const LIST: &[Param] = &[
    param("after", Type::Text, "Start of the page: `next` of the previous page."),
    param("limit", Type::Number(1, 1000), "Objects of a page. Default 100."),
];
const REVISIONS: &[Param] = &[
    param("before", Type::Number(0, u64::MAX), "Only older ones: `next` of the previous page."),
    param("limit", Type::Number(1, 1000), "Revisions of a page. Default 50."),
];
const AUDIT: &[Param] = &[
    param("actor", Type::Text, "Only entries of this actor: a token's name, a JWT's subject, or a user."),
    param(
        "source",
        Type::OneOf(SOURCES),
        "Only entries from this source: `admin-api`, `command-line`, `console` or `file`.",
    ),
    param(
        "outcome",
        Type::OneOf(OUTCOMES),
        "Only entries with this outcome: `allowed`, `refused` or `failed`.",
    ),
    param("kind", Type::OneOf(&KINDS), "Only changes of objects of this kind, such as `proxies`."),
    param("id", Type::Text, "Only changes of the object with this id."),
    param("since", Type::Time, "Only entries since this time (RFC 3339)."),
    param("until", Type::Time, "Only entries until this time (RFC 3339)."),
    param("before", Type::Number(0, u64::MAX), "Only older ones: `next` of the previous page."),
    param("limit", Type::Number(1, 1000), "Entries of a page. Default 100."),
];
const CHANGES: &[Param] = &[
    param(
        "state",
        Type::OneOf(&changes::STATES),
        "Only changes in this state: `pending`, `approved`, `rejected`, `withdrawn` or `expired`.",
    ),
    param("before", Type::Number(0, u64::MAX), "Only older ones: `next` of the previous page."),
    param("limit", Type::Number(1, 200), "Changes of a page. Default 100."),
];
const APPROVE: &[Param] = &[
    param(
        "emergency",
        Type::Switch,
        "Applies the change without a second person. Only for the operator: a static token with the role admin, or the Unix socket. \
         Needs `note`.",
    ),
    VALIDATE,
    NOTE,
];
const DIFF: &[Param] = &[
    Param { required: true, ..param("from", Type::Number(0, u64::MAX), "Older revision.") },
    param("to", Type::Number(0, u64::MAX), "Newer revision. Default the newest."),
];

/// A row without a body.
fn asked(
    method: Method,
    path: &'static str,
    summary: &'static str,
    gate: Gate,
    query: &'static [Param],
    answer: ResponseContent,
    route: fn() -> MethodRouter<Admin>,
) -> Endpoint {
    let narrowed = Narrowed::Refused;
    Endpoint { method, path, summary, gate, narrowed, query, body: None, status: 200, answer, route }
}

/// A row that callers with grants may ask for, for their own objects.
fn own(endpoint: Endpoint) -> Endpoint {
    Endpoint { narrowed: Narrowed::Own, ..endpoint }
}

/// A row that callers with grants may ask for with the query's `proxy`.
fn by_proxy(endpoint: Endpoint) -> Endpoint {
    Endpoint { narrowed: Narrowed::ByProxy, ..endpoint }
}

/// A row with a body.
fn sent(body: Body, status: u16, endpoint: Endpoint) -> Endpoint {
    Endpoint { body: Some(body), status, ..endpoint }
}

/// Every endpoint.
#[rustfmt::skip]
pub(super) fn all() -> Vec<Endpoint> {
    use {ResponseContent as A, Method as M};
    let (health, open) = (Gate::Health, Gate::Open);
    let (read, write, admin) = (Gate::Stored(Role::Read), Gate::Stored(Role::Write), Gate::Stored(Role::Admin));
    let (running_read, running_write) = (Gate::Running(Role::Read), Gate::Running(Role::Write));
    let mut all = vec![
        asked(M::GET, "/livez", "Whether the process is alive.", health, VERBOSE, A::Health, || get(health::live)),
        asked(M::GET, "/healthz", "As /livez.", health, VERBOSE, A::Health, || get(health::live)),
        asked(M::GET, "/readyz", "Whether the gateway is ready for traffic.", health, VERBOSE, A::Health, || get(health::ready)),
        asked(M::GET, "/startupz", "Whether the start is complete.", health, VERBOSE, A::Health, || get(health::started)),
        asked(M::GET, "/metrics", "Metrics for Prometheus.", open, &[], A::Metrics, || get(metrics)),
        asked(M::GET, "/v1/status", "Status of the gateway: revision, database, listeners, closed proxies, targets.", open, &[], A::Document, || get(status::status)),
        own(asked(M::GET, "/v1/openapi.json", "This description.", open, &[], A::Document, || get(|| openapi::document(all)))),
        own(asked(M::GET, catalogue::SCHEMA, "The JSON Schema of objects and configuration files.", running_read, &[], A::Document, || get(catalogue::schema))),
        own(asked(M::GET, catalogue::PLUGINS, "The plugins of this gateway in execution order, each with its actions and the JSON Schema of its settings.", running_read, &[], A::Document, || get(catalogue::plugins))),
        asked(M::GET, settings::PATH, "The settings of this gateway, each with its source: `flag`, `environment`, `file` or `default`.", running_read, &[], A::Document, || get(settings::list)),
        own(asked(M::GET, "/v1/{kind}", "A page of objects, ordered by ID. Any other query parameter is a field that must have this value.", read, LIST, A::Page, || get(resources::list))),
        own(sent(Body::Object, 201, asked(M::POST, "/v1/{kind}", "Creates an object. Without an ID, the gateway assigns one.", write, WRITE, A::Object, || post(resources::create)))),
        own(asked(M::GET, "/v1/{kind}/{id}", "One object, without its credentials.", read, &[], A::Object, || get(resources::get))),
        own(sent(Body::Object, 200, asked(M::PUT, "/v1/{kind}/{id}", "Creates or replaces an object. A consumer without `credentials` keeps its current ones.", write, WRITE, A::Object, || put(resources::put)))),
        own(sent(Body::Patch, 200, asked(M::PATCH, "/v1/{kind}/{id}", "Changes some fields of an object.", write, WRITE, A::Object, || patch(resources::patch)))),
        own(Endpoint { status: 204, ..asked(M::DELETE, "/v1/{kind}/{id}", "Deletes an object. A proxy's own plugin configs are deleted with it.", write, WRITE, A::Nothing, || delete(resources::delete)) }),
        own(asked(M::GET, "/v1/proxies/{id}/effective", "The configuration in effect for a proxy, including everything it inherits.", read, &[], A::Document, || get(effective::effective))),
        sent(Body::Action, 200, asked(M::POST, actions::PATH, "Runs an action of the plugins with this name on this gateway, such as `purge` of `response_cache`. `ferrum-edge plugins` lists the actions.", running_write, ACTION, A::Document, || post(actions::act))),
        Endpoint { status: 202, ..asked(M::POST, acme::PATH, "Orders the certificate with this name at the CA now, regardless of its expiry. `acme` in the status contains the result.", running_write, RENEWAL, A::Document, || post(acme::renew)) },
        own(asked(M::GET, "/v1/upstreams/{id}/targets", "The targets of an upstream.", read, &[], A::Page, || get(targets::list))),
        own(sent(Body::Target, 200, asked(M::PUT, "/v1/upstreams/{id}/targets/{target}", "Adds or changes the target: `host:port`, `unix:%2Fpath` or `srv:NAME`.", write, WRITE, A::Upstream, || put(targets::put)))),
        own(asked(M::DELETE, "/v1/upstreams/{id}/targets/{target}", "Removes a target.", write, WRITE, A::Upstream, || delete(targets::delete))),
        by_proxy(asked(M::GET, records::PATH, "Streams the access records of this gateway, one JSON object per line, until the client disconnects.", running_read, RECORDS, A::Records, || get(records::follow))),
        by_proxy(asked(M::GET, recent_records::PATH, "The last access records from the log file, oldest first, one JSON object per line.", running_read, RECENT, A::Records, || get(recent_records::recent))),
        asked(M::GET, traffic::PATH, "Counts by proxy and target of this gateway, since the first request for them; `ferrum-edge top` shows them. `errors` counts statuses of 500 and above and responses that were cut off.", running_read, TRAFFIC, A::Traffic, || get(traffic::look)),
        sent(Body::Question, 200, asked(M::POST, explain::PATH, "Which proxy of this gateway matches a request and why, with which plugins, and why others do not match. Sends nothing.", running_read, &[], A::Document, || post(explain::ask))),
        by_proxy(asked(M::GET, sessions::PATH, "Open TCP streams, WebSockets, event streams, UDP sessions, gRPC calls and other long responses of this gateway.", running_read, SESSIONS, A::Sessions, || get(sessions::list))),
        by_proxy(asked(M::GET, counters::PATH, "Open sessions and their bytes by proxy and protocol, as server-sent events until the client disconnects.", running_read, COUNTERS, A::Events, || get(counters::follow))),
        by_proxy(asked(M::DELETE, sessions::PATH, "Ends all sessions of a proxy, an owner, a consumer, a client, a port or a protocol.", running_write, ENDED, A::Document, || delete(sessions::end_all))),
        Endpoint { status: 204, ..asked(M::DELETE, sessions::ONE, "Ends a session.", running_write, &[], A::Nothing, || delete(sessions::end)) },
        asked(M::GET, usage::PATH, "Usage of the keys of `traffic_quota` on this gateway. The plugin's action `reset` resets it.", running_read, USAGE, A::Document, || get(usage::show)),
        own(sent(Body::Batch, 200, asked(M::POST, "/v1/batch", "Puts and deletes objects of all kinds, atomically.", write, BULK, A::Summary, || post(bulk::batch)))),
        sent(Body::File, 200, asked(M::POST, "/v1/import", "Replaces the configuration with this document, as one change.", admin, IMPORT, A::Summary, || post(bulk::import))),
        asked(M::GET, "/v1/export", "The whole configuration. For the role admin, it contains the stored credentials.", read, &[], A::Export, || get(bulk::export)),
        asked(M::GET, "/v1/revisions", "Revisions with their time, author and number of changes, newest first.", read, REVISIONS, A::Revisions, || get(history::list)),
        asked(M::GET, "/v1/revisions/{revision}", "One revision with its changes.", read, &[], A::Revision, || get(history::get)),
        asked(M::POST, "/v1/revisions/{revision}/rollback", "Restores the configuration of this revision, as a new revision.", admin, ROLLBACK, A::Summary, || post(history::rollback)),
        asked(M::GET, audit::PATH, "Changes and rejected attempts with their author and source, newest first.", running_read, AUDIT, A::Audit, || get(audit::list)),
        asked(M::GET, audit::VERIFY, "Verifies the audit's chain of hashes.", running_read, &[], A::AuditCheck, || get(audit::check)),
        own(asked(M::GET, writing::CHANGES, "Changes that need the approval of another user, with their state, newest first.", read, CHANGES, A::Document, || get(changes::list))),
        own(asked(M::GET, changes::ONE, "One change with each object before and after, and the reason why the caller cannot approve it.", read, &[], A::Document, || get(changes::get))),
        own(asked(M::POST, changes::APPROVE, "Applies another user's change as one revision, if its objects have not changed since.", write, APPROVE, A::Summary, || post(changes::approve))),
        own(Endpoint { status: 204, ..asked(M::POST, changes::REJECT, "Rejects another user's change.", write, &[NOTE], A::Nothing, || post(changes::reject)) }),
        own(Endpoint { status: 204, ..asked(M::DELETE, changes::ONE, "Withdraws the caller's own change.", write, &[NOTE], A::Nothing, || delete(changes::withdraw)) }),
        asked(M::GET, workspaces::PATH, "The workspaces: named sets of objects, which grants and groups of edges name, and who does.", admin, &[], A::Document, || get(workspaces::list)),
        sent(Body::Workspace, 200, asked(M::PUT, workspaces::ONE, "Creates or changes a workspace.", admin, &[], A::Document, || put(workspaces::put))),
        sent(Body::WorkspaceName, 200, asked(M::PATCH, workspaces::ONE, "Gives a workspace another name; grants of users and groups of edges that name it follow.", admin, &[], A::Document, || patch(workspaces::rename))),
        Endpoint { status: 204, ..asked(M::DELETE, workspaces::ONE, "Removes a workspace; grants and groups of edges that name it cover nothing.", admin, &[], A::Nothing, || delete(workspaces::delete)) },
        asked(M::GET, "/v1/diff", "Differences between two revisions.", read, DIFF, A::Diff, || get(history::diff)),
    ];
    all.extend(of_users());
    all.extend(fleet());
    all
}

/// Users of the console.
#[cfg(feature = "console")]
#[rustfmt::skip]
fn of_users() -> Vec<Endpoint> {
    use {ResponseContent as A, Method as M};
    let (read, admin) = (Gate::Stored(Role::Read), Gate::Stored(Role::Admin));
    vec![
        asked(M::GET, users::PATH, "The users of the console.", admin, &[], A::Document, || get(users::list)),
        sent(Body::User, 201, asked(M::POST, users::PATH, "Adds a user, who must change the password at the first login.", admin, &[], A::Document, || post(users::create))),
        sent(Body::ChangedUser, 200, asked(M::PATCH, users::ONE, "Changes the role or the password. The user's sessions end.", admin, &[], A::Document, || patch(users::patch))),
        Endpoint { status: 204, ..asked(M::DELETE, users::ONE, "Removes a user. The user's sessions end. The last user with the role admin cannot be removed.", admin, &[], A::Nothing, || delete(users::delete)) },
        own(sent(Body::NewTotp, 200, asked(M::POST, totp_enrolment::PATH, "Starts to enrol the caller's second factor: returns a secret for an authenticator app, once.", read, &[], A::Document, || post(totp_enrolment::enrol)))),
        own(sent(Body::TotpCode, 200, asked(M::POST, totp_enrolment::CONFIRM, "Confirms the secret by a code: returns recovery codes, once. The user's other sessions end.", read, &[], A::Document, || post(totp_enrolment::confirm)))),
        Endpoint { status: 204, ..asked(M::DELETE, totp_enrolment::PATH, "Removes another user's second factor. The user's sessions end.", admin, &[], A::Nothing, || delete(totp_enrolment::reset)) },
        own(sent(Body::NewPasskey, 200, asked(M::POST, passkeys::PATH, "Begins to make one's own passkey: answers what the browser needs for it.", read, &[], A::Document, || post(passkeys::begin)))),
        own(sent(Body::MadePasskey, 201, asked(M::POST, passkeys::CONFIRM, "Keeps a passkey that the browser has made. Other sessions of the user end.", read, &[], A::Document, || post(passkeys::confirm)))),
        own(Endpoint { status: 204, ..asked(M::DELETE, passkeys::ONE, "Removes one's own passkey, or as an administrator any. Other sessions of the user end.", read, &[], A::Nothing, || delete(passkeys::remove)) }),
        own(sent(Body::Password, 204, asked(M::POST, users::PASSWORD, "Changes the caller's password. The user's sessions end.", read, &[], A::Nothing, || post(users::choose)))),
    ]
}

#[cfg(not(feature = "console"))]
fn of_users() -> Vec<Endpoint> {
    Vec::new()
}

/// Endpoints of a control plane.
#[cfg(feature = "fleet")]
#[rustfmt::skip]
fn fleet() -> Vec<Endpoint> {
    use super::fleet as f;
    use {ResponseContent as A, Method as M};
    let (read, admin) = (Gate::Running(Role::Read), Gate::Running(Role::Admin));
    vec![
        asked(M::GET, f::PATH, "Groups and edges of a control plane, with the configuration that each serves.", read, &[], A::Document, || get(f::status)),
        asked(M::GET, f::EDGE, "One edge of a control plane.", read, &[], A::Document, || get(f::get)),
        asked(M::GET, f::OBJECT, "Which edges of a control plane serve an object as it is, and why others do not.", read, &[], A::Document, || get(f::object_status)),
        sent(Body::Edge, 200, asked(M::PATCH, f::EDGE, "Changes an edge's name or group.", admin, &[], A::Document, || patch(f::update))),
        Endpoint { status: 204, ..asked(M::DELETE, f::EDGE, "Removes an edge and revokes its certificates.", admin, &[], A::Nothing, || delete(f::remove)) },
        asked(M::POST, f::REVOKE, "Revokes the certificates of an edge, and closes its connection.", admin, &[], A::Document, || post(f::revoke)),
        sent(Body::Group, 204, asked(M::PUT, f::GROUP, "Assigns proxies to a group of edges by ids, in which `*` stands for any text, and workspaces by names; null is everything.", admin, &[], A::Nothing, || put(f::assign))),
        asked(M::GET, f::INVITATIONS, "Lists the pending invitations, without their codes.", admin, &[], A::Document, || get(f::invitations)),
        Endpoint { status: 204, ..asked(M::DELETE, f::INVITATION, "Withdraws a pending invitation, so that no edge can enrol with it.", admin, &[], A::Nothing, || delete(f::withdraw)) },
        sent(Body::Invitation, 201, asked(M::POST, f::INVITATIONS, "Creates a one-time invitation for a new edge, valid for ten minutes.", admin, &[], A::Document, || post(f::invite))),
    ]
}

#[cfg(not(feature = "fleet"))]
fn fleet() -> Vec<Endpoint> {
    Vec::new()
}
