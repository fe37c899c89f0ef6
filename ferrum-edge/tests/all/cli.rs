//! The program as a process: exit codes, what it says, signals.

mod audit;
mod caching;
mod congestion;
mod deciding_settings;
mod doctor;
mod draining;
mod environment;
mod exhaustion;
mod explaining;
mod file_mode;
mod files;
mod foreseen;
mod full_disk;
mod http_socket;
#[cfg(feature = "import")]
mod import;
#[cfg(feature = "import")]
mod inputs;
mod key_tools;
mod memory;
mod output;
mod phases;
mod quotas;
mod recorded;
mod reloading;
mod remote;
mod replacing;
mod replacing_datagrams;
mod resumption;
mod secrets;
mod serving;
mod small_tools;
mod ten_faults;
mod tls_sinks;
mod tokens;
#[cfg(feature = "top")]
mod top;
mod troubles;
mod trying;
mod waf;
mod warnings;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::process::{Folder, Gateway, ferrum_edge, get, until};
use serde_json::Value;

#[test]
fn without_a_configuration_three_lines_say_what_to_do() {
    let folder = Folder::new();
    let output = ferrum_edge(&folder).arg("run").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 3, "{said}");
    for word in ["ferrum.yaml", "quickstart", "--spec"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn a_wrong_use_is_2() {
    let folder = Folder::new();
    for arguments in [&["--nonsense"][..], &["run", "--workers", "many"], &[]] {
        assert_eq!(ferrum_edge(&folder).args(arguments).output().unwrap().status.code(), Some(2));
    }
}

#[test]
fn check_tells_every_problem_at_once() {
    let folder = Folder::new();
    let bad =
        "proxies:\n  - id: a\n    listen_pat: /x\n  - id: a\n    listen_path: /y\n    backend_port: 99999\n";
    folder.write("bad.yaml", bad);
    let text = ferrum_edge(&folder).args(["check", "--spec", "bad.yaml"]).output().unwrap();
    assert_eq!(text.status.code(), Some(3));
    let said = String::from_utf8(text.stdout).unwrap();
    for part in ["bad.yaml:3:", "did you mean `listen_path`?", "99999", "problems"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let json =
        ferrum_edge(&folder).args(["validate", "--spec", "bad.yaml", "--output", "json"]).output().unwrap();
    assert_eq!(json.status.code(), Some(3));
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(document["valid"], false);
    assert!(document["problems"].as_array().unwrap().len() >= 2, "{document}");
    assert_eq!(document["problems"][0]["line"], 3);
}

#[test]
fn check_reads_the_certificates_too() {
    let folder = Folder::new();
    folder.write("not-a.pem", "nonsense");
    folder.write(
        "ferrum.yaml",
        "
gateway: { tls: { certificates: [{ cert_path: missing.pem, key_path: missing.key }] } }
proxies:
  - { id: a, listen_path: /, backend_scheme: https, backend_host: localhost, backend_port: 443,
      backend_tls_ca_path: not-a.pem }
",
    );
    let output = ferrum_edge(&folder).arg("check").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("gateway.tls.certificates[0]") && said.contains("missing.pem"), "{said}");
    assert!(said.contains("proxies.a") && said.contains("not-a.pem"), "{said}");
}

#[test]
fn check_finds_the_spec_by_flag_environment_and_place() {
    let folder = Folder::new();
    folder.write("good.yaml", "proxies: []\n");
    let check = |environment: Option<&str>| {
        let mut command = ferrum_edge(&folder);
        command.arg("check");
        environment.map(|name| command.env(name, "good.yaml"));
        command.output().unwrap().status.code()
    };
    assert_eq!(check(None), Some(2));
    assert_eq!(check(Some("FERRUM_SPEC")), Some(0));
    assert_eq!(check(Some("FERRUM_FILE_CONFIG_PATH")), Some(0));
    folder.write("ferrum.json", r#"{"proxies":[]}"#);
    assert_eq!(check(None), Some(0));
    folder.write("ferrum.yaml", "nonsense: true\n");
    assert_eq!(check(None), Some(3), "YAML goes before JSON");
    assert_eq!(check(Some("FERRUM_SPEC")), Some(0), "what is said goes before what is found");
}

#[test]
fn a_file_that_is_not_there_is_a_bad_configuration() {
    let folder = Folder::new();
    let output = ferrum_edge(&folder).args(["run", "--spec", "nowhere.yaml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8(output.stderr).unwrap().contains("nowhere.yaml"));
}

#[test]
fn what_the_program_knows_of_itself() {
    let folder = Folder::new();
    let said = |arguments: &[&str]| {
        let output = ferrum_edge(&folder).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for form in [&["version", "--json"][..], &["version", "--output", "json"]] {
        let version: Value = serde_json::from_str(&said(form)).unwrap();
        assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    }
    let settings: Value = serde_json::from_str(&said(&["settings", "--output", "json"])).unwrap();
    let port = settings.as_array().unwrap().iter().find(|it| it["name"] == "FERRUM_PROXY_HTTP_PORT").unwrap();
    assert_eq!(port["key"], "gateway.http");
    let schema: Value = serde_json::from_str(&said(&["schema"])).unwrap();
    assert!(schema["properties"]["proxies"].is_object());
    assert!(said(&["plugins"]).lines().any(|line| line.starts_with("request_termination  ")));
    assert!(said(&["plugins", "request_termination"]).contains("status_code"));
    let version = said(&["version", "--verbose"]);
    assert!(version.contains("tls: rustls with aws-lc-rs") && version.contains("features: "), "{version}");
    assert!(said(&["settings"]).contains("FERRUM_PROXY_HTTP_PORT"));
    assert!(said(&["completions", "bash"]).contains("ferrum-edge"));
    assert!(said(&["quickstart", "--print"]).contains("/hello"));
}

#[test]
fn flags_go_before_the_environment_and_that_before_the_file() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &crate::process::spec(1, "one"));
    let workers = |gateway: &Gateway| gateway.status()["workers"].as_u64();
    assert_eq!(workers(&Gateway::start(&folder, |_| {})), Some(1));
    let by_environment = Gateway::start(&folder, |command| {
        command.env("FERRUM_WORKER_THREADS", "2");
    });
    assert_eq!(workers(&by_environment), Some(2));
    let by_flag = Gateway::start(&folder, |command| {
        command.env("FERRUM_WORKER_THREADS", "2").args(["--workers", "3"]);
    });
    assert_eq!(workers(&by_flag), Some(3));
}

#[test]
fn a_reload_takes_a_good_file_and_refuses_a_bad_one() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &crate::process::spec(1, "one"));
    let gateway = Gateway::start(&folder, |_| {});
    assert!(get(gateway.http, "/").ends_with("one"));
    let reload =
        || ferrum_edge(&folder).args(["reload", "--admin", &gateway.admin.to_string()]).output().unwrap();

    folder.write("ferrum.yaml", &crate::process::spec(1, "two"));
    let output = reload();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "Revision 2 is in use.\n");
    assert!(get(gateway.http, "/").ends_with("two"));

    folder.write("ferrum.yaml", "proxies: [{ id: x, listen_pat: / }]\n");
    let output = reload();
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("revision 2 stays in use") && said.contains("listen_path"), "{said}");
    assert!(get(gateway.http, "/").ends_with("two"));
    let status = gateway.status();
    assert_eq!((&status["config"]["revision"], &status["config"]["refused"]), (&2.into(), &1.into()));
    assert!(get(gateway.admin, "/metrics").contains("\nferrum_config_refused_total 1\n"));
    assert!(gateway.log().contains("the new configuration is refused"));
}

#[test]
fn reload_says_when_nobody_is_there() {
    let folder = Folder::new();
    let output = ferrum_edge(&folder).args(["reload", "--admin", "127.0.0.1:1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    folder.write("pid", "rubbish");
    let output = ferrum_edge(&folder).args(["reload", "--pid-file", "pid"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn sigterm_under_load_loses_no_request_and_exits_0() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &crate::process::spec(2, "answer"));
    let mut gateway = Gateway::start(&folder, |command| {
        command.args(["--pid-file", "pid"]);
    });
    assert_eq!(folder.read("pid").trim(), gateway.pid().to_string());
    let stop = Arc::new(AtomicBool::new(false));
    let (clients, served): (Vec<_>, Vec<_>) = (0..24)
        .map(|_| {
            let served = Arc::new(AtomicU64::new(0));
            let (address, stop, counter) = (gateway.http, stop.clone(), served.clone());
            (thread::spawn(move || load(address, &stop, &counter)), served)
        })
        .unzip();
    until("every client is served", || served.iter().all(|served| served.load(Ordering::Relaxed) > 50));
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0), "{}", gateway.log());
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    assert!(!folder.exists("pid"), "the pid file went with the process");
}

/// Sends requests over one connection until an answer says that it is the last. A connection that ends in any other way
/// has lost a request.
fn load(address: std::net::SocketAddr, stop: &AtomicBool, served: &AtomicU64) {
    let mut connection = TcpStream::connect(address).unwrap();
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        connection.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"answer") {
            match connection.read(&mut buffer) {
                Ok(0) | Err(_) => panic!("lost: {}", String::from_utf8_lossy(&answer)),
                Ok(n) => answer.extend_from_slice(&buffer[..n]),
            }
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        served.fetch_add(1, Ordering::Relaxed);
        if answer.windows(17).any(|window| window.eq_ignore_ascii_case(b"connection: close")) {
            return;
        }
    }
}

#[test]
fn a_second_signal_stops_at_once() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &crate::process::spec(1, "answer"));
    let mut gateway = Gateway::start(&folder, |_| {});
    // Half a request: a connection that a drain waits for.
    let mut client = TcpStream::connect(gateway.http).unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf").unwrap();
    until("the connection is open", || gateway.status()["connections"] == 1);
    gateway.signal("INT");
    until("the drain began", || get(gateway.admin, "/readyz").starts_with("HTTP/1.1 503"));
    assert!(get(gateway.admin, "/livez").starts_with("HTTP/1.1 200"));
    gateway.signal("INT");
    assert_eq!(gateway.wait(), Some(0));
    assert!(gateway.log().contains("stopping at once"));
}

#[test]
fn sigusr1_opens_the_access_log_anew() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &crate::process::spec(1, "answer"));
    let mut gateway = Gateway::start(&folder, |command| {
        command.env("FERRUM_ACCESS_LOG", "access.log");
    });
    get(gateway.http, "/first?token=s3cret&page=2");
    until("the record is written", || folder.read("access.log").ends_with('\n'));
    folder.rename("access.log", "access.log.1");
    gateway.signal("USR1");
    until("there is a new file", || folder.exists("access.log"));
    get(gateway.http, "/second");
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
    let (first, second) = (folder.read("access.log.1"), folder.read("access.log"));
    let record: Value = serde_json::from_str(first.trim_end()).unwrap();
    assert_eq!(
        (&record["url.path"], &record["url.query"]),
        (&"/first".into(), &"token=REDACTED&page=2".into())
    );
    let record: Value = serde_json::from_str(second.trim_end()).unwrap();
    assert_eq!(record["url.path"], "/second");
}

#[test]
fn records_are_followed_by_proxy_status_and_time() {
    const TOKEN: &str = "a token of the tests, long enough";
    let folder = Folder::new();
    folder.write(
        "ferrum.yaml",
        &crate::process::spec(1, "answer").replace("listen_path: /", "listen_path: /shop"),
    );
    let gateway = Gateway::start(&folder, |command| {
        command.env("FERRUM_ADMIN_TOKEN", TOKEN);
    });
    let admin = gateway.admin.to_string();
    let follow = |arguments: &[&str]| {
        let mut command = ferrum_edge(&folder);
        command
            .args(["logs", "--count", "1", "--admin", &admin])
            .args(arguments)
            .env("FERRUM_ADMIN_TOKEN", TOKEN);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        until("a record is printed", || {
            get(gateway.http, "/shop");
            get(gateway.http, "/missing");
            child.try_wait().unwrap().is_some()
        });
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let record: Value = serde_json::from_str(&follow(&["--status", "4xx", "--output", "json"])).unwrap();
    assert_eq!(
        (&record["url.path"], &record["http.response.status_code"]),
        (&"/missing".into(), &404.into())
    );
    let line = follow(&["--proxy", "all", "--slower", "0ms"]);
    assert!(
        line.contains(" 200 GET ") && line.contains("/shop") && line.trim_end().contains(" all"),
        "{line}"
    );
    let refused = |arguments: &[&str], token: &str, code: i32| {
        let mut command = ferrum_edge(&folder);
        command.args(["logs", "-f", "--admin", &admin]).args(arguments).env("FERRUM_ADMIN_TOKEN", token);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["--status", "abc"], TOKEN, 2).contains("(400)"));
    let unknown = refused(&["--proxy", "al"], TOKEN, 1);
    assert!(unknown.contains("(404)") && unknown.contains("no proxy `al`"), "{unknown}");
    assert!(refused(&[], "another token, which is not set", 1).contains("(401)"));
}

#[test]
fn a_taken_port_is_told_with_its_remedy() {
    let folder = Folder::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    folder.write("ferrum.yaml", &format!("gateway: {{ http: 127.0.0.1:{port}, admin: off }}\nproxies: []\n"));
    let output = ferrum_edge(&folder).arg("run").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot listen on") && said.contains("another process"), "{said}");
}

#[test]
fn the_service_manager_is_told() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &crate::process::spec(1, "answer"));
    let socket = std::os::unix::net::UnixDatagram::bind(folder.path("notify")).unwrap();
    socket.set_read_timeout(Some(crate::process::TIMEOUT)).unwrap();
    let mut gateway = Gateway::start(&folder, |command| {
        command.env("NOTIFY_SOCKET", folder.path("notify"));
    });
    let next = || {
        let mut buffer = [0; 256];
        let n = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    };
    let ready = format!("READY=1\nMAINPID={}\n", gateway.pid());
    assert_eq!(next(), ready);
    gateway.signal("HUP");
    assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(next(), ready);
    gateway.signal("QUIT");
    assert_eq!(next(), "STOPPING=1\n");
    assert_eq!(gateway.wait(), Some(0));
}

/// A line of the log with a key twice means something else to each reader.
#[test]
fn a_failed_request_is_logged_with_each_key_once() {
    let folder = Folder::new();
    folder.write(
        "ferrum.yaml",
        "
gateway: { http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1 }
proxies:
  - { id: shop, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 1 }
",
    );
    let gateway = Gateway::start(&folder, |_| {});
    assert!(get(gateway.http, "/").starts_with("HTTP/1.1 502"));
    let mut failed = String::new();
    until("the failure is logged", || {
        failed = gateway
            .log()
            .lines()
            .find(|line| line.contains("upstream request failed"))
            .unwrap_or_default()
            .to_owned();
        !failed.is_empty()
    });
    let record: Value = serde_json::from_str(&failed).unwrap();
    assert_eq!((&record["proxy"], &record["target"]), (&Value::from("shop"), &Value::from("127.0.0.1:1")));
    assert_eq!(failed.matches("\"target\":").count(), 1, "{failed}");
}

#[test]
fn a_sighup_during_a_reload_is_another_reload() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &crate::process::spec(1, "one"));
    let gateway = Gateway::start(&folder, |_| {});
    let made = std::process::Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap();
    assert!(made.success());
    std::fs::hard_link(folder.path("pipe"), folder.path("ferrum.next")).unwrap();
    folder.rename("ferrum.next", "ferrum.yaml");
    gateway.signal("HUP");
    // Succeeds once the gateway reads; it goes on when this is written and closed.
    let mut held = std::fs::OpenOptions::new().write(true).open(folder.path("pipe")).unwrap();
    folder.write("ferrum.yaml", &crate::process::spec(1, "three"));
    gateway.signal("HUP");
    held.write_all(crate::process::spec(1, "two").as_bytes()).unwrap();
    drop(held);
    until("the second one is in use", || get(gateway.http, "/").ends_with("three"));
    assert_eq!(gateway.status()["config"]["revision"], 3);
}

#[test]
fn sigterm_does_not_wait_for_a_reload_that_hangs() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &crate::process::spec(1, "one"));
    let mut gateway = Gateway::start(&folder, |_| {});
    // Reading the configuration now waits until somebody writes it.
    let made = std::process::Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap();
    assert!(made.success());
    folder.rename("pipe", "ferrum.yaml");
    gateway.signal("HUP");
    // Succeeds once the gateway reads.
    let held = std::fs::OpenOptions::new().write(true).open(folder.path("ferrum.yaml")).unwrap();
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0), "{}", gateway.log());
    drop(held);
}
