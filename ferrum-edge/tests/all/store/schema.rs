//! The tables, and those that are not there or not ours.

use std::time::Duration;

use ferrum_edge::store::{Engine, Migrated, ObjectKind, Options, StoreError};
use sqlx::{ConnectOptions, Executor};

use crate::store::place::{Place, ann, options, put, refused, write};

pub(crate) async fn migrating_twice_and_at_once_is_migrating(engine: Engine) {
    let place = Place::bare(engine).await;
    let stores = [place.open(options()), place.open(options()), place.open(options())];
    let steps = stores[0].pending_migrations().await.unwrap();
    assert_eq!(steps[..2], ["store", "audit"]);
    let to = u32::try_from(steps.len()).unwrap();
    let (a, b, c) = tokio::join!(stores[0].migrate(), stores[1].migrate(), stores[2].migrate());
    let mut from = [a, b, c].map(|done| done.unwrap().from);
    from.sort_unstable();
    assert_eq!(from, [0, to, to]);
    assert_eq!(stores[0].pending_migrations().await.unwrap(), [""; 0]);
    write(&stores[0], vec![put(ObjectKind::Proxies, "p", "{}")]).await;
    assert_eq!(stores[1].migrate().await.unwrap(), Migrated { from: to, to });
    assert_eq!(stores[2].count(ObjectKind::Proxies).await.unwrap(), 1);
}

/// While somebody holds a fresh file, SQLite refuses the switch to its log at once; it is waited for all the same.
#[tokio::test]
async fn a_fresh_sqlite_file_that_somebody_holds_is_waited_for() {
    let place = Place::bare(Engine::Sqlite).await;
    let path = place.open(options()).location().path().unwrap().to_owned();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::File::create(&path).unwrap();
    let mut other = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    other.execute("BEGIN IMMEDIATE; CREATE TABLE held (id INTEGER)").await.unwrap();
    let impatient = Options { busy_timeout: Duration::from_millis(50), ..options() };
    let error = place.open(impatient).migrate().await.unwrap_err();
    assert!(matches!(error, StoreError::Busy { waited } if !waited.is_zero()), "{error}");
    // Another file tells how many steps there are.
    let fresh = Place::bare(Engine::Sqlite).await;
    let steps = fresh.open(options()).pending_migrations().await.unwrap().len();
    let store = place.open(options());
    let mut migrating = tokio::spawn(async move { store.migrate().await });
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut migrating).await.is_err());
    other.execute("ROLLBACK").await.unwrap();
    assert_eq!(migrating.await.unwrap().unwrap(), Migrated { from: 0, to: u32::try_from(steps).unwrap() });
}

pub(crate) async fn a_newer_schema_is_refused(engine: Engine) {
    let (place, store) = Place::new(engine).await;
    place.raw("INSERT INTO ferrum_migrations (version, name) VALUES (99, 'later')").await;
    let other = place.open(options());
    let errors = [
        other.revision().await.unwrap_err(),
        refused(other.begin(ann()).await),
        other.migrate().await.unwrap_err(),
        other.pending_migrations().await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, StoreError::NewerSchema { found: 99, .. }), "{error}");
        assert!(error.remedy().contains("newer"));
    }
    drop(store);
}

pub(crate) async fn without_tables_it_says_what_to_do(engine: Engine) {
    let place = Place::bare(engine).await;
    let store = place.open(options());
    for error in [store.revision().await.unwrap_err(), refused(store.begin(ann()).await)] {
        match engine {
            Engine::Sqlite => assert!(matches!(error, StoreError::NoFile(_)), "{error}"),
            _ => assert!(matches!(error, StoreError::NotMigrated { found: 0, .. }), "{error}"),
        }
        assert!(error.remedy().contains("ferrum-edge migrate"));
    }
    // The same store works once they are there.
    place.open(options()).migrate().await.unwrap();
    assert_eq!(store.revision().await.unwrap(), 0);
}
