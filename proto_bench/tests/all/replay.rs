//! `replay` as users run it: what it shows, and a row against the gateway.

use std::process::{Command, Output};

use proto_bench::peers::gateway;
use proto_bench::report::Document;
use proto_bench::report::model::Verdict;

fn replay(arguments: &[&str]) -> Output {
    let words = [&["replay"], arguments].concat();
    Command::new(env!("CARGO_BIN_EXE_proto_bench")).args(words).output().expect("it starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn rows_and_configurations_can_be_seen_without_running_them() {
    let list = replay(&["hotdogs", "--list", "--row", "10000-*"]);
    assert_eq!(list.status.code(), Some(0));
    let list = text(&list);
    assert!(list.contains("10000-synthetic") && list.contains("10,000 clients, 30 s"), "{list}");
    assert!(list.contains("nginx-default 11,072 (!)") && !list.contains("200-proxy"), "{list}");
    let shown = text(&replay(&["conduit", "--dry-run", "--row", "jwt-rs256", "--subjects", "gateway,nginx"]));
    assert!(
        shown.contains("plugin_name: jwks_auth") && shown.contains("authorization: Bearer <rs256>"),
        "{shown}"
    );
    assert!(shown.contains("## nginx: not measured: ") && !shown.contains("## haproxy"), "{shown}");
}

#[test]
fn names_that_no_table_has_are_refused() {
    for (arguments, words) in [
        (["zion", "--row", "nonsense"], "no row of zion fits `nonsense`"),
        (["zion", "--subjects", "apache"], "has no subject `apache`; it has nginx, haproxy"),
    ] {
        let output = replay(&arguments);
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(words), "{error}");
    }
}

/// Needs the gateway beside `proto_bench`, where `cargo xtask test` puts it; without it the row says so.
#[test]
fn a_row_runs_against_the_gateway_alone() {
    let directory = std::env::temp_dir().join(format!("proto_bench-replay-{:08x}", fastrand::u32(..)));
    let file = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let (json, html, markdown) = (file("r.json"), file("r.html"), file("r.md"));
    let row = ["conduit", "--row", "gzip-10k", "--subjects", "gateway", "--clients", "4"];
    let rest = ["-R", "2", "-w", "0s", "--json", &json, "--html", &html, "--markdown", &markdown];
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_proto_bench")).with_file_name("ferrum-edge");
    let run = |seconds| replay(&[&row[..], &rest, &["--seconds", seconds]].concat());
    let (mut output, mut seconds) = (run("1"), "1");
    // A machine that is busy with others may let no answer come within half a second.
    for longer in ["6", "20"] {
        if output.status.code() == Some(4) && text(&output).contains("no verified answer at all") {
            (output, seconds) = (run(longer), longer);
        }
    }
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}\n{}",
        text(&output),
        String::from_utf8_lossy(&output.stderr)
    );
    let document = Document::read(json.as_ref()).expect("a result");
    let row = document.row("gzip-10k", "gateway").expect("a row");
    let page = std::fs::read_to_string(&html).expect("a page");
    let lines = std::fs::read_to_string(&markdown).expect("a page");
    assert!(lines.contains("| Conduit *published*") && lines.contains("38,900"), "{lines}");
    assert!(lines.contains(&format!("4 clients, {seconds} s; published: 200 clients, 30 s.")), "{lines}");
    let there = program.exists() || gateway::find_program(None).is_some();
    if there {
        assert_eq!(row.verdict, Verdict::Valid);
        assert!(row.rounds.len() == 2 && row.rounds.iter().all(|round| !round.cpu.is_empty()));
        let bytes: u64 = row.rounds.iter().map(|round| round.body_bytes).sum();
        let answers: u64 = row.rounds.iter().map(|round| round.completed).sum();
        assert!(bytes < answers * 5_000, "10 KB of JSON are compressed: {bytes} bytes in {answers} answers");
        assert!(document.configurations["gateway gzip"].contains("plugin_name: compression"));
        assert!(page.contains("CPU over time") && page.contains("Resident memory over time"));
        assert!(document.replay.is_some_and(|replay| replay.starts.len() == 1));
    } else {
        assert!(matches!(&row.verdict, Verdict::Unavailable(reason) if reason.contains("--gateway")));
    }
    std::fs::remove_dir_all(&directory).ok();
}

/// Direct and through the kernel's redirect, which a machine may not allow; the report then says so.
#[test]
fn bulk_is_replayed_and_checked() {
    let list = text(&replay(&["portunus", "--list", "--row", "offered*"]));
    assert!(list.contains("offered-20g") && list.contains("iptables REDIRECT 19924.28 Mbit/s"), "{list}");
    let refused = replay(&["portunus", "--clients", "3"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("portunus has no use for --clients"));
    let flags =
        ["-R", "2", "-w", "50ms", "--seconds", "0.4", "--subjects", "direct,redirect", "-q", "--json", "-"];
    let rows = ["portunus", "--row", "offered-100m", "--row", "udp-100m"];
    let output = replay(&[&rows[..], &flags].concat());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    for row in report["rows"].as_array().expect("rows") {
        let cells = row["results"].as_array().expect("results");
        assert_eq!(cells.len(), 2);
        let direct = cells[0]["rounds"].as_array().expect("rounds");
        assert_eq!(direct.len(), 2, "{row}");
        for round in direct {
            let megabits = round["megabits"].as_f64().expect("a rate");
            // A machine that is busy with others sends less, and nothing makes it send more.
            assert!(megabits > 0.0 && megabits < 150.0, "{round}");
        }
        let redirect = &cells[1];
        let has_rounds = redirect["rounds"].as_array().is_some_and(|rounds| !rounds.is_empty());
        assert!(has_rounds || redirect["missing"].is_string(), "{redirect}");
    }
}

#[test]
fn bulk_alone_is_a_command() {
    let words = ["bulk", "-r", "20M", "-d", "300ms", "-O", "50ms"];
    let output = Command::new(env!("CARGO_BIN_EXE_proto_bench")).args(words).output().expect("it starts");
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains(" Mbit/s in ") && said.contains(" bytes checked"), "{said}");
}
