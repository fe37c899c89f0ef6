//! The gateway inside another program, with a plugin of that program's own.

use std::sync::Arc;

use ferrum_edge::core::config::problem::Problems;
use ferrum_edge::core::http::body::Body;
use ferrum_edge::core::http::exchange::Exchange;
use ferrum_edge::core::plugin::{Hooks, OnResponse, Plugin, Seat, Step, World, entry};
use http::{HeaderValue, Response};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::support::edge::Edge;

/// Says a word to every client.
struct Greeter(HeaderValue);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The word.
    word: String,
}

impl Plugin for Greeter {
    const NAME: &'static str = "greeter";
    const SUMMARY: &'static str = "Says a word to every client.";
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let word = HeaderValue::try_from(config.word);
        word.map(Self).map_err(|_| Problems::one("config.word", "can't be sent in a header"))
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_response(self);
    }
}

impl OnResponse for Greeter {
    fn on_response<'a>(
        &'a self,
        _exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        _seat: Seat<'a>,
    ) -> Step<'a> {
        response.headers_mut().insert("x-greeting", self.0.clone());
        Step::Next
    }
}

const SPEC: &str = "proxies:\n  - {id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 1}\n\
    plugin_configs:\n  - {id: greet, plugin_name: greeter, scope: global, config: {word: hello}}\n";

#[tokio::test]
async fn a_plugin_of_the_hosts_own_is_seen_by_clients() {
    let mut registry = ferrum_edge::plugins();
    registry.add(entry::<Greeter>());
    let edge = Edge::start_plugged(registry, "", SPEC);
    // The target is not there; a refusal passes the plugin too.
    let (head, _) = edge.get("/").await;
    assert_eq!((head.status(), head.field("x-greeting")), (502, "hello"));
}

#[test]
fn its_settings_are_checked_like_any_others() {
    let mut registry = ferrum_edge::plugins();
    registry.add(entry::<Greeter>());
    for (bad, says) in [("{wrod: hello}", "wrod"), ("{word: \"a\\nb\"}", "header")] {
        let spec = SPEC.replace("{word: hello}", bad);
        let problems = ferrum_edge::source::file::parse(&spec, "test", &registry).expect_err("refused");
        assert!(problems.to_string().contains(says), "{problems}");
    }
    let unknown =
        ferrum_edge::source::file::parse(SPEC, "test", &ferrum_edge::plugins()).expect_err("unknown");
    assert!(unknown.to_string().contains("greeter"), "{unknown}");
}

#[tokio::test]
async fn two_gateways_hold_bodies_below_ceilings_of_their_own() {
    const READS: &str = "proxies:\n  - {id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 1, \
        plugins: [{plugin_config_id: v}]}\n\
        plugin_configs:\n  - {id: v, plugin_name: request_validation, scope: proxy, proxy_id: a, \
        config: {body_schema: {type: object}}}\n";
    const POST: &str = "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-type: application/json\r\n\
        transfer-encoding: chunked\r\n\r\n7\r\n{\"a\":1}\r\n0\r\n\r\n";
    let large = Edge::start(READS);
    // The ceiling of the last one to start must not hold for the other.
    let small = Edge::start_with("  limits: {max_collected_body: 4}", READS);
    let (refused, _) = small.ask(POST).await;
    let (passed, _) = large.ask(POST).await;
    assert_eq!((refused.status(), passed.status()), (503, 502));
}
