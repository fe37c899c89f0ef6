//! SQLite's files: missing, damaged, held by others, replaced, full.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use ferrum_edge::store::{Engine, Location, ObjectKind, Options, Store, StoreError};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor};

use crate::store::place::{Folder, Place, all, ann, options, put, refused, write};

fn file(place: &Place) -> PathBuf {
    place.url.strip_prefix("sqlite:").unwrap().into()
}

#[tokio::test]
async fn only_this_user_may_read_it() {
    let (place, store) = Place::new(Engine::Sqlite).await;
    write(&store, vec![put(ObjectKind::Proxies, "p", "{}")]).await;
    let path = file(&place);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    assert_eq!(mode(&path.with_extension("db-wal")), 0o600);
}

#[tokio::test]
async fn what_is_no_database_says_so() {
    let folder = Folder::new();
    let path = folder.path().join("ferrum.db");
    fs::write(&path, "proxies: []\n".repeat(500)).unwrap();
    let store = Store::open(Location::sqlite(&path), options());
    for error in [store.revision().await.unwrap_err(), store.migrate().await.unwrap_err()] {
        assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap().len(), 6000);
    // A folder, and a path through a file.
    for path in [folder.path().to_owned(), path.join("deeper.db")] {
        let store = Store::open(Location::sqlite(path), options());
        let error = store.migrate().await.unwrap_err();
        assert!(matches!(error, StoreError::Open { .. }), "{error}");
    }
}

/// Another copy of a store's file, without its log.
async fn settled(place: &Place) -> PathBuf {
    place.raw("PRAGMA wal_checkpoint(TRUNCATE)").await;
    let copy = file(place).with_file_name("copy.db");
    fs::copy(file(place), &copy).unwrap();
    copy
}

#[tokio::test]
async fn a_damaged_file_is_noticed_when_it_is_opened() {
    let (place, store) = Place::new(Engine::Sqlite).await;
    let steps = (0..2000).map(|n| put(ObjectKind::Proxies, &n.to_string(), "x".repeat(300)));
    write(&store, steps.collect()).await;
    let whole = settled(&place).await;
    assert_eq!(all(&Store::open(Location::sqlite(&whole), options())).await.len(), 2000);
    for damage in ["overwritten", "cut"] {
        let mut bytes = fs::read(&whole).unwrap();
        let half = bytes.len() / 2;
        match damage {
            "cut" => bytes.truncate(half),
            _ => bytes[half..half + 40_000].fill(0x5a),
        }
        let path = whole.with_file_name(damage);
        fs::write(&path, bytes).unwrap();
        let damaged = Store::open(Location::sqlite(&path), options());
        for error in [damaged.revision().await.unwrap_err(), refused(damaged.begin(ann()).await)] {
            assert!(matches!(error, StoreError::Corrupt { .. }), "{damage}: {error}");
            assert!(error.remedy().contains("backup"));
        }
        // A good copy in its place is all it takes.
        fs::rename(&path, path.with_extension("bad")).unwrap();
        fs::copy(&whole, &path).unwrap();
        assert_eq!(damaged.revision().await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_file_that_is_gone_or_another_is_noticed() {
    let (place, store) = Place::new(Engine::Sqlite).await;
    write(&store, vec![put(ObjectKind::Proxies, "p", "1")]).await;
    let copy = settled(&place).await;
    write(&store, vec![put(ObjectKind::Proxies, "p", "2")]).await;
    let path = file(&place);
    fs::rename(&path, path.with_extension("gone")).unwrap();
    for error in [store.revision().await.unwrap_err(), refused(store.begin(ann()).await)] {
        assert!(matches!(error, StoreError::NoFile(_)), "{error}");
    }
    // The log belongs to the file that went.
    for end in ["db-wal", "db-shm"] {
        drop(fs::remove_file(path.with_extension(end)));
    }
    fs::rename(copy, &path).unwrap();
    assert_eq!(store.revision().await.unwrap(), 1);
    assert_eq!(write(&store, vec![put(ObjectKind::Proxies, "p", "3")]).await, 2);
    assert_eq!(store.get(ObjectKind::Proxies, "p").await.unwrap().unwrap().document, "3");
}

#[tokio::test]
async fn a_file_others_hold_is_busy_until_they_let_go() {
    let (place, store) = Place::new(Engine::Sqlite).await;
    write(&store, vec![put(ObjectKind::Proxies, "p", "1")]).await;
    let impatient = place.open(Options { busy_timeout: Duration::from_millis(200), ..options() });
    let mut other = place.url.parse::<SqliteConnectOptions>().unwrap().connect().await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let error = refused(impatient.begin(ann()).await);
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    assert_eq!(impatient.revision().await.unwrap(), 1);
    other.execute("COMMIT").await.unwrap();
    other.close().await.unwrap();
    drop(impatient.begin(ann()).await.unwrap());
    drop((store, impatient));
    // The whole file, so that nobody may even read.
    let mut other = place.url.parse::<SqliteConnectOptions>().unwrap().connect().await.unwrap();
    other.execute("PRAGMA locking_mode = EXCLUSIVE").await.unwrap();
    let mut tries = 0;
    // Connections of the stores that went may still be closing.
    while let Err(error) = other.execute("BEGIN EXCLUSIVE; COMMIT").await {
        tries += 1;
        assert!(tries < 1000, "{error}");
        tokio::task::yield_now().await;
    }
    let impatient = place.open(Options { busy_timeout: Duration::from_millis(200), ..options() });
    let error = impatient.revision().await.unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    other.close().await.unwrap();
    assert_eq!(impatient.revision().await.unwrap(), 1);
}

#[tokio::test]
async fn a_full_disk_loses_nothing() {
    let (place, store) = Place::new(Engine::Sqlite).await;
    write(&store, vec![put(ObjectKind::Proxies, "p", "1")]).await;
    let small = place.open(Options { max_bytes: Some(200 << 10), ..options() });
    let batch =
        |n: u64| (0..50).map(move |id| put(ObjectKind::Consumers, &format!("{n}-{id}"), "x".repeat(500)));
    let mut last = 1;
    let error = loop {
        let mut change = small.begin(ann()).await.unwrap();
        let put = change.put(batch(last).collect()).await;
        let done = match put {
            Ok(_) => change.commit("").await,
            Err(error) => {
                // What comes after the failure must not be written outside of the transaction.
                assert!(matches!(change.commit("").await, Err(StoreError::Broken)));
                Err(error)
            }
        };
        match done {
            Ok(revision) => last = revision,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    assert!(error.is_passing());
    assert_eq!(small.revision().await.unwrap(), last);
    assert_eq!(all(&store).await.len() as u64, 1 + 50 * (last - 1));
    // There is room again.
    assert_eq!(write(&store, batch(last).collect()).await, last + 1);
}
