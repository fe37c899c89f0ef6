//! Translations, each of which has to be a configuration the gateway takes.

use super::*;

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

fn yaml(text: &str) -> Value {
    let origin = gateway_core::config::file::Origin::default();
    gateway_core::config::file::foreign(text, &origin).unwrap()
}

/// The translation is a good configuration of ours.
fn good(translation: &Translation) -> Value {
    let mut document = translation.document();
    let text = document.to_string();
    // Certificates are files that aren't there.
    if let Value::Object(fields) = &mut document {
        fields.shift_remove("gateway");
    }
    if let Err(problems) = crate::source::file::parse(&document.to_string(), "t", &crate::plugins()) {
        panic!("{problems}\n{text}");
    }
    translation.document()
}

fn missing(translation: &Translation, what: &str) -> bool {
    translation.missing.iter().any(|line| line.contains(what))
}

fn by_id<'v>(document: &'v Value, section: &str, id: &str) -> &'v Value {
    let list = document[section].as_array().unwrap();
    list.iter().find(|item| item["id"] == id).unwrap_or_else(|| panic!("no {section}/{id} in {document:#}"))
}

#[test]
fn kong_routes_become_proxies() {
    let translation = kong::translate(&yaml(KONG)).unwrap();
    let document = good(&translation);
    let api = by_id(&document, "proxies", "orders-api");
    assert_eq!(api["listen_path"], "/orders");
    assert_eq!(api["hosts"], json!(["api.example.com", "*.example.org"]));
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
}

#[test]
fn kong_plugins_run_where_they_ran() {
    let translation = kong::translate(&yaml(KONG)).unwrap();
    let document = good(&translation);
    let names = |proxy: &Value| -> Vec<String> {
        let own = proxy["plugins"].as_array().cloned().unwrap_or_default();
        let ids = own.iter().map(|plugin| plugin["plugin_config_id"].as_str().unwrap().to_owned());
        ids.map(|id| by_id(&document, "plugin_configs", &id)["plugin_name"].as_str().unwrap().to_owned())
            .collect()
    };
    for proxy in ["orders-api", "orders-api-2"] {
        assert_eq!(names(by_id(&document, "proxies", proxy)), ["key_auth", "access_control"]);
    }
    assert_eq!(names(by_id(&document, "proxies", "shop")), ["request_termination"]);
    let configs = document["plugin_configs"].as_array().unwrap();
    let global = configs.iter().find(|config| config["scope"] == "global").unwrap();
    assert_eq!(
        (&global["plugin_name"], &global["config"]["header_name"]),
        (&json!("correlation_id"), &json!("X-Id"))
    );
    let key = configs.iter().find(|config| config["plugin_name"] == "key_auth").unwrap();
    assert_eq!(key["config"], json!({ "key_location": "header:x-api-key", "hide_credentials": true }));
}

#[test]
fn kong_consumers_keep_their_credentials() {
    let document = good(&kong::translate(&yaml(KONG)).unwrap());
    let ann = by_id(&document, "consumers", "ann");
    assert_eq!(ann["credentials"]["key_auth"], json!([{ "key": "sesame" }, { "key": "older" }]));
    assert_eq!((&ann["custom_id"], &ann["acl_groups"]), (&json!("42"), &json!(["staff"])));
}

#[test]
fn what_kong_has_and_we_have_not_is_named() {
    let translation = kong::translate(&yaml(KONG)).unwrap();
    for what in ["rate-limiting", "NOT protected", "bad.*", "weight of 0", "basicauth", "vaults", "405"] {
        assert!(missing(&translation, what), "{what}: {:#?}", translation.missing);
    }
    assert!(!missing(&translation, "certificates"), "an empty section is none");
    assert!(kong::translate(&json!({ "proxies": [] })).is_err(), "one of our own is none of Kong's");
}

const NGINX: &str = r#"
user www-data;
worker_processes auto;
events { worker_connections 1024; }
http {
    # Comments; with { braces }
    include mime.types;
    proxy_read_timeout 30s;
    upstream app {
        least_conn;
        server 10.0.0.1:8080 weight=3;
        server 10.0.0.2:8080 max_fails=2;
        server 10.0.0.3:8080 down;
        keepalive 32;
    }
    server {
        listen 80 default_server;
        listen [::]:80;
        listen 443 ssl;
        server_name example.com .example.org ~^x$;
        ssl_certificate /etc/ssl/a.pem;
        ssl_certificate_key "/etc/ssl/a.key";
        client_max_body_size 10m;
        location / { proxy_pass http://app; proxy_set_header Host $host; proxy_set_header X-Real-IP $remote_addr; }
        location /api/ { proxy_pass http://10.1.0.1:9000/v1/; proxy_read_timeout 5s; proxy_set_header X-Team blue; }
        location = /health { return 200 'ok'; }
        location ~* \.(png|jpg)$ { proxy_pass http://app; }
        location /old { return 301 https://example.com/new; }
        location /var { proxy_pass http://$backend; }
        location /files { root /srv; }
    }
    server { listen 8081; server_name _; return 404; }
}
stream {
    upstream dns { server 10.0.0.53:53; }
    server { listen 5353 udp; proxy_pass dns; proxy_timeout 20s; }
    server { listen 15432; proxy_pass 10.0.0.9:5432; }
}
"#;

#[test]
fn nginx_locations_become_proxies() {
    let translation = nginx::translate(NGINX).unwrap();
    let document = good(&translation);
    let hosts = json!(["example.com", "example.org", "*.example.org"]);
    let root = by_id(&document, "proxies", "example.com");
    assert_eq!((root.get("listen_path"), &root["hosts"]), (None, &hosts));
    assert_eq!((&root["upstream_id"], &root["strip_listen_path"]), (&json!("app"), &json!(false)));
    assert_eq!(
        (&root["preserve_host_header"], &root["backend_read_timeout_ms"]),
        (&json!(true), &json!(30_000))
    );
    assert_eq!(root["max_request_body_bytes"], 10 << 20);
    let api = by_id(&document, "proxies", "example.com-api");
    assert_eq!((&api["listen_path"], &api["backend_path"]), (&json!("/api"), &json!("/v1")));
    assert_eq!((&api["strip_listen_path"], &api["backend_read_timeout_ms"]), (&json!(true), &json!(5000)));
    let pictures = document["proxies"]
        .as_array()
        .unwrap()
        .iter()
        .find(|p| p["listen_path"] == "~(?i).*(?:\\.(png|jpg))");
    assert!(pictures.is_some(), "{document:#}");
    let upstream = by_id(&document, "upstreams", "app");
    assert_eq!(upstream["algorithm"], "least_connections");
    assert_eq!(upstream["targets"].as_array().unwrap().len(), 2);
    assert_eq!(document["gateway"]["http"]["address"], "0.0.0.0:80");
    assert_eq!(document["gateway"]["tls"]["certificates"][0]["key_path"], "/etc/ssl/a.key");
}

#[test]
fn nginx_answers_and_streams() {
    let translation = nginx::translate(NGINX).unwrap();
    let document = good(&translation);
    let configs = document["plugin_configs"].as_array().unwrap();
    let health = configs.iter().find(|config| config["config"]["status_code"] == 200).unwrap();
    assert_eq!(
        (&health["plugin_name"], &health["config"]["body"]),
        (&json!("request_termination"), &json!("ok"))
    );
    let proxy = by_id(&document, "proxies", health["proxy_id"].as_str().unwrap());
    assert_eq!(proxy["listen_path"], "~/health");
    assert!(configs.iter().any(|config| config["config"]["status_code"] == 404), "a server's own return");
    let dns = by_id(&document, "proxies", "udp-5353");
    assert_eq!((&dns["upstream_id"], &dns["udp_idle_timeout_seconds"]), (&json!("dns"), &json!(20)));
    assert_eq!(by_id(&document, "proxies", "tcp-15432")["backend_port"], 5432);
}

#[test]
fn what_nginx_has_and_we_have_not_is_named_with_its_line() {
    let translation = nginx::translate(NGINX).unwrap();
    for what in [
        "server_name ~^x$",
        "proxy_set_header X-Team blue",
        "redirects",
        "variables",
        "max_fails",
        "is down",
        "include mime.types: includes",
        "one port for http",
        "neither passes on nor answers",
    ] {
        assert!(missing(&translation, what), "{what}: {:#?}", translation.missing);
    }
    assert!(missing(&translation, "line 28,"), "{:#?}", translation.missing);
}

#[test]
fn what_is_not_nginx_is_refused() {
    for bad in ["http { server { listen 80 }", "}", "http { ; }", "a \"b", "{ }", &"a { ".repeat(100)] {
        assert!(nginx::translate(bad).is_err(), "{bad}");
    }
}

#[test]
fn ids_are_each_their_own() {
    let mut translation = Translation::default();
    assert_eq!(translation.id("proxy", "a b/c"), "a-b-c");
    assert_eq!(translation.id("proxy", "a b c"), "a-b-c-2");
    assert_eq!(translation.id("proxy", "***"), "proxy");
    assert_eq!(translation.id("upstream", "a b c"), "a-b-c");
}
