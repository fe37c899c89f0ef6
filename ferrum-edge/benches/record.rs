//! What a record costs a worker: metrics alone, and with the access log.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use ferrum_edge::core::config::model::{AccessLog, Settings};
use ferrum_edge::core::http::body::Body;
use ferrum_edge::core::http::exchange::{Client, Exchange};
use ferrum_edge::core::metrics::text::TextPage;
use ferrum_edge::core::record::{ExchangeRecord, Recorder};
use ferrum_edge::core::snapshot::Snapshot;
use ferrum_edge::core::snapshot::compile::{Compiled, Compiler};
use ferrum_edge::export::{Telemetry, walk};
use ferrum_edge::source;
use gateway_protocols::supervise::Tasks;

/// Proxies of the configuration; records go round among as many, so that their counters are not all at hand.
const PROXIES: usize = 1000;

fn compiled() -> Compiled {
    let registry = ferrum_edge::plugins();
    let proxies: Vec<_> = (0..PROXIES)
        .map(|n| {
            format!(
                "  - {{ id: p{n}, listen_path: /p{n}, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 80 }}"
            )
        })
        .collect();
    let text = format!("proxies:\n{}\n", proxies.join("\n"));
    let model = source::file::parse(&text, "bench", &registry).expect("the configuration is good");
    let empty = Snapshot::empty(model.settings.clone());
    Compiler::new(registry).compile(&model, &empty, tokio::time::Instant::now())
}

fn exchange() -> Exchange {
    let request = http::Request::get("/p1/users?page=2&token=secret")
        .header("host", "api.example.com")
        .header("user-agent", "curl/8.0")
        .header("x-request-id", "0af7651916cd43dd8448eb211c80319c")
        .body(Body::empty())
        .expect("the request is good");
    let address = SocketAddr::from(([192, 0, 2, 7], 54321));
    Exchange::new(request, Arc::new(Client::new(address, address, false, None)))
}

fn record(c: &mut Criterion) {
    let compiled = compiled();
    let snapshot = &compiled.snapshot;
    let routes: Vec<_> = snapshot.by_id.iter().map(|(_, route)| route.clone()).collect();
    let exchange = exchange();
    let with_log = Settings {
        access_log: Some(AccessLog { path: "/dev/null".into(), queue: 1 << 20 }),
        ..Settings::default()
    };
    for (name, settings) in [("metrics", Settings::default()), ("metrics and access log", with_log)] {
        let telemetry = Telemetry::new(2, &settings).expect("/dev/null can be opened");
        telemetry.applied(&compiled);
        let (worker, tasks) = (telemetry.worker(0), Tasks::default());
        let mut turn = 0;
        c.bench_function(&format!("record/{name}"), |b| {
            b.iter(|| {
                turn = (turn + 1) % routes.len();
                let route = &routes[turn];
                worker.began();
                worker.exchange(black_box(&ExchangeRecord {
                    exchange: &exchange,
                    route: Some(route),
                    target: route.targets.list().first().map(|target| &**target),
                    status: 200,
                    grpc_status: None,
                    cause: None,
                    reason: None,
                    decided: None,
                    plugin_config: None,
                    is_error: false,
                    failure: None,
                    attempts: 1,
                    first_byte: Some(Duration::from_micros(300)),
                    last_byte: Some(Duration::from_micros(300)),
                    duration: Duration::from_micros(400),
                    request_bytes: 0,
                    response_bytes: 64,
                }));
            });
        });
        c.bench_function(&format!("scrape/{PROXIES} proxies, {name}"), |b| {
            b.iter(|| {
                let mut page = TextPage::prometheus();
                walk::visit(&telemetry, snapshot, 1, &tasks, &mut page);
                page.finish().len()
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = record
}
criterion_main!(benches);
