//! Which format a text is of; targets that are found by DNS SRV records, and hedging, as each format has them.

use std::path::Path;

use serde_json::{Value, json};

use crate::{Conversion, Format, Import, NoFiles, Options, detect};

fn import(format: Format, text: &str) -> Import {
    crate::import(format, &[("f".to_owned(), text.to_owned())], &NoFiles, Options::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The targets of all upstreams.
fn targets(made: &Import) -> Value {
    made.upstreams.iter().flat_map(|it| it["targets"].as_array().cloned().unwrap_or_default()).collect()
}

fn said(made: &Import, outcome: Conversion, words: &str) -> bool {
    made.report.findings().iter().any(|it| it.outcome == outcome && it.why.contains(words))
}

fn nginx(http: &str, upstream: &str) -> Import {
    let servers = "server { listen 80; location / { proxy_pass http://web; } }";
    import(
        Format::Nginx,
        &format!("events {{}}\nhttp {{ {http} upstream web {{ zone z 64k; {upstream} }} {servers} }}"),
    )
}

#[test]
fn services_of_nginx() {
    let made = nginx(
        "resolver 10.0.0.2 127.0.0.1:8600 valid=9s ns.test;",
        "server shop.test service=http resolve backup;",
    );
    assert_eq!(targets(&made), json!([{ "host": "srv:_http._tcp.shop.test", "priority": 1 }]));
    assert_eq!(made.gateway["dns_servers"], json!(["10.0.0.2", "127.0.0.1:8600"]));
    assert!(said(&made, Conversion::Partial, "time to live"));
    // A name with a dot is put before the server's as it is.
    let made = nginx("", "server shop.test service=_web._udp resolve;");
    assert_eq!(targets(&made), json!([{ "host": "srv:_web._udp.shop.test" }]));
    // How many there are is not known: failures are noticed as among several.
    assert_eq!(made.upstreams[0]["health_checks"]["passive"]["unhealthy_threshold"], 1);
    assert!(!made.gateway.contains_key("dns_servers"));
    // The upstream's own resolver goes before that of `http`; without a service it is not needed.
    let made = nginx("resolver 10.0.0.2;", "resolver [::1]:53; server shop.test service=http resolve;");
    assert_eq!(made.gateway["dns_servers"], json!(["[::1]:53"]));
    assert!(!nginx("resolver 10.0.0.2;", "server shop.test:80 resolve;").gateway.contains_key("dns_servers"));
    for bad in ["server shop.test:80 service=http resolve;", "server 10.0.0.1 service=http resolve;"] {
        let made = nginx("", bad);
        assert!(made.upstreams.is_empty() && made.report.has_loss(), "{bad}");
    }
}

/// A server that is a backup and a primary is a primary, with the weight that it has as one.
#[test]
fn backups_that_are_primaries() {
    let primary = "server 10.0.0.1:80;";
    let backup = "server 10.0.0.1:80 weight=3 backup;";
    let other = "server 10.0.0.2:80;";
    let wanted = json!([{ "host": "10.0.0.1", "port": 80 }, { "host": "10.0.0.2", "port": 80 }]);
    for lines in [[backup, primary, other], [primary, backup, other]] {
        let made = nginx("", &lines.join(" "));
        assert_eq!(targets(&made), wanted, "{lines:?}");
    }
    let made = nginx("", &[primary, backup, primary, other].join(" "));
    assert_eq!(targets(&made)[0], json!({ "host": "10.0.0.1", "port": 80, "weight": 2 }));
    assert_eq!(made.upstreams[0]["algorithm"], "weighted_round_robin");
}

/// What targets are told of the way is the gateway's to write, but for the fields that it does not write.
#[test]
fn fields_of_the_way() {
    let of = |line: &str| {
        let location = format!(
            "location / {{ proxy_pass http://10.0.0.1:80; proxy_redirect off; proxy_set_header {line}; }}"
        );
        import(Format::Nginx, &format!("events {{}}\nhttp {{ server {{ listen 80; {location} }} }}"))
    };
    let made = of("X-Real-IP $remote_addr");
    assert_eq!(made.plugin_configs[0]["config"]["rules"][0]["value"], "${client.address}");
    assert!(!made.report.has_loss());
    let made = of("X-Forwarded-For $proxy_add_x_forwarded_for");
    assert!(made.plugin_configs.is_empty() && !made.report.has_loss());
    for (line, operation, value) in [
        ("X-Forwarded-For \"\"", "remove", Value::Null),
        ("X-Forwarded-Proto https", "set", json!("https")),
        ("X-Forwarded-For $http_cf_connecting_ip", "set", json!("${request.header.cf-connecting-ip}")),
        ("X-Forwarded-Host $host/sub", "set", json!("${request.host}/sub")),
        ("X-Forwarded-Port $server_port", "set", json!("${server.port}")),
    ] {
        let made = of(line);
        let rule = &made.plugin_configs[0]["config"]["rules"][0];
        assert_eq!((&rule["operation"], &rule["value"]), (&json!(operation), &value), "{line}");
        assert!(!made.report.has_loss(), "{line}");
    }
    // The gateway cannot be configured to omit it.
    let made = of("Via \"\"");
    assert!(made.plugin_configs.is_empty());
    assert!(said(&made, Conversion::NotConverted, "the gateway writes it itself"));
    assert!(made.proxies[0]["plugins"].as_array().is_none_or(Vec::is_empty));
}

fn haproxy(servers: &str) -> Import {
    import(
        Format::Haproxy,
        &format!(
            "resolvers dns\n nameserver a 10.0.0.2:53\n nameserver b udp@10.0.0.3:5353\nfrontend f\n mode http\n bind :80\n \
             default_backend web\nbackend web\n mode http\n{servers}"
        ),
    )
}

#[test]
fn services_of_haproxy() {
    let made = haproxy(" server-template web 5 _http._tcp.shop.test resolvers dns check weight 7 inter 3s\n");
    assert_eq!(targets(&made), json!([{ "host": "srv:_http._tcp.shop.test", "weight": 7 }]));
    assert_eq!(made.gateway["dns_servers"], json!(["10.0.0.2:53", "10.0.0.3:5353"]));
    assert_eq!(made.upstreams[0]["health_checks"]["active"]["interval"], 3);
    // Each line stands for one of the service's servers.
    let made = haproxy(
        " server a _http._tcp.shop.test resolvers dns\n server b _http._tcp.shop.test resolvers dns\n",
    );
    assert_eq!(targets(&made), json!([{ "host": "srv:_http._tcp.shop.test" }]));
    // A name's addresses are one target.
    let made = haproxy(" server-template web 1-3 shop.test:8080 resolvers dns\n");
    assert_eq!(targets(&made), json!([{ "host": "shop.test", "port": 8080 }]));
    assert!(said(&made, Conversion::Partial, "one target"));
    // Name servers that are not known are said.
    assert!(said(
        &haproxy(" server a _http._tcp.shop.test resolvers gone\n"),
        Conversion::Partial,
        "resolvers gone"
    ));
}

fn caddy(proxy: &str) -> Import {
    import(Format::Caddyfile, &format!("http://a.test {{\n reverse_proxy {{\n{proxy}\n }}\n}}\n"))
}

#[test]
fn services_of_caddy() {
    let made = caddy("  dynamic srv _http._tcp.shop.test");
    assert_eq!(targets(&made), json!([{ "host": "srv:_http._tcp.shop.test" }]));
    let made = caddy(
        "  dynamic srv {\n   service http\n   proto tcp\n   name shop.test\n   refresh 9s\n   resolvers 10.0.0.2 10.0.0.3:54\n  }",
    );
    assert_eq!(targets(&made), json!([{ "host": "srv:_http._tcp.shop.test" }]));
    assert_eq!(made.gateway["dns_servers"], json!(["10.0.0.2", "10.0.0.3:54"]));
    let made = caddy("  dynamic a shop.test 9000");
    assert_eq!(
        (&made.proxies[0]["backend_host"], &made.proxies[0]["backend_port"]),
        (&json!("shop.test"), &json!(9000))
    );
    assert!(said(&made, Conversion::Partial, "one target"));
    for bad in [
        "  dynamic srv {http.vars.x}",
        "  dynamic multi {\n   srv _a._tcp.b\n  }",
        "  dynamic srv {\n   service http\n   name x\n  }",
    ] {
        let made = caddy(bad);
        assert!(made.report.count(Conversion::Closed) > 0 && made.upstreams.is_empty(), "{bad}");
    }
    let json = |dynamic: &str| {
        let handler = format!("{{\"handler\": \"reverse_proxy\", \"dynamic_upstreams\": {dynamic}}}");
        import(
            Format::CaddyJson,
            &format!(
                "{{\"apps\": {{\"http\": {{\"servers\": {{\"s\": {{\"listen\": [\":80\"], \"routes\": [{{\"handle\": [{handler}]}}]}}}}}}}}}}"
            ),
        )
    };
    let made =
        json("{\"source\": \"srv\", \"service\": \"http\", \"proto\": \"tcp\", \"name\": \"shop.test\"}");
    assert_eq!(targets(&made), json!([{ "host": "srv:_http._tcp.shop.test" }]));
    assert!(json("{\"source\": \"multi\"}").report.count(Conversion::Closed) > 0);
}

#[test]
fn services_of_kong() {
    let kong = |target: &str, service: &str| {
        import(
            Format::Kong,
            &format!(
                "_format_version: '3.0'\nupstreams: [{{name: shop, targets: [{{target: '{target}', weight: 5}}]}}]\n\
                 services: [{{name: s, {service}, routes: [{{name: r, paths: [/x]}}]}}]\n"
            ),
        )
    };
    for target in ["_http._tcp.shop.test", "_http._tcp.shop.test:8000", "_http._tcp.shop.test:0"] {
        let made = kong(target, "host: shop");
        assert_eq!(targets(&made), json!([{ "host": "srv:_http._tcp.shop.test", "weight": 5 }]), "{target}");
    }
    assert_eq!(targets(&kong("shop.test:0", "host: shop"))[0]["host"], "srv:shop.test");
    // A name without a port may be either.
    let made = kong("shop.test", "host: shop");
    assert_eq!(targets(&made), json!([{ "host": "shop.test", "port": 8000, "weight": 5 }]));
    assert!(said(&made, Conversion::Partial, "SRV records of the name first"));
    assert!(!said(&kong("10.0.0.1", "host: shop"), Conversion::Partial, "SRV"));
    // A service's own host, too.
    let made = kong("10.0.0.1:80", "host: _http._tcp.other.test");
    assert_eq!(targets(&made)[1], json!({ "host": "srv:_http._tcp.other.test" }));
    assert_eq!(made.proxies[0]["upstream_id"], made.upstreams[1]["id"]);
    assert!(made.proxies[0].get("backend_host").is_none());
}

fn envoy(route: &str, cluster: &str) -> Import {
    import(
        Format::Envoy,
        &format!(
            "static_resources:\n  listeners: [{{name: l, address: {{socket_address: {{address: 0.0.0.0, port_value: 80}}}}, filter_chains: \
             [{{filters: [{{name: envoy.filters.network.http_connection_manager, typed_config: {{'@type': x.HttpConnectionManager, \
             stat_prefix: s, http_filters: [{{name: envoy.filters.http.router}}], route_config: {{virtual_hosts: [{{name: v, domains: ['*'], \
             routes: [{{match: {{prefix: /}}, route: {{cluster: c{route}}}}}]}}]}}}}}}]}}]}}]\n  \
             clusters: [{{name: c{cluster}, load_assignment: {{endpoints: [{{lb_endpoints: \
             [{{endpoint: {{address: {{socket_address: {{address: shop.test, port_value: 80}}}}}}}}]}}]}}}}]\n"
        ),
    )
}

#[test]
fn hedging_of_envoy() {
    let hedges = ", retry_policy: {retry_on: 5xx, num_retries: 7, per_try_timeout: 0.25s}, hedge_policy: {hedge_on_per_try_timeout: true}";
    let made = envoy(hedges, "");
    let hedging = &made.proxies[0]["hedging"];
    assert_eq!((&hedging["delay"], &hedging["max_hedges"]), (&json!("250ms"), &json!(3)), "{hedging}");
    assert!(said(&made, Conversion::Partial, "sent twice"));
    for none in [
        ", hedge_policy: {hedge_on_per_try_timeout: true}",
        ", retry_policy: {per_try_timeout: 1s}, hedge_policy: {hedge_on_per_try_timeout: false}",
        ", retry_policy: {per_try_timeout: 1s}",
    ] {
        let made = envoy(none, "");
        assert!(made.proxies[0].get("hedging").is_none(), "{none}");
    }
    assert!(said(&envoy(", hedge_policy: {initial_requests: 2}", ""), Conversion::NotNeeded, "does nothing"));
}

#[test]
fn names_of_envoy() {
    let made = envoy(
        "",
        ", type: STRICT_DNS, dns_resolution_config: {resolvers: [{socket_address: {address: 10.0.0.2, port_value: 53}}]}",
    );
    assert!(said(&made, Conversion::Partial, "one target"));
    assert_eq!(made.gateway["dns_servers"], json!(["10.0.0.2:53"]));
    // The first address of a name is what LOGICAL_DNS takes, too.
    assert!(!said(&envoy("", ", type: LOGICAL_DNS"), Conversion::Partial, "one target"));
}

#[test]
fn formats_are_recognised() {
    for (name, text, expected) in [
        ("nginx.conf", "", Some(Format::Nginx)),
        ("x", "# configuration file /etc/nginx/nginx.conf:\n", Some(Format::Nginx)),
        ("kong.yaml", "_format_version: '3.0'\n", Some(Format::Kong)),
        ("k.json", "{\"_format_version\": \"3.0\"}", Some(Format::Kong)),
        ("Caddyfile", "a.example", Some(Format::Caddyfile)),
        ("c.json", "{\n  \"apps\": {}}", Some(Format::CaddyJson)),
        ("haproxy.cfg", "", Some(Format::Haproxy)),
        ("api.yaml", "openapi: 3.0.0\n", Some(Format::OpenApi)),
        ("envoy.yaml", "static_resources:\n", Some(Format::Envoy)),
        ("i.yaml", "apiVersion: networking.k8s.io/v1\n", Some(Format::Ingress)),
        ("docker-compose.yml", "services:\n  web:\n", Some(Format::Traefik)),
        ("traefik.toml", "[entryPoints]\n", Some(Format::Traefik)),
        ("what", "hello", None),
    ] {
        assert_eq!(detect(Path::new(name), text), expected, "{name}");
    }
}
