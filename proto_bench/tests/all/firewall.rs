//! Firewalls beside each other: none is measured that does not inspect, and each request has values of its own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc;

use bytes::Bytes;
use proto_bench::driver::FaultKind;
use proto_bench::peers::{Peer, gateway};
use proto_bench::plan::ExpectBody;
use proto_bench::report::Document;
use proto_bench::report::model::Verdict;

use crate::support::{answer, faults, read_request, run, serve, short_http};

const PROGRAM: &str = env!("CARGO_BIN_EXE_proto_bench");

/// A folder that vanishes with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("proto_bench-firewall-{:08x}", fastrand::u32(..)));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("written");
        path.to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Rules of our own, so that the test needs nothing that is not here.
const RULES: &str = r#"SecRule ARGS "@rx (?i)union\s+select" "id:1001,phase:2,deny,status:403,t:none"
"#;

fn compare(tests: &str, arguments: &[&str]) -> Output {
    let run = |duration| {
        let short = ["-c", "2", "-R", "1", "-w", "0s", "-d", duration, "--json", "-", "--tests", tests];
        Command::new(PROGRAM).arg("compare").args(short).args(arguments).output().expect("it starts")
    };
    let mut output = run("300ms");
    // A machine that is busy with others may let no answer come within so short a time.
    for longer in ["3s", "10s"] {
        if output.status.code() == Some(4)
            && String::from_utf8_lossy(&output.stdout).contains("no verified answer at all")
        {
            output = run(longer);
        }
    }
    output
}

fn document(output: &Output) -> Document {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("a result")
}

/// Needs the gateway beside `proto_bench`, where `cargo xtask test` puts it.
#[test]
fn firewalls_that_refuse_attacks_and_pass_others_are_measured() {
    let folder = Folder::new();
    folder.file("own.conf", RULES);
    let rules = folder.0.to_string_lossy().into_owned();
    let tests = "waf-off,waf-get,waf-form,waf-json,waf-attack,waf-own";
    let document = document(&compare(tests, &["--crs", &rules, "--peers", "gateway,nginx-modsecurity"]));
    for (peer, tests) in [
        ("gateway", &["waf-off", "waf-get", "waf-form", "waf-json", "waf-attack", "waf-own"][..]),
        ("nginx-modsecurity", &["waf-get", "waf-form", "waf-json", "waf-attack"]),
    ] {
        if document.notes.iter().any(|note| note == &format!("{peer} is not installed here.")) {
            let beside = Path::new(PROGRAM).with_file_name("ferrum-edge").exists();
            assert!(peer != "gateway" || !beside && gateway::find_program(None).is_none());
            continue;
        }
        for test in tests {
            let row = document.row(test, peer).expect("a row");
            assert_eq!(row.verdict, Verdict::Valid, "{peer} {test}");
            let status = if *test == "waf-attack" { 403 } else { 200 };
            assert!(row.expect.status == status && row.rounds[0].completed > 0, "{peer} {test}");
        }
    }
    assert!(document.settings["firewall rules"].contains(&rules));
}

#[test]
fn what_does_not_inspect_is_no_firewall_and_is_not_measured() {
    let folder = Folder::new();
    folder.file("own.conf", RULES);
    // Takes the arguments of a firewall, and forwards whatever comes.
    let script = format!("#!/bin/sh\nexec {PROGRAM} relay --listen \"$2\" --to \"$4\"\n");
    let coraza = folder.file("coraza", &script);
    std::fs::set_permissions(&coraza, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let rules = folder.0.to_string_lossy().into_owned();
    let arguments = ["--crs", &rules, "--peers", "coraza", "--coraza", &coraza];
    let document = document(&compare("waf-get,waf-form,waf-json,waf-attack,waf-off", &arguments));
    let reason = |test: &str| match &document.row(test, "coraza").expect("a row").verdict {
        Verdict::Unavailable(reason) => reason.clone(),
        verdict => panic!("{test}: {verdict:?}"),
    };
    for test in ["waf-get", "waf-form", "waf-json"] {
        let reason = reason(test);
        assert!(reason.contains("does not tell attacks from clean requests"), "{test}: {reason}");
        assert!(reason.contains("status 200, expected 403"), "{test}: {reason}");
    }
    assert!(reason("waf-attack").contains("status 200, expected 403"));
    assert!(document.rows.iter().all(|row| row.id == "waf-off" || row.rounds.is_empty()));
    assert!(document.row("waf-off", "coraza").is_some_and(proto_bench::report::Row::is_valid));
}

#[test]
fn rules_are_required_and_must_be_there() {
    let folder = Folder::new();
    let empty = folder.0.to_string_lossy().into_owned();
    for (tests, arguments, words) in [
        ("h1,waf-json", &[][..], "waf-json needs rules"),
        ("h1,waf-own", &["--crs", &empty], "--crs is for the tests"),
        ("waf-get", &["--crs", &empty], "has no rules"),
        ("waf-get", &["--crs", "/nonexistent"], "cannot read the rules in /nonexistent"),
    ] {
        let output = compare(tests, arguments);
        assert_eq!(output.status.code(), Some(1), "{tests}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(words), "{tests}: {told}");
    }
}

#[test]
fn without_a_choice_those_take_part_that_can() {
    let document = document(&compare("waf-own", &["--gateway", "/nonexistent"]));
    assert!(document.rows.is_empty());
    assert!(document.notes.iter().any(|note| note == "gateway is not installed here."));
    assert!(!document.notes.iter().any(|note| note.starts_with("coraza") || note.starts_with("envoy")));
    assert!(!Peer::Coraza.takes_part(proto_bench::peers::Test::H1));
}

#[test]
fn bodies_of_our_own_come_back_as_they_went_and_differ() {
    let (sender, seen) = mpsc::channel();
    let serve_with = |change: fn(&mut Vec<u8>)| {
        let sender = sender.clone();
        serve(move |mut stream| {
            while let Some((head, mut body)) = read_request(&mut stream) {
                // The test may be over and gone.
                sender.send((head, body.clone())).ok();
                change(&mut body);
                answer(&mut stream, "200 OK", &body);
            }
        })
    };
    let plan = |address| {
        let mut plan = short_http(address);
        plan.target.path = "/a?b={stamp}".to_owned();
        plan.message.body = Some(Bytes::from_static(b"c={stamp}&d=e"));
        plan.message.varied = true;
        plan.expect.body = ExpectBody::Echo;
        plan
    };
    let outcome = run(&plan(serve_with(|_| {})));
    assert!(outcome.tally.faults.is_empty() && outcome.tally.completed > 0, "{:?}", outcome.tally.faults);
    let requests: Vec<(String, Vec<u8>)> = seen.try_iter().collect();
    let paths: std::collections::BTreeSet<_> = requests.iter().map(|(head, _)| head.lines().next()).collect();
    let bodies: std::collections::BTreeSet<_> = requests.iter().map(|(_, body)| body).collect();
    assert!(paths.len() == requests.len() && bodies.len() == requests.len(), "each has values of its own");
    let wrong = run(&plan(serve_with(|body| body[4] ^= 1)));
    assert!(faults(&wrong, FaultKind::Content) > 0 && wrong.tally.completed == 0);
}
