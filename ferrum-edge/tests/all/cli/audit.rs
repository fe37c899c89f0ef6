//! The audit of a gateway whose configuration is a file: the audit log.

use std::io::Write;

use serde_json::{Value, json};

use crate::process::{Folder, Gateway, ferrum_edge, get, spec, until};

fn audit(folder: &Folder, code: i32, arguments: &[&str]) -> String {
    let output = ferrum_edge(folder).arg("audit").args(arguments).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said
}

fn entries(folder: &Folder) -> Vec<Value> {
    let text = folder.read("audit.log");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn purge(gateway: &Gateway, token: &str) -> String {
    let mut connection = std::net::TcpStream::connect(gateway.admin).unwrap();
    let path = "/v1/plugins/response_cache/actions/purge";
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n");
    write!(connection, "{head}authorization: Bearer {token}\r\n\r\n").unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut connection, &mut answer).unwrap();
    answer
}

#[test]
fn reloads_and_refused_attempts_are_written_to_the_audit_log() {
    const TOKEN: &str = "a-token-of-enough-bytes";
    let folder = Folder::new();
    let logged = |text: &str| spec(1, text).replace("https: off,", "https: off, audit_log: audit.log,");
    folder.write("ferrum.yaml", &logged("one"));
    let start = || {
        Gateway::start(&folder, |command| {
            command.env("FERRUM_ADMIN_TOKEN", TOKEN);
        })
    };
    let mut gateway = start();
    folder.write("ferrum.yaml", &logged("two"));
    gateway.signal("HUP");
    until("the reload is recorded", || folder.read("audit.log").lines().count() == 1);
    folder.write("ferrum.yaml", "proxies: [{ listen_pat: /x }]");
    gateway.signal("HUP");
    until("the refused reload is recorded", || folder.read("audit.log").lines().count() == 2);
    assert!(purge(&gateway, "another-token-of-enough-bytes").starts_with("HTTP/1.1 401"));
    assert!(purge(&gateway, TOKEN).starts_with("HTTP/1.1 404"), "there is no such plugin in use");
    let found = entries(&folder);
    let told: Vec<_> = found.iter().map(|it| [&it["source"], &it["outcome"], &it["actor"]]).collect();
    assert_eq!(
        json!(told),
        json!([
            ["file", "allowed", "SIGHUP"],
            ["file", "refused", "SIGHUP"],
            ["admin-api", "refused", "unknown"],
            ["admin-api", "refused", "admin token"],
        ])
    );
    let change = &found[0]["changes"][0];
    assert_eq!((&change["kind"], &change["id"]), (&json!("plugin_configs"), &json!("answer")));
    assert_eq!(
        (&change["before"]["config"]["body"], &change["after"]["config"]["body"]),
        (&json!("one"), &json!("two"))
    );
    assert_eq!(found[0]["revision"], 2);
    assert!(found[1]["reason"].as_str().unwrap().contains("listen_path"), "{}", found[1]);
    // Over the API as well, with a token.
    let asked = ferrum_edge(&folder)
        .env("FERRUM_ADMIN_TOKEN", TOKEN)
        .args(["audit", "--outcome", "refused", "--admin", &gateway.admin.to_string()])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(asked.stdout).unwrap().lines().count(), 3);
    assert!(get(gateway.admin, "/v1/audit").starts_with("HTTP/1.1 401"));

    // It goes on after a restart, and after its file was moved away.
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
    folder.write("ferrum.yaml", &logged("three"));
    let gateway = start();
    let before = entries(&folder).len();
    assert!(purge(&gateway, TOKEN).starts_with("HTTP/1.1 404"));
    assert!(
        audit(&folder, 0, &["--file", "audit.log", "--verify"])
            .starts_with(&format!("{} entries", before + 1))
    );
    folder.rename("audit.log", "audit.log.1");
    gateway.signal("USR1");
    until("the log is opened anew", || folder.exists("audit.log"));
    assert!(purge(&gateway, TOKEN).starts_with("HTTP/1.1 404"));
    assert_eq!(entries(&folder)[0]["seq"], before + 2);
    audit(&folder, 0, &["--file", "audit.log", "--verify"]);
    let touched = folder.read("audit.log.1").replacen("SIGHUP", "nobody", 1);
    folder.write("audit.log.1", &touched);
    assert!(audit(&folder, 1, &["--file", "audit.log.1", "--verify"]).contains("broken at entry 1"));
    assert!(
        audit(&folder, 0, &["--file", "audit.log.1", "--source", "file"]).contains("~ plugin_configs/answer")
    );
    let kind = ["--file", "audit.log.1", "--kind"];
    assert!(!audit(&folder, 0, &[&kind[..], &["plugin_configs"]].concat()).is_empty());
    audit(&folder, 2, &[&kind[..], &["proxy"]].concat());
}

#[test]
fn an_audit_log_that_can_t_be_opened_is_a_failed_start() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "one").replace("https: off,", "https: off, audit_log: folder,"));
    std::fs::create_dir(folder.path("folder")).unwrap();
    let output = ferrum_edge(&folder).arg("run").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("audit log"), "{output:?}");
}
