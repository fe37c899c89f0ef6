//! The admin listener: health, status and metrics, for operators and their machines.
//!
//! Runs on the control runtime. Nothing here takes a body; heads, connections and times are limited.

mod health;
mod problem;
mod status;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::app::Engine;
use crate::export::prometheus;

/// Connections at a time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// Bytes of a request's head.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// For a request's head to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// For an answer to be made.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest a connection is kept, used or not.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);
/// Before accepting again after an accept failed, as it does when descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until the runtime ends.
pub(crate) async fn serve(listener: TcpListener, engine: Arc<Engine>) {
    let router = router(engine);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((tcp, _)) => {
                let serving = connection(tcp, router.clone());
                tokio::spawn(async move {
                    serving.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the admin listener could not accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn connection(tcp: TcpStream, router: Router) -> impl Future<Output = ()> + Send {
    let service = TowerToHyperService::new(router);
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(tcp), service);
    async move {
        match tokio::time::timeout(CONNECTION_TIMEOUT, serving).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(error)) => tracing::debug!(%error, "an admin connection ended"),
        }
    }
}

fn router(engine: Arc<Engine>) -> Router<()> {
    Router::new()
        .route("/livez", get(health::live))
        .route("/healthz", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/startupz", get(health::started))
        .route("/metrics", get(metrics))
        .route("/v1/status", get(status::status))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .with_state(engine)
        .layer(middleware::from_fn(limits))
}

/// What holds for every answer.
async fn limits(request: Request, next: Next) -> Response {
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, next.run(request)).await;
    let mut response = answer.unwrap_or_else(|_| {
        problem::problem(StatusCode::GATEWAY_TIMEOUT, "timeout", "The answer took too long").into_response()
    });
    // A health answer out of a cache would be worse than none.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn metrics(State(engine): State<Arc<Engine>>) -> Response {
    let text = prometheus::render(&engine.telemetry, &engine.snapshot(), engine.shared.connections());
    ([(CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response()
}

#[cfg(test)]
mod tests;
