//! Forms with files, good and bad.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::{Got, Trial};
use gateway_plugin_common::testing::Folder;
use serde_json::Value;

use super::*;

const PLUGINS: &[Entry] = &[entry::<Upload>()];
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";

fn trial(folder: &Folder, more: &Value) -> Trial {
    let mut config = json!({ "path": folder.0.join("in") });
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    Trial::new(PLUGINS, "upload", config)
}

/// A part of a form: its field, the name of its file, and its content.
type Part<'a> = (&'a str, Option<&'a str>, &'a [u8]);

fn form(parts: &[Part<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    for (field, filename, content) in parts {
        let filename = filename.map(|name| format!("; filename=\"{name}\"")).unwrap_or_default();
        let head = format!("--B\r\ncontent-disposition: form-data; name=\"{field}\"{filename}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--B--\r\n");
    body
}

async fn send(trial: &Trial, body: Vec<u8>) -> Got {
    trial.request("POST", "/up", &[("content-type", "multipart/form-data; boundary=B")], body).await
}

/// The files in the folder.
fn stored(folder: &Folder) -> Vec<PathBuf> {
    folder.files()
}

#[tokio::test]
async fn files_are_stored_under_random_names() {
    let folder = Folder::default();
    let trial = trial(&folder, &json!({ "file_mode": "0640" }));
    let large = vec![b'x'; 700_000];
    let parts: &[Part<'_>] = &[
        ("title", None, b"Holiday"),
        ("a", Some("../../etc/passwd"), PNG),
        ("b", Some("large.exe"), &large),
        ("c", Some(""), b""),
    ];
    let got = send(&trial, form(parts)).await;
    assert_eq!((got.status, got.field("content-type")), (201, "application/json"), "{}", got.text());
    let said = got.json();
    assert_eq!(said["fields"], json!([{ "name": "title", "value": "Holiday" }]));
    let files = said["files"].as_array().unwrap();
    assert_eq!(files.len(), 2, "a file that was not chosen is none");
    for (file, field, filename, kind, content) in [
        (&files[0], "a", "../../etc/passwd", "image/png", PNG),
        (&files[1], "b", "large.exe", "text/plain", &large),
    ] {
        assert_eq!(
            (&file["field"], &file["filename"], &file["type"]),
            (&json!(field), &json!(filename), &json!(kind))
        );
        let name = file["stored"].as_str().unwrap();
        let (random, _) = name.split_once('.').unwrap();
        assert!(random.len() == 32 && random.bytes().all(|c| c.is_ascii_hexdigit()), "{name}");
        let path = folder.0.join("in").join(name);
        assert_eq!(fs::read(&path).unwrap(), content);
        assert_eq!(file["bytes"], content.len());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, content);
        let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(file["sha256"], digest);
    }
    assert_eq!(stored(&folder).len(), 2);
    assert_eq!(fs::metadata(folder.0.join("in")).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(trial.asked().len(), 0, "the target gets nothing");
}

#[tokio::test]
async fn limits_refuse_and_leave_nothing() {
    let file = |content: &'static [u8]| ("a", Some("f"), content);
    for (config, parts, status) in [
        (json!({ "max_files": 1 }), vec![file(b"1"), file(b"2")], 413),
        (json!({ "max_fields": 1 }), vec![("x", None, &b"1"[..]), ("y", None, b"2"), file(b"1")], 413),
        (json!({ "max_field": 3 }), vec![file(b"1"), ("x", None, b"1234")], 413),
        (json!({ "max_file_size": 3 }), vec![file(b"123"), file(b"1234")], 413),
        (json!({ "max_body": 100, "max_file_size": 100 }), vec![file(&[b'x'; 100])], 413),
        (json!({ "types": ["image/*"] }), vec![file(PNG), file(b"text")], 415),
        (json!({ "types": ["image/jpeg"] }), vec![file(PNG)], 415),
        (json!({ "file_fields": ["b"] }), vec![file(b"1")], 400),
        (json!({}), vec![("x", None, &b"1"[..])], 400),
        (json!({}), vec![file(b"1"), ("x", None, b"\xff")], 400),
        (json!({}), vec![file(b"1"), ("x", Some(""), b"1")], 400),
        (json!({ "min_free": "1000TiB" }), vec![file(b"1")], 507),
    ] {
        let folder = Folder::default();
        let trial = trial(&folder, &config);
        let got = send(&trial, form(&parts)).await;
        assert_eq!(got.status, status, "{config}: {}", got.text());
        assert_eq!(stored(&folder), Vec::<PathBuf>::new(), "{config}");
    }
    let folder = Folder::default();
    let fits = json!({
        "max_files": 1, "max_fields": 1, "max_field": 3, "max_file_size": 27, "types": ["image/png"],
        "file_fields": ["a"],
    });
    let got = send(&trial(&folder, &fits), form(&[("x", None, b"123"), ("a", Some("f"), &PNG[..27])])).await;
    assert_eq!(got.status, 201, "{}", got.text());
}

#[tokio::test]
async fn what_is_no_form_is_refused() {
    let folder = Folder::default();
    let trial = trial(&folder, &json!({}));
    let whole = form(&[("a", Some("f"), b"content")]);
    for body in [&whole[..whole.len() - 9], &whole[..40], b"", b"--B\r\n\r\n", b"nothing"] {
        assert_eq!(send(&trial, body.to_vec()).await.status, 400, "{}", String::from_utf8_lossy(body));
    }
    let endless = [&b"--B\r\nx: "[..], &vec![b'y'; 2 << 20]].concat();
    assert_eq!(send(&trial, endless).await.status, 400);
    for kind in ["application/json", "multipart/form-data", "text/plain; boundary=B"] {
        let got = trial.request("POST", "/", &[("content-type", kind)], whole.clone()).await;
        assert_eq!(got.status, 415, "{kind}");
    }
    assert_eq!(stored(&folder), Vec::<PathBuf>::new());
    assert_eq!(trial.get("/", &[]).await.text(), "ok", "other methods go on to the target");
}

#[tokio::test]
async fn nothing_is_followed_out_of_the_folder() {
    let folder = Folder::default();
    let outside = Folder::default();
    fs::create_dir(folder.0.join("in")).unwrap();
    fs::write(outside.0.join("kept"), "kept").unwrap();
    let trial = trial(&folder, &json!({}));
    let names = ["/etc/x", "..", "../x", "a/../../x", "a\\..\\x", "%2e%2e%2fx", "."];
    for name in names {
        assert_eq!(send(&trial, form(&[(name, Some(name), b"1")])).await.status, 201, "{name}");
    }
    let files = stored(&folder);
    assert_eq!(files.len(), names.len());
    assert!(files.iter().all(|path| path.parent() == Some(&folder.0.join("in"))));
    assert_eq!(outside.files().len(), 1);
}

#[test]
fn bad_settings_are_refused() {
    for (config, at) in [
        (json!({}), "path"),
        (json!({ "path": "relative" }), "config.path"),
        (json!({ "path": "/x", "max_body": 0 }), "config.max_body"),
        (json!({ "path": "/x", "max_body": 1 }), "config.max_file_size"),
        (json!({ "path": "/x", "max_field": "2MiB" }), "config.max_field"),
        (json!({ "path": "/x", "types": ["image"] }), "config.types[0]"),
        (json!({ "path": "/x", "file_mode": "0755" }), "config.file_mode"),
        (json!({ "path": "/x", "max_files": 0 }), "config.max_files"),
    ] {
        let problems = Trial::refused(PLUGINS, "upload", &config).to_string();
        assert!(problems.contains(at), "{config}: {problems}");
    }
}
