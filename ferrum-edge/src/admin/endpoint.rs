//! What the table of the admin API says of each endpoint.

use axum::http::Method;
use axum::routing::MethodRouter;

use super::Admin;
use crate::access::Role;

/// One thing that can be asked for.
pub(super) struct Endpoint {
    pub(super) method: Method,
    /// As the router and OpenAPI write it.
    pub(super) path: &'static str,
    /// One sentence.
    pub(super) summary: &'static str,
    pub(super) gate: Gate,
    pub(super) narrowed: Narrowed,
    /// The query's keys.
    pub(super) query: &'static [Param],
    /// What is sent.
    pub(super) body: Option<Body>,
    /// The status of a good answer.
    pub(super) status: u16,
    /// What a good answer holds.
    pub(super) answer: ResponseContent,
    pub(super) route: fn() -> MethodRouter<Admin>,
}

/// The permission a caller needs. The API checks it before it reads a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// None.
    Health,
    /// None, or the permission to read from this gateway where `admin_require_token` is set.
    Open,
    /// Callers with this role, by the tokens that the database knows: it is about what the database holds.
    Stored(Role),
    /// Callers with this role, also where the configuration comes from a file: it is about this gateway.
    Running(Role),
}

/// What an endpoint is for callers whose role counts for some objects only (see `access::grants`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Narrowed {
    /// Nothing: it is about more than their objects.
    Refused,
    /// It shows and changes their objects only, or what concerns nobody else.
    Own,
    /// It is about the proxies that `proxy` of the query names, which have to be theirs.
    ByProxy,
}

impl Gate {
    /// The role that a caller always needs.
    pub(super) fn role(self) -> Option<Role> {
        match self {
            Self::Health | Self::Open => None,
            Self::Stored(role) | Self::Running(role) => Some(role),
        }
    }
}

/// A key of a query.
pub(super) struct Param {
    pub(super) name: &'static str,
    /// One sentence.
    pub(super) meaning: &'static str,
    pub(super) of: Type,
    pub(super) required: bool,
}

/// What a key of a query takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    /// A status, a class or a range of them.
    Status,
    /// An IP address.
    Address,
    /// An IP address, or a block of them.
    Network,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// A session's id.
    Page,
    /// A time as in RFC 3339.
    Time,
    /// `true` or `false`; alone it is `true`.
    Switch,
    /// It is enough that it is there.
    Flag,
    /// From the first to the second.
    Number(u64, u64),
}

/// What a good answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseContent {
    /// Text: the checks.
    Health,
    /// Text, as Prometheus reads it.
    Metrics,
    /// Nothing.
    Nothing,
    /// An object of the kind in the path.
    Object,
    /// A page of those, or of what the path ends with.
    Page,
    /// An upstream.
    Upstream,
    /// What was done, in numbers.
    Summary,
    /// The whole configuration.
    Export,
    /// A page of revisions.
    Revisions,
    /// A revision with what it changed.
    Revision,
    /// What is different between two.
    Diff,
    /// Records, one a line.
    Records,
    /// Server-sent events.
    Events,
    /// A page of sessions.
    Sessions,
    /// A page of the audit.
    Audit,
    /// Whether the audit's chain is whole.
    AuditCheck,
    /// Counts by proxy and target.
    Traffic,
    /// Something else that is an object.
    Document,
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
    /// A request that somebody wonders about.
    Question,
    /// What a workspace covers.
    Workspace,
    /// Another name of a workspace.
    WorkspaceName,
    /// Another name or group of an edge.
    #[cfg(feature = "fleet")]
    Edge,
    /// Whom to invite to a fleet.
    #[cfg(feature = "fleet")]
    Invitation,
    /// What is meant for a group of edges.
    #[cfg(feature = "fleet")]
    Group,
    /// A user of the console.
    #[cfg(feature = "console")]
    User,
    /// Fields of one.
    #[cfg(feature = "console")]
    ChangedUser,
    /// The current password and the next.
    #[cfg(feature = "console")]
    Password,
    /// The password, for a new second factor, and a code if the user is enrolled.
    #[cfg(feature = "console")]
    NewTotp,
    /// A code of an authenticator app.
    #[cfg(feature = "console")]
    TotpCode,
    /// The password, for a new passkey.
    #[cfg(feature = "console")]
    NewPasskey,
    /// What the browser has made.
    #[cfg(feature = "console")]
    MadePasskey,
}

/// A key that may be left out.
pub(super) const fn param(name: &'static str, of: Type, meaning: &'static str) -> Param {
    Param { name, meaning, of, required: false }
}
