//! Kong's plugins and credentials as ours.

use serde_json::{Map, Value, json};

use super::{Translation, list, name, text, texts};
use crate::import::{CLOSED, set};

/// Where a plugin runs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Where<'a> {
    /// For these proxies, by their positions.
    Proxies(&'a [usize]),
    /// For all.
    Everywhere,
}

/// Translates a plugin and puts it where it runs.
pub(super) fn plugin(out: &mut Translation, (place, plugin): (&str, &Value), at: Where<'_>) {
    let theirs = name(plugin);
    let place = format!("{place}, plugin {theirs}");
    if plugin.get("enabled") == Some(&Value::Bool(false)) {
        out.miss(place, "it is switched off, and left out");
        return;
    }
    let nothing = Value::Object(Map::new());
    let config = plugin.get("config").unwrap_or(&nothing);
    let Some((ours, settings)) = settings(out, (&place, &theirs), config) else {
        unknown(out, (&place, &theirs), at);
        return;
    };
    let id = out.id("plugin", &format!("{theirs}-{}", out.plugin_configs.len() + 1));
    let scope = match at {
        Where::Everywhere => "global",
        Where::Proxies(_) => "proxy_group",
    };
    out.plugin_configs.push(json!({ "id": id, "plugin_name": ours, "scope": scope, "config": settings }));
    let Where::Proxies(proxies) = at else { return };
    if proxies.is_empty() {
        out.miss(&place, "nothing it runs for was translated");
    }
    attach(out, proxies, &id);
}

/// Plugins that keep nobody out: without them more is answered slower, or less is counted, and nothing is opened.
const HARMLESS: &[&str] = &[
    "aws-request-signing",
    "correlation-id",
    "cors",
    "datadog",
    "file-log",
    "grpc-web",
    "http-log",
    "kafka-log",
    "loggly",
    "opentelemetry",
    "prometheus",
    "proxy-cache",
    "proxy-cache-advanced",
    "rate-limiting",
    "rate-limiting-advanced",
    "request-size-limiting",
    "request-transformer",
    "request-transformer-advanced",
    "response-ratelimiting",
    "response-transformer",
    "response-transformer-advanced",
    "statsd",
    "statsd-advanced",
    "syslog",
    "tcp-log",
    "udp-log",
    "zipkin",
];

/// Whether a plugin keeps nobody out.
pub(super) fn is_harmless(theirs: &str) -> bool {
    HARMLESS.contains(&theirs)
}

/// A plugin there is none like: whatever it may have guarded is closed.
fn unknown(out: &mut Translation, (place, theirs): (&str, &str), at: Where<'_>) {
    let why = "there is no such plugin here";
    if is_harmless(theirs) {
        out.miss(place, why);
        return;
    }
    if !out.guard(place, why) {
        return;
    }
    let id = out.answering(&format!("closed-{theirs}"), None, (503, CLOSED));
    match at {
        Where::Everywhere => {
            let all: Vec<usize> = (0..out.proxies.len()).collect();
            attach(out, &all, &id);
        }
        Where::Proxies(proxies) => attach(out, proxies, &id),
    }
}

/// Has proxies name a plugin config.
fn attach(out: &mut Translation, proxies: &[usize], id: &str) {
    for proxy in proxies {
        if let Some(Value::Object(proxy)) = out.proxies.get_mut(*proxy) {
            let list = proxy.entry("plugins").or_insert_with(|| json!([]));
            if let Value::Array(list) = list {
                list.push(json!({ "plugin_config_id": id }));
            }
        }
    }
}

/// Our plugin's name and settings; `None` when there is none like it.
fn settings(
    out: &mut Translation,
    (place, theirs): (&str, &str),
    config: &Value,
) -> Option<(&'static str, Map<String, Value>)> {
    let mut made = Map::new();
    let ours = match theirs {
        "key-auth" => {
            let names = texts(config, "key_names");
            let header = names.first().map_or("apikey", String::as_str);
            set(&mut made, "key_location", format!("header:{header}"));
            if names.len() > 1 {
                out.miss(format_args!("{place}.key_names"), "only the first is looked for");
            }
            if config.get("key_in_query") != Some(&Value::Bool(false)) {
                out.miss(format_args!("{place}.key_in_query"), "the key is only looked for in the header");
            }
            let hide = config.get("hide_credentials").and_then(Value::as_bool).unwrap_or(false);
            set(&mut made, "hide_credentials", hide);
            if config.get("anonymous").is_some_and(|anonymous| !anonymous.is_null()) {
                out.miss(format_args!("{place}.anonymous"), "who has no key is refused here");
            }
            "key_auth"
        }
        "acl" => {
            for (theirs, ours) in [("allow", "allowed_groups"), ("deny", "disallowed_groups")] {
                let groups = texts(config, theirs);
                if !groups.is_empty() {
                    set(&mut made, ours, groups);
                }
            }
            "access_control"
        }
        "correlation-id" => {
            set(&mut made, "header_name", text(config, "header_name").unwrap_or("Kong-Request-ID"));
            set(
                &mut made,
                "echo_downstream",
                config.get("echo_downstream").and_then(Value::as_bool).unwrap_or(false),
            );
            "correlation_id"
        }
        "request-termination" => {
            if let Some(status) = config.get("status_code").and_then(Value::as_u64) {
                set(&mut made, "status_code", status);
            }
            for key in ["message", "content_type", "body"] {
                if let Some(value) = text(config, key) {
                    set(&mut made, key, value);
                }
            }
            "request_termination"
        }
        "grpc-web" => "grpc_web",
        _ => return None,
    };
    Some((ours, made))
}

/// A consumer's credentials.
pub(super) fn credentials(
    out: &mut Translation,
    (place, username): (&str, &str),
    consumer: &Value,
) -> Map<String, Value> {
    let mut made = Map::new();
    let keys: Vec<Value> = list(consumer, "keyauth_credentials")
        .filter_map(|it| Some(json!({ "key": text(it, "key")? })))
        .collect();
    let mut passwords = Vec::new();
    for credential in list(consumer, "basicauth_credentials") {
        match (text(credential, "username"), text(credential, "password")) {
            (Some(name), Some(password)) if name == username => {
                passwords.push(json!({ "password": password }))
            }
            _ => out.miss(
                format_args!("{place}.basicauth_credentials"),
                "a username of its own, or no password in the clear",
            ),
        }
    }
    let mut secrets = Vec::new();
    for credential in list(consumer, "jwt_secrets") {
        match (text(credential, "algorithm"), text(credential, "secret")) {
            (Some("HS256") | None, Some(secret)) if secret.len() >= 32 => {
                secrets.push(json!({ "secret": secret }))
            }
            _ => out.miss(format_args!("{place}.jwt_secrets"), "not HS256 with a secret of 32 bytes or more"),
        }
    }
    let hmacs: Vec<Value> = list(consumer, "hmacauth_credentials")
        .filter_map(|it| Some(json!({ "secret": text(it, "secret")? })))
        .collect();
    for (name, list) in
        [("key_auth", keys), ("basic_auth", passwords), ("jwt_auth", secrets), ("hmac_auth", hmacs)]
    {
        if !list.is_empty() {
            set(&mut made, name, list);
        }
    }
    made
}
