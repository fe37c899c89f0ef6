//! What finding a route costs among few and among many, and what changing one costs.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use gateway_core::config::model::{HostPattern, Match, PathPattern};
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

criterion_group!(benches, lookups, regexes, changes);
criterion_main!(benches);
