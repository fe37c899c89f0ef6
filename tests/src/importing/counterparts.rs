//! Guards and limits of other gateways that have a counterpart here: the import is a good configuration, it guards, and what of it
//! is not known closes.

use ferrum_edge::import::{Format, Import};
use serde_json::{Value, json};

use super::routes::{asked, asked_with, by_id, good, import, lost};

const HERE: [u8; 4] = [10, 1, 2, 3];

/// The settings of the only plugin config of this name.
fn plugin<'v>(document: &'v Value, name: &str) -> &'v Value {
    let list = document["plugin_configs"].as_array().expect("plugins");
    let found: Vec<&Value> = list.iter().filter(|one| one["plugin_name"] == name).collect();
    assert_eq!(found.len(), 1, "{name} in {document:#}");
    found[0]
}

fn kong(plugin: &str) -> Import {
    let text = format!(
        "_format_version: '3.0'\nservices:\n  - {{name: s, url: 'http://10.0.0.1:1001', routes: [{{name: r, paths: [/]}}], plugins: [{plugin}]}}\n"
    );
    import(Format::Kong, &text, false)
}

#[test]
fn kong_asks_others_who_a_caller_is() {
    let ldap = "{name: ldap-auth, config: {ldap_host: ldap.internal, ldap_port: 636, ldaps: true, base_dn: 'dc=a,dc=b', attribute: uid, header_type: basic, cache_ttl: 60}}";
    let document = good(&kong(ldap));
    let config = &plugin(&document, "ldap_auth")["config"];
    assert_eq!(config["urls"], json!(["ldaps://ldap.internal:636"]));
    assert_eq!(config["bind_dn"], "uid={username},dc=a,dc=b");
    let asked_for = "{name: oauth2-introspection, config: {introspection_url: 'https://id.internal/introspect', authorization_value: 'Basic Z2F0ZTpzZWNyZXQ=', scopes_required: [read]}}";
    let document = good(&kong(asked_for));
    let config = &plugin(&document, "oauth2_introspection")["config"];
    assert_eq!((&config["client_id"], &config["client_secret"]), (&json!("gate"), &json!("secret")));
    assert_eq!(config["required_scopes"], json!(["read"]));
    let bearer = "{name: openid-connect, config: {issuer: 'https://id.internal/realms/a/.well-known/openid-configuration', auth_methods: [bearer], audience_required: [shop]}}";
    let document = good(&kong(bearer));
    let provider = &plugin(&document, "jwks_auth")["config"]["providers"][0];
    assert_eq!(provider["issuer"], "https://id.internal/realms/a");
    assert_eq!(provider["audience"], json!(["shop"]));
}

#[test]
fn kong_guards_that_are_not_known_are_closed() {
    for guard in [
        "{name: ldap-auth, config: {ldap_host: l, base_dn: b, attribute: uid}}",
        "{name: ldap-auth, config: {ldap_host: l, base_dn: b, attribute: uid, header_type: basic, groups_required: [x]}}",
        "{name: openid-connect, config: {issuer: 'https://id.internal', auth_methods: [authorization_code, session]}}",
        "{name: openid-connect, config: {issuer: 'https://id.internal'}}",
        "{name: openid-connect, config: {issuer: 'https://id.internal', auth_methods: [bearer], roles_required: [admin]}}",
        "{name: openid-connect, config: {issuer: 'https://id.internal', auth_methods: [bearer], verify_signature: false}}",
        "{name: oauth2-introspection, config: {introspection_url: 'https://id.internal', authorization_value: 'Bearer x'}}",
        "{name: mtls-auth, config: {}}",
    ] {
        let imported = kong(guard);
        good(&imported);
        assert_eq!(asked(&imported, "a.test", "GET", "/", HERE), "503", "{guard}");
    }
}

#[test]
fn kong_limits_in_redis_and_settings_that_are_not_read() {
    let limit = "{name: rate-limiting, config: {minute: 5, policy: redis, redis: {host: redis.internal, port: 6380, password: p, database: 2}, unheard_of: 7}}";
    let imported = kong(limit);
    let document = good(&imported);
    let redis = &plugin(&document, "rate_limiting")["config"]["redis"];
    assert_eq!(redis, &json!({ "name": "main" }));
    let named =
        json!({ "main": { "urls": ["redis://redis.internal:6380"], "password": "p", "database": 2 } });
    assert_eq!(document["gateway"]["redis"], named);
    assert!(lost(&imported, "config.unheard_of"), "what is not read is named");
    let stop = "{name: request-termination, config: {status_code: 403, trigger: x-stop}}";
    let document = good(&kong(stop));
    let when = &plugin(&document, "request_termination")["when"];
    assert_eq!(when["any"][1], json!({ "query": { "x-stop": { "present": true } } }));
    let imported = kong("{name: prometheus, config: {per_consumer: true}}");
    assert!(!lost(&imported, "prometheus"), "metrics need no counterpart");
}

fn envoy(filters: &str, action: &str) -> Import {
    envoy_with(filters, action, "")
}

/// As [`envoy`], with more fields of the cluster `one`.
fn envoy_with(filters: &str, action: &str, fields: &str) -> Import {
    let text = format!(
        r#"
static_resources:
  listeners:
  - name: main
    address: {{socket_address: {{address: 0.0.0.0, port_value: 8080}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": x.HttpConnectionManager
          stat_prefix: x
          use_remote_address: true
          http_filters: [{filters}]
          route_config:
            virtual_hosts: [{{name: all, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{{action}}}}}]}}]
  clusters:
  - {{name: one, {fields}load_assignment: {{endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 10.0.0.1, port_value: 1001}}}}}}}}]}}]}}}}
  - {{name: two, load_assignment: {{endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 10.0.0.1, port_value: 1002}}}}}}}}]}}]}}}}
  - {{name: authz, load_assignment: {{endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 10.0.0.9, port_value: 9001}}}}}}}}]}}]}}}}
"#
    );
    import(Format::Envoy, &text, false)
}

#[test]
fn envoy_asks_by_grpc() {
    let filter = "{name: a, typed_config: {'@type': x.ExtAuthz, transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: authz}, timeout: 0.5s}, with_request_body: {max_request_bytes: 1024, allow_partial_message: true}}}";
    let imported = envoy(filter, "cluster: one");
    let document = good(&imported);
    let config = &plugin(&document, "forward_auth")["config"];
    assert_eq!(
        config,
        &json!({ "url": "http://10.0.0.9:9001", "convention": "envoy_grpc", "status_on_error": 403, "timeout": "500ms",
                 "send_body": true, "max_body": 1024, "allow_partial_body": true })
    );
    let unknown = filter.replace("cluster_name: authz", "cluster_name: gone");
    assert_eq!(asked(&envoy(&unknown, "cluster: one"), "a.test", "GET", "/", HERE), "503");
}

#[test]
fn envoy_roles() {
    let filter = |rules: &str| format!("{{name: a, typed_config: {{'@type': x.RBAC, rules: {rules}}}}}");
    let allow = "{action: ALLOW, policies: {office: {permissions: [{url_path: {path: {prefix: /admin}}}, {header: {name: ':method', string_match: {exact: GET}}}], principals: [{remote_ip: {address_prefix: 10.0.0.0, prefix_len: 8}}, {not_id: {header: {name: x-guest, present_match: true}}}]}}}";
    let imported = envoy(&filter(allow), "cluster: one");
    let document = good(&imported);
    let when = &plugin(&document, "request_termination")["when"];
    assert!(when["not"]["all"].is_array(), "{when:#}");
    let deny = "{action: DENY, policies: {all: {permissions: [{any: true}], principals: [{source_ip: {address_prefix: 192.0.2.0, prefix_len: 24}}]}}}";
    let document = good(&envoy(&filter(deny), "cluster: one"));
    assert_eq!(plugin(&document, "request_termination")["when"], json!({ "clients": ["192.0.2.0/24"] }));
    for unknown in [
        "{action: ALLOW, policies: {a: {permissions: [{any: true}], principals: [{authenticated: {}}]}}}",
        "{action: ALLOW, policies: {a: {permissions: [{any: true}], principals: [{any: true}], condition: {}}}}",
        "{action: ALLOW, policies: {a: {permissions: [{destination_port: 80}], principals: [{any: true}]}}}",
    ] {
        assert_eq!(
            asked(&envoy(&filter(unknown), "cluster: one"), "a.test", "GET", "/", HERE),
            "503",
            "{unknown}"
        );
    }
    // Nobody fits no policy.
    let nobody = envoy(&filter("{action: ALLOW}"), "cluster: one");
    good(&nobody);
    assert_eq!(asked(&nobody, "a.test", "GET", "/", HERE), "403");
}

#[test]
fn envoy_limits_of_clusters() {
    let limits = |fields: &str| {
        let fields = format!("circuit_breakers: {{thresholds: [{{{fields}}}]}}, ");
        envoy_with("", "cluster: one", &fields)
    };
    let document = good(&limits("max_connections: 20, max_pending_requests: 7, max_requests: 50"));
    let one = by_id(&document, "upstreams", "one");
    let target = &one["targets"][0];
    assert_eq!((&target["max_connections"], &target["max_requests"]), (&json!(20), &json!(50)));
    assert_eq!(one["queue"], json!({ "max_waiting": 7, "timeout": "15s" }));
    let document = good(&limits("max_connections: 20"));
    let one = by_id(&document, "upstreams", "one");
    assert_eq!(
        (&one["targets"][0]["max_requests"], &one["queue"]["max_waiting"]),
        (&Value::Null, &json!(1024))
    );
    let document = good(&limits("max_requests: 50"));
    assert_eq!(by_id(&document, "upstreams", "one")["queue"], Value::Null);
    assert!(lost(&limits("max_retries: 3"), "circuit_breakers"));
}

#[test]
fn envoy_shares_of_clusters() {
    let action = "weighted_clusters: {clusters: [{name: one, weight: 90}, {name: two, weight: 10}]}";
    let document = good(&envoy("", action));
    let two = by_id(&document, "upstreams", "two");
    assert_eq!(two["targets"][0]["port"], 1002);
    let splits = &plugin(&document, "traffic_split")["config"]["splits"];
    assert_eq!(splits, &json!([{ "weight": 90 }, { "upstream_id": "two", "weight": 10 }]));
    assert!(lost(&envoy("", "cluster: one, internal_redirect_policy: {}, priority: HIGH"), "route.priority"));
}

fn traefik(middleware: &str) -> Import {
    let text = format!(
        "http:\n  routers:\n    r: {{rule: 'Host(`a.test`)', service: s, middlewares: [m]}}\n  middlewares:\n    m: {middleware}\n  services:\n    s: {{loadBalancer: {{servers: [{{url: 'http://10.0.0.1:1001'}}]}}}}\n"
    );
    import(Format::Traefik, &text, false)
}

#[test]
fn traefik_limits_and_redirects() {
    let document = good(&traefik(
        "{rateLimit: {average: 100, period: 1m, burst: 50, sourceCriterion: {requestHeaderName: X-Key}}}",
    ));
    let config = &plugin(&document, "rate_limiting")["config"];
    assert_eq!(config["limits"], json!([{ "rate": 100, "per": "60000ms", "burst": 50 }]));
    assert_eq!(config["limit_by"], "header:X-Key");
    let document = good(&traefik("{inFlightReq: {amount: 10}}"));
    assert_eq!(plugin(&document, "concurrency_limiting")["config"]["limit_by"], "template:${request.host}");
    let document =
        good(&traefik("{circuitBreaker: {expression: 'NetworkErrorRatio() > 0.3', fallbackDuration: 20s}}"));
    let breaker = &document["proxies"][0]["circuit_breaker"];
    assert_eq!((&breaker["timeout"], &breaker["failure_status_codes"]), (&json!(20), &json!([])));
    let document = good(&traefik("{retry: {attempts: 4, initialInterval: 100ms}}"));
    assert_eq!(document["proxies"][0]["retry"]["max_retries"], 3);
    let moved = traefik(
        r"{redirectRegex: {regex: '^https?://a\.test/(.*)', replacement: 'https://b.test/${1}', permanent: true}}",
    );
    good(&moved);
    assert_eq!(asked(&moved, "a.test", "GET", "/x", HERE), "301");
    for unknown in [
        "{redirectRegex: {regex: '^https?://(.*)/x', replacement: 'https://${1}'}}",
        "{ipAllowList: {sourceRange: [10.0.0.0/8], ipStrategy: {depth: 2}}}",
        "{headers: {allowedHosts: [a.test]}}",
    ] {
        assert_eq!(asked(&traefik(unknown), "a.test", "GET", "/", HERE), "503", "{unknown}");
    }
}

#[test]
fn traefik_asks_with_the_body_and_names_what_it_does_not_read() {
    let imported = traefik(
        "{forwardAuth: {address: 'http://10.0.0.9/x', forwardBody: true, maxBodySize: 4096, headerField: X-Who}}",
    );
    let document = good(&imported);
    let config = &plugin(&document, "forward_auth")["config"];
    assert_eq!((&config["send_body"], &config["max_body"]), (&json!(true), &json!(4096)));
    assert!(lost(&imported, "http.middlewares.m.forwardAuth.headerField"));
}

const INGRESS: &str = r"
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: main, namespace: shop}
spec: {rules: [{host: a.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: canary
  namespace: shop
  annotations:
    nginx.ingress.kubernetes.io/canary: 'true'
    nginx.ingress.kubernetes.io/canary-by-header: X-Canary
    nginx.ingress.kubernetes.io/canary-weight: '20'
spec: {rules: [{host: a.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: next, port: {number: 81}}}}]}}]}
";

#[test]
fn ingress_canaries_by_header_and_weight() {
    let imported = import(Format::Ingress, INGRESS, false);
    let document = good(&imported);
    assert_eq!(asked(&imported, "a.test", "GET", "/", HERE), "80");
    assert_eq!(asked_with(&imported, "a.test", "GET", "/", HERE, &[("x-canary", "always")]), "81");
    let config = &plugin(&document, "traffic_split")["config"];
    let upstream = config["splits"][1]["upstream_id"].as_str().expect("an upstream");
    assert_eq!(config["splits"][0]["weight"], 80);
    assert_eq!(by_id(&document, "upstreams", upstream)["targets"][0]["host"], "next.shop.svc.cluster.local");
    assert_eq!(config["overrides"], json!([{ "header": "X-Canary", "value": "never" }]));
}

#[test]
fn traefik_in_toml() {
    let text = r#"
[http.routers.shop]
rule = "Host(`a.test`) && PathPrefix(`/api`)"
service = "shop"
middlewares = ["office"]

[http.middlewares.office.ipAllowList]
sourceRange = ["10.0.0.0/8"]

[[http.services.shop.loadBalancer.servers]]
url = "http://10.0.0.1:1001"
[[http.services.shop.loadBalancer.servers]]
url = "http://10.0.0.2:1001"
"#;
    let sources = [("dynamic.toml".to_owned(), text.to_owned())];
    let imported = ferrum_edge::import::import(
        Format::Traefik,
        &sources,
        &ferrum_edge::import::NoFiles,
        ferrum_edge::import::Options::default(),
    )
    .expect("an import");
    assert_eq!(by_id(&good(&imported), "upstreams", "shop")["targets"].as_array().map(Vec::len), Some(2));
    assert_eq!(asked(&imported, "a.test", "GET", "/api", HERE), "1001 ip_restriction");
}

#[test]
fn unix_sockets_are_targets() {
    let text = "http { upstream app { server unix:/run/app.sock fail_timeout=0; } server { listen 80; server_name a.test;\n\
                location / { proxy_pass http://app; } location /one/ { proxy_pass http://unix:/run/one.sock:/x/; } } }";
    let document = good(&import(Format::Nginx, text, false));
    assert_eq!(by_id(&document, "upstreams", "app")["targets"][0]["host"], "unix:/run/app.sock");
    let hosts: Vec<&Value> =
        document["proxies"].as_array().expect("proxies").iter().map(|it| &it["backend_host"]).collect();
    assert!(hosts.contains(&&json!("unix:/run/one.sock")), "{document:#}");
    let text = "frontend f\n  mode http\n  bind :80\n  default_backend b\nbackend b\n  mode http\n  server s unix@/run/b.sock\n";
    let document = good(&import(Format::Haproxy, text, false));
    assert_eq!(by_id(&document, "upstreams", "b")["targets"][0]["host"], "unix:/run/b.sock");
    let document =
        good(&import(Format::Caddyfile, "http://a.test {\n\treverse_proxy unix//run/c.sock\n}\n", false));
    assert_eq!(document["proxies"][0]["backend_host"], "unix:/run/c.sock");
}
