//! Control planes and edges as child processes.

use std::cell::Cell;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::process::{Folder, Gateway, TIMEOUT, ferrum_edge, until};

const TOKEN: &str = "a-token-of-the-fleet-tests";
const KEY: &str = "0000000000000000000000000000000000000000000000000000000000000001";

/// A control plane.
pub(crate) struct Plane {
    location: String,
    pub(crate) folder: Folder,
    pub(crate) gateway: Gateway,
    /// The revision that was written last.
    written: Cell<u64>,
}

/// How a control plane is started.
fn plane(folder: &Folder, location: &str, listen: &str) -> Gateway {
    folder.write("ferrum.yaml", "gateway: { admin: '127.0.0.1:0' }\n");
    Gateway::start(folder, |command| {
        command.args(["--mode", "control-plane", "--db-url", location]);
        command.env("FERRUM_ADMIN_TOKEN", TOKEN).env("FERRUM_DB_ENCRYPTION_KEY", KEY);
        command.env("FERRUM_FLEET_LISTEN", listen);
        // An authority of the operator's, where the folder has one.
        if folder.path("ca.pem").exists() {
            command.env("FERRUM_FLEET_CA_CERT_FILE", folder.path("ca.pem"));
            command.env("FERRUM_FLEET_CA_KEY_FILE", folder.path("ca.key"));
        }
        command.env("FERRUM_DB_REFERENCES", "env:FLEET_TEST_*").env("FLEET_TEST_HOST", "127.0.0.1");
    })
}

impl Plane {
    /// One on SQLite.
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let location = format!("sqlite:{}", folder.path("fleet.db").display());
        Self::start(folder, location)
    }

    /// One with an authority of the operator's, in PEM.
    pub(crate) fn with_authority(certificates: &str, key: &str) -> Self {
        let folder = Folder::new();
        folder.write("ca.pem", certificates);
        folder.write("ca.key", key);
        let location = format!("sqlite:{}", folder.path("fleet.db").display());
        Self::start(folder, location)
    }

    /// One on this database.
    pub(crate) fn on(location: &str) -> Self {
        Self::start(Folder::new(), location.to_owned())
    }

    fn start(folder: Folder, location: String) -> Self {
        let gateway = plane(&folder, &location, "127.0.0.1:0");
        Self { location, folder, gateway, written: Cell::default() }
    }

    /// Another one on the same database.
    pub(crate) fn beside(&self) -> Self {
        Self::on(&self.location)
    }

    /// For `proto_bench`, without its process: that is no release build.
    pub(crate) fn under_test(&self) -> proto_bench::fleet::ControlPlane {
        proto_bench::fleet::ControlPlane::new(self.gateway.admin, TOKEN.to_owned(), None)
    }

    /// Where edges are listened for.
    pub(crate) fn listening(&self) -> String {
        self.gateway.status()["fleet"]["listening"].as_str().unwrap().to_owned()
    }

    /// Starts again where it was.
    pub(crate) fn restart(&mut self, listening: &str) {
        self.gateway = plane(&self.folder, &self.location, listening);
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let head = format!("authorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Client::new(self.gateway.admin).ask(method, path, &head, body.as_bytes())
    }

    /// Writes a batch; it has to be taken.
    pub(crate) fn write(&self, batch: &Value) -> u64 {
        let answer = self.ask("POST", "/v1/batch", batch);
        assert_eq!(answer.status, 200, "{answer:?}");
        let revision = answer.json()["revision"].as_u64().unwrap();
        self.written.set(revision);
        revision
    }

    pub(crate) fn fleet(&self) -> Value {
        self.ask("GET", "/v1/fleet", &Value::Null).json()
    }

    /// What is known of an edge.
    pub(crate) fn edge(&self, name: &str) -> Value {
        let fleet = self.fleet();
        let edges = fleet["edges"].as_array().unwrap();
        edges.iter().find(|edge| edge["name"] == name).cloned().unwrap_or_default()
    }

    pub(crate) fn invite(&self, name: &str, group: &str) -> String {
        let answer = self.ask("POST", "/v1/fleet/invitations", &json!({ "name": name, "group": group }));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["invitation"].as_str().unwrap().to_owned()
    }

    /// Runs a subcommand of `fleet`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Output {
        let mut command = ferrum_edge(&self.folder);
        let admin = self.gateway.admin.to_string();
        command.arg("fleet").args(arguments).args(["--admin", &admin]).env("FERRUM_ADMIN_TOKEN", TOKEN);
        command.output().unwrap()
    }

    /// Forgets what was written before a restore.
    pub(crate) fn forget(&self) {
        self.written.set(0);
    }

    /// Waits until an edge serves the newest configuration of its group.
    pub(crate) fn until_served(&self, name: &str) {
        let mut last = Value::Null;
        until("the edge serves the newest configuration", || {
            last = self.edge(name);
            // The control plane itself may not have read the newest revision yet.
            let newest = last["newest"]["revision"].as_u64();
            newest >= Some(self.written.get()) && last["standing"] == "served"
        });
    }
}

/// A gateway that gets its configuration from a control plane.
pub(crate) struct Edge {
    pub(crate) folder: Folder,
    pub(crate) gateway: Gateway,
}

impl Edge {
    /// Starts one that was invited.
    pub(crate) fn start(invitation: &str) -> Self {
        Self::start_with(Folder::new(), |command| {
            command.env("FERRUM_EDGE_INVITATION", invitation);
        })
    }

    pub(crate) fn start_with(folder: Folder, adjust: impl FnOnce(&mut Command)) -> Self {
        let spec = "gateway: { http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 2 }\n";
        folder.write("ferrum.yaml", spec);
        let gateway = Self::run(&folder, adjust);
        Self { folder, gateway }
    }

    fn run(folder: &Folder, adjust: impl FnOnce(&mut Command)) -> Gateway {
        Gateway::start(folder, |command| {
            command.args(["--mode", "edge"]).env("FERRUM_EDGE_STATE", folder.path("state"));
            adjust(command);
        })
    }

    /// Kills it, and starts it again from its disk.
    pub(crate) fn restart(&mut self) {
        self.restart_with(|_| {});
    }

    /// The same, started otherwise.
    pub(crate) fn restart_with(&mut self, adjust: impl FnOnce(&mut Command)) {
        self.gateway.signal("KILL");
        self.gateway.wait();
        self.gateway = Self::run(&self.folder, adjust);
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        Client::new(self.gateway.http).get(path, None)
    }

    pub(crate) fn get_with(&self, path: &str, key: &str) -> Answer {
        Client::new(self.gateway.http).get(path, Some(key))
    }

    /// What it says of itself.
    pub(crate) fn standing(&self) -> Value {
        self.gateway.status()["fleet"].clone()
    }

    /// Waits until it answers so.
    pub(crate) fn until_answers(&self, path: &str, text: &str) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let answer = self.get(path).text;
            if answer == text {
                return;
            }
            let log = || self.gateway.log();
            assert!(
                Instant::now() < deadline,
                "{path} is {answer}, not {text}: {} {}",
                self.standing(),
                log()
            );
            thread::park_timeout(Duration::from_millis(5));
        }
    }
}

/// A batch that answers `text` below `path`.
pub(crate) fn answering(id: &str, path: &str, text: &str) -> Value {
    json!({
        "plugin_configs": [{
            "id": format!("answer-{id}"), "plugin_name": "request_termination", "scope": "proxy_group",
            "config": { "status_code": 200, "content_type": "text/plain", "body": text },
        }],
        "proxies": [proxy(id, path, &format!("answer-{id}"))],
    })
}

pub(crate) fn proxy(id: &str, path: &str, plugin: &str) -> Value {
    json!({
        "id": id, "listen_path": path, "backend_scheme": "http", "backend_host": "127.0.0.1",
        "backend_port": 9, "plugins": [{ "plugin_config_id": plugin }],
    })
}
