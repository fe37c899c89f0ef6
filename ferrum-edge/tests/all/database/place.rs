//! Gateways within the test's process, on databases of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferrum_edge::Gateway;
use ferrum_edge::admin::{Access, Role};
use ferrum_edge::core::config::model::Settings;
use ferrum_edge::source::database::{Database, Permitted};
use ferrum_edge::store::seal::Keys;
use ferrum_edge::store::{Location, Options};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, SqliteConnection};

use crate::client::{Answer, Client, until};

pub(crate) const ADMIN: &str = "admin-token-0123456789";
pub(crate) const WRITE: &str = "write-token-0123456789";
pub(crate) const READ: &str = "read-token-01234567890";
pub(crate) const JWT: &str = "a-secret-of-at-least-thirty-two-bytes";

/// A folder for one test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // In memory where that is possible: no test here is about what a disk keeps, and disks are slow at times.
        let memory = PathBuf::from("/dev/shm");
        let root = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let path = root.join(format!("ferrum-database-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.join("f.db")
    }

    /// The SQLite database of this folder.
    pub(crate) fn location(&self) -> Location {
        Location::sqlite(self.database())
    }

    /// Writes a row as somebody would by hand, as a revision of its own; without a document the row goes.
    pub(crate) fn by_hand(&self, kind: &str, id: &str, document: Option<&str>) {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let (kind, id) = (quoted(kind), quoted(id));
        let put = match document {
            Some(document) => format!(
                "INSERT OR REPLACE INTO ferrum_objects SELECT {kind}, {id}, {}, 0, 0, revision FROM ferrum_store;",
                quoted(document)
            ),
            None => format!("DELETE FROM ferrum_objects WHERE kind = {kind} AND id = {id};"),
        };
        self.sql(&format!(
            "BEGIN IMMEDIATE;
             UPDATE ferrum_store SET revision = revision + 1, changes = changes + 1;
             INSERT INTO ferrum_changes SELECT revision, {kind}, {id},
               (SELECT document FROM ferrum_objects WHERE kind = {kind} AND id = {id}) FROM ferrum_store;
             INSERT INTO ferrum_revisions
               SELECT revision, 0, 'hand', 'sql', '', 'hand-' || revision, 0, 1, 0, changes FROM ferrum_store;
             {put}
             COMMIT;"
        ));
    }

    /// Carries out statements beside the gateway.
    pub(crate) fn sql(&self, sql: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let url = format!("sqlite:{}", self.database().display());
            let mut connection = SqliteConnection::connect(&url).await.unwrap();
            connection.execute(AssertSqlSafe(sql)).await.unwrap();
            connection.close().await.unwrap();
        });
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A gateway and its clients.
pub(crate) struct Running {
    pub(crate) gateway: Gateway,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
}

pub(crate) fn access() -> Access {
    let mut access = Access::default();
    access.add_token(ADMIN, Role::Admin).unwrap();
    access.add_token(WRITE, Role::Write).unwrap();
    access.add_token(READ, Role::Read).unwrap();
    access.set_jwt(JWT, None).unwrap();
    access
}

impl Running {
    pub(crate) fn new(folder: &Folder) -> Self {
        Self::on(Self::database(folder.location()))
    }

    pub(crate) fn database(location: Location) -> Database {
        let keys = Keys::parse(&"ab".repeat(32)).unwrap();
        let references = Permitted::default();
        Database { location, options: Options::default(), keys, references, mirror: None, access: access() }
    }

    pub(crate) fn on(database: Database) -> Self {
        Self::with(database, Settings::default())
    }

    /// As [`Self::on`], with these settings beside its own listeners and workers.
    pub(crate) fn with(database: Database, settings: Settings) -> Self {
        let http = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let stream_address = [127, 0, 0, 1].into();
        let settings = Settings { http, https: None, stream_address, workers: 2, ..settings };
        let gateway = Gateway::start_database(Arc::new(settings), database, ferrum_edge::plugins()).unwrap();
        let admin = gateway.serve_admin(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Self { http: gateway.addresses().http.unwrap(), gateway, admin }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.http)
    }

    pub(crate) fn api(&self) -> Api {
        Api { client: Client::new(self.admin), token: ADMIN.to_owned() }
    }

    /// Waits until everything in the store so far is served.
    pub(crate) fn follows(&self, revision: u64) {
        until("the revision is served", || self.gateway.snapshot().revision >= revision);
    }

    pub(crate) fn status(&self) -> Value {
        self.api().get("/v1/status").json()
    }

    /// Proxies that are served.
    pub(crate) fn snapshot_count(&self) -> usize {
        self.gateway.snapshot().by_id.len()
    }

    /// The ids of what can't be used, each with its kind.
    pub(crate) fn broken(&self) -> Vec<String> {
        let status = self.status();
        let named = |object: &Value| format!("{}/{}", text(&object["kind"]), text(&object["id"]));
        status["database"]["broken"].as_array().unwrap().iter().map(named).collect()
    }
}

/// Somebody who may use the admin API.
pub(crate) struct Api {
    pub(crate) client: Client,
    pub(crate) token: String,
}

impl Api {
    pub(crate) fn with(&mut self, token: &str) -> &mut Self {
        token.clone_into(&mut self.token);
        self
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, head: &str, body: &[u8]) -> Answer {
        let head = format!("authorization: Bearer {}\r\n{head}", self.token);
        self.client.ask(method, path, &head, body)
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path, "", b"")
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, body: &Value) -> Answer {
        self.ask(method, path, "", body.to_string().as_bytes())
    }

    /// Sends what has to be taken.
    pub(crate) fn good(&mut self, method: &str, path: &str, body: &Value) -> Answer {
        let answer = self.send(method, path, body);
        assert!((200..300).contains(&answer.status), "{method} {path} {body}: {answer:?}");
        answer
    }

    pub(crate) fn batch(&mut self, body: &Value) -> Answer {
        self.good("POST", "/v1/batch", body)
    }

    pub(crate) fn delete(&mut self, path: &str) -> Answer {
        self.ask("DELETE", path, "", b"")
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// A proxy to this target.
pub(crate) fn proxy(id: &str, path: &str, target: SocketAddr) -> Value {
    json!({
        "id": id, "listen_path": path, "backend_scheme": "http",
        "backend_host": "127.0.0.1", "backend_port": target.port(),
    })
}

pub(crate) fn key_auth(id: &str, proxy: &str) -> Value {
    json!({ "id": id, "plugin_name": "key_auth", "proxy_id": proxy })
}

pub(crate) fn consumer(id: &str, keys: &[&str]) -> Value {
    let keys: Vec<Value> = keys.iter().map(|key| json!({ "key": key })).collect();
    json!({ "id": id, "username": id, "credentials": { "key_auth": keys } })
}

/// A proxy `a` at `/a` that only ann's key `ann-key` opens.
pub(crate) fn protected(target: SocketAddr) -> Value {
    json!({
        "consumers": [consumer("ann", &["ann-key"])],
        "proxies": [proxy("a", "/a", target)],
        "plugin_configs": [key_auth("a-key", "a")],
    })
}
