//! What a plugin may reach, through a running gateway: calls to URLs and upstreams, tasks, replies that stream, bodies
//! that are refused, panics; over every kind of client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferrum_edge::core::config::problem::Problems;
use ferrum_edge::core::http::body::{Body, BodyError};
use ferrum_edge::core::http::exchange::Exchange;
use ferrum_edge::core::http::reply::{Cause, Reply};
use ferrum_edge::core::plugin::world::calls::{Client as Caller, Endpoint, Server};
use ferrum_edge::core::plugin::{
    Hooks, OnRequest, Plugin, Registry, Seat, Starter, Step, Verdict, World, entry,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::watch;

use crate::support::edge::Edge;
use crate::support::soon;
use crate::support::standing::Standing;
use crate::support::talk::{Ask, Client, Will, WireProtocol};

/// Does what the request's `x-do` says.
struct Probe {
    client: Caller,
    ticks: Option<watch::Sender<u64>>,
    built: Arc<AtomicU64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Where to call, as a URL.
    url: Option<String>,
    /// Where to call, as an upstream.
    upstream_id: Option<String>,
    /// Has a task; of one test only, which counts its runs.
    #[serde(default)]
    ticks: bool,
}

/// How often the task ran, and its end as the greatest number.
static TICKS: std::sync::LazyLock<watch::Sender<u64>> = std::sync::LazyLock::new(|| watch::Sender::new(0));

impl Plugin for Probe {
    const NAME: &'static str = "probe";
    const SUMMARY: &'static str = "Does what a request says.";
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let endpoint = match (config.url, config.upstream_id) {
            (Some(url), _) => Endpoint::of_url(&url).map_err(|error| Problems::one("config.url", error))?.0,
            (None, Some(id)) => Endpoint::new(Server::Upstream(id.into()), false),
            (None, None) => return Err(Problems::one("config", "no server")),
        };
        let built = world.kept("built", AtomicU64::default);
        built.fetch_add(1, Ordering::Relaxed);
        let ticks = config.ticks.then(|| TICKS.clone());
        Ok(Self { client: world.client(endpoint)?, ticks, built })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        let Some(ticks) = self.ticks.clone() else { return };
        let client = self.client.clone();
        starter.task("tick", move |mut control| {
            let (client, ticks) = (client.clone(), ticks.clone());
            async move {
                let request = Request::get("/from-task").body(Body::empty()).map_err(|e| e.to_string())?;
                client.fetch(request).await.map_err(|error| error.to_string())?;
                ticks.send_modify(|count| *count += 1);
                control.ended().await;
                ticks.send_replace(u64::MAX);
                Ok(())
            }
        });
    }
}

impl OnRequest for Probe {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        let headers = &mut exchange.request.headers;
        match headers.get("x-do").and_then(|word| word.to_str().ok()).unwrap_or_default() {
            "call" => Step::wait(async {
                let request = Request::get("/called").body(Body::empty()).unwrap_or_default();
                match self.client.fetch(request).await {
                    Ok(answer) => {
                        let length = HeaderValue::from(answer.body().len());
                        exchange.request.headers.insert("x-called", length);
                        Verdict::Next
                    }
                    Err(error) => Verdict::reply(Reply::new(error.cause).reason("call_failed")),
                }
            }),
            "stream" => {
                let trailers = HeaderMap::from_iter([(
                    http::HeaderName::from_static("x-end"),
                    HeaderValue::from_static("1"),
                )]);
                let body = Body::full_with_trailers("streamed", trailers);
                Step::reply(Reply::response(Response::new(body)))
            }
            "refuse body" => {
                let body = std::mem::take(&mut exchange.body);
                exchange.body = body.map(|_| {
                    Err(BodyError::Refused(Box::new(Reply::new(Cause::Forbidden).reason("bad_body"))))
                });
                Step::Next
            }
            "panic" => panic!("a defect of the plugin"),
            "built" => {
                let built = self.built.load(Ordering::Relaxed);
                Step::reply(Reply::fixed(http::StatusCode::OK, built.to_string()))
            }
            _ => Step::Next,
        }
    }
}

fn plugins() -> Registry {
    let mut registry = ferrum_edge::plugins();
    registry.add(entry::<Probe>());
    registry
}

fn spec(origin: &Standing, config: &str) -> String {
    format!(
        "proxies:\n  - {{id: a, listen_path: /, {}}}\n\
         upstreams: [{{id: u, targets: [{{host: 127.0.0.1, port: {}}}]}}]\n\
         plugin_configs:\n  - {{id: p, plugin_name: probe, proxy_id: a, config: {config}}}\n",
        origin.backend(),
        origin.address.port()
    )
}

/// One request that says what to do; the answer's status, body and trailers.
async fn asked(edge: &Edge, kind: WireProtocol, what: &str, body: &[u8]) -> (u16, String, HeaderMap) {
    let will = if body.is_empty() { Will::Nothing } else { Will::Stream };
    let method = if body.is_empty() { Method::GET } else { Method::POST };
    let ask = Ask { method, path: "/", headers: &[("x-do", what)], body: will };
    let mut client = Client::ask(edge, kind, ask).await;
    if !body.is_empty() {
        // A gateway that refuses may have closed before all was sent.
        drop(client.send(body).await);
        drop(client.finish(&[]).await);
    }
    let head = client.head().await.expect("an answer");
    let text = String::from_utf8_lossy(&client.body().await.unwrap_or_default()).into_owned();
    (head.status, text, client.trailers().await.unwrap_or_default())
}

const KINDS: [WireProtocol; 4] =
    [WireProtocol::H1, WireProtocol::H1Tls, WireProtocol::H2, WireProtocol::H2Tls];

#[tokio::test]
async fn a_hook_calls_a_url_or_an_upstream() {
    let origin = Standing::start("o").await;
    let url = format!("{{url: 'http://{}/'}}", origin.address);
    for config in [&url, "{upstream_id: u}"] {
        let mut edge = Edge::start_plugged(plugins(), "", &spec(&origin, config));
        for kind in KINDS {
            let (status, body, _) = asked(&edge, kind, "call", b"").await;
            assert_eq!(status, 200, "{kind:?} {config}: {body}");
            assert!(body.contains("x-called: "), "the target is told what the call brought: {body}");
            assert_eq!(edge.only_record().await.status(), 200);
        }
    }
}

#[tokio::test]
async fn a_call_that_fails_is_the_plugins_to_answer() {
    let origin = Standing::start("o").await;
    for config in ["{upstream_id: nobody}", "{url: 'http://127.0.0.1:1/'}"] {
        let mut edge = Edge::start_plugged(plugins(), "", &spec(&origin, config));
        let (status, ..) = asked(&edge, WireProtocol::H1, "call", b"").await;
        assert!(status == 502 || status == 503, "{status} {config}");
        assert_eq!(edge.only_record().await.reason(), "call_failed");
    }
}

#[tokio::test]
async fn replies_stream_and_bodies_are_refused_and_panics_cost_one_exchange() {
    let origin = Standing::start("o").await;
    let config = format!("{{url: 'http://{}/'}}", origin.address);
    let mut edge = Edge::start_plugged(plugins(), "", &spec(&origin, &config));
    for kind in KINDS {
        let (status, body, trailers) = asked(&edge, kind, "stream", b"").await;
        assert_eq!((status, body.as_str()), (200, "streamed"), "{kind:?}");
        assert_eq!(trailers.get("x-end").map(HeaderValue::as_bytes), Some(&b"1"[..]), "{kind:?}");
        let record = edge.only_record().await;
        assert_eq!((record.status(), record.reason()), (200, ""), "an answer on purpose is no error");
        let (status, ..) = asked(&edge, kind, "refuse body", b"some bytes").await;
        assert_eq!(status, 403, "{kind:?}");
        assert_eq!(edge.only_record().await.reason(), "bad_body");
        let (status, ..) = asked(&edge, kind, "panic", b"").await;
        assert_eq!(status, 500, "{kind:?}");
        assert_eq!(edge.only_record().await.reason(), "internal");
    }
}

#[tokio::test]
async fn tasks_begin_after_the_swap_and_end_with_the_plugin_and_state_outlives_settings() {
    let origin = Standing::start("o").await;
    let config = format!("{{url: 'http://{}/', ticks: true}}", origin.address);
    let mut ticks = TICKS.subscribe();
    let edge = Edge::start_plugged(plugins(), "", &spec(&origin, &config));
    soon(ticks.wait_for(|count| *count > 0)).await.expect("the task ran");
    let before: u64 = asked(&edge, WireProtocol::H1, "built", b"").await.1.parse().expect("a number");
    edge.reload(&spec(&origin, "{upstream_id: u}"));
    soon(ticks.wait_for(|count| *count == u64::MAX)).await.expect("the old plugin's task ended");
    let after: u64 = asked(&edge, WireProtocol::H1, "built", b"").await.1.parse().expect("a number");
    assert!(after > before, "{after} {before}: what was kept goes on counting");
}
