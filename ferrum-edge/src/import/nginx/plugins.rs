//! What nginx says by directives and the gateway by plugins: limits, headers, passwords, redirects, rewrites, compression.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::{Directive, Nginx};
use crate::import::set;

/// Directives that become plugins of a location. Each level that has one of a name has all of that name.
pub(super) const NAMES: &[&str] = &[
    "add_header",
    "gzip",
    "gzip_types",
    "gzip_min_length",
    "gzip_comp_level",
    "limit_conn",
    "limit_conn_status",
    "limit_req",
    "limit_req_status",
];

/// A zone of `limit_req_zone` or `limit_conn_zone`.
#[derive(Debug, Clone)]
pub(super) struct Zone {
    limit_by: String,
    rate: Option<(u64, &'static str)>,
}

/// Zones by name.
pub(super) type Zones = HashMap<String, Zone>;

/// Reads a zone; `None` when its key or rate is not known here.
pub(super) fn zone(directive: &Directive) -> Option<(String, Zone)> {
    let key = directive.arguments.first()?;
    let limit_by = match key.as_str() {
        "$binary_remote_addr" | "$remote_addr" => "address".to_owned(),
        _ => match (key.strip_prefix("$http_"), key.strip_prefix("$cookie_")) {
            (Some(header), _) => format!("header:{}", header.replace('_', "-")),
            (None, Some(cookie)) => format!("cookie:{cookie}"),
            (None, None) => format!("template:{}", template(key)?),
        },
    };
    let argument = |name: &str| directive.arguments.iter().find_map(|argument| argument.strip_prefix(name));
    let name = argument("zone=")?.split(':').next()?.to_owned();
    let rate = match argument("rate=") {
        None => None,
        Some(rate) => {
            let (number, unit) = rate.split_once("r/")?;
            Some((number.parse().ok()?, if unit == "m" { "1m" } else { "1s" }))
        }
    };
    Some((name, Zone { limit_by, rate }))
}

/// A text with nginx's variables as one with ours; `None` when one of them has no counterpart.
pub(super) fn template(text: &str) -> Option<String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        made.push_str(before);
        let braced = after.strip_prefix('{');
        let named = braced.unwrap_or(after);
        let end = named.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(named.len());
        let (name, tail) = named.split_at_checked(end)?;
        rest = if braced.is_some() { tail.strip_prefix('}')? } else { tail };
        made.push_str(&format!("${{{}}}", variable(name)?));
    }
    made.push_str(rest);
    Some(made)
}

fn variable(name: &str) -> Option<String> {
    let known = match name {
        "host" => "request.host",
        "http_host" => "request.authority",
        "request_uri" => "request.target",
        "uri" | "document_uri" => "request.path",
        "args" | "query_string" => "request.query",
        "scheme" => "request.scheme",
        "request_method" => "request.method",
        "request_id" => "request.id",
        "remote_addr" => "client.address",
        "remote_port" => "client.port",
        "remote_user" => "consumer.username",
        "server_port" => "server.port",
        "server_addr" => "server.address",
        "server_protocol" => "request.version",
        "ssl_protocol" => "tls.version",
        "ssl_cipher" => "tls.cipher",
        "ssl_server_name" => "tls.server_name",
        "ssl_client_s_dn" => "tls.client.subject",
        _ => {
            let family = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
            let header = family("http_").map(|name| format!("request.header.{}", name.replace('_', "-")));
            let query = || family("arg_").map(|name| format!("request.query.{name}"));
            let cookie = || family("cookie_").map(|name| format!("request.cookie.{name}"));
            return header.or_else(query).or_else(cookie);
        }
    };
    Some(known.to_owned())
}

/// `return 301 URL` as a redirect; `None` when it can't be translated.
pub(super) fn redirect(status: u16, to: &str) -> Option<Value> {
    matches!(status, 301 | 302 | 303 | 307 | 308).then_some(())?;
    (to.starts_with('/') || to.contains("://")).then_some(())?;
    Some(json!({ "status_code": status, "location": template(to)? }))
}

/// The directives of this name that hold in a location, whose levels go from the outermost.
fn said<'d>(levels: &[&'d Directive], name: &str) -> Vec<&'d Directive> {
    let of = |level: &&'d Directive| -> Vec<&'d Directive> {
        level.block.iter().filter(|directive| directive.name == name).collect()
    };
    levels.iter().rev().map(of).find(|said| !said.is_empty()).unwrap_or_default()
}

fn first<'d>(levels: &[&'d Directive], name: &str) -> Option<&'d str> {
    said(levels, name).first()?.arguments.first().map(String::as_str)
}

/// The user name and password that a location asks for: the realm and the file; `None` when it asks for none or they are
/// not plain texts.
pub(super) fn passwords<'d>(levels: &[&'d Directive]) -> Option<(&'d str, &'d str)> {
    let realm = first(levels, "auth_basic").filter(|realm| *realm != "off" && !realm.contains('$'))?;
    let file =
        first(levels, "auth_basic_user_file").filter(|file| file.starts_with('/') && !file.contains('$'))?;
    Some((realm, file))
}

impl Nginx {
    /// Adds the plugins of a location's proxy.
    pub(super) fn plugins(&mut self, place: &str, levels: &[&Directive], id: &str) {
        if let Some((realm, file)) = passwords(levels) {
            let config = json!({ "realm": realm, "htpasswd_files": [file] });
            self.add(id, "basic_auth", config);
        }
        self.limits(place, levels, id);
        self.headers(place, levels, id);
        if first(levels, "gzip") == Some("on") {
            let mut config = Map::from_iter([("algorithms".to_owned(), json!(["gzip"]))]);
            let mut types = vec!["text/html".to_owned()];
            types.extend(said(levels, "gzip_types").iter().flat_map(|d| d.arguments.clone()));
            if !types.iter().any(|kind| kind == "*") {
                set(&mut config, "content_types", types);
            }
            let least = first(levels, "gzip_min_length").and_then(|least| least.parse::<u64>().ok());
            set(&mut config, "min_content_length", least.unwrap_or(20));
            if let Some(level) = first(levels, "gzip_comp_level").and_then(|level| level.parse::<u64>().ok())
            {
                set(&mut config, "gzip_level", level);
            }
            self.add(id, "compression", Value::Object(config));
        }
        if let Some(location) = levels.last().filter(|level| level.name == "location") {
            self.rewrites(place, location, id);
        }
    }

    fn limits(&mut self, place: &str, levels: &[&Directive], id: &str) {
        let status =
            |name: &str| first(levels, name).and_then(|status| status.parse::<u16>().ok()).unwrap_or(503);
        for limit in said(levels, "limit_req") {
            let argument =
                |name: &str| limit.arguments.iter().find_map(|argument| argument.strip_prefix(name));
            let zone = argument("zone=").and_then(|name| self.zones.get(name).cloned());
            let Some((zone, (rate, per))) = zone.and_then(|zone| Some((zone.clone(), zone.rate?))) else {
                self.out.miss(
                    format_args!("line {}, {place}: {limit}", limit.line),
                    "its zone is not translated",
                );
                continue;
            };
            let burst = argument("burst=").and_then(|burst| burst.parse::<u64>().ok()).unwrap_or(0);
            if burst > 0 && !limit.arguments.iter().any(|argument| argument == "nodelay") {
                self.out.miss(
                    format_args!("line {}, {place}: {limit}", limit.line),
                    "requests within the burst pass at once: they are not delayed",
                );
            }
            let config = json!({
                "limits": [{ "rate": rate, "per": per, "burst": burst + 1 }],
                "limit_by": zone.limit_by,
                "on_missing": "allow",
                "headers": "none",
                "status_code": status("limit_req_status"),
            });
            self.add(id, "rate_limiting", config);
        }
        for limit in said(levels, "limit_conn") {
            let zone = limit.arguments.first().and_then(|name| self.zones.get(name).cloned());
            let most = limit.arguments.get(1).and_then(|most| most.parse::<u64>().ok());
            let (Some(zone), Some(most)) = (zone, most) else {
                self.out.miss(
                    format_args!("line {}, {place}: {limit}", limit.line),
                    "its zone is not translated",
                );
                continue;
            };
            let config = json!({
                "max_concurrent": most,
                "limit_by": zone.limit_by,
                "on_missing": "allow",
                "status_code": status("limit_conn_status"),
            });
            self.add(id, "concurrency_limiting", config);
        }
    }

    /// `add_header` and what `proxy_set_header` sets beside the gateway's own fields.
    fn headers(&mut self, place: &str, levels: &[&Directive], id: &str) {
        let mut rules = Vec::new();
        for header in said(levels, "add_header") {
            match header.arguments.as_slice() {
                [name, value, ..] => match template(value) {
                    Some(value) => rules.push(
                        json!({ "operation": "append", "target": "header", "key": name, "value": value }),
                    ),
                    None => self.unknown(place, header),
                },
                _ => self.unknown(place, header),
            }
        }
        if !rules.is_empty() {
            self.add(id, "response_transformer", json!({ "rules": rules }));
        }
        let mut rules = Vec::new();
        for header in said(levels, "proxy_set_header") {
            let [name, value] = header.arguments.as_slice() else { continue };
            if super::location::is_own_header(name) {
                continue;
            }
            let rule = match (value.as_str(), template(value)) {
                ("", _) => json!({ "operation": "remove", "target": "header", "key": name }),
                (_, Some(value)) => {
                    json!({ "operation": "set", "target": "header", "key": name, "value": value })
                }
                (_, None) => {
                    self.unknown(place, header);
                    continue;
                }
            };
            rules.push(rule);
        }
        if !rules.is_empty() {
            self.add(id, "request_transformer", json!({ "rules": rules }));
        }
    }

    /// `rewrite` that stays in its location. One that looks for another location is not translated.
    fn rewrites(&mut self, place: &str, location: &Directive, id: &str) {
        let mut replaces = Vec::new();
        for rewrite in location.block.iter().filter(|directive| directive.name == "rewrite") {
            match rewrite.arguments.as_slice() {
                [from, to, flag] if flag == "break" && to.starts_with('/') && !to.contains(['?', '{']) => {
                    // The target gets the new path as a whole.
                    let before = if from.starts_with('^') { "" } else { "^.*?" };
                    let after = if from.ends_with('$') { "" } else { ".*$" };
                    replaces.push(json!({ "from": format!("{before}{from}{after}"), "to": to }));
                }
                _ => self.out.miss(
                    format_args!("line {}, {place}: {rewrite}", rewrite.line),
                    "only `break` stays in its location",
                ),
            }
        }
        if !replaces.is_empty() {
            self.add(id, "rewrite", json!({ "regex": replaces }));
        }
    }

    fn add(&mut self, proxy: &str, plugin: &str, config: Value) {
        let id = self.out.id("plugin", &format!("{proxy}-{plugin}"));
        self.out.plugin_configs.push(json!({
            "id": id, "plugin_name": plugin, "proxy_id": proxy, "config": config,
        }));
    }
}
