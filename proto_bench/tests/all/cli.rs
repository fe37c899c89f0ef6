//! The program as users run it: exit codes and result files.

use std::process::{Command, Output};

use proto_bench::backend::{Backend, Options, Service};
use proto_bench::report::Document;
use proto_bench::report::model::Verdict;
use proto_bench::tls::Identity;

use crate::support::{answer, read_request, serve};

fn proto_bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_proto_bench")).args(arguments).output().expect("it starts")
}

fn backend() -> Backend {
    let options = Options { services: vec![Service::Http], threads: 1, ..Options::default() };
    Backend::start(&options, Identity::generate().expect("a certificate")).expect("free ports")
}

const SHORT: [&str; 6] = ["-d", "300ms", "-w", "0s", "-t", "1"];

/// Runs a command with windows of this length, and with longer ones where a machine that is busy with others let no answer
/// come within them.
fn with_answers(arguments: &[&str]) -> Output {
    // `clients` has steps instead.
    let few: &[&str] = if arguments[0] == "clients" { &[] } else { &["-c", "4"] };
    let mut output = proto_bench(&[arguments, few, &SHORT].concat());
    for duration in ["3s", "10s"] {
        let text = [&output.stdout[..], &output.stderr].concat();
        if output.status.code() == Some(4)
            && String::from_utf8_lossy(&text).contains("no verified answer at all")
        {
            let mut longer = SHORT;
            longer[1] = duration;
            output = proto_bench(&[arguments, few, &longer].concat());
        }
    }
    output
}

#[test]
fn a_good_run_ends_with_zero_and_tells_its_circumstances() {
    let backend = backend();
    let url = format!("http://{}/echo", backend.ports.http.expect("served"));
    let pid = std::process::id().to_string();
    let output = with_answers(&["run", &url, "--json", "-", "-R", "2", "--pid", &pid]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Document = serde_json::from_slice(&output.stdout).expect("a result");
    assert_eq!(document.format, "proto_bench/1");
    assert!(!document.machine.kernel.is_empty() && document.machine.cores > 0);
    assert!(document.command.contains("--json -") && document.finished >= document.started);
    let row = &document.rows[0];
    assert_eq!((row.rounds.len(), &row.verdict), (2, &Verdict::Valid));
    let summary = row.summary.as_ref().expect("figures");
    assert!(summary.rate.min <= summary.rate.median && summary.rate.median <= summary.rate.max);
    assert!(summary.resident_bytes.is_some_and(|spread| spread.median > 0.0));
    assert!(row.rounds[0].memory.len() > 2 && !row.rounds[0].progress.is_empty());
}

#[test]
fn a_void_row_ends_with_four_and_shows_no_figures() {
    let address = serve(|mut stream| {
        while let Some((_, body)) = read_request(&mut stream) {
            answer(&mut stream, "503 Service Unavailable", &body);
        }
    });
    let output = proto_bench(&[&["run", &format!("http://{address}/"), "-c", "4"][..], &SHORT].concat());
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("VOID") && text.contains("status 503, expected 200"), "{text}");
    assert!(!text.contains("p50") && !text.contains("/s"), "{text}");
}

#[test]
fn usage_errors_end_with_two_and_others_with_one() {
    assert_eq!(proto_bench(&["run"]).status.code(), Some(2));
    assert_eq!(proto_bench(&["run", "http://127.0.0.1:1/", "-c", "0"]).status.code(), Some(2));
    assert_eq!(proto_bench(&["run", "gopher://127.0.0.1:70"]).status.code(), Some(1));
    assert_eq!(proto_bench(&["report", "/nonexistent.json"]).status.code(), Some(1));
    for arguments in
        [&["run", "http://127.0.0.1:1", "-m", "5"][..], &["clients", "http://127.0.0.1:1", "-c", "7"]]
    {
        let output = proto_bench(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(arguments[2]), "{arguments:?}: {told}");
    }
}

#[test]
fn the_matrix_runs_without_a_gateway_and_says_so() {
    let directory = std::env::temp_dir().join(format!("proto_bench-cli-{}", std::process::id()));
    let file = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let (json, html, markdown) = (file("m.json"), file("m.html"), file("m.md"));
    let tests = ["matrix", "--tests", "h1,udp", "--gateway", "/nonexistent"];
    let files = ["--json", &json, "--html", &html, "--markdown", &markdown];
    let output = with_answers(&[&tests[..], &files].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let document = Document::read(json.as_ref()).expect("a result");
    assert!(document.row("h1", "direct").is_some_and(proto_bench::report::Row::is_valid));
    let gateway = document.row("h1", "gateway").expect("a row");
    assert!(matches!(&gateway.verdict, Verdict::Unavailable(reason) if reason.contains("--gateway")));
    assert!(std::fs::read_to_string(&html).expect("a page").contains("<svg"));
    assert!(std::fs::read_to_string(&markdown).expect("a page").contains("| HTTP/1.1"));
    std::fs::remove_dir_all(&directory).ok();
}

#[test]
fn clients_and_sweep_make_a_row_a_step() {
    let backend = backend();
    let url = format!("http://{}/echo", backend.ports.http.expect("served"));
    for (command, steps) in [("clients", ["--steps", "1,8"]), ("sweep", ["--rates", "200,400"])] {
        let output = with_answers(&[&[command, &url, "--json", "-"][..], &steps].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let document: Document = serde_json::from_slice(&output.stdout).expect("a result");
        assert_eq!(document.rows.len(), 2, "{command}");
        assert!(document.rows.iter().all(proto_bench::report::Row::is_valid), "{command}");
    }
}

#[test]
fn compare_measures_a_peer_where_one_is_installed() {
    if proto_bench::process::find("nginx").is_none() {
        return;
    }
    let output = with_answers(&["compare", "--peers", "nginx", "--tests", "h1,fixed", "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Document = serde_json::from_slice(&output.stdout).expect("a result");
    assert_eq!(document.rows.len(), 2);
    assert!(document.rows.iter().all(|row| row.rounds.len() == 9), "slices are the default");
    assert!(document.versions.contains_key("nginx"));
    assert!(document.configurations.keys().all(|name| name.starts_with("nginx ")));
}

#[test]
fn the_relay_is_measured_where_bytes_are_enough() {
    let arguments = ["compare", "--peers", "relay", "--tests", "h1,tcp,fixed", "-R", "2", "--json", "-"];
    let output = with_answers(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Document = serde_json::from_slice(&output.stdout).expect("a result");
    for test in ["h1", "tcp"] {
        let row = document.row(test, "relay").expect("a row");
        assert!(row.is_valid(), "{:?}", row.verdict);
        assert!(
            row.rounds
                .iter()
                .all(|round| round.subject.as_ref().is_some_and(|usage| usage.cpu_us_per_request > 0.0))
        );
    }
    let fixed = document.row("fixed", "relay").expect("a row");
    assert!(matches!(fixed.verdict, Verdict::Unavailable(_)), "a relay answers nothing by itself");
}

#[test]
fn contents_are_compared_with_a_file() {
    let backend = backend();
    let url = format!("http://{}/size/5000", backend.ports.http.expect("served"));
    let directory = std::env::temp_dir().join(format!("proto_bench-content-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let mut body = proto_bench::backend::answer::sized(5_000);
    let (right, wrong) = (directory.join("right"), directory.join("wrong"));
    std::fs::write(&right, &body).expect("written");
    body[4_321] ^= 1;
    std::fs::write(&wrong, &body).expect("written");
    let run = |file: &std::path::Path| {
        let file = file.to_string_lossy();
        with_answers(&["run", &url, "--method", "GET", "--expect-body", &*file])
    };
    let output = run(&right);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(!text.contains("content-unverified"), "{text}");
    let output = run(&wrong);
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stdout).contains("byte 4321 of the answer is wrong"));
    std::fs::remove_dir_all(&directory).ok();
}

#[test]
fn answers_whose_content_is_not_checked_are_not_called_verified() {
    let backend = backend();
    let url = format!("http://{}/size/50", backend.ports.http.expect("served"));
    let output = with_answers(&["run", &url, "--method", "GET", "--expect-size", "50"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(!text.contains(" verified answers") && text.contains("only their size was checked"), "{text}");
}

/// A rate is searched for, and a file is what every request sends.
#[test]
fn a_rate_that_holds_a_percentile_is_found() {
    let backend = backend();
    let url = format!("http://{}/echo", backend.ports.http.expect("served"));
    let folder = std::env::temp_dir().join(format!("proto_bench-search-{:08x}", fastrand::u32(..)));
    std::fs::create_dir_all(&folder).expect("it works");
    let body = folder.join("body.json");
    std::fs::write(&body, "{\"name\":\"shop\"}").expect("it works");
    let json = folder.join("result.json");
    let [body, json] = [&body, &json].map(|path| path.to_string_lossy().into_owned());
    let flags = ["-c", "2", "-t", "1", "-d", "200ms", "-w", "0s", "--precision", "0.3", "-q"];
    let files = ["--body", &body, "--json", &json];
    let words = [&["search", &url, "--p99", "5s,1ms"], &flags[..], &files].concat();
    let output = proto_bench(&words);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let document: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).expect("it works")).expect("it works");
    assert!(said.contains("A closed loop of 2 connections reached"), "{said}");
    // How fast a machine answers that is busy with others is not known: each limit has its row, or a note that no rate holds it.
    let rows = document["rows"].as_array().expect("rows");
    for limit in ["5s", "1ms"] {
        let is_row = rows.iter().any(|row| row["id"] == format!("p99-{limit}"));
        let is_note = said.contains(&format!("No rate keeps the 99th percentile below {limit}."));
        assert!(is_row != is_note, "{limit}: {said}");
    }
    let refused = proto_bench(&["search", "tcp://127.0.0.1:9", "--body", &body]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--body is for POST over HTTP/1.1"));
    std::fs::remove_dir_all(&folder).ok();
}

/// Any server is loaded with GET, several of its URLs in turns, and answers are compared with the first of each.
#[test]
fn urls_take_turns_and_answers_are_as_the_first_ones() {
    let backend = backend();
    let address = backend.ports.http.expect("served");
    let folder = std::env::temp_dir().join(format!("proto_bench-urls-{:08x}", fastrand::u32(..)));
    std::fs::create_dir_all(&folder).expect("it works");
    let list = folder.join("urls");
    std::fs::write(&list, format!("# more\nhttp://{address}/size/500 3\n")).expect("it works");
    let (url, list) = (format!("http://{address}/size/50"), list.to_string_lossy().into_owned());
    let output = with_answers(&["run", &url, "--urls", &list, "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Document = serde_json::from_slice(&output.stdout).expect("a result");
    let round = &document.rows[0].rounds[0];
    let size = round.body_bytes / round.completed;
    assert!((350..430).contains(&size), "three of four answers have 500 bytes: {size}");
    assert!(
        document.notes.iter().any(|note| note.contains("status 200 and 500 bytes")),
        "{:?}",
        document.notes
    );
    let counted: u64 = round.latency.buckets.iter().map(|(_, count)| count).sum();
    assert_eq!(counted, round.latency.count);
    let output = with_answers(&["run", &url]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains('█') && text.contains('≤'), "{text}");
    std::fs::remove_dir_all(&folder).ok();
}

/// A void row says what to try.
#[test]
fn void_rows_name_a_remedy() {
    let backend = backend();
    let url = format!("http://{}/size/50", backend.ports.http.expect("served"));
    let output = with_answers(&["run", &url, "--expect-size", "51"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("→") && text.contains("--method GET"), "{text}");
}
