//! The static configuration that a Compose file gives Traefik: by the flags of its command, or by variables.

use super::labels::{Exposed, dynamic, put};
use crate::draft::Import;
use crate::report::At;
use crate::tree::{Node, NodeValue};

/// Flags of one configuration.
const MAX_FLAGS: usize = 5000;
/// Files in which Traefik looks for its static configuration.
const FILES: &[&str] = &["/etc/traefik", "/traefik.yml", "/traefik.yaml", "/traefik.toml"];

/// Documents with the Compose files' static settings and labels in their places; whether what is not known of the static
/// settings closes all of it.
pub(super) fn resolved(out: &mut Import, documents: Vec<(bool, Node)>) -> (Vec<Node>, bool) {
    let is_fixed = |it: &Node| it.get("entryPoints").is_some() || it.get("providers").is_some();
    let has_file = documents.iter().any(|(is_compose, it)| !is_compose && is_fixed(it));
    let mut made = Vec::new();
    let mut is_closed = false;
    for (_, document) in documents.iter().filter(|(is_compose, _)| *is_compose) {
        for (name, service) in document.get("services").map_or(&[][..], Node::entries) {
            let (fixed, closes) = of_service(out, name, service, has_file);
            made.extend(fixed);
            is_closed |= closes;
        }
    }
    let plain = documents.iter().filter(|(is_compose, _)| !is_compose).map(|(_, it)| it.clone());
    made.extend(plain);
    let exposed = exposed(out, &made);
    for (_, document) in documents.iter().filter(|(is_compose, _)| *is_compose) {
        made.push(dynamic(out, document, exposed));
    }
    (made, is_closed)
}

fn exposed(out: &mut Import, fixed: &[Node]) -> Exposed {
    let mut made = Exposed::All;
    for provider in
        fixed.iter().flat_map(|it| ["docker", "swarm"].map(|kind| it.path(&["providers", kind]))).flatten()
    {
        if provider.get("exposedByDefault").and_then(Node::plain).as_deref() == Some("false")
            && made == Exposed::All
        {
            made = Exposed::Labelled;
        }
        if let Some(constraints) = provider.get("constraints") {
            let why = "which containers it means is not found out; they are left out";
            if out.guard_not_converted(
                constraints.at,
                "providers.docker.constraints",
                why,
                "remove it where it means all of them",
            ) {
                made = Exposed::Unknown;
            }
        }
    }
    made
}

/// What a service's flags and variables say, where it is Traefik.
fn of_service(out: &mut Import, name: &str, service: &Node, has_file: bool) -> (Option<Node>, bool) {
    let image = service.get("image").and_then(Node::plain).unwrap_or_default();
    let called = image.rsplit('/').next().unwrap_or_default().split([':', '@']).next().unwrap_or_default();
    let mut flags = Vec::new();
    for key in ["entrypoint", "command", "args"] {
        flags.extend(service.get(key).map_or_else(Vec::new, words));
    }
    let is_flag = |(word, _): &(String, At)| {
        let word = word.to_ascii_lowercase();
        word.starts_with("--entrypoints.") || word.starts_with("--providers.")
    };
    if called != "traefik" && !flags.iter().any(is_flag) {
        return (None, false);
    }
    let what = format!("service {name}");
    let settings = settings(out, &what, flags, service);
    let volumes = service.each("volumes").iter().filter_map(|volume| {
        let text = volume.plain().or_else(|| volume.get("target").and_then(Node::plain))?;
        Some(text.split(':').nth(1).unwrap_or(&text).trim_end_matches('/').to_owned())
    });
    let is_mounted =
        volumes.into_iter().any(|to| FILES.contains(&to.as_str()) || to.starts_with("/etc/traefik/traefik."));
    let names_file =
        settings.iter().find(|(keys, ..)| keys.len() == 1 && keys[0].eq_ignore_ascii_case("configFile"));
    if has_file {
        for (keys, _, at) in &settings {
            out.not_needed(
                *at,
                format_args!("{what}: {}", keys.join(".")),
                "Traefik reads its static file alone",
            );
        }
        return (None, false);
    }
    if names_file.is_some() || is_mounted {
        let at = names_file.map_or(service.at, |(_, _, at)| *at);
        let why = "its static configuration is in a file, and may guard; all of it is closed";
        let closes = out.guard_not_converted(at, &what, why, "give the static file, too");
        return (None, closes);
    }
    let unread = service.get("env_file");
    if let Some(unread) = unread {
        out.not_converted(
            unread.at,
            format_args!("{what}: env_file"),
            "it is not read",
            "write its TRAEFIK_* under `environment`",
        );
    }
    let mut made = Node::new(service.at, NodeValue::Map(Vec::new()));
    for (keys, value, at) in settings {
        // What stands below these is a name of somebody's own.
        let names = |at: usize| {
            let maps = ["entrypoints", "certificatesresolvers"];
            at == 1 && maps.iter().any(|map| keys[0].eq_ignore_ascii_case(map))
        };
        let part = |(at, key): (usize, &'_ String)| -> String {
            let key = key.split('[').next().unwrap_or(key);
            if names(at) { key.to_owned() } else { spelled(key).to_owned() }
        };
        let keys: Vec<String> = keys.iter().enumerate().map(part).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let value = valued(&made, &keys, &value, at);
        put(&mut made, &keys, value);
    }
    (Some(made), false)
}

/// A way of keys, its value, and where it is written.
type Setting = (Vec<String>, String, At);

/// Flags of the command, or else variables: Traefik takes one or the other.
fn settings(out: &mut Import, what: &str, flags: Vec<(String, At)>, service: &Node) -> Vec<Setting> {
    let mut made = Vec::new();
    let mut flags = flags.into_iter().peekable();
    while let Some((word, at)) = flags.next() {
        if made.len() > MAX_FLAGS {
            break;
        }
        let Some(flag) = word.strip_prefix("--") else {
            if !matches!(word.as_str(), "traefik" | "/entrypoint.sh") {
                out.not_converted(at, format_args!("{what}: {word}"), "it is no flag", "");
            }
            continue;
        };
        let (key, value) = match flag.split_once('=') {
            Some((key, value)) => (key, value.to_owned()),
            None => match flags.next_if(|(next, _)| !next.starts_with("--")) {
                Some((value, _)) => (flag, value),
                None => (flag, "true".to_owned()),
            },
        };
        made.push((key.split('.').map(str::to_owned).collect(), value, at));
    }
    if !made.is_empty() {
        return made;
    }
    let variables = service.get("environment");
    for item in variables.map_or(&[][..], Node::items) {
        if let Some((key, value)) = item.str().and_then(|it| it.split_once('=')) {
            made.extend(variable(key, value.to_owned(), item.at));
        }
    }
    for (key, value) in variables.map_or(&[][..], Node::entries) {
        made.extend(variable(key, value.plain().unwrap_or_default(), value.at));
    }
    made
}

/// `TRAEFIK_ENTRYPOINTS_WEB_ADDRESS` as a way of keys.
fn variable(key: &str, value: String, at: At) -> Option<Setting> {
    let rest = key.strip_prefix("TRAEFIK_")?.to_ascii_lowercase();
    Some((rest.split('_').map(str::to_owned).collect(), value, at))
}

/// The words of a command, which Compose has as a list or in one text.
fn words(command: &Node) -> Vec<(String, At)> {
    let mut made: Vec<(String, At)> =
        command.items().iter().filter_map(|it| Some((it.plain()?.trim().to_owned(), it.at))).collect();
    if let Some(text) = command.str() {
        let words = text.split_whitespace().map(|word| word.replace(['"', '\''], ""));
        made.extend(words.map(|word| (word, command.at)));
    }
    made
}

/// A value as a file would have it. One with an index joins those before.
fn valued(made: &Node, keys: &[&str], value: &str, at: At) -> Node {
    const LISTS: [&str; 2] = ["middlewares", "trustedIPs"];
    if keys.last().is_some_and(|last| LISTS.contains(last)) {
        let before = made.path(keys).map_or(&[][..], Node::items).iter().cloned();
        let more = value.split(',').map(|it| Node::text(at, it.trim()));
        return Node::list(at, before.chain(more).collect());
    }
    match value.to_ascii_lowercase().as_str() {
        "true" => Node::new(at, NodeValue::Bool(true)),
        "false" => Node::new(at, NodeValue::Bool(false)),
        _ => Node::text(at, value),
    }
}

/// Flags and variables ignore case; the keys of files are spelled so.
fn spelled(key: &str) -> &str {
    KEYS.iter().copied().find(|known| known.eq_ignore_ascii_case(key)).unwrap_or(key)
}

const KEYS: &[&str] = &[
    "accessLog",
    "address",
    "api",
    "asDefault",
    "certificatesResolvers",
    "constraints",
    "defaultRule",
    "docker",
    "entryPoint",
    "entryPoints",
    "experimental",
    "exposedByDefault",
    "forwardedHeaders",
    "global",
    "hub",
    "http",
    "http2",
    "http3",
    "insecure",
    "log",
    "metrics",
    "middlewares",
    "permanent",
    "ping",
    "priority",
    "providers",
    "proxyProtocol",
    "redirections",
    "scheme",
    "serversTransport",
    "swarm",
    "tls",
    "to",
    "tracing",
    "transport",
    "trustedIPs",
];
