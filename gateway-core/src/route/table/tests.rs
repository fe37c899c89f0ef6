//! The table against a linear search that follows the rules word for word.

use std::cmp::Reverse;

use proptest::prelude::*;
use regex::Regex;

use super::*;
use crate::condition::Holds;
use crate::config::condition::{Use, compile, written};
use crate::config::pattern::PathTemplate;
use crate::http::body::Body;
use crate::http::exchange::{Client, ClientTls, Exchange};
use crate::route::literal::literal_start;
use crate::route::shapes::shape;

/// A pattern as a configuration has it: `*.x` or `x`; `~regex`, `=/exact`, `/with/{names}`, `/prefix` or nothing.
fn host(text: &str) -> HostPattern {
    match text.strip_prefix('*') {
        Some(suffix) => HostPattern::Suffix(suffix.into()),
        None => HostPattern::Exact(text.into()),
    }
}

fn path(text: &str) -> PathPattern {
    match (text.strip_prefix('~'), text.strip_prefix('=')) {
        (Some(regex), _) => {
            PathPattern::Regex(Regex::new(&format!("^(?:{regex})$")).expect("a test's own regex"))
        }
        (_, Some(exact)) => PathPattern::Exact(exact.into()),
        _ if text.is_empty() => PathPattern::HostOnly,
        _ if text.contains('{') => {
            PathPattern::Template(Arc::new(PathTemplate::parse(text).expect("a test's own template")))
        }
        _ => PathPattern::Prefix(text.into()),
    }
}

/// `GET`, `POST`, `GET h` and so on: a method, and `h` for a header that has to be there.
fn condition(text: &str) -> Option<Arc<Condition>> {
    let mut written = written::Condition::default();
    for word in text.split_whitespace() {
        match word {
            "h" => {
                let there = written::NamedText { present: Some(true), ..Default::default() };
                written.headers.insert("h".to_owned(), written::TextMatch::Named(there));
            }
            "s" => written.scheme = Some(written::Scheme::Https),
            "80" => written.ports.push(80),
            "!81" => {
                written.not = Some(Box::new(written::Condition { ports: vec![81], ..Default::default() }));
            }
            method => written.methods.push(method.to_owned()),
        }
    }
    let compiled = || compile(&written, "", Use::Route).expect("a test's own condition");
    (written != written::Condition::default()).then(|| Arc::new(compiled()))
}

fn rule(hosts: &[&str], text: &str, conditions: &str) -> Match {
    let hosts = hosts.iter().map(|text| host(text)).collect();
    Match { hosts, path: path(text), condition: condition(conditions) }
}

fn table(routes: &[(&[&str], &str)]) -> RouteTable<String> {
    let mut table = RouteTable::new();
    for (hosts, listen_path) in routes {
        let route = format!("{hosts:?}{listen_path}");
        table.insert(&rule(hosts, listen_path, ""), 0, route).expect("no conflict");
    }
    table
}

fn any(_: &Condition) -> bool {
    true
}

/// A host, a path, and which route takes how much of it.
type Request<'a> = (&'a str, &'a str, Option<(&'a str, usize)>);

fn check_table(table: &RouteTable<String>, requests: &[Request<'_>]) {
    for (host, path, expected) in requests {
        let found = table.find(Some(host), path, any).map(|found| (found.route.as_str(), found.matched));
        assert_eq!(found, *expected, "{host} {path}");
    }
}

fn check(routes: &[(&[&str], &str)], requests: &[Request<'_>]) {
    check_table(&table(routes), requests);
}

#[test]
fn longest_prefix_on_whole_segments() {
    check(
        &[(&[], "/"), (&[], "/a"), (&[], "/a/b/c")],
        &[
            ("h", "/", Some(("[]/", 0))),
            ("h", "/x", Some(("[]/", 0))),
            ("h", "/a", Some(("[]/a", 2))),
            ("h", "/a/", Some(("[]/a", 2))),
            ("h", "/ab", Some(("[]/", 0))),
            ("h", "/a/b", Some(("[]/a", 2))),
            ("h", "/a/b/c", Some(("[]/a/b/c", 6))),
            ("h", "/a/b/cd", Some(("[]/a", 2))),
            ("h", "/a//b/c", Some(("[]/a", 2))),
            ("h", "//a", Some(("[]/", 0))),
            ("h", "/A", Some(("[]/", 0))),
            ("h", "*", None),
            ("h", "", None),
        ],
    );
}

#[test]
fn tiers_of_hosts() {
    let routes: &[(&[&str], &str)] = &[
        (&["api.example.com"], "/v1"),
        (&["*.example.com"], "/v2"),
        (&["*.eu.example.com"], "/v2"),
        (&["*.example.com"], ""),
        (&[], "/v3"),
        (&[], "~/v[45]"),
    ];
    let whoever: &[Request<'_>] = &[
        ("api.example.com", "/v1/x", Some(("[\"api.example.com\"]/v1", 3))),
        ("API.Example.COM.:8080", "/v1", Some(("[\"api.example.com\"]/v1", 3))),
        ("a.eu.example.com", "/v2", Some(("[\"*.eu.example.com\"]/v2", 3))),
        ("eu.example.com", "/v2", Some(("[\"*.example.com\"]/v2", 3))),
        ("a.b.example.com", "/v9", Some(("[\"*.example.com\"]", 0))),
        ("example.com", "/v2", None),
        ("example.com", "/v3", Some(("[]/v3", 3))),
        ("example.com", "/v4", Some(("[]~/v[45]", 3))),
        ("[::1]:8000", "/v3", Some(("[]/v3", 3))),
        ("", "/v3", Some(("[]/v3", 3))),
        (".example.com", "/v2", None),
    ];
    let mut table = table(routes);
    check_table(&table, whoever);
    // A host with rules of its own is answered by them alone, unless the table falls through.
    check_table(&table, &[("api.example.com", "/v2", None), ("a.eu.example.com", "/v9", None)]);
    table.set_fall_through(true);
    check_table(&table, whoever);
    check_table(
        &table,
        &[
            ("api.example.com", "/v2", Some(("[\"*.example.com\"]/v2", 3))),
            ("a.eu.example.com", "/v9", Some(("[\"*.example.com\"]", 0))),
        ],
    );
    assert!(table.find(None, "/v3", any).is_some());
    assert!(table.find(None, "/v1", any).is_none());
    assert!(table.find(Some(&"a.".repeat(5000)), "/v3", any).is_some());
}

#[test]
fn kinds_of_paths_and_priorities() {
    check(
        &[
            (&[], "/a"),
            (&[], "=/a/b"),
            (&[], "/a/{x}"),
            (&[], "/{x}/b"),
            (&[], "/a/{x...}"),
            (&[], "~/a/b"),
            (&[], ""),
        ],
        &[
            ("h", "/a/b", Some(("[]=/a/b", 4))),
            ("h", "/a/c", Some(("[]/a/{x}", 4))),
            ("h", "/c/b", Some(("[]/{x}/b", 4))),
            ("h", "/a/c/d", Some(("[]/a/{x...}", 6))),
            ("h", "/a/", Some(("[]/a/{x...}", 3))),
            ("h", "/a", Some(("[]/a", 2))),
            ("h", "/c", Some(("[]", 0))),
        ],
    );
    let mut table = table(&[(&[], "=/a/b"), (&[], "/a")]);
    table.insert(&rule(&[], "~/a/.*", ""), 5, "regex".to_owned()).expect("is free");
    table.insert(&rule(&[], "", ""), -1, "last".to_owned()).expect("is free");
    let requests: &[Request<'_>] =
        &[("h", "/a/b", Some(("regex", 4))), ("h", "/a", Some(("[]/a", 2))), ("h", "/c", Some(("last", 0)))];
    check_table(&table, requests);
    assert!(table.remove(&rule(&[], "~/a/.*", ""), 0).is_none());
    assert_eq!(table.remove(&rule(&[], "~/a/.*", ""), 5).as_deref(), Some("regex"));
    check_table(&table, &[("h", "/a/b", Some(("[]=/a/b", 4)))]);
}

#[test]
fn conditions_and_ties() {
    let mut table = RouteTable::new();
    let mut put =
        |conditions: &str, priority, name| table.insert(&rule(&[], "/a", conditions), priority, name);
    put("", 0, "any").expect("is free");
    put("GET", 0, "get").expect("excludes none, and says more");
    put("POST", 0, "post").expect("excludes the other");
    put("GET h", 0, "get-h").expect("says more");
    assert_eq!(put("h", 0, "tie"), Err(Conflict::Taken));
    assert_eq!(put("", 0, "tie"), Err(Conflict::Taken));
    put("h", 1, "h").expect("has a priority of its own");
    let ask = |table: &RouteTable<&'static str>, method: &str, header: bool| {
        let exchange = exchange(method, header);
        table.find(None, "/a", |condition| condition.holds(&exchange)).map(|found| *found.route)
    };
    assert_eq!(ask(&table, "GET", true), Some("h"));
    assert_eq!(table.remove(&rule(&[], "/a", "h"), 1), Some("h"));
    let cases =
        [("GET", true, "get-h"), ("GET", false, "get"), ("POST", true, "post"), ("PUT", false, "any")];
    for (method, header, expected) in cases {
        assert_eq!(ask(&table, method, header), Some(expected), "{method} {header}");
    }
    for conditions in ["GET", "", "POST"] {
        assert!(table.remove(&rule(&[], "/a", conditions), 0).is_some(), "{conditions}");
    }
    assert_eq!(ask(&table, "PUT", true), None);
    assert_eq!(table.remove(&rule(&[], "/a", "GET h"), 0), Some("get-h"));
    assert!(table.is_empty());
}

fn exchange(method: &str, header: bool) -> Exchange {
    let mut request = http::Request::builder().method(method).uri("/");
    if header {
        request = request.header("h", "1");
    }
    at_port(request.body(Body::empty()).expect("is good"), 80, false)
}

fn at_port(request: http::Request<Body>, port: u16, is_tls: bool) -> Exchange {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let tls = is_tls.then(ClientTls::default);
    Exchange::new(request, Arc::new(Client::new(address, address, false, tls)))
}

#[test]
fn many_regexes_are_one_set() {
    let mut table = RouteTable::new();
    for n in 0..100 {
        table.insert(&rule(&[], &format!("~.*/{n}/(x|y)"), ""), 0, n).expect("is free");
    }
    table.insert(&rule(&[], "~.*/7/(?<last>z)", ""), 0, 1007).expect("is free");
    table.prepare(&rule(&[], "~.*/7/(x|y)", ""));
    for n in 0..100 {
        let path = format!("/a/{n}/y");
        let found = table.find(None, &path, any).expect("matches");
        assert_eq!((*found.route, found.matched), (n, path.len()));
        assert_eq!(found.captures(&path).expect("has a group").get("1"), Some("y"));
    }
    let found = table.find(None, "/7/z", any).expect("matches");
    assert_eq!(found.captures("/7/z").expect("has a name").get("last"), Some("z"));
    assert!(table.find(None, "/a/100/x", any).is_none());
}

#[test]
fn prefixes_before_regexes_before_host_only() {
    check(
        &[(&["h"], "/a"), (&["h"], "~/.*"), (&["h"], "~/a/(\\d+)/b"), (&["h"], "")],
        &[
            ("h", "/a/7/b", Some(("[\"h\"]/a", 2))),
            ("h", "/b", Some(("[\"h\"]~/.*", 2))),
            ("h", "*", Some(("[\"h\"]", 0))),
        ],
    );
    // The regex with the longer literal start wins, whichever came first.
    check(
        &[(&[], "~/.*"), (&[], "~/a/(\\d+)/b"), (&[], "~/a/.*"), (&[], "~/[a]/.*/.*")],
        &[
            ("h", "/a/7/b", Some(("[]~/a/(\\d+)/b", 6))),
            ("h", "/a/7/c", Some(("[]~/a/.*", 6))),
            ("h", "/x", Some(("[]~/.*", 2))),
        ],
    );
}

#[test]
fn captures_come_with_the_regex() {
    let table = table(&[(&[], "~/users/(?<id>[^/]+)/.*")]);
    let found = table.find(None, "/users/7/posts", any).expect("matches");
    assert_eq!(found.captures("/users/7/posts").expect("has a name").get("id"), Some("7"));
    assert_eq!(found.matched, "/users/7/posts".len());
    let table = self::table(&[(&[], "/users/{id}/{rest...}")]);
    let captures = table.find(None, "/users/7/a/b", any).and_then(|found| found.captures("/users/7/a/b"));
    let pairs: Vec<_> = captures.as_deref().map(|all| all.iter().collect()).unwrap_or_default();
    assert_eq!(pairs, [("id", "7"), ("rest", "a/b")]);
}

#[test]
fn deep_paths_are_cut_at_the_cap() {
    let deepest = "/a".repeat(MAX_SEGMENTS);
    let deeper = "/a".repeat(MAX_SEGMENTS + 1);
    let mut table = RouteTable::new();
    assert_eq!(table.insert(&rule(&[], &deeper, ""), 0, 0), Err(Conflict::TooDeep));
    table.insert(&rule(&[], &deepest, ""), 0, 1).expect("fits");
    let endless = "/a".repeat(10_000);
    for request in [&deepest, &deeper, &endless] {
        let found = table.find(None, request, any).expect("matches");
        assert_eq!((*found.route, found.matched), (1, deepest.len()));
    }
}

#[test]
fn a_host_is_served_on_the_listeners_that_its_rules_name() {
    let mut table = RouteTable::new();
    table.insert(&rule(&["a"], "/", "s"), 0, "a by TLS").expect("free");
    table.insert(&rule(&["*.c"], "/x", "80"), 0, "c on 80").expect("free");
    table.insert(&rule(&[], "/", ""), 0, "any").expect("free");
    let ask = |table: &RouteTable<&'static str>, host, path, port, is_tls| {
        let exchange = at_port(http::Request::new(Body::empty()), port, is_tls);
        table.find(Some(host), path, |condition| condition.holds(&exchange)).map(|found| *found.route)
    };
    assert_eq!(ask(&table, "a", "/", 443, true), Some("a by TLS"));
    assert_eq!(ask(&table, "a", "/", 80, false), Some("any"), "the host is not known without TLS");
    assert_eq!(ask(&table, "b.c", "/x", 80, false), Some("c on 80"));
    assert_eq!(ask(&table, "b.c", "/y", 80, false), None, "the host is known here, the path is not");
    assert_eq!(ask(&table, "b.c", "/x", 81, false), Some("any"));
    // One rule without such a condition, and the host is known everywhere.
    table.insert(&rule(&["a"], "/y", "GET"), 0, "a").expect("free");
    assert_eq!(ask(&table, "a", "/", 80, false), None);
    assert_eq!(table.remove(&rule(&["a"], "/y", "GET"), 0), Some("a"));
    assert_eq!(ask(&table, "a", "/", 80, false), Some("any"));
}

#[test]
fn a_conflict_changes_nothing() {
    let mut table = RouteTable::new();
    let (a, b) = (rule(&["a"], "/x", ""), rule(&["b", "a"], "/x", ""));
    table.insert(&a, 0, 1).expect("free");
    assert_eq!(table.insert(&b, 0, 2), Err(Conflict::Taken));
    assert!(table.find(Some("b"), "/x", any).is_none());
    assert_eq!(table.find(Some("a"), "/x", any).map(|found| *found.route), Some(1));
    assert_eq!(table.remove(&b, 0), Some(1));
    assert!(table.is_empty());
}

#[derive(Debug, Clone)]
struct Rule {
    rule: Match,
    priority: i32,
    number: usize,
}

/// The rules, read aloud: try each tier; in it the highest priority, the better kind of path, the longer, the one with
/// more conditions.
fn naive(
    rules: &[Rule],
    falls_through: bool,
    name: &str,
    path: &str,
    exchange: &Exchange,
) -> Option<(usize, usize)> {
    let tier = |wanted: Option<&HostPattern>| -> Vec<&Rule> {
        let is_in = |rule: &&Rule| match wanted {
            None => rule.rule.hosts.is_empty(),
            Some(wanted) => rule.rule.hosts.contains(wanted),
        };
        let is_here = |rule: &&Rule| {
            let listener = rule.rule.condition.as_ref().and_then(|condition| condition.of_listener());
            listener.is_none_or(|listener| listener.holds(exchange))
        };
        let all: Vec<&Rule> = rules.iter().filter(is_in).collect();
        // A host that is served on other listeners only is not known on this one.
        if all.iter().any(is_here) { all } else { Vec::new() }
    };
    let mut tiers = vec![tier(Some(&HostPattern::Exact(name.into())))];
    for (dot, _) in name.match_indices('.') {
        let (_, suffix) = name.split_at(dot);
        tiers.push(tier(Some(&HostPattern::Suffix(suffix.into()))));
    }
    tiers.push(tier(None));
    tiers.retain(|rules| !rules.is_empty());
    if !falls_through {
        tiers.truncate(1);
    }
    tiers.iter().find_map(|rules| {
        let holds = |rule: &&&Rule| {
            rule.rule.path.covers(path) && rule.rule.condition.as_ref().is_none_or(|c| c.holds(exchange))
        };
        let best = rules.iter().filter(holds).min_by_key(|rule| rank(rule))?;
        let matched = match &best.rule.path {
            PathPattern::HostOnly => 0,
            PathPattern::Prefix(prefix) if **prefix == *"/" => 0,
            PathPattern::Prefix(prefix) => prefix.len(),
            _ => path.len(),
        };
        Some((best.number, matched))
    })
}

type Rank = (Reverse<i32>, u8, Reverse<usize>, Vec<u8>, Reverse<usize>, String, Reverse<usize>);

fn rank(rule: &Rule) -> Rank {
    let weight = rule.rule.condition.as_ref().map_or(0, |condition| condition.weight());
    let (kind, long, shape, length, text) = match &rule.rule.path {
        PathPattern::Exact(_) => (0, 0, vec![], 0, String::new()),
        PathPattern::Template(template) => (1, 0, shape(template), 0, String::new()),
        PathPattern::Prefix(prefix) if **prefix == *"/" => (2, 0, vec![], 0, String::new()),
        PathPattern::Prefix(prefix) => (2, prefix.len(), vec![], 0, String::new()),
        PathPattern::Regex(regex) => {
            let start = literal_start(regex.as_str());
            let segments = if start == "/" { 0 } else { start.matches('/').count() };
            (3, segments, vec![], regex.as_str().len(), regex.as_str().to_owned())
        }
        PathPattern::HostOnly => (4, 0, vec![], 0, String::new()),
    };
    (Reverse(rule.priority), kind, Reverse(long), shape, Reverse(length), text, Reverse(weight))
}

fn any_hosts() -> impl Strategy<Value = Vec<HostPattern>> {
    proptest::collection::btree_set("(\\*\\.)?([ab]\\.){0,2}c", 0..3)
        .prop_map(|texts| texts.iter().map(|text| host(text)).collect())
}

fn any_path() -> impl Strategy<Value = PathPattern> {
    let text = prop_oneof![
        5 => "(/[ab]{1,2}){1,4}",
        2 => "=(/[ab]{1,2}){1,3}/?",
        3 => ("(/([ab]|\\{n\\}|\\{m\\})){0,2}", proptest::sample::select(vec!["/{x}", "/{x...}", "/{x}/", "/{x}/a"]))
            .prop_filter("a name stands once", |(start, _)| {
                start.matches("{n}").count() < 2 && start.matches("{m}").count() < 2
            })
            .prop_map(|(start, end)| format!("{start}{end}")),
        1 => Just("/".to_owned()),
        1 => Just(String::new()),
        4 => ("(/[ab]{1,2}){0,2}", "(/[ab]{1,2}|/\\(a\\|b\\)|/\\[ab\\][+*]){0,2}",
              proptest::sample::select(vec!["/.*", "/(a|b)", "/[ab]+/?", "/a?b", "/aa*", ".*b"]))
            .prop_map(|(start, middle, end)| format!("~{start}{middle}{end}")),
    ];
    text.prop_map(|text| path(&text))
}

fn any_rule() -> impl Strategy<Value = (Match, i32)> {
    let conditions = proptest::sample::select(vec![
        "", "", "", "GET", "POST", "h", "GET h", "GET POST", "s", "80", "!81", "s 80", "GET s",
    ]);
    let priority = prop_oneof![6 => Just(0), 1 => -1i32..3];
    (any_hosts(), any_path(), conditions, priority).prop_map(|(hosts, path, conditions, priority)| {
        (Match { hosts, path, condition: condition(conditions) }, priority)
    })
}

/// How many tables are tried; each is asked 30 times. `FERRUM_ROUTE_TABLES=34000` asks more than a million times.
fn tables() -> u32 {
    std::env::var("FERRUM_ROUTE_TABLES").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(tables()))]

    #[test]
    fn agrees_with_a_linear_search(
        wishes in proptest::collection::vec((any_rule(), 0u8..8), 1..60),
        falls_through in proptest::bool::ANY,
        requests in proptest::collection::vec(
            ("([ab]\\.){0,2}c", "(/[ab]{0,2}){1,5}", proptest::sample::select(vec!["GET", "POST", "PUT"]), proptest::bool::ANY,
             (80u16..82, proptest::bool::ANY)),
            30,
        ),
    ) {
        let mut table = RouteTable::new();
        table.set_fall_through(falls_through);
        let mut rules: Vec<Rule> = Vec::new();
        for (number, ((rule, priority), fate)) in wishes.into_iter().enumerate() {
            match table.insert(&rule, priority, number) {
                Ok(()) => rules.push(Rule { rule, priority, number }),
                Err(error) => prop_assert_eq!(error, Conflict::Taken),
            }
            if fate == 0 && !rules.is_empty() {
                let gone = rules.swap_remove(number % rules.len());
                prop_assert_eq!(table.remove(&gone.rule, gone.priority), Some(gone.number));
            }
        }
        for (host, path, method, header, listener) in &requests {
            let request = exchange(method, *header).request;
            let (port, is_tls) = *listener;
            let exchange = at_port(http::Request::from_parts(request, Body::empty()), port, is_tls);
            let found = table.find(Some(host), path, |condition| condition.holds(&exchange));
            let found = found.map(|found| (*found.route, found.matched));
            prop_assert_eq!(found, naive(&rules, falls_through, host, path, &exchange), "{} {} {}", host, path, method);
        }
        for Rule { rule, priority, number } in rules {
            prop_assert_eq!(table.remove(&rule, priority), Some(number));
        }
        prop_assert!(table.is_empty());
    }
}
