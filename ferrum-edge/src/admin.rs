//! The admin listener: health, status and metrics, and in database mode the API that changes the configuration.
//!
//! Runs on the control runtime. Heads, bodies, connections and times are limited.

mod acme;
mod actions;
mod attempt;
mod audit;
mod bulk;
pub(crate) mod catalogue;
mod changes;
#[cfg(feature = "console")]
mod console;
mod counters;
mod door;
#[cfg(feature = "fleet")]
mod edges_lacking;
mod effective;
mod endpoint;
mod endpoints;
mod explain;
pub(crate) mod field_changes;
mod file_objects;
#[cfg(feature = "fleet")]
mod fleet;
mod health;
mod history;
mod json;
mod listener;
mod openapi;
mod pages;
#[cfg(feature = "console")]
mod passkey_enrolment;
mod peer;
mod problem;
mod query;
mod recent_records;
mod records;
mod request;
mod resources;
#[cfg(feature = "console")]
mod second_factor;
mod sessions;
mod settings;
mod site;
mod status;
mod steady;
mod targets;
mod timestamp;
#[cfg(feature = "console")]
mod totp_enrolment;
mod traffic;
mod usage;
#[cfg(feature = "console")]
mod user_document;
#[cfg(feature = "console")]
mod users;
mod workspace_grants;
mod workspace_references;
mod workspaces;
mod writing;

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef, Request, State};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use gateway_core::plugin::Entry;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;

use crate::access::environment::access_given;
pub use crate::access::{Access, AccessError, Role};
use crate::engine::Engine;
use crate::export::page_format::PageFormat;
use crate::source::database::Reconciler;
#[cfg(feature = "console")]
pub(crate) use console::Console;
use door::{AdminSession, Door};
use endpoint::Gate;
use listener::Accepted;
pub(crate) use listener::Listener;
pub(crate) use pages::Pages;
use request::RoleGate;
use steady::{SteadyBody, SteadyConnection};

/// Bytes of a request's head.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// For a request's head to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// For an answer to be made.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// For a change to be read, checked, written and served.
const WRITE_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes of a request's body: a batch of about 100,000 proxies.
const MAX_BODY_BYTES: usize = 128 << 20;
/// The longest a connection is kept, used or not.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);
/// Before accepting again after an accept failed, as it does when descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the admin listener serves.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) engine: Arc<Engine>,
    /// In database mode.
    pub(crate) reconciler: Option<Arc<Reconciler>>,
    /// The callers that may use it if neither a database nor the environment sets them.
    pub(crate) given_access: Option<Arc<Access>>,
    /// In a fleet.
    #[cfg(feature = "fleet")]
    pub(crate) fleet: Option<crate::fleet::FleetRole>,
    /// In the order in which requests meet them.
    pub(crate) plugins: Arc<[Entry]>,
    /// Of metrics.
    pub(crate) pages: Arc<Pages>,
    /// Sessions of browsers.
    #[cfg(feature = "console")]
    pub(crate) console: Arc<Console>,
}

impl Admin {
    /// The tokens and roles that open this gateway's admin API.
    ///
    /// # Errors
    /// Why the gateway refuses every caller, as the caller is told.
    fn access(&self) -> Result<Cow<'_, Access>, &'static str> {
        if let Some(reconciler) = &self.reconciler {
            return Ok(Cow::Borrowed(reconciler.access()));
        }
        match access_given() {
            Ok(access) if access.is_empty() => self
                .given_access
                .as_deref()
                .map(Cow::Borrowed)
                .ok_or("No token is set; start the gateway with FERRUM_ADMIN_TOKEN and send that"),
            Ok(access) => Ok(Cow::Owned(access)),
            Err(_) => Err("The gateway's tokens can't be read; see FERRUM_ADMIN_TOKEN"),
        }
    }
}

impl FromRef<Admin> for Arc<Engine> {
    fn from_ref(admin: &Admin) -> Self {
        admin.engine.clone()
    }
}

/// Serves until the runtime ends.
pub(crate) async fn serve(listener: Arc<Listener>, admin: Admin) -> Result<(), Infallible> {
    let service = AdminService { router: TowerToHyperService::new(router(admin.clone())), admin };
    let door = Door::new();
    loop {
        match door.accept(&listener).await {
            Ok(accepted) => drop(tokio::spawn(connection(accepted, service.clone(), door.enter()))),
            Err(error) => {
                tracing::warn!(%error, "the admin listener could not accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// What answers requests.
#[derive(Clone)]
struct AdminService {
    router: TowerToHyperService<Router>,
    #[cfg_attr(not(feature = "console"), expect(dead_code, reason = "for sessions of browsers"))]
    admin: Admin,
}

impl AdminService {
    #[cfg_attr(not(feature = "console"), expect(unused_variables, reason = "for sessions of browsers"))]
    async fn call(&self, request: Request<Incoming>, is_encrypted: bool) -> Result<Response, Infallible> {
        #[cfg(feature = "console")]
        let request = match self.admin.console.admit(&self.admin, request, is_encrypted).await {
            Ok(request) => request,
            Err(refused) => return Ok(*refused),
        };
        self.router.call(request).await
    }
}

async fn connection(accepted: Accepted, service: AdminService, visit: AdminSession) {
    let visit = &visit;
    let is_encrypted = accepted.is_encrypted();
    let shaking = tokio::time::timeout(HEAD_TIMEOUT, accepted.ready());
    let (stream, peer) = match visit.during(shaking).await {
        Some(Ok(Ok((stream, peer)))) => (stream, Arc::new(peer)),
        Some(Ok(Err(error))) => return tracing::debug!(%error, "a TLS handshake of the admin API failed"),
        Some(Err(_)) | None => return,
    };
    let service = service_fn(|mut request: Request<Incoming>| {
        let service = service.clone();
        request.extensions_mut().insert(peer.clone());
        async move {
            let Some(_served) = visit.serve(request.uri().path()).await else {
                return Ok(problem::crowded());
            };
            service.call(request, is_encrypted).await
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(SteadyConnection::new(stream)), service);
    match visit.during(tokio::time::timeout(CONNECTION_TIMEOUT, serving)).await {
        None => tracing::debug!("an admin connection was closed for a new one"),
        Some(Ok(Err(error))) => tracing::debug!(%error, "an admin connection ended"),
        Some(Ok(Ok(())) | Err(_)) => {}
    }
}

fn router(admin: Admin) -> Router<()> {
    let routes = endpoints::all().into_iter();
    let router = routes.fold(Router::new(), |router, endpoint| {
        let route = handler(&endpoint);
        let narrowed = endpoint.narrowed;
        let gate = |role| RoleGate { admin: admin.clone(), role, narrowed };
        let of_running = |role| middleware::from_fn_with_state(gate(role), request::gate_of_running);
        let route = match endpoint.gate {
            Gate::Health => route,
            Gate::Open if !admin.engine.snapshot().settings.admin_require_token => route,
            Gate::Open => route.route_layer(of_running(Role::Read)),
            Gate::Running(role) => route.route_layer(of_running(role)),
            Gate::Stored(role) => {
                let route = route.route_layer(middleware::from_fn_with_state(gate(role), request::gate));
                route.route_layer(middleware::from_fn_with_state(gate(role), file_objects::gate))
            }
        };
        router.route(endpoint.path, route)
    });
    #[cfg(feature = "console")]
    let router = router.merge(console::routes());
    router
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(middleware::from_fn_with_state(admin.clone(), site::guard))
        .with_state(admin)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn(limits))
}

/// What answers, with nothing sent where nothing is taken. A body of a question is left unread.
fn handler(endpoint: &endpoint::Endpoint) -> MethodRouter<Admin> {
    let route = (endpoint.route)();
    match endpoint.body.is_none() && !endpoint.method.is_safe() {
        true => route.route_layer(middleware::from_fn(request::without_body)),
        false => route,
    }
}

/// What holds for every answer.
async fn limits(request: Request<axum::body::Body>, next: Next) -> Response {
    let is_read = request.method().is_safe();
    let request = request.map(|body| axum::body::Body::new(SteadyBody::new(body)));
    let answer =
        tokio::time::timeout(if is_read { ANSWER_TIMEOUT } else { WRITE_TIMEOUT }, next.run(request));
    let mut response = answer.await.unwrap_or_else(|_| {
        problem::problem(StatusCode::GATEWAY_TIMEOUT, "timeout", "The answer took too long").into_response()
    });
    if response.status().is_client_error() && is_text(&response) {
        response = retold(response).await;
    }
    // A health answer out of a cache would be worse than none.
    response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn is_text(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/plain"))
}

/// What the server's library refuses, such as a body that is too large, as an error document like all others.
async fn retold(response: Response) -> Response {
    let status = response.status();
    let code = if status == StatusCode::PAYLOAD_TOO_LARGE { "too_large" } else { "bad_request" };
    let said = axum::body::to_bytes(response.into_body(), MAX_HEAD_BYTES).await.unwrap_or_default();
    problem::problem(status, code, &String::from_utf8_lossy(&said))
}

async fn metrics(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let engine = &admin.engine;
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = PageFormat::preferred(accept);
    let page = admin.pages.of(format, || format.page(|visitor| engine.visit_continued_metrics(visitor)));
    match page.await {
        Some(page) => ([(CONTENT_TYPE, format.content_type())], page.into_body()).into_response(),
        None => problem::crowded().into_response(),
    }
}

#[cfg(test)]
mod tests;
