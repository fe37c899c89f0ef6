//! What to write instead: for keys and values that people bring from other gateways, and for texts that are no YAML or JSON.

use super::tree::Value;
use crate::nearest::nearest;

/// Keys that are not ours, by the section they are in, and what to write.
const KEYS: &[(&str, &str, &str)] = &[
    ("", "routes", "write a proxy with `hosts` and `listen_path`"),
    ("", "services", "write an upstream, and a proxy that names it by `upstream_id`"),
    ("", "plugins", "the section is `plugin_configs`"),
    ("", "listeners", "write `gateway: {http: \"0.0.0.0:8000\"}`"),
    ("", "server", "write `gateway: {http: \"0.0.0.0:8000\"}`"),
    ("", "servers", "write `gateway: {http: \"0.0.0.0:8000\"}`, and a proxy for each host"),
    ("", "http", "it belongs to `gateway`"),
    ("", "https", "it belongs to `gateway`"),
    ("", "tls", "it belongs to `gateway`"),
    ("", "admin", "it belongs to `gateway`"),
    ("gateway", "listen", "write `http: \"0.0.0.0:8000\"`"),
    ("gateway", "port", "write `http: \"0.0.0.0:8000\"`"),
    ("gateway", "log_level", "set FERRUM_LOG_LEVEL, or run it with -v"),
    ("gateway", "max_body", "write `limits: {max_request_body: 10MiB}`"),
    ("gateway", "client_max_body_size", "write `limits: {max_request_body: 10MiB}`"),
    ("gateway", "redirect_https", "use the plugin `redirect` with `scheme: https`"),
    ("gateway.limits", "max_body", "write `max_request_body`"),
    ("gateway.limits", "client_max_body_size", "write `max_request_body`"),
    ("gateway.tls", "cert_path", "write `certificates: [{cert_path: …, key_path: …}]`"),
    ("gateway.tls", "key_path", "write `certificates: [{cert_path: …, key_path: …}]`"),
    ("gateway.tls", "cert", "write `certificates: [{cert_path: …, key_path: …}]`"),
    ("gateway.tls", "key", "write `certificates: [{cert_path: …, key_path: …}]`"),
    ("gateway.tls", "ssl_protocols", "write `min_version: 1.2`"),
    ("gateway.tls.certificates", "cert", "the key is `cert_path`"),
    ("gateway.tls.certificates", "key", "the key is `key_path`"),
    ("proxies", "url", BACKEND),
    ("proxies", "target", BACKEND),
    ("proxies", "targets", "list them in an upstream, and name it by `upstream_id`"),
    ("proxies", "backend", BACKEND),
    ("proxies", "backend_url", BACKEND),
    ("proxies", "proxy_pass", BACKEND),
    ("proxies", "reverse_proxy", BACKEND),
    ("proxies", "service", "write `upstream_id`, or `backend_host` and `backend_port`"),
    ("proxies", "upstream", "write `upstream_id`, the id of an entry of `upstreams`"),
    (
        "proxies",
        "path",
        "write `listen_path` for what clients ask for, `backend_path` for what targets get before it",
    ),
    ("proxies", "paths", "write one `listen_path`, or several under `matches`"),
    ("proxies", "location", "write `listen_path`"),
    ("proxies", "server_name", "write `hosts`, a list"),
    ("proxies", "host", "write `hosts`, a list, for what clients ask for; the target is `backend_host`"),
    ("proxies", "methods", "write `allowed_methods`, or `matches: [{methods: [GET]}]` to choose by method"),
    ("proxies", "headers", "write `matches: [{headers: {x-name: value}}]` to choose by header"),
    ("proxies", "rule", "write `hosts` and `listen_path`, or conditions under `matches`"),
    ("proxies", "redirect", "use the plugin `redirect`; `ferrum-edge plugins redirect` shows its settings"),
    ("proxies", "rewrite", "use the plugin `rewrite`; `ferrum-edge plugins rewrite` shows its settings"),
    ("proxies", "return", "use the plugins `redirect` or `request_termination`"),
    ("proxies", "strip_path", "write `strip_listen_path`"),
    ("proxies", "preserve_host", "write `preserve_host_header`"),
    ("proxies", "timeout", "write `total_timeout: 30s`, or one of the `backend_…_timeout`"),
    (
        "proxies",
        "proxy_read_timeout",
        "write `backend_first_byte_timeout: 60s` and `backend_idle_timeout: 60s`",
    ),
    ("proxies", "proxy_send_timeout", "write `backend_idle_timeout: 60s`"),
    (
        "proxies",
        "backend_read_timeout",
        "write `backend_first_byte_timeout: 60s` and `backend_idle_timeout: 60s`",
    ),
    ("proxies", "backend_write_timeout", "write `backend_idle_timeout: 60s`"),
    ("proxies", "proxy_connect_timeout", "write `backend_connect_timeout: 5s`"),
    ("proxies", "client_max_body_size", "write `max_request_body: 10MiB`"),
    ("proxies", "retries", "write `retry: {max_retries: 3}`"),
    ("proxies", "websocket", "remove it: WebSockets pass by themselves"),
    ("proxies", "config", "a plugin's settings are in `plugin_configs`"),
    ("proxies", "plugin_configs", "it is a section of its own; name its entries under `plugins`"),
    ("proxies.plugins", "name", PLUGIN),
    ("proxies.plugins", "plugin_name", PLUGIN),
    ("proxies.plugins", "id", PLUGIN),
    ("proxies.plugins", "config", "settings are in the entry of `plugin_configs`"),
    ("proxies.matches", "host", "write `hosts`, a list"),
    ("proxies.matches", "method", "write `methods`, a list"),
    ("proxies.matches", "header", "write `headers: {x-name: value}`"),
    ("proxies.matches.path", "type", "write `{prefix: /a}`, `{exact: /a}` or `{regex: …}`"),
    ("proxies.matches.path", "value", "write `{prefix: /a}`, `{exact: /a}` or `{regex: …}`"),
    ("upstreams", "servers", "the key is `targets`, with entries such as `{host: app1, port: 3000}`"),
    ("upstreams", "nodes", "the key is `targets`, with entries such as `{host: app1, port: 3000}`"),
    ("upstreams", "endpoints", "the key is `targets`, with entries such as `{host: app1, port: 3000}`"),
    ("upstreams", "healthchecks", "the key is `health_checks`"),
    ("upstreams", "balance", "the key is `algorithm`"),
    ("upstreams", "lb_policy", "the key is `algorithm`"),
    ("upstreams.targets", "target", "write `host` and `port`"),
    (
        "upstreams.targets",
        "url",
        "write `host` and `port`; `backend_scheme` of the proxy says whether it is https",
    ),
    ("upstreams.targets", "address", "write `host` and `port`"),
    ("upstreams.targets", "backup", "write `priority: 1`; targets with 0 go first"),
    ("upstreams.targets", "source", OF_UPSTREAM),
    ("upstreams.targets", "interface", OF_UPSTREAM),
    ("upstreams.targets", "backend_source_address", OF_UPSTREAM),
    ("upstreams.targets", "backend_interface", OF_UPSTREAM),
    ("upstreams.targets", "backend_transparent", OF_UPSTREAM),
    ("upstreams.targets", "backend_tcp_user_timeout", OF_UPSTREAM),
    ("upstreams.targets", "backend_mptcp", OF_UPSTREAM),
    ("proxies", "tfo", FAST_OPEN),
    ("proxies", "tcp_fast_open", FAST_OPEN),
    ("proxies", "backend_tcp_fast_open", FAST_OPEN),
    ("upstreams", "tfo", FAST_OPEN),
    ("upstreams", "tcp_fast_open", FAST_OPEN),
    ("upstreams", "backend_tcp_fast_open", FAST_OPEN),
    ("upstreams.targets", "tfo", FAST_OPEN),
    ("upstreams.targets", "tcp_fast_open", FAST_OPEN),
    ("upstreams.targets", "backend_tcp_fast_open", FAST_OPEN),
    ("consumers", "key", CREDENTIALS),
    ("consumers", "api_key", CREDENTIALS),
    ("consumers", "password", "write `credentials: {basic_auth: {password: …}}`"),
    ("consumers", "keyauth_credentials", CREDENTIALS),
    ("consumers", "basicauth_credentials", "write `credentials: {basic_auth: {password: …}}`"),
    ("consumers", "jwt_secrets", "write `credentials: {jwt_auth: {secret: …}}`"),
    ("consumers", "acls", "write `acl_groups`, a list of names"),
    ("consumers", "groups", "write `acl_groups`, a list of names"),
    ("plugin_configs", "plugin", "the key is `plugin_name`"),
    ("plugin_configs", "name", "the key is `plugin_name`"),
    ("plugin_configs", "type", "the key is `plugin_name`"),
    ("plugin_configs", "settings", "the key is `config`"),
    ("plugin_configs", "route", "write `scope: proxy` and `proxy_id`"),
    ("plugin_configs", "service", "write `scope: proxy` and `proxy_id`"),
    ("plugin_configs", "priority_override", "say `before: <plugin name>` or `after: <plugin name>`"),
    ("upstreams", "service_discovery", "list the `targets`; discovery is not part of this version"),
];

const OF_UPSTREAM: &str = "write it in the upstream, for all its targets; for a single target, a route of the system selects source and interface: \
    `ip route add ADDRESS dev eth1 src SOURCE`";
const FAST_OPEN: &str = "remove it: with TCP Fast Open a target may get the first bytes twice, and a connection counts as open before the target \
    has answered, so that no other target would be tried";
const BACKEND: &str = "write `backend_scheme`, `backend_host` and `backend_port`";
const PLUGIN: &str = "write `{plugin_config_id: ID}`, with the id of an entry of `plugin_configs`";
const CREDENTIALS: &str = "write `credentials: {key_auth: {key: …}}`";

/// Values of the wrong kind, by where they are, and what to write.
const VALUES: &[(&str, &str)] = &[
    ("", "a configuration has sections such as `gateway:` and `proxies:`"),
    ("proxies", "begin each proxy with `- id: NAME`"),
    ("upstreams", "begin each upstream with `- id: NAME`"),
    ("consumers", "begin each consumer with `- username: NAME`"),
    ("plugin_configs", "begin each with `- id: NAME`"),
    ("gateway.http", "write one address such as `0.0.0.0:8000`; more of them go to `additional_http`"),
    ("gateway.https", "write one address such as `0.0.0.0:8443`; more of them go to `additional_https`"),
    ("gateway.admin", "write an address such as `127.0.0.1:9000`, or `off`"),
    ("gateway.tls", "write `{certificates: [{cert_path: …, key_path: …}]}`"),
    ("gateway.access_log", "write `{path: access.log}`"),
    ("gateway.workers", "write a number; 0 is one for each core"),
    ("gateway.limits", "such as `{max_connections: 10000}`"),
    ("proxies.plugins", PLUGIN),
    ("proxies.retry", "such as `{max_retries: 3}`"),
    ("proxies.hedging", "such as `{delay: 100ms}`; `{}` is all defaults"),
    ("proxies.circuit_breaker", "such as `{failure_threshold: 5}`; `{}` is all defaults"),
    ("proxies.priority", "write a number; the higher one goes first"),
    ("proxies.matches", "such as `{path: /a, methods: [GET]}`"),
    ("proxies.matches.headers", "such as `{x-name: value}`"),
    ("proxies.backend_port", "write one port; several targets are an upstream"),
    ("upstreams.targets", "such as `{host: app1, port: 3000}`"),
    ("upstreams.health_checks", "such as `{active: {http_path: /health}}`"),
    ("consumers.credentials", "such as `{key_auth: {key: …}}`"),
    ("plugin_configs.config", "such as `{limits: [{rate: 10, per: 1s}]}`"),
];

/// A trail without positions: `proxies[2].plugins[0]` is `proxies.plugins`.
fn section(trail: &str) -> String {
    let mut made = String::with_capacity(trail.len());
    let mut inside = false;
    for c in trail.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            c if !inside => made.push(c),
            _ => {}
        }
    }
    made
}

/// What to write instead of a key, whose name ends the trail.
pub(super) fn key(trail: &str, key: &str) -> Option<&'static str> {
    let trail = section(trail);
    let above = trail.strip_suffix(key).map_or("", |above| above.trim_end_matches('.'));
    KEYS.iter().find(|(place, name, _)| *place == above && *name == key).map(|(.., remedy)| *remedy)
}

/// Keys that a remedy lists at most.
const MAX_LISTED_KEYS: usize = 24;

/// What to write instead of a key that resembles none of `names`.
pub(super) fn other_key<'n>(trail: &str, key: &str, names: impl Iterator<Item = &'n str>) -> String {
    let above = section(trail);
    match above.strip_suffix(key).map_or("", |above| above.trim_end_matches('.')) {
        "plugin_configs" => "a plugin's own settings are under `config`".to_owned(),
        _ => known_keys(key, names, "`ferrum-edge schema` lists all keys"),
    }
}

/// The keys that a map may have: all if they are few, else those that share a word with `key`. `all` says where the rest is.
pub(super) fn known_keys<'n>(key: &str, names: impl Iterator<Item = &'n str>, all: &str) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return "remove it".to_owned();
    }
    if names.len() <= MAX_LISTED_KEYS {
        return format!("one of: {}", names.join(", "));
    }
    let words: Vec<String> = key.split(['_', '-']).map(str::to_ascii_lowercase).collect();
    let is_alike = |name: &&str| name.split('_').any(|part| words.iter().any(|word| word == part));
    let alike: Vec<&str> = names.into_iter().filter(is_alike).take(MAX_LISTED_KEYS).collect();
    match alike.is_empty() {
        true => all.to_owned(),
        false => format!("similar: {}; {all}", alike.join(", ")),
    }
}

/// What to write instead of a value of the wrong kind.
pub(super) fn value(trail: &str, value: &Value, wants_map: bool) -> Option<String> {
    if let (Value::Text { text, .. }, true) = (value, wants_map) {
        if let Some((key, after)) = text.split_once(':')
            && !after.starts_with([' ', '/'])
            && after.parse::<u16>().is_err()
            && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !key.is_empty()
        {
            let after = after.split_whitespace().next().unwrap_or_default();
            return Some(format!("put a space after the colon: `{key}: {after}`"));
        }
        let address = text.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        if let (Some((host, port)), "upstreams.targets") = (address, section(trail).as_str()) {
            return Some(format!("write `{{host: {host}, port: {port}}}`"));
        }
    }
    let place = section(trail);
    let is_listener = matches!(place.as_str(), "gateway.http" | "gateway.https" | "gateway.admin");
    if matches!(value, Value::Bool(_)) && is_listener {
        return Some("write an address such as `127.0.0.1:9000`, or `off`".to_owned());
    }
    if matches!(value, Value::Bool(false)) && wants_map {
        return Some("leave it out".to_owned());
    }
    let known = VALUES.iter().find(|(known, _)| *known == place);
    known.map(|(_, remedy)| (*remedy).to_owned())
}

/// Words of other gateways, the word that has to be known here for them to be meant, and what to write.
const WORDS: &[(&str, &str, &str)] = &[
    ("ws", "tcps", "write `http`: WebSockets are recognised by themselves"),
    ("wss", "tcps", "write `https`: WebSockets are recognised by themselves"),
    ("h2c", "tcps", "write `http`, and `backend_http_version: 2`"),
    ("grpc", "tcps", "write `http`, and `backend_http_version: 2`"),
    ("grpcs", "tcps", "write `https`, and `backend_http_version: 2`"),
    ("fastcgi", "tcps", "write `backend_protocol: fastcgi` in its place"),
    ("tls", "tcps", "write `tcps`, or `https` for HTTP"),
    ("ip_hash", "consistent_hashing", "write `consistent_hashing`"),
    ("source", "consistent_hashing", "write `consistent_hashing`"),
    ("hash", "consistent_hashing", "write `consistent_hashing`, and `hash_on`"),
    ("ring_hash", "consistent_hashing", "write `consistent_hashing`"),
    ("first", "consistent_hashing", "give targets a `priority`"),
    ("route", "proxy_group", "write `proxy`, and `proxy_id`"),
    ("service", "proxy_group", "write `proxy_group`, and name it under `plugins` of proxies"),
    ("consumer", "proxy_group", "write `global`, and `when` with the consumer"),
];

/// What to write instead of a word that is none of those that are known.
pub(super) fn word(text: &str, words: &[&str]) -> String {
    let lower = text.to_ascii_lowercase();
    let other = WORDS.iter().find(|(theirs, among, _)| *theirs == lower && words.contains(among));
    if let Some((.., remedy)) = other {
        return (*remedy).to_owned();
    }
    // `TLSv1.2` is 1.2, and `HTTP/2` is 2.
    let ending = words.iter().find(|word| {
        let before = text.strip_suffix(**word).unwrap_or_default();
        word.starts_with(|c: char| c.is_ascii_digit()) && before.ends_with(['v', '/', ' '])
    });
    if let Some(word) = ending {
        return format!("write {word}");
    }
    match nearest(text, words.iter().copied()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("one of: {}", words.join(", ")),
    }
}

/// What to do about a text that is no YAML, by what the parser says and the line it says it of.
pub(super) fn yaml(message: &str, line: &str) -> Option<&'static str> {
    let is_quoted = line.contains(['"', '\'']);
    Some(match message {
        it if it.contains("tab") => "indent with spaces",
        it if it.contains("mapping values") && line.matches(": ").count() > 1 && !is_quoted => {
            "put a text with `: ` in quotes"
        }
        it if it.contains("mapping values") => {
            "keys of one item begin in the same column; put a text with `: ` in quotes"
        }
        it if it.contains("'-' indicator")
            || it.contains("block collection")
            || it.contains("block mapping") =>
        {
            "keys of one item begin in the same column, two to the right of its `-`"
        }
        it if it.contains("unknown anchor") => {
            "put a text that begins with `*` in quotes, as `'*.example.com'`, or define the anchor before it"
        }
        it if it.contains("unexpected character") => "put a text that begins with this character in quotes",
        it if it.contains("quoted scalar") => "close the quotation mark",
        it if it.contains("bracket") || it.contains("flow") => {
            "close every `[` with `]` and every `{` with `}`"
        }
        _ => return None,
    })
}

/// What to do about a text that is no JSON, by what the parser says and what is at that place.
pub(super) fn json(message: &str, text: &str, line: usize, column: usize) -> Option<&'static str> {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let offset = (start + column.saturating_sub(1)).min(text.len());
    let at = text.get(offset..).unwrap_or_default().trim_start();
    let after_comma = text.get(..offset).unwrap_or_default().trim_end().ends_with(',');
    let ends_list = at.starts_with(['}', ']']);
    Some(match message {
        it if it.contains("trailing comma") => "remove the comma before it",
        _ if after_comma && ends_list => "remove the comma before it",
        it if it.contains("EOF") => "the text ends too early: close every `{`, `[` and `\"`",
        it if it.contains("trailing characters") => "a file has one document; remove what comes after it",
        _ if at.starts_with('/') || at.starts_with('#') => "JSON has no comments; remove it, or write YAML",
        _ if at.starts_with('\'') => "JSON has double quotes only",
        it if it.contains("key must be a string") => "put the key in double quotes",
        it if it.contains("expected value") || it.contains("expected ident") => {
            "a value is a text in double quotes, a number, true, false, null, a list or a map"
        }
        it if it.contains("expected `,`") => "put a comma between two entries",
        it if it.contains("expected `:`") => "put a colon after the key",
        it if it.contains("control character") => "write a line break in a text as `\\n`",
        _ => return None,
    })
}
