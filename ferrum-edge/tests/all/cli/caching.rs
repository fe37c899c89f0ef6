//! Stored responses of a running gateway: served, fetched anew behind the client's back, purged.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use serde_json::Value;

use crate::process::{Folder, Gateway, ferrum_edge, get, until};

const TOKEN: &str = "0123456789abcdef-of-a-test";

/// A target whose bodies count its answers. What begins with `/s` is stale at once.
fn target() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (n, connection) in listener.incoming().enumerate() {
            let mut connection = BufReader::new(connection.unwrap());
            let mut line = String::new();
            connection.read_line(&mut line).unwrap();
            let fresh =
                if line.contains(" /s") { "max-age=0, stale-while-revalidate=600" } else { "max-age=600" };
            while !matches!(line.as_str(), "\r\n" | "") {
                line.clear();
                connection.read_line(&mut line).unwrap();
            }
            let body = format!("answer {}", n + 1);
            let head =
                format!("content-length: {}\r\ncache-control: {fresh}\r\nconnection: close", body.len());
            write!(connection.get_mut(), "HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").unwrap();
        }
    });
    address
}

fn start(folder: &Folder) -> Gateway {
    start_with(folder, target().port(), "{}")
}

/// With these settings of the cache.
fn start_with(folder: &Folder, port: u16, config: &str) -> Gateway {
    folder.write(
        "ferrum.yaml",
        &format!(
            "
gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 2 }}
proxies:
  - {{ id: all, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {port} }}
plugin_configs:
  - {{ id: stored, plugin_name: response_cache, proxy_id: all, config: {config} }}
"
        ),
    );
    Gateway::start(folder, |command| {
        command.env("FERRUM_ADMIN_TOKEN", TOKEN);
    })
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

/// The exit code of `cache purge` with these arguments, and what it printed.
fn purge(folder: &Folder, gateway: &Gateway, token: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = ferrum_edge(folder);
    command.args(["cache", "purge", "--admin", &gateway.admin.to_string()]).args(arguments);
    let output = command.env("FERRUM_ADMIN_TOKEN", token).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn what_is_stored_is_served_until_it_is_purged() {
    let folder = Folder::new();
    let gateway = start(&folder);
    assert_eq!(body(&get(gateway.http, "/a")), "answer 1");
    let hit = get(gateway.http, "/a");
    assert!(hit.contains("cache-status: ferrum-edge; hit; ttl=") && body(&hit) == "answer 1", "{hit}");
    assert_eq!(purge(&folder, &gateway, "a token that is wrong", &["--all"]).0, Some(1));
    assert_eq!(purge(&folder, &gateway, TOKEN, &[]).0, Some(2), "nothing is purged by mistake");
    assert_eq!(purge(&folder, &gateway, TOKEN, &["--all", "--config", "other"]).0, Some(1));
    assert_eq!(purge(&folder, &gateway, TOKEN, &["--url", "/a"]).0, Some(1));
    assert_eq!(body(&get(gateway.http, "/a")), "answer 1");
    let (code, said) = purge(&folder, &gateway, TOKEN, &["--url", "http://localhost/a"]);
    assert_eq!((code, said.as_str()), (Some(0), "stored: 1 response removed\n"));
    assert_eq!(body(&get(gateway.http, "/a")), "answer 2");
    let (code, said) = purge(&folder, &gateway, TOKEN, &["--all", "--output", "json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &said["results"][0]["result"]["purged"]), (Some(0), &1.into()));
    assert_eq!(body(&get(gateway.http, "/a")), "answer 3");
}

#[test]
fn a_stale_response_is_fetched_anew_behind_the_clients_back() {
    let folder = Folder::new();
    let gateway = start(&folder);
    assert_eq!(body(&get(gateway.http, "/s")), "answer 1");
    // Each of these is answered at once with what is stored by then, and has it fetched anew.
    until("the next answer is stored", || body(&get(gateway.http, "/s")) != "answer 1");
    let metrics = get(gateway.admin, "/metrics");
    let line =
        "ferrum_response_cache_requests_total{plugin_config=\"stored\",outcome=\"stale_while_revalidate\"}";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn a_restarted_gateway_answers_from_the_disk() {
    let folder = Folder::new();
    let port = target().port();
    let config = format!("{{ disk: {{ path: {} }} }}", folder.path("cache").display());
    let gateway = start_with(&folder, port, &config);
    assert_eq!(body(&get(gateway.http, "/a")), "answer 1");
    let written = "tier_writes_total{plugin_config=\"stored\",tier=\"disk\",outcome=\"written\"} 1";
    until("it is written", || get(gateway.admin, "/metrics").contains(written));
    // Killed, not stopped.
    gateway.signal("KILL");
    drop(gateway);
    let gateway = start_with(&folder, port, &config);
    let entries = "tier_entries{plugin_config=\"stored\",tier=\"disk\"} 1";
    until("the folder is read", || get(gateway.admin, "/metrics").contains(entries));
    let hit = get(gateway.http, "/a");
    assert!(hit.contains("; hit; ttl=") && hit.contains("; detail=disk\r\n"), "{hit}");
    assert_eq!(body(&hit), "answer 1");
    assert_eq!(purge(&folder, &gateway, TOKEN, &["--all"]), (Some(0), "stored: 1 response removed\n".into()));
    assert_eq!(body(&get(gateway.http, "/a")), "answer 2");
}

#[test]
fn urls_are_fetched_before_anybody_asks() {
    let folder = Folder::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = format!(
        "{{ warm_up: {{ urls: ['http://localhost/a'], through: ['http://{free}'], accept_encoding: '' }} }}"
    );
    let gateway = start_with(&folder, target().port(), &config);
    drop(gateway);
    let text = folder.read("ferrum.yaml").replace("http: '127.0.0.1:0'", &format!("http: '{free}'"));
    folder.write("ferrum.yaml", &text);
    let gateway = Gateway::start(&folder, |command| {
        command.env("FERRUM_ADMIN_TOKEN", TOKEN);
    });
    let fetched = |count| {
        let line = format!("warm_up_total{{plugin_config=\"stored\",outcome=\"fetched\"}} {count}");
        until("it is fetched", || get(gateway.admin, "/metrics").contains(&line));
    };
    fetched(1);
    let hit = get(gateway.http, "/a");
    assert!(hit.contains("; hit; ttl="), "{hit}");
    let mut command = ferrum_edge(&folder);
    command.args(["cache", "warm", "--admin", &gateway.admin.to_string(), "http://localhost/b"]);
    let output = command.env("FERRUM_ADMIN_TOKEN", TOKEN).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "stored: 1 URL is being fetched\n", "{output:?}");
    fetched(2);
    assert!(get(gateway.http, "/b").contains("; hit; ttl="));
}
