//! Commands find a gateway on this machine and its token, in every mode.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::process::{Folder, Gateway, ferrum_edge, get, spec};

const TOKEN: &str = "a token of the tests, long enough";

fn ran(folder: &Folder, arguments: &[&str], adjust: impl FnOnce(&mut Command)) -> Output {
    let mut command = ferrum_edge(folder);
    adjust(command.args(arguments));
    command.output().unwrap()
}

fn set(command: &mut Command, name: &str, value: impl AsRef<std::ffi::OsStr>) {
    command.env(name, value);
}

fn succeeds(output: &Output) -> bool {
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    true
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A token that others could have written or can read is nobody's.
#[test]
fn a_token_file_that_others_have_access_to_is_not_used() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "answer"));
    drop(Gateway::start(&folder, |_| {}));
    let file = folder.path("state/admin.token");
    for (mode, is_used) in [(0o600, true), (0o644, false), (0o620, false)] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let gateway = Gateway::start(&folder, |_| {});
        assert_eq!(ran(&folder, &["dump"], |_| {}).status.success(), is_used, "{mode:o}");
        assert_eq!(
            gateway.log().contains("other users have access to it"),
            !is_used,
            "{mode:o}: {}",
            gateway.log()
        );
    }
}

/// Anybody may listen on a port of this machine, also on the one of a gateway that is away.
#[test]
fn a_kept_token_is_for_the_gateway_that_keeps_it() {
    use std::io::{BufRead, BufReader, Write};
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "answer"));
    drop(Gateway::start(&folder, |_| {}));
    assert!(folder.exists("state/admin.token"));
    let stranger = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = stranger.local_addr().unwrap().to_string();
    let hearing = std::thread::spawn(move || {
        let (mut connection, _) = stranger.accept().unwrap();
        let lines = BufReader::new(connection.try_clone().unwrap()).lines();
        let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        connection.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").unwrap();
        head.join("\n").to_ascii_lowercase()
    });
    assert!(!ran(&folder, &["dump", "--admin", &address], |_| {}).status.success());
    let head = hearing.join().unwrap();
    assert!(head.starts_with("get /v1/") && !head.contains("authorization"), "{head}");
}

/// `dump` reads the objects, for which every gateway requires a token.
#[test]
fn a_gateway_with_a_file_keeps_a_token_that_commands_find() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "answer"));
    let gateway = Gateway::start(&folder, |_| {});
    let mode = std::fs::metadata(folder.path("state/admin.token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(get(gateway.admin, "/v1/proxies").starts_with("HTTP/1.1 401"));
    let dumped = ran(&folder, &["dump"], |_| {});
    assert!(succeeds(&dumped) && String::from_utf8_lossy(&dumped.stdout).contains("request_termination"));
    // Also by its address, in any spelling.
    let address = format!("http://localhost:{}/", gateway.admin.port());
    assert!(succeeds(&ran(&folder, &["dump"], |command| set(command, "FERRUM_ADMIN_URL", &address))));
    // In another folder, by the only running gateway.
    let other = Folder::new();
    let state = folder.path("state");
    assert!(succeeds(&ran(&other, &["dump"], |command| set(command, "FERRUM_STATE", &state))));
    let again = folder.read("state/admin.token");
    drop(gateway);
    let _second = Gateway::start(&folder, |_| {});
    assert_eq!(folder.read("state/admin.token"), again, "the token outlives the gateway");
    assert!(succeeds(&ran(&folder, &["dump"], |_| {})));
}

#[test]
fn a_gateway_that_was_killed_is_not_asked() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "answer"));
    let mut killed = Gateway::start(&folder, |_| {});
    killed.signal("KILL");
    killed.wait();
    let running = || std::fs::read_dir(folder.path("state/running")).unwrap().count();
    assert_eq!(running(), 1, "it had no time to remove its file");
    let _gateway = Gateway::start(&folder, |_| {});
    assert!(succeeds(&ran(&folder, &["status"], |_| {})));
    assert_eq!(running(), 1);
}

#[test]
fn of_several_gateways_one_has_to_be_named() {
    let (folder, second) = (Folder::new(), Folder::new());
    for folder in [&folder, &second] {
        folder.write("ferrum.yaml", &spec(1, "answer"));
    }
    let state = folder.path("state");
    let one = Gateway::start(&folder, |_| {});
    let two = Gateway::start(&second, |command| {
        command.env("FERRUM_STATE", &state);
    });
    let elsewhere = Folder::new();
    let asked = |folder: &Folder, arguments: &[&str]| {
        ran(folder, arguments, |command| set(command, "FERRUM_STATE", &state))
    };
    let unclear = asked(&elsewhere, &["status"]);
    assert_eq!(unclear.status.code(), Some(2));
    for gateway in [&one, &two] {
        assert!(
            stderr_of(&unclear).contains(&format!("--admin {} ", gateway.admin)),
            "{}",
            stderr_of(&unclear)
        );
    }
    let pid = |output: &Output| {
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        status["pid"].as_u64()
    };
    // In the folder of a configuration, a command uses the gateway that runs it.
    for (folder, gateway) in [(&folder, &one), (&second, &two)] {
        let status = asked(folder, &["status", "--output", "json"]);
        assert_eq!(pid(&status), Some(gateway.pid().into()), "{}", stderr_of(&status));
    }
}

#[test]
fn the_token_is_beside_the_database_that_the_user_names() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", "gateway: { http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off }\n");
    let _gateway = Gateway::start(&folder, |command| {
        command.args(["--mode", "database", "--db-url", "sqlite:./here/t.db"]);
    });
    assert!(folder.exists("here/t.db") && folder.exists("here/admin.token"));
    assert!(!folder.exists("state/admin.token"));
    assert!(succeeds(&ran(&folder, &["revisions"], |_| {})));
}

#[test]
fn the_owner_of_the_unix_socket_needs_no_token() {
    let folder = Folder::new();
    let text = spec(1, "answer").replace("admin: '127.0.0.1:0',", "admin: off, admin_socket: admin.sock,");
    let text = text
        .replace("proxies:", "proxies:\n  - { id: loop, listen_path: /v1, strip_listen_path: false, backend_host: 'unix:SOCKET' }")
        .replace("SOCKET", &folder.path("admin.sock").display().to_string());
    folder.write("ferrum.yaml", &text);
    let gateway = Gateway::start(&folder, |command| {
        command.env("FERRUM_ADMIN_TOKEN", TOKEN);
    });
    assert!(succeeds(&ran(&folder, &["dump"], |_| {})));
    // If a client sends a token, the token decides.
    let wrong = ran(&folder, &["dump"], |command| set(command, "FERRUM_ADMIN_TOKEN", "of another gateway"));
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr_of(&wrong).contains("(401)"), "{}", stderr_of(&wrong));
    // The gateway connects to the socket with the owner's user ID, but its clients are not the owner.
    let relayed = get(gateway.http, "/v1/proxies");
    assert!(relayed.starts_with("HTTP/1.1 401"), "{relayed}");

    let strict = text.replace("admin: off,", "admin: off, admin_require_token: true,");
    folder.write("ferrum.yaml", &strict);
    drop(gateway);
    let _gateway = Gateway::start(&folder, |command| {
        command.env("FERRUM_ADMIN_TOKEN", TOKEN);
    });
    assert!(stderr_of(&ran(&folder, &["dump"], |_| {})).contains("(401)"));
    assert!(succeeds(&ran(&folder, &["dump"], |command| set(command, "FERRUM_ADMIN_TOKEN", TOKEN))));
}

#[test]
fn doctor_and_check_take_the_file_as_run_does() {
    let folder = Folder::new();
    folder.write("a.yaml", &spec(1, "answer"));
    for command in [&["check"][..], &["doctor", "--offline"]] {
        let with = |more: &[&str]| ran(&folder, &[command, more].concat(), |_| {});
        assert!(succeeds(&with(&["a.yaml"])), "{command:?}");
        assert_eq!(with(&["a.yaml", "--spec", "a.yaml"]).status.code(), Some(2));
    }
}
