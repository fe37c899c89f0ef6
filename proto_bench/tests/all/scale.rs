//! `scale` against a small admin API with a small gateway, right ones and wrong ones.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use proto_bench::scale::{self, Options, ScaleError};
use serde_json::Value;

use crate::support::{answer, read_request, serve};

/// What a wrong gateway does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// Every 50th proxy forgets its plugins.
    FailsOpen,
    /// Now and then the neighbour's proxy answers.
    WrongProxy,
    /// Acknowledges and does nothing.
    Forgets,
    /// Refuses every batch.
    Refuses,
}

/// Path prefix to (backend path, consumer), and key to consumer.
#[derive(Debug, Default)]
struct Store {
    proxies: HashMap<String, (String, String)>,
    keys: HashMap<String, String>,
}

/// Where a fake gateway answers.
struct Fake {
    admin: SocketAddr,
    gateway: SocketAddr,
}

/// Starts both; returns their addresses.
fn fake(flaw: Flaw) -> Fake {
    let store = Arc::new(RwLock::new(Store::default()));
    let writing = Arc::clone(&store);
    let admin = serve(move |mut stream| {
        while let Some((head, body)) = read_request(&mut stream) {
            assert!(head.starts_with("POST /v1/batch HTTP/1.1"), "{head}");
            assert!(head.contains("authorization: Bearer secret-token"), "{head}");
            if flaw == Flaw::Refuses {
                answer(&mut stream, "422 Unprocessable Content", b"{\"title\":\"no\"}");
                continue;
            }
            if flaw != Flaw::Forgets {
                apply(&mut writing.write().expect("no panic"), &body);
            }
            answer(&mut stream, "200 OK", b"{\"revision\":1}");
        }
    });
    let gateway = serve(move |mut stream| {
        let count = AtomicUsize::new(0);
        while let Some((head, _)) = read_request(&mut stream) {
            let (status, body) = respond(&store.read().expect("no panic"), &head, flaw, &count);
            answer(&mut stream, status, &body);
        }
    });
    Fake { admin, gateway }
}

fn apply(store: &mut Store, body: &[u8]) {
    let batch: Value = serde_json::from_slice(body).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    for consumer in batch["consumers"].as_array().expect("a list") {
        store.keys.insert(text(&consumer["credentials"]["keyauth"]["key"]), text(&consumer["username"]));
    }
    let plugins = batch["plugin_configs"].as_array().expect("a list");
    assert_eq!(plugins.len(), batch["proxies"].as_array().expect("a list").len() * 2);
    for proxy in batch["proxies"].as_array().expect("a list") {
        let access = plugins
            .iter()
            .find(|plugin| plugin["proxy_id"] == proxy["id"] && plugin["plugin_name"] == "access_control")
            .expect("each proxy has one");
        let allowed = text(&access["config"]["allowed_consumers"][0]);
        store.proxies.insert(text(&proxy["listen_path"]), (text(&proxy["backend_path"]), allowed));
    }
}

fn respond(store: &Store, head: &str, flaw: Flaw, count: &AtomicUsize) -> (&'static str, Vec<u8>) {
    let path = head.split_ascii_whitespace().nth(1).unwrap_or_default();
    let Some((prefix, rest)) = path.rmatch_indices('/').next().map(|(at, _)| path.split_at(at)) else {
        return ("404 Not Found", Vec::new());
    };
    let Some((backend_path, allowed)) = store.proxies.get(prefix) else {
        return ("404 Not Found", Vec::new());
    };
    let key = head.lines().find_map(|line| line.strip_prefix("x-api-key: "));
    let consumer = key.and_then(|key| store.keys.get(key));
    let open = flaw == Flaw::FailsOpen && prefix.ends_with("50");
    match consumer {
        None if !open => return ("401 Unauthorized", Vec::new()),
        Some(consumer) if consumer != allowed && !open => return ("403 Forbidden", Vec::new()),
        _ => {}
    }
    let wrong = flaw == Flaw::WrongProxy && count.fetch_add(1, Ordering::Relaxed) % 20 == 19;
    let backend_path = if wrong { "/b/9" } else { backend_path };
    ("200 OK", format!("{backend_path}{rest}\n{allowed}\n").into_bytes())
}

fn options(fake: Fake) -> Options {
    let Fake { admin, gateway } = fake;
    Options {
        admin,
        token: "secret-token".to_owned(),
        gateway,
        backend: gateway,
        proxies: 250,
        batch: 100,
        chunk: 30,
        workers: 5,
        duration: Duration::from_millis(300),
        warm_up: Duration::ZERO,
        threads: 1,
        refusals: 250,
        visible_limit: Duration::from_secs(10),
    }
}

#[test]
fn a_right_gateway_grows_batch_by_batch() {
    let scale = scale::run(&options(fake(Flaw::None)), &[], &mut |_| {}).expect("it grows");
    let proxies: Vec<u64> = scale.batches.iter().map(|batch| batch.proxies).collect();
    assert_eq!(proxies, [100, 200, 250]);
    for (number, batch) in scale.batches.iter().enumerate() {
        assert!(batch.steady.void.is_empty(), "{:?}", batch.steady.void);
        assert!(batch.refusals.all() && batch.refusals.asked >= 300, "{:?}", batch.refusals);
        assert_eq!(batch.write.calls, if number == 2 { 2 } else { 4 });
        assert_eq!(batch.visible.count, batch.write.calls);
        assert_eq!(batch.during_writes.is_some(), number > 0);
        let during = batch.during_writes.as_ref().map(|round| &round.void);
        assert!(!batch.is_void(), "{during:?}");
    }
    assert!((scale.batches[0].percent_of_first - 100.0).abs() < 1e-9);
}

#[test]
fn a_proxy_without_its_plugins_makes_the_batch_void() {
    let scale = scale::run(&options(fake(Flaw::FailsOpen)), &[], &mut |_| {}).expect("it grows");
    assert!(scale.batches.iter().all(|batch| batch.refusals.let_through > 0 && batch.is_void()));
}

#[test]
fn an_answer_of_another_proxy_makes_the_batch_void() {
    let mut options = options(fake(Flaw::WrongProxy));
    options.proxies = 100;
    let scale = scale::run(&options, &[], &mut |_| {}).expect("it grows");
    assert!(scale.batches[0].is_void());
    assert!(!scale.batches[0].steady.void.is_empty());
}

#[test]
fn a_refused_batch_ends_the_test_with_its_reason() {
    let refused = scale::run(&options(fake(Flaw::Refuses)), &[], &mut |_| {});
    assert!(matches!(refused, Err(ScaleError::Refused { status: 422, .. })), "{refused:?}");
}

#[test]
fn a_forgotten_batch_is_noticed() {
    let mut options = options(fake(Flaw::Forgets));
    options.visible_limit = Duration::from_millis(200);
    let forgotten = scale::run(&options, &[], &mut |_| {});
    assert!(matches!(forgotten, Err(ScaleError::Invisible { proxy: 29, .. })), "{forgotten:?}");
}

#[test]
fn the_command_measures_a_running_gateway_and_draws_it() {
    let Fake { admin, gateway } = fake(Flaw::None);
    let directory = std::env::temp_dir().join(format!("proto_bench-scale-{}", std::process::id()));
    let file = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let (json, html) = (file("scale.json"), file("scale.html"));
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_proto_bench"))
        .args([
            "scale",
            "--proxies",
            "400",
            "--batch",
            "100",
            "-c",
            "5",
            "-t",
            "1",
            "-d",
            "200ms",
            "-w",
            "0s",
        ])
        .args(["--admin", &admin.to_string(), "--proxy", &gateway.to_string(), "--token", "secret-token"])
        .args(["--pid", &std::process::id().to_string(), "--json", &json, "--html", &html])
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("| proxies"), "{text}");
    let written = std::fs::read_to_string(&json).expect("a result");
    assert!(!written.contains("secret-token"), "the token is a secret");
    let page = std::fs::read_to_string(&html).expect("a page");
    assert!(page.contains("Throughput against number of proxies"));
    std::fs::remove_dir_all(&directory).ok();
}
