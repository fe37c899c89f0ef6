//! The commands `init`, `consumers` and `acme`.

use crate::process::{Folder, Gateway, ferrum_edge, get};

fn ran(folder: &Folder, arguments: &[&str]) -> (Option<i32>, String) {
    let output = ferrum_edge(folder).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn a_first_configuration_is_written_once_and_serves() {
    let folder = Folder::new();
    let (code, said) = ran(&folder, &["init", "--target", "http://127.0.0.1:9/v2/", "--host", "shop.test"]);
    assert!(code == Some(0) && said.contains("ferrum-edge run ferrum.yaml"), "{said}");
    let text = folder.read("ferrum.yaml");
    assert!(text.contains("hosts: [\"shop.test\"]") && text.contains("backend_path: \"/v2\""), "{text}");
    let (code, said) = ran(&folder, &["init", "--target", "http://127.0.0.1:9"]);
    assert!(code == Some(1) && said.contains("is there already"), "{said}");
    assert_eq!(folder.read("ferrum.yaml"), text);
    // Without a terminal, the command does not ask.
    let (code, _) = ran(&folder, &["init", "other.yaml"]);
    assert!(code == Some(0) && folder.read("other.yaml").contains("backend_port: 3000"));
    for bad in
        ["ftp://a", "nonsense", "http://", "http://a b/", "http://a:99999", "http://u:p@a", "http://a?q=1"]
    {
        assert_eq!(ran(&folder, &["init", "bad.yaml", "--target", bad]).0, Some(2), "{bad}");
    }
    assert!(!folder.exists("bad.yaml"));
    let served = text.replace("http: 0.0.0.0:8000", "http: 127.0.0.1:0\n  https: off\n  admin: 127.0.0.1:0");
    folder.write("ferrum.yaml", &served.replace("hosts: [\"shop.test\"]", ""));
    let gateway = Gateway::start(&folder, |_| {});
    assert!(get(gateway.http, "/").starts_with("HTTP/1.1 502"));
}

#[test]
fn consumers_are_listed_without_their_secrets() {
    let folder = Folder::new();
    folder.write(
        "ferrum.yaml",
        "
gateway: { http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1 }
proxies: []
consumers:
  - { id: ann, username: ann.a, acl_groups: [gold], credentials: { key_auth: [the-key-of-ann, another-key-of-ann] } }
  - { id: bob, username: bob.b }
",
    );
    let _gateway = Gateway::start(&folder, |_| {});
    let (code, said) = ran(&folder, &["consumers"]);
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<_> =
        said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines,
        ["ann ann.a credentials: key_auth (2) groups: gold", "bob bob.b credentials: – groups: –"]
    );
    let (_, json) = ran(&folder, &["consumers", "bob", "--output", "json"]);
    assert!(json.starts_with("{") && json.lines().count() == 1 && json.contains("bob.b"), "{json}");
    let (_, all) = ran(&folder, &["consumers", "--output", "json"]);
    assert!(!all.contains("key-of-ann"), "{all}");
}

#[test]
fn only_certificates_of_a_ca_are_renewed() {
    let folder = Folder::new();
    folder.write(
        "ferrum.yaml",
        "gateway: { http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off }\nproxies: []\n",
    );
    let _gateway = Gateway::start(&folder, |_| {});
    assert_eq!(ran(&folder, &["acme", "list"]), (Some(0), String::new()));
    let (code, said) = ran(&folder, &["acme", "renew", "shop.test"]);
    assert!(code == Some(1) && said.contains("no certificate with the name `shop.test`"), "{said}");
}
