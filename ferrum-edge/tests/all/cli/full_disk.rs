//! Logs on a disk that is full, and files of logs that others move, empty and remove.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;

use crate::process::{Folder, Gateway, ferrum_edge, get, spec, until};

/// A gateway that is told when a file gets too long, as it is when a disk is full: by the write's error, after a part of it.
fn start(folder: &Folder) -> Gateway {
    Gateway::start(folder, |command| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(command.get_program());
        shell.args(command.get_args()).current_dir(command.get_current_dir().unwrap());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        *command = shell;
    })
}

/// Lets no file of the gateway get longer than this.
fn limit(gateway: &Gateway, bytes: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(gateway.pid()).unwrap());
    prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

/// The lines of a file, each of which has to be whole.
fn lines(folder: &Folder, name: &str) -> Vec<Value> {
    let text = folder.read(name);
    assert!(text.is_empty() || text.ends_with('\n'), "half a line: {text}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn metric(gateway: &Gateway, name: &str) -> u64 {
    let page = get(gateway.admin, "/metrics");
    let line = page.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{page}"));
    line.trim().parse().unwrap()
}

const DROPPED: &str = "ferrum_access_log_dropped_total ";
const WRITTEN: &str = "ferrum_access_log_written_total ";
const SENT: &str = "ferrum_access_log_sink_records_total{sink=\"s\",outcome=\"sent\"} ";

/// A configuration with an access log and a sink beside it.
fn logged(file: &str) -> String {
    let log = format!(
        "access_log: {{ path: access.log, sinks: [{{ name: s, interval: 10ms, file: {{ {file} }} }}] }}"
    );
    spec(1, "one").replace("https: off,", &format!("https: off, {log},"))
}

#[test]
fn a_full_disk_leaves_no_half_line_and_what_is_lost_is_counted() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &logged("path: sink.log"));
    let gateway = start(&folder);
    let ask = || assert!(get(gateway.http, "/").ends_with("one"));
    (0..3).for_each(|_| ask());
    until("three records are there", || metric(&gateway, WRITTEN) == 3 && metric(&gateway, SENT) == 3);
    let length = ["access.log", "sink.log"].map(|name| fs::metadata(folder.path(name)).unwrap().len());
    limit(&gateway, Some(length[0].max(length[1]) + length[0] / 6));
    (0..3).for_each(|_| ask());
    until("three records are lost", || metric(&gateway, DROPPED) == 3);
    until("the sink has failed", || !gateway.status()["log_sinks"][0]["last_error"].is_null());
    assert_eq!((lines(&folder, "access.log").len(), lines(&folder, "sink.log").len()), (3, 3));
    limit(&gateway, None);
    ask();
    // The sink keeps what it could not write, and tries again.
    until("the later records are there", || metric(&gateway, WRITTEN) == 4 && metric(&gateway, SENT) == 7);
    assert_eq!((lines(&folder, "access.log").len(), lines(&folder, "sink.log").len()), (4, 7));
    assert_eq!(metric(&gateway, DROPPED), 3);
    assert!(gateway.log().contains("access records are written again"), "{}", gateway.log());
}

#[test]
fn an_entry_of_the_audit_on_a_full_disk_leaves_the_next_one_whole() {
    let folder = Folder::new();
    let logged = |text: &str| spec(1, text).replace("https: off,", "https: off, audit_log: audit.log,");
    folder.write("ferrum.yaml", &logged("one"));
    let gateway = start(&folder);
    let reload = |text: &str| {
        folder.write("ferrum.yaml", &logged(text));
        gateway.signal("HUP");
        until("it is reloaded", || get(gateway.http, "/").ends_with(text));
    };
    reload("two");
    until("the first entry is there", || lines(&folder, "audit.log").len() == 1);
    limit(&gateway, Some(fs::metadata(folder.path("audit.log")).unwrap().len() + 40));
    reload("three");
    until("the second one is lost", || gateway.log().contains("could not be written to its log"));
    limit(&gateway, None);
    reload("four");
    until("the third one is there", || lines(&folder, "audit.log").len() == 2);
    let numbers: Vec<_> = lines(&folder, "audit.log").iter().map(|entry| entry["seq"].clone()).collect();
    assert_eq!(numbers, [1, 3], "what is missing shows");
}

/// A pipe that nobody reads would hold up every change of the configuration.
#[test]
fn an_audit_log_is_a_file() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "one").replace("https: off,", "https: off, audit_log: pipe,"));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let output = ferrum_edge(&folder).arg("run").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a regular file"), "{output:?}");
}

/// Somebody else moves the file away when it is full, as `logrotate` does, or removes it: the sink begins a new one, and leaves
/// those that were rotated before as they are.
#[test]
fn a_full_log_that_was_moved_away_costs_no_older_one() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &logged("path: sink.log, max_size: 4KiB, keep: 3"));
    for n in 1..=3 {
        folder.write(&format!("sink.log.{n}"), &format!("{{\"kept\":{n}}}\n"));
    }
    let gateway = start(&folder);
    let mut asked = 0;
    let mut ask_until = |is_so: &mut dyn FnMut() -> bool| {
        while !is_so() {
            assert!(get(gateway.http, "/").ends_with("one"));
            asked += 1;
            until("it is written", || metric(&gateway, SENT) == asked);
        }
    };
    ask_until(&mut || fs::metadata(folder.path("sink.log")).unwrap().len() > 3500);
    folder.rename("sink.log", "moved");
    ask_until(&mut || folder.exists("sink.log"));
    for n in 1..=3 {
        assert_eq!(lines(&folder, &format!("sink.log.{n}"))[0]["kept"], n);
    }
    assert_eq!((lines(&folder, "moved").len() + lines(&folder, "sink.log").len()) as u64, asked);
}
