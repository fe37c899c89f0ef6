//! Traefik, Envoy, Ingress and OpenAPI, and what nginx's and Caddy's importers say: where requests go, and what never opens.

use ferrum_edge::import::{self, Conversion, Disk, Format, Options};
use serde_json::{Value, json};

use super::routes::{asked, asked_with, good, import, lost};

const HERE: [u8; 4] = [10, 1, 2, 3];

const TRAEFIK: &str = r#"
entryPoints:
  web: {address: ":80"}
  websecure: {address: ":443"}
  other: {address: ":8081"}
http:
  routers:
    plain: {rule: "Host(`a.test`)", service: one}
    api: {rule: "Host(`a.test`) && PathPrefix(`/api`)", service: two, middlewares: [office]}
    write: {rule: "Host(`a.test`) && PathPrefix(`/api`) && Method(`POST`, `PUT`)", service: two, middlewares: [staff, strip]}
    asked: {rule: "Host(`a.test`) && Path(`/asked`, `/asked/`)", service: one, middlewares: [asker]}
    chained: {rule: "Host(`a.test`) && PathPrefix(`/chained`)", service: one, middlewares: [both@file]}
    foreign: {rule: "Host(`a.test`) && PathPrefix(`/foreign`)", service: one, middlewares: [not-there@docker]}
    plugin: {rule: "Host(`a.test`) && PathPrefix(`/plugin`)", service: one, middlewares: [odd]}
    digest: {rule: "Host(`a.test`) && PathPrefix(`/digest`)", service: one, middlewares: [digest]}
    cycle: {rule: "Host(`a.test`) && PathPrefix(`/cycle`)", service: one, middlewares: [cycle]}
    header: {rule: "Host(`a.test`) && Headers(`X-V`, `2`) && !PathPrefix(`/api`)", service: two, priority: 500}
    regex: {rule: "HostRegexp(`{sub:[a-z]+}.wild.test`)", service: two}
    dashboard: {rule: "Host(`a.test`) && PathPrefix(`/dashboard`)", service: api@internal}
    away: {rule: "Host(`a.test`) && PathPrefix(`/away`)", service: two, entryPoints: [other]}
    redirected: {rule: "Host(`r.test`)", service: one, middlewares: [https]}
  middlewares:
    office: {ipWhiteList: {sourceRange: [10.0.0.0/8]}}
    staff: {basicAuth: {users: ["ann:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/"]}}
    strip: {stripPrefix: {prefixes: [/api]}}
    asker: {forwardAuth: {address: "http://10.0.0.9/verify", authResponseHeaders: [X-User]}}
    both: {chain: {middlewares: [office, staff]}}
    odd: {plugin: {ours: {}}}
    digest: {digestAuth: {users: [x]}}
    cycle: {chain: {middlewares: [cycle]}}
    https: {redirectScheme: {scheme: https, permanent: true}}
  services:
    one: {loadBalancer: {servers: [{url: "http://10.0.0.1:1001"}]}}
    two: {loadBalancer: {servers: [{url: "http://10.0.0.1:1002"}], healthCheck: {path: /up, interval: 10s}}}
"#;

#[test]
fn traefik_routers_and_middlewares() {
    let imported = import(Format::Traefik, TRAEFIK, false);
    good(&imported);
    for (method, path, expected) in [
        ("GET", "/", "1001"),
        ("GET", "/api/x", "1002 ip_restriction"),
        ("GET", "/apix", "1002 ip_restriction"),
        ("POST", "/api/x", "1002 basic_auth"),
        ("GET", "/asked", "1001 forward_auth"),
        ("GET", "/asked/x", "1001"),
        ("GET", "/chained", "1001 ip_restriction basic_auth"),
        ("GET", "/foreign", "503"),
        ("GET", "/plugin", "503"),
        ("GET", "/digest", "503"),
        ("GET", "/cycle", "503"),
        ("GET", "/dashboard/x", "503"),
        ("GET", "/away/x", "1001"),
    ] {
        assert_eq!(asked(&imported, "a.test", method, path, HERE), expected, "{method} {path}");
    }
    assert_eq!(asked(&imported, "a.test:8081", "GET", "/away/x", HERE), "1002", "an entry point of its own");
    assert_eq!(asked(&imported, "x.wild.test", "GET", "/", HERE), "1002");
    assert_eq!(asked(&imported, "r.test", "GET", "/", HERE), "301");
    assert_eq!(asked(&imported, "other.test", "GET", "/", HERE), "404");
    assert_eq!(asked_with(&imported, "a.test", "GET", "/x", HERE, &[("x-v", "2")]), "1002");
    let open = import(Format::Traefik, TRAEFIK, true);
    assert_eq!(asked(&open, "a.test", "GET", "/plugin", HERE), "1001");
    assert!(open.report.count(Conversion::Opened) > 0 && open.report.count(Conversion::Closed) == 0);
}

#[test]
fn traefik_labels_of_a_compose_file() {
    let text = r#"
x-common: &common {restart: always}
services:
  shop:
    <<: *common
    image: shop
    labels:
      - "traefik.enable=true"
      - "traefik.http.routers.shop.rule=Host(`shop.test`)"
      - "traefik.http.routers.shop.middlewares=auth@docker,limit"
      - "traefik.http.middlewares.auth.basicauth.users=ann:$$apr1$$abcdefgh$$h9FWgUz3n9YxylKLlR5SQ/"
      - "traefik.http.middlewares.limit.ratelimit.average=10"
      - "traefik.http.services.shop.loadbalancer.server.port=8080"
  open:
    labels:
      traefik.http.routers.open.rule: "Host(`open.test`)"
    expose: ["9000"]
  hidden:
    labels: ["traefik.enable=false", "traefik.http.routers.hidden.rule=Host(`hidden.test`)"]
"#;
    let imported = import(Format::Traefik, text, false);
    good(&imported);
    assert_eq!(asked(&imported, "shop.test", "GET", "/", HERE), "8080 basic_auth");
    assert_eq!(asked(&imported, "open.test", "GET", "/", HERE), "9000");
    assert_eq!(asked(&imported, "hidden.test", "GET", "/", HERE), "404");
}

const ENVOY: &str = r#"
static_resources:
  listeners:
  - name: main
    address: {socket_address: {address: 0.0.0.0, port_value: 8080}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: x
          http_filters: FILTERS
          route_config:
            virtual_hosts:
            - name: shop
              domains: [shop.test, "*.shop.test"]
              routes:
              - match: {path: /exact}
                direct_response: {status: 204}
              - match: {prefix: /old}
                redirect: {path_redirect: /new, response_code: FOUND}
              - match: {prefix: /api, headers: [{name: ":method", string_match: {exact: POST}}]}
                route: {cluster: two, prefix_rewrite: /v2}
              - match: {prefix: /api}
                route: {cluster: one}
              - match: {prefix: /own}
                route: {cluster: one}
                typed_per_filter_config: {x: {}}
              - match: {connect_matcher: {}}
                route: {cluster: one}
              - match: {prefix: /}
                route: {cluster: one}
            - name: rest
              domains: ["*"]
              routes:
              - match: {prefix: /}
                route: {cluster: gone}
  - name: db
    address: {socket_address: {address: 0.0.0.0, port_value: 5433}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config: {"@type": type.googleapis.com/x.TcpProxy, cluster: one}
  clusters:
  - name: one
    load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 1001}}}}]}]}
  - name: two
    lb_policy: LEAST_REQUEST
    load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 1002}}}}]}]}
"#;

#[test]
fn envoy_virtual_hosts_and_filters() {
    let router = "[{name: envoy.filters.http.router}]";
    let imported = import(Format::Envoy, &ENVOY.replace("FILTERS", router), false);
    good(&imported);
    for (method, path, expected) in [
        ("GET", "/exact", "204"),
        ("GET", "/old/x", "302"),
        ("POST", "/api/x", "1002"),
        ("GET", "/api/x", "1001"),
        ("GET", "/own", "503"),
        ("GET", "/x", "503"),
    ] {
        assert_eq!(asked(&imported, "shop.test", method, path, HERE), expected, "{method} {path}");
    }
    assert_eq!(asked(&imported, "other.test", "GET", "/", HERE), "503", "its cluster is not there");
    assert!(imported.proxies.iter().any(|proxy| proxy["listen_port"] == 5433));
    for (filter, expected) in [
        ("{name: envoy.filters.http.rbac}", "503"),
        ("{name: envoy.filters.http.lua}", "503"),
        (
            "{name: envoy.filters.http.ext_authz, typed_config: {'@type': x.ExtAuthz, grpc_service: {}}}",
            "503",
        ),
        (
            "{name: envoy.filters.http.ext_authz, typed_config: {'@type': x.ExtAuthz, http_service: {server_uri: {uri: 'http://10.0.0.9:80'}}}}",
            "1001 forward_auth",
        ),
        (
            "{name: envoy.filters.http.jwt_authn, typed_config: {'@type': x.JwtAuthentication, providers: {a: {}}}}",
            "503",
        ),
        (
            "{name: envoy.filters.http.jwt_authn, typed_config: {'@type': x.JwtAuthentication, providers: {a: {issuer: 'https://i.test', remote_jwks: {http_uri: {uri: 'https://i.test/keys'}}}}, rules: [{match: {prefix: /}, requires: {provider_name: a}}]}}",
            "1001 jwks_auth",
        ),
    ] {
        let text = ENVOY.replace("FILTERS", &format!("[{filter}, {{name: envoy.filters.http.router}}]"));
        let imported = import(Format::Envoy, &text, false);
        good(&imported);
        assert_eq!(asked(&imported, "shop.test", "GET", "/api/x", HERE), expected, "{filter}");
    }
}

const INGRESS: &str = r#"
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: web, annotations: {ANNOTATIONS}}
spec:
  rules:
  - host: shop.test
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 1001}}}}
      - {path: /api, pathType: Prefix, backend: {service: {name: api, port: {name: http}}}}
      - {path: /exact, pathType: Exact, backend: {service: {name: front, port: {number: 1003}}}}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: web}
spec: {ports: [{name: http, port: 1002}]}
---
apiVersion: v1
kind: Secret
metadata: {name: users, namespace: web}
stringData: {auth: "ann:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/"}
"#;

#[test]
fn ingresses_and_their_annotations() {
    let of = |annotations: &str| {
        let imported = import(Format::Ingress, &INGRESS.replace("ANNOTATIONS", annotations), false);
        good(&imported);
        imported
    };
    let imported = of("");
    for (path, expected) in [
        ("/", "1001"),
        ("/api", "1002"),
        ("/api/x", "1002"),
        ("/apix", "1001"),
        ("/exact", "1003"),
        ("/exact/x", "1001"),
    ] {
        assert_eq!(asked(&imported, "shop.test", "GET", path, HERE), expected, "{path}");
    }
    assert_eq!(asked(&imported, "other.test", "GET", "/", HERE), "404");
    let n = "nginx.ingress.kubernetes.io/";
    for (annotation, expected) in [
        (format!("{n}whitelist-source-range: 10.0.0.0/8"), "1001 ip_restriction"),
        (format!("{n}whitelist-source-range: nonsense"), "503"),
        (format!("{n}auth-type: basic, {n}auth-secret: users"), "1001 basic_auth"),
        (format!("{n}auth-type: basic, {n}auth-secret: gone"), "503"),
        (format!("{n}auth-type: digest, {n}auth-secret: users"), "503"),
        (format!("{n}auth-url: 'http://auth.web.svc/verify'"), "1001 forward_auth"),
        (format!("{n}auth-url: 'https://$host/oauth2/auth'"), "1001 forward_auth"),
        (format!("{n}auth-url: 'https://auth.test$request_uri'"), "503"),
        (format!("{n}auth-tls-secret: web/ca"), "503"),
        (format!("{n}configuration-snippet: 'deny all;'"), "503"),
        (format!("{n}configuration-snippet: 'more_set_headers \"X: y\";'"), "1001"),
        (format!("{n}enable-modsecurity: 'true'"), "503"),
        (format!("{n}permanent-redirect: 'https://x.test'"), "301"),
        (format!("{n}proxy-body-size: 8m"), "1001"),
        ("traefik.ingress.kubernetes.io/router.middlewares: web-auth@kubernetescrd".to_owned(), "503"),
        ("konghq.com/plugins: jwt".to_owned(), "503"),
        (format!("{n}canary: 'true', {n}canary-weight: '10'"), "404"),
    ] {
        assert_eq!(asked(&of(&annotation), "shop.test", "GET", "/", HERE), expected, "{annotation}");
    }
    let regex = of(&format!("{n}use-regex: 'true', {n}rewrite-target: '/$1'"));
    assert_eq!(asked(&regex, "shop.test", "GET", "/API/x", HERE), "1002", "regexes ignore case");
    assert_eq!(asked(&regex, "shop.test", "GET", "/apix", HERE), "1002", "and end anywhere");
}

#[test]
fn openapi_descriptions() {
    let text = "openapi: 3.1.0\nservers: [{url: 'http://10.0.0.1:1001/v1'}]\npaths:\n  /a: {get: {}, post: {security: [{k: []}]}}\n  /b/{id}/c: {get: {}}\ncomponents: {securitySchemes: {k: {type: http, scheme: bearer}}}\n";
    let imported = import(Format::OpenApi, text, false);
    good(&imported);
    for (method, path, expected) in [
        ("GET", "/v1/a", "1001"),
        ("POST", "/v1/a", "503"),
        ("PUT", "/v1/a", "404"),
        ("GET", "/v1/b/7/c", "1001"),
        ("GET", "/a", "404"),
    ] {
        assert_eq!(asked(&imported, "x.test", method, path, HERE), expected, "{method} {path}");
    }
    assert!(lost(&imported, "security k"));
}

#[test]
fn caddys_json() {
    let text = r#"{"apps": {"http": {"servers": {"srv0": {"listen": [":8080"], "automatic_https": {"disable": true}, "routes": [
      {"match": [{"host": ["a.test"]}], "terminal": true, "handle": [{"handler": "subroute", "routes": [
        {"match": [{"path": ["/no/*"]}], "handle": [{"handler": "static_response", "status_code": 403}]},
        {"match": [{"path": ["/auth/*"]}], "handle": [{"handler": "authentication", "providers": {"http_basic": {"accounts": [{"username": "ann", "password": "$2y$04$abcdefghijklmnopqrstuuwB0g5bBVJrdjEYGvr.VPqF8FxNKbHV6"}]}}}]},
        {"match": [{"expression": "true"}], "handle": [{"handler": "headers"}]},
        {"handle": [{"handler": "reverse_proxy", "upstreams": [{"dial": "10.0.0.1:1001"}]}]}
      ]}]},
      {"match": [{"host": ["b.test"]}], "handle": [{"handler": "waf"}, {"handler": "reverse_proxy", "upstreams": [{"dial": "10.0.0.1:1002"}]}]}
    ]}}}}}"#;
    let imported = import(Format::CaddyJson, text, false);
    good(&imported);
    assert_eq!(asked(&imported, "a.test", "GET", "/no/x", HERE), "403");
    assert_eq!(asked(&imported, "a.test", "GET", "/x", HERE), "503", "an expression can't be converted");
    assert_eq!(asked(&imported, "b.test", "GET", "/x", HERE), "503", "a handler that is not known");
    assert_eq!(asked(&imported, "c.test", "GET", "/x", HERE), "200", "where nothing answers, Caddy says 200");
    let open = import(Format::CaddyJson, text, true);
    assert_eq!(asked(&open, "b.test", "GET", "/x", HERE), "1002");
}

#[test]
fn several_files_and_unknown_ones() {
    let files = [
        ("static.yml".to_owned(), "entryPoints: {web: {address: ':80'}}".to_owned()),
        ("dynamic.yml".to_owned(), "http: {routers: {r: {rule: 'Host(`a.test`)', service: s}}, services: {s: {loadBalancer: {servers: [{url: 'http://10.0.0.1:1001'}]}}}}".to_owned()),
    ];
    let imported = import::import(Format::Traefik, &files, &Disk, Options::default()).expect("an import");
    assert_eq!(asked(&imported, "a.test", "GET", "/", HERE), "1001");
    assert!(import::import(Format::Nginx, &files, &Disk, Options::default()).is_err(), "nginx has one file");
    assert!(import::import(Format::Nginx, &[], &Disk, Options::default()).is_err());
}

#[test]
fn a_report_names_every_construct() {
    let text = "http {\n  keepalive_timeout 5;\n  server {\n    listen 80;\n    server_name a.test;\n    location / { proxy_pass http://10.0.0.1:1001; slice 1m; }\n    location /x { secure_link $arg_x; proxy_pass http://10.0.0.1:1002; }\n  }\n}\n";
    let imported = import(Format::Nginx, text, false);
    let lines: Vec<String> = imported.report.losses().map(ToString::to_string).collect();
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("/etc/original:6: warning: not converted: ")
                && line.contains("slice")),
        "{lines:#?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("/etc/original:7: danger: closed (503): ")
            && line.contains("secure_link")),
        "{lines:#?}"
    );
    assert!(imported.report.has_loss() && imported.report.count(Conversion::Converted) > 1);
    let json = imported.report.to_json();
    assert_eq!(json["counts"]["closed (503)"], 1);
    assert!(
        json["findings"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["line"] == 7 && one["todo"] != ""))
    );
    let whole = "http { server { listen 80; location / { proxy_pass http://10.0.0.1:1; } } }";
    assert!(!import(Format::Nginx, whole, false).report.has_loss());
}

#[test]
fn limits_of_nginx_count_by_address_or_by_a_key_that_may_be_empty() {
    let imported = import(
        Format::Nginx,
        "events {} http {
           limit_req_zone $binary_remote_addr zone=callers:10m rate=5r/s;
           limit_req_zone $http_x_key zone=keys:10m rate=30r/m;
           limit_conn_zone $remote_addr zone=open:10m;
           server {
             listen 8080;
             location / {
               proxy_pass http://127.0.0.1:3000;
               limit_req zone=callers burst=5 nodelay; limit_req zone=keys; limit_conn open 7;
             }
           }
         }",
        false,
    );
    let document = good(&imported);
    let configs: Vec<_> =
        document["plugin_configs"].as_array().unwrap().iter().map(|plugin| &plugin["config"]).collect();
    let limit = |rate, per, burst| json!([{ "rate": rate, "per": per, "burst": burst }]);
    assert_eq!((&configs[0]["limit_by"], &configs[0]["on_missing"]), (&json!("address"), &Value::Null));
    assert_eq!(configs[0]["limits"], limit(5, "1s", 6));
    assert_ne!(configs[1]["limit_by"], json!("address"));
    assert_eq!((&configs[1]["limits"], &configs[1]["on_missing"]), (&limit(30, "1m", 1), &json!("allow")));
    assert_eq!(configs[2]["max_concurrent"], json!(7));
    assert_eq!((&configs[2]["limit_by"], &configs[2]["on_missing"]), (&json!("address"), &Value::Null));
}
