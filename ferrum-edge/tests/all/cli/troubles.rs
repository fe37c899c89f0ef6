//! `status` and `/readyz` report problems.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::process::{Folder, Gateway, ferrum_edge, get, spec, until};

/// The exit code and the output of `status`.
fn status(folder: &Folder) -> (Option<i32>, String) {
    let output = ferrum_edge(folder).arg("status").output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn a_gateway_without_a_problem_is_0() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "answer"));
    let _gateway = Gateway::start(&folder, |_| {});
    let (code, said) = status(&folder);
    assert_eq!(code, Some(0), "{said}");
    assert!(ferrum_edge(&folder).args(["status", "--ready"]).status().unwrap().success());
    assert!(said.contains("problems:     0 errors, ") && said.contains("overload:     normal"), "{said}");
}

#[test]
fn a_refused_reload_is_told_until_one_succeeds() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "answer"));
    let gateway = Gateway::start(&folder, |_| {});
    folder.write("ferrum.yaml", "proxies: [{ id: x, listen_pat: / }]\n");
    gateway.signal("HUP");
    until("the reload is refused", || status(&folder).0 == Some(5));
    let (_, said) = status(&folder);
    assert!(said.contains("error   reload_refused") && said.contains("listen_path"), "{said}");
    assert!(said.contains("problems:     1 error, "), "{said}");
    folder.write("ferrum.yaml", &spec(1, "answer"));
    gateway.signal("HUP");
    until("the file is in use", || status(&folder).0 == Some(0));
}

#[test]
fn an_unhealthy_target_is_told_with_its_cause() {
    let folder = Folder::new();
    // A target answers the probes of one upstream with 500. No server listens for the other.
    let failing = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = failing.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in failing.incoming().map_while(Result::ok) {
            let mut connection = connection;
            let _read = connection.read(&mut [0; 1024]);
            let answer = b"HTTP/1.1 500 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _written = connection.write_all(answer);
        }
    });
    let upstream = |id: &str, port: u16, health: &str| {
        format!(
            "  - {{ id: {id}, targets: [{{ host: 127.0.0.1, port: {port} }}], health_checks: {{ {health} }} }}\n"
        )
    };
    let active = "active: { http_path: /, interval: 1s, timeout: 5s, unhealthy_threshold: 1 }";
    let passive = "passive: { unhealthy_status_codes: [500], unhealthy_threshold: 1 }";
    folder.write(
        "ferrum.yaml",
        &format!(
            "
gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1, not_ready_when: [no_healthy_target] }}
upstreams:
{}{}{}
proxies:
  - {{ id: a, listen_path: /a, upstream_id: probed }}
  - {{ id: b, listen_path: /b, upstream_id: gone }}
  - {{ id: c, listen_path: /c, upstream_id: observed }}
",
            upstream("probed", port, active),
            upstream("gone", 9, active),
            upstream("observed", port, passive),
        ),
    );
    let gateway = Gateway::start(&folder, |_| {});
    get(gateway.http, "/c");
    until("all three are out", || status(&folder).1.matches("target_unhealthy").count() == 3);
    let (code, said) = status(&folder);
    assert_eq!(code, Some(5));
    for cause in [
        format!("upstreams.probed 127.0.0.1:{port}: probe: status 500"),
        "upstreams.gone 127.0.0.1:9: probe: Connection refused".to_owned(),
        format!("upstreams.observed 127.0.0.1:{port}: traffic: it answered 500"),
    ] {
        assert!(said.contains(&cause), "{cause}: {said}");
    }
    let ready = get(gateway.admin, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("[-] targets: 0 of 3"), "{ready}");
    let check = ferrum_edge(&folder).args(["status", "--ready"]).output().unwrap();
    let said = String::from_utf8_lossy(&check.stderr);
    assert!(check.status.code() == Some(1) && said.contains("targets: 0 of 3"), "{said}");
}

#[test]
fn a_gateway_whose_proxies_are_all_closed_is_not_ready_unless_that_is_said() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let settings = |more: &str| {
        let text = "http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, stream_address: 127.0.0.1";
        folder.write("ferrum.yaml", &format!("gateway: {{ {text}{more} }}\n"));
    };
    let apply = |proxy: &str| {
        folder.write("objects.yaml", &format!("proxies:\n  - {proxy}\n"));
        let applied = ferrum_edge(&folder)
            .args(["apply", "objects.yaml", "--db-url", "sqlite:./t.db"])
            .output()
            .unwrap();
        assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    };
    apply(&format!(
        "{{ id: stream, listen_port: {port}, backend_scheme: tcp, backend_host: 127.0.0.1, backend_port: 9 }}"
    ));
    settings("");
    let gateway = Gateway::start(&folder, |command| {
        command.args(["--mode", "database", "--db-url", "sqlite:./t.db"]);
    });
    let ready = || get(gateway.admin, "/readyz");
    let is_ready = || ready().starts_with("HTTP/1.1 200");
    assert!(ready().contains("[-] proxies: 1 of 1 are closed"), "{}", ready());
    let (code, said) = status(&folder);
    assert!(code == Some(5) && said.contains("port_closed           proxies.stream: "), "{said}");
    settings(", not_ready_when: []");
    gateway.signal("HUP");
    until("that does not matter", is_ready);
    apply("{ id: other, listen_path: /, backend_host: 127.0.0.1, backend_port: 9 }");
    until("both are served", || gateway.status()["proxies"]["count"] == 2);
    settings(", not_ready_when: [any_proxy_closed]");
    gateway.signal("HUP");
    until("any closed proxy matters", || !is_ready());
    settings("");
    gateway.signal("HUP");
    until("one of two does not", is_ready);
}

/// The body, the record and the log line contain the same code. The record also contains the setting that caused it.
#[test]
fn a_refusal_names_the_setting_that_decided() {
    let folder = Folder::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    folder.write(
        "ferrum.yaml",
        &format!(
            "
gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1, access_log: {{ path: access.log }}, limits: {{ max_request_body: 1KiB }} }}
proxies:
  - {{ id: slow, listen_path: /slow, backend_host: 127.0.0.1, backend_port: {port}, backend_first_byte_timeout: 200ms }}
  - {{ id: small, listen_path: /small, backend_host: 127.0.0.1, backend_port: 9, max_request_body: 16 }}
  - {{ id: large, listen_path: /large, backend_host: 127.0.0.1, backend_port: 9 }}
  - {{ id: limited, listen_path: /limited, backend_host: 127.0.0.1, backend_port: 9 }}
plugin_configs:
  - {{ id: one-an-hour, plugin_name: rate_limiting, scope: proxy, proxy_id: limited, config: {{ limits: [{{ rate: 1, per: 1h }}] }} }}
"
        ),
    );
    let gateway = Gateway::start(&folder, |_| {});
    let post = |path: &str, length: usize| {
        let mut connection = std::net::TcpStream::connect(gateway.http).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    };
    let slow = get(gateway.http, "/slow");
    assert!(slow.contains("\"type\":\"urn:ferrum-edge:reason:upstream_timeout\""), "{slow}");
    post("/small", 17);
    post("/large", 1025);
    get(gateway.http, "/limited");
    let limited = get(gateway.http, "/limited");
    assert!(
        limited.starts_with("HTTP/1.1 429") && limited.contains("\"code\":\"rate_limited\""),
        "{limited}"
    );
    until("all are recorded", || folder.read("access.log").lines().count() == 5);
    let log = folder.read("access.log");
    let of = |reason: &str| {
        let records = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let found = records.filter(|record| record["error.type"] == reason);
        found
            .map(|record| {
                let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
                [text("error.setting"), text("error.limit"), text("plugin_config.id")]
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(of("upstream_timeout"), [["proxies.backend_first_byte_timeout", "200ms", ""]]);
    assert_eq!(
        of("body_too_large"),
        [["proxies.max_request_body", "16B", ""], ["gateway.limits.max_request_body", "1KiB", ""]]
    );
    assert_eq!(of("rate_limited"), [["rate_limiting.limits", "", "one-an-hour"]]);
    until("the failure is logged", || gateway.log().contains("proxies.backend_first_byte_timeout"));
}

#[test]
fn targets_without_health_checks_are_told_when_their_traffic_fails() {
    let folder = Folder::new();
    let root = folder.path("www");
    folder.write(
        "ferrum.yaml",
        &format!(
            "
gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1 }}
upstreams:
  - {{ id: shop, targets: [{{ host: 127.0.0.1, port: 9 }}] }}
proxies:
  - {{ id: own, listen_path: /own, backend_host: 127.0.0.1, backend_port: 9 }}
  - {{ id: named, listen_path: /named, upstream_id: shop }}
  - id: php
    listen_path: /php
    backend_protocol: fastcgi
    backend_host: 127.0.0.1
    backend_port: 9
    fastcgi: {{ root: {root}, local_root: {root} }}
",
            root = root.display()
        ),
    );
    let gateway = Gateway::start(&folder, |_| {});
    let (code, said) = status(&folder);
    assert_eq!(code, Some(5), "{said}");
    let missing = format!("proxies.php {}: No such file or directory", root.display());
    assert!(said.contains("scripts_unreadable") && said.contains(&missing), "{said}");

    std::fs::create_dir(&root).unwrap();
    folder.write("www/index.php", "<?php");
    assert_eq!(status(&folder).0, Some(0), "no request has failed yet");
    for path in ["/own", "/named", "/php/index.php"] {
        assert!(get(gateway.http, path).starts_with("HTTP/1.1 502"), "{path}");
    }
    let (code, said) = status(&folder);
    assert_eq!(code, Some(5), "{said}");
    for about in ["proxies.own 127.0.0.1:9: ", "upstreams.shop 127.0.0.1:9: ", "proxies.php 127.0.0.1:9: "] {
        let line =
            said.lines().find(|line| line.contains(about)).unwrap_or_else(|| panic!("{about}: {said}"));
        assert!(line.starts_with("error   target_failing") && line.contains("connect_failed"), "{line}");
        assert!(line.contains("refused"), "{line}");
        let at = line.split(" failed at ").nth(1).and_then(|rest| rest.split(": ").next());
        assert_eq!(at.map(str::len), Some("2026-11-28T05:57:11Z".len()), "to the second: {line}");
    }
    for path in ["/own", "/named"] {
        let url = format!("http://shop.test{path}");
        let admin = gateway.admin.to_string();
        let output = ferrum_edge(&folder).args(["explain", "GET", &url, "--admin", &admin]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("failing:   127.0.0.1:9: the last attempt failed: connect_failed"), "{said}");
    }
    assert!(said.contains("-> start the target") && said.contains("-> start PHP-FPM"), "{said}");
}

#[test]
fn a_stream_target_that_fails_is_told_with_the_kernels_error() {
    let folder = Folder::new();
    let [tcp, udp] = [0, 1].map(|_| {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    });
    // No server listens for the one. To a broadcast address no socket of the other is connected.
    folder.write(
        "ferrum.yaml",
        &format!(
            "
gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1, stream_address: 127.0.0.1 }}
proxies:
  - {{ id: t, listen_port: {tcp}, backend_scheme: tcp, backend_host: 127.0.0.1, backend_port: 9 }}
  - {{ id: u, listen_port: {udp}, backend_scheme: udp, backend_host: 255.255.255.255, backend_port: 9 }}
"
        ),
    );
    let _gateway = Gateway::start(&folder, |_| {});
    let mut client = std::net::TcpStream::connect(("127.0.0.1", tcp)).unwrap();
    let _closed = client.read(&mut [0; 8]);
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.send_to(b"x", ("127.0.0.1", udp)).unwrap();
    let causes =
        ["connect_failed (connect to 127.0.0.1:9: Connection refused", "connect_failed (Permission denied"];
    until("both are told", || {
        let (_, said) = status(&folder);
        causes.iter().all(|cause| said.contains(cause))
    });
}
