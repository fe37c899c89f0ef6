//! What passes, what clients are told, and that each option does something.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use gateway_core::http::exchange::Client;
use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use serde_json::{Value, json};

use super::*;

const A_PROXY: CountedProxy<'_> = CountedProxy { id: "a", owner: None };

/// What is counted is kept by plugin config: each trial has one of its own.
fn trial(config: Value) -> Trial {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let id = format!("limits-{}", NEXT.fetch_add(1, Relaxed));
    Trial::of_spec(&[entry::<RateLimiting>()], &spec(&id, &config), &World::default())
}

/// So slow that nothing comes back while a test runs.
fn slow(burst: u64) -> Value {
    json!([{ "rate": 1, "per": "1d", "burst": burst }])
}

async fn statuses(trial: &Trial, requests: &[&[(&str, &str)]]) -> Vec<u16> {
    let mut got = Vec::new();
    for fields in requests {
        got.push(trial.get("/", fields).await.status);
    }
    got
}

#[tokio::test(start_paused = true)]
async fn a_burst_passes_then_the_rate() {
    let trial = trial(json!({ "limits": [{ "rate": 10, "per": "1s", "burst": 2 }] }));
    assert_eq!(statuses(&trial, &[&[], &[], &[]]).await, [200, 200, 429]);
    tokio::time::advance(std::time::Duration::from_millis(100)).await;
    assert_eq!(statuses(&trial, &[&[], &[]]).await, [200, 429]);
    assert_eq!(trial.asked().len(), 3, "what is limited does not reach the target");
    let record = &trial.records()[2];
    assert_eq!((record.reason, record.is_error), (Some("rate_limited"), true));
}

#[tokio::test(start_paused = true)]
async fn every_limit_must_have_room_and_a_refusal_takes_from_none() {
    let trial = trial(json!({ "limits": [
        { "rate": 1, "per": "1s", "burst": 2, "name": "fast" },
        { "rate": 3, "per": "1h", "name": "slow" },
    ] }));
    assert_eq!(statuses(&trial, &[&[], &[], &[], &[]]).await, [200, 200, 429, 429]);
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    assert_eq!(statuses(&trial, &[&[], &[]]).await, [200, 429]);
    // The fast limit has one left: the slow one refuses, also with what it says about coming back.
    let got = trial.get("/", &[]).await;
    assert_eq!((got.status, got.field("retry-after")), (429, "1198"));
    assert_eq!(got.field("ratelimit"), "\"slow\";r=0;t=3598");
}

#[tokio::test(start_paused = true)]
async fn clients_are_told() {
    let limits = json!([{ "rate": 10, "per": "1s", "burst": 20 }, { "rate": 100, "per": "1m", "name": "m" }]);
    let trial = trial(json!({ "limits": limits, "headers": "both" }));
    let got = trial.get("/", &[]).await;
    assert_eq!(got.field("ratelimit"), "\"10-per-1s\";r=19;t=1");
    assert_eq!(got.field("ratelimit-policy"), "\"10-per-1s\";q=20;w=2, \"m\";q=100;w=60");
    assert_eq!(got.field("x-ratelimit-limit"), "20");
    assert_eq!((got.field("x-ratelimit-remaining"), got.field("x-ratelimit-reset")), ("19", "1"));
    for (headers, draft, legacy) in
        [("ratelimit", true, false), ("x_ratelimit", false, true), ("none", false, false)]
    {
        let trial = self::trial(json!({ "limits": slow(1), "headers": headers }));
        let got = [trial.get("/", &[]).await, trial.get("/", &[]).await];
        for got in &got {
            assert_eq!(got.headers.contains_key("ratelimit"), draft, "{headers}");
            assert_eq!(got.headers.contains_key("x-ratelimit-limit"), legacy, "{headers}");
        }
        assert_eq!(got[1].field("retry-after"), "86400");
    }
}

#[tokio::test(start_paused = true)]
async fn of_several_limits_in_old_headers_the_tighter_one_is_told() {
    let config = |burst| json!({ "limits": slow(burst), "headers": "x_ratelimit" });
    for (first, second) in [(5, 9), (9, 5)] {
        let plugins = [("rate_limiting", config(first)), ("rate_limiting", config(second))];
        let trial = Trial::of_plugins(&[entry::<RateLimiting>()], &plugins);
        assert_eq!(trial.get("/", &[]).await.field("x-ratelimit-remaining"), "4");
    }
}

#[tokio::test]
async fn callers_have_limits_of_their_own() {
    let trial = trial(json!({ "limits": slow(1), "limit_by": ["header:x-tenant"], "on_missing": "allow" }));
    let (a, b): (&[_], &[_]) = (&[("x-tenant", "a")], &[("x-tenant", "b")]);
    assert_eq!(statuses(&trial, &[a, b, a, b, &[], &[]]).await, [200, 200, 429, 429, 200, 200]);
    let trial =
        self::trial(json!({ "limits": slow(1), "limit_by": "header:x-tenant", "on_missing": "deny" }));
    assert_eq!(statuses(&trial, &[a, &[]]).await, [200, 403]);
    let trial = self::trial(json!({ "limits": slow(1), "limit_by": "header:x-tenant" }));
    assert_eq!(statuses(&trial, &[a, &[], &[]]).await, [200, 200, 429]);
}

#[tokio::test]
async fn networks_share_limits_by_prefix() {
    let by_network = async |config: Value, first: &str, second: &str| {
        let trial = trial(config).from_client(first.parse().unwrap(), None);
        assert_eq!(trial.get("/", &[]).await.status, 200);
        trial.from_client(second.parse().unwrap(), None).get("/", &[]).await.status
    };
    let limits = slow(1);
    let v4 = json!({ "limits": limits, "ipv4_prefix": 24 });
    assert_eq!(by_network(v4.clone(), "192.0.2.1", "192.0.2.9").await, 429);
    assert_eq!(by_network(v4, "192.0.2.1", "192.0.3.1").await, 200);
    assert_eq!(by_network(json!({ "limits": limits }), "192.0.2.1", "192.0.2.9").await, 200);
    assert_eq!(by_network(json!({ "limits": limits }), "2001:db8::1", "2001:db8::2").await, 429);
    let v6 = json!({ "limits": limits, "ipv6_prefix": 128 });
    assert_eq!(by_network(v6, "2001:db8::1", "2001:db8::2").await, 200);
}

#[tokio::test]
async fn a_dry_run_limits_nothing_and_says_what_it_would() {
    let trial = trial(json!({ "limits": slow(1), "dry_run": true }));
    assert_eq!(statuses(&trial, &[&[], &[]]).await, [200, 200]);
    assert!(!trial.get("/", &[]).await.headers.contains_key("ratelimit"));
    let noted: Vec<bool> = trial.records().iter().map(|record| !record.fields.is_empty()).collect();
    assert_eq!(noted, [false, true, true]);
}

#[tokio::test]
async fn only_failures_count_where_asked() {
    let config = json!({ "limits": slow(2), "count": "failures", "failure_statuses": ["401", "5xx"] });
    let trial = trial(config).answering(|asked| {
        let status = asked.field("x-status").parse().unwrap_or(200);
        Response::builder().status(status).body("".into()).unwrap()
    });
    let status = |status| [("x-status", status)];
    let (ok, missing, denied, failed) = (status("200"), status("404"), status("401"), status("503"));
    let all: Vec<&[_]> = vec![&ok, &ok, &missing, &missing, &denied, &ok, &failed, &ok, &denied];
    assert_eq!(statuses(&trial, &all).await, [200, 200, 404, 404, 401, 200, 503, 429, 429]);
}

#[tokio::test]
async fn failures_of_grpc_count() {
    let config = json!({ "limits": slow(1), "count": "failures" });
    let trial = trial(config).answering(|_| {
        Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "16")
            .body("".into())
            .unwrap()
    });
    let fields: &[(&str, &str)] = &[("content-type", "application/grpc"), ("te", "trailers")];
    let first = trial.request("POST", "/s/m", fields, "").await;
    assert_eq!((first.status, first.field("grpc-status")), (200, "16"));
    let second = trial.request("POST", "/s/m", fields, "").await;
    assert_eq!((second.status, second.field("grpc-status")), (200, "8"), "RESOURCE_EXHAUSTED");
}

#[tokio::test]
async fn the_status_is_the_one_asked_for() {
    let trial = trial(json!({ "limits": slow(1), "status_code": 503 }));
    assert_eq!(statuses(&trial, &[&[], &[]]).await, [200, 503]);
}

fn spec(id: &str, config: &Value) -> String {
    json!({
        "gateway": { "redis": { "main": { "urls": ["redis://127.0.0.1:1"] } } },
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "target.test", "backend_port": 80,
            "backend_scheme": "http" }],
        "plugin_configs": [{ "id": id, "plugin_name": "rate_limiting", "config": config, "proxy_id": "a" }],
    })
    .to_string()
}

#[tokio::test]
async fn what_was_counted_survives_a_change_and_is_measured() {
    let world = World::default();
    let of =
        |config: Value| Trial::of_spec(&[entry::<RateLimiting>()], &spec("kept-limits", &config), &world);
    let before = of(json!({ "limits": slow(2) }));
    assert_eq!(statuses(&before, &[&[], &[]]).await, [200, 200]);
    let after = of(json!({ "limits": slow(2), "status_code": 503 }));
    assert_eq!(statuses(&after, &[&[]]).await, [503], "the change forgot what was counted");
    let changed = of(json!({ "limits": slow(3) }));
    assert_eq!(statuses(&changed, &[&[]]).await, [200], "another limit begins anew");
    let text = world.meters().text();
    let line = |outcome| format!("{{plugin_config=\"kept-limits\",outcome=\"{outcome}\"}}");
    assert!(text.contains(&format!("ferrum_rate_limiting_requests_total{} 3", line("accepted"))), "{text}");
    assert!(text.contains(&format!("ferrum_rate_limiting_requests_total{} 1", line("limited"))), "{text}");
    assert!(text.contains("ferrum_rate_limiting_evicted_total"), "{text}");
}

#[tokio::test]
async fn more_keys_than_places_are_counted_as_evicted() {
    let world = World::default();
    let config = json!({ "limits": slow(1), "limit_by": "header:x-key", "max_keys": 4 });
    let trial = Trial::of_spec(&[entry::<RateLimiting>()], &spec("few-places", &config), &world);
    for n in 0..9 {
        assert_eq!(trial.get("/", &[("x-key", &n.to_string())]).await.status, 200);
    }
    let text = world.meters().text();
    assert!(text.contains("ferrum_rate_limiting_evicted_total{plugin_config=\"few-places\"} 1\n"), "{text}");
}

#[test]
fn sessions_count_when_they_begin() {
    let build =
        |config| RateLimiting::build(serde_json::from_value(config).unwrap(), &World::default()).unwrap();
    let session = |address: [u8; 4]| {
        Session::new(Arc::new(Client::new((address, 1).into(), ([127, 0, 0, 1], 1).into(), false, None)))
    };
    let plugin = build(json!({ "limits": slow(2) }));
    let refused =
        |plugin: &RateLimiting, address| plugin.connect(&mut session(address), A_PROXY).map(|it| it.reason);
    assert_eq!([(); 3].map(|()| refused(&plugin, [192, 0, 2, 1])), [None, None, Some("rate_limited")]);
    assert_eq!(refused(&plugin, [192, 0, 2, 2]), None);
    let mut websocket = session([192, 0, 2, 1]);
    websocket.head = Some(Box::new(http::Request::new(()).into_parts().0));
    assert!(plugin.connect(&mut websocket, A_PROXY).is_none(), "it was counted as its request");
    let dry = build(json!({ "limits": slow(1), "dry_run": true }));
    let mut last = session([192, 0, 2, 1]);
    assert!(dry.connect(&mut session([192, 0, 2, 1]), A_PROXY).is_none());
    assert!(dry.connect(&mut last, A_PROXY).is_none());
    assert_eq!(last.fields.len(), 1);
    let by_header = build(json!({ "limits": slow(1), "limit_by": "header:a", "on_missing": "deny" }));
    assert_eq!(refused(&by_header, [192, 0, 2, 1]), Some("rate_limit_key_missing"));
}

#[test]
fn bad_settings_are_refused() {
    let limits = slow(1);
    for (config, path) in [
        (json!({}), "config.limits"),
        (json!({ "limits": [{ "rate": 0 }] }), "config.limits[0].rate"),
        (json!({ "limits": [{ "rate": 1, "burst": 0 }] }), "config.limits[0].burst"),
        (json!({ "limits": [{ "rate": 2_000_000 }] }), "config.limits[0]"),
        (json!({ "limits": [{ "rate": 1, "per": 0 }] }), "config.limits[0]"),
        (json!({ "limits": [{ "rate": 1, "name": "a\"b" }] }), "config.limits[0].name"),
        (json!({ "limits": [{ "rate": 1 }, { "rate": 1, "name": "other" }] }), "config.limits[1]"),
        (json!({ "limits": limits, "limit_by": "ip" }), "config.limit_by"),
        (json!({ "limits": limits, "ipv4_prefix": 33 }), "config.ipv4_prefix"),
        (
            json!({ "limits": limits, "count": "failures", "failure_statuses": ["6xx"] }),
            "config.failure_statuses[0]",
        ),
        (json!({ "limits": limits, "status_code": 200 }), "config.status_code"),
        (json!({ "limits": limits, "max_keys": 0 }), "config.max_keys"),
        (json!({ "limits": limits, "count": "some" }), "config.count"),
        (json!({ "limits": limits, "cost": 2 }), "config.cost"),
        (json!({ "limits": limits, "cost": 0 }), "config.cost"),
        (json!({ "limits": limits, "costs": [{ "when": {}, "cost": 2 }] }), "config.costs[0].cost"),
        (
            json!({ "limits": limits, "costs": [{ "when": { "path": "~(" }, "cost": 1 }] }),
            "config.costs[0].when.path",
        ),
        (json!({ "limits": limits, "cost_header": "a b" }), "config.cost_header"),
    ] {
        let problems = Trial::refused(&[entry::<RateLimiting>()], "rate_limiting", &config);
        assert_eq!(problems.0[0].path, path, "{config}: {problems}");
    }
}

#[tokio::test]
async fn requests_cost_what_is_configured() {
    let costs =
        json!([{ "when": { "path": "/search" }, "cost": 4 }, { "when": { "path": "/s" }, "cost": 3 }]);
    let trial = trial(json!({ "limits": slow(10), "cost": 2, "costs": costs }));
    let mut left = Vec::new();
    for path in ["/", "/search", "/s", "/", "/none"] {
        let got = trial.get(path, &[]).await;
        left.push((got.status, got.field("ratelimit").split(';').nth(1).unwrap().to_owned()));
    }
    let expected = [(200, "r=8"), (200, "r=4"), (200, "r=1"), (429, "r=1"), (429, "r=1")];
    assert_eq!(left, expected.map(|(status, left)| (status, left.to_owned())));
}

#[tokio::test]
async fn a_target_says_what_a_request_has_cost() {
    let config = json!({ "limits": slow(10), "cost_header": "X-Cost" });
    let said = |trial: Trial| {
        trial.answering(|asked| {
            Response::builder().header("x-cost", asked.field("x-say")).body("ok".into()).unwrap()
        })
    };
    let trial = said(trial(config.clone()));
    let mut left = Vec::new();
    for say in ["6", "0", "nonsense", "7", "1"] {
        let got = trial.get("/", &[("x-say", say)]).await;
        assert_eq!(got.headers.get("x-cost"), None, "clients don't get it");
        left.push((got.status, got.field("ratelimit").split(';').nth(1).unwrap().to_owned()));
    }
    let expected = [(200, "r=4"), (200, "r=3"), (200, "r=2"), (200, "r=0"), (429, "r=0")];
    assert_eq!(left, expected.map(|(status, left)| (status, left.to_owned())));
    let mut failures = config;
    failures["count"] = "failures".into();
    let trial = self::trial(failures)
        .answering(|_| Response::builder().status(500).header("x-cost", "5").body("no".into()).unwrap());
    assert_eq!(statuses(&trial, &[&[], &[], &[]]).await, [500, 500, 429]);
}

#[tokio::test]
async fn calls_of_grpc_count_by_their_method() {
    let trial = trial(json!({ "limits": slow(1), "limit_by": "grpc_method", "on_missing": "allow" }));
    let call = [("content-type", "application/grpc")];
    let mut got = Vec::new();
    for (path, fields) in
        [("/a.A/One", &call[..]), ("/a.A/Two", &call), ("/a.A/One", &call), ("/a.A/One", &[])]
    {
        got.push(trial.request("POST", path, fields, "").await.field("grpc-status").to_owned());
    }
    assert_eq!(got, ["", "", "8", ""]);
}

#[tokio::test]
async fn without_the_shared_store_it_goes_as_configured() {
    for (on_error, expected, outcome, counted) in [
        ("local", [200, 429], "local", 2),
        ("allow", [200, 200], "allowed", 2),
        ("deny", [503, 503], "denied", 2),
    ] {
        let world = World::default();
        let redis = json!({ "name": "main", "on_error": on_error });
        let config = json!({ "limits": slow(1), "redis": redis });
        let trial = Trial::of_spec(&[entry::<RateLimiting>()], &spec(on_error, &config), &world);
        assert_eq!(statuses(&trial, &[&[], &[]]).await, expected, "{on_error}");
        let outcome = format!("outcome=\"{outcome}\"");
        let name = "ferrum_rate_limiting_shared_total";
        assert_eq!(gateway_plugin_common::testing::metric(&world, name, &[&outcome]), counted);
        if on_error == "deny" {
            assert_eq!(trial.records()[0].reason, Some("rate_limit_store_away"));
        }
    }
    let bad = json!({ "limits": slow(1), "redis": {} });
    assert_eq!(Trial::refused(&[entry::<RateLimiting>()], "rate_limiting", &bad).0[0].path, "config.redis");
}

/// What would count nothing is refused.
#[test]
fn a_stream_that_nothing_counts_for_is_refused() {
    for (config, is_taken) in [
        (json!({}), true),
        (json!({ "count": "failures" }), false),
        (json!({ "limit_by": "header:x-a" }), true),
        (json!({ "limit_by": "header:x-a", "on_missing": "allow" }), false),
        (json!({ "limit_by": ["address", "consumer"], "on_missing": "allow" }), true),
    ] {
        let mut config = config;
        config["limits"] = slow(1);
        let spec = json!({
            "proxies": [{ "id": "a", "listen_port": 9999, "backend_scheme": "tcp", "backend_host": "t", "backend_port": 1 }],
            "plugin_configs": [{ "id": "l", "plugin_name": "rate_limiting", "proxy_id": "a", "config": config }],
        });
        let entries = [entry::<RateLimiting>()];
        let taken = Trial::try_of_spec(&entries, &spec.to_string(), &World::default());
        assert_eq!(taken.is_ok(), is_taken, "{config}");
    }
}

#[test]
fn costs_that_go_by_the_caller_need_to_know_it() {
    let spec = |before: Option<&str>| {
        let mut limit = json!({"id": "l", "plugin_name": "rate_limiting", "proxy_id": "a", "config": {
            "limits": slow(10), "costs": [{ "when": { "consumers": ["ann"] }, "cost": 5 }],
        }});
        if let Some(before) = before {
            limit["before"] = before.into();
        }
        json!({
            "proxies": [{ "id": "a", "listen_path": "/", "backend_scheme": "http", "backend_host": "t", "backend_port": 1 }],
            "plugin_configs": [{ "id": "k", "plugin_name": "key_auth", "proxy_id": "a" }, limit],
        })
        .to_string()
    };
    let closed = |before| {
        Trial::try_of_spec(crate::PLUGINS, &spec(before), &World::default())
            .map_or(true, |trial| !trial.closed().is_empty())
    };
    assert!(!closed(None));
    assert!(closed(Some("key_auth")));
}
