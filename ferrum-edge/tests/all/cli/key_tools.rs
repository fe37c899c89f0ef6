//! `hash-password` and `generate-key`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Output, Stdio};

use crate::process::{Folder, Gateway, ferrum_edge};

fn hashed(folder: &Folder, input: &[u8]) -> Output {
    let mut command = ferrum_edge(folder);
    command.arg("hash-password").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_hash_opens_and_what_is_no_password_is_refused() {
    let folder = Folder::new();
    let output = hashed(&folder, b"correct horse\n");
    let hash = String::from_utf8(output.stdout).unwrap();
    assert!(hash.starts_with("$argon2id$") && output.status.success(), "{hash}");
    folder.write(
        "ferrum.yaml",
        &format!(
            "gateway: {{http: '127.0.0.1:0', https: off, admin: '127.0.0.1:0', workers: 1}}
proxies: [{{id: a, listen_path: /}}]
consumers: [{{id: ann, username: ann, credentials: {{basic_auth: {{password_hash: '{}'}}}}}}]
plugin_configs:
  - {{id: b, plugin_name: basic_auth, proxy_id: a}}
  - {{id: t, plugin_name: response_mock, proxy_id: a, config: {{rules: [{{path: '/'}}]}}}}
",
            hash.trim()
        ),
    );
    let gateway = Gateway::start(&folder, |_| {});
    // `ann:correct horse` and `ann:wrong`.
    for (credentials, status) in [("YW5uOmNvcnJlY3QgaG9yc2U=", 200), ("YW5uOndyb25n", 401)] {
        let mut connection = TcpStream::connect(gateway.http).unwrap();
        let head = format!("authorization: Basic {credentials}\r\nconnection: close");
        write!(connection, "GET / HTTP/1.1\r\nhost: localhost\r\n{head}\r\n\r\n").unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    for bad in [&b""[..], b"\n", &[b'x'; 2000], b"\xff\xfe\n", b"one\ntwo"] {
        let output = hashed(&folder, bad);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn keys_are_random_and_as_long_as_asked_for() {
    let folder = Folder::new();
    let key = |arguments: &[&str]| {
        let output = ferrum_edge(&folder).arg("generate-key").args(arguments).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    let (first, second) = (key(&[]), key(&[]));
    assert!(first.0 && first.1.len() == 43 && first.1 != second.1, "{first:?}");
    assert_eq!(key(&["--format", "hex", "--bytes", "16"]).1.len(), 32);
    assert!(!key(&["--bytes", "8"]).0);
}
