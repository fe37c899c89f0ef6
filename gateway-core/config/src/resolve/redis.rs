//! Redis and Valkey servers that plugins refer to by name.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use serde_json::Value;

use super::{Notes, words};
use crate::file;
use crate::model::{RedisLogin, RedisMode, RedisServer, RedisServers};

/// The connections of one gateway.
const MAX_SERVERS: usize = 64;
/// Characters of a connection's name.
const MAX_NAME: usize = 64;

/// Resolves every connection.
pub(super) fn servers(
    notes: &mut Notes<'_>,
    written: Option<&BTreeMap<String, file::Redis>>,
    folder: &Path,
) -> RedisServers {
    let Some(written) = written else { return RedisServers::default() };
    if written.len() > MAX_SERVERS {
        notes.add("redis", format!("there are more than {MAX_SERVERS} connections"));
    }
    let mut servers = BTreeMap::new();
    for (name, one) in written {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_plain) {
            notes.add("redis", format!("`{name}` can't be a connection's name")).remedy =
                Some(format!("up to {MAX_NAME} letters, digits, `-`, `_` and `.`"));
        }
        let dot = if notes.at.is_empty() { "" } else { "." };
        let at = format!("{}{dot}redis.{name}", notes.at);
        let mut own = Notes::new(&at);
        servers.insert(Box::from(name.as_str()), Arc::new(server(&mut own, one, folder)));
        notes.problems.extend(own.problems.0);
    }
    Arc::new(servers)
}

fn server(notes: &mut Notes<'_>, written: &file::Redis, folder: &Path) -> RedisServer {
    let is_encrypted = urls(notes, written);
    let (mode, master) = (written.mode.unwrap_or(file::RedisMode::Single), written.master_name.as_deref());
    if (mode == file::RedisMode::Sentinel) != master.is_some() {
        notes.add("master_name", "it is given with `mode: sentinel`, and only then");
    }
    if mode == file::RedisMode::Cluster && written.database.is_some_and(|number| number != 0) {
        notes.add("database", "a cluster has no other database than 0");
    }
    let sentinel = [
        ("sentinel_username", &written.sentinel_username),
        ("sentinel_password", &written.sentinel_password),
    ];
    for (key, _) in
        sentinel.into_iter().filter(|(_, value)| mode != file::RedisMode::Sentinel && value.is_some())
    {
        notes.add(key, "there are no sentinels without `mode: sentinel`");
    }
    let certificates = [
        ("ca_path", &written.ca_path),
        ("client_cert_path", &written.client_cert_path),
        ("client_key_path", &written.client_key_path),
    ];
    for (key, _) in certificates.into_iter().filter(|(_, path)| !is_encrypted && path.is_some()) {
        notes.add(key, "nothing is encrypted: the URLs begin with `redis://`");
    }
    if written.client_cert_path.is_some() != written.client_key_path.is_some() {
        notes.add("client_cert_path", "`client_cert_path` and `client_key_path` go together");
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    let prefix = written.key_prefix.as_deref().unwrap_or("ferrum");
    if !prefix.chars().all(is_plain) {
        notes.add("key_prefix", "it may have letters, digits, `-`, `_`, `.` and `:`");
    }
    let path = |text: &String| words::file_path(folder, text);
    let files = written.client_cert_path.as_ref().zip(written.client_key_path.as_ref());
    RedisServer {
        urls: written.urls.iter().map(|url| Box::from(url.as_str())).collect(),
        mode: match mode {
            file::RedisMode::Single => RedisMode::Single,
            file::RedisMode::Cluster => RedisMode::Cluster,
            file::RedisMode::Sentinel => RedisMode::Sentinel(master.unwrap_or_default().into()),
        },
        login: login(notes, "username", &written.username, &written.password),
        sentinel_login: login(
            notes,
            "sentinel_username",
            &written.sentinel_username,
            &written.sentinel_password,
        ),
        database: written.database.unwrap_or(0),
        is_encrypted,
        ca_path: written.ca_path.as_ref().map(path),
        client_cert: files.map(|(cert, key)| (path(cert), path(key))),
        timeout: words::millis(written.timeout, Duration::from_millis(100)),
        connect_timeout: words::millis(written.connect_timeout, Duration::from_secs(2)),
        key_prefix: prefix.into(),
    }
}

/// Checks the URLs, and says whether TLS is spoken.
fn urls(notes: &mut Notes<'_>, written: &file::Redis) -> bool {
    for (n, url) in written.urls.iter().enumerate() {
        if let Err(why) = checked(url) {
            notes.add(&format!("urls[{n}]"), why).remedy =
                Some("write `redis://HOST:PORT` or `rediss://HOST:PORT`".to_owned());
        }
    }
    let encrypted = written.urls.iter().filter(|url| url.starts_with("rediss://")).count();
    match (written.urls.len(), written.mode) {
        (0, _) => drop(notes.add("urls", "no server is given")),
        (many, _) if encrypted != 0 && encrypted != many => {
            notes.add("urls", "some are encrypted and some are not");
        }
        (many, None | Some(file::RedisMode::Single)) if many > 1 => {
            notes.add("urls", "there is one server with `mode: single`");
        }
        _ => {}
    }
    encrypted > 0
}

fn checked(url: &str) -> Result<(), &'static str> {
    let rest = url.strip_prefix("redis://").or_else(|| url.strip_prefix("rediss://"));
    let rest = rest.ok_or("this is not a URL of Redis")?;
    if rest.contains('@') {
        return Err("a URL here must not carry a user name or password");
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#']) {
        return Err("the database and options are settings of their own");
    }
    let authority: Authority = rest.parse().map_err(|_| "this is not a host with a port")?;
    let (host, port) = (authority.host(), rest.get(authority.host().len()..).unwrap_or_default());
    let is_port = |text: &str| text.parse::<u16>().is_ok_and(|port| port > 0);
    if host.is_empty() || !(port.is_empty() || port.strip_prefix(':').is_some_and(is_port)) {
        return Err("this is not a host with a port");
    }
    Ok(())
}

fn login(
    notes: &mut Notes<'_>,
    key: &str,
    username: &Option<String>,
    password: &Option<String>,
) -> Option<RedisLogin> {
    if username.is_some() && password.is_none() {
        notes.add(key, "there is no password");
    }
    let username = username.as_deref().map(Box::from);
    password.as_deref().map(|password| RedisLogin { username, password: password.into() })
}

/// The connection that a plugin's settings name: `redis: {name: …}`.
pub(crate) fn named(config: &Value) -> Option<&str> {
    config.get("redis")?.get("name")?.as_str()
}

/// Notes a connection that a plugin's settings name and that does not exist.
pub(super) fn check(notes: &mut Notes<'_>, config: &Value, servers: &RedisServers) {
    let Some(name) = named(config).filter(|name| !servers.contains_key(*name)) else { return };
    let near = words::did_you_mean(name, servers.keys().map(|name| &**name));
    let remedy = near.unwrap_or_else(|| format!("describe the servers under `gateway.redis.{name}`"));
    notes.add("config.redis.name", format!("there is no connection `{name}` in `gateway.redis`")).remedy =
        Some(remedy);
}
