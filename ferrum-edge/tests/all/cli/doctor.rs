//! `doctor` on real files, targets and databases.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::Value;

use crate::process::{Folder, ferrum_edge};

fn examined(folder: &Folder, code: i32, arguments: &[&str]) -> Vec<Value> {
    let mut command = ferrum_edge(folder);
    let output = command.args(["doctor", "--json", "--timeout", "2s"]).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    assert_eq!(output.status.code(), Some(code), "{document:#}");
    assert_eq!(document["healthy"], code == 0);
    document["findings"].as_array().unwrap().clone()
}

/// What was found about something, with its level.
fn about<'f>(findings: &'f [Value], what: &str) -> Vec<(&'f str, &'f str)> {
    let found = findings.iter().filter(|it| it["about"].as_str().is_some_and(|about| about.contains(what)));
    found.map(|it| (it["level"].as_str().unwrap(), it["message"].as_str().unwrap())).collect()
}

/// A server that takes connections, and answers what it reads with a text.
fn server(answer: fn(&str) -> &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut connection in listener.incoming().map_while(Result::ok) {
            let mut buffer = [0; 1024];
            while let Ok(read @ 1..) = connection.read(&mut buffer) {
                let asked = String::from_utf8_lossy(&buffer[..read]).into_owned();
                drop(connection.write_all(answer(&asked).as_bytes()));
            }
        }
    });
    port
}

/// What Redis answers to commands that are good.
fn redis(asked: &str) -> &'static str {
    match asked {
        asked if asked.contains("PING") => "+PONG\r\n",
        asked if asked.contains("LOAD") => "$40\r\n50080d91a103c84d0b5032f627e86d636bf3bd2a\r\n",
        _ => "+OK\r\n",
    }
}

/// A port that nobody listens on: one that was free a moment ago may be another test's by now.
const CLOSED: u16 = 1;

#[test]
fn targets_certificates_and_redis_are_examined() {
    let folder = Folder::new();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["shop.example".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    folder.write("cert.pem", &format!("{}{}", leaf.pem(), ca.pem()));
    folder.write("key.pem", &key.serialize_pem());
    let (open, closed, redis) = (server(|_| "no"), CLOSED, server(redis));
    let spec = |target: u16, redis: u16| {
        format!(
            "
gateway: {{ http: '127.0.0.1:0', admin: off, workers: 1, tls: {{ certificates: [{{ cert_path: cert.pem, key_path: key.pem }}] }},
  redis: {{ main: {{ urls: ['redis://127.0.0.1:{redis}'], password: p4ssword }} }} }}
proxies:
  - {{ id: shop, hosts: [shop.example], listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {target} }}
  - {{ id: blog, hosts: [blog.example], listen_path: /, backend_scheme: http, backend_host: localhost, backend_port: {open} }}
plugin_configs:
  - {{ id: limit, plugin_name: rate_limiting, scope: global,
      config: {{ limits: [{{ rate: 5, per: 1m }}], redis: {{ name: main }} }} }}
"
        )
    };
    folder.write("ferrum.yaml", &spec(open, redis));
    let good = examined(&folder, 0, &[]);
    assert!(good.iter().all(|it| it["level"] != "error"), "{good:#?}");
    assert_eq!(about(&good, "cert.pem"), [("ok", "good: shop.example")]);
    assert_eq!(about(&good, "blog.example")[0].0, "warning", "no certificate names it");
    assert!(about(&good, "shop.example").is_empty());
    assert!(about(&good, &format!("127.0.0.1:{open}"))[0].1.contains("takes connections"));
    assert_eq!(about(&good, &format!("127.0.0.1:{redis}")), [("ok", "it answers and runs scripts")]);
    assert!(!format!("{good:?}").contains("p4ssword"));
    examined(&folder, 1, &["--deny-warnings"]);

    folder.write("ferrum.yaml", &spec(closed, closed));
    let bad = examined(&folder, 1, &[]);
    let found = about(&bad, &format!("127.0.0.1:{closed}"));
    assert!(found.iter().all(|(level, _)| *level == "error") && found.len() == 2, "{found:?}");
    assert!(found[0].1.contains("`shop`") && found[1].1.contains("`gateway.redis.main`"), "{found:?}");
    // Nothing beyond this machine is asked for.
    let offline = examined(&folder, 0, &["--offline"]);
    assert!(about(&offline, &format!("127.0.0.1:{closed}")).is_empty());

    folder.write("key.pem", &KeyPair::generate().unwrap().serialize_pem());
    let mismatched = examined(&folder, 3, &["--offline"]);
    assert!(
        mismatched.iter().any(|it| it["check"] == "configuration" && it["level"] == "error"),
        "{mismatched:#?}"
    );
    assert!(mismatched.iter().all(|it| (it["level"] == "ok") == it["remedy"].is_null()), "{mismatched:#?}");
}

#[test]
fn a_target_whose_certificate_is_not_trusted_is_told() {
    let folder = Folder::new();
    let port = server(|_| "HTTP/1.1 400 Bad Request\r\n\r\n");
    folder.write(
        "ferrum.yaml",
        &format!(
            "proxies: [{{ id: a, listen_path: /, backend_scheme: https, backend_host: 127.0.0.1, backend_port: {port} }}]"
        ),
    );
    let findings = examined(&folder, 1, &[]);
    let found = about(&findings, &port.to_string());
    assert!(found[0].0 == "error" && found[0].1.contains("TLS fails"), "{found:?}");
}

#[test]
fn servers_for_records_metrics_and_spans_are_tried() {
    let folder = Folder::new();
    let silent = server(|_| "");
    let open = server(|_| "no");
    folder.write(
        "ferrum.yaml",
        &format!(
            "
gateway:
  access_log:
    sinks:
      - {{ name: lines, tcp: {{ address: 'tcp://127.0.0.1:{CLOSED}' }} }}
      - {{ name: siem, syslog: {{ address: 'tls://127.0.0.1:{silent}' }} }}
      - {{ name: http, http: {{ url: 'http://127.0.0.1:{open}/in' }} }}
      - {{ name: mq, kafka: {{ brokers: ['127.0.0.1:{CLOSED}'], topic: t }} }}
  metrics: {{ otlp: {{ exporter: {{ endpoint: 'http://127.0.0.1:{CLOSED}' }} }} }}
proxies: []
plugin_configs:
  - {{ id: spans, plugin_name: otel_tracing, scope: global, config: {{ exporter: {{ endpoint: 'http://127.0.0.1:{CLOSED}' }} }} }}
"
        ),
    );
    let findings = examined(&folder, 1, &[]);
    let said = format!("{findings:#?}");
    for of in ["sink `lines`", "sink `mq`", "`gateway.metrics.otlp`", "plugin config `spans`"] {
        let found = findings.iter().find(|it| it["message"].as_str().unwrap().contains(of));
        let found = found.unwrap_or_else(|| panic!("{of} in {said}"));
        assert!(
            found["level"] == "error" && found["message"].as_str().unwrap().contains("refused"),
            "{found}"
        );
    }
    assert_eq!(about(&findings, &open.to_string())[0].0, "ok", "{said}");
    let found =
        findings.iter().find(|it| it["about"].as_str().is_some_and(|it| it.contains(&silent.to_string())));
    let found = found.unwrap_or_else(|| panic!("{said}"));
    assert!(found["message"].as_str().unwrap().contains("does not end in time"), "{found}");
    assert!(found["remedy"].as_str().unwrap().contains("speaks TLS"), "{found}");
}

#[test]
fn folders_that_logs_and_sockets_need_are_looked_for() {
    let folder = Folder::new();
    folder.write(
        "ferrum.yaml",
        "gateway: { http_socket: nodir/s, access_log: { path: nodir/a.log, sinks: [{ name: s, file: { path: nodir/b.log } }] } }\nproxies: []\n",
    );
    let output = ferrum_edge(&folder).arg("check").output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    for place in ["gateway.access_log.path", "gateway.access_log.sinks[0].file.path", "gateway.http_socket"] {
        assert!(said.contains(&format!("{place}: there is no folder")), "{place} in {said}");
    }
    let found = examined(&folder, 3, &["--offline"]);
    assert!(found.iter().any(|it| it["check"] == "configuration" && it["level"] == "error"), "{found:#?}");
    std::fs::create_dir(folder.path("nodir")).unwrap();
    assert_eq!(ferrum_edge(&folder).arg("check").output().unwrap().status.code(), Some(0));
}

#[test]
fn a_database_is_examined_and_what_is_in_it() {
    let folder = Folder::new();
    let url = format!("sqlite:{}", folder.path("f.db").display());
    let missing = examined(&folder, 1, &["--db-url", &url]);
    assert!(missing.iter().any(|it| it["check"] == "store" && it["level"] == "error"), "{missing:#?}");
    assert!(!folder.exists("f.db"), "it only looks");
    let run = |arguments: &[&str]| {
        let output = ferrum_edge(&folder).args(arguments).args(["--db-url", &url]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    };
    run(&["migrate"]);
    let port = CLOSED;
    folder.write(
        "config.yaml",
        &format!("proxies: [{{ id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {port} }}]"),
    );
    run(&["apply", "config.yaml"]);
    let found = examined(&folder, 1, &["--db-url", &url]);
    assert!(about(&found, "f.db")[0].1.contains("revision 1"), "{found:#?}");
    assert_eq!(about(&found, &format!("127.0.0.1:{port}"))[0].0, "error");
    examined(&folder, 0, &["--db-url", &url, "--offline"]);
}

#[test]
fn what_stands_in_the_way_of_a_certificate_from_a_ca() {
    let folder = Folder::new();
    folder.write(
        "ferrum.yaml",
        "
gateway:
  http: 127.0.0.1:8001
  admin: off
  acme: { accept_terms: true, storage: acme, directory_url: 'https://127.0.0.1:1/directory' }
  tls: { certificates: [{ acme: [shop.test] }] }
proxies:
  - { id: shop, hosts: [shop.test], listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 1 }
",
    );
    let checked = ferrum_edge(&folder).args(["check", "--deny-warnings"]).output().unwrap();
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let found = examined(&folder, 0, &["--offline"]);
    assert!(about(&found, "http-01")[0].1.contains("port 80 of each name"), "{found:#?}");
    assert!(about(&found, "shop.test")[0].1.contains("not there yet"), "{found:#?}");
    let stored =
        found.iter().find(|it| it["message"].as_str().unwrap().contains("nothing is stored")).unwrap();
    let storage = stored["about"].as_str().unwrap();
    assert!(storage.starts_with("acme/") && !folder.exists(storage), "it only looks");
    let storage = folder.path(storage);

    // As a gateway leaves it after two refusals, and then somebody wrote into it.
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"shop.test");
    let hash: String = hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    for (name, text) in [
        (format!("attempts/shop.test-{hash}.json"), r#"{"failures": 2, "problem": "the CA said no"}"#),
        (format!("certificates/shop.test-{hash}.pem"), "-----BEGIN CERT"),
        ("account.json".to_owned(), "{"),
    ] {
        let path = storage.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let found = examined(&folder, 1, &["--offline"]);
    assert!(about(&found, "account")[0].1.contains("account.json"), "{found:#?}");
    let shop = about(&found, "shop.test");
    assert!(shop[0].1.starts_with("2 orders in a row failed, the last with: the CA said no"), "{found:#?}");
    assert!(shop[1].0 == "error" && shop[1].1.contains("certificates/shop.test-"), "{found:#?}");
    // The rest of the gateway serves.
    assert_eq!(ferrum_edge(&folder).arg("check").output().unwrap().status.code(), Some(0));

    // Others may put another folder in the place of the CA's.
    let open = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(folder.path("acme"), mode).unwrap();
        let found = examined(&folder, 1, &["--offline"]);
        found.iter().any(|it| it["message"].as_str().unwrap().contains("other users may write"))
    };
    assert!(!open(0o755));
    assert!(open(0o777));

    let text = std::fs::read_to_string(folder.path("ferrum.yaml")).unwrap();
    folder.write("ferrum.yaml", &text.replace("storage: acme", "storage: acme, root_ca_path: roots.pem"));
    let checked = ferrum_edge(&folder).arg("check").output().unwrap();
    assert_eq!(checked.status.code(), Some(3), "{checked:?}");
    let said = format!("{checked:?}");
    assert!(said.contains("gateway.acme.root_ca_path"), "{said}");
}

/// A key that is missing or another one locks callers out: nobody wants to learn that from the first 401.
#[test]
fn what_a_database_holds_and_cannot_be_used_is_an_error() {
    const KEY: &str = "FERRUM_DB_ENCRYPTION_KEY";
    let (one, other) = ("11".repeat(32), "22".repeat(32));
    let folder = Folder::new();
    let url = format!("sqlite:{}", folder.path("f.db").display());
    let run = |arguments: &[&str], key: &str| {
        ferrum_edge(&folder).args(arguments).args(["--db-url", &url]).env(KEY, key).output().unwrap()
    };
    assert!(run(&["migrate"], &one).status.success());
    let consumer = "{id: bob, username: bob, credentials: {jwt_auth: 'a secret of thirty-two bytes, ok'}}";
    folder.write("config.yaml", &format!("proxies: []\nconsumers: [{consumer}]"));
    let applied = run(&["apply", "config.yaml"], &one);
    assert!(applied.status.success(), "{applied:?}");
    for (key, code) in [(&one, 0), (&other, 3)] {
        let found = run(&["doctor", "--json", "--offline"], key);
        let text = String::from_utf8_lossy(&found.stdout).into_owned();
        assert_eq!(found.status.code(), Some(code), "{text}");
        assert_eq!(text.contains("consumers.bob"), code == 3, "{text}");
        assert!(!text.contains("`http` is off"), "{text}");
    }
}
