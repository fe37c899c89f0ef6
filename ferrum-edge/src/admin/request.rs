//! What the admin API's requests have in common: who asks, what for, under which condition.

use std::sync::atomic::Ordering;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::header::{AUTHORIZATION, ETAG, IF_MATCH, IF_NONE_MATCH, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;
use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::model::Id;
use serde_json::{Map, Value};
use std::sync::Arc;

use super::Admin;
use super::attempt::Attempt;
use super::endpoint::Narrowed;
use super::json::{self, JsonError};
#[cfg(feature = "console")]
use super::peer::ConsoleCaller;
use super::peer::Peer;
use super::problem::{Refused, invalid, problem, twice};
use super::query::pairs;
use super::workspace_grants::resolved;
use crate::access::{Caller, Role};
use crate::audit::Draft;
use crate::source::database::{Consent, Precondition, Reconciler};
use crate::store::Author;

/// Somebody who may do what the table says of this endpoint, and the configuration it is about.
#[derive(Clone)]
pub(super) struct AuthorizedRequest {
    pub(super) caller: Caller,
    pub(super) reconciler: Arc<Reconciler>,
    #[cfg(feature = "fleet")]
    pub(super) fleet: Option<crate::fleet::FleetRole>,
    attempt: Attempt,
}

/// What an endpoint of the table asks of its callers; it runs before a byte of the body is read.
#[derive(Clone)]
pub(super) struct RoleGate {
    pub(super) admin: Admin,
    pub(super) role: Role,
    /// What it is for callers with grants.
    pub(super) narrowed: Narrowed,
}

/// Lets callers through who may.
pub(super) async fn gate(State(gate): State<RoleGate>, mut request: Request, next: Next) -> Response {
    let attempt = Attempt::of(&request);
    let asked = match AuthorizedRequest::of(&request, &gate.admin, &attempt) {
        Ok(asked) => asked.resolved().await,
        Err(refused) => Err(refused),
    };
    let (caller, response) = match asked {
        Ok(asked) => {
            let caller = asked.caller.clone();
            let allowed =
                may(&caller, gate.role).and_then(|()| within(&caller, gate.narrowed, request.uri()));
            let response = match allowed {
                Ok(()) => {
                    request.extensions_mut().insert(asked);
                    next.run(request).await
                }
                Err(refused) => *refused,
            };
            (Some(caller), response)
        }
        Err(refused) => {
            if refused.status() == StatusCode::UNAUTHORIZED {
                gate.admin.engine.telemetry.control.admin_tokens_refused.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(path = request.uri().path(), "the admin API was asked without a valid token");
            }
            (None, *refused)
        }
    };
    attempt.ended(&gate.admin.engine.audit, caller.as_ref(), &response, true);
    response
}

/// Lets callers through who may have the running gateway do something, also where its configuration comes from a file:
/// then by the tokens of the environment.
pub(super) async fn gate_of_running(State(gate): State<RoleGate>, request: Request, next: Next) -> Response {
    let caller = caller(&gate.admin, &request).map_err(|why| Box::new(unauthorized(why)));
    let attempt = Attempt::of(&request);
    let caller = match (caller, &gate.admin.reconciler) {
        (Ok(caller), Some(reconciler)) => resolved(caller, reconciler).await,
        (caller, _) => caller,
    };
    let (caller, response) = match caller {
        Err(refused) => (None, *refused),
        Ok(caller) => {
            let allowed =
                may(&caller, gate.role).and_then(|()| within(&caller, gate.narrowed, request.uri()));
            match allowed {
                Ok(()) => (Some(caller), next.run(request).await),
                Err(refused) => (Some(caller), *refused),
            }
        }
    };
    // Questions that change nothing need no more than the role read.
    if gate.role > Role::Read || !response.status().is_success() {
        attempt.ended(&gate.admin.engine.audit, caller.as_ref(), &response, false);
    }
    response
}

/// Whom a request is from: the session's caller for a request of the console, else that of its token, else the owner of the
/// Unix socket that it came by. With `gateway.admin_require_token` the owner needs a token too.
pub(super) fn caller(admin: &Admin, request: &Request) -> Result<Caller, &'static str> {
    #[cfg(feature = "console")]
    if let Some(ConsoleCaller(caller)) = request.extensions().get() {
        return Ok(caller.clone());
    }
    if !request.headers().contains_key(AUTHORIZATION)
        && let Some(owner) = request.extensions().get::<Arc<Peer>>().and_then(|peer| peer.owner)
        && !admin.engine.snapshot().settings.admin_require_token
    {
        return Ok(Caller::socket_owner(owner));
    }
    admin.access()?.caller(request.headers())
}

/// Bytes that are read of a body where there should be none.
const MAX_EMPTY_BODY: usize = 64;

/// Refuses what is sent where an endpoint takes no body: who sends `{"validate_only":true}` means it. An empty object says
/// nothing.
pub(super) async fn without_body(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let sent = axum::body::to_bytes(body, MAX_EMPTY_BODY).await;
    if sent.is_ok_and(|sent| matches!(sent.trim_ascii(), b"" | b"{}")) {
        return next.run(Request::from_parts(parts, Body::empty())).await;
    }
    let detail = "This takes no body; what it can be told stands in the query, such as `?validate_only=true`";
    problem(StatusCode::BAD_REQUEST, "unexpected_body", detail)
}

/// Whether the caller may do what needs this role; else the answer.
pub(super) fn may(caller: &Caller, role: Role) -> Result<(), Refused> {
    if caller.role >= role {
        return Ok(());
    }
    let detail = format!("This needs the role {}, and yours is {}", role.as_str(), caller.role.as_str());
    Err(Box::new(problem(StatusCode::FORBIDDEN, "forbidden", &detail)))
}

/// Whether an endpoint is for a caller's grants; else the answer.
pub(super) fn within(caller: &Caller, narrowed: Narrowed, uri: &Uri) -> Result<(), Refused> {
    let Some(grants) = &caller.grants else { return Ok(()) };
    match narrowed {
        Narrowed::Own => Ok(()),
        Narrowed::Refused => Err(out_of_scope("This is about more than the objects that your grants cover")),
        Narrowed::ByProxy => {
            let pairs = pairs(uri.query());
            let mut proxies = pairs.iter().filter(|(key, _)| key == "proxy").peekable();
            match proxies.peek().is_some() && proxies.all(|(_, id)| grants.may_see(id)) {
                true => Ok(()),
                false => Err(out_of_scope(
                    "Say which proxies with `proxy`; your grants have to cover each of them",
                )),
            }
        }
    }
}

/// The refusal of what grants do not cover.
pub(super) fn out_of_scope(detail: &str) -> Refused {
    Box::new(problem(StatusCode::FORBIDDEN, "out_of_scope", detail))
}

impl AuthorizedRequest {
    /// Whether the caller may see this object; else the answer. Consumers have credentials for everything, and are for nobody with
    /// grants.
    pub(super) fn may_see(&self, kind: ObjectKind, id: &str) -> Result<(), Refused> {
        let Some(grants) = &self.caller.grants else { return Ok(()) };
        match kind != ObjectKind::Consumers && grants.may_see(id) {
            true => Ok(()),
            false => Err(out_of_scope(&format!("Your grants do not cover the {} `{id}`", kind.singular()))),
        }
    }

    /// The same with grants that name workspaces as what these cover.
    async fn resolved(self) -> Result<Self, Refused> {
        Ok(Self { caller: resolved(self.caller.clone(), &self.reconciler).await?, ..self })
    }

    fn of(request: &Request, admin: &Admin, attempt: &Attempt) -> Result<Self, Refused> {
        let Some(reconciler) = admin.reconciler.clone() else {
            #[cfg(feature = "fleet")]
            if matches!(admin.fleet, Some(crate::fleet::FleetRole::Edge(_))) {
                let detail = "The configuration comes from a control plane; change it there";
                return Err(Box::new(problem(StatusCode::NOT_FOUND, "edge_mode", detail)));
            }
            let detail = "The configuration comes from a file; change the file and run `ferrum-edge reload`";
            return Err(Box::new(problem(StatusCode::NOT_FOUND, "file_mode", detail)));
        };
        match caller(admin, request) {
            Ok(caller) => Ok(Self {
                caller,
                reconciler,
                #[cfg(feature = "fleet")]
                fleet: admin.fleet.clone(),
                attempt: attempt.clone(),
            }),
            Err(why) => Err(Box::new(unauthorized(why))),
        }
    }

    /// Who changes something, for the history and for the audit.
    pub(super) fn author(&self) -> Author {
        let Caller { name, source, .. } = &self.caller;
        Author { name: name.to_string(), source: (*source).to_owned() }
    }

    /// Refuses a person to administer users and workspaces while changes need approvals: who adds a user could approve by it.
    ///
    /// # Errors
    /// `operator_needed`.
    pub(super) fn operator_only(&self) -> Result<(), Refused> {
        if self.reconciler.approval_rules().is_none() || !self.caller.is_person {
            return Ok(());
        }
        let detail = "With gateway.admin_approval, only the operator's token or the Unix socket administers users and workspaces: \
                      a caller that can add a user could approve its own changes as that user";
        Err(Box::new(problem(StatusCode::FORBIDDEN, "operator_needed", detail)))
    }

    /// By whose will a write happens that needs this role.
    pub(super) fn consent(&self, needed: Role) -> Consent {
        Consent::Author { role: self.caller.role, needed }
    }

    /// What the audit says of the change that is asked for.
    pub(super) fn draft(&self) -> Draft {
        self.attempt.draft(&self.caller)
    }

    /// Whether the caller may also do what needs this role, for answers that differ by it.
    pub(super) fn is(&self, role: Role) -> bool {
        self.caller.role >= role
    }
}

impl FromRequestParts<Admin> for AuthorizedRequest {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &Admin) -> Result<Self, Response> {
        // Whoever was not let in by a gate is not let in.
        parts.extensions.remove::<Self>().ok_or_else(|| unauthorized("Nobody may ask for this"))
    }
}

pub(super) fn unauthorized(why: &str) -> Response {
    let mut response = problem(StatusCode::UNAUTHORIZED, "unauthorized", why);
    let challenge = HeaderValue::from_static("Bearer realm=\"ferrum-edge\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

/// `/v1/{kind}`.
pub(super) fn kind(text: &str) -> Result<ObjectKind, Refused> {
    ObjectKind::named(text).ok_or_else(|| {
        let detail =
            format!("There is no /v1/{text}; there are proxies, consumers, upstreams and plugin_configs");
        Box::new(problem(StatusCode::NOT_FOUND, "not_found", &detail))
    })
}

/// `/v1/{kind}/{id}`.
pub(super) fn key(Path((of, id)): &Path<(String, String)>) -> Result<(ObjectKind, Id), Refused> {
    let of = kind(of)?;
    Ok((of, id.parse::<Id>().map_err(|problems| Box::new(invalid(&problems)))?))
}

/// A JSON object. No name may stand in it twice: which of the two was meant, nobody can tell.
pub(super) fn object(body: &Bytes) -> Result<Map<String, Value>, Refused> {
    match json::parse(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(Box::new(problem(StatusCode::BAD_REQUEST, "bad_json", "The body is not a JSON object"))),
        Err(JsonError::Twice { pointer }) => Err(Box::new(twice(&pointer))),
        Err(JsonError::Malformed(error)) => {
            let detail = format!("The body is not valid JSON: {error}");
            Err(Box::new(problem(StatusCode::BAD_REQUEST, "bad_json", &detail)))
        }
    }
}

/// The id an object says it has.
pub(super) fn own_id(fields: &Map<String, Value>) -> Result<Option<Id>, Refused> {
    match fields.get("id") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(id)) => Ok(Some(id.parse().map_err(|problems| Box::new(invalid(&problems)))?)),
        Some(_) => Err(Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", "`id` has to be text"))),
    }
}

/// An object's entity tag: the revision that changed it last.
pub(super) fn etag(revision: u64) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{revision}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"0\""))
}

/// Adds an entity tag.
pub(super) fn tagged(mut response: Response, revision: u64) -> Response {
    response.headers_mut().insert(ETAG, etag(revision));
    response
}

/// Whether the caller has this revision already (RFC 9110 §13.1.2).
pub(super) fn is_known(headers: &HeaderMap, revision: u64) -> bool {
    is_tagged(headers, etag(revision).as_bytes())
}

/// Whether the caller has what this entity tag is of already.
pub(super) fn is_tagged(headers: &HeaderMap, tag: &[u8]) -> bool {
    let lists = headers.get_all(IF_NONE_MATCH).iter().filter_map(|list| list.to_str().ok());
    let mut tags = lists.flat_map(|list| list.split(',')).map(|one| one.trim().trim_start_matches("W/"));
    tags.any(|one| one == "*" || one.as_bytes() == tag)
}

/// `If-Match` and `If-None-Match` (RFC 9110 §13.1), else `otherwise`.
pub(super) fn precondition(headers: &HeaderMap, otherwise: Precondition) -> Result<Precondition, Refused> {
    let bad = |detail: &str| Box::new(problem(StatusCode::BAD_REQUEST, "bad_condition", detail));
    match (headers.get(IF_MATCH), headers.get(IF_NONE_MATCH)) {
        (None, None) => Ok(otherwise),
        (Some(_), Some(_)) => Err(bad("If-Match and If-None-Match cannot be combined")),
        (None, Some(none)) if none == "*" => Ok(Precondition::IfNone),
        (None, Some(_)) => Err(bad("If-None-Match can only be *")),
        (Some(only), None) if only == "*" => Ok(Precondition::IfAny),
        (Some(only), None) => {
            let tag = only.to_str().ok().and_then(|text| text.trim().strip_prefix('"')?.strip_suffix('"'));
            let revision = tag.and_then(|tag| tag.parse().ok());
            revision
                .map(Precondition::Revision)
                .ok_or_else(|| bad("If-Match takes one ETag as it was answered"))
        }
    }
}

/// `If-Match` of a request about the configuration as a whole: the revision that has to be the newest.
pub(super) fn expected(headers: &HeaderMap) -> Result<Option<u64>, Refused> {
    match precondition(headers, Precondition::Any)? {
        Precondition::Any | Precondition::IfAny => Ok(None),
        Precondition::Revision(revision) => Ok(Some(revision)),
        _ => {
            let detail = "If-None-Match says nothing about the configuration as a whole; send If-Match";
            Err(Box::new(problem(StatusCode::BAD_REQUEST, "bad_condition", detail)))
        }
    }
}
