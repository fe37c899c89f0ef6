//! Records go in, lines come out.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;

use gateway_core::config::model::Settings;
use gateway_core::http::reply::Cause;
use gateway_core::record::Recorder;
use serde_json::Value;

use super::super::Telemetry;
use super::super::tests::{Configurations, exchange, record};
use super::*;

/// A path in the system's folder for temporary files; the file goes when the test ends.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("ferrum-edge-log-{}-{number}", std::process::id())))
    }

    fn telemetry(&self, queue: usize) -> Telemetry {
        let log = Rules { path: self.0.clone(), queue };
        Telemetry::new(1, &Settings { access_log: Some(log), ..Settings::default() }).unwrap()
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.0).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

#[test]
fn a_record_says_everything_but_secrets() {
    let place = Place::new();
    let telemetry = place.telemetry(10);
    let configurations = Configurations::new(&["users"]);
    let route = configurations.route("users");
    let request = http::Request::post("http://me:pa55@api.example.com/users?api_key=s3cret&page=2")
        .header("authorization", "Bearer s3cret")
        .header("cookie", "session=s3cret")
        .header("x-request-id", "id-1")
        .header("referer", "https://ann:s3cret@elsewhere.example/?reset=s3cret")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .header("user-agent", "a \"strange\" agent");
    let exchange = exchange(request);
    telemetry.worker(0).exchange(&record(&exchange, Some(&route)));
    telemetry.flush();
    let text = fs::read_to_string(&place.0).unwrap();
    assert!(!text.contains("s3cret") && !text.contains("pa55"), "{text}");
    let line = &place.lines()[0];
    for (key, value) in [
        ("kind", "http"),
        ("http.request.method", "POST"),
        ("url.scheme", "http"),
        ("url.path", "/users"),
        ("url.query", "api_key=REDACTED&page=2"),
        ("server.address", "api.example.com"),
        ("network.protocol.version", "1.1"),
        ("client.address", "192.0.2.7"),
        ("http.request.id", "id-1"),
        ("trace_id", "0af7651916cd43dd8448eb211c80319c"),
        ("user_agent.original", "a \"strange\" agent"),
        ("http.request.header.referer", "https://elsewhere.example/"),
        ("proxy.id", "users"),
        ("upstream.address", "127.0.0.1:80"),
    ] {
        assert_eq!(line[key], value, "{key}: {line}");
    }
    assert_eq!(line["http.response.status_code"], 200);
    assert_eq!(line["http.server.request.duration"], 0.004);
    assert_eq!(line["http.response.body.size"], 64);
    assert!(line.get("error.type").is_none());
}

#[test]
fn a_refused_exchange_has_its_reason() {
    let place = Place::new();
    let telemetry = place.telemetry(10);
    let exchange = exchange(http::Request::get("/"));
    let refused = ExchangeRecord {
        status: 404,
        cause: Some(Cause::NoRoute),
        reason: Some("no_route"),
        decided: None,
        plugin_config: None,
        is_error: true,
        ..record(&exchange, None)
    };
    telemetry.worker(0).exchange(&refused);
    telemetry.flush();
    let line = &place.lines()[0];
    assert_eq!((&line["error.type"], &line["http.response.status_code"]), (&"no_route".into(), &404.into()));
    assert!(line.get("proxy.id").is_none());
}

#[test]
fn what_the_writer_cannot_take_is_dropped_and_counted() {
    let state = Arc::new(WriterState::default());
    let share = Share { waiting: Mutex::default(), limit: 2, state: state.clone() };
    let exchange = exchange(http::Request::get("/"));
    for _ in 0..5 {
        share.exchange(&record(&exchange, None));
    }
    assert_eq!(lock(&share.waiting).records, 2);
    assert_eq!(state.dropped.load(Ordering::Relaxed), 3);
}

#[test]
fn a_disk_that_takes_nothing_is_counted_and_hurts_nobody() {
    let rules = Rules { path: "/dev/full".into(), queue: 10 };
    let log = AccessLog::start(&rules, 1).unwrap();
    let exchange = exchange(http::Request::get("/"));
    log.share(0).unwrap().exchange(&record(&exchange, None));
    log.close();
    assert_eq!((log.written(), log.dropped()), (0, 1));
}

#[test]
fn every_record_of_every_worker_is_written() {
    let place = Place::new();
    let rules = Rules { path: place.0.clone(), queue: 4 * 1000 };
    let log = AccessLog::start(&rules, 4).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let share = log.share(worker).unwrap();
            scope.spawn(move || {
                let exchange = exchange(http::Request::get("/"));
                for _ in 0..1000 {
                    share.exchange(&record(&exchange, None));
                }
            });
        }
    });
    log.close();
    assert_eq!((place.lines().len(), log.written(), log.dropped()), (4000, 4000, 0));
}
