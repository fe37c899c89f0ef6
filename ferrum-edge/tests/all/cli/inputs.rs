//! What commands say of inputs that they can't use, and their exit codes.

use crate::process::{Folder, Gateway, ferrum_edge, spec};

/// A command, its exit code, and a part of what it says.
type Case = (&'static [&'static str], i32, &'static str);

fn check(folder: &Folder, cases: &[Case]) {
    for (command, code, part) in cases {
        let output = ferrum_edge(folder).args(*command).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(*code), "{command:?}: {said}");
        assert!(said.contains(part), "{command:?}: {said}");
    }
}

/// A check of nothing must not look like a success: the file may be a wrong one.
#[test]
fn a_check_of_nothing_fails() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "answer"));
    folder.write("nginx.conf", "server { listen 80; location / { proxy_pass http://127.0.0.1:9; } }");
    folder.write("other.txt", "no record\n");
    folder.write("empty.txt", "");
    check(
        &folder,
        &[
            (&["audit", "--verify", "--file", "other.txt"], 1, "other.txt: there is no entry in it"),
            (&["audit", "--verify", "--file", "empty.txt"], 1, "so nothing was checked"),
            (
                &["diff", "ferrum.yaml", "--traffic", "other.txt"],
                1,
                "other.txt: there is no record of a request",
            ),
            (&["diff", "ferrum.yaml", "--traffic", "empty.txt"], 1, "so nothing was checked"),
            (
                &["import", "nginx.conf", "--compare", "other.txt"],
                1,
                "other.txt: there is no record of a request",
            ),
            (&["import", "nginx.conf", "--compare", "empty.txt"], 1, "so nothing was checked"),
        ],
    );
}

#[test]
fn files_that_can_not_be_used_are_named_with_the_place() {
    let folder = Folder::new();
    folder.write(
        "wrong.yaml",
        "proxies:\n  - { id: a, listen_path: /, backend_host: a, backend_port: 80, bogus: 1 }\n",
    );
    std::fs::write(folder.path("binary"), [0xc3, 0x28]).unwrap();
    std::fs::create_dir(folder.path("rules")).unwrap();
    folder.write("rules/a.conf", "SecRule ARGS \"@rx (\" \"id:1,deny\"\n");
    check(
        &folder,
        &[
            (&["import", "missing.conf"], 3, "missing.conf: No such file"),
            (&["import", "binary", "--from", "nginx"], 3, "binary: line 1 is not UTF-8"),
            (&["check", "wrong.yaml"], 3, "wrong.yaml:2: proxies[0].bogus: unknown key"),
            (&["doctor", "--offline", "wrong.yaml"], 3, "wrong.yaml:2: proxies[0].bogus: unknown key"),
            (
                &["plugins", "rate_limitin"],
                2,
                "There is no plugin `rate_limitin` (did you mean `rate_limiting`?)",
            ),
            (
                &["init", "new.yaml", "--host", "a b"],
                2,
                "new.yaml:8: proxies[0].hosts[0]: `a b` is not a host",
            ),
            (&["check"], 2, "/etc/ferrum-edge/ferrum-edge.yaml"),
            (&["serve", "wrong.yaml"], 2, "wrong.yaml is not a folder"),
            (&["waf", "check", "rules"], 3, "\n1 problem\n"),
        ],
    );
}

#[test]
fn arguments_that_the_gateway_rejects_are_wrong_usage() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "answer"));
    let _gateway = Gateway::start(&folder, |_| {});
    check(
        &folder,
        &[
            (&["logs", "--status", "abc"], 2, "`abc` is not a status"),
            (&["logs", "--follow", "--status", "abc"], 2, "`abc` is not a status"),
            (&["logs", "--client", "abc"], 2, "`abc` is neither an address nor a block"),
        ],
    );
}

/// A token from a file with the line ends of Windows, or with a line end at all.
#[test]
fn a_token_that_can_not_be_sent_is_named() {
    let folder = Folder::new();
    for token in ["abc\r", "abc\ndef"] {
        let mut command = ferrum_edge(&folder);
        let output = command.args(["consumers"]).env("FERRUM_ADMIN_TOKEN", token).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains("FERRUM_ADMIN_TOKEN"), "{token:?}: {said}");
    }
}
