//! What targets may name, and what clients see of it.

use std::fs;
use std::path::PathBuf;

use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::Trial;
use serde_json::{Value, json};

use super::*;

const PLUGINS: &[Entry] = &[entry::<InternalRedirect>()];

/// A folder with files, removed with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn folder(name: &str) -> Folder {
    let path = std::env::temp_dir().join(format!("ferrum-accel-{}-{name}", std::process::id()));
    fs::create_dir_all(path.join("served")).unwrap();
    fs::write(path.join("served/a b.txt"), "0123456789").unwrap();
    fs::write(path.join("served/.hidden"), "hidden").unwrap();
    fs::write(path.join("outside.txt"), "outside").unwrap();
    Folder(path)
}

/// A proxy whose target answers with these fields and a body of its own.
fn trial(folder: &Folder, fields: &'static [(&'static str, &'static str)]) -> Trial {
    let config = json!({ "locations": [{ "prefix": "/files/", "root": folder.0.join("served") }] });
    Trial::new(PLUGINS, "internal_redirect", config).answering(move |_| {
        let mut response = Response::new(Body::full("the target's own"));
        for (name, value) in fields {
            response.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        response
    })
}

#[tokio::test]
async fn serves_the_named_file_with_fields_of_the_target() {
    let folder = folder("serves");
    let fields = &[
        ("x-accel-redirect", "/files/a%20b.txt"),
        ("content-type", "application/pdf"),
        ("content-disposition", "attachment"),
        ("x-accel-buffering", "no"),
        ("x-powered-by", "PHP"),
    ];
    let trial = trial(&folder, fields);
    let got = trial.get("/x", &[]).await;
    assert_eq!((got.status, got.text().as_str()), (200, "0123456789"));
    assert_eq!(got.field("content-type"), "application/pdf");
    assert_eq!(got.field("content-disposition"), "attachment");
    for name in ["x-accel-redirect", "x-accel-buffering", "x-powered-by"] {
        assert_eq!(got.field(name), "", "{name}");
    }
    let part = trial.get("/x", &[("range", "bytes=2-4")]).await;
    assert_eq!((part.status, part.text().as_str()), (206, "234"));
    let etag = got.field("etag").to_owned();
    assert_eq!(trial.get("/x", &[("if-none-match", &etag)]).await.status, 304);
}

#[tokio::test]
async fn never_shows_the_body_or_path_of_a_target_whose_name_is_not_served() {
    let folder = folder("refuses");
    let cases: &[(&'static [(&str, &str)], u16)] = &[
        (&[("x-accel-redirect", "/files/none.txt")], 404),
        (&[("x-accel-redirect", "/files/")], 404),
        (&[("x-accel-redirect", "/other/a")], 502),
        (&[("x-accel-redirect", "/files/../outside.txt")], 502),
        (&[("x-accel-redirect", "/files/%2e%2e/outside.txt")], 502),
        (&[("x-accel-redirect", "@named")], 502),
        (&[("x-sendfile", "/filesystem/a")], 502),
    ];
    for (fields, status) in cases {
        let got = trial(&folder, fields).get("/x", &[]).await;
        assert_eq!(got.status, *status, "{fields:?}");
        assert!(!got.text().contains("the target's own"), "{fields:?}");
        assert_eq!((got.field("x-accel-redirect"), got.field("x-sendfile")), ("", ""), "{fields:?}");
    }
}

#[tokio::test]
async fn obeys_charset_and_removes_instructions_of_other_responses() {
    let folder = folder("plain");
    let fields =
        &[("x-accel-expires", "10"), ("x-accel-charset", "koi8-r"), ("content-type", "text/html; charset=x")];
    let got = trial(&folder, fields).get("/x", &[]).await;
    assert_eq!(got.text(), "the target's own");
    assert_eq!(got.field("content-type"), "text/html; charset=koi8-r");
    assert_eq!((got.field("x-accel-expires"), got.field("x-accel-charset")), ("", ""));
}

#[test]
fn rejects_locations_that_lead_nowhere() {
    let refused = |config: Value| Trial::refused(PLUGINS, "internal_redirect", &config).to_string();
    let many = vec![json!({ "prefix": "/a", "url": "http://x/" }); 257];
    assert!(refused(json!({ "locations": many })).contains("more than 256"));
    let two = json!({ "locations": [{ "prefix": "/a", "root": "/", "url": "http://x/" }] });
    assert!(refused(two).contains("exactly one"));
    let twice = json!({ "locations": [{ "prefix": "/a", "url": "http://x/" }, { "prefix": "/a/", "url": "http://y/" }] });
    assert!(refused(twice).contains("twice"));
    let relative = json!({ "locations": [{ "prefix": "a", "url": "http://x/" }] });
    assert!(refused(relative).contains("config.locations[0].prefix"));
}
