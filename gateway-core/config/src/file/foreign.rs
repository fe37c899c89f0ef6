//! Whose configuration a text is that isn't ours.

use super::tree::{Node, Value};
use crate::problem::Problem;

/// Keys of the outermost level that ours has.
const OURS: &[&str] = &["gateway", "proxies", "consumers", "upstreams", "plugin_configs"];
/// What is said where the gateway has an importer.
const IMPORT: &str = "`ferrum-edge import FILE > ferrum.yaml` makes one of it";

/// What a key of the outermost level tells.
const KEYS: &[(&str, &str, &str)] = &[
    ("_format_version", "a configuration of Kong", IMPORT),
    ("static_resources", "a bootstrap of Envoy", IMPORT),
    ("openapi", "a description by OpenAPI", IMPORT),
    (
        "swagger",
        "a description by OpenAPI 2",
        "convert it to OpenAPI 3, then import that with `ferrum-edge import`",
    ),
    ("apiVersion", "a Kubernetes manifest", "`ferrum-edge import` reads Ingresses and Services"),
    ("apps", "a configuration of Caddy", IMPORT),
    ("entryPoints", "a configuration of Traefik", IMPORT),
    ("providers", "a configuration of Traefik", IMPORT),
];

/// Says whose configuration a document is, by its keys.
pub(super) fn document(root: &Node) -> Option<Problem> {
    let Value::Map(entries) = &root.value else { return None };
    if entries.iter().any(|entry| OURS.contains(&entry.key.as_str())) {
        return None;
    }
    let says = |entry: &super::tree::MapEntry| {
        KEYS.iter().find(|(key, ..)| *key == entry.key).map(|(_, what, remedy)| (entry.line, *what, *remedy))
    };
    let inner = |key: &str, wanted: &[&str]| {
        entries.iter().find(|entry| entry.key == key).filter(|entry| match &entry.value.value {
            Value::Map(inner) => inner.iter().any(|one| wanted.contains(&one.key.as_str())),
            _ => false,
        })
    };
    let traefik =
        ["http", "tcp", "udp"].iter().find_map(|key| inner(key, &["routers", "services", "middlewares"]));
    let compose =
        entries.iter().find(|entry| entry.key == "services").filter(|entry| match &entry.value.value {
            Value::Map(inner) => inner.iter().any(|one| match &one.value.value {
                Value::Map(keys) => keys.iter().any(|key| matches!(key.key.as_str(), "image" | "build")),
                _ => false,
            }),
            _ => false,
        });
    let found = entries
        .iter()
        .find_map(says)
        .or_else(|| traefik.map(|entry| (entry.line, "a configuration of Traefik", IMPORT)))
        .or_else(|| {
            let remedy = "`ferrum-edge import` reads Traefik's labels in it";
            compose.map(|entry| (entry.line, "a Compose file", remedy))
        });
    found.map(|(line, what, remedy)| problem(line, what, remedy))
}

/// Says whose configuration a text is that is no document of keys, by its name and its lines.
pub(super) fn text(name: &str, text: &str) -> Option<Problem> {
    let lines = || text.lines().zip(1u32..).map(|(line, n)| (line.trim_end(), n)).take(2000);
    let code = || lines().filter(|(line, _)| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    let first = code().next().map_or(("", 1), |(line, n)| (line.trim_start(), n));
    if first.0.starts_with('<') {
        return Some(problem(first.1, "HTML or XML", "write YAML or JSON"));
    }
    let is_table = |line: &str| {
        let inner = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or_default();
        let inner = inner.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(inner);
        !inner.is_empty()
            && inner.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '"'))
    };
    if name.ends_with(".toml") || is_table(first.0) && code().any(|(line, _)| line.contains(" = ")) {
        let of_traefik = ["entryPoints", "http.routers", "http.services", "providers"];
        return Some(if code().any(|(line, _)| of_traefik.iter().any(|key| line.contains(key))) {
            problem(first.1, "a configuration of Traefik in TOML", IMPORT)
        } else {
            problem(first.1, "TOML", "write YAML or JSON; `ferrum-edge schema` describes the keys")
        });
    }
    let starts = |words: &[&str]| {
        code().find(|(line, _)| words.iter().any(|word| line.trim_start().starts_with(word)))
    };
    let has_semicolons = code().any(|(line, _)| line.ends_with(';'));
    let blocks = ["server {", "server{", "http {", "http{", "events {", "events{", "upstream ", "location "];
    if let Some((_, line)) = starts(&blocks).filter(|_| has_semicolons) {
        return Some(problem(line, "a configuration of nginx", IMPORT));
    }
    let sections = ["frontend ", "backend ", "listen ", "defaults", "global"];
    let section = code().find(|(line, _)| {
        sections.iter().any(|word| line.starts_with(word)) && !line.ends_with([':', '{', ';'])
    });
    if let Some((_, line)) = section {
        return Some(problem(line, "a configuration of HAProxy", IMPORT));
    }
    let opens = code().find(|(line, _)| {
        line.ends_with(" {") && !line.contains(':') || line.ends_with(" {") && line.starts_with(':')
    });
    let words = [
        "reverse_proxy",
        "file_server",
        "respond",
        "handle",
        "root ",
        "tls ",
        "php_fastcgi",
        "redir ",
        "import ",
    ];
    let file = name.rsplit('/').next().unwrap_or(name);
    let is_caddy = file.starts_with("Caddyfile") || opens.is_some() && starts(&words).is_some();
    if is_caddy {
        let line = opens.map_or(first.1, |(_, line)| line);
        return Some(problem(line, "a Caddyfile", IMPORT));
    }
    if first.0.starts_with('{') && opens.is_some() && starts(&words).is_some() {
        return Some(problem(first.1, "a Caddyfile", IMPORT));
    }
    let apache = starts(&["<VirtualHost", "ProxyPass ", "LoadModule "]);
    apache.map(|(_, line)| {
        problem(line, "a configuration of Apache httpd", "write it anew; there is no importer for it")
    })
}

fn problem(line: u32, what: &str, remedy: &str) -> Problem {
    let remedy = remedy.to_owned();
    Problem { line, ..Problem::new("", format!("this is {what}, not the format of ferrum-edge")) }
        .remedy(remedy)
}
