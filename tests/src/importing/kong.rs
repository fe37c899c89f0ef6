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
    let conversion = import(Format::Kong, KONG, false);
    let document = good(&conversion);
    let api = by_id(&document, "proxies", "orders-api");
    assert_eq!(api["listen_path"], "/orders");
    assert_eq!(api["hosts"], json!(["api.example.com", "*.example.org"]));
    assert_eq!(api["matches"], json!([{ "methods": ["GET", "POST"] }]));
    assert_eq!(document["gateway"]["host_fallthrough"], true);
    assert_eq!((&api["backend_scheme"], &api["backend_host"]), (&json!("https"), &json!("orders.internal")));
    assert_eq!((&api["backend_port"], &api["backend_path"]), (&json!(8443), &json!("/v2")));
    assert_eq!(api["backend_connect_timeout"], "2s");
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
    assert_eq!(stream["tcp_idle_timeout"], json!(91));
    assert_eq!(stream["backend_connect_timeout"], json!("500ms"));
    assert_eq!((&stream["retry"], &stream["backend_idle_timeout"]), (&Value::Null, &Value::Null));
}

#[test]
fn kong_plugins_run_where_they_ran() {
    let conversion = import(Format::Kong, KONG, false);
    let document = good(&conversion);
    let names = |proxy: &Value| -> Vec<String> {
        let own = proxy["plugins"].as_array().cloned().unwrap_or_default();
        let ids = own.iter().map(|plugin| plugin["plugin_config_id"].as_str().unwrap().to_owned());
        ids.map(|id| by_id(&document, "plugin_configs", &id)["plugin_name"].as_str().unwrap().to_owned())
            .collect()
    };
    for proxy in ["orders-api", "orders-api-2"] {
        assert_eq!(
            names(by_id(&document, "proxies", proxy)),
            ["key_auth", "access_control", "rate_limiting", "request_transformer"]
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
    let conversion = import(Format::Kong, KONG, false);
    assert!(lost(&conversion, "basicauth"), "{:#?}", conversion.report);
    for what in ["bad.*", "weight of 0", "vaults"] {
        assert!(!lost(&conversion, what), "{what}: {:#?}", conversion.report);
    }
    assert!(!lost(&conversion, "certificates"), "an empty section is none");
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
    let conversion = import(Format::Kong, GUARDED, false);
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
        assert_eq!(asked(&conversion, "h", method, path, [10, 0, 0, 1]), expected, "{method} {path}");
    }
    let names: Vec<&Value> = conversion.consumers.iter().map(|consumer| &consumer["username"]).collect();
    assert_eq!(names, ["bob"], "who was guarded by something of her own does not get in without it");
    let open = import(Format::Kong, GUARDED, true);
    assert_eq!(asked(&open, "h", "GET", "/jwt", [10, 0, 0, 1]), "1001");
    let everywhere = "_format_version: '3.0'\nplugins: [{name: ldap-auth}]\nservices: [{name: s, host: h, routes: [{paths: [/]}]}]\n";
    let conversion = import(Format::Kong, everywhere, false);
    assert_eq!(asked(&conversion, "h", "GET", "/", [10, 0, 0, 1]), "503");
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
    let conversion = import(Format::Kong, COUNTERPARTS, false);
    let document = good(&conversion);
    assert_eq!(conversion.report.count(Conversion::Closed), 0);
    let config = |name: &str| {
        let list = document["plugin_configs"].as_array().unwrap();
        list.iter().find(|plugin| plugin["plugin_name"] == name).unwrap()["config"].clone()
    };
    assert_eq!(config("key_auth")["key_location"], json!(["header:k", "query:k", "header:l", "query:l"]));
    let proxy = by_id(&document, "proxies", "r");
    assert_eq!(proxy["auth_mode"], "all", "Kong asks each of them");
    assert_eq!(proxy["same_caller"], false, "and lets them name two consumers");
    assert_eq!(config("basic_auth"), json!({ "hide_credentials": true }));
    assert_eq!(config("hmac_auth")["algorithms"], json!(["hmac-sha256"]));
    let jwt = config("jwt_auth");
    assert_eq!(jwt["token_lookup"], json!(["header:authorization", "query:jwt", "cookie:t"]));
    assert_eq!((&jwt["consumer_claim_field"], &jwt["require_exp"]), (&json!("iss"), &json!(true)));
    assert_eq!(
        config("ip_restriction"),
        json!({ "allow": ["10.0.0.0/8"], "deny": ["10.0.0.7"], "status_code": 404 })
    );
    assert_eq!(config("bot_detection"), json!({ "deny": ["~(?-i:curl)"] }));
    let limits = config("rate_limiting");
    assert_eq!(limits["limits"], json!([{ "rate": 5, "per": "1m" }, { "rate": 100, "per": "1h" }]));
    assert_eq!(limits["limit_by"], "address");
    assert!(lost(&conversion, "each gateway counts for itself"));
    assert_eq!(config("request_size_limiting")["max_size"], 8 << 20);
    let cors = config("cors");
    assert_eq!(
        (&cors["allowed_origins"], &cors["allow_credentials"]),
        (&json!(["https://a.example"]), &json!(true))
    );
    let rules = config("request_transformer")["rules"].clone();
    assert_eq!(rules.as_array().unwrap().len(), 7);
    assert_eq!(rules[3], json!({ "operation": "update", "target": "header", "key": "x-d", "value": "1$$" }));
    assert_eq!(rules[4], json!({ "operation": "update", "target": "body", "key": "/n", "value": "v" }));
    assert!(lost(&conversion, "x-e"));
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
        let conversion = import(Format::Kong, &text, false);
        assert_eq!(conversion.report.count(Conversion::Closed), 1, "{plugin}");
    }
}

/// A path that can't be made anew is named.
#[test]
fn kongs_paths_that_are_not_replaced_are_named() {
    for config in [
        "{replace: {uri: '/x/$(uri_captures.id)'}}",
        "{replace: {uri: '/x/$(shared.id)'}}",
        "{replace: {uri: '/x/$(headers.x)'}, remove: {headers: [x-a]}}",
    ] {
        let text = format!(
            "_format_version: '3.0'\nservices:\n- name: s\n  url: http://10.0.0.1\n  routes: [{{name: r, paths: [/]}}]\n  plugins: [{{name: request-transformer, config: {config}}}]\n"
        );
        assert!(lost(&import(Format::Kong, &text, false), "`replace.uri`"), "{config}");
    }
}

/// What Kong takes together, and the gateway refuses or has elsewhere.
#[test]
fn kongs_plugins_become_good_ones() {
    for (plugin, name, config) in [
        (
            "{name: cors, config: {origins: ['https://a.test', '*']}}",
            "cors",
            json!({ "allowed_origins": ["*"] }),
        ),
        (
            "{name: request-transformer, config: {replace: {uri: '/new$path'}}}",
            "rewrite",
            json!({ "path": "/new$$path" }),
        ),
    ] {
        let text = format!(
            "_format_version: '3.0'\nservices:\n- name: s\n  url: http://10.0.0.1\n  routes: [{{name: r, paths: [/]}}]\n  plugins: [{plugin}]\n"
        );
        let document = good(&import(Format::Kong, &text, false));
        let plugins = document["plugin_configs"].as_array().expect("has plugins");
        let made = plugins.iter().find(|it| it["plugin_name"] == name).expect("has the plugin");
        for (key, value) in config.as_object().expect("is an object") {
            assert_eq!(made["config"][key], *value, "{plugin}");
        }
    }
}

const HERE: [u8; 4] = [10, 1, 2, 3];

/// Services on ports 1001 and up, with these routes each.
fn services(routes: &[&str]) -> String {
    let each = routes.iter().enumerate().map(|(n, routes)| {
        format!("- {{name: s{n}, url: 'http://10.0.0.1:{}', routes: [{routes}]}}\n", 1001 + n)
    });
    format!("_format_version: '3.0'\nservices:\n{}", each.collect::<String>())
}

#[test]
fn kong_paths_before_version_3_may_be_regexes() {
    let text = services(&[
        "{name: all, paths: [/]}",
        r"{name: users, paths: ['/users/\d+$', /plain-1.0], plugins: [{name: key-auth}]}",
    ]);
    for (version, expected) in [("1.1", "1002 key_auth"), ("2.1", "1002 key_auth"), ("3.0", "1001")] {
        let imported = import(Format::Kong, &text.replace("'3.0'", &format!("'{version}'")), false);
        good(&imported);
        assert_eq!(asked(&imported, "a.test", "GET", "/users/5", HERE), expected, "{version}");
        assert_eq!(asked(&imported, "a.test", "GET", "/plain-1.0/x", HERE), "1002 key_auth", "{version}");
    }
}

/// What asks for TLS takes plain requests as well: it refuses them, and does not leave them to another route.
#[test]
fn kong_routes_for_tls_keep_plain_requests() {
    let text = services(&[
        "{name: all, paths: [/]}",
        "{name: only, paths: [/only], protocols: [https], plugins: [{name: key-auth}]}, \
         {name: sent, paths: [/sent], protocols: [https], https_redirect_status_code: 308}, \
         {name: sni, paths: [/sni], snis: [a.test], plugins: [{name: key-auth}]}, \
         {name: calls, paths: [/shop.Cart], protocols: [grpc, grpcs]}",
    ]);
    let imported = import(Format::Kong, &text, false);
    let document = good(&imported);
    for (path, expected) in [
        ("/only/x", "426"),
        ("/onlyx", "426"),
        ("/sent", "308"),
        ("/sni", "1002 key_auth"),
        ("/shop.Cart/Get", "415"),
        ("/x", "1001"),
    ] {
        assert_eq!(asked(&imported, "a.test", "GET", path, HERE), expected, "{path}");
    }
    let configs = document["plugin_configs"].as_array().unwrap();
    let of = |status: u64| configs.iter().find(|it| it["config"]["status_code"] == status).unwrap();
    assert_eq!(
        (&of(426)["when"], &of(308)["when"]),
        (&json!({ "scheme": "http" }), &json!({ "scheme": "http" }))
    );
    assert!(of(415)["when"]["not"].is_object());
}

#[test]
fn kong_orders_routes_by_how_much_they_ask_for() {
    let text = services(&[
        "{name: reads, methods: [GET]}, {name: v2, headers: {x-v: ['2']}}",
        "{name: admin, paths: [/admin], plugins: [{name: key-auth}]}",
        "{name: host, hosts: [a.test]}, {name: wild, hosts: ['*.b.test']}",
        "{name: deep, paths: [/deep], methods: [GET, POST], plugins: [{name: key-auth}]}",
        "{name: exact, hosts: [x.b.test]}, {name: more, hosts: ['*.b.test'], paths: [/more], plugins: [{name: key-auth}]}",
    ]);
    let imported = import(Format::Kong, &text, false);
    good(&imported);
    for (host, path, expected) in [
        ("c.test", "/admin", "1002 key_auth"),
        ("c.test", "/x", "1001"),
        ("a.test", "/admin", "1003"),
        ("a.test", "/deep/x", "1004 key_auth"),
        ("a.test", "/deepx", "1004 key_auth"),
        ("x.b.test", "/deep", "1004 key_auth"),
        ("x.b.test", "/more", "1005 key_auth"),
        ("x.b.test", "/", "1005"),
        ("y.b.test", "/", "1003"),
    ] {
        assert_eq!(asked(&imported, host, "GET", path, HERE), expected, "{host}{path}");
    }
    assert_eq!(imported.report.losses().count(), 0);
}

#[test]
fn kong_hosts_with_a_star_behind_or_a_port() {
    let text = services(&[
        "{name: all}, {name: plain, hosts: [c.test]}",
        "{name: own, hosts: ['b.*', c.test, 'd.test:8443', '*.e.test:80'], paths: [/x], plugins: [{name: key-auth}]}",
    ]);
    let imported = import(Format::Kong, &text.replace("{name: all}", "{name: all, paths: [/]}"), false);
    good(&imported);
    for (host, expected) in [
        ("b.test", "1002 key_auth"),
        ("B.other.test:8000", "1002 key_auth"),
        ("c.test", "1002 key_auth"),
        ("d.test:8443", "1002 key_auth"),
        ("d.test", "1001"),
        ("q.e.test", "1002 key_auth"),
        ("bx.test", "1001"),
    ] {
        assert_eq!(asked(&imported, host, "GET", "/x", HERE), expected, "{host}");
    }
    assert_eq!(imported.report.losses().count(), 0);
}

/// Objects that stand apart from their owners, settings that plugins share, and defaults.
#[test]
fn kong_objects_that_stand_apart() {
    let text = r#"
_format_version: "3.0"
_info: {defaults: {route: {strip_path: false}}}
_plugin_configs: {inside: {allow: [10.9.0.0/16]}}
services:
- name: s
  host: u
  routes:
  - {name: r, paths: [/r], plugins: [{name: ip-restriction, _config: inside}]}
  - {name: filtered, paths: [/filtered], filter_chains: [{filters: [{name: guard}]}]}
upstreams: [{name: u}]
targets: [{upstream: u, target: "10.0.0.1:1001"}, {upstream: u, target: "10.0.0.2:1001", weight: 50}, {upstream: gone, target: x}]
consumers: [{username: ann, id: 0a1b}, {username: bob}, {username: dan, id: d00d}]
keyauth_credentials: [{consumer: ann, key: '${{ env "DECK_ANN" }}'}, {consumer: bob, key: '{vault://env/bob-key}'}, {consumer: {id: d00d}, key: '{vault://aws/dan}'}]
acls: [{consumer: {id: 0a1b}, group: banned}]
filter_chains: [{route: r, enabled: false, filters: [{name: guard}]}]
plugins: [{name: mocking, consumer: {id: d00d}, config: {api_specification: x}}]
"#;
    let imported = import(Format::Kong, text, false);
    let document = imported.document();
    assert_eq!(by_id(&document, "proxies", "r")["strip_listen_path"], false);
    let targets = json!([
        { "host": "10.0.0.1", "port": 1001, "weight": 100 }, { "host": "10.0.0.2", "port": 1001, "weight": 50 },
    ]);
    assert_eq!(by_id(&document, "upstreams", "u")["targets"], targets);
    let ann = by_id(&document, "consumers", "ann");
    assert_eq!(ann["acl_groups"], json!(["banned"]));
    assert_eq!(ann["credentials"]["key_auth"], json!([{ "key": "${env:DECK_ANN}" }]));
    let bob = by_id(&document, "consumers", "bob");
    assert_eq!(bob["credentials"]["key_auth"], json!([{ "key": "${env:BOB_KEY}" }]));
    assert!(
        document["consumers"].as_array().unwrap().iter().all(|it| it["username"] != "dan"),
        "a plugin guards it"
    );
    let configs = document["plugin_configs"].as_array().unwrap();
    assert!(configs.iter().any(|it| it["config"] == json!({ "allow": ["10.9.0.0/16"] })));
    assert!(lost(&imported, "filtered, filter chain") && !lost(&imported, "filter_chains, filter chain"));
    assert!(lost(&imported, "vault://aws/dan") && lost(&imported, "targets"));
    assert_eq!(imported.report.count(Conversion::Closed), 2);
}

/// Of several plugins of one name, the one closest to the route runs.
#[test]
fn kong_plugins_of_a_route_go_before_those_of_its_service() {
    let text = r#"
_format_version: "3.0"
services:
- name: s
  url: http://10.0.0.1:1001
  plugins: [{name: ip-restriction, config: {allow: [10.0.0.0/8]}}, {name: key-auth, config: {anonymous: guest}}]
  routes:
  - {name: own, paths: [/own], plugins: [{name: ip-restriction, config: {allow: [192.168.0.0/16]}}, {name: basic-auth, config: {anonymous: guest}}]}
  - {name: rest, paths: [/]}
plugins: [{name: ip-restriction, config: {deny: [10.9.0.0/16]}}, {name: request-termination, enabled: false}]
consumers: [{username: guest}]
"#;
    let imported = import(Format::Kong, text, false);
    let document = good(&imported);
    let allowed = |proxy: &str| -> Vec<Value> {
        let named = by_id(&document, "proxies", proxy)["plugins"].as_array().unwrap();
        let all = named
            .iter()
            .map(|it| by_id(&document, "plugin_configs", it["plugin_config_id"].as_str().unwrap()));
        all.filter(|it| it["plugin_name"] == "ip_restriction")
            .map(|it| it["config"]["allow"][0].clone())
            .collect()
    };
    assert_eq!((allowed("own"), allowed("rest")), (vec![json!("192.168.0.0/16")], vec![json!("10.0.0.0/8")]));
    assert_eq!(by_id(&document, "proxies", "own")["auth_mode"], "multi", "either of them is enough");
    let configs = document["plugin_configs"].as_array().unwrap();
    assert_eq!(configs.iter().filter(|it| it["config"]["anonymous"] == "guest").count(), 2);
    // Without the consumer, callers have to say who they are.
    let gone = import(Format::Kong, &text.replace("[{username: guest}]", "[]"), false);
    assert!(
        good(&gone)["plugin_configs"]
            .as_array()
            .unwrap()
            .iter()
            .all(|it| it["config"].get("anonymous").is_none())
    );
}

#[test]
fn kong_routes_by_expression() {
    let text = services(&[
        r#"{name: all, expression: 'http.path ^= "/"', priority: 1}"#,
        r#"{name: api, expression: 'http.path ^= "/api" && http.method == "POST"', priority: 70368744177664, plugins: [{name: key-auth}]}"#,
        r#"{name: host, expression: '(http.host == "a.test" || http.host =^ ".b.test") && !(net.src.ip in 10.9.0.0/16)', priority: 50, strip_path: false}"#,
    ]);
    let imported = import(Format::Kong, &text, false);
    let document = good(&imported);
    for (method, host, path, client, expected) in [
        ("GET", "c.test", "/api", HERE, "1001"),
        ("POST", "a.test", "/api/x", HERE, "1002 key_auth"),
        ("GET", "A.test:8000", "/api/x", HERE, "1003"),
        ("GET", "x.b.test", "/", HERE, "1003"),
        ("GET", "a.test", "/", [10, 9, 0, 1], "1001"),
    ] {
        assert_eq!(asked(&imported, host, method, path, client), expected, "{method} {host}{path}");
    }
    let rewrite =
        document["plugin_configs"].as_array().unwrap().iter().find(|it| it["proxy_id"] == "api").unwrap();
    assert_eq!(rewrite["config"]["regex"], json!([{ "from": "^/api/?(.*)$", "to": "/${1}" }]));
    assert_eq!(imported.report.losses().count(), 0);
}

/// Records go to the same places, and what dumps say of their own accord is no loss.
#[test]
fn kong_as_it_is_dumped() {
    let text = r#"
_format_version: "3.0"
_info: {defaults: {}, select_tags: [team]}
services:
- name: s
  url: http://10.0.0.1:1001
  tls_verify: null
  client_certificate: null
  plugins:
  - {name: cors, protocols: [grpc, grpcs, http, https], config: {origins: ['https://a.test'], allow_origin_absent: true}}
  - {name: proxy-cache, protocols: [http, https], config: {cache_ttl: 60, response_code: [200, 301, 404, 206], request_method: [GET, HEAD], memory: {dictionary_name: d}, strategy: memory}}
  - {name: http-log, config: {http_endpoint: 'http://log.test/in', method: POST, timeout: 500, headers: {x-k: v}}}
  routes: [{name: r, paths: [/r], methods: null, protocols: [http, https]}, {name: all, paths: [/], methods: [GET]}]
upstreams:
- name: u
  hash_on: none
  hash_fallback: none
  use_srv_name: false
  healthchecks: {active: {healthy: {interval: 0, successes: 0}, unhealthy: {interval: 0}}, passive: {unhealthy: {http_failures: 0}}}
  targets: [{target: 10.0.0.1:8080, weight: 100}]
plugins:
- {name: prometheus, protocols: [http, https], config: {per_consumer: false}}
- {name: file-log, config: {path: /dev/stdout, reopen: false}}
"#;
    let imported = import(Format::Kong, text, false);
    let document = good(&imported);
    let losses: Vec<String> = imported.report.losses().map(ToString::to_string).collect();
    assert!(
        losses.len() == 2 && losses.iter().all(|it| it.contains("records have the gateway's own fields")),
        "{losses:#?}"
    );
    let sinks = &document["gateway"]["access_log"]["sinks"];
    assert_eq!(
        sinks[0]["http"],
        json!({ "url": "http://log.test/in", "headers": { "x-k": "v" }, "timeout": "500ms" })
    );
    assert_eq!(sinks[0]["proxies"], json!(["r", "all", "r-within"]));
    assert_eq!((&sinks[1]["stdout"], sinks[1].get("proxies")), (&json!({}), None));
    let configs = document["plugin_configs"].as_array().unwrap();
    let cache = &configs.iter().find(|it| it["plugin_name"] == "response_cache").unwrap()["config"];
    assert_eq!((&cache["statuses"], &cache["negative_statuses"]), (&json!([200, 301]), &json!([404])));
    let checked = text.replace(
        "unhealthy: {interval: 0}",
        "unhealthy: {interval: 5, http_failures: 2}, timeout: 1, http_path: /up",
    );
    let document = import(Format::Kong, &checked, false).document();
    assert_eq!(
        document["upstreams"][0]["health_checks"]["active"],
        json!({ "interval": 5, "http_path": "/up", "timeout": 1, "unhealthy_threshold": 2 })
    );
}
