//! Rules and files that nobody would write.

use serde_json::Value;

use super::rule;
use crate::draft::answers_itself;
use crate::{Failure, Format, Import, NoFiles, Options};

fn import(text: &str) -> Result<Import, Failure> {
    crate::import(
        Format::Traefik,
        &[("traefik.yml".to_owned(), text.to_owned())],
        &NoFiles,
        Options::default(),
    )
}

#[test]
fn rules_that_are_none() {
    for good in
        ["Host(`a`)", "Path(`/a`) || Path(`/b`) && !Method(`GET`)", "((Host(`a`)))", "ClientIP(`10.0.0.0/8`)"]
    {
        assert!(rule::parse(good).is_some(), "{good}");
    }
    for bad in [
        "",
        "Host(",
        "Host(`a`",
        "Host(`a`) &&",
        "Host(`a`) Host(`b`)",
        "What(`a`)",
        "Host(`a b`)",
        "PathRegexp(`(?=a)`)",
        "ClientIP(`x`)",
        &"(".repeat(5000),
        &format!("{}Host(`a`)", "!(".repeat(100)),
        &"Host(`a`) || ".repeat(2000),
    ] {
        assert!(rule::parse(bad).is_none(), "{bad}");
    }
}

#[test]
fn files_that_are_none() {
    for bad in ["", "entryPoints: {}", "[", "http: {routers: x", &format!("a: {}", "[".repeat(1000))] {
        assert!(import(bad).is_err(), "{bad}");
    }
    let toml = crate::import(
        Format::Traefik,
        &[("traefik.toml".to_owned(), "[http]".to_owned())],
        &NoFiles,
        Options::default(),
    );
    assert!(toml.is_err());
}

#[test]
fn a_rule_that_is_not_known_is_closed() {
    let text = "http: {routers: {r: {rule: 'What(`x`)', service: s}}, services: {s: {loadBalancer: {servers: [{url: 'http://10.0.0.1:1'}]}}}}";
    let made = import(text).expect("an import");
    assert!(answers_itself(&made.proxies[0]));
}

const APP: &str = "
  app:
    image: app
    labels:
      - traefik.http.routers.app.rule=Host(`app.test`)
      - traefik.http.routers.app.entrypoints=websecure
      - traefik.http.services.app.loadbalancer.server.port=8080
      - traefik.http.middlewares.office.ipallowlist.sourcerange=10.0.0.0/8
  shown:
    image: app
    labels:
      traefik.enable: 'true'
      traefik.http.routers.shown.rule: Host(`shown.test`)
      traefik.http.routers.shown.entrypoints: web
      traefik.http.services.shown.loadbalancer.server.port: '8081'
";

const FLAGS: [&str; 5] = [
    "entrypoints.web.address=:80",
    "entryPoints.websecure.address=:443",
    "entrypoints.web.http.redirections.entrypoint.to=websecure",
    "entrypoints.web.http.redirections.entrypoint.permanent=false",
    "entrypoints.websecure.http.middlewares=office@docker",
];

fn compose(traefik: &str) -> Import {
    import(&format!("services:\n  proxy:\n    image: docker.io/library/traefik:v3.1\n{traefik}{APP}"))
        .expect("an import")
}

#[test]
fn static_settings_of_a_compose_file() {
    let list: String = FLAGS.iter().map(|flag| format!("      - --{flag}\n")).collect();
    let line: Vec<String> = FLAGS.iter().map(|flag| format!("--{}", flag.replace('=', " "))).collect();
    let variable = |flag: &&str| {
        let (key, value) = flag.split_once('=').expect("a pair");
        (format!("TRAEFIK_{}", key.to_uppercase().replace('.', "_")), value.to_owned())
    };
    let variables: String =
        FLAGS.iter().map(variable).map(|(key, value)| format!("      {key}: '{value}'\n")).collect();
    let pairs: String =
        FLAGS.iter().map(variable).map(|(key, value)| format!("      - {key}={value}\n")).collect();
    for text in [
        format!("    command:\n{list}"),
        format!("    command: {}\n", line.join(" ")),
        format!("    environment:\n{variables}"),
        format!("    environment:\n{pairs}"),
    ] {
        let made = compose(&text);
        let of = |plugin: &str| {
            let found = made.plugin_configs.iter().find(|it| it["plugin_name"] == plugin);
            found.unwrap_or_else(|| panic!("{text}: {:#}", made.document())).clone()
        };
        assert_eq!(
            (&of("ip_restriction")["proxy_id"], &of("ip_restriction")["config"]["allow"][0]),
            (&"app".into(), &"10.0.0.0/8".into())
        );
        assert_eq!(
            (&of("redirect")["proxy_id"], &of("redirect")["config"]["status_code"]),
            (&"web-to-https".into(), &302.into())
        );
        assert_eq!(made.proxies.len(), 4, "{text}");
        assert!(!made.report.findings().iter().any(|it| it.why == "no router uses it"), "{text}");
    }
}

#[test]
fn containers_that_traefik_does_not_serve() {
    let hosts = |made: &Import| -> Vec<String> {
        made.proxies.iter().map(|proxy| proxy["id"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let made =
        compose("    command: [--entrypoints.web.address=:80, --providers.docker.exposedByDefault=false]\n");
    assert_eq!(hosts(&made), ["shown"]);
    let made = compose("    command: [--providers.docker.exposedbydefault]\n");
    assert_eq!(hosts(&made), ["app", "shown"]);
    // From the static file, which goes before what the command says.
    let text = format!(
        "services:\n  proxy:\n    image: traefik\n    command: [--providers.docker.exposedbydefault=true]\n{APP}"
    );
    let fixed = "entryPoints: {web: {address: ':80'}}\nproviders: {docker: {exposedByDefault: false}}";
    let sources = [("compose.yml".to_owned(), text), ("traefik.yml".to_owned(), fixed.to_owned())];
    let made = crate::import(Format::Traefik, &sources, &NoFiles, Options::default()).expect("an import");
    assert_eq!(hosts(&made), ["shown"]);
    let text = format!(
        "services:\n  proxy:\n    image: traefik\n    command: ['--providers.docker.constraints=Label(`a`,`b`)']\n{APP}"
    );
    assert!(import(&text).is_err(), "nothing is left");
}

#[test]
fn a_static_file_that_is_not_there_closes_all() {
    for traefik in [
        "    command: --configFile=/etc/proxy.yml\n",
        "    volumes: [./traefik.yml:/etc/traefik/traefik.yml:ro]\n",
        "    volumes: [{type: bind, source: ./conf, target: /etc/traefik}]\n",
    ] {
        let made = compose(traefik);
        assert!(made.proxies.iter().all(answers_itself), "{traefik}");
        assert!(made.report.losses().any(|it| it.outcome == crate::Conversion::Closed), "{traefik}");
    }
    let made = compose(
        "    command: [--log.level=INFO, --entrypoints.web.transport.respondingtimeouts.readtimeout=5]\n",
    );
    let said: Vec<String> = made.report.losses().map(ToString::to_string).collect();
    assert!(
        said.iter().any(|it| it.contains("transport")) && !said.iter().any(|it| it.contains("log")),
        "{said:?}"
    );
}

#[test]
fn prefixes_and_methods_as_traefik_has_them() {
    let made = import(
        "http:\n  routers:\n    r: {rule: 'PathPrefix(`/`)', service: s, middlewares: [p]}\n    \
         q: {rule: 'PathPrefix(`/old`)', service: s, middlewares: [m]}\n  \
         services: {s: {loadBalancer: {servers: [{url: 'http://10.0.0.1:80'}, {url: 'http://10.0.0.1:80'}]}}}\n  \
         middlewares:\n    p: {stripPrefix: {prefixes: [/v1/, /v2]}}\n    m: {redirectScheme: {scheme: https, permanent: true}}\n",
    )
    .expect("an import");
    let of = |plugin: &str| -> Vec<&Value> {
        made.plugin_configs.iter().filter(|it| it["plugin_name"] == plugin).collect()
    };
    let regexes = &of("rewrite")[0]["config"]["regex"];
    assert_eq!((&regexes[0]["from"], &regexes[1]["from"]), (&"^/v1/(.*)$".into(), &"^/v2/?(.*)$".into()));
    let told = of("request_transformer");
    assert_eq!(told.len(), 2);
    assert_eq!(told[1]["config"]["rules"][0]["value"], "/v2");
    assert_eq!(told[1]["when"]["all"][0]["not"]["path"]["regex"], "/v1/.*", "the first that fits");
    let redirects = of("redirect");
    assert_eq!(redirects.len(), 2);
    assert_eq!(redirects[0]["config"]["status_code"], 301);
    assert_eq!(redirects[0]["when"]["all"][0]["methods"][0], "GET");
    assert_eq!(redirects[1]["config"]["status_code"], 308, "other methods stay what they are");
    assert_eq!(made.upstreams[0]["targets"].as_array().map(Vec::len), Some(1));
    assert_eq!(made.upstreams[0]["targets"][0]["weight"], 2, "a server that is there twice");
}

#[test]
fn fields_of_the_connection_are_left_out() {
    let made = import(
        "http:\n  routers: {r: {rule: 'PathPrefix(`/`)', service: s, middlewares: [h]}}\n  \
         services: {s: {loadBalancer: {servers: [{url: 'http://10.0.0.1:80'}]}}}\n  middlewares:\n    \
         h: {headers: {customRequestHeaders: {Connection: close}, customResponseHeaders: {Transfer-Encoding: x, X-A: b}}}\n",
    )
    .expect("an import");
    let rules: Vec<_> = made.plugin_configs.iter().map(|it| &it["config"]["rules"]).collect();
    assert_eq!(rules.len(), 1, "{:#}", made.document());
    assert!(rules[0].as_array().is_some_and(|rules| rules.len() == 1 && rules[0]["key"] == "X-A"));
}

/// Routers of one service, by name and settings.
fn routed(before: &str, routers: &[(String, String)]) -> Import {
    let routers: String =
        routers.iter().map(|(name, said)| format!("    {name}: {{{said}, service: s}}\n")).collect();
    import(&format!(
        "{before}http:\n  services: {{s: {{loadBalancer: {{servers: [{{url: 'http://10.0.0.1:80'}}]}}}}}}\n  routers:\n{routers}"
    ))
    .expect("an import")
}

/// The ids of proxies, the one that goes first first.
fn in_order(made: &Import) -> Vec<&str> {
    let mut all: Vec<(i64, &str)> = made
        .proxies
        .iter()
        .map(|it| (it["priority"].as_i64().unwrap_or_default(), it["id"].as_str().unwrap_or_default()))
        .collect();
    all.sort_by_key(|it| std::cmp::Reverse(it.0));
    assert!(all.windows(2).all(|pair| pair[0].0 > pair[1].0), "ties are refused: {all:?}");
    all.into_iter().map(|(_, id)| id).collect()
}

#[test]
fn longer_rules_go_first_whatever_ties() {
    let rules = [
        ("admin", "rule: 'PathPrefix(`/admin/x`)'"),
        ("f3", "rule: 'PathPrefix(`/foooooo`)'"),
        ("f2", "rule: 'PathPrefix(`/baaaaa`)'"),
        ("f1", "rule: 'PathPrefix(`/caaaaa`)'"),
        ("rest", "rule: 'PathPrefix(`/admin/`)'"),
        ("low", "rule: 'PathPrefix(`/said`)', priority: 3"),
        ("same", "rule: 'PathPrefix(`/same`)', priority: 3"),
        ("above", "rule: 'PathPrefix(`/above`)', priority: 4"),
        ("zero", "rule: 'Path(`/`)', priority: 0"),
        ("behind", "rule: 'PathPrefix(`/behind`)', priority: -5"),
    ];
    let rules = rules.map(|(name, said)| (name.to_owned(), said.to_owned()));
    let made = routed("", &rules);
    // `/foooooo` is as long as `/admin/x`, and `/baaaaa` as `/caaaaa` and `/admin/`.
    let order = ["admin", "f3", "f1", "f2", "rest", "zero", "above", "low", "same", "behind"];
    assert_eq!(in_order(&made), order);
}

#[test]
fn many_rules_of_one_length() {
    let rule = |n: usize| (format!("r{n:04}"), format!("rule: 'PathPrefix(`/{n:04}`)'"));
    let made = routed("", &(0..2000).map(rule).collect::<Vec<_>>());
    let names: Vec<String> = (0..2000).map(|n| format!("r{n:04}")).collect();
    assert_eq!(in_order(&made), names);
}

#[test]
fn options_of_an_entry_point_ask_for_certificates() {
    let before = "entryPoints:\n  web: {address: ':80'}\n  safe: {address: ':443', http: {tls: {options: mtls@file}}}\n\
                  tls: {options: {mtls: {clientAuth: {clientAuthType: RequireAndVerifyClientCert}}}}\n";
    let rules = [
        ("a", "rule: 'Host(`a.test`)', entryPoints: [safe]"),
        ("all", "rule: 'Host(`all.test`)'"),
        ("own", "rule: 'Host(`own.test`)', entryPoints: [safe], tls: {}"),
        ("web", "rule: 'Host(`web.test`)', entryPoints: [web]"),
    ];
    let rules = rules.map(|(name, said)| (name.to_owned(), said.to_owned()));
    let closed = |made: &Import| -> Vec<String> {
        let closed = made.proxies.iter().filter(|it| answers_itself(it));
        closed.map(|it| it["id"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let made = routed(before, &rules);
    assert_eq!(closed(&made), ["a", "all"], "{:#}", made.document());
    assert_eq!(made.report.losses().filter(|it| it.outcome == crate::Conversion::Closed).count(), 2);
    let known = before.replace("RequireAndVerifyClientCert", "NoClientCert");
    assert!(closed(&routed(&known, &rules)).is_empty());
}

#[test]
fn addresses_that_rules_ask_for() {
    let rules = [("r".to_owned(), "rule: 'Path(`/`) && !ClientIP(`10.0.0.0/8`)'".to_owned())];
    let losses = |made: &Import| made.report.losses().map(ToString::to_string).collect::<Vec<_>>();
    let trusted = "entryPoints: {web: {address: ':80', forwardedHeaders: {trustedIPs: [10.0.0.5]}}}\n";
    let said = losses(&routed(trusted, &rules));
    assert!(
        said.len() == 1 && said[0].contains("ClientIP") && said[0].contains("trusted proxies"),
        "{said:?}"
    );
    let plain = "entryPoints: {web: {address: ':80'}}\n";
    assert!(losses(&routed(plain, &rules)).is_empty());
    let other = [("r".to_owned(), "rule: 'Path(`/`)'".to_owned())];
    assert!(losses(&routed(trusted, &other)).is_empty());
    // Of the PROXY protocol on one port only, the addresses are not known.
    let unknown = "entryPoints: {web: {address: ':80'}, in: {address: ':81', proxyProtocol: {trustedIPs: [10.0.0.5]}}}\n";
    assert!(answers_itself(&routed(unknown, &rules).proxies[0]));
}

#[test]
fn what_a_resolver_gets_from_a_ca_is_got_from_it() {
    let made = import(
        "entryPoints:
  web: { address: ':80' }
  websecure: { address: ':443', http: { tls: { certResolver: le } } }
certificatesResolvers:
  other: { acme: { email: other@shop.example } }
  le: { acme: { email: ops@shop.example, storage: acme.json, caServer: 'https://ca.example/dir', tlsChallenge: {} } }
tls:
  certificates: [{ certFile: a.pem, keyFile: a.key }]
---
tls:
  certificates: [{ certFile: b.pem, keyFile: b.key }]
http:
  routers:
    a: { rule: 'Host(`shop.example`) || Host(`www.shop.example`, `x.example`) && !Host(`no.example`)', service: s, entryPoints: [websecure] }
    b: { rule: 'PathPrefix(`/b`)', service: s, tls: { certResolver: le, domains: [{ main: b.example, sans: ['c.example', '*.b.example'] }] } }
    c: { rule: 'Host(`other.example`)', service: s, tls: { certResolver: other } }
    d: { rule: 'Host(`plain.example`)', service: s, entryPoints: [web] }
  services:
    s: { loadBalancer: { servers: [{ url: 'http://10.0.0.1:1' }] } }
",
    )
    .unwrap();
    let settings = serde_json::json!({
        "accept_terms": true, "email": "ops@shop.example", "directory_url": "https://ca.example/dir",
        "challenge": "tls-alpn-01", "storage": "/var/lib/ferrum-edge/acme",
    });
    assert_eq!(made.gateway["acme"], settings);
    let certificates = serde_json::json!([
        { "cert_path": "a.pem", "key_path": "a.key" }, { "cert_path": "b.pem", "key_path": "b.key" },
        { "acme": ["shop.example", "www.shop.example", "x.example"] }, { "acme": ["b.example", "c.example"] },
    ]);
    assert_eq!(made.gateway["tls"]["certificates"], certificates);
    let said = made.report.to_json().to_string();
    assert!(said.contains("*.b.example") && said.contains("certResolver other"), "{said}");
}

/// What the client sends does not pass for who it is.
#[test]
fn the_name_of_a_caller_is_told() {
    let made = import(
        "http: {routers: {r: {rule: 'Host(`a.test`)', service: s, middlewares: [m]}}, services: {s: {loadBalancer: {servers: [{url: 'http://10.0.0.1:1'}]}}}, middlewares: {m: {basicAuth: {users: ['joe:$2y$05$abcdefghijklmnopqrstuv'], headerField: X-WebAuth-User}}}}",
    )
    .unwrap();
    let rules = made.plugin_configs.iter().find(|it| it["plugin_name"] == "request_transformer").unwrap();
    assert_eq!(
        rules["config"]["rules"],
        serde_json::json!([{ "operation": "set", "target": "header", "key": "X-WebAuth-User", "value": "${consumer.username}" }])
    );
    assert_eq!(made.report.losses().count(), 0);
}

#[test]
fn errors_get_pages_of_another_service() {
    let of = |errors: &str| {
        let text = format!(
            "http: {{routers: {{r: {{rule: 'Host(`a`)', service: s, middlewares: [e]}}}}, middlewares: {{e: {{errors: {errors}}}}}, \
             services: {{s: {{loadBalancer: {{servers: [{{url: 'http://10.0.0.1:1'}}]}}}}, p: {{loadBalancer: {{servers: [{{url: 'http://10.0.0.2:1'}}]}}}}}}}}"
        );
        import(&text).expect("an import")
    };
    let made = of("{status: ['500-599', '404'], service: p, query: '/{status}.html'}");
    let page = &made.plugin_configs[0]["config"]["pages"][0];
    assert_eq!(made.plugin_configs[0]["plugin_name"], "error_pages");
    assert_eq!(
        (&page["status"], &page["path"]),
        (&"500-599, 404".into(), &"/${response.status}.html".into())
    );
    assert_eq!(made.upstreams.iter().filter(|it| it["id"] == page["upstream_id"]).count(), 1);
    for other in [
        "{status: ['200-299'], service: p, query: '/x'}",
        "{status: ['500'], service: none, query: '/x'}",
        "{status: ['500'], service: p, query: '/{url}'}",
    ] {
        let made = of(other);
        assert!(made.plugin_configs.is_empty() && made.report.has_loss(), "{other}");
    }
}

#[test]
fn too_many_entry_points_and_plugins_are_refused() {
    let routers = "http: {services: {s: {loadBalancer: {servers: [{url: 'http://10.0.0.1:80'}]}}}, \
                   middlewares: {m: {compress: {}}}, routers: {r: {rule: 'Host(`a.test`)', service: s";
    let points: String = (0..2001).map(|n| format!("  e{n}: {{address: ':{n}'}}\n")).collect();
    let error = import(&format!("{routers}}}}}}}\nentryPoints:\n{points}")).err().map(|it| it.to_string());
    assert!(error.as_deref().is_some_and(|it| it.contains("more than 2000 entry points")), "{error:?}");
    let names = "m, ".repeat(100_002);
    let error = import(&format!("{routers}, middlewares: [{names}]}}}}}}")).err().map(|it| it.to_string());
    assert!(error.as_deref().is_some_and(|it| it.contains("more than 100000 plugins")), "{error:?}");
}

/// A port of the gateway serves HTTP or streams: a router of TCP beside one of HTTP is named, and left out.
#[test]
fn streams_at_an_entry_point_of_http() {
    let text = "
entryPoints: {websecure: {address: ':443'}, db: {address: ':5432'}, dns: {address: ':53/udp'}}
http:
  routers: {app: {rule: 'Host(`app.test`)', entryPoints: [websecure], service: app, tls: {}}}
  services: {app: {loadBalancer: {servers: [{url: 'http://10.0.0.1:80'}]}}}
tcp:
  routers:
    shared: {rule: 'HostSNI(`db.test`)', entryPoints: [websecure], service: db, tls: {passthrough: true}}
    own: {rule: 'HostSNI(`db.test`)', entryPoints: [db], service: db, tls: {passthrough: true}}
  services: {db: {loadBalancer: {servers: [{address: '10.0.0.2:5432'}]}}}
";
    let made = import(text).expect("an import");
    let ports: Vec<&Value> =
        made.proxies.iter().map(|it| &it["listen_port"]).filter(|it| !it.is_null()).collect();
    assert_eq!(ports, [&Value::from(5432)]);
    let closed: Vec<String> = made
        .report
        .losses()
        .map(ToString::to_string)
        .filter(|it| it.contains("a port has one of them"))
        .collect();
    assert!(closed.len() == 1 && closed[0].contains("tcp router shared"), "{closed:#?}");
}
