//! Gateways that count together in `gateway.redis`: within the stated bound with leases, and without losing a request while Redis
//! is away, frozen, or somewhere else.

use std::time::{Duration, Instant};

use http::Method;

use crate::support::edge::Edge;
use crate::support::redis::Redis;
use crate::support::standing::Standing;
use crate::support::talk::{Ask, Client, Will, WireProtocol};

fn spec(origin: &Standing, config: &str) -> String {
    format!(
        "proxies:\n  - {{id: a, listen_path: /, {}, plugins: [{{plugin_config_id: p}}]}}\n\
         plugin_configs:\n  - {{id: p, plugin_name: rate_limiting, scope: proxy_group, config: {{limit_by: 'header:x-who', {config}}}}}\n",
        origin.backend()
    )
}

async fn status(edge: &Edge, kind: WireProtocol, who: &str) -> u16 {
    let headers = [("x-who", who)];
    let ask = Ask { method: Method::GET, path: "/", headers: &headers, body: Will::Nothing };
    Client::ask(edge, kind, ask).await.head().await.expect("an answer").status
}

/// Requests that were counted in this way.
fn count(edge: &Edge, outcome: &str) -> u32 {
    let page = edge.meters();
    let outcome = format!("outcome=\"{outcome}\"");
    let line = page
        .lines()
        .find(|line| line.starts_with("ferrum_rate_limiting_shared_total") && line.contains(&outcome));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn gateways_with_leases_stay_within_the_limit_and_mostly_do_not_ask() {
    let redis = Redis::start();
    let origin = Standing::start("o").await;
    // A burst of 40 that does not come back while the test runs.
    let config = "limits: [{rate: 40, per: 3650d}], lease: {size: 8, lifetime: 60s}, redis: {name: main, on_error: deny}";
    let spec = spec(&origin, config);
    let edges = [(); 2].map(|()| Edge::start_with(&redis.settings("10s"), &spec));
    let mut passed = [0_u32; 2];
    for n in 0..100 {
        passed[n % 2] += u32::from(status(&edges[n % 2], WireProtocol::H2, "ann").await == 200);
    }
    assert_eq!(passed.iter().sum::<u32>(), 40, "leases are taken from the limit before they are used");
    assert!(passed.iter().all(|passed| *passed == 16 || *passed == 24), "in eights: {passed:?}");
    assert!(count(&edges[0], "leased") > 40);
    assert!(count(&edges[0], "shared") < 10);
}

/// What an explanation says of the limit: outcome, and why.
async fn verdict(edge: &mut Edge, who: &str) -> (String, String) {
    let body = format!(r#"{{"url": "http://a.test/", "headers": [["x-who", "{who}"]]}}"#);
    let document = edge.explain(&body).await;
    let verdict = &document["proxy"]["plugins"][0]["verdict"];
    let text = |key: &str| verdict[key].as_str().unwrap_or_default().to_owned();
    (text("outcome"), text("why"))
}

/// `explain` reads what all gateways together have counted, and takes nothing.
#[tokio::test]
async fn explain_reads_the_shared_counters() {
    let redis = Redis::start();
    let origin = Standing::start("o").await;
    let config = "limits: [{name: daily, rate: 3, per: 3650d}], redis: {name: main, on_error: deny}";
    let mut edges = [(); 2].map(|()| Edge::start_with(&redis.settings("10s"), &spec(&origin, config)));
    for edge in &edges {
        assert_eq!(status(edge, WireProtocol::H1, "ann").await, 200);
    }
    for _ in 0..5 {
        let (outcome, why) = verdict(&mut edges[0], "ann").await;
        assert_eq!((&*outcome, &*why), ("passes", "`daily` has 1 of 3 left in Redis"));
    }
    assert_eq!(status(&edges[1], WireProtocol::H1, "ann").await, 200);
    let (outcome, why) = verdict(&mut edges[0], "ann").await;
    assert!(outcome == "refuses" && why.contains("the limit `daily` of 3 has no room in Redis"), "{why}");
    assert_eq!(verdict(&mut edges[0], "bob").await.1, "`daily` has 3 of 3 left in Redis");
    drop(redis);
    while !verdict(&mut edges[0], "ann").await.1.contains("`on_error: deny` refuses requests") {}
    let quota = "limits: [{limit: 2, per: 1d}], redis: {name: main, on_error: allow}";
    let redis = Redis::start();
    let spec = spec(&origin, quota).replace("rate_limiting", "quota");
    let mut edge = Edge::start_with(&redis.settings("10s"), &spec);
    assert!(verdict(&mut edge, "ann").await.1.contains("has 2 left"));
    assert_eq!(status(&edge, WireProtocol::H1, "ann").await, 200);
    assert!(verdict(&mut edge, "ann").await.1.contains("has 1 left"));
    assert!(verdict(&mut edge, "ann").await.1.contains("has 1 left"), "the question counts nothing");
}

const DENY: &str = "limits: [{rate: 1000, per: 1h}], redis: {name: main, on_error: deny}";

#[tokio::test]
async fn the_first_request_finds_the_connection() {
    let redis = Redis::start();
    let origin = Standing::start("o").await;
    for n in 0..8 {
        let edge = Edge::start_with(&redis.settings("10s"), &spec(&origin, DENY));
        assert_eq!(status(&edge, WireProtocol::H1, "ann").await, 200, "{n}");
        assert_eq!(count(&edge, "shared"), 1, "{n}");
    }
}

#[tokio::test]
async fn a_reload_connects_to_another_redis_before_it_is_asked() {
    let servers = [Redis::start(), Redis::start()];
    let origin = Standing::start("o").await;
    let mut edge = Edge::start_with(&servers[0].settings("10s"), &spec(&origin, DENY));
    let places = servers.each_ref().map(|server| format!("127.0.0.1:{}", server.port));
    for n in 0..8 {
        let (from, to) = (&places[n % 2], &places[(n + 1) % 2]);
        // Other settings of the plugin as well, so that another one holds the connection.
        let other = DENY.replace("1000", &(1001 + n / 2).to_string());
        edge.reload_with(from, to, &spec(&origin, &other));
        assert_eq!(status(&edge, WireProtocol::H1, "ann").await, 200, "{n}");
    }
    assert_eq!(count(&edge, "shared"), 8);
}

#[tokio::test]
async fn a_redis_that_is_away_does_not_keep_the_gateway_from_starting() {
    let redis = Redis::start();
    let origin = Standing::start("o").await;
    redis.freeze(true);
    let settings = redis.settings("10s, connect_timeout: 300ms");
    let since = Instant::now();
    let edge = Edge::start_with(&settings, &spec(&origin, DENY));
    assert!(since.elapsed() >= Duration::from_millis(300), "its time was waited for");
    assert_eq!(status(&edge, WireProtocol::H1, "ann").await, 503);
    redis.freeze(false);
    while status(&edge, WireProtocol::H1, "ann").await == 503 {}
}

#[tokio::test]
async fn no_request_is_lost_while_redis_is_away() {
    let origin = Standing::start("o").await;
    for (on_error, without) in [("allow", 200), ("local", 200), ("deny", 503)] {
        let redis = Redis::start();
        let config =
            format!("limits: [{{rate: 1000, per: 1h}}], redis: {{name: main, on_error: {on_error}}}");
        let edge = Edge::start_with(&redis.settings("10s"), &spec(&origin, &config));
        while count(&edge, "shared") == 0 {
            status(&edge, WireProtocol::H1, "ann").await;
        }
        let port = redis.port;
        drop(redis);
        for n in 0..20 {
            let kind = [WireProtocol::H1, WireProtocol::H2, WireProtocol::H2Tls][n % 3];
            assert_eq!(status(&edge, kind, "ann").await, without, "{on_error} {n}");
        }
        let outcome = if on_error == "allow" {
            "allowed"
        } else if on_error == "deny" {
            "denied"
        } else {
            "local"
        };
        assert!(count(&edge, outcome) >= 20, "{on_error}");
        let before = count(&edge, "shared");
        let _again = Redis::start_at(port);
        while count(&edge, "shared") == before {
            status(&edge, WireProtocol::H1, "ann").await;
        }
    }
}

#[tokio::test]
async fn a_frozen_redis_costs_no_more_than_the_time_for_it() {
    let redis = Redis::start();
    let origin = Standing::start("o").await;
    let config = "limits: [{rate: 1000, per: 1h}], redis: {name: main, on_error: local}";
    let spec = format!(
        "{}  - {{id: q, plugin_name: quota, scope: proxy_group, config: {{limits: [{{limit: 9, per: day}}], redis: {{name: main}}}}}}\n",
        spec(&origin, config).replacen(
            "proxies:\n",
            &format!("proxies:\n  - {{id: b, listen_path: /open, {}}}\n", origin.backend()),
            1
        )
    );
    let edge = Edge::start_with(&redis.settings("50ms"), &spec);
    redis.freeze(true);
    let since = Instant::now();
    for _ in 0..40 {
        assert_eq!(status(&edge, WireProtocol::H1, "ann").await, 200);
    }
    // Five wait for 50 ms each, in every second.
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    let ask = Ask { method: Method::GET, path: "/open", headers: &[], body: Will::Nothing };
    assert_eq!(
        Client::ask(&edge, WireProtocol::H1, ask).await.head().await.unwrap().status,
        200,
        "others are unharmed"
    );
    redis.freeze(false);
}

#[tokio::test]
async fn a_connection_that_does_not_exist_is_refused() {
    let origin = Standing::start("o").await;
    let spec = spec(&origin, "limits: [{rate: 1}], redis: {name: mian}");
    let redis = Redis::start();
    let text = format!("gateway:\n{}\n{spec}", redis.settings("1s"));
    let loaded = ferrum_edge::source::file::parse(&text, "f", &ferrum_edge::plugins());
    let problems = loaded.expect_err("it names what there is not").to_string();
    assert!(
        problems.contains("plugin_configs[0].config.redis.name: there is no connection `mian`"),
        "{problems}"
    );
    assert!(problems.contains("did you mean `main`?"), "{problems}");
}
