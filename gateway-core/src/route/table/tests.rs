//! The table against a linear search that follows the rules word for word.

use proptest::prelude::*;

use super::*;

/// A pattern as a configuration has it: `*.x` or `x`; `~regex`, `/prefix` or nothing.
fn host(text: &str) -> HostPattern {
    match text.strip_prefix('*') {
        Some(suffix) => HostPattern::Suffix(suffix.into()),
        None => HostPattern::Exact(text.into()),
    }
}

fn path(text: &str) -> PathPattern {
    match text.strip_prefix('~') {
        Some(regex) => PathPattern::Regex(Regex::new(&format!("^(?:{regex})$")).expect("a test's own regex")),
        None if text.is_empty() => PathPattern::HostOnly,
        None => PathPattern::Prefix(text.into()),
    }
}

fn table(routes: &[(&[&str], &str)]) -> RouteTable<String> {
    let mut table = RouteTable::new();
    for (hosts, listen_path) in routes {
        let patterns: Vec<_> = hosts.iter().map(|text| host(text)).collect();
        table.insert(&patterns, &path(listen_path), format!("{hosts:?}{listen_path}")).expect("no conflict");
    }
    table
}

/// A host, a path, and which route takes how much of it.
type Request<'a> = (&'a str, &'a str, Option<(&'a str, usize)>);

fn check(routes: &[(&[&str], &str)], requests: &[Request<'_>]) {
    let table = table(routes);
    for (host, path, expected) in requests {
        let found = table.find(Some(host), path).map(|found| (found.route.as_str(), found.matched));
        assert_eq!(found, *expected, "{host} {path}");
    }
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
    check(
        routes,
        &[
            ("api.example.com", "/v1/x", Some(("[\"api.example.com\"]/v1", 3))),
            ("API.Example.COM.:8080", "/v1", Some(("[\"api.example.com\"]/v1", 3))),
            ("api.example.com", "/v2", Some(("[\"*.example.com\"]/v2", 3))),
            ("a.eu.example.com", "/v2", Some(("[\"*.eu.example.com\"]/v2", 3))),
            ("eu.example.com", "/v2", Some(("[\"*.example.com\"]/v2", 3))),
            ("a.b.example.com", "/v9", Some(("[\"*.example.com\"]", 0))),
            ("example.com", "/v2", None),
            ("example.com", "/v3", Some(("[]/v3", 3))),
            ("example.com", "/v4", Some(("[]~/v[45]", 3))),
            ("[::1]:8000", "/v3", Some(("[]/v3", 3))),
            ("", "/v3", Some(("[]/v3", 3))),
            (".example.com", "/v2", None),
        ],
    );
    let table = table(routes);
    assert!(table.find(None, "/v3").is_some());
    assert!(table.find(None, "/v1").is_none());
    assert!(table.find(Some(&"a.".repeat(5000)), "/v3").is_some());
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
    let found = table.find(None, "/users/7/posts").expect("matches");
    let captures = found.regex.expect("by regex").captures("/users/7/posts").expect("matches again");
    assert_eq!(&captures["id"], "7");
    assert_eq!(found.matched, "/users/7/posts".len());
}

#[test]
fn deep_paths_are_cut_at_the_cap() {
    let deepest = "/a".repeat(MAX_SEGMENTS);
    let deeper = "/a".repeat(MAX_SEGMENTS + 1);
    let mut table = RouteTable::new();
    assert_eq!(table.insert(&[], &path(&deeper), 0), Err(Conflict::TooDeep));
    table.insert(&[], &path(&deepest), 1).expect("fits");
    let endless = "/a".repeat(10_000);
    for request in [&deepest, &deeper, &endless] {
        let found = table.find(None, request).expect("matches");
        assert_eq!((*found.route, found.matched), (1, deepest.len()));
    }
}

#[test]
fn a_conflict_changes_nothing() {
    let mut table = RouteTable::new();
    let (a, b) = ([host("a")], [host("b"), host("a")]);
    table.insert(&a, &path("/x"), 1).expect("free");
    assert_eq!(table.insert(&b, &path("/x"), 2), Err(Conflict::Taken));
    assert!(table.find(Some("b"), "/x").is_none());
    assert_eq!(table.replace(&b, &path("/x"), 3), Some(1));
    assert!(table.find(Some("b"), "/x").is_none());
    assert_eq!(table.find(Some("a"), "/x").map(|found| *found.route), Some(3));
    assert_eq!(table.remove(&b, &path("/x")), Some(3));
    assert!(table.is_empty());
}

#[derive(Debug, Clone)]
struct Rule {
    hosts: Vec<HostPattern>,
    path: PathPattern,
    number: usize,
}

/// The rules, read aloud: try each tier; in it the longest prefix, the best regex, the route without a path.
fn naive<'r>(rules: &'r [Rule], name: &str, path: &str) -> Option<(usize, usize)> {
    let tier = |wanted: Option<&HostPattern>| -> Vec<&'r Rule> {
        let stands = |rule: &&Rule| match wanted {
            None => rule.hosts.is_empty(),
            Some(wanted) => rule.hosts.contains(wanted),
        };
        rules.iter().filter(stands).collect()
    };
    let mut tiers = vec![tier(Some(&HostPattern::Exact(name.into())))];
    for (dot, _) in name.match_indices('.') {
        let (_, suffix) = name.split_at(dot);
        tiers.push(tier(Some(&HostPattern::Suffix(suffix.into()))));
    }
    tiers.push(tier(None));
    tiers.iter().find_map(|rules| in_tier(rules, path))
}

fn in_tier(rules: &[&Rule], path: &str) -> Option<(usize, usize)> {
    let prefix_length = |rule: &&&Rule| match &rule.path {
        PathPattern::Prefix(prefix) if **prefix == *"/" => Some(0),
        PathPattern::Prefix(prefix) => {
            let rest = path.strip_prefix(&**prefix)?;
            (rest.is_empty() || rest.starts_with('/')).then_some(prefix.len())
        }
        _ => None,
    };
    let regex = |rule: &&&Rule| match &rule.path {
        PathPattern::Regex(regex) if regex.is_match(path) => {
            let start = literal_start(regex.as_str());
            let segments = if start == "/" { 0 } else { start.matches('/').count() };
            let length = regex.as_str().len();
            Some((segments, length, std::cmp::Reverse(regex.as_str().to_owned())))
        }
        _ => None,
    };
    let longest = rules.iter().filter(|rule| prefix_length(rule).is_some()).max_by_key(prefix_length);
    if let Some(rule) = longest {
        return Some((rule.number, prefix_length(&rule).unwrap_or(0)));
    }
    let best = rules.iter().filter(|rule| regex(rule).is_some()).max_by_key(regex);
    if let Some(rule) = best {
        return Some((rule.number, path.len()));
    }
    let host_only = rules.iter().find(|rule| matches!(rule.path, PathPattern::HostOnly));
    host_only.map(|rule| (rule.number, 0))
}

fn any_hosts() -> impl Strategy<Value = Vec<HostPattern>> {
    proptest::collection::vec("(\\*\\.)?([ab]\\.){0,2}c".prop_map(|text| host(&text)), 0..3).prop_map(
        |mut hosts| {
            let mut seen = std::collections::HashSet::new();
            hosts.retain(|host| seen.insert(host.clone()));
            hosts
        },
    )
}

fn any_path() -> impl Strategy<Value = PathPattern> {
    let text = prop_oneof![
        6 => "(/[ab]{1,2}){1,4}",
        1 => Just("/".to_owned()),
        1 => Just(String::new()),
        3 => ("(/[ab]{1,2}){0,2}", proptest::sample::select(vec!["/.*", "/(a|b)", "/[ab]+/?", "/a?b", "/aa*"]))
            .prop_map(|(start, end)| format!("~{start}{end}")),
    ];
    text.prop_map(|text| path(&text))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn agrees_with_a_linear_search(
        wishes in proptest::collection::vec((any_hosts(), any_path(), 0u8..8), 1..40),
        requests in proptest::collection::vec(("([ab]\\.){0,2}c", "(/[ab]{0,2}){1,5}"), 30),
    ) {
        let mut table = RouteTable::new();
        let mut rules: Vec<Rule> = Vec::new();
        for (number, (hosts, path, fate)) in wishes.into_iter().enumerate() {
            let before = table.clone();
            match table.insert(&hosts, &path, number) {
                Ok(()) => rules.push(Rule { hosts, path, number }),
                Err(_) => table = before,
            }
            if fate == 0 && !rules.is_empty() {
                let gone = rules.swap_remove(number % rules.len());
                prop_assert_eq!(table.remove(&gone.hosts, &gone.path), Some(gone.number));
            }
            if fate == 1 && let Some(rule) = rules.last_mut() {
                let old = rule.number;
                rule.number += 1000;
                prop_assert_eq!(table.replace(&rule.hosts, &rule.path, rule.number), Some(old));
            }
        }
        for (host, path) in &requests {
            let found = table.find(Some(host), path).map(|found| (*found.route, found.matched));
            prop_assert_eq!(found, naive(&rules, host, path), "{} {}", host, path);
        }
        for rule in rules.drain(..) {
            table.remove(&rule.hosts, &rule.path);
        }
        prop_assert!(table.is_empty());
    }
}
