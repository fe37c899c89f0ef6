//! Large files that are kept open.

use gateway_core::plugin::Plugin;

use super::*;
use crate::content::static_files::kept::CacheLookup;

/// A plugin that keeps nothing in memory, and its settings' trial.
fn keeps(folder: &Folder, open_files: usize) -> (Trial, Meters) {
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
        "plugin_configs": [{"id": "s", "plugin_name": "static_files", "proxy_id": "a",
            "config": {"root": folder.0, "memory": 0, "memory_file_size": 0, "open_files": open_files}}],
    });
    (Trial::of_spec(PLUGINS, &spec.to_string(), &world), meters)
}

fn count(meters: &Meters, outcome: &str) -> u64 {
    let text = meters.text();
    let line = format!("ferrum_static_files_requests_total{{plugin_config=\"s\",outcome=\"{outcome}\"}} ");
    text.lines().find_map(|found| found.strip_prefix(&line)).map_or(0, |value| value.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_file_is_opened_once_and_its_path_is_looked_at_again() {
    let folder = Folder::with(&[("a.txt", "first"), ("b.txt", "another")]);
    let (files, meters) = keeps(&folder, 8);
    for _ in 0..3 {
        assert_eq!(text(&files, "/a.txt").await, is(200, "first"));
    }
    assert_eq!((count(&meters, "file"), count(&meters, "open")), (1, 2));
    fs::rename(folder.path("b.txt"), folder.path("a.txt")).unwrap();
    let got = files.get("/a.txt", &[]).await;
    assert_eq!(got.text(), "first", "whole, as it was a moment ago");
    tokio::time::advance(Duration::from_millis(1000)).await;
    let again = files.get("/a.txt", &[]).await;
    assert_eq!(again.text(), "another");
    assert_ne!(got.field("etag"), again.field("etag"));
    fs::remove_file(folder.path("a.txt")).unwrap();
    tokio::time::advance(Duration::from_millis(1000)).await;
    assert!(nothing(&files.get("/a.txt", &[]).await));
}

#[tokio::test(start_paused = true)]
async fn contents_that_changed_are_never_sent_under_what_was_said_of_others() {
    let folder = Folder::with(&[("a.txt", "first")]);
    let (files, _) = keeps(&folder, 8);
    let first = files.get("/a.txt", &[]).await;
    // No time passes on the gateway's clock, so that the path is not looked at again.
    folder.write("a.txt", "second, and longer");
    let second = files.get("/a.txt", &[]).await;
    assert_eq!((first.text(), second.text()), ("first".into(), "second, and longer".into()));
    assert_ne!(first.field("etag"), second.field("etag"));
    folder.write("a.txt", "");
    assert_eq!(files.get("/a.txt", &[("if-none-match", second.field("etag"))]).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn none_is_kept_where_settings_say_so() {
    let folder = Folder::with(&[("a.txt", "first")]);
    let (files, meters) = keeps(&folder, 0);
    for _ in 0..3 {
        assert_eq!(text(&files, "/a.txt").await, is(200, "first"));
    }
    assert_eq!((count(&meters, "file"), count(&meters, "open")), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn so_many_are_open_at_most_and_those_nobody_asks_for_are_closed() {
    let folder = Folder::new();
    (0..20).for_each(|n| folder.write(&format!("{n}.txt"), "text"));
    let settings = json!({
        "root": folder.0, "memory": 0, "memory_file_size": 0, "open_files": 4, "open_files_idle": 20,
    });
    let files =
        StaticFiles::build(serde_json::from_value(settings).unwrap(), &World::default()).unwrap().shared;
    let wanted = |n: usize| Wanted { path: Some(format!("{n}.txt")), ..Wanted::default() };
    for n in 0..20 {
        files.find(&wanted(n), None, Instant::now(), Wait::May).unwrap();
        assert!(files.kept.open() <= 4);
    }
    assert!(files.kept.open() > 0);
    let Some(kept) =
        (0..20).find(|n| matches!(files.kept.get(&wanted(*n), Instant::now()), CacheLookup::Current(_)))
    else {
        panic!("none is kept");
    };
    tokio::time::advance(Duration::from_millis(19_999)).await;
    files.kept.close_idle(Instant::now());
    assert!(files.kept.open() > 0);
    files.find(&wanted(kept), None, Instant::now(), Wait::May).unwrap();
    tokio::time::advance(Duration::from_millis(1)).await;
    files.kept.close_idle(Instant::now());
    assert_eq!(files.kept.open(), 1, "the one that was asked for");
}
