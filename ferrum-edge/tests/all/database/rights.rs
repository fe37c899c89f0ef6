//! Each endpoint of the API's description × each role and grant × own and other objects: allowed or refused.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::database::grants::token_of;
use crate::database::place::{Api, Folder, Running, proxy};

/// Endpoints that the callers' grants do not concern: they need no role.
const OPEN: [&str; 6] = ["/livez", "/healthz", "/readyz", "/startupz", "/metrics", "/v1/status"];

/// An endpoint as the description has it.
struct Row {
    method: String,
    path: String,
    role: Role,
    /// `none`, `own` or `proxy`.
    grants: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Read,
    Write,
    Admin,
}

/// Who asks.
struct Caller {
    name: &'static str,
    role: Role,
    /// The role for the objects of team a; `None`: for everything.
    team: Option<Role>,
}

const CALLERS: [Caller; 6] = [
    Caller { name: "admin", role: Role::Admin, team: None },
    Caller { name: "writer", role: Role::Write, team: None },
    Caller { name: "reader", role: Role::Read, team: None },
    Caller { name: "writer of team a", role: Role::Write, team: Some(Role::Write) },
    Caller { name: "writer, of team a to read", role: Role::Write, team: Some(Role::Read) },
    Caller { name: "reader of team a", role: Role::Read, team: Some(Role::Read) },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Allowed,
    /// By role.
    Forbidden,
    /// By grants.
    OutOfScope,
}

fn role_named(name: &str) -> Role {
    match name {
        "read" => Role::Read,
        "write" => Role::Write,
        _ => Role::Admin,
    }
}

impl Caller {
    fn token(&self) -> String {
        let role = |role: Role| match role {
            Role::Read => "read",
            Role::Write => "write",
            Role::Admin => "admin",
        };
        let grants = self.team.map_or(
            Value::Null,
            |team| json!([{ "objects": ["a-*"], "hosts": ["a.example", "*.a.example"], "role": role(team) }]),
        );
        token_of("ann", role(self.role), &grants)
    }

    fn expected(&self, row: &Row, is_own: bool) -> Expected {
        if self.role < row.role {
            return Expected::Forbidden;
        }
        let Some(team) = self.team else { return Expected::Allowed };
        let is_covered = match row.grants.as_str() {
            "none" => false,
            // What is not about objects is about the caller, or for everybody.
            "own" if !is_about_objects(&row.path) => true,
            // Consumers have credentials for everything.
            "own" => is_own && !row.path.starts_with("/v1/consumers") && (row.role <= team),
            _ => is_own,
        };
        if is_covered { Expected::Allowed } else { Expected::OutOfScope }
    }
}

fn is_about_objects(path: &str) -> bool {
    let kinds = ["/v1/proxies", "/v1/upstreams", "/v1/plugin_configs", "/v1/consumers"];
    path == "/v1/batch" || kinds.iter().any(|kind| path.starts_with(kind))
}

fn rows(running: &Running) -> Vec<Row> {
    let description = Client::new(running.admin).get("/v1/openapi.json", None).json();
    let mut rows = Vec::new();
    for (path, operations) in description["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let Some(words) = operation["description"].as_str() else {
                assert!(OPEN.contains(&path.as_str()) || path == "/v1/openapi.json", "{path} needs no role");
                continue;
            };
            let role = role_named(words.trim_end_matches('.').rsplit(' ').next().unwrap());
            let grants = operation["x-ferrum-grants"].as_str().unwrap_or_else(|| panic!("{path} {method}"));
            rows.push(Row {
                method: method.to_uppercase(),
                path: path.clone(),
                role,
                grants: grants.to_owned(),
            });
        }
    }
    rows
}

/// The object of a kind, of team a or of another one, as it is sent to be created or replaced.
fn object(kind: &str, is_own: bool) -> Value {
    let (team, host) = if is_own { ("a", "a.example") } else { ("b", "b.example") };
    // Nothing is sent to it.
    let at = SocketAddr::from(([127, 0, 0, 1], 9));
    match kind {
        "proxies" => {
            let mut document = proxy(&format!("{team}-shop"), "/", at);
            document["hosts"] = json!([host]);
            document
        }
        "upstreams" => {
            json!({ "id": format!("{team}-servers"), "targets": [{ "host": "127.0.0.1", "port": at.port() }] })
        }
        "plugin_configs" => {
            json!({ "id": format!("{team}-ids"), "plugin_name": "correlation_id", "proxy_id": format!("{team}-shop") })
        }
        _ => json!({ "id": format!("{team}-ann"), "username": format!("{team}-ann") }),
    }
}

/// Sends what an endpoint takes, about an own object or another one; nothing is changed.
fn ask(running: &Running, token: &str, row: &Row, is_own: bool) -> Answer {
    let kind = row.path.split('/').nth(2).unwrap_or_default();
    let of_kind = object(kind, is_own);
    let (team, user) = if is_own { ("a", "ann") } else { ("b", "bob") };
    let mut path = row.path.replace("{target}", "127.0.0.1:9").replace("{name}", user);
    if is_about_objects(&row.path) {
        path = path.replace("{id}", of_kind["id"].as_str().unwrap());
    }
    for (name, value) in [
        ("{id}", "x"),
        ("{revision}", "1"),
        ("{number}", "1"),
        ("{kind}", "proxies"),
        ("{plugin}", "response_cache"),
        ("{action}", "purge"),
        ("{group}", "eu"),
    ] {
        path = path.replace(name, value);
    }
    assert!(!path.contains('{'), "{path}: what stands for that?");
    // An unknown query field makes the API answer an authorized caller with an error before it changes or streams anything.
    let mut query = vec!["unknown=1".to_owned()];
    let is_write = row.role >= Role::Write && is_about_objects(&row.path);
    if row.method == "GET" && is_about_objects(&row.path) {
        // Fields of the query are looked at first there.
        query.clear();
    }
    if is_write {
        query = vec!["validate_only=true".to_owned()];
    }
    if row.grants == "proxy" {
        query.push(format!("proxy={team}-shop"));
    }
    let body = match (row.method.as_str(), row.path.as_str()) {
        ("GET" | "DELETE", _) => Value::Null,
        (_, "/v1/batch") => json!({ "proxies": [object("proxies", is_own)] }),
        ("PATCH", _) if is_about_objects(&row.path) => match kind {
            "proxies" => json!({ "strip_listen_path": false }),
            "upstreams" => json!({ "algorithm": "random" }),
            "plugin_configs" => json!({ "config": {} }),
            _ => json!({ "username": of_kind["username"] }),
        },
        (_, path) if path.ends_with("/targets/{target}") => json!({ "weight": 2 }),
        ("POST", path) if is_about_objects(path) => {
            let mut new = of_kind;
            new["id"] = json!(format!("{team}-new"));
            if kind == "proxies" {
                new["hosts"] = json!([if is_own { "new.a.example" } else { "new.b.example" }]);
            }
            new
        }
        _ if is_about_objects(&row.path) => of_kind,
        (_, path) if path.ends_with("/password") => json!({ "old": "x", "new": "a new long password" }),
        (_, path) if path.ends_with("/totp/confirm") => json!({ "code": "123456" }),
        (_, path) if path.ends_with("/passkeys/confirm") => {
            json!({ "label": "x", "client_data": "eA", "authenticator_data": "eA" })
        }
        (_, path) if path.ends_with("/totp") || path.ends_with("/passkeys") => json!({ "password": "x" }),
        _ => Value::Null,
    };
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let mut api = Api { client: Client::new(running.admin), token: token.to_owned() };
    api.ask(&row.method, &format!("{path}?{}", query.join("&")), "", text.as_bytes())
}

#[test]
fn each_endpoint_keeps_roles_and_grants_in_both_directions() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let of_both = |kind: &str| json!([object(kind, true), object(kind, false)]);
    let kinds = ["upstreams", "proxies", "plugin_configs", "consumers"];
    let document: Value = kinds
        .iter()
        .map(|kind| ((*kind).to_owned(), of_both(kind)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    running.api().batch(&document);
    let before = running.api().get("/v1/export").json();
    let rows = rows(&running);
    let (mut wrong, mut counts) = (Vec::new(), [0_usize; 3]);
    for row in &rows {
        for caller in &CALLERS {
            for is_own in [true, false] {
                // A list has both kinds of objects, and shows those that the grants cover.
                let is_list =
                    row.method == "GET" && row.path.split('/').count() == 3 && row.grants != "proxy";
                let expected =
                    caller.expected(row, is_own || is_list && !row.path.starts_with("/v1/consumers"));
                let answer = ask(&running, &caller.token(), row, is_own);
                let code = if answer.status == 403 { answer.json()["code"].clone() } else { Value::Null };
                let found = match code.as_str() {
                    Some("forbidden") => Expected::Forbidden,
                    Some("out_of_scope") => Expected::OutOfScope,
                    _ => Expected::Allowed,
                };
                counts[expected as usize] += 1;
                // What a user does with the own account is nobody else's: the password, or the session, says who it is.
                let is_account = row.path.starts_with("/v1/users/{name}/") && row.role == Role::Read;
                let is_right = match is_account {
                    true if is_own || caller.role == Role::Admin => found != Expected::OutOfScope,
                    true => [403, 429].contains(&answer.status),
                    false => found == expected && answer.status != 401,
                };
                if !is_right {
                    wrong.push(format!(
                        "{} {} own={is_own} by {}: {expected:?}, but {answer:?}",
                        row.method, row.path, caller.name
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len() * CALLERS.len() * 2, wrong.join("\n"));
    assert!(counts.iter().all(|count| *count > 100), "each side is asked for: {counts:?}");
    assert_eq!(running.api().get("/v1/export").json(), before, "nothing was changed");
}
