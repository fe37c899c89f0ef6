//! What variables of the environment say, and that none of ours is passed over.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use crate::process::{Folder, Gateway, ferrum_edge, spec};

/// What a command says with variables of the environment, and its exit code.
fn said(folder: &Folder, arguments: &[&str], variables: &[(&str, &[u8])]) -> (Option<i32>, String) {
    let mut command = ferrum_edge(folder);
    command.args(arguments);
    for (name, value) in variables {
        command.env(name, OsStr::from_bytes(value));
    }
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn a_value_that_is_not_utf_8_is_refused_by_name() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "hi"));
    let bad: &[u8] = b"true\xa0";
    for name in ["FERRUM_ADMIN_REQUIRE_TOKEN", "FERRUM_ADMIN_TOKEN", "FERRUM_ADMIN_READ_TOKEN_FILE"] {
        for command in ["check", "run"] {
            let (code, told) = said(&folder, &[command], &[(name, bad)]);
            assert_eq!(code, Some(3), "{command} {name}: {told}");
            assert!(told.contains(&format!("{name}: its value is not UTF-8")), "{told}");
        }
    }
    let (code, told) = said(&folder, &["run", "--mode", "database"], &[("FERRUM_DB_KEEP_REVISIONS", bad)]);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("FERRUM_DB_KEEP_REVISIONS: its value is not UTF-8"), "{told}");
    folder.write("ferrum.yaml", &spec(1, "'${env:GREETING}'"));
    let (code, told) = said(&folder, &["check"], &[("GREETING", bad)]);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("the value of the environment variable GREETING is not UTF-8"), "{told}");
    assert!(!told.contains("is not set"), "{told}");
    assert_eq!(said(&folder, &["check"], &[("GREETING", &b"hi"[..]), ("OTHER", bad)]).0, Some(0));
}

#[test]
fn a_level_for_one_module_silences_no_other() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "hi"));
    for name in ["FERRUM_LOG_LEVEL", "RUST_LOG"] {
        // It is found by an info line of another module.
        let mut gateway = Gateway::start(&folder, |command| {
            *command = ferrum_edge(&folder);
            command.arg("run").env(name, "gateway_core=debug,gateway_cor=info");
            command.stdout(Stdio::null()).stderr(Stdio::piped());
        });
        assert!(gateway.log().contains("module `gateway_cor`, and none of this name"), "{}", gateway.log());
        gateway.signal("TERM");
        assert_eq!(gateway.wait(), Some(0));
    }
}

#[test]
fn a_file_of_a_variable_is_read_or_told_of() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "hi"));
    folder.write("token", "a-token-of-enough-bytes\n");
    for name in ["FERRUM_SPEC", "FERRUM_MODE", "FERRUM_LOG_LEVEL", "FERRUM_PID_FILE"] {
        let file = format!("{name}_FILE");
        let (code, told) = said(&folder, &["check", "--deny-warnings"], &[(file.as_str(), &b"token"[..])]);
        assert_eq!(code, Some(3), "{file}: {told}");
        assert!(told.contains(&format!("environment.{file}: {name} has no such form")), "{told}");
    }
    let file: (&str, &[u8]) = ("FERRUM_ADMIN_TOKEN_FILE", b"token");
    assert_eq!(said(&folder, &["check", "--deny-warnings"], &[file]).0, Some(0));
    let both = [file, ("FERRUM_ADMIN_TOKEN", &b"a-token-of-enough-bytes"[..])];
    let (code, told) = said(&folder, &["status", "--admin", "127.0.0.1:1"], &both);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("FERRUM_ADMIN_TOKEN_FILE: FERRUM_ADMIN_TOKEN is set too"), "{told}");
}

#[test]
fn check_refuses_the_tokens_that_run_refuses() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "hi"));
    for name in ["FERRUM_ADMIN_TOKEN", "FERRUM_ADMIN_READ_TOKEN", "FERRUM_ADMIN_JWT_SECRET"] {
        for mode in ["file", "database"] {
            let (code, told) = said(&folder, &["check", "--mode", mode], &[(name, &b"short"[..])]);
            assert_eq!(code, Some(3), "{told}");
            assert!(told.contains(&format!("{name}: it has 5 bytes")), "{mode}: {told}");
        }
    }
}

#[test]
fn an_unknown_kind_of_database_is_told_by_its_own_name() {
    let folder = Folder::new();
    let url: (&str, &[u8]) = ("FERRUM_DB_URL", b"sqlite:/nowhere/x.db");
    for (kind, expected) in
        [("oracle", "FERRUM_DB_TYPE: "), ("mysql", "FERRUM_DB_URL: "), ("MariaDB", "FERRUM_DB_URL: ")]
    {
        let (code, told) = said(&folder, &["migrate"], &[url, ("FERRUM_DB_TYPE", kind.as_bytes())]);
        assert_eq!(code, Some(2), "{kind}: {told}");
        assert!(told.contains(expected), "{kind}: {told}");
    }
}
