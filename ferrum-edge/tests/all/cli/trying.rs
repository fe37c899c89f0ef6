//! Testing a change before it is live: `test`, `diff` with fields, `apply --plan`, `diff --traffic`.

use crate::process::{Folder, Gateway, ferrum_edge, get, until};

fn ran(folder: &Folder, arguments: &[&str]) -> (Option<i32>, String) {
    let output = ferrum_edge(folder).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

const SPEC: &str = "
gateway: { http: '127.0.0.1:8000', https: off }
proxies:
  - { id: shop, hosts: [shop.test], listen_path: /shop, backend_host: 10.0.0.7, backend_port: 80 }
  - { id: api, hosts: [shop.test], listen_path: /api, backend_host: 10.0.0.8, backend_port: 80, allowed_methods: [GET] }
consumers:
  - { id: ann, username: ann, credentials: { key_auth: the-key-of-ann } }
plugin_configs:
  - { id: key, plugin_name: key_auth, scope: proxy, proxy_id: shop, config: {} }
  - { id: limit, plugin_name: rate_limiting, scope: proxy, proxy_id: shop, config: { limits: [{ rate: 2, per: 1h }] } }
";

const TESTS: &str = "
configuration: ferrum.yaml
targets:
  - { target: '10.0.0.7:80', path: /broken, status: 503, headers: { x-why: disk }, body: no disk }
tests:
  - name: callers with a key reach the shop
    request: { url: 'http://shop.test/shop/cart?n=1', headers: { x-api-key: the-key-of-ann } }
    expect:
      proxy: shop
      plugins: [key_auth, limit]
      caller: ann
      target: '10.0.0.7:80'
      status: 200
      reason: none
      body_contains: ok
      sent: { method: GET, path: '/cart?n=1', headers: { host: 10.0.0.7, x-forwarded-host: shop.test, x-nothing: null } }
  - name: others do not
    request: { url: 'http://shop.test/shop' }
    expect: { status: 401, target: none, plugin_config: key, headers: { www-authenticate: '*', content-type: application/problem+json } }
  - name: the third request is too many
    repeat: 3
    request: { url: 'http://shop.test/shop', headers: { x-api-key: the-key-of-ann } }
    expect: { status: 429, reason: rate_limited, plugin_config: limit }
  - name: a failing target is passed on
    request: { url: 'http://shop.test/shop/broken', headers: { x-api-key: the-key-of-ann } }
    expect: { status: 503, headers: { x-why: disk }, body_contains: no disk }
  - name: no other host is served
    request: { url: 'http://other.test/shop' }
    expect: { proxy: none, status: 404, reason: no_route }
  - name: writes are refused
    request: { method: POST, url: 'http://shop.test/api', body: hello }
    expect: { proxy: api, status: 405, reason: method_not_allowed }
";

#[test]
fn requests_of_a_file_are_tried_without_a_socket() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", SPEC);
    folder.write("shop.test.yaml", TESTS);
    let (code, said) = ran(&folder, &["test", "shop.test.yaml"]);
    assert_eq!((code, said.as_str()), (Some(0), "6 tests passed, 0 failed\n"));
    let (code, said) = ran(&folder, &["test", "shop.test.yaml", "--only", "no such name"]);
    assert!(code == Some(1) && said.contains("no test has `no such name` in its name"), "{said}");
    let (code, said) = ran(&folder, &["test", "shop.test.yaml", "--only", "other", "--output", "tap"]);
    assert_eq!(code, Some(0));
    assert_eq!(said, "TAP version 14\n1..2\nok 1 - others do not\nok 2 - no other host is served\n");
}

#[test]
fn differences_from_what_is_expected_are_reported() {
    let folder = Folder::new();
    folder.write(
        "ferrum.yaml",
        &SPEC
            .replace("rate: 2,", "rate: 5,")
            .replace("[shop.test], listen_path: /api", "[api.test], listen_path: /api"),
    );
    folder.write("t.yaml", TESTS);
    let (code, said) = ran(&folder, &["test", "t.yaml"]);
    assert_eq!(code, Some(1), "{said}");
    for line in [
        "FAILED t.yaml: the third request is too many\n  status: expected 429, got 200\n  reason: expected rate_limited, got none\n",
        "FAILED t.yaml: writes are refused\n  proxy: expected api, got none\n  status: expected 405, got 404\n",
        "4 tests passed, 2 failed\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let (_, tap) = ran(&folder, &["test", "t.yaml", "--output", "tap"]);
    assert!(tap.contains("not ok 3 - the third request is too many\n  ---\n  failures:\n    - \"status: expected 429, got 200\"\n"), "{tap}");
    let (_, junit) = ran(&folder, &["test", "t.yaml", "--output", "junit"]);
    assert!(junit.contains("<testsuite name=\"t.yaml\" tests=\"6\" failures=\"2\">"), "{junit}");
    assert!(junit.contains("<failure message=\"status: expected 429, got 200\">"), "{junit}");
}

#[test]
fn a_file_of_tests_that_makes_no_sense_is_refused() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", SPEC);
    let test = |text: &str| {
        folder.write("t.yaml", text);
        ran(&folder, &["test", "t.yaml"])
    };
    let cases = [
        ("tests: []", "configuration"),
        ("configuration: gone.yaml\ntests: []", "gone.yaml"),
        ("configuration: ferrum.yaml\ntests: [{ name: a, request: { url: / }, expects: {} }]", "expect"),
        (
            "configuration: ferrum.yaml\ntests: [{ name: a, request: { url: 'http://[' } }]",
            "test `a`: the URL",
        ),
        ("configuration: ferrum.yaml\ntests: [{ name: a, repeat: 0, request: { url: / } }]", "`repeat` is 0"),
        (
            "configuration: ferrum.yaml\ntargets: [{ status: 100 }]\ntests: [{ name: a, request: { url: / } }]",
            "status 100",
        ),
    ];
    for (text, word) in cases {
        let (code, said) = test(text);
        assert!(code == Some(3) && said.contains(word), "{text}: {code:?} {said}");
    }
}

#[test]
fn differences_have_fields_before_and_after_and_a_plan_writes_nothing() {
    let folder = Folder::new();
    let database = ["--db-url", "sqlite:./t.db"];
    let objects = SPEC.lines().filter(|line| !line.starts_with("gateway")).collect::<Vec<_>>().join("\n");
    let with = |words: &[&str]| ran(&folder, &[words, &database].concat());
    folder.write("shop.yaml", &objects);
    assert_eq!(with(&["apply", "shop.yaml"]).0, Some(0));
    let changed = objects
        .replace("rate: 2,", "rate: 5,")
        .replace("backend_port: 80, allowed_methods: [GET]", "backend_port: 81");
    let changed = changed.replace("the-key-of-ann", "another-key-of-ann");
    folder.write("shop.yaml", &changed);
    for command in ["diff", "apply"] {
        let words =
            if command == "diff" { &["diff", "shop.yaml"][..] } else { &["apply", "shop.yaml", "--plan"] };
        let (code, said) = with(words);
        assert_eq!(code, Some(4), "{said}");
        for line in [
            "~ proxies/api\n",
            "    backend_port: 80 -> 81\n",
            "    allowed_methods: [\"GET\"] -> (none)\n",
            "~ plugin_configs/limit\n    config.limits[0].rate: 2 -> 5\n",
            "~ consumers/ann\n",
        ] {
            assert!(said.contains(line), "{command}, {line}: {said}");
        }
        assert!(!said.contains("key-of-ann"), "{said}");
    }
    for words in [&["diff", "shop.yaml"][..], &["apply", "shop.yaml", "--plan"]] {
        let (code, said) = with(&[words, &["--output", "json"]].concat());
        let answer: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        let kinds: Vec<_> =
            answer["changes"].as_array().unwrap().iter().map(|it| it["action"].as_str().unwrap()).collect();
        assert_eq!((code, kinds), (Some(4), vec!["update"; 3]), "{said}");
    }
    // The plan wrote nothing, so the same changes are still pending.
    assert_eq!(with(&["sync", "shop.yaml", "--prune", "--plan"]).0, Some(4));
    assert_eq!(with(&["apply", "shop.yaml"]).0, Some(0));
    assert_eq!(with(&["apply", "shop.yaml", "--plan"]), (Some(0), String::new()));
}

#[test]
fn recorded_requests_that_a_file_treats_otherwise_are_listed() {
    let folder = Folder::new();
    let spec = |proxies: &str| {
        format!(
            "gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1, access_log: {{ path: access.log }} }}\nproxies:\n{proxies}"
        )
    };
    let proxy = |id: &str, path: &str, more: &str| {
        format!("  - {{ id: {id}, listen_path: {path}, backend_host: 127.0.0.1, backend_port: 9{more} }}\n")
    };
    let old = [proxy("a", "/a", ""), proxy("b", "/b", ""), proxy("same", "/same", "")].concat();
    folder.write("ferrum.yaml", &spec(&old));
    let gateway = Gateway::start(&folder, |_| {});
    for path in ["/a/1", "/a/2", "/b", "/new", "/same?x=1"] {
        get(gateway.http, path);
    }
    until("all are recorded", || folder.read("access.log").lines().count() == 5);
    let new = [
        proxy("c", "/a", ""),
        proxy("b", "/b", ", allowed_methods: [POST]"),
        proxy("same", "/same", ""),
        proxy("new", "/new", ""),
    ]
    .concat();
    folder.write("new.yaml", &spec(&new));
    let (code, said) = ran(&folder, &["diff", "new.yaml", "--traffic", "access.log"]);
    assert_eq!(code, Some(4), "{said}");
    for part in [
        "elsewhere         2  proxy a -> proxy c   GET http://localhost/a/1",
        "refused           1  proxy b -> 405 method_not_allowed (Allow: POST)   GET http://localhost/b",
        "admitted          1  no_route -> proxy new   GET http://localhost/new",
        "4 of 5 recorded requests would change",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (code, said) = ran(&folder, &["diff", "ferrum.yaml", "--traffic", "access.log"]);
    assert_eq!((code, said.as_str()), (Some(0), "0 of 5 recorded requests would change\n"));
}
