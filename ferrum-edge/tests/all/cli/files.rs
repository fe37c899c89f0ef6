//! Files that are empty, half written, far too long or wrong throughout.

use std::fs::{self, OpenOptions};
use std::io::Write;

use crate::process::{Folder, Gateway, ferrum_edge, get, spec, until};

const NOTHING: [&str; 6] =
    ["", "\n\n", "# nothing yet\n", "---\n", "proxies:\n", "gateway: { workers: 1 }\n"];

#[test]
fn a_file_that_says_nothing_is_refused() {
    let folder = Folder::new();
    for text in NOTHING {
        folder.write("ferrum.yaml", text);
        for command in ["check", "run"] {
            let output = ferrum_edge(&folder).arg(command).output().unwrap();
            assert_eq!(output.status.code(), Some(3), "{command} {text:?}");
            let said = [output.stdout, output.stderr].concat();
            assert!(String::from_utf8_lossy(&said).contains("write `proxies: []`"), "{command} {text:?}");
        }
    }
    folder.write("ferrum.yaml", "proxies: []\n");
    assert_eq!(ferrum_edge(&folder).arg("check").output().unwrap().status.code(), Some(0));
}

#[test]
fn a_file_of_settings_is_enough_beside_a_database() {
    let folder = Folder::new();
    let check = |text: &str| {
        folder.write("ferrum.yaml", text);
        ferrum_edge(&folder).args(["check", "--mode", "database"]).output().unwrap().status.code()
    };
    assert_eq!(check("gateway: { workers: 1 }\n"), Some(0));
    assert_eq!(check(&spec(1, "one")), Some(3));
}

/// A flag that would be without effect is refused, in the place of a file that nobody meant.
#[test]
fn one_configuration_is_named_and_a_database_only_in_its_mode() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "one"));
    folder.write("other.yaml", &spec(1, "two"));
    let run = |arguments: &[&str]| {
        let output = ferrum_edge(&folder).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for command in ["run", "check"] {
        let (code, told) = run(&[command, "ferrum.yaml", "--spec", "other.yaml"]);
        assert!(code == Some(2) && told.contains("not both"), "{command}: {code:?} {told}");
    }
    let beside = ferrum_edge(&folder).args(["check", "ferrum.yaml"]).env("FERRUM_SPEC", "none.yaml").output();
    assert_eq!(beside.unwrap().status.code(), Some(0), "the variable is no flag");
    for flag in [["--db-url", "sqlite:f.db"], ["--db-type", "sqlite"]] {
        let (code, told) = run(&[&["run", "ferrum.yaml"], &flag[..]].concat());
        assert!(code == Some(2) && told.contains("--mode database"), "{flag:?}: {code:?} {told}");
    }
}

#[test]
fn a_reload_while_the_file_is_written_never_takes_half_of_it() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "one"));
    let gateway = Gateway::start(&folder, |_| {});
    for (n, text) in NOTHING.iter().enumerate() {
        fs::write(folder.path("ferrum.yaml"), text).unwrap();
        gateway.signal("HUP");
        until("the empty file is refused", || gateway.status()["config"]["refused"] == n + 1);
        assert!(get(gateway.http, "/").ends_with("one"));
    }
    // As an editor or `cp` writes: truncated first, and then piece by piece.
    for text in ["two", "three", "four"] {
        let whole = spec(1, text);
        let mut file =
            OpenOptions::new().write(true).truncate(true).open(folder.path("ferrum.yaml")).unwrap();
        gateway.signal("HUP");
        for part in whole.as_bytes().chunks(whole.len() / 4) {
            file.write_all(part).unwrap();
            file.flush().unwrap();
            assert!(get(gateway.http, "/").starts_with("HTTP/1.1 200"), "{text}");
        }
        drop(file);
        gateway.signal("HUP");
        until("the whole file is in use", || get(gateway.http, "/").ends_with(text));
    }
}

#[test]
fn a_file_wrong_throughout_costs_little_and_is_told_in_part() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "one"));
    let gateway = Gateway::start(&folder, |_| {});
    let wrong: String = (0..300_000).map(|n| format!("k{n}: 1\n")).collect();
    folder.write("ferrum.yaml", &format!("proxies: []\n{wrong}"));
    gateway.signal("HUP");
    until("the file is refused", || gateway.status()["config"]["refused"] == 1);
    let status = gateway.status();
    let problems = status["config"]["last_refusal"]["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 101);
    assert!(status.to_string().len() < 100_000);
    let output = ferrum_edge(&folder).arg("check").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("and 299000 more problems") && said.contains("300000 problems"), "{}", said.len());
    assert!(said.len() < 200_000, "{}", said.len());
}

#[test]
fn anchors_and_long_files_are_bounded() {
    let folder = Folder::new();
    let values = "x, ".repeat(100_000);
    let nested = (0..40).fold(format!("[{values}x]"), |inner, n| format!("[&a{n} {inner}]"));
    folder.write("ferrum.yaml", &format!("proxies: {nested}\n"));
    let output = ferrum_edge(&folder).arg("check").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).contains("anchors and aliases unfold to more than"));
    fs::File::create(folder.path("ferrum.yaml")).unwrap().set_len((1 << 30) + 1).unwrap();
    let output = ferrum_edge(&folder).arg("check").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).contains("more than the 1073741824 bytes"));
}

/// A pipe that nobody writes would be waited for, and a key that only a passphrase opens is there.
#[test]
fn files_of_no_use_as_certificates_are_named_at_once() {
    let folder = Folder::new();
    let pipe = folder.path("pipe.pem");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    folder.write(
        "pkcs8.key",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    folder.write(
        "old.key",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
    );
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    folder.write("a.pem", &certificate.pem());
    for (cert, key, expected) in [
        ("pipe.pem", "old.key", "pipe.pem: it is not a regular file"),
        ("a.pem", "pipe.pem", "pipe.pem: it is not a regular file"),
        ("a.pem", "pkcs8.key", "pkcs8.key: the private key is encrypted"),
        ("a.pem", "old.key", "old.key: the private key is encrypted"),
    ] {
        folder.write(
            "ferrum.yaml",
            &format!(
                "gateway: {{tls: {{certificates: [{{cert_path: {cert}, key_path: {key}}}]}}}}\nproxies: []\n"
            ),
        );
        let output = ferrum_edge(&folder).arg("check").output().unwrap();
        let said = format!("{output:?}");
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}
