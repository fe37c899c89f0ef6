//! The command line, against a gateway and against its database.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use sqlx::{Connection, SqliteConnection};

use crate::client::Client;
use crate::database::crash::start;
use crate::database::place::{ADMIN, READ};
use crate::process::{Folder, Gateway, ferrum_edge, until};

/// What a command said, and how it ended.
struct CommandOutput {
    code: i32,
    out: String,
    err: String,
}

fn run(command: &mut Command) -> CommandOutput {
    let output = command.env("FERRUM_ADMIN_TOKEN", ADMIN).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandOutput { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// Whom the commands ask.
#[derive(Clone)]
struct Whom(Vec<String>);

impl Whom {
    fn says(&self, folder: &Folder, arguments: &[&str]) -> CommandOutput {
        run(ferrum_edge(folder).args(arguments).args(&self.0))
    }

    /// Says what a command that ends like this printed.
    fn ends(&self, folder: &Folder, code: i32, arguments: &[&str]) -> String {
        let said = self.says(folder, arguments);
        assert_eq!(said.code, code, "{arguments:?}: {}{}", said.out, said.err);
        said.out + said.err.as_str()
    }
}

fn at_gateway(gateway: &Gateway) -> Whom {
    Whom(vec!["--admin".to_owned(), gateway.admin.to_string()])
}

fn at_store(folder: &Folder) -> Whom {
    Whom(vec!["--db-url".to_owned(), format!("sqlite:{}", folder.path("f.db").display())])
}

/// Everything that is easily lost on the way through a file.
const CONFIG: &str = r#"
version: "1"
gateway: { workers: 1 }
upstreams:
  - { id: group, name: "no: ${file} # comment", targets: [{ host: 127.0.0.1, port: 9, weight: 7 }] }
plugin_configs:
  - { id: key, plugin_name: key_auth, proxy_id: a, config: { key_location: "header:X-API-Key" } }
proxies:
  - { id: a, listen_path: "~^/a/[0-9]{1,3}$", hosts: ["1e3.example", "true"], backend_scheme: http, upstream_id: group }
  - { id: "0123", name: "on", listen_path: /b, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 9 }
consumers:
  - { id: ann, username: "null", custom_id: "0x10", credentials: { key_auth: [{ key: "1.0" }, { key: "$${env:HOME}" }] } }
"#;

fn round_trip(folder: &Folder, whom: &Whom) {
    folder.write("config.yaml", CONFIG);
    let whom = |code, arguments: &[&str]| whom.ends(folder, code, arguments);
    let found = whom(4, &["diff", "config.yaml"]);
    assert!(found.contains("+ proxies/a\n") && found.contains("+ consumers/ann\n"), "{found}");
    assert!(whom(0, &["apply", "config.yaml", "--dry-run"]).contains("nothing was written"));
    whom(4, &["diff", "config.yaml"]);
    assert!(whom(0, &["apply", "config.yaml", "--note", "a & b=c"]).contains("5 created"));
    assert!(whom(0, &["apply", "config.yaml"]).contains("0 created, 0 updated, 0 deleted, 5 unchanged"));
    whom(0, &["diff", "config.yaml"]);
    for format in ["yaml", "json"] {
        let name = format!("dump.{format}");
        folder.write(&name, "");
        std::fs::set_permissions(folder.path(&name), std::fs::Permissions::from_mode(0o644)).unwrap();
        whom(0, &["dump", "--format", format, "--output", &name]);
        let mode = folder.path(&name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it holds hashes of credentials");
        assert!(!folder.read(&name).contains("env:HOME"), "keys are hashed");
        assert_eq!(whom(0, &["diff", &name]), "", "what was dumped is no difference");
    }
    folder.write(
        "less.yaml",
        "proxies:\n  - { id: b, listen_path: /c, backend_scheme: http, backend_host: h, backend_port: 1 }\n",
    );
    let found = whom(4, &["diff", "less.yaml"]);
    assert!(found.contains("+ proxies/b\n") && found.contains("- proxies/a\n"), "{found}");
    assert!(whom(0, &["sync", "less.yaml"]).contains("1 created, 0 updated, 0 deleted"));
    assert!(
        whom(0, &["sync", "less.yaml", "--prune"]).contains("0 created, 0 updated, 5 deleted, 1 unchanged")
    );
    whom(0, &["diff", "less.yaml"]);
    assert!(whom(0, &["sync", "dump.yaml", "--prune"]).contains("5 created, 0 updated, 1 deleted"));
    whom(0, &["diff", "config.yaml"]);
    let status = whom(0, &["status"]);
    assert!(status.contains("2, 0 closed") && status.contains("answers"), "{status}");
    assert!(whom(0, &["status", "--output", "json"]).starts_with('{'));
}

fn refusals(folder: &Folder, whom: &Whom) {
    folder.write("bad.yaml", "proxies:\n  - id: x\n    listen_path: /x\n    backend_host: h\n    backend_port: 99999\n  - id: y\n    lisen_path: /y\n");
    folder.write("open.yaml", "proxies: [\n");
    folder.write(
        "nowhere.yaml",
        "proxies:\n  - id: x\n    listen_path: /x\n    backend_scheme: http\n    upstream_id: nowhere\n",
    );
    for command in ["diff", "apply", "sync"] {
        let told = whom.ends(folder, 3, &[command, "bad.yaml"]);
        assert!(
            told.contains("bad.yaml:5: proxies[0].backend_port")
                && told.contains("bad.yaml:7: proxies[1].lisen_path"),
            "{told}"
        );
        assert!(whom.ends(folder, 3, &[command, "open.yaml"]).contains("open.yaml:"));
        let told = whom.ends(folder, 3, &[command, "nowhere.yaml"]);
        assert!(told.contains("nowhere.yaml:5: proxies[0].upstream_id"), "{told}");
        assert!(whom.ends(folder, 3, &[command, "missing.yaml"]).contains("missing.yaml"));
        whom.ends(folder, 2, &[command]);
    }
}

#[test]
fn files_go_to_a_gateway_and_come_back_the_same() {
    let folder = Folder::new();
    let gateway = start(&folder);
    let whom = at_gateway(&gateway);
    round_trip(&folder, &whom);
    refusals(&folder, &whom);
    assert_eq!(Client::new(gateway.http).get("/b", None).status, 502, "it is served");
    // A caller without the right gets the code of a failure, not that of wrong usage.
    let stranger = ferrum_edge(&folder)
        .args(["apply", "less.yaml"])
        .args(&whom.0)
        .env("FERRUM_ADMIN_TOKEN", READ)
        .output()
        .unwrap();
    assert_eq!(stranger.status.code(), Some(1));
    assert!(!gateway.log().contains(ADMIN), "no secret is logged");
    drop(gateway);
    let told = whom.ends(&folder, 1, &["status"]);
    assert!(told.contains("No gateway answers"), "{told}");
    assert_eq!(whom.says(&folder, &["apply", "less.yaml"]).code, 1);
}

#[test]
fn files_go_to_a_database_and_its_gateway_follows() {
    let folder = Folder::new();
    let whom = at_store(&folder);
    for command in [
        &["dump"][..],
        &["status"],
        &["diff", "config.yaml"],
        &["apply", "config.yaml", "--dry-run"],
        &["sync", "config.yaml", "--prune", "--dry-run"],
    ] {
        folder.write("config.yaml", CONFIG);
        assert!(whom.ends(&folder, 1, command).contains("There is no database"));
        assert!(!folder.exists("f.db"), "{command:?} writes nothing");
    }
    assert!(
        whom.ends(&folder, 0, &["migrate", "--dry-run"]).contains("to be done") || !folder.exists("f.db")
    );
    assert!(whom.ends(&folder, 0, &["migrate"]).contains("done"));
    assert!(whom.ends(&folder, 0, &["migrate"]).contains("as this program needs it"));
    round_trip(&folder, &whom);
    refusals(&folder, &whom);
    let gateway = start(&folder);
    let database = format!("\"database\":\"{}\"", folder.path("f.db").display());
    assert!(gateway.log().contains(&database), "the log names it: {}", gateway.log());
    assert_eq!(Client::new(gateway.http).get("/b", None).status, 502);
    whom.ends(&folder, 0, &["sync", "less.yaml", "--prune"]);
    crate::client::until("the gateway follows", || Client::new(gateway.http).get("/b", None).status == 404);
    assert_eq!(Whom(vec!["--db-url".to_owned(), "ftp://x".to_owned()]).says(&folder, &["migrate"]).code, 2);
}

/// The store keeps what was written; that a command reads it as numbers is no difference.
#[test]
fn units_are_no_difference() {
    let folder = Folder::new();
    let gateway = start(&folder);
    let whom = at_gateway(&gateway);
    let proxy = serde_json::json!({
        "listen_path": "/u", "backend_scheme": "http", "backend_host": "127.0.0.1", "backend_port": 9,
        "total_timeout": "1m", "max_request_body": "1MiB",
    });
    let mut client = Client::new(gateway.admin);
    let token = format!("authorization: Bearer {ADMIN}\r\n");
    let created = client.ask("PUT", "/v1/proxies/u", &token, proxy.to_string().as_bytes());
    assert_eq!(created.status, 201, "{created:?}");
    whom.ends(&folder, 0, &["dump", "-o", "dump.yaml"]);
    assert!(folder.read("dump.yaml").contains("1MiB"));
    assert_eq!(whom.ends(&folder, 0, &["diff", "dump.yaml"]), "");
    assert!(
        whom.ends(&folder, 0, &["apply", "dump.yaml"])
            .contains("0 created, 0 updated, 0 deleted, 1 unchanged")
    );
    let other = folder.read("dump.yaml").replace("1MiB", "2MiB");
    folder.write("other.yaml", &other);
    assert!(whom.ends(&folder, 4, &["diff", "other.yaml"]).contains("~ proxies/u"));
}

#[test]
fn the_audit_names_who_works_on_a_database_itself_and_is_verified() {
    let folder = Folder::new();
    folder.write("config.yaml", CONFIG);
    let store = at_store(&folder);
    store.ends(&folder, 0, &["migrate"]);
    store.ends(&folder, 0, &["apply", "config.yaml", "--note", "the first"]);
    let listed = store.ends(&folder, 0, &["audit", "--source", "command-line"]);
    let lines: Vec<_> = listed.lines().collect();
    assert!(
        lines[0].contains("allowed POST /v1/batch by ") && lines[0].ends_with("note: the first"),
        "{listed}"
    );
    assert!(lines[0].contains("(uid ") || lines[0].contains("by uid "), "{listed}");
    assert!(lines.contains(&"    + consumers/ann") && listed.contains("allowed migrate by "), "{listed}");
    let verified = store.ends(&folder, 0, &["audit", "--verify"]);
    let newest = verified.trim().rsplit(' ').next().unwrap().to_owned();
    assert!(verified.starts_with("2 entries, 1 to 2:"), "{verified}");
    store.ends(&folder, 0, &["audit", "--verify", "--expect", &newest]);
    let other = format!("2:{}", "0".repeat(64));
    assert!(
        store.ends(&folder, 1, &["audit", "--verify", "--expect", &other]).contains("not the expected one")
    );
    let later = newest.replacen("2:", "9:", 1);
    assert!(store.ends(&folder, 1, &["audit", "--verify", "--expect", &later]).contains("is not there"));
    store.ends(&folder, 2, &["audit", "--verify", "--expect", "2:short"]);
    let json = store.ends(&folder, 0, &["audit", "--output", "json", "-n", "1"]);
    let entry: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!((&entry["seq"], &entry["note"]), (&serde_json::json!(2), &serde_json::json!("the first")));
}

/// Who only looks or checks leaves an older schema as it is.
#[test]
fn what_changes_nothing_migrates_nothing() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", CONFIG);
    let store = at_store(&folder);
    store.ends(&folder, 0, &["migrate"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let query = |sql: &'static str| {
        runtime.block_on(async {
            let url = format!("sqlite:{}", folder.path("f.db").display());
            let mut connection = SqliteConnection::connect(&url).await.unwrap();
            let number: i64 = sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap();
            connection.close().await.unwrap();
            number
        })
    };
    query("DELETE FROM ferrum_migrations WHERE version > 1 RETURNING version");
    for command in [
        ["apply", "--dry-run", "ferrum.yaml"].as_slice(),
        &["diff", "ferrum.yaml"],
        &["status"],
        &["sync", "--dry-run", "ferrum.yaml"],
    ] {
        let said = store.ends(&folder, 1, command);
        assert!(said.contains("older schema") && said.contains("ferrum-edge migrate"), "{command:?}: {said}");
        assert_eq!(query("SELECT MAX(version) FROM ferrum_migrations"), 1, "{command:?}");
    }
}

#[test]
fn revisions_are_listed_and_gone_back_to() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", CONFIG);
    let store = at_store(&folder);
    store.ends(&folder, 0, &["migrate"]);
    store.ends(&folder, 0, &["apply", "ferrum.yaml"]);
    folder.write(
        "more.yaml",
        "proxies: [{id: more, listen_path: /more, backend_host: h.test, backend_port: 1}]",
    );
    store.ends(&folder, 0, &["apply", "more.yaml"]);
    let listed = store.ends(&folder, 0, &["revisions"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(
        store.ends(&folder, 0, &["revisions", "2"]).contains("+ proxies/more"),
        "the object that it made"
    );
    let would = store.ends(&folder, 0, &["rollback", "1", "--dry-run"]);
    assert!(would.contains("would become that of revision 1") && would.contains("1 deleted"), "{would}");
    assert_eq!(store.ends(&folder, 0, &["revisions"]), listed, "nothing was changed");
    store.ends(&folder, 0, &["rollback", "1", "--note", "too early"]);
    let listed = store.ends(&folder, 0, &["revisions", "-n", "1"]);
    assert!(listed.trim_start().starts_with("3 ") && listed.contains("too early"), "{listed}");
    let back = store.ends(&folder, 0, &["rollback", "2", "--dry-run"]);
    assert!(back.contains("1 created, 0 updated, 0 deleted"), "{back}");
    let json = store.ends(&folder, 0, &["rollback", "2", "--dry-run", "--output", "json"]);
    assert!(json.contains(r#""action":"create""#), "{json}");
    store.ends(&folder, 1, &["rollback", "77"]);
    store.ends(&folder, 1, &["revisions", "77"]);
    // Of an object that stays, the fields are shown before and after.
    store.ends(&folder, 0, &["rollback", "2"]);
    folder.write(
        "more.yaml",
        "proxies: [{id: more, listen_path: /less, backend_host: h.test, backend_port: 1}]",
    );
    store.ends(&folder, 0, &["apply", "more.yaml"]);
    let changed = store.ends(&folder, 0, &["revisions", "5"]);
    assert!(changed.contains("~ proxies/more\n    listen_path: \"/more\" -> \"/less\"\n"), "{changed}");
    let back = store.ends(&folder, 0, &["rollback", "4", "--dry-run"]);
    assert!(back.contains("~ proxies/more\n    listen_path: \"/less\" -> \"/more\"\n"), "{back}");
}

#[cfg(feature = "console")]
#[test]
fn users_are_administered_by_commands() {
    let folder = Folder::new();
    let store = at_store(&folder);
    store.ends(&folder, 0, &["migrate"]);
    assert!(store.ends(&folder, 0, &["users", "list"]).contains("There is no user"));
    let password = store.ends(&folder, 0, &["users", "add", "ann", "--role", "admin"]);
    assert_eq!(password.trim().len(), 20, "{password}");
    let told = store.ends(&folder, 1, &["users", "remove", "ann"]);
    assert!(told.contains("the last user with the role admin"), "{told}");
    store.ends(&folder, 0, &["users", "add", "bob", "--role", "admin"]);
    store.ends(&folder, 0, &["users", "role", "ann", "--role", "read"]);
    let again = store.ends(&folder, 0, &["users", "reset-password", "ann"]);
    assert_ne!(again, password);
    let list = store.ends(&folder, 0, &["users", "list"]);
    assert!(list.contains("ann") && list.contains("read") && list.contains("to be changed"), "{list}");
    let file = folder.path("grants.yaml");
    std::fs::write(&file, "- objects: [team-a-*]\n  hosts: ['*.a.example']\n  ports: [5432, 10000-10009]\n")
        .unwrap();
    let file = file.to_str().unwrap();
    store.ends(&folder, 0, &["users", "grants", "ann", file]);
    assert!(store.ends(&folder, 0, &["users", "list"]).contains(" team-a-*\n"));
    let told = store.ends(&folder, 1, &["users", "role", "ann", "--role", "admin"]);
    assert!(told.contains("the role admin is for everything"), "{told}");
    store.ends(&folder, 0, &["users", "grants", "ann", "--none"]);
    assert!(store.ends(&folder, 0, &["users", "list"]).contains("everything\n"));
    store.ends(&folder, 0, &["users", "role", "ann", "--role", "write", "--grants", file]);
    assert!(store.ends(&folder, 0, &["users", "list"]).contains(" team-a-*\n"));
    for (text, why) in [("[", "grants.yaml"), ("- objects: []", "names no object")] {
        std::fs::write(file, text).unwrap();
        let code = if text == "[" { 2 } else { 1 };
        let told = store.ends(&folder, code, &["users", "grants", "ann", file]);
        assert!(told.contains(why), "{text}: {told}");
    }
    store.ends(&folder, 2, &["users", "grants", "ann"]);
    store.ends(&folder, 0, &["users", "remove", "ann"]);
    store.ends(&folder, 1, &["users", "remove", "ann"]);
    let audit = store.ends(&folder, 0, &["audit", "--kind", "users"]);
    assert!(audit.contains("DELETE /v1/users/ann") && !audit.contains(password.trim()), "{audit}");
}

#[test]
fn a_pipeline_sees_that_its_change_waits() {
    let folder = Folder::new();
    folder.write(
        "ferrum.yaml",
        "gateway: { http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1, admin_approval: { roles: [admin] } }\n",
    );
    folder.write("config.yaml", CONFIG);
    let url = format!("sqlite:{}", folder.path("f.db").display());
    let gateway = Gateway::start(&folder, |command| {
        command.args(["--mode", "database", "--db-url", &url]).env("FERRUM_ADMIN_TOKEN", ADMIN);
    });
    let pending = || {
        let text = Client::new(gateway.admin).get("/metrics", None).text;
        let sample = text.lines().find_map(|line| line.strip_prefix("ferrum_admin_changes_pending "));
        sample.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let whom = at_gateway(&gateway);
    assert!(whom.ends(&folder, 6, &["apply", "config.yaml"]).contains("change 1 waits"));
    assert!(whom.ends(&folder, 6, &["sync", "--prune", "config.yaml"]).contains("change 2 waits"));
    until("both are counted", || pending() == "2");
    assert!(whom.ends(&folder, 0, &["status"]).contains("changes:      2 pending"));
    // What is only checked does not wait.
    whom.ends(&folder, 0, &["apply", "config.yaml", "--dry-run"]);
    whom.ends(&folder, 4, &["apply", "config.yaml", "--plan"]);
    whom.ends(&folder, 0, &["changes", "withdraw", "2"]);
    whom.ends(&folder, 0, &["changes", "approve", "1", "--emergency", "--note", "nobody else is here"]);
    until("none waits", || pending() == "0");
    assert!(!whom.ends(&folder, 0, &["status"]).contains("changes:"));
    for output in ["text", "json"] {
        whom.ends(&folder, 6, &["rollback", "0", "--output", output]);
    }
    until("the rollbacks wait", || pending() == "2");
}
