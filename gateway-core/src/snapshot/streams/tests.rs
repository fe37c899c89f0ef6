//! Which proxy of a shared port takes a client, and what finding it costs.

use std::cell::Cell;
use std::fmt::Write as _;

use tokio::time::Instant;

use super::*;
use crate::config::file::{NoReferences, Origin};
use crate::config::problem::Problems;
use crate::config::resolve;
use crate::plugin::Registry;
use crate::snapshot::compile::Compiler;
use crate::snapshot::{Route, Snapshot};

fn snapshot(proxies: &str) -> Snapshot {
    let origin = Origin { name: "test.yaml".to_owned(), ..Origin::default() };
    let text = format!("proxies:\n{proxies}");
    let accepts = |_: &str, _: &serde_json::Value| Ok(());
    let model = resolve::load(&text, &origin, &NoReferences, &accepts, |_| Problems::default()).unwrap();
    Compiler::new(Registry::new(&[]))
        .compile(&model, &Snapshot::empty(Arc::default()), Instant::now())
        .snapshot
}

/// Proxies on port 5000: each an id and its settings.
fn on_one_port(proxies: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (id, settings) in proxies {
        writeln!(
            text,
            "  - {{id: {id}, backend_scheme: tcp, backend_host: h, backend_port: 1, listen_port: 5000, passthrough: true{settings}}}"
        )
        .unwrap();
    }
    text
}

/// The id of the proxy that takes a client; `-` for none.
fn find(snapshot: &Snapshot, name: Option<&str>, alpn: &[&str]) -> String {
    let alpn: Vec<Vec<u8>> = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let route = snapshot.streams.on(Transport::Tcp, 5000).and_then(|port| port.find(name, &alpn));
    route.map_or_else(|| "-".to_owned(), |route| route.proxy.id.to_string())
}

#[test]
fn specific_names_go_first_then_protocols_in_the_clients_order() {
    let snapshot = snapshot(&on_one_port(&[
        ("rest", ""),
        ("deep", ", hosts: ['*.b.example']"),
        ("wide", ", hosts: ['*.example', other.test]"),
        ("one", ", hosts: [a.b.example]"),
        ("two", ", hosts: [a.b.example], alpn: [h2, h3]"),
        ("old", ", hosts: [a.b.example], alpn: [http/1.1]"),
        ("mail", ", alpn: [imap]"),
        ("grpc", ", hosts: [c.b.example], alpn: [h2]"),
    ]));
    for (name, alpn, expected) in [
        (Some("a.b.example"), &[][..], "one"),
        (Some("A.B.example."), &[], "one"),
        (Some("a.b.example"), &["h2", "http/1.1"], "two"),
        (Some("a.b.example"), &["http/1.1", "h2"], "old"),
        (Some("a.b.example"), &["imap"], "one"),
        (Some("x.b.example"), &["h2"], "deep"),
        (Some("y.x.b.example"), &[], "deep"),
        (Some("b.example"), &[], "wide"),
        (Some("example"), &[], "rest"),
        (Some(".example"), &[], "rest"),
        (Some("other.test"), &[], "wide"),
        (Some("x.other.test"), &["h2", "imap"], "mail"),
        (Some("c.b.example"), &["h2"], "grpc"),
        // The exact name's only proxy takes other clients: the wildcard has those.
        (Some("c.b.example"), &["http/1.1"], "deep"),
        (None, &[], "rest"),
        (None, &["imap"], "mail"),
        (Some(""), &[], "rest"),
    ] {
        assert_eq!(find(&snapshot, name, alpn), expected, "{name:?} {alpn:?}");
    }
}

#[test]
fn nobody_takes_what_no_proxy_asks_for() {
    let snapshot = snapshot(&on_one_port(&[("a", ", hosts: [a.example]"), ("b", ", alpn: [h2]")]));
    assert_eq!(find(&snapshot, Some("b.example"), &["h3"]), "-");
    assert_eq!(find(&snapshot, None, &[]), "-");
    let port = snapshot.streams.on(Transport::Tcp, 5000).unwrap();
    assert!(port.asks_for_name() && port.asks_for_alpn() && !port.accepts_proxy_headers());
    assert!(port.only().is_none() && port.routes().count() == 2);
}

/// A route that counts how often somebody looks at it.
struct Counted {
    route: Arc<Route>,
    looks: Cell<usize>,
}

impl Deref for Counted {
    type Target = ProxyState;

    fn deref(&self) -> &ProxyState {
        self.looks.set(self.looks.get() + 1);
        &self.route
    }
}

/// A table of `count` names: each proxy an exact name, every tenth a wildcard, too.
fn counted(count: usize) -> (StreamTable<Counted>, Vec<Arc<Counted>>) {
    let mut text = String::from(
        "  - {id: rest, backend_scheme: tcp, backend_host: h, backend_port: 1, listen_port: 5000, passthrough: true}\n",
    );
    for n in 0..count {
        let wildcard = if n % 10 == 0 { format!(", '*.w{n}.example'") } else { String::new() };
        writeln!(
            text,
            "  - {{id: p{n}, backend_scheme: tcp, backend_host: h, backend_port: 1, listen_port: 5000, \
             passthrough: true, hosts: [n{n}.example{wildcard}]}}"
        )
        .unwrap();
    }
    let snapshot = snapshot(&text);
    let routes =
        snapshot.by_id.iter().map(|(_, route)| Counted { route: route.clone(), looks: Cell::new(0) });
    let routes: Vec<Arc<Counted>> = routes.map(Arc::new).collect();
    let mut table = StreamTable::default();
    routes.iter().for_each(|route| table.insert(route));
    (table, routes)
}

#[test]
fn selecting_among_ten_thousand_names_looks_at_no_proxy() {
    let (table, routes) = counted(10_000);
    routes.iter().for_each(|route| route.looks.set(0));
    let port = table.on(Transport::Tcp, 5000).unwrap();
    assert!(port.asks_for_name() && !port.asks_for_alpn() && !port.accepts_proxy_headers());
    assert!(port.starttls().is_none());
    let found =
        ["n0.example", "n9999.example", "a.w9990.example", "a.b.w10.example", "a.w11.example", "none"]
            .map(|name| port.find(Some(name), &[]).unwrap().clone());
    assert_eq!(routes.iter().map(|route| route.looks.get()).sum::<usize>(), 0);
    let ids = found.map(|route| route.proxy.id.to_string());
    assert_eq!(ids, ["p0", "p9999", "p9990", "p10", "rest", "rest"]);
}

#[test]
fn a_change_among_ten_thousand_names_looks_at_its_own_proxy() {
    let (mut table, routes) = counted(10_000);
    let other = table.clone();
    routes.iter().for_each(|route| route.looks.set(0));
    let one = routes.iter().find(|route| route.route.proxy.id.as_str() == "p70").unwrap();
    table.remove(one);
    let looks = |of: &dyn Fn(&&Arc<Counted>) -> bool| -> usize {
        routes.iter().filter(of).map(|route| route.looks.get()).sum()
    };
    assert_eq!(looks(&|route| !Arc::ptr_eq(route, one)), 0);
    let find = |table: &StreamTable<Counted>, name| {
        table.on(Transport::Tcp, 5000).unwrap().find(Some(name), &[]).unwrap().route.proxy.id.to_string()
    };
    assert_eq!([find(&table, "n70.example"), find(&table, "x.w70.example")], ["rest", "rest"]);
    assert_eq!([find(&other, "n70.example"), find(&other, "x.w70.example")], ["p70", "p70"]);
    table.insert(one);
    assert_eq!([find(&table, "n70.example"), find(&table, "x.w70.example")], ["p70", "p70"]);
}

#[test]
fn a_port_is_gone_after_its_last_proxy() {
    let (mut table, routes) = counted(1);
    for route in &routes {
        table.remove(route);
        table.remove(route);
    }
    assert!(table.on(Transport::Tcp, 5000).is_none() && table.ports().next().is_none());
}
