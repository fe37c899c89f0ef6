//! `check` and the gateway reject quotas that they cannot store, and warn about expired ones.

use crate::process::{Folder, Gateway, ferrum_edge, get, until};

fn spec(plugin: &str, config: &str) -> String {
    format!(
        "
gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1 }}
proxies:
  - {{ id: a, listen_path: /, backend_host: 127.0.0.1, backend_port: 9 }}
plugin_configs:
  - {{ id: q, plugin_name: {plugin}, scope: proxy, proxy_id: a, config: {config} }}
"
    )
}

#[test]
fn a_folder_that_is_not_there_is_refused() {
    let folder = Folder::new();
    for (plugin, config) in [
        ("traffic_quota", "{ limit: 1GB, path: gone/usage }"),
        ("quota", "{ limits: [{ limit: 10, per: day }], path: gone/usage }"),
    ] {
        folder.write("ferrum.yaml", &spec(plugin, config));
        let check = || ferrum_edge(&folder).arg("check").output().unwrap();
        let output = check();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.code() == Some(3) && said.contains("there is no folder"), "{plugin}: {said}");
        std::fs::create_dir(folder.path("gone")).unwrap();
        let output = check();
        assert_eq!(output.status.code(), Some(0), "{plugin}: {}", String::from_utf8_lossy(&output.stdout));
        std::fs::remove_dir(folder.path("gone")).unwrap();
    }
}

#[test]
fn a_folder_is_made_where_the_one_above_is() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec("traffic_quota", "{ limit: 1GB, path: usage, save_interval: 100ms }"));
    let gateway = Gateway::start(&folder, |_| {});
    assert!(get(gateway.http, "/").starts_with("HTTP/1.1 502"));
    until("usage is kept", || folder.exists("usage/q.traffic"));
}

#[test]
fn a_quota_whose_time_is_over_is_told() {
    let folder = Folder::new();
    folder.write(
        "ferrum.yaml",
        &spec("traffic_quota", "{ limit: 1GB, path: usage, save_interval: 100ms, expires: '2020-01-31' }"),
    );
    let gateway = Gateway::start(&folder, |_| {});
    until("it is logged", || gateway.log().contains("`expires` of a traffic_quota is over"));
    let answer = get(gateway.http, "/");
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("quota_expired"), "{answer}");
}
