//! Traefik, Envoy and ingress-nginx: what keeps requests out there keeps them out here, where settings meet in unusual ways.

use ferrum_edge::import::{Conversion, Format};
use serde_json::{Value, json};

use super::routes::{asked, asked_with, by_id, good, import, lost};

const HERE: [u8; 4] = [10, 1, 2, 3];

/// The plugin configs of a kind.
fn plugins<'v>(document: &'v Value, name: &str) -> Vec<&'v Value> {
    let all = document["plugin_configs"].as_array().into_iter().flatten();
    all.filter(|config| config["plugin_name"] == name).collect()
}

/// A switch such as `tls=true` beside what is said below it, in either order, and what Compose writes twice.
#[test]
fn traefik_labels_that_meet() {
    let labels = [
        "traefik.http.routers.app.rule=Host(`app.test`)",
        "traefik.http.routers.app.tls=true",
        "traefik.http.routers.app.tls.options=mtls@file",
        "traefik.http.routers.app.middlewares=ratelimit,path,secure",
        "traefik.http.middlewares.ratelimit.ratelimit.average=10",
        "traefik.http.middlewares.path.replacepathregex.regex=^/foo/(.*)$$",
        "traefik.http.middlewares.path.replacepathregex.replacement=/bar/$$1",
        "traefik.http.middlewares.secure.headers.sslredirect=true",
        "traefik.http.services.app.loadbalancer.server.port=8080",
    ];
    let compose = |labels: &[&str], below: &str| {
        let lines: String = labels.iter().map(|label| format!("{below}      - {label}\n")).collect();
        let head = if below.is_empty() { "    labels:\n" } else { "    deploy:\n      labels:\n" };
        format!("services:\n  app:\n    image: app\n{head}{lines}")
    };
    let mut turned = labels;
    turned.swap(1, 2);
    for order in [labels, turned] {
        let imported = import(Format::Traefik, &compose(&order, ""), true);
        for what in ["tls.options mtls", "sslRedirect"] {
            assert!(lost(&imported, what), "{what}: {:#?}", imported.report);
        }
        let closed = import(Format::Traefik, &compose(&order, ""), false);
        assert_eq!(closed.proxies[0].get("backend_host"), None);
        let document = good(&imported);
        assert_eq!(plugins(&document, "rate_limiting").len(), 1, "a middleware's name is its own");
        let rule = &plugins(&document, "rewrite")[0]["config"]["regex"][0];
        assert_eq!((&rule["from"], &rule["to"]), (&json!("^/foo/(.*)$"), &json!("/bar/${1}")));
    }
    let plain: Vec<&str> =
        labels.iter().copied().filter(|it| !it.contains("tls") && !it.contains("middle")).collect();
    let swarm = import(Format::Traefik, &compose(&plain, "  "), false);
    assert_eq!(asked(&swarm, "app.test", "GET", "/", HERE), "8080", "labels of a Swarm");
}

const ENTRIES: &str = r#"
entryPoints:
  http: {address: ":80", http: {redirections: {entryPoint: {to: https, permanent: false}}}}
  https: {address: ":8443", http: {tls: {}}, asDefault: true, forwardedHeaders: {trustedIPs: [10.1.0.0/16]}}
  inside: {address: ":8081", forwardedHeaders: {trustedIPs: [10.2.0.0/16]}}
  db: {address: ":5432"}
providers: {file: {directory: /etc/traefik}}
serversTransport: {insecureSkipVerify: true}
http:
  routers:
    any: {rule: "Host(`a.test`)", service: one}
    inner: {rule: "Host(`a.test`)", service: two, entryPoints: [inside]}
    letters: {rule: "HostRegexp(`^[a-z]+\\.b\\.test$`)", service: two, entryPoints: [inside]}
    named: {rule: "HostRegexp(`{sub:[a-z]{2}}.c.test`)", service: two, entryPoints: [inside]}
    modern: {rule: "Host(`m.test`)", service: shares, entryPoints: [inside], tls: {options: modern}}
    plain: {rule: "Host(`p.test`)", service: two, entryPoints: [inside], middlewares: [office]}
  middlewares:
    office: {ipAllowList: {sourceRange: [10.0.0.0/8]}}
  services:
    one: {loadBalancer: {servers: [{url: "https://10.0.0.1:1001"}]}}
    two: {loadBalancer: {servers: [{url: "http://10.0.0.1:1002"}]}}
    shares: {weighted: {services: [{name: two, weight: 0}, {name: two, weight: 3}, {name: gone, weight: 1}]}}
tcp:
  routers: {db: {rule: "HostSNI(`*`)", entryPoints: [db], service: db, tls: {options: OPTIONS}}}
  services: {db: {loadBalancer: {servers: [{address: "10.0.0.5:5432"}]}}}
tls:
  options:
    modern: {minVersion: VersionTLS13}
    mtls: {clientAuth: {caFiles: [/ca.pem], clientAuthType: RequireAndVerifyClientCert}}
"#;

#[test]
fn traefik_entry_points() {
    let imported = import(Format::Traefik, &ENTRIES.replace("OPTIONS", "mtls"), false);
    let document = good(&imported);
    for (host, expected) in [
        ("a.test", "302"),
        ("a.test:8081", "1002"),
        ("ab.b.test:8081", "1002"),
        ("a1.b.test:8081", "404"),
        ("x.ab.b.test:8081", "404"),
        ("AB.c.test:8081", "1002"),
        ("abc.c.test:8081", "404"),
        ("p.test:8081", "1002 ip_restriction"),
    ] {
        assert_eq!(asked(&imported, host, "GET", "/", HERE), expected, "{host}");
    }
    let sent = &plugins(&document, "redirect")[0]["config"]["location"];
    assert_eq!(sent, "https://${request.host}:8443${request.target}");
    let any = by_id(&document, "proxies", "any");
    let on = (&any["matches"][0]["scheme"], &any["matches"][0]["ports"]);
    assert_eq!(on, (&json!("https"), &json!([8443])), "it is on the default entry point, which is for TLS");
    assert_eq!(any["backend_tls_verify_server_cert"], false);
    assert_eq!(document["gateway"]["trusted_proxies"], json!(["10.1.0.0/16", "10.2.0.0/16"]));
    let modern = by_id(&document, "proxies", "modern");
    let upstream = by_id(&document, "upstreams", modern["upstream_id"].as_str().unwrap());
    assert_eq!(upstream["targets"].as_array().map(Vec::len), Some(1), "a weight of 0 is no share");
    assert!(lost(&imported, "gone") && lost(&imported, "ipAllowList") && !lost(&imported, "providers"));
    assert!(
        imported.proxies.iter().all(|proxy| proxy.get("listen_port").is_none()),
        "it asks for certificates"
    );
    assert_eq!(imported.report.count(Conversion::Closed), 1);
    let text = ENTRIES.replace("OPTIONS", "modern").replace("    mtls: {", "    default: {");
    assert!(import(Format::Traefik, &text, false).proxies.iter().any(|it| it.get("listen_port").is_some()));
    // What all ask for that name nothing else.
    let text = text.replace("tls: {options: modern}}}", "tls: {}}}");
    let imported = import(Format::Traefik, &text, false);
    assert!(imported.proxies.iter().all(|proxy| proxy.get("listen_port").is_none()));
    assert!(plugins(&imported.document(), "request_termination").iter().any(|it| it["scope"] == "global"));
}

/// The PROXY protocol is for all ports here, or for none: then nobody's address is known.
#[test]
fn traefik_addresses_by_the_proxy_protocol() {
    let point = "proxyProtocol: {trustedIPs: [10.0.0.0/8]}";
    let text = |other: &str| {
        format!(
            "entryPoints:\n  web: {{address: ':80', {point}}}\n  more: {{address: ':81'{other}}}\nhttp:\n  \
             routers: {{r: {{rule: 'PathPrefix(`/`)', service: s, middlewares: [office]}}}}\n  \
             middlewares: {{office: {{ipAllowList: {{sourceRange: [10.0.0.0/8]}}}}}}\n  \
             services: {{s: {{loadBalancer: {{servers: [{{url: 'http://10.0.0.1:1001'}}]}}}}}}\n"
        )
    };
    let all = import(Format::Traefik, &text(&format!(", {point}")), false);
    assert_eq!(good(&all)["gateway"]["accept_proxy_protocol"], true);
    assert_eq!(asked(&all, "a.test", "GET", "/", HERE), "1001 ip_restriction");
    let some = import(Format::Traefik, &text(""), false);
    assert_eq!(asked(&some, "a.test", "GET", "/", HERE), "503");
}

/// A filter chain of Envoy's: its own keys, HTTP filters, and virtual hosts.
type Chain<'c> = (&'c str, &'c str, &'c str);
/// Header fields of a request.
type Fields<'f> = &'f [(&'f str, &'f str)];

/// A listener of Envoy's with these filter chains, each with keys of its own, HTTP filters and virtual hosts.
fn envoy(listeners: &[(u16, &[Chain<'_>])]) -> String {
    let cluster = |n: u16| {
        let endpoint =
            format!("{{endpoint: {{address: {{socket_address: {{address: 10.0.0.1, port_value: {n}}}}}}}}}");
        format!("{{name: c{n}, load_assignment: {{endpoints: [{{lb_endpoints: [{endpoint}]}}]}}}}")
    };
    let chain = |(keys, filters, hosts): &Chain<'_>| {
        format!(
            "{{{keys} filters: [{{name: m, typed_config: {{'@type': x.HttpConnectionManager, use_remote_address: true, \
             http_filters: [{filters} {{name: r, typed_config: {{'@type': x.Router}}}}], route_config: {{virtual_hosts: [{hosts}]}}}}}}]}}"
        )
    };
    let each = listeners.iter().map(|(port, chains)| {
        let chains: Vec<String> = chains.iter().map(chain).collect();
        format!(
            "{{name: l{port}, address: {{socket_address: {{address: 0.0.0.0, port_value: {port}}}}}, filter_chains: [{}]}}",
            chains.join(", ")
        )
    });
    let each: Vec<String> = each.collect();
    let clusters: Vec<String> = [1001, 1002, 1003].map(cluster).to_vec();
    format!("static_resources: {{listeners: [{}], clusters: [{}]}}\n", each.join(", "), clusters.join(", "))
}

fn host(domains: &str, routes: &str) -> String {
    format!("{{name: h, domains: [{domains}], routes: [{routes}]}}")
}

fn to(cluster: u16, asked: &str) -> String {
    format!("{{match: {{{asked}}}, route: {{cluster: c{cluster}}}}}")
}

/// What a chain is for by its names is no other chain's, however many routes that one has.
#[test]
fn envoy_filter_chains_by_name() {
    let guarded = host("'*'", "{match: {prefix: /}, direct_response: {status: 403}}");
    let rest = host("'*'", &[to(1002, "prefix: /a"), to(1001, "prefix: /")].join(", "));
    let tls = "transport_socket: {name: t, typed_config: {'@type': x.DownstreamTlsContext}},";
    let of = |names: &str| format!("filter_chain_match: {{server_names: [{names}]}}, {tls}");
    let (exact, wild) = (of("a.shop.test"), of("'*.shop.test'"));
    let chains = [(exact.as_str(), "", guarded.as_str()), (wild.as_str(), "", &rest), (tls, "", &rest)];
    let imported = import(Format::Envoy, &envoy(&[(8443, &chains)]), false);
    let named: Vec<String> = imported
        .proxies
        .iter()
        .map(|proxy| {
            let one = &proxy["matches"][0];
            format!("{} not {}", one["tls"]["server_names"], one["not"]["tls"]["server_names"])
        })
        .collect();
    let (wild, none) =
        (r#"["*.shop.test"] not ["a.shop.test"]"#, r#"null not ["*.shop.test","a.shop.test"]"#);
    assert_eq!(named, [r#"["a.shop.test"] not null"#, wild, wild, none, none]);
}

#[test]
fn envoy_hosts_of_several_listeners() {
    let one = [(
        "",
        "",
        &*[host("a.test", &to(1001, "prefix: /x")), host("'b.test:8080'", &to(1002, "prefix: /"))].join(", "),
    )];
    let all = [host("'b.test:9090', 'b.test'", &to(1001, "prefix: /")), host("'*'", &to(1003, "prefix: /"))]
        .join(", ");
    let two = [("", "", &*all)];
    let imported = import(Format::Envoy, &envoy(&[(80, &one), (9090, &two)]), false);
    good(&imported);
    for (host, path, expected) in [
        ("a.test", "/x", "1001"),
        ("a.test", "/y", "404"),
        ("a.test:9090", "/y", "1003"),
        ("b.test:8080", "/", "404"),
        ("b.test", "/", "404"),
        ("b.test:9090", "/", "1001"),
        ("c.test:9090", "/", "1003"),
    ] {
        assert_eq!(asked(&imported, host, "GET", path, HERE), expected, "{host}{path}");
    }
    // On one listener, names that differ in their ports alone.
    let both =
        [host("'q.test:80'", &to(1001, "prefix: /")), host("'q.test:90'", &to(1002, "prefix: /"))].join(", ");
    let imported = import(Format::Envoy, &envoy(&[(80, &[("", "", &both)])]), false);
    good(&imported);
    for (host, expected) in
        [("q.test:80", "1001"), ("q.test", "1001"), ("Q.test:90", "1002"), ("q.test:91", "404")]
    {
        assert_eq!(asked(&imported, host, "GET", "/", HERE), expected, "{host}");
    }
}

#[test]
fn envoy_headers_that_are_not_there() {
    let header = |more: &str| {
        format!("prefix: /, headers: [{{name: x-role, string_match: {{exact: guest}}, {more}}}]")
    };
    let (without, empty): (Fields<'_>, Fields<'_>) = (&[], &[("x-role", "")]);
    let (guest, other): (Fields<'_>, Fields<'_>) = (&[("x-role", "guest")], &[("x-role", "staff")]);
    for (more, expected) in [
        ("", ["404", "404", "1001", "404"]),
        ("invert_match: true", ["404", "1001", "404", "1001"]),
        ("invert_match: true, treat_missing_header_as_empty: true", ["1001", "1001", "404", "1001"]),
    ] {
        let routes = host("'*'", &to(1001, &header(more)));
        let imported = import(Format::Envoy, &envoy(&[(80, &[("", "", &routes)])]), false);
        good(&imported);
        let found = [without, empty, guest, other]
            .map(|fields| asked_with(&imported, "a.test", "GET", "/", HERE, fields));
        assert_eq!(found, expected, "{more}");
    }
    let authority = "prefix: /, headers: [{name: ':authority', string_match: {exact: a.test}}]";
    let shares = |numerator: u32| {
        format!("prefix: /s, runtime_fraction: {{default_value: {{numerator: {numerator}}}}}")
    };
    let routes = [to(1002, &shares(0)), to(1003, &shares(100)), to(1001, authority)].join(", ");
    let imported = import(Format::Envoy, &envoy(&[(80, &[("", "", &host("'*'", &routes))])]), false);
    good(&imported);
    for (host, path, expected) in
        [("a.test", "/", "1001"), ("a.test:80", "/", "404"), ("A.test", "/", "404"), ("b.test", "/s", "1003")]
    {
        assert_eq!(asked(&imported, host, "GET", path, HERE), expected, "{host}");
    }
}

/// Settings that guard where they are seldom looked for.
#[test]
fn envoy_guards_in_other_places() {
    let rbac = "{name: rbac, typed_config: {'@type': x.RBAC, rules: {policies: {p: {permissions: [{any: true}], \
                principals: [{remote_ip: {address_prefix: 10.0.0.0, prefix_len: 8}}]}}}}},";
    let routes = host("'*'", &to(1001, "prefix: /"));
    let text = envoy(&[(80, &[("", rbac, &routes)])]);
    let imported = import(Format::Envoy, &text, false);
    assert_eq!((good(&imported), imported.report.count(Conversion::Closed)).1, 0);
    for text in [
        text.replace("use_remote_address: true", "use_remote_address: false"),
        text.replace("use_remote_address: true", "use_remote_address: true, xff_num_trusted_hops: 1"),
        text.replace("route_config: {", "route_config: {typed_per_filter_config: {f: {a: 1}}, "),
        text.replace("cluster: c1001}", "weighted_clusters: {clusters: [{name: c1001, weight: 1, typed_per_filter_config: {f: {a: 1}}}]}}"),
    ] {
        let imported = import(Format::Envoy, &text, false);
        assert_eq!(asked(&imported, "a.test", "GET", "/", HERE), "503", "{text}");
        assert_eq!(imported.report.count(Conversion::Closed), 1, "{text}");
    }
    let proxy = "filters: [{name: t, typed_config: {'@type': x.TcpProxy, cluster: c1001}}]";
    let context = |asks: bool| {
        format!(
            "transport_socket: {{name: t, typed_config: {{'@type': x.DownstreamTlsContext, require_client_certificate: {asks}}}}}"
        )
    };
    for (asks, count) in [(false, 1), (true, 0)] {
        let listener = format!(
            "{{name: db, address: {{socket_address: {{address: 0.0.0.0, port_value: 5432}}}}, filter_chains: [{{{}, {proxy}}}]}}",
            context(asks)
        );
        let imported =
            import(Format::Envoy, &text.replace("listeners: [", &format!("listeners: [{listener}, ")), false);
        assert_eq!(imported.proxies.iter().filter(|it| it.get("listen_port").is_some()).count(), count);
    }
}

/// Tokens are asked for by the first rule that fits, and not where a route says so; others are asked for on all routes but those.
#[test]
fn envoy_filters_of_some_routes() {
    let jwks = |name: &str| {
        format!(
            "{name}: {{issuer: 'https://{name}.test', forward: true, remote_jwks: {{http_uri: {{uri: 'https://{name}.test/keys', cluster: c1003}}}}}}"
        )
    };
    let jwt = format!(
        "{{name: jwt, typed_config: {{'@type': type.googleapis.com/x.jwt_authn.v3.JwtAuthentication, providers: {{{}, {}}}, rules: [RULES]}}}},",
        jwks("one"),
        jwks("two")
    );
    let authz = "{name: authz, typed_config: {'@type': x.ExtAuthz, http_service: {server_uri: {uri: 'http://authz.test/check', cluster: c1002}}}},";
    let cors = "{name: cors, typed_config: {'@type': x.Cors}},";
    let of = |rules: &str, per_route: &str| {
        let routes = [
            format!(
                "{{match: {{prefix: /free}}, route: {{cluster: c1001}}, typed_per_filter_config: {{{per_route}}}}}"
            ),
            to(1001, "prefix: /"),
        ];
        let filters = [jwt.replace("RULES", rules).as_str(), authz, cors].concat();
        import(Format::Envoy, &envoy(&[(80, &[("", &filters, &host("'*'", &routes.join(", ")))])]), false)
    };
    let rules = "{match: {prefix: /open}}, {match: {prefix: /api}, requires: {provider_name: one}}, \
                 {match: {prefix: /}, requires: {requires_any: {requirements: [{provider_name: one}, {provider_and_audiences: {provider_name: two, audiences: [shop]}}]}}}";
    let free = "authz: {'@type': x.ExtAuthzPerRoute, disabled: true}, jwt: {'@type': x.jwt_authn.v3.PerRouteConfig, disabled: true}, \
                cors: {'@type': x.CorsPolicy, allow_origin_string_match: [{exact: 'https://a.test'}], allow_methods: 'GET, PUT', max_age: '60'}";
    let imported = of(rules, free);
    let document = good(&imported);
    assert_eq!(asked(&imported, "a.test", "GET", "/free/x", HERE), "1001");
    assert_eq!(asked(&imported, "a.test", "GET", "/x", HERE), "1001 jwks_auth jwks_auth forward_auth");
    let asks = plugins(&document, "jwks_auth");
    assert_eq!(asks[0]["when"]["all"][0]["not"]["path"]["regex"], "/open.*");
    assert_eq!(asks[0]["when"]["all"][1]["path"]["regex"], "/api.*");
    assert_eq!(asks[1]["when"]["not"]["any"].as_array().map(Vec::len), Some(2));
    let two = &asks[1]["config"]["providers"][1];
    assert_eq!(
        two,
        &json!({ "issuer": "https://two.test", "jwks_uri": "https://two.test/keys", "audience": ["shop"] })
    );
    assert_eq!(plugins(&document, "forward_auth")[0]["config"]["url"], "http://10.0.0.1:1002/check");
    let policy = &plugins(&document, "cors")[0];
    assert_eq!(
        (&policy["proxy_id"], &policy["config"]["allowed_methods"]),
        (&json!("h"), &json!(["GET", "PUT"]))
    );
    // What can't be said is closed.
    for per_route in [
        "authz: {'@type': x.ExtAuthzPerRoute, check_settings: {a: b}}",
        "jwt: {'@type': x.jwt_authn.v3.PerRouteConfig, requirement_name: r}",
        "rbac: {'@type': x.RBACPerRoute, rbac: {}}",
    ] {
        assert_eq!(asked(&of(rules, per_route), "a.test", "GET", "/free", HERE), "503", "{per_route}");
    }
    for rules in [
        "{match: {prefix: /}, requires: {allow_missing: {}}}",
        "{match: {prefix: /}, requires: {provider_name: gone}}",
        "",
    ] {
        assert_eq!(asked(&of(rules, free), "a.test", "GET", "/x", HERE), "503", "{rules}");
    }
}

/// An Ingress for a host with these annotations, and more of its `spec`.
fn ingress(name: &str, host: &str, path: &str, annotations: &[(&str, &str)], more: &str) -> String {
    let said: Vec<String> = annotations
        .iter()
        .map(|(key, value)| format!("nginx.ingress.kubernetes.io/{key}: \"{value}\""))
        .collect();
    let backend = "{service: {name: s, port: {number: 1001}}}";
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}, annotations: {{{}}}}}\n\
         spec: {{{more} rules: [{{host: {host}, http: {{paths: [{{path: {path}, pathType: Prefix, backend: {backend}}}]}}}}]}}\n",
        said.join(", ")
    )
}

/// What one Ingress says of a host as a whole holds for the others of that host.
#[test]
fn ingresses_of_one_host() {
    let plain = |path: &str| ingress("plain", "a.test", path, &[], "");
    for guard in
        [("server-snippet", "deny all;"), ("auth-tls-secret", "web/ca"), ("auth-tls-verify-client", "on")]
    {
        let text = [
            plain("/"),
            ingress("guard", "a.test", "/x", &[guard], ""),
            ingress("other", "b.test", "/", &[], ""),
        ];
        let imported = import(Format::Ingress, &text.concat(), false);
        for (host, path, expected) in
            [("a.test", "/x", "503"), ("a.test", "/", "503"), ("b.test", "/", "1001")]
        {
            assert_eq!(asked(&imported, host, "GET", path, HERE), expected, "{guard:?} {host}{path}");
        }
        assert_eq!(imported.report.count(Conversion::Closed), 2, "{guard:?}");
        let open = import(Format::Ingress, &text.concat(), true);
        assert_eq!(asked(&open, "a.test", "GET", "/", HERE), "1001");
    }
    // A certificate is the host's, and plain requests are sent on.
    for tls in [
        "tls: [{hosts: [a.test], secretName: t}],",
        "tls: [{secretName: t}],",
        "tls: [{hosts: ['*.test'], secretName: t}],",
    ] {
        let text = [plain("/"), ingress("tls", "a.test", "/x", &[], tls)].concat();
        let imported = import(Format::Ingress, &text, false);
        for path in ["/", "/x"] {
            assert_ne!(asked(&imported, "a.test", "GET", path, HERE), "1001", "{tls} {path}");
        }
    }
}

#[test]
fn ingresses_with_other_names() {
    let all = ingress("all", "'*.wide.test'", "/", &[], "");
    let guarded =
        [("server-alias", "b.wide.test, c.test,~^d[0-9]"), ("whitelist-source-range", "10.0.0.0/8")];
    let text =
        [all, ingress("a", "a.test", "/", &guarded, ""), ingress("c", "c.test", "/", &[], "")].concat();
    let imported = import(Format::Ingress, &text, false);
    for (host, expected) in [
        ("a.test", "1001 ip_restriction"),
        ("b.wide.test", "1001 ip_restriction"),
        ("x.wide.test", "1001"),
        ("c.test", "1001"),
        ("d1.test", "503"),
    ] {
        assert_eq!(asked(&imported, host, "GET", "/", HERE), expected, "{host}");
    }
    assert!(lost(&imported, "server-alias ~"));
}

/// Networks that the controller keeps out are kept out of what has networks of its own, too.
#[test]
fn ingresses_and_the_networks_of_their_controller() {
    let map = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: ingress-nginx-controller}\ndata: {block-cidrs: 10.9.0.0/16}\n";
    let own = [
        ("whitelist-source-range", "10.0.0.0/8"),
        ("auth-url", "http://auth.test/x"),
        ("auth-method", "POST"),
    ];
    let text =
        [map, &ingress("own", "a.test", "/", &own, ""), &ingress("other", "b.test", "/", &[], "")].concat();
    let imported = import(Format::Ingress, &text, false);
    let document = good(&imported);
    let of = |proxy: &str| -> Vec<&Value> {
        let all = plugins(&document, "ip_restriction").into_iter();
        all.filter(|it| it["proxy_id"] == proxy).map(|it| &it["config"]).collect()
    };
    let denied = json!({ "deny": ["10.9.0.0/16"] });
    assert!(of("own").contains(&&denied) && of("own").contains(&&json!({ "allow": ["10.0.0.0/8"] })));
    assert_eq!(of("other"), [&denied]);
    assert!(lost(&imported, "auth-method"));
}

/// A host in the URL of who is asked is the Ingress's own, where it has one.
#[test]
fn ingresses_that_ask_at_their_own_host() {
    let asks = |url: &str, host: &str| {
        import(Format::Ingress, &ingress("a", host, "/", &[("auth-url", url)], ""), false)
    };
    let own = asks("https://$host/oauth2/auth", "a.test");
    assert_eq!(plugins(&good(&own), "forward_auth")[0]["config"]["url"], "https://a.test/oauth2/auth");
    for (url, host) in [
        ("https://$host/oauth2/auth", "'*.a.test'"),
        ("https://$hostname/x", "a.test"),
        ("http://$name", "a.test"),
    ] {
        assert_eq!(asks(url, host).report.count(Conversion::Closed), 1, "{url}");
    }
}
