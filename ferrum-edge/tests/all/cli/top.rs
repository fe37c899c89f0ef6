//! `top` against a running gateway.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::process::{Folder, Gateway, ferrum_edge, get};

/// Asks until told to stop.
fn busy(address: SocketAddr, path: &'static str, stop: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let stop = stop.clone();
    thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            get(address, path);
        }
    })
}

fn find<'b>(board: &'b Value, table: &str, name: &str) -> &'b Value {
    let lines = board[table].as_array().unwrap();
    lines.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("{name} in {board:#}"))
}

/// Nobody listens at the targets of `broken` and `split`.
const CONFIGURATION: &str = "
gateway: { http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 2 }
upstreams:
  - { id: group, targets: [{ host: 127.0.0.1, port: 1 }] }
  - { id: chosen, targets: [{ host: 127.0.0.1, port: 1 }] }
proxies:
  - { id: good, listen_path: /good, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 9,
      plugins: [{ plugin_config_id: answer }] }
  - { id: broken, listen_path: /broken, backend_scheme: http, upstream_id: group }
  - { id: split, listen_path: /split, backend_scheme: http, upstream_id: group, plugins: [{ plugin_config_id: to }] }
  - { id: shut, listen_path: /shut, backend_scheme: http, upstream_id: group, plugins: [{ plugin_config_id: refuse }] }
  - { id: idle, listen_path: /idle, backend_scheme: http, upstream_id: group }
plugin_configs:
  - { id: answer, plugin_name: request_termination, scope: proxy_group, config: { status_code: 200, body: good } }
  - { id: refuse, plugin_name: request_termination, scope: proxy_group, config: { status_code: 429 } }
  - { id: to, plugin_name: traffic_split, scope: proxy_group, config: { splits: [{ upstream_id: chosen, weight: 1 }] } }
";

#[test]
fn top_prints_rates_by_proxy_upstream_and_target() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", CONFIGURATION);
    let gateway = Gateway::start(&folder, |_| {});
    // Only with a token, as records.
    let mut unknown = ferrum_edge(&folder);
    unknown.args(["top", "--once", "--admin", &gateway.admin.to_string()]);
    unknown.env("FERRUM_ADMIN_TOKEN", "that of another gateway");
    assert_eq!(unknown.output().unwrap().status.code(), Some(1));
    drop(gateway);

    const TOKEN: &str = "a-token-of-enough-bytes";
    let gateway = Gateway::start(&folder, |command| {
        command.env("FERRUM_ADMIN_TOKEN", TOKEN);
    });
    let top = |arguments: &[&str]| {
        let mut command = ferrum_edge(&folder);
        command.env("FERRUM_ADMIN_TOKEN", TOKEN).args(["top", "--admin", &gateway.admin.to_string()]);
        let output = command.args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let stop = Arc::new(AtomicBool::new(false));
    let busy = ["/good", "/broken", "/split", "/shut"].map(|path| busy(gateway.http, path, &stop));
    let json = top(&["--once", "--output", "json", "--interval", "2s"]);
    let board: Value = serde_json::from_str(&json).unwrap();
    let short = top(&["--once", "--json", "--interval", "100ms"]);
    assert!(serde_json::from_str::<Value>(&short).unwrap()["proxies"].is_array(), "{short}");
    let text = top(&["--once", "--interval", "500ms"]);
    stop.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|thread| thread.join().unwrap());

    let good = find(&board, "proxies", "good");
    assert!(good["requests_per_second"].as_f64().unwrap() > 1.0, "{board:#}");
    assert_eq!((&good["errors_per_second"], good["p99"].is_number()), (&json!(0.0), true), "{board:#}");
    for (table, name) in [
        ("proxies", "broken"),
        ("proxies", "split"),
        ("upstreams", "group"),
        ("upstreams", "chosen"),
        ("targets", "127.0.0.1:1"),
    ] {
        let line = find(&board, table, name);
        assert!(line["errors_per_second"].as_f64().unwrap() > 0.0, "{table}: {board:#}");
    }
    let shut = find(&board, "proxies", "shut");
    assert!(shut["client_errors_per_second"].as_f64().unwrap() > 1.0, "{board:#}");
    assert_eq!(shut["errors_per_second"], 0.0, "a refusal is no error of the gateway: {board:#}");
    assert_eq!(
        find(&board, "proxies", "idle")["requests_per_second"],
        0.0,
        "a proxy without traffic has a line"
    );
    assert_eq!(find(&board, "targets", "127.0.0.1:1")["healthy"], true);
    let events = board["events"].as_array().unwrap();
    assert!(!events.is_empty() && events.iter().all(|event| event["proxy.id"] != "good"), "{board:#}");
    assert!(text.starts_with("PROXY") && text.contains("UPSTREAM") && text.contains("\ngood"), "{text}");
    // Without a terminal there is nothing to draw on, and a database has no traffic.
    let output = ferrum_edge(&folder).arg("top").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = ferrum_edge(&folder).args(["top", "--once", "--db-type", "sqlite"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
