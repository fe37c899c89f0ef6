//! What is warned of, and what is not.

use super::*;
use crate::file::{NoReferences, Origin};
use crate::resolve::{self, no_plugins::NoPlugins};

/// The codes and places warned of in a document.
fn warned(text: &str) -> Vec<(&'static str, String)> {
    warned_of(&model(text))
}

fn warned_of(model: &Model) -> Vec<(&'static str, String)> {
    warnings(model).into_iter().map(|warning| (warning.code, warning.path)).collect()
}

fn model(text: &str) -> Model {
    let origin = Origin { name: "test".to_owned(), folder: PathBuf::new(), format: None };
    resolve::load(text, &origin, &NoReferences, &NoPlugins, |_| Default::default()).unwrap()
}

fn proxy(id: &str, more: &str) -> String {
    format!("  - {{id: {id}, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 1, {more}}}\n")
}

fn one(code: &'static str, path: &str) -> Vec<(&'static str, String)> {
    vec![(code, path.to_owned())]
}

#[test]
fn a_good_configuration_has_none() {
    let proxies = [proxy("a", "listen_path: /"), proxy("b", "listen_path: /b")].concat();
    assert_eq!(warned(&format!("proxies:\n{proxies}")), []);
}

#[test]
fn nothing_to_serve() {
    assert_eq!(warned("proxies: []"), one("no_proxies", "proxies"));
    assert_eq!(warned("gateway: {silence_warnings: [no_proxies]}\nproxies: []"), []);
}

#[test]
fn a_proxy_behind_one_that_takes_all() {
    for (high, low, is_shadowed) in [
        ("listen_path: /, priority: 1", "listen_path: /a", true),
        ("listen_path: /a, priority: 1", "listen_path: /a/b", true),
        ("listen_path: /a, priority: 1", "listen_path: /ab", false),
        ("listen_path: /", "listen_path: /a", false),
        ("listen_path: /, priority: 1", "listen_path: /a, hosts: [a.example]", false),
        ("listen_path: /, hosts: [a.b, c.d], priority: 1", "listen_path: /a, hosts: [a.b]", true),
        ("listen_path: /, hosts: [a.b], priority: 1", "listen_path: /a, hosts: [a.b, c.d]", false),
        ("matches: [{path: /, methods: [POST]}], priority: 1", "listen_path: /a", false),
        ("listen_path: /, priority: 1", "matches: [{path: /a, methods: [POST]}]", true),
        ("listen_path: '~/a/.*', priority: 1", "listen_path: /a/b", false),
        ("listen_path: /", "listen_path: '~/items/\\d+'", true),
        ("listen_path: /items", "listen_path: '~/items/\\d+'", true),
        ("listen_path: /items", "listen_path: '~/items\\d+'", false),
        ("listen_path: /items", "listen_path: '~/items/\\d+|/others'", false),
        ("listen_path: /", "listen_path: '~/items/\\d+', priority: 1", false),
        ("listen_path: /, hosts: [a.b]", "listen_path: '~/items/\\d+'", false),
        ("matches: [{path: /, methods: [POST]}]", "listen_path: '~/items/\\d+'", false),
        ("hosts: [a.b]", "listen_path: '~/items/\\d+', hosts: [a.b]", false),
    ] {
        let proxies = [proxy("high", high), proxy("low", low)].concat();
        let expected = if is_shadowed { one("proxy_shadowed", "proxies.low") } else { Vec::new() };
        assert_eq!(warned(&format!("proxies:\n{proxies}")), expected, "{high} | {low}");
    }
}

#[test]
fn what_nobody_names() {
    let text = format!(
        "proxies:\n{}upstreams:\n  - {{id: u, targets: [{{host: a, port: 1}}]}}\n",
        proxy("a", "listen_path: /")
    );
    assert_eq!(warned(&text), one("upstream_unused", "upstreams.u"));
}

#[test]
fn settings_without_effect() {
    let with = |setting: &str| {
        warned(&format!("gateway: {{{setting}}}\nproxies:\n{}", proxy("a", "listen_path: /")))
    };
    assert_eq!(with("admin: '0.0.0.0:9000'"), one("admin_exposed", "gateway.admin"));
    assert_eq!(with("admin: '127.0.0.1:9000'"), []);
    assert_eq!(with("http: off"), one("setting_without_effect", "gateway.http"));
    assert_eq!(with("http: off, additional_http: ['127.0.0.1:8001']"), []);
    assert_eq!(with("http: off, http_socket: /run/a.sock"), []);
    let tls = "tls: {certificates: [{cert_path: a, key_path: b}]}";
    assert_eq!(
        with(&format!("https: off, {tls}")),
        one("setting_without_effect", "gateway.tls.certificates")
    );
    assert_eq!(with(&format!("http: off, {tls}")), []);
    for https in ["https: '127.0.0.1:8443'", "additional_https: ['127.0.0.1:9443']"] {
        assert_eq!(with(https), one("setting_without_effect", "gateway.https"));
        assert_eq!(with(&format!("{https}, {tls}")), []);
    }
    let ported = |setting: &str| {
        warned(&format!(
            "gateway: {{{setting}}}\nproxies:\n{}",
            proxy("a", "matches: [{path: /, ports: [8001]}]")
        ))
    };
    assert_eq!(ported("http: '127.0.0.1:80'"), one("setting_without_effect", "proxies.a.matches"));
    assert_eq!(ported("http: '127.0.0.1:80', additional_http: ['127.0.0.1:8001']"), []);
    assert_eq!(ported("http: '127.0.0.1:0'"), [], "the port is not known yet");
}

#[test]
fn targets_of_documentation_and_without_checks() {
    for (host, is_reserved) in [
        ("192.0.2.7", true),
        ("2001:db8::1", true),
        ("api.example.com", true),
        ("a.example", true),
        ("myexample.com", false),
        ("10.0.0.1", false),
    ] {
        let text = format!(
            "proxies:\n  - {{id: a, listen_path: /, backend_scheme: http, backend_host: '{host}', backend_port: 1}}\n"
        );
        let expected = if is_reserved { one("target_documentation", "proxies.a") } else { Vec::new() };
        assert_eq!(warned(&text), expected, "{host}");
    }
    let text = "proxies:\n  - {id: a, listen_path: /, backend_scheme: https, backend_host: a, backend_port: 1, \
                backend_tls_verify_server_cert: false}\n";
    assert_eq!(warned(text), one("target_unverified", "proxies.a"));
}

#[test]
fn consumers_that_nobody_can_be() {
    let text = format!("proxies:\n{}consumers:\n  - {{id: c, username: c}}\n", proxy("a", "listen_path: /"));
    assert_eq!(warned(&text), one("consumer_unusable", "consumers.c"));
    let owner = format!(
        "proxies:\n{}consumers:\n  - {{id: c, username: u}}\n",
        proxy("a", "listen_path: /, owner: u")
    );
    assert_eq!(warned(&owner), Vec::new());
}

/// A control plane, or a command on a database: the listeners are those of other gateways.
#[test]
fn a_process_without_traffic_needs_no_listener() {
    let text = format!("gateway: {{http: off, https: off}}\nproxies:\n{}", proxy("a", "listen_path: /"));
    let mut model = model(&text);
    assert_eq!(warned_of(&model), one("setting_without_effect", "gateway.http"));
    let mut settings = (*model.settings).clone();
    settings.carries_traffic = false;
    model.settings = settings.into();
    assert_eq!(warned_of(&model), []);
}

#[test]
fn certificates_near_their_end() {
    let day = 24 * 3600;
    let warned = WARNED_SECONDS;
    let at =
        |seconds: i64| ("gateway.tls".to_owned(), Expiry { file: PathBuf::from("a.pem"), seconds, warned });
    let message = |seconds| expiring([at(seconds)]).first().map(|warning| warning.message.clone());
    assert_eq!(message(31 * day), None);
    assert_eq!(message(29 * day + 5).as_deref(), Some("the certificate in a.pem expires in 29 days"));
    assert_eq!(message(-5).as_deref(), Some("the certificate in a.pem has expired"));
    let codes = [-5, 5].map(|seconds| expiring([at(seconds)])[0].code);
    assert_eq!(codes, ["certificate_expired", "certificate_expires"]);
    assert_eq!(expiring([at(5), at(5)]).len(), 1);
}

#[test]
fn a_sink_of_a_proxy_that_is_not_there() {
    let proxies = proxy("shop", "listen_path: /");
    for (named, expected) in [
        ("[shop]", Vec::new()),
        ("[shop, shopp]", one("unknown_proxy", "gateway.access_log.sinks[1].proxies")),
    ] {
        let sinks = format!(
            "{{name: all, stdout: {{}}}}, {{name: some, file: {{path: some.log}}, proxies: {named}}}"
        );
        let text = format!("gateway: {{access_log: {{sinks: [{sinks}]}}}}\nproxies:\n{proxies}");
        assert_eq!(warned(&text), expected, "{named}");
    }
}
