//! What picking a target costs, by algorithm and number of targets, and what building a group costs.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gateway_core::balance::{Ask, AttemptOutcome, Targets};
use gateway_core::config::file::{self, Origin};
use gateway_core::config::model::{CircuitBreaker, Upstream};
use gateway_core::config::problem::Problems;
use gateway_core::config::resolve;
use gateway_core::health::Breakers;
use http::StatusCode;
use serde_json::Value;
use tokio::time::Instant;

const ALGORITHMS: [&str; 8] = [
    "round_robin",
    "weighted_round_robin",
    "least_connections",
    "least_latency",
    "consistent_hashing",
    "maglev",
    "random",
    "power_of_two",
];

/// An upstream as a user would write it, with weights from 1 to 3.
fn upstream(algorithm: &str, targets: usize, watched: bool) -> Arc<Upstream> {
    let list: Vec<_> =
        (0..targets).map(|n| format!("{{host: t{n}.test, port: 80, weight: {}}}", 1 + n % 3)).collect();
    let health = if watched { ", health_checks: {passive: {}}" } else { "" };
    let text =
        format!("upstreams: [{{id: u, algorithm: {algorithm}, targets: [{}]{health}}}]", list.join(", "));
    let document = file::parse(&text, &Origin::default(), &file::NoReferences);
    let any_plugin = |_: &str, _: &Value| Ok::<(), Problems>(());
    let model = resolve::document(&document, Path::new(""), &any_plugin).expect("the text is valid");
    model.upstreams.into_iter().next().expect("the text has one upstream")
}

fn breaker() -> CircuitBreaker {
    CircuitBreaker {
        failure_threshold: 5,
        success_threshold: 3,
        open_for: Duration::from_secs(30),
        status_codes: vec![500, 502, 503, 504],
        half_open_max_requests: 1,
        trip_on_connection_errors: true,
    }
}

/// One exchange: pick, answer, end.
fn exchange(targets: &Targets, ask: &Ask<'_, '_>) {
    let answer = AttemptOutcome::Response { status: StatusCode::OK, first_byte: Duration::from_micros(300) };
    let pick = black_box(targets).pick(ask).expect("every target is open");
    drop(black_box(pick.report(answer, ask.now)));
}

fn one_target(c: &mut Criterion) {
    let now = Instant::now();
    let ask = Ask::any(now);
    let targets = Targets::build(&upstream("round_robin", 1, false), None, now);
    c.bench_function("one target", |b| b.iter(|| exchange(&targets, &ask)));
    let targets = Targets::build(&upstream("round_robin", 1, true), None, now);
    let breakers = Breakers::build(&breaker(), targets.keys(), None, now);
    let ask = Ask { breakers: Some(&breakers), ..ask };
    c.bench_function("one target, watched, with breaker", |b| b.iter(|| exchange(&targets, &ask)));
}

fn picking(c: &mut Criterion) {
    let now = Instant::now();
    for count in [4, 1000] {
        let mut group = c.benchmark_group(format!("{count} targets"));
        for algorithm in ALGORITHMS {
            let targets = Targets::build(&upstream(algorithm, count, true), None, now);
            let mut key = 0_u32;
            group.bench_function(BenchmarkId::from_parameter(algorithm), |b| {
                b.iter(|| {
                    key = key.wrapping_add(1);
                    let key = key.to_le_bytes();
                    exchange(&targets, &Ask { hash_key: Some(&key), ..Ask::any(now) });
                });
            });
        }
        group.finish();
    }
}

fn building(c: &mut Criterion) {
    let now = Instant::now();
    let mut group = c.benchmark_group("build");
    for (algorithm, count) in [("round_robin", 1), ("weighted_round_robin", 100), ("consistent_hashing", 100)]
    {
        let rules = upstream(algorithm, count, false);
        let before = Targets::build(&rules, None, now);
        group.bench_function(BenchmarkId::new(algorithm, count), |b| {
            b.iter(|| Targets::build(black_box(&rules), Some(&before), now));
        });
    }
    group.finish();
}

criterion_group!(benches, one_target, picking, building);
criterion_main!(benches);
