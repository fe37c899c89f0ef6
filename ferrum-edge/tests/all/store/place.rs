//! Databases for tests: each test has its own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrum_edge::store::{
    Author, Engine, Location, Object, ObjectKind, Op, Options, Store, StoreError, Transaction,
};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};

use crate::servers::{Server, shared};

/// A database, empty to begin with.
pub(crate) struct Place {
    pub(crate) engine: Engine,
    pub(crate) url: String,
    _folder: Option<Folder>,
}

/// A folder for one test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("ferrum-store-{}-{}", std::process::id(), number()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn number() -> u32 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

impl Place {
    /// A database without tables.
    pub(crate) async fn bare(engine: Engine) -> Self {
        if engine == Engine::Sqlite {
            let folder = Folder::new();
            let url = format!("sqlite:{}/data/ferrum.db", folder.path().display());
            return Self { engine, url, _folder: Some(folder) };
        }
        Self::within(shared(engine)).await
    }

    /// A database of this server.
    pub(crate) async fn within(server: &Server) -> Self {
        let name = format!("test_{}", number());
        let create = format!("CREATE DATABASE {name}");
        let outside = if server.engine == Engine::Postgres { "postgres" } else { "mysql" };
        raw(server.engine, &server.url(outside), &create).await;
        Self { engine: server.engine, url: server.url(&name), _folder: None }
    }

    /// A database with tables, and a store on it.
    pub(crate) async fn new(engine: Engine) -> (Self, Store) {
        let place = Self::bare(engine).await;
        let store = place.open(options());
        store.migrate().await.unwrap();
        (place, store)
    }

    pub(crate) fn open(&self, options: Options) -> Store {
        Store::open(Location::parse(Some(&self.url), None).unwrap(), options)
    }

    /// Carries out statements beside the store.
    pub(crate) async fn raw(&self, sql: &str) {
        raw(self.engine, &self.url, sql).await;
    }
}

async fn raw(engine: Engine, url: &str, sql: &str) {
    let sql = || sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
    match engine {
        Engine::Sqlite => {
            let options: sqlx::sqlite::SqliteConnectOptions = url.parse().unwrap();
            let mut link = options.connect().await.unwrap();
            link.execute(sql()).await.unwrap();
            link.close().await.unwrap();
        }
        Engine::Postgres => {
            let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
            options.connect().await.unwrap().execute(sql()).await.unwrap();
        }
        Engine::MySql => {
            let options: sqlx::mysql::MySqlConnectOptions = url.parse().unwrap();
            options.connect().await.unwrap().execute(sql()).await.unwrap();
        }
    }
}

/// Waits that a slow machine does not run into, save where a test means to.
pub(crate) fn options() -> Options {
    Options { busy_timeout: Duration::from_secs(60), ..Options::default() }
}

pub(crate) fn ann() -> Author {
    Author { name: "ann".to_owned(), source: "test".to_owned() }
}

pub(crate) fn put(kind: ObjectKind, id: &str, document: impl Into<String>) -> Op {
    Op::Put { kind, id: id.to_owned(), document: document.into() }
}

pub(crate) fn delete(kind: ObjectKind, id: &str) -> Op {
    Op::Delete { kind, id: id.to_owned() }
}

/// One change of these steps.
pub(crate) async fn write(store: &Store, ops: Vec<Op>) -> u64 {
    let mut change = store.begin(ann()).await.unwrap();
    change.put(ops).await.unwrap();
    change.commit("").await.unwrap()
}

/// Everything, in the order it is loaded.
pub(crate) async fn all(store: &Store) -> Vec<Object> {
    let mut objects = Vec::new();
    store.load(|object| objects.push(object)).await.unwrap();
    objects
}

/// Kind, id and document of each.
pub(crate) fn brief(objects: &[Object]) -> Vec<(ObjectKind, &str, &str)> {
    objects.iter().map(|it| (it.kind, it.id.as_str(), it.document.as_str())).collect()
}

/// Why a change can't begin.
pub(crate) fn refused(begun: Result<Transaction, StoreError>) -> StoreError {
    begun.err().expect("an error")
}
