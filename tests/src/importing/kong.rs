//! Kong's declarative format: routes, plugins and consumers.

use ferrum_edge::import::{Conversion, Format};
use serde_json::{Value, json};

use super::routes::{asked, by_id, good, import, lost};

const KONG: &str = r#"
_format_version: "3.0"
services:
- name: orders
  url: https://orders.internal:8443/v2
  connect_timeout: 2000
  read_timeout: 10000
  retries: 2
  tls_verify: true
  routes:
  - name: orders-api
    hosts: [api.example.com, "*.example.org", "bad.*"]
    paths: [/orders, "~/o/[0-9]+$"]
    methods: [GET, POST]
    strip_path: false
    preserve_host: true
    plugins:
    - name: key-auth
      config: {key_names: [x-api-key], hide_credentials: true, key_in_query: false}
  plugins:
  - name: acl
    config: {allow: [staff]}
  - name: rate-limiting
    config: {minute: 5}
- name: shop
  host: shop-upstream
  protocol: http
  routes:
  - name: shop
    paths: [/shop/]
- name: db
  protocol: tcp
  host: 10.0.0.9
  port: 5432
  connect_timeout: 500
  read_timeout: 90500
  write_timeout: 60000
  retries: 5
  routes:
  - name: db
    protocols: [tcp]
    destinations: [{port: 15432}]
upstreams:
- name: shop-upstream
  algorithm: least-connections
  targets:
  - {target: "10.0.0.1:8080", weight: 100}
  - {target: "10.0.0.2", weight: 0}
consumers:
- username: ann
  custom_id: "42"
  keyauth_credentials: [{key: sesame}, {key: older}]
  acls: [{group: staff}]
  basicauth_credentials: [{username: other, password: x}]
plugins:
- name: correlation-id
  config: {header_name: X-Id, echo_downstream: true}
- name: request-termination
  route: shop
  config: {status_code: 410, message: moved}
certificates: []
vaults: [{name: v}]
"#;

#[test]
fn kong_routes_become_proxies() {
    let translation = import(Format::Kong, KONG, false);
    let document = good(&translation);
    let api = by_id(&document, "proxies", "orders-api");
    assert_eq!(api["listen_path"], "/orders");
    assert_eq!(api["hosts"], json!(["api.example.com", "*.example.org"]));
    assert_eq!(api["matches"], json!([{ "methods": ["GET", "POST"] }]));
    assert_eq!(document["gateway"]["host_fallthrough"], true);
    assert_eq!((&api["backend_scheme"], &api["backend_host"]), (&json!("https"), &json!("orders.internal")));
    assert_eq!((&api["backend_port"], &api["backend_path"]), (&json!(8443), &json!("/v2")));
    assert_eq!(api["backend_connect_timeout_ms"], 2000);
    assert_eq!((&api["strip_listen_path"], &api["preserve_host_header"]), (&json!(false), &json!(true)));
    assert_eq!(api["retry"]["max_retries"], 2);
    assert_eq!(by_id(&document, "proxies", "orders-api-2")["listen_path"], "~/o/[0-9]+");
    assert_eq!(by_id(&document, "proxies", "shop")["listen_path"], "/shop");
    assert_eq!(by_id(&document, "proxies", "shop")["upstream_id"], "shop-upstream");
    let upstream = by_id(&document, "upstreams", "shop-upstream");
    assert_eq!(upstream["algorithm"], "least_connections");
    assert_eq!(upstream["targets"], json!([{ "host": "10.0.0.1", "port": 8080, "weight": 100 }]));
    let stream = by_id(&document, "proxies", "db-15432");
    assert_eq!((&stream["listen_port"], &stream["backend_scheme"]), (&json!(15432), &json!("tcp")));
    assert_eq!(stream["tcp_idle_timeout_seconds"], json!(91));
    assert_eq!(stream["backend_connect_timeout_ms"], json!(500));
    assert_eq!((&stream["retry"], &stream["backend_read_timeout_ms"]), (&Value::Null, &Value::Null));
}

#[test]
fn kong_plugins_run_where_they_ran() {
    let translation = import(Format::Kong, KONG, false);
    let document = good(&translation);
    let names = |proxy: &Value| -> Vec<String> {
        let own = proxy["plugins"].as_array().cloned().unwrap_or_default();
        let ids = own.iter().map(|plugin| plugin["plugin_config_id"].as_str().unwrap().to_owned());
        ids.map(|id| by_id(&document, "plugin_configs", &id)["plugin_name"].as_str().unwrap().to_owned())
            .collect()
    };
    for proxy in ["orders-api", "orders-api-2"] {
        assert_eq!(
            names(by_id(&document, "proxies", proxy)),
            ["key_auth", "access_control", "rate_limiting"]
        );
    }
    assert_eq!(names(by_id(&document, "proxies", "shop")), ["request_termination"]);
    let configs = document["plugin_configs"].as_array().unwrap();
    let global = configs.iter().find(|config| config["scope"] == "global").unwrap();
    assert_eq!(
        (&global["plugin_name"], &global["config"]["header_name"]),
        (&json!("correlation_id"), &json!("X-Id"))
    );
    let key = configs.iter().find(|config| config["plugin_name"] == "key_auth").unwrap();
    assert_eq!(key["config"], json!({ "key_location": ["header:x-api-key"], "hide_credentials": true }));
}

#[test]
fn kong_consumers_keep_their_credentials() {
    let document = good(&import(Format::Kong, KONG, false));
    let ann = by_id(&document, "consumers", "ann");
    assert_eq!(ann["credentials"]["key_auth"], json!([{ "key": "sesame" }, { "key": "older" }]));
    assert_eq!((&ann["custom_id"], &ann["acl_groups"]), (&json!("42"), &json!(["staff"])));
}

#[test]
fn what_kong_has_and_we_have_not_is_named() {
    let translation = import(Format::Kong, KONG, false);
    for what in ["bad.*", "weight of 0", "basicauth", "vaults"] {
        assert!(lost(&translation, what), "{what}: {:#?}", translation.report);
    }
    assert!(!lost(&translation, "certificates"), "an empty section is none");
    assert!(
        super::routes::try_import(Format::Kong, "proxies: []", false).is_err(),
        "one of our own is none of Kong's"
    );
}

#[test]
fn kong_never_opens_a_door() {
    const GUARDED: &str = r#"
_format_version: "3.0"
services:
- name: s
  host: 10.0.0.1
  port: 1001
  routes:
  - {name: jwt, paths: [/jwt], plugins: [{name: jwt, config: {secret_is_base64: true}}]}
  - {name: open, paths: [/open], plugins: [{name: cors}]}
  - {name: odd, paths: [/odd], plugins: [{name: our-own-auth}]}
  - {name: read, paths: [/items], methods: [GET]}
  - {name: write, paths: [/items], methods: [POST], plugins: [{name: ldap-auth}]}
  - {name: header, paths: [/items], headers: {x-v: ["2"]}, methods: [GET], plugins: [{name: basic-auth}]}
- name: t
  host: 10.0.0.1
  port: 1002
  routes:
  - {name: t, paths: [/t]}
  plugins: [{name: oauth2}]
consumers:
- {username: ann, plugins: [{name: ip-restriction}]}
- {username: bob, plugins: [{name: rate-limiting}]}
"#;
    let translation = import(Format::Kong, GUARDED, false);
    let cases = [
        ("GET", "/jwt", "503"),
        ("GET", "/open", "1001"),
        ("GET", "/odd", "503"),
        ("GET", "/items", "1001"),
        ("POST", "/items", "503"),
        ("PUT", "/items", "404"),
        ("GET", "/t", "503"),
    ];
    for (method, path, expected) in cases {
        assert_eq!(asked(&translation, "h", method, path, [10, 0, 0, 1]), expected, "{method} {path}");
    }
    let names: Vec<&Value> = translation.consumers.iter().map(|consumer| &consumer["username"]).collect();
    assert_eq!(names, ["bob"], "who was guarded by something of her own does not get in without it");
    let open = import(Format::Kong, GUARDED, true);
    assert_eq!(asked(&open, "h", "GET", "/jwt", [10, 0, 0, 1]), "1001");
    let everywhere = "_format_version: '3.0'\nplugins: [{name: ldap-auth}]\nservices: [{name: s, host: h, routes: [{paths: [/]}]}]\n";
    let translation = import(Format::Kong, everywhere, false);
    assert_eq!(asked(&translation, "h", "GET", "/", [10, 0, 0, 1]), "503");
}

const COUNTERPARTS: &str = r#"
_format_version: "3.0"
services:
- name: s
  url: http://10.0.0.1:80
  routes: [{name: r, paths: [/]}]
  plugins:
  - {name: key-auth, config: {key_names: [k, l], key_in_query: true, key_in_header: true}}
  - {name: basic-auth, config: {hide_credentials: true}}
  - {name: hmac-auth, config: {clock_skew: 60, algorithms: [hmac-sha1, hmac-sha256]}}
  - {name: jwt, config: {claims_to_verify: [exp], cookie_names: [t]}}
  - {name: ip-restriction, config: {allow: [10.0.0.0/8], deny: [10.0.0.7], status: 404}}
  - {name: bot-detection, config: {deny: [curl]}}
  - {name: rate-limiting, config: {minute: 5, hour: 100, limit_by: ip, policy: redis}}
  - {name: request-size-limiting, config: {allowed_payload_size: 8}}
  - {name: cors, config: {origins: ['https://a.example'], credentials: true, max_age: 60}}
  - name: request-transformer
    config:
      remove: {headers: [x-a], querystring: [q]}
      rename: {headers: ['x-b:x-c']}
      replace: {headers: ['x-d:1$'], body: ['n:v']}
      add: {querystring: ['p:2'], headers: ['x-e:$(headers.x)']}
      append: {headers: ['x-f:3']}
  - {name: response-transformer, config: {add: {headers: ['x-g:4'], json: ['k:5']}}}
consumers:
- username: ann
  jwt_secrets: [{key: issuer-of-ann, secret: 0123456789abcdef0123456789abcdef}]
  basicauth_credentials: [{username: ann, password: secret}, {username: ann, password: 0123456789012345678901234567890123456789}]
  hmacauth_credentials: [{username: ann, secret: shared}, {username: other, secret: shared}]
"#;

#[test]
fn kongs_plugins_have_counterparts() {
    let translation = import(Format::Kong, COUNTERPARTS, false);
    let document = good(&translation);
    assert_eq!(translation.report.count(Conversion::Closed), 0);
    let config = |name: &str| {
        let list = document["plugin_configs"].as_array().unwrap();
        list.iter().find(|plugin| plugin["plugin_name"] == name).unwrap()["config"].clone()
    };
    assert_eq!(config("key_auth")["key_location"], json!(["header:k", "query:k", "header:l", "query:l"]));
    assert_eq!(by_id(&document, "proxies", "r")["auth_mode"], "all", "Kong asks each of them");
    assert_eq!(config("basic_auth"), json!({ "hide_credentials": true }));
    assert_eq!(config("hmac_auth")["algorithms"], json!(["hmac-sha256"]));
    let jwt = config("jwt_auth");
    assert_eq!(jwt["token_lookup"], json!(["header:authorization", "query:jwt", "cookie:t"]));
    assert_eq!((&jwt["consumer_claim_field"], &jwt["require_exp"]), (&json!("iss"), &json!(true)));
    assert_eq!(
        config("ip_restriction"),
        json!({ "allow": ["10.0.0.0/8"], "deny": ["10.0.0.7"], "status_code": 404 })
    );
    assert_eq!(config("bot_detection"), json!({ "deny": ["curl"] }));
    let limits = config("rate_limiting");
    assert_eq!(limits["limits"], json!([{ "rate": 5, "per": "1m" }, { "rate": 100, "per": "1h" }]));
    assert_eq!(limits["limit_by"], "address");
    assert!(lost(&translation, "each gateway counts for itself"));
    assert_eq!(config("request_size_limiting")["max_bytes"], 8 << 20);
    let cors = config("cors");
    assert_eq!(
        (&cors["allowed_origins"], &cors["allow_credentials"]),
        (&json!(["https://a.example"]), &json!(true))
    );
    let rules = config("request_transformer")["rules"].clone();
    assert_eq!(rules.as_array().unwrap().len(), 7);
    assert_eq!(rules[3], json!({ "operation": "update", "target": "header", "key": "x-d", "value": "1$$" }));
    assert_eq!(rules[4], json!({ "operation": "update", "target": "body", "key": "/n", "value": "v" }));
    assert!(lost(&translation, "x-e"));
    assert_eq!(config("response_transformer")["rules"].as_array().unwrap().len(), 2);
    let ann = by_id(&document, "consumers", "ann");
    assert_eq!(ann["custom_id"], "issuer-of-ann");
    assert_eq!(ann["credentials"]["basic_auth"].as_array().unwrap().len(), 1);
    assert_eq!(ann["credentials"]["hmac_auth"].as_array().unwrap().len(), 1);
}

#[test]
fn what_kongs_plugins_cannot_have_here_is_closed() {
    for plugin in [
        "{name: jwt, config: {secret_is_base64: true}}",
        "{name: hmac-auth, config: {algorithms: [hmac-sha1]}}",
    ] {
        let text = format!(
            "_format_version: '3.0'\nservices:\n- name: s\n  url: http://10.0.0.1\n  routes: [{{name: r, paths: [/]}}]\n  plugins: [{plugin}]\n"
        );
        let translation = import(Format::Kong, &text, false);
        assert_eq!(translation.report.count(Conversion::Closed), 1, "{plugin}");
    }
}
