//! Who comes in, and how lists in files change.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use gateway_core::http::exchange::Client;
use gateway_core::plugin::entry;
use gateway_core::plugin::world::{Reach, blocking, calls, files::Files, meters::Meters};
use gateway_core::testing::Trial;
use serde_json::{Value, json};

use super::*;

mod urls;

async fn status(config: &Value, address: &str) -> u16 {
    let trial = Trial::new(&[entry::<IpRestriction>()], "ip_restriction", config.clone());
    trial.from_client(address.parse().unwrap(), None).get("/", &[]).await.status
}

#[tokio::test]
async fn who_comes_in() {
    let (inside, outside, both) = ("10.1.2.3", "192.0.2.1", "10.0.0.1");
    for (config, may) in [
        (json!({ "allow": ["10.0.0.0/8"] }), [true, false, true]),
        (json!({ "deny": ["10.0.0.0/8"] }), [false, true, false]),
        (json!({ "allow": ["10.0.0.0/8"], "deny": ["10.0.0.1"] }), [true, false, false]),
        (
            json!({ "allow": ["10.0.0.0/8"], "deny": ["10.0.0.1"], "mode": "allow_first" }),
            [true, false, true],
        ),
        (
            json!({ "allow": ["192.0.2.9"], "deny": ["0.0.0.0/0"], "mode": "allow_first" }),
            [false, false, false],
        ),
    ] {
        for (address, may) in [inside, outside, both].into_iter().zip(may) {
            assert_eq!(status(&config, address).await, if may { 200 } else { 403 }, "{config} {address}");
        }
    }
    assert_eq!(status(&json!({ "deny": ["10.0.0.0/8"], "status_code": 404 }), inside).await, 404);
    let dry = json!({ "deny": ["10.0.0.0/8"], "dry_run": true });
    let trial = Trial::new(&[entry::<IpRestriction>()], "ip_restriction", dry)
        .from_client(inside.parse().unwrap(), None);
    assert_eq!(trial.get("/", &[]).await.status, 200);
    assert_eq!(trial.records()[0].fields.len(), 1);
}

#[tokio::test]
async fn what_a_stranger_says_of_its_address_does_not_count() {
    let trial = Trial::new(&[entry::<IpRestriction>()], "ip_restriction", json!({ "allow": ["10.0.0.0/8"] }));
    let got = trial.get("/", &[("x-forwarded-for", "10.0.0.1"), ("forwarded", "for=10.0.0.1")]).await;
    assert_eq!((got.status, trial.records()[0].reason), (403, Some("address_denied")));
}

/// Files that a test changes.
#[derive(Default)]
struct Shelf(Mutex<HashMap<String, (u128, String)>>);

impl Shelf {
    fn put(&self, path: &str, version: u128, text: &str) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(path.to_owned(), (version, text.to_owned()));
    }

    fn get(&self, path: &Path) -> io::Result<(u128, String)> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(path.to_str().unwrap_or_default()).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Files for Shelf {
    fn read(&self, path: &Path, _limit: u64) -> io::Result<Bytes> {
        self.get(path).map(|(_, text)| text.into())
    }

    fn modified(&self, path: &Path) -> io::Result<u128> {
        self.get(path).map(|(version, _)| version)
    }

    fn list(&self, _folder: &Path, _limit: usize) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

fn world(files: &Arc<Shelf>) -> World {
    World::new(Reach {
        gateway: Arc::from("test"),
        calls: Arc::new(calls::Nowhere),
        files: files.clone(),
        blocking: Arc::new(blocking::Inline),
        meters: Meters::default(),
        variables: Default::default(),
    })
}

fn build(config: Value, files: &Arc<Shelf>) -> Result<Arc<IpRestriction>, Problems> {
    IpRestriction::build(serde_json::from_value(config).unwrap(), &world(files)).map(Arc::new)
}

/// Lets the other tasks of this thread do all they can do now.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn files_are_read_again_when_they_change_and_bad_ones_change_nothing() {
    let files = Arc::new(Shelf::default());
    files.put("d.txt", 1, "10.0.0.0/8\n");
    let plugin = build(json!({ "deny_files": ["d.txt"], "refresh": "5s" }), &files).unwrap();
    let admits = |address: &str| plugin.judge(address.parse().unwrap()) == Judgement::In;
    assert!(!admits("10.0.0.1") && admits("192.0.2.1"));
    let (handle, control) = TaskControl::new();
    let run = tokio::spawn(plugin.clone().keep_fresh(control));
    settle().await;
    files.put("d.txt", 2, "192.0.2.0/24\n");
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    settle().await;
    assert!(admits("10.0.0.1") && !admits("192.0.2.1"));
    files.put("d.txt", 3, "nonsense\n");
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    let error = run.await.unwrap().expect_err("the file is bad");
    assert!(error.to_string().contains("line 1: `nonsense`"), "{error}");
    assert!(!admits("192.0.2.1"), "what was in force stays in force");
    let (_other, control) = TaskControl::new();
    let again = tokio::spawn(plugin.clone().keep_fresh(control));
    drop(handle);
    drop(_other);
    assert!(again.await.unwrap().is_ok(), "it ends with the plugin");
}

#[test]
fn an_allow_list_that_becomes_empty_lets_nobody_in() {
    let files = Arc::new(Shelf::default());
    files.put("a.txt", 1, "10.0.0.1\n");
    let plugin = build(json!({ "allow_files": ["a.txt"] }), &files).unwrap();
    assert_eq!(plugin.judge([10, 0, 0, 1].into()), Judgement::In);
    files.put("a.txt", 2, "# none\n");
    plugin.refresh().unwrap();
    assert_eq!(plugin.judge([10, 0, 0, 1].into()), Judgement::Out);
    assert_eq!(plugin.judge([192, 0, 2, 1].into()), Judgement::Out);
}

#[test]
fn streams_are_refused_as_well() {
    let plugin = build(json!({ "deny": ["192.0.2.0/24"] }), &Arc::default()).unwrap();
    let session = |address: [u8; 4]| {
        let client = Client::new((address, 1).into(), ([127, 0, 0, 1], 1).into(), false, None);
        Session::new(Arc::new(client))
    };
    assert_eq!(plugin.connect(&mut session([192, 0, 2, 1])), Some(Refusal::new("address_denied")));
    assert_eq!(plugin.connect(&mut session([10, 0, 0, 1])), None);
    let dry = build(json!({ "deny": ["192.0.2.0/24"], "dry_run": true }), &Arc::default()).unwrap();
    assert_eq!(dry.connect(&mut session([192, 0, 2, 1])), None);
}

#[test]
fn bad_settings_are_refused_all_at_once() {
    let files = Arc::new(Shelf::default());
    files.put("bad.txt", 1, "10.0.0.0/8\nx\n");
    for (config, paths) in [
        (json!({}), vec!["config"]),
        (
            json!({ "allow": ["10.0.0.0/8", "10.0.0/8"], "deny": ["a"] }),
            vec!["config.allow[1]", "config.deny[0]"],
        ),
        (
            json!({ "deny_files": ["bad.txt", "none.txt"] }),
            vec!["config.deny_files[0]", "config.deny_files[1]"],
        ),
    ] {
        let Err(problems) = build(config.clone(), &files) else { panic!("took {config}") };
        let found: Vec<_> = problems.0.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(found, paths, "{problems}");
    }
    for (config, path) in [
        (json!({ "deny": ["10.0.0.1"], "refresh": 0 }), "config.refresh"),
        (json!({ "deny": ["10.0.0.1"], "status_code": 200 }), "config.status_code"),
        (json!({ "deny": ["10.0.0.1"], "mode": "x" }), "config.mode"),
    ] {
        assert_eq!(Trial::refused(&[entry::<IpRestriction>()], "ip_restriction", &config).0[0].path, path);
    }
}
