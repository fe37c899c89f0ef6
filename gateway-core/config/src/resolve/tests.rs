//! Resolving, as people see it: what good documents mean, and what is said of bad ones.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::consumer::digest;
use crate::credential::{CredentialTypes, samples};
use crate::file::{NoReferences, Origin, References};
use crate::model::{BackendHttp, Backoff, HostPattern, PathPattern, Scheme, Traffic};
use crate::model::{Credential, Id};

mod effects;
mod parts;
mod streams;

struct Registry;

impl PluginCheck for Registry {
    fn check(
        &self,
        _plugin_name: &str,
        _id: Option<&Id>,
        config: &serde_json::Value,
    ) -> Result<CheckedPlugin, Problems> {
        match config.get("limit").is_some_and(|limit| !limit.is_number()) {
            true => Err(Problems::one("limit", "this has to be a number")),
            false => Ok(None),
        }
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(["cors", "key_auth", "rate_limiting"].map(str::to_owned).to_vec())
    }

    fn credential_types(&self) -> Option<CredentialTypes> {
        Some([&samples::KEY, &samples::PASSWORD, &samples::TOKEN, &samples::IDENTITY].into_iter().collect())
    }
}

fn resolved(name: &str, text: &str) -> Result<Model, Problems> {
    let origin = Origin { name: name.to_owned(), folder: "/etc/ferrum".into(), format: None };
    load(text, &origin, &NoReferences, &Registry, |_| Problems::default())
}

fn good(text: &str) -> Model {
    match resolved("good.yaml", text) {
        Ok(model) => model,
        Err(problems) => panic!("{problems}"),
    }
}

/// A proxy with these further lines.
fn proxy_with(lines: &str) -> String {
    let lines = lines.replace('\n', "\n    ");
    format!("proxies:\n  - id: p\n    backend_host: h\n    backend_port: 1\n    {lines}\n")
}

fn refused(text: &str, expected: &str) {
    match resolved("f", text) {
        Ok(_) => panic!("this was accepted:\n{text}"),
        Err(problems) => assert_eq!(problems.to_string(), expected, "in\n{text}"),
    }
}

#[test]
fn everything_wrong_is_told_at_once() {
    let problems =
        resolved("bad.yaml", include_str!("tests/everything-wrong.yaml")).expect_err("all is wrong");
    assert_eq!(format!("{problems}\n"), include_str!("tests/everything-wrong.txt"));
}

#[test]
fn json_has_lines_too() {
    let text = "{\"proxies\": [\n {\"id\": \"a\",\n  \"listen_path\": \"/a\", \"backend_host\": \"h\",\n  \
                \"backend_port\": 0, \"id\": \"b\"},\n {\"id\": \"c\", \"listen_path\": \"/a\",\n \
                \"backend_host\": \"h:80\", \"backend_port\": 80}\n]}";
    refused(
        text,
        "f:4: proxies[0].id: duplicate key, first used on line 2 (keep one of the two)\n\
         f:4: proxies[0].backend_port: 0 is out of range (1 to 65535)\n\
         f:6: proxies[1].backend_host: `h:80` is not a host (write `h`, and 80 as the port)",
    );
}

#[test]
fn texts_that_are_no_documents() {
    refused(
        "{\"a\": ]}",
        "f:1: this is not JSON: expected value at line 1 column 7 (a value is a text in double quotes, a number, true, false, null, a list or a map)",
    );
    refused(
        "{\"a\": [1,\n]}",
        "f:2: this is not JSON: expected value at line 2 column 1 (remove the comma before it)",
    );
    refused(
        "a: 1\n b: 2",
        "f:2: this is not YAML: mapping values are not allowed in this context (keys of one item begin in the same column; put a text with `: ` in quotes)",
    );
    refused(
        "a\n",
        "f:1: expected a map, found a string (a configuration has sections such as `gateway:` and `proxies:`)",
    );
    refused(
        "a: *b",
        "f:1: this is not YAML: while parsing node, found unknown anchor (put a text that begins with `*` in quotes, as `'*.example.com'`, or define the anchor before it)",
    );
    refused(
        "proxies: 5",
        "f:1: proxies: expected a list, found a number (begin each proxy with `- id: NAME`)",
    );
    refused(
        "---\nproxies: []\n---\nproxies: []\n",
        "f:3: a second document begins; one is read (remove the line `---`)",
    );
    let deep: String = (0..70).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    refused(&deep, "f:66: there are more than 64 nested levels (write it flatter)");
    refused("? [a]\n: b\n", "f:1: a key has to be plain text (put `{{ … }}` of a template in quotes)");
    for empty in ["", "# nothing yet\n", "proxies:\n", "{}"] {
        assert!(good(empty).proxies.is_empty());
    }
}

#[test]
fn aliases_are_bounded() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..9 {
        let alias = format!("*a{}", n - 1);
        bomb.push_str(&format!("a{n}: &a{n} [{}]\n", [alias.as_str(); 10].join(", ")));
    }
    let problems = resolved("f", &bomb).expect_err("a bomb");
    assert!(
        problems.to_string().contains("anchors and aliases unfold to more than 100000 values"),
        "{problems}"
    );
    let deep = "[".repeat(500) + &"]".repeat(500);
    let problems = resolved("f.yaml", &deep).expect_err("too deep");
    assert!(problems.to_string().contains("recursion limit exceeded"), "{problems}");
}

#[test]
fn anchors_and_merges_are_understood() {
    let model = good(
        "proxies:\n  - &base {id: a, listen_path: /a, backend_host: h, backend_port: 1, backend_connect_timeout: 7ms}\n  \
         - {<<: *base, id: b, listen_path: /b}\n",
    );
    assert_eq!(model.proxies[1].id.as_str(), "b");
    assert_eq!(model.proxies[1].timeouts.connect, Duration::from_millis(7));
}

#[test]
fn the_smallest_proxy_has_every_default() {
    let model = good(&proxy_with("listen_path: /"));
    let proxy = &model.proxies[0];
    assert_eq!((proxy.backend.scheme, proxy.backend.http_version), (Scheme::Http, BackendHttp::Auto));
    assert_eq!(proxy.timeouts, Default::default());
    assert_eq!(proxy.retry, Default::default());
    assert!(proxy.backend.tls.is_none() && proxy.circuit_breaker.is_none() && proxy.plugins.is_empty());
    assert_eq!(proxy.backend.upstream.id.as_str(), "p");
    assert_eq!(*model.settings, Default::default());
}

#[test]
fn older_spellings_of_the_backend() {
    let cases = [
        ("http", Scheme::Http, BackendHttp::Auto),
        ("https", Scheme::Https, BackendHttp::Auto),
        ("ws", Scheme::Http, BackendHttp::Auto),
        ("wss", Scheme::Https, BackendHttp::Auto),
        ("grpc", Scheme::Http, BackendHttp::Http2),
        ("grpcs", Scheme::Https, BackendHttp::Http2),
        ("h3", Scheme::Https, BackendHttp::Http3),
    ];
    for (protocol, scheme, version) in cases {
        let model = good(&proxy_with(&format!("listen_path: /\nbackend_protocol: {protocol}")));
        let backend = &model.proxies[0].backend;
        assert_eq!((backend.scheme, backend.http_version), (scheme, version), "{protocol}");
    }
    for (protocol, scheme) in
        [("tcp", Scheme::Tcp), ("tcp_tls", Scheme::Tcps), ("udp", Scheme::Udp), ("dtls", Scheme::Dtls)]
    {
        let lines = format!("listen_path: \"\"\nlisten_port: 5000\nbackend_protocol: {protocol}");
        assert_eq!(good(&proxy_with(&lines)).proxies[0].backend.scheme, scheme, "{protocol}");
    }
}

#[test]
fn both_spellings_are_refused() {
    refused(
        &proxy_with("listen_path: /\nbackend_scheme: http\nbackend_protocol: http"),
        "f:7: proxies[0].backend_protocol: `backend_scheme` says this already, in the newer spelling \
         (keep one of the two)",
    );
    let two = "proxies:\n  - {id: a, listen_path: /a, backend_protocol: ws, backend_host: h, backend_port: 1}\n  \
               - {id: b, listen_path: /b, backend_scheme: http, backend_host: h, backend_port: 1}\n";
    refused(
        two,
        "f:3: proxies[1].backend_scheme: proxies[0] has the other spelling, `backend_protocol` \
         (use one of the two in the whole document; `backend_scheme` is the newer)",
    );
}

#[test]
fn timeouts_of_either_kind() {
    let timeouts = |lines: &str| *good(&proxy_with(&format!("listen_path: /\n{lines}"))).proxies[0].timeouts;
    let read = timeouts("backend_read_timeout_ms: 9");
    assert_eq!((read.first_byte, read.idle), (Duration::from_millis(9), Duration::from_millis(9)));
    let both = timeouts("backend_read_timeout_ms: 9\nbackend_idle_timeout: 0\ntotal_timeout: 3ms");
    assert_eq!((both.first_byte, both.idle), (Duration::from_millis(9), Duration::ZERO));
    assert_eq!(both.total, Duration::from_millis(3));
    assert_eq!(timeouts("backend_write_timeout_ms: 4").idle, Duration::from_millis(4));
}

#[test]
fn durations_and_sizes_with_units() {
    let model = good(&proxy_with(
        "listen_path: /\ntotal_timeout: 1.5s\npool_idle_timeout: 2m\nmax_request_body: 10MiB",
    ));
    let proxy = &model.proxies[0];
    assert_eq!(proxy.timeouts.total, Duration::from_millis(1500));
    assert_eq!(proxy.backend.pool.idle_timeout, Duration::from_secs(120));
    let Traffic::Http(rules) = &proxy.traffic else { panic!("takes requests") };
    assert_eq!(rules.max_request_body, Some(10 << 20));
    let cases = [
        ("total_timeout: 2d", "2d is out of range (0 to 86400 seconds)"),
        ("total_timeout: 5 parsecs", "`parsecs` in `5 parsecs` is not a unit"),
        ("pool_idle_timeout: 1500ms", "not a whole number of seconds"),
        ("max_request_body: 10m", "`m` in `10m` is not a unit"),
    ];
    for (line, part) in cases {
        let problems = resolved("f", &proxy_with(&format!("listen_path: /\n{line}"))).expect_err("is wrong");
        assert!(problems.0.len() == 1 && problems.to_string().contains(part), "{line}: {problems}");
    }
    let required = proxy_with("listen_path: /\nretry: {backoff: {fixed: {delay: 5x}}}");
    let problems = resolved("f", &required).expect_err("is wrong");
    assert_eq!(problems.0.len(), 1, "{problems}");
}

#[test]
fn backoff_in_three_spellings() {
    let backoff = |text: &str| {
        good(&proxy_with(&format!("listen_path: /\nretry: {{{text}}}"))).proxies[0].retry.clone()
    };
    let fixed = Backoff::Fixed(Duration::from_millis(7));
    assert_eq!(backoff("backoff: {fixed: {delay: 7ms}}").backoff, fixed);
    assert_eq!(backoff("backoff: !fixed {delay: 7ms}").backoff, fixed);
    let both = Backoff::Exponential { base: Duration::from_millis(5), max: Duration::from_millis(50) };
    assert_eq!(backoff("backoff: !exponential {base: 5ms, max: 50ms}").backoff, both);
    assert_eq!(backoff("max_retries: 1").max_retries, 1);
    assert_eq!(backoff("").max_retries, 3);
    let json =
        "{\"proxies\": [{\"id\": \"p\", \"listen_path\": \"/\", \"backend_host\": \"h\", \"backend_port\": 1,
        \"retry\": {\"backoff\": {\"fixed\": {\"delay\": \"7ms\"}}}}]}";
    assert_eq!(good(json).proxies[0].retry.backoff, fixed);
}

#[test]
fn hosts_and_paths() {
    let rules = |lines: &str| match &good(&proxy_with(lines)).proxies[0].traffic {
        Traffic::Http(rules) => (rules.matches[0].hosts.clone(), rules.matches[0].path.clone()),
        Traffic::Stream(_) => panic!("an HTTP proxy"),
    };
    let (hosts, path) = rules("hosts: [API.Example.com., \"*.example.org\"]\nlisten_path: /a/");
    assert_eq!(
        hosts,
        [HostPattern::Exact("api.example.com".into()), HostPattern::Suffix(".example.org".into())]
    );
    assert!(matches!(path, PathPattern::Prefix(prefix) if *prefix == *"/a"));
    assert!(matches!(rules("hosts: [a]").1, PathPattern::HostOnly));
    for (written, pattern) in
        [("~/a/\\d+", "^(?:/a/\\d+)$"), ("~^/a$", "^(?:/a)$"), ("~/a\\$", "^(?:/a\\$)$")]
    {
        let (_, path) = rules(&format!("listen_path: '{written}'"));
        assert!(matches!(path, PathPattern::Regex(regex) if regex.as_str() == pattern), "{written}");
    }
}

#[test]
fn overlapping_paths_are_refused_and_disjoint_ones_are_not() {
    let two = |a: &str, b: &str| {
        format!(
            "proxies:\n  - {{id: a, backend_host: h, backend_port: 1, {a}}}\n  \
             - {{id: b, backend_host: h, backend_port: 1, {b}}}\n"
        )
    };
    let untie = "(give them different paths, hosts or `matches` that exclude each other, or one of them a `priority`)";
    let told = format!("f:3: proxies[1].listen_path: proxies[0] takes this path and hosts already {untie}");
    refused(
        &two("listen_path: /a, hosts: [\"*.x.y\"]", "listen_path: /a/, hosts: [b.x.y, \"*.x.y\"]"),
        &told,
    );
    // The narrower host pattern goes first.
    good(&two("listen_path: /a, hosts: [\"*.x.y\"]", "listen_path: /a, hosts: [b.x.y]"));
    good(&two("listen_path: /a", "listen_path: /a, hosts: [b.x.y]"));
    let told = format!("f:3: proxies[1].listen_path: proxies[0] takes this path already {untie}");
    refused(&two("listen_path: /a", "listen_path: /a"), &told);
    good(&two("listen_path: /a", "listen_path: /a, priority: 1"));
    good(&two(
        "listen_path: /a, matches: [{methods: [GET]}]",
        "listen_path: /a, matches: [{methods: [POST]}]",
    ));
    good(&two("listen_path: /a", "listen_path: /a, matches: [{methods: [POST]}]"));
    let told = format!(
        "f:3: proxies[1].matches[0]: nothing says whether this or proxies[0] takes what both ask for: the same path {untie}"
    );
    refused(
        &two(
            "listen_path: /a, matches: [{methods: [GET]}]",
            "listen_path: /a, matches: [{headers: {v: \"1\"}}]",
        ),
        &told,
    );
    good(&two("listen_path: /a, hosts: [a.x.y]", "listen_path: /a, hosts: [b.x.y]"));
    good(&two("listen_path: /a, hosts: [x.y]", "listen_path: /a, hosts: [\"*.x.y\"]"));
    good(&two("hosts: [x.y]", "listen_path: /, hosts: [x.y]"));
}

#[test]
fn several_matches_of_one_proxy() {
    let model = good(&proxy_with(
        "hosts: [a.b]\nlisten_path: /x\npriority: -2\nmatches:\n- {methods: [GET]}\n- {path: {exact: /y}, hosts: [c.d]}",
    ));
    let Traffic::Http(rules) = &model.proxies[0].traffic else { panic!("an HTTP proxy") };
    let written: Vec<_> = rules
        .matches
        .iter()
        .map(|rule| (rule.hosts.len(), rule.path.written().unwrap_or_default(), rule.condition.is_some()))
        .collect();
    assert_eq!(written, [(1, "/x".to_owned(), true), (1, "=/y".to_owned(), false)]);
    assert_eq!(rules.priority, -2);
    refused(
        &proxy_with(
            "listen_path: /x\nmatches: [{}, {path: x}, {methods: [GET]}, {methods: [get]}, {consumers: [a]}]",
        ),
        "f:6: proxies[0].matches[0]: this says nothing (say what is meant, or leave it out)\n\
         f:6: proxies[0].matches[1].path: `x` doesn't begin with `/` (write `/x`, or `~x` if it is a regex)\n\
         f:6: proxies[0].matches[3]: matches[2] says the same already (join them, or remove one)\n\
         f:6: proxies[0].matches[4].consumers: who calls is not known yet when a proxy is chosen (write it as the \
         `when` of a plugin that runs after authentication)",
    );
}

#[test]
fn control_characters_are_refused_where_people_will_read_them() {
    refused(
        &proxy_with("listen_path: /\nname: \"a\\nb\""),
        "f:6: proxies[0].name: this has control characters (remove them)",
    );
    let text = "plugin_configs: [{id: a, plugin_name: cors, scope: global, config: {body: \"a\\nb\"}}]";
    assert_eq!(good(text).plugin_configs[0].config.value()["body"], "a\nb");
}

#[test]
fn tls_to_the_target() {
    let model =
        good(&proxy_with("listen_path: /\nbackend_scheme: https\nbackend_tls_server_ca_cert_path: ca.pem"));
    let tls = model.proxies[0].backend.tls.clone().expect("https has rules");
    assert_eq!(tls.ca_path.as_deref(), Some(Path::new("/etc/ferrum/ca.pem")));
    assert!(tls.verify);
    refused(
        &proxy_with("listen_path: /\nbackend_tls_verify_server_cert: false"),
        "f:6: proxies[0].backend_tls_verify_server_cert: nothing is encrypted to a target of scheme `http` \
         (write `backend_scheme: https`, or remove it)",
    );
    refused(
        &proxy_with("listen_path: /\nbackend_scheme: https\nbackend_tls_client_key_path: k"),
        "f:7: proxies[0].backend_tls_client_key_path: the key has no certificate (write \
         `backend_tls_client_cert_path` too)",
    );
}

#[test]
fn early_data_of_clients() {
    let tls =
        |more: &str| format!("gateway: {{tls: {{certificates: [{{cert_path: a, key_path: b}}]{more}}}}}\n");
    assert!(!good(&tls("")).settings.tls.early_data);
    assert!(good(&tls(", early_data: true")).settings.tls.early_data);
    refused(
        &tls(", early_data: true, client_ca_path: ca.pem"),
        "f:1: gateway.tls.early_data: early data comes before a client could be asked for its certificate (remove it, \
         or `client_ca_path`)",
    );
    let stream = proxy_with("backend_scheme: tcp\nlisten_port: 5000\nearly_data: false");
    assert!(
        resolved("f", &stream).expect_err("a stream").to_string().contains("proxies[0].early_data: only")
    );
}

#[test]
fn http3_that_targets_offer() {
    let heeds =
        |lines: &str| good(&proxy_with(&format!("listen_path: /\n{lines}"))).proxies[0].backend.alt_svc;
    assert!(heeds("backend_scheme: https"));
    assert!(heeds("backend_scheme: https\nbackend_http_version: auto\nbackend_alt_svc: true"));
    for not in [
        "backend_scheme: http",
        "backend_scheme: https\nbackend_alt_svc: false",
        "backend_scheme: https\nbackend_http_version: \"2\"",
        "backend_scheme: https\nbackend_tls_verify_server_cert: false",
    ] {
        assert!(!heeds(not), "{not}");
    }
}

#[test]
fn plugins_of_a_proxy() {
    let text = "
proxies:
  - {id: p, listen_path: /p, backend_host: h, backend_port: 1, plugins: [{plugin_config_id: group}]}
  - {id: q, listen_path: /q, backend_host: h, backend_port: 1}
plugin_configs:
  - {id: all-cors, plugin_name: cors, scope: global}
  - {id: all-rate, plugin_name: rate_limiting, scope: global, config: {limit: 5}}
  - {id: group, plugin_name: rate_limiting, scope: proxy_group}
  - {id: own, plugin_name: key_auth, proxy_id: p, before: cors}
  - {id: off, plugin_name: key_auth, proxy_id: q, enabled: false}
";
    let model = good(text);
    let names = |n: usize| model.proxies[n].plugins.iter().map(|c| c.id.as_str()).collect::<Vec<_>>();
    assert_eq!(names(0), ["own", "group", "all-cors"]);
    assert_eq!(names(1), ["all-cors", "all-rate"]);
    assert_eq!(model.plugin_configs.len(), 4);
}

#[test]
fn plugin_configs_that_are_wrong() {
    let text = "
proxies:
  - {id: p, listen_path: /p, backend_host: h, backend_port: 1, plugins: [{plugin_config_id: b}, {plugin_config_id: d}]}
plugin_configs:
  - {id: a, plugin_name: corse, scope: global}
  - {id: b, plugin_name: cors, scope: global, after: cors}
  - {id: c, plugin_name: rate_limiting, scope: proxy, proxy_id: r, config: {limit: no}}
  - {id: d, plugin_name: rate_limiting, proxy_id: pp}
  - {id: e, plugin_name: cors}
  - {id: g, plugin_name: script, scope: global}
  - {id: h, plugin_name: cors, scope: global, before: wasm}
";
    refused(
        text,
        "f:3: proxies[0].plugins[1].plugin_config_id: `d` belongs to the proxy `pp` (remove it here, or give it \
         scope `proxy_group`)\n\
         f:5: plugin_configs[0].plugin_name: there is no plugin `corse` (did you mean `cors`?)\n\
         f:6: plugin_configs[1].after: this is the plugin itself (name another plugin)\n\
         f:7: plugin_configs[2].config.limit: this has to be a number\n\
         f:7: plugin_configs[2].proxy_id: there is no proxy `r` (write it under `proxies`)\n\
         f:8: plugin_configs[3].proxy_id: there is no proxy `pp` (did you mean `p`?)\n\
         f:9: plugin_configs[4]: `scope` is missing (`global`, `proxy_group`, `owner` with `owner`, or `proxy` with \
         `proxy_id`)\n\
         f:10: plugin_configs[5].plugin_name: the plugin `script` is not in this build (build it with the feature \
         `script`)\n\
         f:11: plugin_configs[6].before: the plugin `wasm` is not in this build (build it with the feature `wasm`)",
    );
}
