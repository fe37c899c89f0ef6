//! `explain`: which way a request takes.

use serde_json::Value;

use crate::process::{Folder, Gateway, ferrum_edge};

#[test]
fn explain_names_proxy_chain_and_near_misses() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", EXPLAINED);
    let explain = |arguments: &[&str]| {
        let output =
            ferrum_edge(&folder).arg("explain").args(arguments).args(["--output", "json"]).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), document)
    };
    let (code, users) = explain(&["GET", "http://api.example.com/v1/users/7?full=1"]);
    assert_eq!(code, Some(0));
    assert_eq!(users["proxy"]["id"], "users");
    assert_eq!(users["proxy"]["forwards"][0], "http://10.0.0.1:8080/7?full=1");
    let plugins = users["proxy"]["plugins"].as_array().unwrap();
    let runs: Vec<_> = plugins.iter().map(|plugin| (&plugin["id"], &plugin["runs"])).collect();
    let (yes, no) = (Value::Bool(true), Value::Bool(false));
    let id = |name: &str| Value::String(name.to_owned());
    assert_eq!(runs, [(&id("ids"), &yes), (&id("posted"), &no)]);
    let losers = users["not_chosen"].as_array().unwrap();
    assert_eq!(losers[0]["proxy"], "v1", "{users}");
    assert!(losers.iter().any(|loser| loser["proxy"] == "elsewhere"), "{users}");
    let (code, other) = explain(&["DELETE", "/v1/users", "-H", "Host: api.example.com"]);
    assert_eq!(
        (code, other["refusal"].as_str()),
        (Some(1), Some("405 method_not_allowed (Allow: GET, HEAD)"))
    );
    let (code, none) = explain(&["GET", "http://nobody.example.org/v1"]);
    assert_eq!((code, none["refusal"].as_str()), (Some(1), Some("404 no_route")));
    let reason = |document: &Value| document["not_chosen"][0]["reason"].as_str().map(str::to_owned).unwrap();
    let (_, post) = explain(&["POST", "http://ports.example.com:8001/"]);
    assert_eq!(post["proxy"]["id"], "ported", "the URL's port is the listener's");
    let (_, elsewhere) = explain(&["GET", "http://ports.example.com/"]);
    assert_eq!(
        reason(&elsewhere),
        "host and path fit, but these conditions do not hold: methods, ports (the prefix /)"
    );
    let forms = ["POST", "http://forms.example.com/", "-d", "a=1"];
    let (_, form) = explain(&forms);
    assert_eq!(form["proxy"]["id"], "forms", "a body is a form unless a header says otherwise");
    let (_, json) = explain(&[&forms[..], &["-H", "content-type: application/json"]].concat());
    assert!(json["proxy"].is_null(), "{json}");
    folder.write("body", &"x".repeat(101));
    let (code, large) = explain(&["POST", "http://forms.example.com/", "-d", "@body"]);
    let refusal = "413 body_too_large (101 bytes, the limit is 100)";
    assert_eq!((code, large["refusal"].as_str()), (Some(1), Some(refusal)));
    let text = ferrum_edge(&folder).args(["explain", "GET", "http://api.example.com/v1/x"]).output().unwrap();
    let said = String::from_utf8(text.stdout).unwrap();
    assert!(said.contains("proxy:     v1") && said.contains("not users:"), "{said}");
    for url in ["http://api.example.com:65536/", "http://[::1]:99999/"] {
        let refused = ferrum_edge(&folder).args(["explain", "GET", url]).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains("port is not between 0 and 65535"), "{said}");
    }
}

const EXPLAINED: &str = "
proxies:
  - { id: users, hosts: [api.example.com], listen_path: /v1/users, allowed_methods: [GET], backend_scheme: http,
      backend_host: 10.0.0.1, backend_port: 8080, plugins: [{ plugin_config_id: ids }, { plugin_config_id: posted }] }
  - { id: v1, hosts: [api.example.com], listen_path: /v1, backend_scheme: http, backend_host: 10.0.0.2,
      backend_port: 8080 }
  - { id: ported, hosts: [ports.example.com], matches: [{ path: /, methods: [POST], ports: [8001] }], backend_scheme: http,
      backend_host: 10.0.0.4, backend_port: 8080 }
  - { id: forms, hosts: [forms.example.com], max_request_body: 100, backend_scheme: http, backend_host: 10.0.0.5,
      backend_port: 8080, matches: [{ path: /, content_types: [application/x-www-form-urlencoded] }] }
  - { id: elsewhere, hosts: [www.example.com], listen_path: /v1/users, backend_scheme: http,
      backend_host: 10.0.0.3, backend_port: 8080 }
plugin_configs:
  - { id: ids, plugin_name: correlation_id, scope: proxy_group, config: {} }
  - { id: posted, plugin_name: server_timing, scope: proxy_group, config: {}, when: { methods: [POST] } }
";

#[test]
fn explain_spells_paths_as_the_proxy_has_them_spelled() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", DECODED);
    for (path, code, expected) in [
        ("/p/a%2Fb?c=%2F", 0, "http://10.0.0.1:8080/a/b?c=%2F"),
        ("/p/a%252fb", 0, "http://10.0.0.1:8080/a/b"),
        ("/p/x%2F..%2Fadmin", 1, "400 bad_request decoded, the path leads to another proxy"),
        ("/p/x%252F..%252fadmin", 1, "400 bad_request decoded, the path leads to another proxy"),
        ("/p/a%5Cb", 1, "400 bad_request the path has a backslash"),
        ("/p/a;b/c", 0, "http://10.0.0.1:8080/a/c"),
        ("/p/x%2F..%2F..%2Fnowhere", 1, "404 no_route"),
    ] {
        let url = format!("http://x{path}");
        let output =
            ferrum_edge(&folder).args(["explain", "GET", &url, "--output", "json"]).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let said = document["refusal"].as_str().or_else(|| document["proxy"]["forwards"][0].as_str());
        assert_eq!((output.status.code(), said), (Some(code), Some(expected)), "{path}: {document}");
    }
}

const DECODED: &str = "
proxies:
  - { id: p, listen_path: /p, backend_scheme: http, backend_host: 10.0.0.1, backend_port: 8080,
      path_rules: { encoded_slash: decode, double_encoding: decode, parameters: remove } }
  - { id: admin, listen_path: /p/admin, backend_scheme: http, backend_host: 10.0.0.2, backend_port: 8080 }
";

#[test]
fn explain_asks_a_running_gateway() {
    let folder = Folder::new();
    let listeners = "gateway: { http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1 }\n";
    folder.write("ferrum.yaml", &format!("{listeners}{EXPLAINED}"));
    let gateway = Gateway::start(&folder, |command| {
        command.env("FERRUM_ADMIN_READ_TOKEN", "a-token-of-enough-bytes");
    });
    let explain = |token: &str| {
        let admin = gateway.admin.to_string();
        let mut command = ferrum_edge(&folder);
        command.args([
            "explain",
            "GET",
            "http://api.example.com/v1/users/7",
            "-H",
            "x-a: b",
            "--admin",
            &admin,
        ]);
        command.env("FERRUM_ADMIN_TOKEN", token).output().unwrap()
    };
    let asked = explain("a-token-of-enough-bytes");
    let said = String::from_utf8(asked.stdout).unwrap();
    assert_eq!(asked.status.code(), Some(0), "{said}");
    assert!(said.contains("proxy:     users"), "{said}");
    assert!(said.contains("plugins:   correlation_id, server_timing (not for this request)"), "{said}");
    assert!(said.contains("not v1:"), "{said}");
    assert_eq!(explain("another-token-of-enough").status.code(), Some(1));
}

#[test]
fn explain_and_test_name_the_script_that_runs() {
    let folder = Folder::new();
    let root = folder.path("www");
    std::fs::create_dir(&root).unwrap();
    folder.write("www/index.php", "<?php");
    folder.write("www/info.php", "<?php");
    let proxy = format!(
        "
proxies:
  - id: php
    listen_path: /
    backend_protocol: fastcgi
    backend_host: 127.0.0.1
    backend_port: 9
    fastcgi: {{ root: {root} }}
",
        root = root.display()
    );
    folder.write("ferrum.yaml", &proxy);
    let explain = |path: &str| {
        let url = format!("http://x{path}");
        let output = ferrum_edge(&folder).args(["explain", "GET", &url]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, said) = explain("/info.php/a/b");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("script:    {}/info.php\n", root.display())), "{said}");
    assert!(said.contains("path info: /a/b\n"), "{said}");
    let (code, said) = explain("/nothing.php");
    assert!(code == Some(1) && said.contains("404 script_not_found"), "{said}");

    let tests = |target: &str, url: &str| {
        folder.write(
            "tests.yaml",
            &format!(
                "
configuration: ferrum.yaml
targets: [{{ target: '{target}', status: 201 }}]
tests:
  - name: a script with a path behind it
    request: {{ url: {url} }}
    expect: {{ status: 201, sent: {{ script_filename: {}/info.php, path_info: /a }} }}
",
                root.display()
            ),
        );
        let output = ferrum_edge(&folder).args(["test", "tests.yaml"]).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, said) = tests("127.0.0.1:9", "/info.php/a");
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = tests("127.0.0.1:10", "/info.php/a");
    assert!(code != Some(0) && said.contains("no target `127.0.0.1:10`; it has 127.0.0.1:9"), "{said}");
    let (code, said) = tests("127.0.0.1:9", "info.php");
    assert!(code != Some(0) && said.contains("the URL `info.php` is relative"), "{said}");
}
