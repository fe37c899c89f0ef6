//! Recorded requests: `logs` without `-f`, and `explain` with the verdicts of plugins and from a record.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::process::{Folder, Gateway, ferrum_edge, get, until};

const SPEC: &str = "
gateway: { http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1, access_log: { path: access.log } }
proxies:
  - { id: shop, listen_path: /shop, backend_host: 127.0.0.1, backend_port: 9, backend_path: /v2 }
  - { id: closed, listen_path: /closed, backend_host: 127.0.0.1, backend_port: 9 }
consumers:
  - { id: ann, username: ann, credentials: { key_auth: the-key-of-ann } }
plugin_configs:
  - { id: key, plugin_name: key_auth, scope: proxy, proxy_id: shop, when: { methods: [GET, POST] }, config: {} }
  - { id: firewall, plugin_name: waf, scope: proxy, proxy_id: shop, config: { mode: block } }
  - { id: ids, plugin_name: correlation_id, scope: global, config: { header_name: x-request-id } }
  - { id: over, plugin_name: request_termination, scope: proxy, proxy_id: closed, config: { status_code: 503, message: closed } }
";

fn ran(folder: &Folder, arguments: &[&str]) -> (Option<i32>, String) {
    let output = ferrum_edge(folder).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn an_explanation_has_verdicts_and_what_the_target_gets() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", SPEC);
    let explain = |arguments: &[&str]| ran(&folder, &[&["explain"], arguments].concat()).1;
    let key = ["-H", "x-api-key: the-key-of-ann"];
    let good = explain(&[&["GET", "http://a.test/shop/cart?n=1"][..], &key].concat());
    for line in [
        "outcome:   200, if the target answers 200\n",
        "caller:    ann\n",
        "sent:      GET /v2/cart?n=1\n",
        " host: 127.0.0.1:9\n",
        " x-forwarded-host: a.test\n",
    ] {
        assert!(good.contains(line), "{line}: {good}");
    }
    let refused = explain(&["GET", "http://a.test/shop"]);
    assert!(refused.contains("outcome:   401 ") && refused.contains(", by key"), "{refused}");
    assert!(!refused.contains("sent:"), "{refused}");
    let attack = explain(
        &[&["GET", "http://a.test/shop?q=1%27%20union%20select%20password%20from%20users--"][..], &key]
            .concat(),
    );
    assert!(attack.contains("by firewall") && attack.contains("noted:     waf."), "{attack}");
    let closed = explain(&["GET", "http://a.test/closed"]);
    assert!(
        closed.contains("answered:  by request_termination") && !closed.contains("upstream:"),
        "{closed}"
    );
}

#[test]
fn the_past_is_filtered_and_a_recorded_request_explained() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", SPEC);
    let gateway = Gateway::start(&folder, |_| {});
    let ask = |path: &str, head: &str| {
        let mut connection = TcpStream::connect(gateway.http).unwrap();
        write!(connection, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{head}\r\n")
            .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    };
    get(gateway.http, "/shop/none");
    let answer = ask("/shop/ann", "x-api-key: the-key-of-ann\r\n");
    let id = answer.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap().to_owned();
    for n in 0..20 {
        get(gateway.http, &format!("/nowhere/{n}"));
    }
    until("all are recorded", || folder.read("access.log").lines().count() == 22);
    let logs = |arguments: &[&str]| {
        let (code, said) = ran(&folder, &[&["logs", "--output", "json"], arguments].concat());
        assert_eq!(code, Some(0), "{said}");
        let records = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.map(|record| record["url.path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(logs(&["-n", "3"]), ["/nowhere/17", "/nowhere/18", "/nowhere/19"]);
    assert_eq!(logs(&[]).len(), 10);
    assert_eq!(logs(&["--consumer", "ann"]), ["/shop/ann"]);
    assert_eq!(logs(&["--status", "401"]), ["/shop/none"]);
    assert_eq!(logs(&["--path", "/shop", "--client", "127.0.0.0/8"]), ["/shop/none", "/shop/ann"]);
    assert!(logs(&["--path", "/shop", "--client", "10.0.0.1"]).is_empty());
    assert_eq!(logs(&["--request-id", &id]), ["/shop/ann"]);
    assert_eq!(ran(&folder, &["logs", "--request-id", "unknown"]).0, Some(1));
    assert!(ran(&folder, &["logs", "--client", "nobody"]).1.contains("neither an address nor a block"));
    let (_, line) = ran(&folder, &["logs", "--consumer", "ann"]);
    assert!(line.contains(" 127.0.0.1 ann shop ") && line.contains("connect_failed"), "{line}");
    let (code, said) = ran(&folder, &["explain", "--request-id", &id]);
    assert_eq!(code, Some(0), "the record names the caller, whose key it does not keep: {said}");
    assert!(said.contains("GET /shop/ann for host localhost") && said.contains("proxy:     shop"), "{said}");
    assert_eq!(ran(&folder, &["explain", "--request-id", "unknown"]).0, Some(1));
    let metrics = get(gateway.admin, "/metrics");
    let sample = "ferrum_consumer_requests_total{consumer=\"ann\",http_response_status_class=\"5xx\"} 1\n";
    assert!(metrics.contains(sample), "{metrics}");
}

#[test]
fn without_a_file_of_records_it_is_said_where_they_go() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &SPEC.replace(", access_log: { path: access.log }", ""));
    let _gateway = Gateway::start(&folder, |_| {});
    let (code, said) = ran(&folder, &["logs"]);
    assert!(code == Some(1) && said.contains("gateway.access_log.path"), "{code:?} {said}");
}
