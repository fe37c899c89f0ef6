//! Redis servers that each test starts for itself, and gateways that use them.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use gateway_core::config::file::Gateway;
use gateway_core::config::model::RedisServers;
use gateway_core::config::resolve::{ObjectPlace, settings};
use gateway_core::plugin::World;
use serde_json::{Value, json};

use super::{RedisConfig, RedisLink};

/// The connection `main` of `gateway.redis` with these settings.
pub fn servers(settings_of_main: &Value) -> RedisServers {
    let gateway: Gateway =
        serde_json::from_value(json!({ "redis": { "main": settings_of_main } })).expect("settings");
    settings(&gateway, ObjectPlace { at: "gateway", folder: Path::new("") })
        .unwrap_or_else(|p| panic!("{p}"))
        .redis
        .expect("settings or a program")
}

/// Settings of a connection to a server on this port that waits for long.
pub fn at(port: u16) -> Value {
    json!({ "urls": [format!("redis://127.0.0.1:{port}")], "timeout": "10s" })
}

/// What a plugin writes to use the connection `main`.
pub fn main_connection() -> RedisConfig {
    serde_json::from_value(json!({ "name": "main" })).expect("settings")
}

/// A plugin's side of the connection to a server on this port.
pub fn link(port: u16) -> RedisLink {
    let world = World::default();
    world.use_redis(Some(&servers(&at(port))));
    RedisLink::new(&main_connection(), &world)
}

/// A server, ended and its folder removed when dropped.
pub struct Redis {
    child: Child,
    pub port: u16,
    folder: PathBuf,
}

impl Redis {
    /// Freezes it, or has it go on: it takes connections and does not answer.
    pub fn freeze(&self, is_frozen: bool) {
        let signal = if is_frozen { "-STOP" } else { "-CONT" };
        let sent =
            Command::new("kill").args([signal, &self.child.id().to_string()]).status().expect("a program");
        assert!(sent.success());
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

pub fn folder() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("ferrum-redis-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn found() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("redis-server").is_file())
}

/// Starts a server and waits until it says that it is ready.
pub fn start(folder: PathBuf, port: u16, arguments: &[String], ready: &str) -> Redis {
    assert!(found(), "redis-server is not installed: `cargo xtask prepare` installs what tests need");
    let mut child = Command::new("redis-server")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("a program");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut said = String::new();
    let is_ready = lines.by_ref().map_while(Result::ok).any(|line| {
        said.push_str(&line);
        said.push('\n');
        line.contains(ready)
    });
    let redis = Redis { child, port, folder };
    assert!(is_ready, "{said}");
    // What it says further must not fill the pipe up.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    redis
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port()
}

pub const READY: &str = "Ready to accept connections";

pub fn redis(more: &[&str]) -> Redis {
    redis_at(free_port(), more)
}

pub fn redis_at(port: u16, more: &[&str]) -> Redis {
    let folder = folder();
    let (number, place) = (port.to_string(), folder.display().to_string());
    let mut arguments =
        vec!["--port", &number, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", &place];
    arguments.extend(more);
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    start(folder, port, &arguments, READY)
}
