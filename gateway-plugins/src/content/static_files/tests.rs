//! Which file answers, and how.

mod hostile;
mod open_files;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use gateway_core::plugin::world::meters::Meters;
use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::{Got, Trial};
use serde_json::{Value, json};

use super::*;

const PLUGINS: &[Entry] = &[entry::<StaticFiles>()];

/// A folder of a test, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ferrum-static-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// One with these files.
    fn with(files: &[(&str, &str)]) -> Self {
        let folder = Self::new();
        files.iter().for_each(|(path, text)| folder.write(path, text));
        folder
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn link(&self, target: impl AsRef<Path>, path: &str) {
        std::os::unix::fs::symlink(target, self.path(path)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn trial(folder: &Folder, config: Value) -> Trial {
    let mut config = config;
    if config.get("root").is_none() {
        config["root"] = json!(folder.0);
    }
    Trial::new(PLUGINS, "static_files", config)
}

async fn text(trial: &Trial, path: &str) -> (u16, String) {
    let got = trial.get(path, &[]).await;
    (got.status, got.text())
}

fn is(status: u16, text: &str) -> (u16, String) {
    (status, text.to_owned())
}

fn nothing(got: &Got) -> bool {
    got.status == 404 && got.field("content-type") == "application/problem+json"
}

#[tokio::test]
async fn files_and_indexes() {
    let folder = Folder::with(&[
        ("index.html", "home"),
        ("a b.txt", "spaced"),
        ("docs/index.html", "docs"),
        ("docs/page.html", "page"),
        ("empty/other.txt", "x"),
        ("nil", ""),
    ]);
    let trial = trial(&folder, json!({}));
    assert_eq!(text(&trial, "/").await, is(200, "home"));
    assert_eq!(text(&trial, "/a%20b.txt").await, is(200, "spaced"));
    assert_eq!(text(&trial, "/docs/").await, is(200, "docs"));
    assert_eq!(text(&trial, "/docs/page.html?x=1").await, is(200, "page"));
    assert_eq!(text(&trial, "/nil").await, is(200, ""));
    let folders = trial.get("/docs?q=1", &[]).await;
    assert_eq!((folders.status, folders.field("location")), (301, "/docs/?q=1"));
    for path in ["/nowhere", "/empty/", "/empty", "/docs/page.html/", "/docs/page", "/index.html/x"] {
        assert!(nothing(&trial.get(path, &[]).await), "{path}");
    }
    let got = trial.get("/docs/page.html", &[]).await;
    assert_eq!(
        (got.field("content-type"), got.field("accept-ranges")),
        ("text/html; charset=utf-8", "bytes")
    );
    assert!(got.field("etag").starts_with('"') && !got.field("last-modified").is_empty());
    assert_eq!((got.headers.get("vary"), got.headers.get("cache-control")), (None, None));
    assert!(trial.asked().is_empty(), "no target is asked");
    let records = trial.records();
    assert_eq!((records[0].reason, records[0].is_error), (Some("file"), false));
    assert_eq!((records[6].reason, records[6].is_error), (Some("file_not_found"), true));
}

#[tokio::test]
async fn the_listen_path_is_stripped_like_a_targets() {
    let folder = Folder::with(&[("a.txt", "a"), ("static/a.txt", "whole path")]);
    let trial = |strip: bool| {
        let spec = json!({
            "proxies": [{"id": "a", "listen_path": "/static", "strip_listen_path": strip, "backend_host": "t",
                "backend_port": 80, "backend_scheme": "http"}],
            "plugin_configs": [{"id": "s", "plugin_name": "static_files", "proxy_id": "a", "config": {"root": folder.0}}],
        });
        Trial::of_spec(PLUGINS, &spec.to_string(), &World::default())
    };
    assert_eq!(text(&trial(true), "/static/a.txt").await, is(200, "a"));
    assert_eq!(text(&trial(false), "/static/a.txt").await, is(200, "whole path"));
}

#[tokio::test]
async fn methods() {
    let folder = Folder::with(&[("a.txt", "text")]);
    let files = trial(&folder, json!({}));
    let head = files.request("HEAD", "/a.txt", &[], "").await;
    assert_eq!((head.status, head.field("content-length"), head.text().as_str()), (200, "4", ""));
    let options = files.request("OPTIONS", "/a.txt", &[], "").await;
    assert_eq!((options.status, options.field("allow")), (204, "GET, HEAD, OPTIONS"));
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let got = files.request(method, "/a.txt", &[], "x").await;
        assert_eq!((got.status, got.field("allow")), (405, "GET, HEAD, OPTIONS"), "{method}");
    }
    let passing = trial(&folder, json!({ "passthrough": true }));
    assert_eq!(text(&passing, "/a.txt").await, is(200, "text"));
    assert_eq!((text(&passing, "/api").await, text(&passing, "/.env").await), (is(200, "ok"), is(200, "ok")));
    assert_eq!(passing.request("POST", "/a.txt", &[], "x").await.text(), "ok");
    let config = json!({ "passthrough": true, "refuse_other_methods": true });
    let refusing = trial(&folder, config);
    // Also when the file is in memory.
    for _ in 0..2 {
        for method in ["POST", "OPTIONS", "DELETE"] {
            let got = refusing.request(method, "/a.txt", &[], "x").await;
            assert_eq!((got.status, got.field("allow")), (405, "GET, HEAD"), "{method}");
            assert_eq!(refusing.request(method, "/api", &[], "x").await.text(), "ok", "{method}");
        }
        assert_eq!(text(&refusing, "/a.txt").await, is(200, "text"));
    }
}

#[tokio::test]
async fn conditions() {
    let folder = Folder::with(&[("a.txt", "text")]);
    let files = trial(&folder, json!({}));
    let first = files.get("/a.txt", &[]).await;
    let (etag, modified) = (first.field("etag").to_owned(), first.field("last-modified").to_owned());
    let weak = format!("W/{etag}");
    for (name, value, status) in [
        ("if-none-match", etag.as_str(), 304),
        ("if-none-match", weak.as_str(), 304),
        ("if-none-match", "\"x\"", 200),
        ("if-modified-since", modified.as_str(), 304),
        ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT", 200),
        ("if-match", etag.as_str(), 200),
        ("if-match", "\"x\"", 412),
        ("if-unmodified-since", "Sun, 06 Nov 1994 08:49:37 GMT", 412),
        ("if-unmodified-since", modified.as_str(), 200),
    ] {
        let got = files.get("/a.txt", &[(name, value)]).await;
        assert_eq!((got.status, got.body.is_empty()), (status, status != 200), "{name}: {value}");
        assert!(status != 304 || got.field("etag") == etag && got.headers.get("content-type").is_none());
    }
    let weak = trial(&folder, json!({ "etag": "weak" }));
    assert!(weak.get("/a.txt", &[]).await.field("etag").starts_with("W/\""));
    let off = trial(&folder, json!({ "etag": "off" }));
    assert_eq!(off.get("/a.txt", &[]).await.headers.get("etag"), None);
}

#[tokio::test]
async fn ranges_from_memory_and_from_the_disk() {
    let folder = Folder::with(&[("a.txt", "0123456789")]);
    for config in [json!({}), json!({ "memory_file_size": 5 }), json!({ "memory": 0 })] {
        let files = trial(&folder, config.clone());
        let etag = files.get("/a.txt", &[]).await.field("etag").to_owned();
        let weak = format!("W/{etag}");
        for (range, condition, status, content_range, text) in [
            ("bytes=2-4", None, 206, "bytes 2-4/10", "234"),
            ("bytes=-1", Some(etag.as_str()), 206, "bytes 9-9/10", "9"),
            ("bytes=5-", Some(weak.as_str()), 200, "", "0123456789"),
            ("bytes=10-", None, 416, "bytes */10", ""),
            ("bytes=x", None, 200, "", "0123456789"),
        ] {
            let mut fields = vec![("range", range)];
            fields.extend(condition.map(|condition| ("if-range", condition)));
            let got = files.get("/a.txt", &fields).await;
            let seen = (got.status, got.field("content-range"), got.text());
            assert_eq!(seen, (status, content_range, text.to_owned()), "{range} {config}");
        }
        let several = files.get("/a.txt", &[("range", "bytes=0-1, 8-")]).await;
        let boundary = several.field("content-type").strip_prefix("multipart/byteranges; boundary=").unwrap();
        let part = |range: &str, text: &str| {
            format!(
                "--{boundary}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-range: bytes {range}/10\r\n\r\n{text}\r\n"
            )
        };
        let expected = format!("{}{}--{boundary}--\r\n", part("0-1", "01"), part("8-9", "89"));
        assert_eq!((several.status, several.text()), (206, expected), "{config}");
        let head = files.request("HEAD", "/a.txt", &[("range", "bytes=0-1")], "").await;
        assert_eq!((head.status, head.field("content-length")), (200, "10"), "only GET has ranges");
    }
}

#[tokio::test]
async fn large_files_come_in_pieces() {
    let folder = Folder::new();
    let large: String = (0..200_000).map(|n| format!("{n:07}\n")).collect();
    folder.write("large.txt", &large);
    let files = trial(&folder, json!({}));
    assert!(files.get("/large.txt", &[]).await.text() == large);
    let range = files.get("/large.txt", &[("range", "bytes=800000-1599999")]).await;
    assert!(range.text().as_str() == large.get(800_000..1_600_000).unwrap());
}

#[tokio::test]
async fn encoded_files_beside_the_plain_ones() {
    let folder = Folder::with(&[("a.js", "plain"), ("b.js", "only plain"), ("c.js.gz", "no plain one")]);
    folder.write("a.js.gz", "gzipped");
    folder.write("a.js.br", "brotli");
    folder.write("b.js.gz", "older");
    let old = std::time::SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(folder.path("b.js.gz")).unwrap().set_modified(old).unwrap();
    let files = trial(&folder, json!({ "precompressed": ["br", "gzip"] }));
    let mut tags = Vec::new();
    for (accepted, coding, text) in [
        ("gzip, br", "br", "brotli"),
        ("gzip, br;q=0.5", "gzip", "gzipped"),
        ("gzip", "gzip", "gzipped"),
        ("br;q=0, *", "gzip", "gzipped"),
        ("identity", "", "plain"),
        ("zstd", "", "plain"),
    ] {
        let got = files.get("/a.js", &[("accept-encoding", accepted)]).await;
        assert_eq!((got.field("content-encoding"), got.text().as_str()), (coding, text), "{accepted}");
        assert_eq!(
            (got.field("vary"), got.field("content-type")),
            ("accept-encoding", "text/javascript; charset=utf-8")
        );
        tags.push(got.field("etag").to_owned());
    }
    assert!(tags[0] != tags[1] && tags[1] != tags[4] && tags[1] == tags[2]);
    assert_eq!(files.get("/b.js", &[("accept-encoding", "gzip")]).await.text(), "only plain", "it is older");
    assert!(nothing(&files.get("/c.js", &[("accept-encoding", "gzip")]).await));
    let off = trial(&folder, json!({}));
    assert_eq!(off.get("/a.js", &[("accept-encoding", "gzip, br")]).await.text(), "plain");
}

#[tokio::test]
async fn candidates_fallback_and_a_page_for_what_is_not_there() {
    let folder = Folder::with(&[
        ("about.html", "about"),
        ("index.html", "app"),
        ("404.html", "not here"),
        ("pages/x/index.html", "x"),
    ]);
    let tries = trial(
        &folder,
        json!({ "try_files": ["{path}", "{path}.html", "pages/{path}/"], "not_found": "/404.html" }),
    );
    assert_eq!(text(&tries, "/about").await, is(200, "about"));
    assert_eq!(text(&tries, "/about/").await, is(404, "not here"));
    let within = trial(&folder, json!({ "try_files": ["{path}/index.html"] }));
    for path in ["/", "/pages/x", "/pages/x/"] {
        assert_eq!(within.get(path, &[]).await.status, 200, "{path}");
    }
    assert_eq!(text(&tries, "/x").await, is(200, "x"));
    let gone = tries.get("/nowhere", &[("range", "bytes=0-1"), ("if-none-match", "*")]).await;
    assert_eq!((gone.status, gone.text().as_str(), gone.headers.get("etag")), (404, "not here", None));
    for hidden in ["/.git/config", "/a/.b", "/.nonexist"] {
        assert_eq!(text(&tries, hidden).await, is(404, "not here"), "{hidden}");
    }
    let fixed = trial(&folder, json!({ "try_files": ["/closed.html", "{path}", "/index.html"] }));
    for path in ["/users/7", "/missing.js", "/.git/config"] {
        assert_eq!(text(&fixed, path).await, is(200, "app"), "{path}");
    }
    assert_eq!(text(&fixed, "/about.html").await, is(200, "about"));
    fs::write(folder.path("closed.html"), "closed").expect("a file");
    let fixed = trial(&folder, json!({ "try_files": ["/closed.html", "{path}", "/index.html"] }));
    assert_eq!(text(&fixed, "/about.html").await, is(200, "closed"), "the first that exists");
    let app = trial(&folder, json!({ "spa_fallback": "index.html" }));
    let html = [("accept", "text/html,*/*;q=0.8")];
    let page = app.get("/users/7", &html).await;
    assert_eq!((page.status, page.text().as_str()), (200, "app"));
    assert!(nothing(&app.get("/missing.js", &html).await), "a script is no page");
    assert!(nothing(&app.get("/users/7", &[("accept", "application/json")]).await));
}

#[tokio::test]
async fn folders_without_an_index_are_refused() {
    let folder = Folder::with(&[("a/x.txt", "x"), ("b/index.html", "b"), ("rest.html", "rest")]);
    let files = trial(&folder, json!({ "refuse_folders": true, "try_files": ["{path}", "rest.html"] }));
    assert_eq!(files.get("/a/", &[]).await.status, 403);
    let slash = files.get("/a?x", &[]).await;
    assert_eq!((slash.status, slash.field("location")), (301, "/a/?x"));
    assert_eq!(text(&files, "/b/").await, is(200, "b"));
    assert_eq!(text(&files, "/c/").await, is(200, "rest"));
}

#[tokio::test]
async fn fields_by_file() {
    let folder = Folder::with(&[
        ("assets/a.css", "x"),
        ("index.html", "x"),
        ("data.xyz", "x"),
        ("none", "x"),
        ("a.PNG", "x"),
    ]);
    let files = trial(
        &folder,
        json!({
            "cache_control": [
                {"path": "assets/*", "value": "public, max-age=31536000, immutable"},
                {"path": "*", "value": "no-cache"},
            ],
            "mime_types": {"xyz": "chemical/x-xyz"},
            "default_type": "text/x-unknown",
            "charset": "",
        }),
    );
    for (path, media_type, cache) in [
        ("/assets/a.css", "text/css", "public, max-age=31536000, immutable"),
        ("/", "text/html", "no-cache"),
        ("/data.xyz", "chemical/x-xyz", "no-cache"),
        ("/none", "text/x-unknown", "no-cache"),
        ("/a.PNG", "image/png", "no-cache"),
    ] {
        let got = files.get(path, &[]).await;
        assert_eq!((got.field("content-type"), got.field("cache-control")), (media_type, cache), "{path}");
    }
}

#[tokio::test]
async fn listings_are_off_until_asked_for() {
    let folder =
        Folder::with(&[("d/b.txt", "four"), ("d/<i>&\"'.txt", "x"), ("d/sub/x", "x"), ("d/.hidden", "x")]);
    folder.link("/etc/passwd", "d/link");
    assert!(nothing(&trial(&folder, json!({})).get("/d/", &[]).await));
    let files = trial(&folder, json!({ "listing": true }));
    assert_eq!(files.get("/d", &[]).await.field("location"), "/d/");
    let page = files.get("/d/", &[]).await;
    assert_eq!(page.field("content-type"), "text/html; charset=utf-8");
    assert!(page.field("content-security-policy").contains("default-src 'none'"));
    let text = page.text();
    assert!(text.contains("<a href=\"./b.txt\">b.txt</a></td><td>4</td>"), "{text}");
    assert!(text.contains("<a href=\"./%3Ci%3E%26%22%27.txt\">&lt;i&gt;&amp;&quot;&#39;.txt</a>"), "{text}");
    assert!(!text.contains("<i>") && !text.contains("hidden") && !text.contains("link"), "{text}");
    assert!(text.find("sub/").unwrap() < text.find("b.txt").unwrap(), "folders first");
    let json = files.get("/d/", &[("accept", "application/json")]).await.json();
    let names: Vec<_> = json["entries"].as_array().unwrap().iter().map(|entry| &entry["name"]).collect();
    assert_eq!(names, ["sub", "<i>&\"'.txt", "b.txt"]);
    assert_eq!((&json["entries"][2]["size"], &json["complete"]), (&json!(4), &json!(true)));
    let all = trial(&folder, json!({ "listing": true, "dotfiles": true }));
    assert!(all.get("/d/", &[]).await.text().contains(".hidden"));
    assert_eq!(all.get("/d/.hidden", &[]).await.text(), "x");
}

#[tokio::test(start_paused = true)]
async fn changes_are_seen() {
    let folder = Folder::with(&[("one/a.txt", "first"), ("two/a.txt", "another folder")]);
    folder.link(folder.path("one"), "current");
    let files = trial(&folder, json!({ "root": folder.path("current") }));
    assert_eq!(text(&files, "/a.txt").await, is(200, "first"));
    folder.write("one/a.txt", "second, longer");
    assert_eq!(text(&files, "/a.txt").await, is(200, "first"), "looked at a moment ago");
    tokio::time::advance(Duration::from_millis(1000)).await;
    assert_eq!(text(&files, "/a.txt").await, is(200, "second, longer"));
    let at_once = trial(&folder, json!({ "root": folder.path("current"), "recheck": "0ms" }));
    assert_eq!(text(&at_once, "/a.txt").await, is(200, "second, longer"));
    folder.write("one/a.txt", "third");
    assert_eq!(text(&at_once, "/a.txt").await, is(200, "third"));
    // The root is a link that is switched.
    folder.link(folder.path("two"), "next");
    fs::rename(folder.path("next"), folder.path("current")).unwrap();
    tokio::time::advance(Duration::from_millis(1001)).await;
    assert_eq!(text(&files, "/a.txt").await, is(200, "another folder"));
    fs::remove_file(folder.path("two/a.txt")).unwrap();
    tokio::time::advance(Duration::from_millis(1000)).await;
    assert!(nothing(&files.get("/a.txt", &[]).await));
}

#[tokio::test]
async fn it_is_counted() {
    let folder = Folder::with(&[("a.txt", "four")]);
    let meters = Meters::default();
    let world = World::new(gateway_core::plugin::world::Reach {
        gateway: "test".into(),
        calls: Arc::new(gateway_core::plugin::world::calls::Nowhere),
        files: Arc::new(gateway_core::plugin::world::files::NoFiles),
        blocking: Arc::new(gateway_core::plugin::world::blocking::Inline),
        meters: meters.clone(),
        variables: Default::default(),
    });
    let spec = json!({
        "proxies": [{"id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80, "backend_scheme": "http"}],
        "plugin_configs": [{"id": "s", "plugin_name": "static_files", "proxy_id": "a", "config": {"root": folder.0}}],
    });
    let files = Trial::of_spec(PLUGINS, &spec.to_string(), &world);
    for path in ["/a.txt", "/a.txt", "/nowhere", "/a%00"] {
        files.get(path, &[]).await;
    }
    let text = meters.text();
    for line in [
        "requests_total{plugin_config=\"s\",outcome=\"file\"} 1",
        "requests_total{plugin_config=\"s\",outcome=\"memory\"} 1",
        "requests_total{plugin_config=\"s\",outcome=\"not_found\"} 1",
        "bytes_total{plugin_config=\"s\"} 8",
    ] {
        assert!(text.contains(&format!("ferrum_static_files_{line}")), "{line}\n{text}");
    }
}

#[test]
fn what_can_not_be_served_is_refused() {
    let folder = Folder::with(&[("a.txt", "text")]);
    let root = |more: Value| {
        let mut config = json!({ "root": folder.0 });
        more.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        config
    };
    for (config, path) in [
        (json!({}), "config.root"),
        (json!({ "root": folder.path("nowhere") }), "config.root"),
        (json!({ "root": folder.path("a.txt") }), "config.root"),
        (root(json!({ "index": ["../x"] })), "config.index[0]"),
        (root(json!({ "index": [""] })), "config.index[0]"),
        (root(json!({ "spa_fallback": "/../x" })), "config.spa_fallback"),
        (root(json!({ "not_found": "a/" })), "config.not_found"),
        (root(json!({ "not_found": "a", "passthrough": true })), "config.passthrough"),
        (root(json!({ "refuse_folders": true, "listing": true })), "config.refuse_folders"),
        (root(json!({ "refuse_other_methods": true })), "config.refuse_other_methods"),
        (root(json!({ "try_files": [] })), "config.try_files"),
        (root(json!({ "try_files": ["{path}", "/index.html/"] })), "config.try_files[1]"),
        (root(json!({ "try_files": ["a%20b.html"] })), "config.try_files[0]"),
        (root(json!({ "try_files": ["../{path}"] })), "config.try_files[0]"),
        (root(json!({ "precompressed": ["br", "br"] })), "config.precompressed[1]"),
        (root(json!({ "precompressed": ["lzma"] })), "config.precompressed[0]"),
        (root(json!({ "mime_types": { "x": "nonsense" } })), "config.mime_types.x"),
        (root(json!({ "default_type": "nonsense" })), "config.default_type"),
        (root(json!({ "charset": "a b" })), "config.charset"),
        (root(json!({ "cache_control": [{ "path": "*", "value": "" }] })), "config.cache_control[0].value"),
        (root(json!({ "memory": 1000, "memory_file_size": 1000 })), "config.memory_file_size"),
        (root(json!({ "etag": "md5" })), "config.etag"),
        (root(json!({ "open_files": 100_001 })), "config.open_files"),
        (root(json!({ "open_files_idle": "999ms" })), "config.open_files_idle"),
    ] {
        let problems = Trial::refused(PLUGINS, "static_files", &config);
        assert_eq!(problems.0[0].path, path, "{config}");
    }
}

#[tokio::test]
async fn the_example_is_taken() {
    let spec = include_str!("../../../../specs/static-files.yaml");
    let trial = Trial::of_spec(PLUGINS, spec, &World::default());
    assert!(nothing(&trial.get("/no-such-file-in-this-folder", &[]).await));
    assert_eq!(trial.get("/no-such-file-in-this-folder", &[]).await.headers.get("etag"), None);
}
