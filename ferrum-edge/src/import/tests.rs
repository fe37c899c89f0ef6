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
    let translation = kong::translate(&yaml(KONG), false).unwrap();
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
}

#[test]
fn kong_plugins_run_where_they_ran() {
    let translation = kong::translate(&yaml(KONG), false).unwrap();
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
    let document = good(&kong::translate(&yaml(KONG), false).unwrap());
    let ann = by_id(&document, "consumers", "ann");
    assert_eq!(ann["credentials"]["key_auth"], json!([{ "key": "sesame" }, { "key": "older" }]));
    assert_eq!((&ann["custom_id"], &ann["acl_groups"]), (&json!("42"), &json!(["staff"])));
}

#[test]
fn what_kong_has_and_we_have_not_is_named() {
    let translation = kong::translate(&yaml(KONG), false).unwrap();
    for what in ["bad.*", "weight of 0", "basicauth", "vaults"] {
        assert!(missing(&translation, what), "{what}: {:#?}", translation.missing);
    }
    assert!(!missing(&translation, "certificates"), "an empty section is none");
    assert!(kong::translate(&json!({ "proxies": [] }), false).is_err(), "one of our own is none of Kong's");
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
    let translation = nginx::translate(NGINX, false).unwrap();
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
    let translation = nginx::translate(NGINX, false).unwrap();
    let document = good(&translation);
    let configs = document["plugin_configs"].as_array().unwrap();
    let health = configs.iter().find(|config| config["config"]["status_code"] == 200).unwrap();
    assert_eq!(
        (&health["plugin_name"], &health["config"]["body"]),
        (&json!("request_termination"), &json!("ok"))
    );
    let proxy = by_id(&document, "proxies", health["proxy_id"].as_str().unwrap());
    assert_eq!(proxy["matches"], json!([{ "path": { "exact": "/health" } }]));
    assert!(configs.iter().any(|config| config["config"]["status_code"] == 404), "a server's own return");
    let dns = by_id(&document, "proxies", "udp-5353");
    assert_eq!((&dns["upstream_id"], &dns["udp_idle_timeout_seconds"]), (&json!("dns"), &json!(20)));
    assert_eq!(by_id(&document, "proxies", "tcp-15432")["backend_port"], 5432);
}

#[test]
fn what_nginx_has_and_we_have_not_is_named_with_its_line() {
    let translation = nginx::translate(NGINX, false).unwrap();
    for what in [
        "server_name ~^x$",
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
        assert!(nginx::translate(bad, false).is_err(), "{bad}");
    }
}

/// What answers for a path of a translation, as its proxies say it: a status of the gateway's own, or the target's port.
fn asked(translation: &Translation, host: &str, method: &str, path: &str, client: [u8; 4]) -> String {
    use gateway_core::config::compile::Compiler;
    use gateway_core::config::snapshot::Snapshot;
    use gateway_core::http::body::Body;
    use gateway_core::http::exchange::{Client, Exchange};

    let mut document = translation.document();
    if let Value::Object(gateway) = &mut document["gateway"] {
        for key in ["tls", "http", "https"] {
            gateway.shift_remove(key);
        }
    }
    let registry = crate::plugins();
    let model = crate::source::file::parse(&document.to_string(), "t", &registry).unwrap();
    let empty = Snapshot::empty(model.settings.clone());
    let mut compiler = Compiler::new(registry);
    let snapshot = compiler.compile(&model, &empty, tokio::time::Instant::now()).snapshot;
    let request = http::Request::builder().method(method).uri(path).header("host", host);
    let peer = std::net::SocketAddr::from((client, 1));
    let exchange = Exchange::new(
        request.body(Body::empty()).unwrap(),
        std::sync::Arc::new(Client::new(peer, peer, false, None)),
    );
    let found =
        snapshot.routes.find(Some(host), exchange.uri().path(), |condition| condition.holds(&exchange));
    let Some(found) = found else { return "404".to_owned() };
    let plugins = &found.route.proxy.plugins;
    let answers =
        plugins.iter().find(|plugin| matches!(&*plugin.plugin_name, "request_termination" | "redirect"));
    match answers {
        Some(plugin) => plugin.config.value()["status_code"].to_string(),
        None => found.route.targets.list()[0].rules.port.to_string(),
    }
}

const GUARDED_NGINX: &str = r#"
http {
    server {
        server_name a.example;
        location / { proxy_pass http://10.0.0.1:1001; }
        location /api { proxy_pass http://10.0.0.1:1002; }
        location ~ ^/api/admin { return 403; }
        location = /api/exact { proxy_pass http://10.0.0.1:1003; }
        location ~* \.png$ { proxy_pass http://10.0.0.1:1004; }
        location ^~ /raw/ { proxy_pass http://10.0.0.1:1005; }
        location /raw/cooked/ { proxy_pass http://10.0.0.1:1006; }
        location ~ /\.ht { deny all; }
        location /denied { deny all; proxy_pass http://10.0.0.1:1007; }
        location /office/ { allow 10.0.0.0/8; deny all; proxy_pass http://10.0.0.1:1008; }
        location /secret/ { auth_basic "x"; auth_basic_user_file f; proxy_pass http://10.0.0.1:1009; }
        location /hidden/ { internal; proxy_pass http://10.0.0.1:1010; }
        location /static/ { root /srv; }
        location /asked/ { auth_request /check; proxy_pass http://10.0.0.1:1011; }
        location /odd/ { allow 10.0.0.1; deny 10.0.0.0/8; allow all; proxy_pass http://10.0.0.1:1012; }
        location /ldap/ { auth_ldap "closed"; proxy_pass http://10.0.0.1:1015; }
        location /if/ { if ($arg_x) { return 403; } proxy_pass http://10.0.0.1:1013; }
        location /nested/ {
            deny all;
            location ~ \.php$ { proxy_pass http://10.0.0.1:1014; }
        }
        location /old { return 301 https://a.example/new; }
    }
    server { server_name b.example; auth_basic "all"; location / { proxy_pass http://10.0.0.1:1020; } }
    server { location / { proxy_pass http://10.0.0.1:1030; } }
}
"#;

/// Closed in nginx, so closed here; and what is open stays so.
#[test]
fn nginx_never_opens_a_door() {
    let translation = nginx::translate(GUARDED_NGINX, false).unwrap();
    let cases = [
        ("a.example", "/", "1001"),
        ("a.example", "/api", "1002"),
        ("a.example", "/api/admin/x", "403"),
        ("a.example", "/api/administrator", "403"),
        ("a.example", "/api/exact", "1003"),
        ("a.example", "/img/a.PNG", "1004"),
        ("a.example", "/api/a.png", "1004"),
        ("a.example", "/raw/a.png", "1005"),
        ("a.example", "/raw/cooked/a.png", "1004"),
        ("a.example", "/raw/cooked/a.txt", "1006"),
        ("a.example", "/x/.htaccess", "403"),
        ("a.example", "/denied/x", "403"),
        ("a.example", "/deniedx", "403"),
        ("a.example", "/office/x", "1008"),
        ("a.example", "/secret/x", "503"),
        ("a.example", "/hidden/x", "404"),
        ("a.example", "/static/x", "503"),
        ("a.example", "/asked/x", "503"),
        ("a.example", "/odd/x", "503"),
        ("a.example", "/ldap/x", "503"),
        ("a.example", "/if/x", "503"),
        ("a.example", "/nested/x.php", "403"),
        ("a.example", "/other/x.php", "1001"),
        ("a.example", "/old", "301"),
        ("b.example", "/x", "503"),
        ("c.example", "/x", "1030"),
    ];
    for (host, path, expected) in cases {
        assert_eq!(asked(&translation, host, "GET", path, [10, 1, 2, 3]), expected, "{host}{path}");
    }
    assert_eq!(asked(&translation, "a.example", "GET", "/office/x", [192, 0, 2, 1]), "403");
    for named in ["auth_basic", "auth_request", "allow and deny", "if $arg_x", "if ($arg_x)"] {
        let is_named = translation.closed.iter().any(|line| line.contains(named) && line.contains("line "));
        assert!(is_named || named.starts_with("if"), "{named}: {:#?}", translation.closed);
    }
    let open = nginx::translate(GUARDED_NGINX, true).unwrap();
    assert_eq!(asked(&open, "a.example", "GET", "/secret/x", [10, 1, 2, 3]), "1009");
    assert!(open.closed.is_empty() && missing(&open, "OPEN"));
}

#[test]
fn dumps_and_pieces_of_nginx() {
    let dump = "# configuration file /etc/nginx/nginx.conf:\nhttp {\n  include /etc/nginx/conf.d/*.conf;\n}\n\
                # configuration file /etc/nginx/conf.d/a.conf:\nserver {\n  server_name a.example;\n  include snippets/deny.conf;\n  \
                location / { proxy_pass http://10.0.0.1:1001; }\n}\n\
                # configuration file /etc/nginx/snippets/deny.conf:\nlocation /private/ {\n deny all;\n auth_jwt on;\n}\n";
    let translation = nginx::translate(dump, false).unwrap();
    assert_eq!(asked(&translation, "a.example", "GET", "/", [10, 0, 0, 1]), "1001");
    assert_eq!(asked(&translation, "a.example", "GET", "/private/x", [10, 0, 0, 1]), "503");
    assert!(translation.closed.iter().any(|line| line.starts_with("line 14,")), "{:?}", translation.closed);
    let piece = "server { server_name a.example; location / { proxy_pass http://10.0.0.1:1001; } }";
    assert_eq!(
        asked(&nginx::translate(piece, false).unwrap(), "a.example", "GET", "/", [10, 0, 0, 1]),
        "1001"
    );
    assert!(nginx::translate("events {}", false).is_err(), "nothing in it is no good configuration");
    assert!(nginx::translate("location / { return 403; }", false).is_err());
}

#[test]
fn plain_and_encrypted_servers_of_one_name() {
    let text = "http { server { listen 80; server_name a.example; return 404; }
        server { listen 443 ssl; server_name a.example; location / { proxy_pass http://10.0.0.1:1001; } } }";
    let document = good(&nginx::translate(text, false).unwrap());
    let schemes: Vec<&Value> =
        document["proxies"].as_array().unwrap().iter().map(|p| &p["matches"][0]["scheme"]).collect();
    assert_eq!(schemes, ["http", "https"]);
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
    let translation = kong::translate(&yaml(GUARDED), false).unwrap();
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
    let open = kong::translate(&yaml(GUARDED), true).unwrap();
    assert_eq!(asked(&open, "h", "GET", "/jwt", [10, 0, 0, 1]), "1001");
    let everywhere = "_format_version: '3.0'\nplugins: [{name: ldap-auth}]\nservices: [{name: s, host: h, routes: [{paths: [/]}]}]\n";
    let translation = kong::translate(&yaml(everywhere), false).unwrap();
    assert_eq!(asked(&translation, "h", "GET", "/", [10, 0, 0, 1]), "503");
}

#[test]
fn ids_are_each_their_own() {
    let mut translation = Translation::default();
    assert_eq!(translation.id("proxy", "a b/c"), "a-b-c");
    assert_eq!(translation.id("proxy", "a b c"), "a-b-c-2");
    assert_eq!(translation.id("proxy", "***"), "proxy");
    assert_eq!(translation.id("upstream", "a b c"), "a-b-c");
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
    let translation = kong::translate(&yaml(COUNTERPARTS), false).unwrap();
    let document = good(&translation);
    assert_eq!(translation.closed, Vec::<String>::new());
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
    assert!(missing(&translation, "each gateway counts for itself"));
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
    assert!(missing(&translation, "x-e"));
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
        let translation = kong::translate(&yaml(&text), false).unwrap();
        assert_eq!(translation.closed.len(), 1, "{plugin}");
    }
}

const PLUGGED: &str = r#"
http {
  limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;
  limit_conn_zone $http_x_tenant zone=two:10m;
  gzip on;
  gzip_types text/css;
  add_header X-Outer outer;
  upstream u {
    server 10.0.0.1:80 max_fails=2 fail_timeout=30s slow_start=60s max_conns=100;
    server 10.0.0.2:80 max_fails=2 fail_timeout=30s slow_start=60s;
    server 10.0.0.3:80 backup max_fails=2 fail_timeout=30s slow_start=60s;
    sticky cookie srv expires=1h path=/ httponly;
    keepalive 32;
  }
  server {
    server_name a.example;
    location /old { return 301 https://$host$request_uri; }
    location /new { return https://b.example/; }
    location / {
      auth_basic "staff only";
      auth_basic_user_file HTPASSWD;
      limit_req zone=one burst=20 nodelay;
      limit_conn two 5;
      limit_req_status 429;
      add_header X-Inner "for $remote_addr" always;
      proxy_set_header Host $host;
      proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Tenant $http_x_tenant;
      proxy_set_header X-Gone "";
      rewrite ^/v1/(.*)$ /v2/$1 break;
      proxy_pass http://u;
    }
  }
}
"#;

#[test]
fn nginxs_directives_have_counterparts() {
    let file = std::env::temp_dir().join(format!("ferrum-import-{}.htpasswd", std::process::id()));
    std::fs::write(&file, "ann:$2y$05$abcdefghijklmnopqrstuuHYCyZQ9AzcHWpwJVIPvGfQPqmAXGWHq\n").unwrap();
    let text = PLUGGED.replace("HTPASSWD", file.to_str().unwrap());
    let translation = nginx::translate(&text, false).unwrap();
    let document = good(&translation);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(translation.closed, Vec::<String>::new());
    let others = translation.missing.iter().filter(|line| !line.contains("a prefix ends with a segment"));
    assert_eq!(others.count(), 0, "{:#?}", translation.missing);
    let all = document["plugin_configs"].as_array().unwrap();
    let configs = |name: &str| -> Vec<&Value> {
        all.iter().filter(|plugin| plugin["plugin_name"] == name).map(|plugin| &plugin["config"]).collect()
    };
    assert_eq!(
        configs("redirect"),
        [
            &json!({ "status_code": 301, "location": "https://${request.host}${request.target}" }),
            &json!({ "status_code": 302, "location": "https://b.example/" }),
        ]
    );
    assert_eq!(configs("basic_auth")[0]["realm"], "staff only");
    let limit = configs("rate_limiting")[0];
    assert_eq!(limit["limits"], json!([{ "rate": 10, "per": "1s", "burst": 21 }]));
    assert_eq!((&limit["limit_by"], &limit["status_code"]), (&json!("address"), &json!(429)));
    let limit = configs("concurrency_limiting")[0];
    assert_eq!((&limit["limit_by"], &limit["max_concurrent"]), (&json!("header:x-tenant"), &json!(5)));
    assert_eq!(
        configs("response_transformer").last().unwrap()["rules"],
        json!([{ "operation": "append", "target": "header", "key": "X-Inner", "value": "for ${client.address}" }])
    );
    let rules = configs("request_transformer")[0]["rules"].clone();
    assert_eq!(rules[0]["value"], "${request.header.x-tenant}");
    assert_eq!(rules[1], json!({ "operation": "remove", "target": "header", "key": "X-Gone" }));
    assert_eq!(configs("rewrite")[0]["regex"], json!([{ "from": "^/v1/(.*)$", "to": "/v2/$1" }]));
    assert_eq!(configs("compression")[0]["content_types"], json!(["text/html", "text/css"]));
    let upstream = by_id(&document, "upstreams", "u");
    assert_eq!(upstream["slow_start_seconds"], 60);
    assert_eq!(upstream["health_checks"]["passive"]["unhealthy_threshold"], 2);
    assert_eq!(upstream["sticky"]["cookie_config"]["ttl_seconds"], 3600);
    assert_eq!(upstream["targets"][0]["max_requests"], 100);
    assert_eq!(upstream["targets"][2]["priority"], 1);
}
