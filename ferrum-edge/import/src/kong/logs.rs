//! Kong's plugins that write records of requests, as places that the gateway's access records go to.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::text;
use crate::draft::{Import, set};
use crate::text;
use crate::tree::Node;

/// Adds a place for the records of these proxies, or of all, where one of these plugins says one; whether it did.
pub(super) fn sink(
    out: &mut Import,
    place: &str,
    theirs: &str,
    plugin: &Node,
    proxies: Option<&[usize]>,
) -> bool {
    let Some((kind, settings)) = plugin.get("config").and_then(|config| of(theirs, config)) else {
        return false;
    };
    let name = out.id("sink", theirs);
    let mut made = json!({ "name": name, kind: settings });
    if let Some(proxies) = proxies {
        let ids = proxies.iter().filter_map(|at| out.proxies.get(*at)).map(|proxy| proxy["id"].clone());
        made["proxies"] = Value::Array(ids.collect());
    }
    let log = out.gateway.entry("access_log").or_insert_with(|| json!({ "sinks": [] }));
    if let Some(Value::Array(sinks)) = log.get_mut("sinks") {
        sinks.push(made);
    }
    plugin.see_all();
    out.partial(plugin.at, place, "records have the gateway's own fields", "see gateway.access_log");
    true
}

fn of(theirs: &str, config: &Node) -> Option<(&'static str, Map<String, Value>)> {
    let mut made = Map::new();
    let kind = match theirs {
        "file-log" => match text(config, "path")? {
            "/dev/stdout" => "stdout",
            path => {
                set(&mut made, "path", path);
                "file"
            }
        },
        "http-log" => {
            let url = text(config, "http_endpoint")?;
            text::url(url)?;
            set(&mut made, "url", url);
            let headers = config.get("headers").map_or(&[][..], Node::entries).iter();
            let headers: Map<String, Value> =
                headers.filter_map(|(name, value)| Some((name.clone(), json!(value.plain()?)))).collect();
            if !headers.is_empty() {
                set(&mut made, "headers", headers);
            }
            if let Some(millis) = config.get("timeout").and_then(Node::uint) {
                set(&mut made, "timeout", text::duration(millis.clamp(1, 60_000)));
            }
            "http"
        }
        "tcp-log" => {
            let (host, port) = (text(config, "host")?, config.get("port").and_then(Node::uint)?);
            let is_tls = config.get("tls").and_then(Node::bool) == Some(true);
            let scheme = if is_tls { "tls" } else { "tcp" };
            set(&mut made, "address", format!("{scheme}://{host}:{port}"));
            "tcp"
        }
        _ => return None,
    };
    Some((kind, made))
}

/// The places that the records of some proxies go to, by the ids of those proxies.
pub(super) struct SinkUsers(HashMap<String, Vec<usize>>);

impl SinkUsers {
    pub(super) fn of(out: &Import) -> Self {
        let mut made: HashMap<String, Vec<usize>> = HashMap::new();
        let sinks = out.gateway.get("access_log").and_then(|log| log["sinks"].as_array());
        for (place, sink) in sinks.into_iter().flatten().enumerate() {
            for proxy in sink["proxies"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                let known = made.entry(proxy.to_owned()).or_default();
                if known.last() != Some(&place) {
                    known.push(place);
                }
            }
        }
        Self(made)
    }

    /// Has the records of a proxy go where those of another one go.
    pub(super) fn copy(&self, out: &mut Import, before: &str, id: &str) {
        let (Some(places), Some(log)) = (self.0.get(before), out.gateway.get_mut("access_log")) else {
            return;
        };
        for place in places {
            let proxies = log["sinks"].get_mut(*place).and_then(|sink| sink["proxies"].as_array_mut());
            if let Some(proxies) = proxies {
                proxies.push(json!(id));
            }
        }
    }
}
