//! Records go in, what each sink writes comes out; hostile values stay where they belong.

mod hostile;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;

use gateway_core::config::file::{NoReferences, Origin};
use gateway_core::config::resolve;
use gateway_core::plugin::Registry;
use gateway_core::record::ExchangeRecord;
use gateway_telemetry::json::millis_of;
use serde_json::{Value, json};

use super::super::tests::{Configurations, exchange, record};
use super::*;

/// A folder of a test's own.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("ferrum-edge-sinks-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self) -> String {
        self.0.join("access.log").to_string_lossy().into_owned()
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn try_sinks(sinks: &Value) -> Result<Vec<Arc<LogSink>>, Problems> {
    let spec = json!({ "gateway": { "access_log": { "sinks": sinks } }, "proxies": [] }).to_string();
    let origin = Origin { name: "test".into(), folder: PathBuf::from("/"), format: None };
    let model = resolve::load(&spec, &origin, &NoReferences, &Registry::new(&[]), |_| Problems::default())?;
    Ok(model.settings.log_sinks.to_vec())
}

/// The one sink of these settings, which goes to a file.
fn sink(place: &Place, mut settings: Value) -> Sinks {
    settings["name"] = json!("s");
    if settings.get("file").is_none() {
        settings["file"] = json!({ "path": place.path() });
    }
    let rules = try_sinks(&json!([settings])).unwrap_or_else(|problems| panic!("{problems}"));
    Sinks::build(&rules, &World::default()).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Tasks are not needed: files have threads.
struct NoNetwork;

impl Tasks for NoNetwork {
    fn run(&self, name: TaskName, _: gateway_core::plugin::world::tasks::Task, _: TaskControl) {
        panic!("{name} is a task");
    }
}

/// What is written of these records.
fn written(place: &Place, settings: Value, records: &[&ExchangeRecord<'_>]) -> Vec<String> {
    let sinks = sink(place, settings);
    sinks.start(&NoNetwork).unwrap();
    records.iter().for_each(|record| sinks.record(Record::Exchange(record)));
    sinks.close();
    place.text("access.log").lines().map(str::to_owned).collect()
}

fn odd() -> http::request::Builder {
    http::Request::get("http://api.example.com/a%22b?token=s3cret&q=%22%20x&pin=1234")
        .header("user-agent", http::HeaderValue::from_bytes(b"a \"b\" \xff\tc=d").unwrap())
        .header("referer", "https://elsewhere.example/?reset=s3cret")
        .header("authorization", "Bearer s3cret")
        .header("cookie", "session=s3cret; b=s3cret")
        .header("x-team", "blue")
}

#[test]
fn every_format_is_one_line_that_nothing_forges() {
    let configurations = Configurations::new(&["users"]);
    let route = configurations.route("users");
    let exchange = exchange(odd());
    let record = record(&exchange, Some(&route));
    let place = Place::new();
    let settings =
        json!({ "request_headers": ["authorization", "cookie", "x-team"], "redact_query": ["PIN"] });
    let lines = written(&place, settings.clone(), &[&record]);
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(line["url.query"], "token=REDACTED&q=%22%20x&pin=REDACTED");
    assert_eq!(line["http.request.header.authorization"], "Bearer REDACTED");
    assert_eq!(line["http.request.header.cookie"], "session=REDACTED; b=REDACTED");
    assert_eq!(line["http.request.header.x-team"], "blue");
    assert_eq!(line["user_agent.original"], "a \"b\" \u{fffd}\tc=d");

    let place = Place::new();
    let mut ecs = settings.clone();
    ecs["format"] = json!("ecs");
    let line: Value = serde_json::from_str(&written(&place, ecs, &[&record])[0]).unwrap();
    assert_eq!(
        (&line["ecs.version"], &line["client.ip"], &line["url.domain"]),
        (&json!("8.11.0"), &json!("192.0.2.7"), &json!("api.example.com"))
    );
    assert_eq!(line["event.duration"], 4_000_000);
    assert!(line["@timestamp"].as_str().unwrap().ends_with('Z'));

    let place = Place::new();
    let mut logfmt = settings;
    logfmt["format"] = json!("logfmt");
    let lines = written(&place, logfmt, &[&record]);
    assert!(
        lines[0].contains(" http.response.status_code=200 ") && lines[0].contains("kind=http"),
        "{lines:?}"
    );
    assert!(lines[0].contains("user_agent.original=\"a \\\"b\\\" \u{fffd}\\u0009c=d\""), "{lines:?}");

    let place = Place::new();
    let lines = written(&place, json!({ "format": "combined" }), &[&record]);
    let rest = lines[0].split_once("] ").unwrap().1;
    assert!(lines[0].starts_with("192.0.2.7 - - ["), "{lines:?}");
    assert_eq!(
        rest,
        "\"GET /a%22b?token=REDACTED&q=%22%20x&pin=1234 HTTP/1.1\" 200 64 \"https://elsewhere.example/\" \"a \\\"b\\\" \\xff\\x09c=d\""
    );
    assert!(!place.text("access.log").contains("s3cret"));
}

#[test]
fn templates_and_chosen_fields_say_only_what_is_asked() {
    let configurations = Configurations::new(&["users"]);
    let route = configurations.route("users");
    let mut exchange = exchange(odd());
    exchange.request.headers.remove("user-agent");
    let record = record(&exchange, Some(&route));
    let place = Place::new();
    let template = json!({ "template": "${request.method} ${request.path} ${response.status} ${duration_ms} ${proxy.id}" });
    assert_eq!(written(&place, template, &[&record]), ["GET /a%22b 200 4 users"]);
    let place = Place::new();
    let [line] = &*written(&place, json!({ "template": "[${time}] ${time:-x}" }), &[&record]) else {
        panic!("one line")
    };
    let (first, second) = line.split_once(' ').expect("two");
    assert_eq!(first, format!("[{second}]"));
    let (millis, now) = (millis_of(second).expect("RFC 3339"), SystemTime::now());
    assert!(
        u128::from(millis) <= now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() - 4,
        "{line}"
    );
    let place = Place::new();
    let fields = json!({ "fields": ["url.path", "http.response.status_code"] });
    assert_eq!(
        written(&place, fields, &[&record]),
        [r#"{"url.path":"/a%22b","http.response.status_code":200}"#]
    );
}

#[test]
fn filters_choose_records() {
    let configurations = Configurations::new(&["users", "shop"]);
    let (users, shop) = (configurations.route("users"), configurations.route("shop"));
    let plain = exchange(http::Request::get("/plain"));
    let good = record(&plain, Some(&users));
    let bad = ExchangeRecord { status: 503, ..record(&plain, Some(&shop)) };
    let slow = ExchangeRecord { duration: Duration::from_millis(300), status: 201, ..record(&plain, None) };
    let statuses = |settings: Value| {
        let place = Place::new();
        let lines = written(&place, settings, &[&good, &bad, &slow]);
        lines
            .iter()
            .map(|line| {
                serde_json::from_str::<Value>(line).unwrap()["http.response.status_code"].as_u64().unwrap()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(statuses(json!({})), [200, 503, 201]);
    assert_eq!(statuses(json!({ "when": { "statuses": ["5xx"] } })), [503]);
    assert_eq!(statuses(json!({ "when": { "path": "/other" } })), [] as [u64; 0]);
    assert_eq!(statuses(json!({ "slower_than": "300ms" })), [201]);
    assert_eq!(statuses(json!({ "proxies": ["users"] })), [200]);
    assert_eq!(statuses(json!({ "sample": 0 })), [] as [u64; 0]);
}

#[test]
fn files_rotate_and_old_ones_go() {
    let plain = exchange(http::Request::get("/plain"));
    let record = record(&plain, None);
    let place = Place::new();
    let settings = json!({ "file": { "path": place.path(), "max_size": 4096, "keep": 2 }, "batch": 1, "template": "x".repeat(1500) });
    let lines = written(&place, settings, &[&record; 9]);
    // Two lines fit in a file: nine lines make five, of which three are kept.
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (place.text("access.log.1").lines().count(), place.text("access.log.2").lines().count()),
        (2, 2)
    );
    assert_eq!(place.text("access.log.3"), "");
}

#[test]
fn no_file_is_longer_than_it_may_be() {
    let plain = exchange(http::Request::get("/plain"));
    let record = record(&plain, None);
    let place = Place::new();
    // All lines come as one batch.
    let settings = json!({ "file": { "path": place.path(), "max_size": 4096, "keep": 50 }, "template": "x".repeat(999) });
    written(&place, settings, &[&record; 90]);
    let files = (1..50).map(|n| format!("access.log.{n}")).chain(["access.log".to_owned()]);
    let lines: Vec<usize> = files.map(|name| place.text(&name).lines().count()).filter(|n| *n > 0).collect();
    assert!(lines.iter().all(|lines| *lines <= 4) && lines.iter().sum::<usize>() == 90, "{lines:?}");
    let writer = file::FileWriter::open(gateway_core::config::model::LogFile {
        path: place.0.join("long"),
        max_size: Some(4),
        max_age: None,
        keep: 9,
    })
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let chunk = gateway_telemetry::batch::Chunk { bytes: b"a\nb\nlonger\nc\n\nd".to_vec(), items: 6 };
    runtime.block_on(writer.deliver(&chunk)).unwrap();
    let text = ["long.3", "long.2", "long.1", "long"].map(|name| place.text(name));
    assert_eq!(text, ["a\nb\n", "longer\n", "c\n\n", "d\n"].map(str::to_owned));
}

#[test]
fn a_file_is_opened_anew_and_its_age_ends_it() {
    let plain = exchange(http::Request::get("/plain"));
    let record = record(&plain, None);
    let place = Place::new();
    let sinks = sink(&place, json!({ "template": "a" }));
    fs::rename(place.path(), place.0.join("moved")).unwrap();
    sinks.reopen();
    sinks.start(&NoNetwork).unwrap();
    sinks.record(Record::Exchange(&record));
    sinks.close();
    assert_eq!((place.text("access.log").as_str(), place.text("moved").as_str()), ("a\n", ""));
    let rules = gateway_core::config::model::LogFile {
        path: place.path().into(),
        max_size: None,
        max_age: Some(Duration::ZERO),
        keep: 1,
    };
    let writer = file::FileWriter::open(rules).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for line in [b"b", b"c"] {
        let chunk = gateway_telemetry::batch::Chunk { bytes: line.to_vec(), items: 1 };
        runtime.block_on(writer.deliver(&chunk)).unwrap();
    }
    assert_eq!((place.text("access.log").as_str(), place.text("access.log.1").as_str()), ("c\n", "b\n"));
}

#[test]
fn what_has_no_room_is_counted() {
    let plain = exchange(http::Request::get("/plain"));
    let record = record(&plain, None);
    let place = Place::new();
    let world = World::default();
    let rules =
        try_sinks(&json!([{ "name": "s", "file": { "path": place.path() }, "queue": 3, "template": "x" }]))
            .unwrap();
    let sinks = Sinks::build(&rules, &world).unwrap();
    (0..10).for_each(|_| sinks.record(Record::Exchange(&record)));
    sinks.start(&NoNetwork).unwrap();
    sinks.close();
    assert_eq!(place.text("access.log").lines().count(), 3);
    let text = world.meters().text();
    for (outcome, count) in [("sent", 3), ("queue_full", 7), ("failed", 0)] {
        let line =
            format!("ferrum_access_log_sink_records_total{{sink=\"s\",outcome=\"{outcome}\"}} {count}\n");
        assert!(text.contains(&line), "{line} {text}");
    }
}

#[test]
fn wrong_settings_are_named() {
    let file = json!({ "path": "/tmp/x" });
    for (sink, path) in [
        (json!({ "stdout": {} }), "name"),
        (json!({ "name": "a b", "stdout": {} }), "name"),
        (json!({ "name": "s" }), ""),
        (json!({ "name": "s", "stdout": {}, "file": file }), ""),
        (json!({ "name": "s", "file": {} }), "file.path"),
        (json!({ "name": "s", "syslog": { "address": "host" } }), "syslog.address"),
        (json!({ "name": "s", "tcp": { "address": "udp://a:1" } }), "tcp.address"),
        (json!({ "name": "s", "tcp": { "address": "tcp://a:1", "ca_path": "x" } }), "tcp.address"),
        (json!({ "name": "s", "http": {} }), "http.url"),
        (json!({ "name": "s", "http": { "url": "x" } }), "http.url"),
        (json!({ "name": "s", "http": { "url": "http://a/", "headers": { "a b": "c" } } }), "http.headers"),
        (json!({ "name": "s", "loki": { "url": "http://a/", "labels": { "a-b": "c" } } }), "loki.labels"),
        (json!({ "name": "s", "kafka": { "topic": "t" } }), "kafka.brokers"),
        (json!({ "name": "s", "kafka": { "brokers": ["a"], "topic": "t" } }), "kafka.brokers[0]"),
        (json!({ "name": "s", "kafka": { "brokers": ["a:1"] } }), "kafka.topic"),
        (json!({ "name": "s", "kafka": { "brokers": ["a:1"], "topic": "a b" } }), "kafka.topic"),
        (
            json!({ "name": "s", "kafka": { "brokers": ["a:1"], "topic": "t", "ca_path": "x" } }),
            "kafka.ca_path",
        ),
        (
            json!({ "name": "s", "kafka": { "brokers": ["a:1"], "topic": "t",
                "sasl": { "mechanism": "plain", "username": "u", "password": "p" } } }),
            "kafka.sasl.mechanism",
        ),
        (json!({ "name": "s", "otlp": {}, "format": "json" }), "otlp"),
        (json!({ "name": "s", "stdout": {}, "template": "${nothing}" }), "template"),
        (json!({ "name": "s", "stdout": {}, "template": "x", "format": "json" }), "template"),
        (json!({ "name": "s", "stdout": {}, "fields": ["url.pth"] }), "fields[0]"),
        (json!({ "name": "s", "stdout": {}, "fields": ["url.path"], "format": "combined" }), "fields"),
        (json!({ "name": "s", "stdout": {}, "request_headers": ["x"], "format": "combined" }), "format"),
        (json!({ "name": "s", "stdout": {}, "request_headers": ["a b"] }), "request_headers[0]"),
        (json!({ "name": "s", "stdout": {}, "redact_query": ["a"], "template": "x" }), "redact_query"),
        (json!({ "name": "s", "stdout": {}, "when": { "path": "x" } }), "when.path"),
        (json!({ "name": "s", "stdout": {}, "sample": 2 }), "sample"),
    ] {
        let Err(problems) = try_sinks(&json!([sink])) else { panic!("{sink} is taken") };
        let dot = if path.is_empty() { "" } else { "." };
        assert_eq!(
            problems.0[0].path,
            format!("gateway.access_log.sinks[0]{dot}{path}"),
            "{sink}: {problems}"
        );
    }
    let twice = json!([{ "name": "s", "stdout": {} }, { "name": "s", "stdout": {} }]);
    assert_eq!(try_sinks(&twice).unwrap_err().0[0].path, "gateway.access_log.sinks[1].name");
}
