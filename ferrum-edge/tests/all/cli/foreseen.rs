//! `explain` asks the plugins of a running gateway for their verdicts, without counting.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::process::{Folder, Gateway, ferrum_edge, get};

const SPEC: &str = "
gateway: { http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1 }
consumers:
  - { id: ann, username: ann, credentials: { key_auth: [{ key: ann-has-this-key }] } }
  - { id: eve, username: eve, credentials: { key_auth: [{ key: eve-has-this-key }] } }
proxies:
  - id: shop
    listen_path: /
    backend_host: 127.0.0.1
    backend_port: 9
    plugins:
      - { plugin_config_id: addresses }
      - { plugin_config_id: firewall }
      - { plugin_config_id: keys }
      - { plugin_config_id: people }
      - { plugin_config_id: rate }
      - { plugin_config_id: places }
      - { plugin_config_id: daily }
plugin_configs:
  - { id: addresses, plugin_name: ip_restriction, scope: proxy_group, config: { deny: [192.0.2.0/24] } }
  - { id: firewall, plugin_name: waf, scope: proxy_group, config: {} }
  - { id: keys, plugin_name: key_auth, scope: proxy_group }
  - { id: people, plugin_name: access_control, scope: proxy_group, config: { disallowed_consumers: [eve] } }
  - { id: rate, plugin_name: rate_limiting, scope: proxy_group, config: { limit_by: consumer, limits: [{ name: hourly, rate: 2, per: 1h }] } }
  - { id: places, plugin_name: concurrency_limiting, scope: proxy_group, config: { max_concurrent: 3 } }
  - { id: daily, plugin_name: quota, scope: proxy_group, when: { methods: [GET] }, config: { limit_by: consumer, path: ., limits: [{ limit: 5, per: 1d }] } }
";

const TOKEN: &str = "a-token-of-enough-bytes";

/// The whole answer to a request.
fn send(address: SocketAddr, request: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

/// The answer to a question, as JSON.
fn explain(folder: &Folder, arguments: &[&str]) -> Value {
    let output = ferrum_edge(folder)
        .env("FERRUM_ADMIN_TOKEN", TOKEN)
        .arg("explain")
        .args(arguments)
        .args(["--output", "json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"))
}

/// Outcome and reason of each plugin.
fn verdicts(document: &Value) -> Vec<String> {
    let said = |plugin: &Value| {
        let verdict = &plugin["verdict"];
        let (id, outcome) = (plugin["id"].as_str().unwrap(), verdict["outcome"].as_str().unwrap_or("-"));
        format!("{id} {outcome}")
    };
    document["proxy"]["plugins"].as_array().unwrap().iter().map(said).collect()
}

/// A running gateway that is asked.
struct Shop {
    folder: Folder,
    gateway: Gateway,
}

impl Shop {
    fn open() -> Self {
        let folder = Folder::new();
        folder.write("ferrum.yaml", SPEC);
        let gateway = Gateway::start(&folder, |command| {
            command.env("FERRUM_ADMIN_READ_TOKEN", TOKEN);
        });
        Self { folder, gateway }
    }

    fn explain(&self, request: &[&str], more: &[&str]) -> Value {
        let admin = self.gateway.admin.to_string();
        explain(&self.folder, &[request, &["--admin", &admin], more].concat())
    }

    fn ask(&self, more: &[&str]) -> Value {
        self.explain(&["GET", "http://shop.test/?id=1"], more)
    }

    /// What the command prints for people.
    fn text(&self, arguments: &[&str]) -> String {
        let mut command = ferrum_edge(&self.folder);
        command.env("FERRUM_ADMIN_TOKEN", TOKEN).arg("explain").args(arguments);
        let output = command.args(["--admin", &self.gateway.admin.to_string()]).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    fn request(&self, key: &str) -> String {
        let head =
            format!("GET / HTTP/1.1\r\nhost: shop.test\r\nx-api-key: {key}\r\nconnection: close\r\n\r\n");
        send(self.gateway.http, &head)
    }
}

const KEY: [&str; 2] = ["-H", "x-api-key: ann-has-this-key"];

#[test]
fn a_running_gateway_gives_the_verdicts_of_its_plugins_and_counts_nothing() {
    let shop = Shop::open();
    let expected = [
        "addresses passes",
        "firewall passes",
        "keys recognises",
        "people passes",
        "rate passes",
        "daily passes",
        "places passes",
    ];
    let rate = |document: &Value| document["proxy"]["plugins"][4]["verdict"]["why"].clone();
    for _ in 0..5 {
        let all = shop.ask(&KEY);
        assert_eq!(verdicts(&all), expected, "{all}");
        assert_eq!(rate(&all), "`hourly` has 2 of 2 left", "asking counts nothing");
        assert!(all["refusal"].is_null(), "{all}");
    }
    assert!(shop.request("ann-has-this-key").starts_with("HTTP/1.1 502"), "no server is the target");
    assert_eq!(rate(&shop.ask(&KEY)), "`hourly` has 1 of 2 left", "the count is that of the traffic");
    shop.request("ann-has-this-key");
    let limited = shop.ask(&KEY);
    let refusal = limited["refusal"].as_str().unwrap();
    assert!(
        refusal.starts_with("429 rate_limited by rate: the limit `hourly` of 2 has no room"),
        "{refusal}"
    );
    assert_eq!(limited["proxy"]["plugins"][4]["verdict"]["retry_after"].as_str().map(|it| it.len()), Some(4));
    assert!(shop.request("ann-has-this-key").starts_with("HTTP/1.1 429"));
    let address = shop.gateway.admin;
    let effective = send(
        address,
        &format!(
            "GET /v1/proxies/shop/effective HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\r\n"
        ),
    );
    let (_, effective) = effective.split_once("\r\n\r\n").unwrap();
    let effective: Value = serde_json::from_str(effective).unwrap();
    assert_eq!(effective["plugins"][5]["when"], json!({ "methods": ["GET"] }), "{effective}");
}

#[test]
fn the_verdict_that_refuses_ends_the_way_of_the_request() {
    let shop = Shop::open();
    for (more, refusal) in [
        (&["--consumer", "eve"][..], "403 forbidden by people: `eve` is not allowed"),
        (&[], "401 unauthenticated by keys: the credential is missing"),
        (&["-H", "x-api-key: nobody-has-this-key"], "401 unauthenticated by keys: no consumer has this key"),
    ] {
        assert_eq!(shop.ask(more)["refusal"], refusal);
    }
    let denied = shop.ask(&[&KEY[..], &["--client", "192.0.2.7"]].concat());
    assert_eq!(denied["refusal"], "403 address_denied by addresses: 192.0.2.7 is not allowed", "{denied}");
    assert_eq!(verdicts(&denied)[1], "firewall -", "the request ends before");
    let attack = shop.text(&["GET", "http://shop.test/?id=1%27%20or%20%271%27=%271"]);
    assert!(attack.contains("verdict:   waf (firewall) refuses 400 waf_rejected: rules: score "), "{attack}");
    let posted = shop.explain(&["POST", "http://shop.test/"], &["-d", "q=<script>alert(1)</script>"]);
    let refusal = posted["refusal"].as_str().unwrap();
    assert!(refusal.starts_with("400 waf_rejected by firewall: rules: "), "the body is inspected: {refusal}");
    let unknown = shop.text(&["GET", "/", "--consumer", "nobody"]);
    assert!(unknown.contains("there is no consumer `nobody`"), "{unknown}");
    // What an operator asks leaves no trace in metrics of the plugins.
    let metrics = get(shop.gateway.admin, "/metrics");
    let count = |line: &str| metrics.lines().filter(|it| it.contains(line)).collect::<Vec<_>>();
    let refused = count("ferrum_waf_requests_total{plugin_config=\"firewall\",outcome=\"refused\"}");
    assert!(refused.iter().all(|line| line.ends_with(" 0")), "{refused:?}");
}
