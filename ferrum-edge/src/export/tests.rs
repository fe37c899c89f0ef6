//! Records go in, and the page says what happened.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use gateway_core::config::model::AccessLog as LogRules;
use gateway_core::config::model::Model;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::{Client, Exchange};
use gateway_core::http::reply::Cause;
use gateway_core::metrics::names;
use gateway_core::record::{ExchangeRecord, Recorder, SessionRecord};
use gateway_core::snapshot::compile::{Compiled, Compiler};
use gateway_core::snapshot::{Route, Snapshot};
use gateway_core::stream::session::Session;
use gateway_protocols::supervise::Tasks;
use http::Version;

use super::page_format::PageFormat;
use super::*;

/// Compiles one configuration after another, as a gateway does.
pub(super) struct Configurations {
    compiler: Compiler,
    pub(super) compiled: Compiled,
}

impl Configurations {
    pub(super) fn new(ids: &[&str]) -> Self {
        let empty = Snapshot::empty(Arc::default());
        let mut compiler = Compiler::new(crate::plugins());
        let compiled = compiler.compile(&Model::default(), &empty, tokio::time::Instant::now());
        let mut this = Self { compiler, compiled };
        this.change(ids);
        this
    }

    pub(super) fn change(&mut self, ids: &[&str]) {
        let proxies: Vec<_> = ids
            .iter()
            .map(|id| {
                serde_json::json!({
                    "id": id, "listen_path": format!("/{id}"), "backend_scheme": "http",
                    "backend_host": "127.0.0.1", "backend_port": 80,
                })
            })
            .collect();
        let text = serde_json::json!({ "proxies": proxies }).to_string();
        let model = crate::source::file::parse(&text, "test.json", self.compiler.registry()).unwrap();
        let previous = &self.compiled.snapshot;
        self.compiled = self.compiler.compile(&model, previous, tokio::time::Instant::now());
        self.compiler.adopt(&self.compiled);
    }

    pub(super) fn route(&self, id: &str) -> Arc<Route> {
        self.compiled.snapshot.by_id.iter().find(|(known, _)| known.as_str() == id).unwrap().1.clone()
    }
}

/// A request as a client sent it.
pub(super) fn exchange(request: http::request::Builder) -> Exchange {
    let address = SocketAddr::from(([192, 0, 2, 7], 4321));
    let client = Arc::new(Client::new(address, address, false, None));
    Exchange::new(request.body(Body::empty()).unwrap(), client)
}

/// A record of an exchange that went well.
pub(super) fn record<'a>(exchange: &'a Exchange, route: Option<&'a Route>) -> ExchangeRecord<'a> {
    ExchangeRecord {
        exchange,
        route: route.map(|route| &route.state),
        target: route.and_then(|route| route.targets.list().first()).map(|target| &**target),
        status: 200,
        grpc_status: None,
        cause: None,
        reason: None,
        decided: None,
        plugin_config: None,
        is_error: false,
        failure: None,
        attempts: 1,
        first_byte: Some(Duration::from_millis(3)),
        last_byte: Some(Duration::from_millis(4)),
        duration: Duration::from_millis(4),
        request_bytes: 10,
        response_bytes: 64,
    }
}

fn telemetry(workers: usize) -> Telemetry {
    Telemetry::new(workers, &Settings::default()).unwrap()
}

/// A page of the metrics of this telemetry.
fn page(format: PageFormat, telemetry: &Telemetry, snapshot: &Snapshot, connections: usize) -> Vec<u8> {
    format.page(|visitor| walk::visit(telemetry, snapshot, connections, &Tasks::default(), visitor))
}

/// The page as a scraper reads it: sample to value; the page must be well-formed.
fn scrape(telemetry: &Telemetry, snapshot: &Snapshot) -> HashMap<String, f64> {
    let page = page(PageFormat::Prometheus, telemetry, snapshot, 3);
    let page = String::from_utf8(page).unwrap();
    let mut samples = HashMap::new();
    let mut metric: Option<&str> = None;
    for line in page.lines() {
        if let Some(head) = line.strip_prefix("# HELP ") {
            let (name, help) = head.split_once(' ').unwrap();
            assert!(help.len() > 10 && !help.starts_with(' '), "{line}");
            metric = Some(name);
        } else if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').unwrap();
            assert_eq!(Some(name), metric, "{line}");
            assert!(
                names::ALL.iter().any(|known| known.name == name && known.kind.as_str() == kind),
                "{line}"
            );
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            assert!(sample.starts_with(metric.unwrap()), "{line} within {metric:?}");
            assert!(samples.insert(sample.to_owned(), value.parse().unwrap()).is_none(), "twice: {line}");
        }
    }
    samples
}

#[test]
fn workers_add_up() {
    let configurations = Configurations::new(&["a", "b"]);
    let telemetry = telemetry(2);
    telemetry.applied(&configurations.compiled);
    let (a, b) = (configurations.route("a"), configurations.route("b"));
    let plain = exchange(http::Request::get("/a"));
    let http2 = exchange(http::Request::get("/b").version(Version::HTTP_2));
    for worker in 0..2 {
        let worker = telemetry.worker(worker);
        for _ in 0..3 {
            worker.began();
        }
        worker.exchange(&record(&plain, Some(&a)));
        worker.exchange(&ExchangeRecord { status: 503, attempts: 3, ..record(&http2, Some(&b)) });
    }
    let lost = ExchangeRecord {
        status: 404,
        cause: Some(Cause::NoRoute),
        reason: Some("no_route"),
        decided: None,
        plugin_config: None,
        is_error: true,
        ..record(&plain, None)
    };
    telemetry.worker(0).exchange(&lost);
    let page = scrape(&telemetry, &configurations.compiled.snapshot);
    let labels = |version, class| {
        format!("network_protocol_version=\"{version}\",http_response_status_class=\"{class}\"")
    };
    let name = names::REQUEST_DURATION.name;
    assert_eq!(page[&format!("{name}_count{{{}}}", labels("1.1", "2xx"))], 2.0);
    assert_eq!(page[&format!("{name}_bucket{{{},le=\"0.0025\"}}", labels("1.1", "2xx"))], 0.0);
    assert_eq!(page[&format!("{name}_bucket{{{},le=\"0.005\"}}", labels("2", "5xx"))], 2.0);
    assert_eq!(page[&format!("{name}_bucket{{{},le=\"+Inf\"}}", labels("2", "5xx"))], 2.0);
    assert!((page[&format!("{name}_sum{{{}}}", labels("2", "5xx"))] - 0.008).abs() < 1e-9);
    let proxy = |id, class| {
        page[&format!("ferrum_proxy_requests_total{{proxy=\"{id}\",http_response_status_class=\"{class}\"}}")]
    };
    assert_eq!((proxy("a", "2xx"), proxy("b", "5xx"), proxy("_none", "4xx")), (2.0, 2.0, 1.0));
    assert_eq!(page["ferrum_proxy_request_duration_seconds_count{proxy=\"a\"}"], 2.0);
    assert_eq!(page["ferrum_proxy_request_duration_seconds_bucket{proxy=\"b\",le=\"0.005\"}"], 2.0);
    assert_eq!(page["ferrum_proxy_upstream_duration_seconds_count{proxy=\"a\"}"], 2.0);
    assert_eq!(page["ferrum_proxy_upstream_response_duration_seconds_count{proxy=\"a\"}"], 2.0);
    assert_eq!(page["http_client_response_duration_seconds_count"], 5.0);
    assert_eq!(page["http_server_active_requests"], 1.0);
    assert_eq!(page["ferrum_upstream_retries_total"], 4.0);
    assert_eq!(page["http_server_response_body_bytes_total"], 320.0);
    assert_eq!(page["http_server_request_body_bytes_total"], 50.0);
    assert_eq!(page["ferrum_replies_total{reason=\"no_route\"}"], 1.0);
    assert_eq!(page["ferrum_client_connections"], 3.0);
    assert_eq!(page["ferrum_config_proxies"], 2.0);
}

#[test]
fn a_slot_given_to_another_proxy_begins_at_zero() {
    let mut configurations = Configurations::new(&["old", "kept"]);
    let telemetry = telemetry(1);
    telemetry.applied(&configurations.compiled);
    let plain = exchange(http::Request::get("/"));
    for id in ["old", "kept"] {
        telemetry.worker(0).exchange(&record(&plain, Some(&configurations.route(id))));
    }
    let slot = configurations.route("old").slot;
    // A slot is free for others one configuration after its proxy went.
    configurations.change(&["kept"]);
    telemetry.applied(&configurations.compiled);
    configurations.change(&["kept", "new"]);
    telemetry.applied(&configurations.compiled);
    assert_eq!(configurations.route("new").slot, slot);
    let sample =
        |id| format!("ferrum_proxy_requests_total{{proxy=\"{id}\",http_response_status_class=\"2xx\"}}");
    let page = scrape(&telemetry, &configurations.compiled.snapshot);
    assert_eq!((page.get(&sample("new")), page.get(&sample("kept"))), (None, Some(&1.0)));
    telemetry.worker(0).exchange(&record(&plain, Some(&configurations.route("new"))));
    let page = scrape(&telemetry, &configurations.compiled.snapshot);
    assert_eq!(page[&sample("new")], 1.0);
    assert_eq!(page["ferrum_proxy_request_duration_seconds_count{proxy=\"new\"}"], 1.0);
}

/// What scrapers of the protobuf format get beside the buckets with written bounds.
#[test]
fn each_proxy_has_native_histograms_that_begin_with_it() {
    let mut configurations = Configurations::new(&["old", "kept", "silent"]);
    let telemetry = telemetry(2);
    telemetry.applied(&configurations.compiled);
    let plain = exchange(http::Request::get("/"));
    let counts = |telemetry: &Telemetry| -> Vec<(String, u64, u64)> {
        let all = telemetry.native_timings().into_iter();
        all.map(|(id, total, first)| (id.to_string(), total.count(), first.count())).collect()
    };
    for (worker, id) in [(0, "old"), (0, "kept"), (1, "kept")] {
        telemetry.worker(worker).exchange(&record(&plain, Some(&configurations.route(id))));
    }
    let unanswered = configurations.route("kept");
    telemetry.worker(1).exchange(&ExchangeRecord { first_byte: None, ..record(&plain, Some(&unanswered)) });
    let mut found = counts(&telemetry);
    found.sort();
    assert_eq!(found, [("kept".to_owned(), 3, 2), ("old".to_owned(), 1, 1)]);
    // The slot of one that is gone is another's, which begins at nothing.
    configurations.change(&["kept", "silent"]);
    telemetry.applied(&configurations.compiled);
    configurations.change(&["kept", "silent", "new"]);
    telemetry.applied(&configurations.compiled);
    assert_eq!(counts(&telemetry), [("kept".to_owned(), 3, 2)]);
    telemetry.worker(0).exchange(&record(&plain, Some(&configurations.route("new"))));
    let mut found = counts(&telemetry);
    found.sort();
    assert_eq!(found, [("kept".to_owned(), 3, 2), ("new".to_owned(), 1, 1)]);
    let binary = page(PageFormat::Protobuf, &telemetry, &configurations.compiled.snapshot, 0);
    for family in [names::PROXY_DURATION.name, names::PROXY_UPSTREAM_DURATION.name] {
        assert_eq!(protobuf::tests::natives_of(&binary, family), 2, "{family}");
    }
}

#[test]
fn strange_statuses_and_sessions_have_their_place() {
    let configurations = Configurations::new(&["a"]);
    let telemetry = telemetry(1);
    let worker = telemetry.worker(0);
    let plain = exchange(http::Request::get("/"));
    for status in [0, 99, 600, 999] {
        worker.exchange(&ExchangeRecord { status, ..record(&plain, None) });
    }
    let session = Session::new(plain.client);
    for protocol in ["udp", "carrier pigeon"] {
        worker.session_dropped(protocol, 3);
        worker.session(&SessionRecord {
            session: &session,
            route: None,
            target: None,
            protocol,
            reason: "closed",
            duration: Duration::from_secs(1),
            bytes_up: 5,
            bytes_down: 7,
            dropped: 3,
            uncounted: Carried { up: 5, down: 7 },
        });
    }
    let page = scrape(&telemetry, &configurations.compiled.snapshot);
    let none = |class| {
        page[&format!(
            "ferrum_proxy_requests_total{{proxy=\"_none\",http_response_status_class=\"{class}\"}}"
        )]
    };
    assert_eq!((none("1xx"), none("5xx")), (2.0, 2.0));
    assert_eq!(page["ferrum_session_bytes_total{protocol=\"udp\",direction=\"down\"}"], 7.0);
    assert_eq!(page["ferrum_sessions_total{protocol=\"other\"}"], 1.0);
}

#[test]
fn proxies_beyond_the_limit_share_a_series() {
    let ids: Vec<_> = (0..MAX_PROXY_SERIES + 2).map(|n| format!("p{n}")).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let configurations = Configurations::new(&ids);
    let telemetry = telemetry(1);
    telemetry.applied(&configurations.compiled);
    let plain = exchange(http::Request::get("/"));
    for (_, route) in &configurations.compiled.snapshot.by_id {
        telemetry.worker(0).exchange(&record(&plain, Some(route)));
    }
    let page = scrape(&telemetry, &configurations.compiled.snapshot);
    let of_proxies = || page.iter().filter(|(sample, _)| sample.starts_with("ferrum_proxy_requests_total"));
    assert_eq!(of_proxies().count(), MAX_PROXY_SERIES + 1);
    assert_eq!(page["ferrum_proxy_requests_total{proxy=\"_other\",http_response_status_class=\"2xx\"}"], 2.0);
}

#[test]
fn a_refused_configuration_is_remembered() {
    let telemetry = telemetry(1);
    telemetry.refused("one\ntwo");
    telemetry.refused("three");
    let status = telemetry.config_status();
    assert_eq!((status.refused, status.last_refusal.unwrap().1.as_str()), (2, "three"));
}

#[test]
fn a_log_that_cannot_be_opened_is_told_at_the_start() {
    let log = LogRules { path: "/nowhere/at/all.log".into(), queue: 1 };
    let error = Telemetry::new(1, &Settings { access_log: Some(log), ..Settings::default() }).err().unwrap();
    assert!(error.to_string().contains("/nowhere/at/all.log"), "{error}");
}

/// What a scrape of 30,000 proxies with traffic in every class may have, in each format; beyond the budget for series they share one.
#[test]
fn thirty_thousand_proxies_fit_a_scrape() {
    const MAX_BYTES: usize = 60 << 20;
    let ids: Vec<String> = (0..30_000).map(|n| format!("team-{:03}-service-{n:05}", n % 300)).collect();
    let configurations = Configurations::new(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    let telemetry = telemetry(2);
    telemetry.applied(&configurations.compiled);
    let snapshot = &configurations.compiled.snapshot;
    let plain = exchange(http::Request::get("/a"));
    for (_, route) in snapshot.by_id.iter() {
        for status in [200, 302, 404, 503] {
            telemetry.worker(1).exchange(&ExchangeRecord { status, ..record(&plain, Some(route)) });
        }
    }
    for format in [PageFormat::Prometheus, PageFormat::OpenMetrics, PageFormat::Protobuf] {
        let began = Instant::now();
        let bytes = page(format, &telemetry, snapshot, 0).len();
        eprintln!("{format:?}: {bytes} bytes in {:?}", began.elapsed());
        assert!((1 << 20..MAX_BYTES).contains(&bytes), "{format:?}: {bytes}");
    }
    let page = String::from_utf8(page(PageFormat::Prometheus, &telemetry, snapshot, 0)).unwrap();
    let other =
        page.lines().find(|line| line.contains("proxy=\"_other\",http_response_status_class=\"5xx\""));
    assert!(other.is_some_and(|line| line.ends_with(" 20000")), "{other:?}");
}
