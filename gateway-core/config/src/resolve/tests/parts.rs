//! Credentials, references, single objects, Unix sockets.

use std::num::NonZeroU32;

use super::*;
use crate::model::{Algorithm, RedisMode};

#[test]
fn credentials_in_every_spelling() {
    let text = "
consumers:
  - {id: a, username: a, credentials: {keyauth: k1}}
  - {id: b, username: b, credentials: {key_auth: {key: k2}, basicauth: pw}}
  - {id: c, username: c, credentials: {keyauth: [{key: k3}, k4], mtls_auth: {identity: CN=c}}}
";
    let model = good(text);
    let key = |n: usize, at: usize| model.consumers[n].credentials[at].clone();
    let digest = |text: &str| Credential::Digest { kind: &samples::KEY, digest: digest(text.as_bytes()) };
    // In the order of the types' names.
    assert_eq!([key(0, 0), key(1, 1), key(2, 0), key(2, 1)], ["k1", "k2", "k3", "k4"].map(digest));
    let password = model.consumers[1].secrets(&samples::PASSWORD).next().unwrap();
    assert_eq!(password.expose()["password"], "pw");
    let twice = "
consumers:
  - {id: a, username: a, credentials: {keyauth: sesame}}
  - {id: b, username: b, credentials: {key_auth: sesame, keyauth: other}}
  - {id: c, username: c, credentials: {key_auth: sesame}}
";
    let problems = resolved("f", twice).expect_err("used twice");
    assert!(!problems.to_string().contains("sesame"), "a secret was told: {problems}");
    assert!(
        problems
            .to_string()
            .contains("f:5: consumers[2].credentials.key_auth: consumers[0] has the same key")
    );
}

#[test]
fn references_are_resolved_or_told() {
    struct Machine;
    impl References for Machine {
        fn env(&self, name: &str) -> Option<String> {
            (name == "PORT").then(|| "3000".to_owned())
        }
        fn file(&self, path: &Path) -> io::Result<String> {
            match path == Path::new("/etc/ferrum/host.txt") {
                true => Ok("db.internal\n".to_owned()),
                false => Err(io::Error::from(io::ErrorKind::NotFound)),
            }
        }
    }
    let origin = Origin::file(Path::new("/etc/ferrum/f.yaml"));
    let load = |text: &str| load(text, &origin, &Machine, &Registry, |_| Problems::default());
    let text = "proxies: [{id: p, name: '$${env:X} ${x}', listen_path: /, backend_host: '${file:host.txt}', \
                backend_port: '${env:PORT}'}]";
    let model = load(text).unwrap_or_else(|problems| panic!("{problems}"));
    let target = &model.proxies[0].backend.upstream.targets[0];
    assert_eq!((&*target.host, target.port), ("db.internal", 3000));
    assert_eq!(model.proxies[0].name.as_deref(), Some("${env:X} ${x}"));
    let problems =
        load("proxies:\n  - {id: p, listen_path: '${env:NOPE}', backend_host: '${file:x', backend_port: 1}");
    assert_eq!(
        problems.expect_err("unresolved").to_string(),
        "/etc/ferrum/f.yaml:2: proxies[0].listen_path: the environment variable NOPE is not set (set NOPE, or write \
         the value itself)\n\
         /etc/ferrum/f.yaml:2: proxies[0].backend_host: a reference has no end (close it with `}`)",
    );
}

#[test]
fn one_object_resolves_by_itself() {
    let origin = Origin { name: "admin api".to_owned(), ..Origin::default() };
    let written: file::Proxy = file::parse_item(
        "{\"id\": \"p\", \"hosts\": [\"a\"], \"upstream_id\": \"u\"}",
        &origin,
        "",
        &NoReferences,
    )
    .expect("readable");
    let place = ObjectPlace { at: "", folder: Path::new("") };
    let mut known = NamedObjects::default();
    let problems = proxy(&written, place, &known).expect_err("no upstream yet");
    assert_eq!(problems.to_string(), "upstream_id: there is no upstream `u` (write it under `upstreams`)");
    let group: file::Upstream = file::parse_item(
        "{\"id\": \"u\", \"targets\": [{\"host\": \"h\", \"port\": 1}]}",
        &origin,
        "",
        &NoReferences,
    )
    .expect("readable");
    known.add_upstream(upstream(&group, place).expect("valid"));
    assert!(proxy(&written, place, &known).is_ok());
    let problems = file::parse_item::<file::Proxy>("{\"hostz\": []}", &origin, "body", &NoReferences)
        .expect_err("unknown");
    assert_eq!(problems.to_string(), "admin api:1: body.hostz: unknown key `hostz` (did you mean `hosts`?)");
}

#[test]
fn unix_sockets_as_targets() {
    let model = good("proxies: [{id: p, listen_path: /, backend_host: 'unix:/run/App.sock'}]");
    let target = &model.proxies[0].backend.upstream.targets[0];
    assert_eq!((target.socket(), target.port), (Some("/run/App.sock"), 0));
    for (fields, expected) in [
        (
            "backend_host: 'unix:app.sock'",
            "backend_host: `unix:app.sock` is not the absolute path of a Unix socket (write `unix:/run/app.sock`)",
        ),
        ("backend_host: 'unix:/a', backend_port: 80", "backend_port: a Unix socket has no port (remove it)"),
        (
            "backend_host: 'unix:/a', backend_scheme: https",
            "backend_host: `unix:/a` has no name that its certificate could be for (write `backend_tls_server_name`)",
        ),
        (
            "backend_host: 'unix:/a', dns_override: 192.0.2.1",
            "dns_override: `unix:/a` has no address (remove it)",
        ),
    ] {
        let text = format!("proxies: [{{id: p, listen_path: /, {fields}}}]");
        refused(&text, &format!("f:1: proxies[0].{expected}"));
    }
    refused(
        "proxies: [{id: p, listen_port: 53, backend_scheme: udp, backend_host: 'unix:/a'}]",
        "f:1: proxies[0].backend_host: datagrams can't be sent to `unix:/a` (Unix sockets are for schemes `http`, \
         `https`, `tcp` and `tcps`)",
    );
    refused(
        "upstreams: [{id: u, targets: [{host: 'unix:/a'}, {host: 'unix:/a'}, {host: h}]}]",
        "f:1: upstreams[0].targets[1]: unix:/a is a duplicate of targets[0] (give one of them more `weight` instead)\n\
         f:1: upstreams[0].targets[2].port: this is missing (write the target's port)",
    );
}

#[test]
fn further_addresses_are_others() {
    let settings = |text: &str| good(&format!("gateway: {{{text}}}\nproxies: []")).settings;
    let many =
        settings("http: '127.0.0.1:80', additional_http: ['[::1]:80', '127.0.0.1:8080', '127.0.0.2:0']");
    let all: Vec<String> = many.http_addresses().map(|address| address.to_string()).collect();
    assert_eq!(all, ["127.0.0.1:80", "[::1]:80", "127.0.0.1:8080", "127.0.0.2:0"]);
    for (first, second) in
        [("0.0.0.0:80", "127.0.0.1:80"), ("0.0.0.0:80", "[::]:80"), ("[::1]:80", "[::1]:80")]
    {
        refused(
            &format!("gateway: {{http: '{first}', additional_http: ['{second}']}}\nproxies: []"),
            &format!(
                "f:1: gateway.additional_http[0]: {second} and {first} are listened on at once (keep the one that takes both)"
            ),
        );
    }
    refused(
        "gateway: {additional_https: [':8443']}\nproxies: []",
        "f:1: gateway.additional_https[0]: `:8443` is not an address with a port (write one such as `127.0.0.1:8080` or \
         `[::]:8080`)",
    );
    // Clients are told one port of HTTP/3.
    let tls = "tls: {certificates: [{cert_path: /c, key_path: /k}]}, http3: true";
    let of =
        settings(&format!("{tls}, https: '127.0.0.1:443', additional_https: ['[::1]:443', '[::1]:444']"));
    let quic: Vec<String> = of.http3_addresses().map(|address| address.to_string()).collect();
    assert_eq!(quic, ["127.0.0.1:443", "[::1]:443"]);
}

#[test]
fn services_as_targets() {
    let of =
        |fields: &str| good(&format!("proxies: []\nupstreams: [{{id: u, {fields}}}]")).upstreams[0].clone();
    let found = of("targets: [{host: 'srv:_HTTP._tcp.Shop.example.com.'}]");
    let target = &found.targets[0];
    assert_eq!((&*target.host, target.port), ("srv:_http._tcp.shop.example.com", 0));
    // Weights are obeyed, and servers that fail are taken out, as where several targets are configured.
    assert_eq!(found.algorithm, Algorithm::WeightedRoundRobin);
    assert!(found.passive_health.is_some());
    let picked = of("algorithm: least_connections, targets: [{host: 'srv:web.service.consul'}]");
    assert_eq!(picked.algorithm, Algorithm::LeastConnections);
    for (target, expected) in [
        (
            "host: 'srv:_a._tcp.b', port: 80",
            "port: the ports of a service's servers are found by DNS (remove it)",
        ),
        (
            "host: 'srv:10.0.0.1'",
            "host: `srv:10.0.0.1` names an address, which has no SRV records (write `srv:` and a name, such as \
             `srv:_http._tcp.shop.example.com`)",
        ),
    ] {
        let text = format!("proxies: []\nupstreams: [{{id: u, targets: [{{{target}}}]}}]");
        refused(&text, &format!("f:2: upstreams[0].targets[0].{expected}"));
    }
    refused(
        "proxies: [{id: p, listen_path: /, backend_host: 'srv:_http._tcp.b'}]",
        "f:1: proxies[0].backend_host: a service can't be a proxy's own target (make it the target of an upstream, and \
         name that as `upstream_id`)",
    );
}

#[test]
fn hedging_is_for_requests_that_may_be_sent_twice() {
    let hedging = |text: &str| {
        let text = format!("listen_path: /\nhedging: {{{text}}}");
        good(&proxy_with(&text)).proxies[0].hedging().cloned().expect("hedging")
    };
    let usual = hedging("");
    assert_eq!((usual.delay.as_millis(), usual.max_hedges, usual.budget_percent), (100, 1, 5));
    assert_eq!((usual.methods.len(), usual.percentile, usual.max_body), (3, None, 64 << 10));
    let given = hedging("delay: 20ms, delay_percentile: 99, max_hedges: 2, methods: [put], max_body: 1KiB");
    assert_eq!((given.delay.as_millis(), given.percentile, given.max_hedges), (20, Some(99), 2));
    assert_eq!((given.methods, given.max_body), (vec![http::Method::PUT], 1024));
    let grpc = hedging("methods: [], grpc_methods: [shop.v1.Catalog/Get, /shop.Catalog/Put]");
    assert_eq!(grpc.grpc_methods, ["/shop.v1.Catalog/Get".into(), "/shop.Catalog/Put".into()]);
    for (fields, expected) in [
        (
            "methods: [POST]",
            "POST may not be carried out twice (leave it out; unary gRPC methods go to `grpc_methods`)",
        ),
        ("methods: []", "no request is hedged (remove `hedging`)"),
    ] {
        let text = format!(
            "proxies: [{{id: p, listen_path: /, backend_host: h, backend_port: 1, hedging: {{{fields}}}}}]"
        );
        refused(&text, &format!("f:1: proxies[0].hedging.methods: {expected}"));
    }
    refused(
        "proxies: [{id: p, listen_path: /, backend_host: h, backend_port: 1, hedging: {grpc_methods: [Get]}}]",
        "f:1: proxies[0].hedging.grpc_methods[0]: `Get` is not a gRPC method (write the service and the method, such as \
         `shop.Catalog/GetItem`)",
    );
    refused(
        "proxies: [{id: p, listen_port: 1, backend_scheme: tcp, backend_host: h, backend_port: 1, hedging: {}}]",
        "f:1: proxies[0].hedging: only requests over HTTP are hedged (remove it)",
    );
}

#[test]
fn name_servers_are_addresses() {
    let settings = |text: &str| good(&format!("gateway: {{dns_servers: [{text}]}}\nproxies: []")).settings;
    let servers = settings("'127.0.0.1:8600', 10.0.0.53, '[::1]:5353', '::1'").dns_servers.clone();
    let shown: Vec<String> = servers.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["127.0.0.1:8600", "10.0.0.53:53", "[::1]:5353", "[::1]:53"]);
    for bad in ["dns.example.com", "0.0.0.0", "127.0.0.1:0"] {
        refused(
            &format!("gateway: {{dns_servers: ['{bad}']}}\nproxies: []"),
            &format!(
                "f:1: gateway.dns_servers[0]: `{bad}` is not the address of a name server (write one such as \
                 `127.0.0.1:8600`, `10.0.0.53` or `[::1]:53`)"
            ),
        );
    }
}

#[test]
fn redis_servers_are_named_once() {
    let servers = |text: &str| {
        good(&format!("gateway: {{redis: {{main: {{{text}}}}}}}\nproxies: []")).settings.redis.clone()
    };
    let server = servers(
        "urls: ['rediss://a:1', 'rediss://b'], mode: sentinel, master_name: m, username: u, password: sesame, \
         sentinel_password: open, database: 3, ca_path: ca.pem, client_cert_path: /c, client_key_path: /k, \
         timeout: 5ms, connect_timeout: 7s, key_prefix: 'shop:1'",
    );
    let server = server.unwrap()["main"].clone();
    assert_eq!(server.mode, RedisMode::Sentinel("m".into()));
    assert_eq!((server.database, server.is_encrypted, server.urls.len()), (3, true, 2));
    assert_eq!(server.ca_path.as_deref(), Some(Path::new("/etc/ferrum/ca.pem")));
    assert_eq!(
        server.login.as_ref().map(|login| (login.username.as_deref(), &*login.password)),
        Some((Some("u"), "sesame"))
    );
    assert_eq!(server.sentinel_login.as_ref().map(|login| &*login.password), Some("open"));
    assert_eq!((server.timeout.as_millis(), server.connect_timeout.as_secs()), (5, 7));
    assert_eq!(&*server.key_prefix, "shop:1");
    assert!(!format!("{server:?}").contains("sesame"));
}

#[test]
fn bad_settings_of_redis_are_refused() {
    for (text, problem) in [
        ("urls: []", "urls: no server is given"),
        ("urls: ['http://a']", "urls[0]: this is not a URL of Redis"),
        ("urls: ['redis://user:secret@a']", "urls[0]: a URL here must not carry a user name or password"),
        ("urls: ['redis://a/3']", "urls[0]: the database and options are settings of their own"),
        ("urls: ['redis://a:x']", "urls[0]: this is not a host with a port"),
        ("urls: ['redis://a', 'redis://b']", "urls: there is one server with `mode: single`"),
        ("urls: ['redis://a', 'rediss://b'], mode: cluster", "urls: some are encrypted and some are not"),
        (
            "urls: ['redis://a'], mode: cluster, database: 1",
            "database: a cluster has no other database than 0",
        ),
        (
            "urls: ['redis://a'], mode: sentinel",
            "master_name: it is given with `mode: sentinel`, and only then",
        ),
        (
            "urls: ['redis://a'], master_name: m",
            "master_name: it is given with `mode: sentinel`, and only then",
        ),
        (
            "urls: ['redis://a'], sentinel_password: p",
            "sentinel_password: there are no sentinels without `mode: sentinel`",
        ),
        ("urls: ['redis://a'], username: u", "username: there is no password"),
        (
            "urls: ['redis://a'], ca_path: ca.pem",
            "ca_path: nothing is encrypted: the URLs begin with `redis://`",
        ),
        (
            "urls: ['rediss://a'], client_cert_path: /c",
            "client_cert_path: `client_cert_path` and `client_key_path` go together",
        ),
        (
            "urls: ['redis://a'], key_prefix: 'a {b}'",
            "key_prefix: it may have letters, digits, `-`, `_`, `.` and `:`",
        ),
    ] {
        let spec = format!("gateway: {{redis: {{main: {{{text}}}}}}}\nproxies: []");
        let problems = resolved("f", &spec).expect_err(text).to_string();
        assert!(problems.contains(&format!("gateway.redis.main.{problem}")), "{text}: {problems}");
        assert!(!problems.contains("secret"));
    }
}

#[test]
fn plugins_refer_to_redis_servers_that_exist() {
    refused(
        "gateway: {redis: {'a b': {urls: ['redis://a']}}}\nproxies: []",
        "f:1: gateway.redis: `a b` can't be a connection's name (up to 64 letters, digits, `-`, `_` and `.`)",
    );
    let spec = |name: &str| {
        format!(
            "gateway: {{redis: {{main: {{urls: ['redis://a']}}}}}}\nproxies: []\n\
             plugin_configs: [{{id: p, plugin_name: cors, scope: global, config: {{redis: {{name: {name}}}}}}}]"
        )
    };
    good(&spec("main"));
    refused(
        &spec("mian"),
        "f:3: plugin_configs[0].config.redis.name: there is no connection `mian` in `gateway.redis` (did you mean `main`?)",
    );
    // One that can't be read is there all the same.
    refused(
        &spec("main").replace("urls: [", "timeout: 5x, urls: ["),
        "f:1: gateway.redis.main.timeout: `x` in `5x` is not a unit (such as 500ms, 5s, 1m or 1h30m; a plain number \
         counts seconds)",
    );
}

#[test]
fn clients_addresses_come_in_no_field_that_says_other_things() {
    for name in ["Host", "cookie", "content-length", "Authorization"] {
        let lower = name.to_lowercase();
        refused(
            &format!("gateway: {{real_ip_header: {name}}}\nproxies: []"),
            &format!("f:1: gateway.real_ip_header: `{lower}` says other things than a client's address"),
        );
    }
}

#[test]
fn a_queue_is_for_targets_that_can_be_full() {
    let upstream = |target: &str| {
        format!(
            "upstreams:\n  - {{id: u, targets: [{{host: h, port: 1{target}}}], queue: {{max_waiting: 5}}}}\n"
        )
    };
    let limits = |target: &str| {
        let model = good(&upstream(target));
        let rules = &model.upstreams[0].targets[0];
        (rules.max_requests.map(NonZeroU32::get), rules.max_connections.map(NonZeroU32::get))
    };
    assert_eq!(limits(", max_requests: 3"), (Some(3), None));
    assert_eq!(limits(", max_connections: 4"), (None, Some(4)));
    for (target, what) in
        [("", "no target has a limit to wait for"), (", max_connections: 0", "max_connections")]
    {
        match resolved("f", &upstream(target)) {
            Ok(_) => panic!("`{target}` was accepted"),
            Err(problems) => assert!(problems.to_string().contains(what), "{problems}"),
        }
    }
}
