//! What the program does when nobody reads what it writes.

use std::fs::File;
use std::process::Stdio;

use crate::process::{Folder, Gateway, LogReader, ferrum_edge, get, spec, until};

/// A configuration with so many problems that their lines fill any small pipe.
fn bad() -> String {
    let proxies: String = (0..200).map(|n| format!("  - {{ id: p{n}, listen_pat: / }}\n")).collect();
    format!("proxies:\n{proxies}")
}

/// A gateway whose log can't be written goes on serving, reloading and answering, and stops when it is told to.
fn lives_without_its_log(reader: LogReader) {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(2, "one"));
    let mut gateway = Gateway::start_with(&folder, reader, |_| {});
    for refused in 1..=3 {
        folder.write("ferrum.yaml", &bad());
        gateway.signal("HUP");
        until("the reload is refused", || gateway.status()["config"]["refused"] == refused);
        assert!(get(gateway.http, "/").ends_with("one"));
    }
    folder.write("ferrum.yaml", &spec(2, "two"));
    gateway.signal("HUP");
    until("the reload is taken", || get(gateway.http, "/").ends_with("two"));
    assert!(get(gateway.admin, "/livez").starts_with("HTTP/1.1 200"));
    let ready = get(gateway.admin, "/readyz?verbose");
    assert!(ready.starts_with("HTTP/1.1 200") && ready.contains("[+] tasks: all run"), "{ready}");
    let metrics = get(gateway.admin, "/metrics");
    let of = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().parse::<u64>().unwrap_or_else(|_| panic!("{name}: {metrics}"))
    };
    match reader {
        LogReader::Leaves => {
            assert!(
                of("ferrum_log_write_errors_total") > 0 && of("ferrum_log_lines_total{result=\"lost\"}") > 0
            );
        }
        LogReader::Stalls => assert!(of("ferrum_log_lines_total{result=\"left_out\"}") > 0),
        LogReader::Reads => assert_eq!(of("ferrum_log_lines_total{result=\"lost\"}"), 0),
    }
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
}

#[test]
fn a_reader_of_the_log_that_goes_away_ends_nothing() {
    lives_without_its_log(LogReader::Leaves);
}

#[test]
fn a_reader_of_the_log_that_stops_reading_holds_nothing_up() {
    lives_without_its_log(LogReader::Stalls);
}

#[test]
fn a_reader_of_the_access_log_that_stops_reading_does_not_hold_the_end_up() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "one"));
    // Never read, and smaller than what is written.
    let (unread, pipe) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&pipe, 4096).unwrap();
    let mut gateway = Gateway::start(&folder, |command| {
        command.env("FERRUM_ACCESS_LOG", "-").stdout(pipe);
    });
    (0..40).for_each(|_| assert!(get(gateway.http, "/").ends_with("one")));
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
    assert!(gateway.log().contains("the last records are lost"), "{}", gateway.log());
    drop(unread);
}

#[test]
fn the_page_of_plugins_says_what_the_program_does() {
    let output = ferrum_edge(&Folder::new()).args(["plugins", "--output", "markdown"]).output().unwrap();
    let (page, path) = (String::from_utf8(output.stdout).unwrap(), "../website/plugins.md");
    let kept = std::fs::read_to_string(path).unwrap();
    let differs = page.lines().zip(kept.lines()).find(|(now, kept)| now != kept);
    assert!(
        page == kept,
        "website/plugins.md is old, first at {differs:?}; write it anew with \
         `cargo run -p ferrum-edge -- plugins --output markdown > website/plugins.md`"
    );
}

#[test]
fn results_nobody_reads_end_quietly() {
    let folder = Folder::new();
    for arguments in [&["schema"][..], &["settings"], &["plugins"], &["--help"], &["completions", "bash"]] {
        let (reader, pipe) = std::io::pipe().unwrap();
        drop(reader);
        let output = ferrum_edge(&folder).args(arguments).stdout(pipe).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn complaints_nobody_reads_leave_the_exit_code_alone() {
    let folder = Folder::new();
    for (arguments, code) in [(&["run"][..], 2), (&["run", "--spec", "nowhere.yaml"], 3)] {
        let (reader, pipe) = std::io::pipe().unwrap();
        drop(reader);
        let status =
            ferrum_edge(&folder).args(arguments).stdout(Stdio::null()).stderr(pipe).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn a_result_that_can_not_be_written_is_a_failure() {
    let folder = Folder::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = ferrum_edge(&folder).arg("schema").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("can't be printed"));
}

/// A database has no traffic: a command about traffic would find nothing there, however long it looked.
#[test]
fn commands_about_traffic_take_no_database() {
    let folder = Folder::new();
    for command in [&["logs", "--follow"][..], &["cache", "purge", "--all"], &["top", "--once"]] {
        let output = ferrum_edge(&folder).args(command).args(["--db-url", "sqlite:f.db"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {output:?}");
        let output = ferrum_edge(&folder).args(command).args(["--admin", "127.0.0.1:1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.ends_with("Specify its address: --admin ADDRESS\n"), "{command:?}: {told}");
    }
}
