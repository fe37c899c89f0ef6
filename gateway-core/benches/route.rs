//! What finding a route costs among few and among many, and what changing one costs.

use gateway_core::condition::Holds;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use gateway_core::condition::{self, written::Condition as Written};
use gateway_core::config::model::{HostPattern, Match, PathPattern};
use gateway_core::http::body::Body;
use gateway_core::http::exchange::{Client, Exchange};
use gateway_core::route::RouteTable;

type Table = RouteTable<Arc<usize>>;

fn rule(n: usize, hosts: &[HostPattern]) -> Match {
    let path = PathPattern::Prefix(format!("/svc/{n}").into());
    Match { hosts: hosts.to_vec(), path, condition: None }
}

fn table(routes: usize, hosts: &[HostPattern]) -> Table {
    let mut table = RouteTable::new();
    for n in 0..routes {
        table.insert(&rule(n, hosts), 0, Arc::new(n)).expect("each path is used once");
    }
    table
}

fn lookups(c: &mut Criterion) {
    for routes in [30, 100_000] {
        for (name, hosts) in [("any host", vec![]), ("one host", vec![HostPattern::Exact("api.test".into())])]
        {
            let table = table(routes, &hosts);
            let (mut next, mut path) = (0, String::with_capacity(64));
            c.bench_function(&format!("find among {routes}, {name}"), |b| {
                b.iter(|| {
                    // A stride coprime to both sizes visits all of them in a spread order. The path is written anew
                    // each time (some 30 ns), because a request's path is warm and one of 100,000 prepared ones isn't.
                    next = (next + 7919) % routes;
                    path.clear();
                    path.push_str("/svc/");
                    path.push_str(itoa::Buffer::new().format(next));
                    path.push_str("/a/b");
                    black_box(table.find(Some("api.test"), &path, |_| true)).map(|found| found.matched)
                });
            });
        }
    }
    let mut root = Table::new();
    let all = Match { hosts: Vec::new(), path: PathPattern::Prefix("/".into()), condition: None };
    root.insert(&all, 0, Arc::new(0)).expect("the table is empty");
    c.bench_function("find among 1", |b| {
        b.iter(|| {
            black_box(root.find(Some("localhost:8000"), "/api/users", |_| true)).map(|found| found.matched)
        });
    });
}

/// Thirty thousand proxies whose methods, headers and priorities are looked at, beside as many without.
fn conditions(c: &mut Criterion) {
    const ROUTES: usize = 30_000;
    let written = r#"{"methods": ["GET", "POST"], "headers": {"x-version": "2"}}"#;
    let written: Written = serde_json::from_str(written).expect("is a condition");
    let condition = Arc::new(condition::compile(&written, "", condition::Use::Route).expect("is good"));
    let asked = http::Request::get("/").header("x-version", "2").body(Body::empty()).expect("a request");
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let exchange = Exchange::new(asked, Arc::new(Client::new(peer, peer, false, None)));
    for (name, condition) in [("with nothing", None), ("with method, header, priority", Some(condition))] {
        let mut table = Table::new();
        for n in 0..ROUTES {
            let rule = Match { condition: condition.clone(), ..rule(n, &[]) };
            let priority = if condition.is_some() { i32::try_from(n % 3).unwrap_or(0) } else { 0 };
            table.insert(&rule, priority, Arc::new(n)).expect("each path is used once");
        }
        let (mut next, mut path) = (0, String::with_capacity(64));
        c.bench_function(&format!("find among {ROUTES}, {name}"), |b| {
            b.iter(|| {
                next = (next + 7919) % ROUTES;
                path.clear();
                path.push_str("/svc/");
                path.push_str(itoa::Buffer::new().format(next));
                path.push_str("/a/b");
                let found = table.find(Some("api.test"), &path, |condition| condition.holds(&exchange));
                black_box(found).map(|found| found.matched)
            });
        });
    }
}

/// A thousand regexes on one host, none of which begins with text that tells them apart.
fn regexes(c: &mut Criterion) {
    let mut table = Table::new();
    for n in 0..1000 {
        let regex = regex::Regex::new(&format!("^(?:.*/item-{n}/[^/]+\\.json)$")).expect("is a regex");
        let rule = Match { hosts: Vec::new(), path: PathPattern::Regex(regex), condition: None };
        table.insert(&rule, 0, Arc::new(n)).expect("each is used once");
        if n == 999 {
            table.prepare(&rule);
        }
    }
    let mut next = 0;
    c.bench_function("find among 1000 regexes of one host", |b| {
        b.iter(|| {
            next = (next + 7) % 1000;
            let path = format!("/v1/item-{next}/a.json");
            black_box(table.find(Some("api.test"), &path, |_| true)).map(|found| found.matched)
        });
    });
}

fn changes(c: &mut Criterion) {
    for routes in [30, 100_000, 1_000_000] {
        let mut published = table(routes, &[]);
        let mut n = 0;
        c.bench_function(&format!("publish a removal and an addition among {routes}"), |b| {
            b.iter(|| {
                n = (n + 7919) % routes;
                // Each publication starts from a table that readers still hold, so nothing can be changed in place.
                let mut removed = published.clone();
                removed.remove(&rule(n, &[]), 0);
                let mut added = removed.clone();
                added.insert(&rule(n, &[]), 0, Arc::new(n)).expect("the place was freed just now");
                published = added;
            });
        });
    }
}

criterion_group!(benches, lookups, conditions, regexes, changes);
criterion_main!(benches);
