//! What finding a route costs among few and among many, and what changing one costs.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use gateway_core::config::model::{HostPattern, PathPattern};
use gateway_core::route::RouteTable;

type Table = RouteTable<Arc<usize>>;

fn prefix(n: usize) -> PathPattern {
    PathPattern::Prefix(format!("/svc/{n}").into())
}

fn table(routes: usize, hosts: &[HostPattern]) -> Table {
    let mut table = RouteTable::new();
    for n in 0..routes {
        table.insert(hosts, &prefix(n), Arc::new(n)).expect("each path is used once");
    }
    table
}

fn lookups(c: &mut Criterion) {
    for routes in [30, 100_000] {
        let paths: Vec<String> = (0..routes).map(|n| format!("/svc/{n}/a/b")).collect();
        for (name, hosts) in [("any host", vec![]), ("one host", vec![HostPattern::Exact("api.test".into())])]
        {
            let table = table(routes, &hosts);
            let mut next = 0;
            c.bench_function(&format!("find among {routes}, {name}"), |b| {
                b.iter(|| {
                    // A stride coprime to both sizes visits all of them in a spread order.
                    next = (next + 7919) % routes;
                    black_box(table.find(Some("api.test"), &paths[next])).map(|found| found.matched)
                });
            });
        }
    }
    let mut root = Table::new();
    root.insert(&[], &PathPattern::Prefix("/".into()), Arc::new(0)).expect("the table is empty");
    c.bench_function("find among 1", |b| {
        b.iter(|| black_box(root.find(Some("localhost:8000"), "/api/users")).map(|found| found.matched));
    });
}

fn changes(c: &mut Criterion) {
    for routes in [30, 100_000, 1_000_000] {
        let mut published = table(routes, &[]);
        let mut n = routes;
        c.bench_function(&format!("publish one more among {routes}"), |b| {
            b.iter(|| {
                n += 1;
                // Each publication starts from a table that readers still hold, so nothing can be changed in place.
                let mut table = published.clone();
                table.insert(&[], &prefix(n), Arc::new(n)).expect("each path is used once");
                published = table;
            });
        });
    }
}

criterion_group!(benches, lookups, changes);
criterion_main!(benches);
