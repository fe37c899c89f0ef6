//! Responses in files: over a restart, with damaged files, within their bound.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;
use gateway_plugin_common::testing::{Beside, Folder, metric, until};

const LOOKUPS: &str = "ferrum_response_cache_tier_lookups_total";
const WRITES: &str = "ferrum_response_cache_tier_writes_total";

/// A gateway with a folder; its target counts its answers.
struct Side {
    trial: Trial,
    world: World,
}

fn side(folder: &Folder, more: &Value, fields: &'static [(&'static str, &'static str)]) -> Side {
    let world = World::default();
    let mut config = json!({ "disk": { "path": folder.0 } });
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    let trial = beside(&world, &config, move |asked, n| {
        let mut response = Response::builder();
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        if asked.path.starts_with("/big") {
            return response.body(vec![b'x'; 100_000].into_body()).unwrap();
        }
        response.body(format!("answer {n}").into_bytes().into_body()).unwrap()
    });
    Side { trial, world }
}

/// A gateway whose cache has its tasks running.
pub(super) fn beside(
    world: &World,
    config: &Value,
    answer: impl Fn(&ReceivedRequest, u32) -> Response<Body> + Send + Sync + 'static,
) -> Trial {
    let proxy = json!({
        "id": "a", "listen_path": "/", "strip_listen_path": false,
        "backend_host": "target.test", "backend_port": 80, "backend_scheme": "http",
    });
    let plugin = json!({ "id": "p0", "plugin_name": "response_cache", "config": config, "proxy_id": "a" });
    let mut spec = json!({ "proxies": [proxy], "plugin_configs": [plugin] });
    if config.get("redis").is_some() {
        spec["gateway"] = json!({ "redis": { "main": { "urls": ["redis://127.0.0.1:1"] } } });
    }
    let count = AtomicU32::new(0);
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), world)
        .answering(move |asked| answer(asked, count.fetch_add(1, Relaxed) + 1));
    trial.start(&Beside);
    trial
}

impl Side {
    /// Waits until so many responses have been written.
    async fn written(&self, count: i64) {
        until("responses are written", || metric(&self.world, WRITES, &["disk", "written"]) >= count).await;
    }

    /// Waits until the folder has been read, with so many responses in it.
    async fn holds(&self, count: i64) {
        let entries = "ferrum_response_cache_tier_entries";
        until("the folder is read", || metric(&self.world, entries, &["disk"]) == count).await;
    }

    fn lookups(&self, outcome: &str) -> i64 {
        metric(&self.world, LOOKUPS, &["disk", outcome])
    }

    async fn status_of(&self, path: &str) -> (String, String) {
        let got = self.trial.get(path, &[]).await;
        (got.text(), status(&got).to_owned())
    }
}

const FRESH: &[(&str, &str)] =
    &[("cache-control", "max-age=600"), ("x-kept", "yes"), ("vary", "accept-language")];

/// The files with responses, without the lock.
fn stored(folder: &Folder) -> Vec<PathBuf> {
    folder.files().into_iter().filter(|path| path.file_name().is_some_and(|name| name != "lock")).collect()
}

#[tokio::test]
async fn what_is_stored_survives_a_restart() {
    let folder = Folder::default();
    let first = side(&folder, &json!({}), FRESH);
    assert_eq!(first.status_of("/a").await.1, "ferrum-edge; fwd=uri-miss; stored");
    let german = first.trial.get("/a", &[("accept-language", "de")]).await;
    assert_eq!(german.text(), "answer 2");
    assert!(first.status_of("/a").await.1.ends_with("; detail=memory"));
    first.written(2).await;
    for path in [folder.0.join("p0"), folder.0.join("p0/00")] {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700, "{}", path.display());
    }
    drop(first);
    let second = side(&folder, &json!({}), FRESH);
    second.holds(2).await;
    let got = second.trial.get("/a", &[]).await;
    assert_eq!((got.text().as_str(), got.field("x-kept")), ("answer 1", "yes"));
    assert!(status(&got).starts_with("ferrum-edge; hit; ttl=") && status(&got).ends_with("; detail=disk"));
    assert!(second.status_of("/a").await.1.ends_with("; detail=memory"), "it is in memory again");
    let german =
        second.trial.get("/a", &[("accept-language", "de"), ("cache-control", "only-if-cached")]).await;
    assert_eq!(german.text(), "answer 2");
    let french = second.trial.get("/a", &[("accept-language", "fr")]).await;
    assert_eq!((french.text().as_str(), status(&french)), ("answer 1", "ferrum-edge; fwd=vary-miss; stored"));
    let head = second.trial.request("HEAD", "/a", &[], "").await;
    assert_eq!((head.status, head.field("content-length")), (200, "8"));
    assert_eq!((second.lookups("hit"), second.trial.asked().len()), (2, 1));
    let outcome = &second.trial.records()[0];
    assert!(outcome.fields.iter().any(|(name, _)| *name == "response_cache.tier"), "{outcome:?}");
}

#[tokio::test]
async fn a_damaged_file_is_never_served() {
    for damage in 0..6 {
        let folder = Folder::default();
        let first = side(&folder, &json!({}), FRESH);
        first.trial.get("/a", &[]).await;
        first.written(1).await;
        let path = stored(&folder).remove(0);
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        match damage {
            // A byte of the body, of the head, of the lengths; cut off; longer; empty.
            0 => *bytes.last_mut().unwrap() ^= 1,
            1 => bytes[100] ^= 1,
            2 => bytes[19] ^= 1,
            3 => bytes.truncate(whole.len() - 1),
            4 => bytes.push(b'x'),
            _ => bytes.clear(),
        }
        drop(first);
        fs::write(&path, &bytes).unwrap();
        let second = side(&folder, &json!({}), FRESH);
        // What shows in the head is removed at the start, the rest when it is read.
        until("the folder is read", || damage == 0 || !path.exists()).await;
        if damage == 0 {
            second.holds(1).await;
        }
        let got = second.status_of("/a").await;
        assert_eq!(got, ("answer 1".into(), "ferrum-edge; fwd=uri-miss; stored".into()), "damage {damage}");
        assert_eq!(second.trial.asked().len(), 1, "damage {damage}: the target was asked");
        assert_eq!(second.lookups("damaged"), i64::from(damage == 0));
        second.written(1).await;
        assert!(stored(&folder).iter().all(|known| fs::read(known).unwrap() != bytes), "damage {damage}");
    }
}

#[tokio::test]
async fn a_file_that_is_torn_while_it_is_known_is_not_served() {
    let folder = Folder::default();
    // Memory holds a few of them only, the disk all.
    let one = side(&folder, &json!({ "max_size": 400_000, "max_object": 100_000 }), FRESH);
    for n in 0..8 {
        one.trial.get(&format!("/big{n}"), &[]).await;
    }
    one.written(8).await;
    for path in stored(&folder) {
        let length = fs::metadata(&path).unwrap().len();
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length / 2).unwrap();
    }
    for n in 0..8 {
        let got = one.trial.get(&format!("/big{n}"), &[]).await;
        assert!(got.text().len() == 100_000 && !status(&got).contains("detail=disk"), "{}", status(&got));
    }
    assert!(one.lookups("damaged") > 0);
}

#[tokio::test]
async fn a_pipe_in_the_folder_holds_nothing_up() {
    let folder = Folder::default();
    let first = side(&folder, &json!({}), FRESH);
    first.trial.get("/a", &[]).await;
    first.written(1).await;
    let path = stored(&folder).remove(0);
    drop(first);
    fs::remove_file(&path).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
    let second = side(&folder, &json!({}), FRESH);
    second.trial.get("/b", &[]).await;
    second.written(1).await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_link_in_the_folder_leads_nowhere() {
    let (folder, other) = (Folder::default(), Folder::default());
    let one = side(&folder, &json!({}), FRESH);
    one.trial.get("/a", &[]).await;
    one.written(1).await;
    let (path, victim) = (stored(&folder).remove(0), other.0.join("victim"));
    fs::create_dir_all(&other.0).unwrap();
    fs::write(&victim, "not to be written to").unwrap();
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&victim, &path).unwrap();
    one.trial.act("response_cache", "purge", &json!({ "all": true, "soft": true })).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "not to be written to");
}

#[tokio::test]
async fn the_folder_never_takes_more_than_it_may() {
    let folder = Folder::default();
    let limits = json!({ "disk": { "path": folder.0, "max_size": "1MiB" } });
    let one = side(&folder, &limits, FRESH);
    for n in 0..30 {
        one.trial.get(&format!("/big{n}"), &[]).await;
        one.written(n + 1).await;
        let size: u64 = stored(&folder).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert!(size <= 1 << 20, "{size} bytes after {n}");
    }
    assert!(metric(&one.world, "ferrum_response_cache_tier_evictions_total", &["disk"]) >= 19);
    assert!(stored(&folder).len() >= 9, "it is used");
}

#[tokio::test]
async fn purges_and_invalidations_reach_the_disk() {
    let tagged: &[(&str, &str)] =
        &[("cache-control", "max-age=600"), ("cache-tag", "shop"), ("etag", "\"1\"")];
    let purges = [
        json!({ "url": "http://client.test/a" }),
        json!({ "prefix": "http://client.test/" }),
        json!({ "tag": "shop" }),
        json!({ "all": true }),
        json!({ "tag": "shop", "soft": true }),
    ];
    for purge in purges {
        let folder = Folder::default();
        let first = side(&folder, &json!({}), tagged);
        first.trial.get("/a", &[]).await;
        first.written(1).await;
        let done = first.trial.act("response_cache", "purge", &purge).unwrap();
        assert_eq!(done, json!({ "purged": 1, "memory": 1, "disk": 1 }), "{purge}");
        let soft = purge.get("soft").is_some();
        assert_eq!(stored(&folder).len(), usize::from(soft), "{purge}");
        drop(first);
        let second = side(&folder, &json!({}), tagged);
        second.holds(i64::from(soft)).await;
        second.trial.get("/a", &[]).await;
        let asked = second.trial.asked();
        assert_eq!(asked.len(), 1, "{purge}");
        assert_eq!(
            asked[0].field("if-none-match"),
            if soft { "\"1\"" } else { "" },
            "{purge}: it is validated"
        );
    }
    let folder = Folder::default();
    let one = side(&folder, &json!({}), tagged);
    one.trial.get("/a", &[]).await;
    one.written(1).await;
    one.trial.request("POST", "/a", &[], "").await;
    until("its file is removed", || stored(&folder).is_empty()).await;
}

#[tokio::test]
async fn a_folder_belongs_to_one_gateway_at_a_time() {
    let folder = Folder::default();
    let first = side(&folder, &json!({}), FRESH);
    first.trial.get("/a", &[]).await;
    first.written(1).await;
    let second = side(&folder, &json!({}), FRESH);
    assert_eq!(second.status_of("/a").await.1, "ferrum-edge; fwd=uri-miss; stored", "it goes on without");
    assert_eq!(stored(&folder).len(), 1);
    drop(first);
    second.written(1).await;
    until("what it replaces is removed", || stored(&folder).len() == 1).await;
}

#[tokio::test]
async fn a_disk_that_takes_nothing_costs_no_answer() {
    let folder = Folder::default();
    let one = side(&folder, &json!({}), FRESH);
    one.trial.get("/a", &[]).await;
    one.written(1).await;
    // As with a full disk, no file can be made any more.
    let place = folder.0.join("p0");
    for entry in fs::read_dir(&place).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        fs::remove_dir_all(entry.path()).unwrap();
        fs::write(entry.path(), "").unwrap();
    }
    for path in ["/b", "/c"] {
        assert_eq!(one.trial.get(path, &[]).await.status, 200);
        assert!(one.status_of(path).await.1.ends_with("detail=memory"));
    }
    until("failures are counted", || metric(&one.world, WRITES, &["disk", "failed"]) == 2).await;
    until("nothing more is counted", || {
        metric(&one.world, "ferrum_response_cache_tier_entries", &["disk"]) == 1
    })
    .await;
}

#[test]
fn what_cannot_be_is_refused() {
    for (config, at) in [
        (json!({ "disk": {} }), "config.disk"),
        (json!({ "disk": { "path": "" } }), "config.disk.path"),
        (json!({ "disk": { "path": "/x", "max_size": 1000 } }), "config.disk.max_size"),
        (json!({ "redis": { "name": "main", "on_error": "deny" } }), "config.redis"),
        (json!({ "redis": { "name": "main", "max_object": "17MiB" } }), "config.redis.max_object"),
        (json!({ "refresh_ahead_percent": 91 }), "config.refresh_ahead_percent"),
        (
            json!({ "warm_up": { "urls": ["http://a.test/"], "through": ["https://127.0.0.1"] } }),
            "config.warm_up.urls[0]",
        ),
        (json!({ "warm_up": { "urls": ["/a"], "through": ["http://127.0.0.1"] } }), "config.warm_up.urls[0]"),
        (json!({ "warm_up": { "through": ["http://127.0.0.1/x"] } }), "config.warm_up.through[0]"),
    ] {
        let problems = Trial::refused(PLUGINS, "response_cache", &config).to_string();
        assert!(problems.contains(at), "{config}: {problems}");
    }
}
