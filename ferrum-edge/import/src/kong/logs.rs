//! Kong's plugins that write records of requests, as places that the gateway's access records go to.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::text;
use crate::draft::{AccessLog, Import, LogFile, LogHttp, LogStdout, LogTcp, Sink, draft};
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
    let Some(mut destination) = plugin.get("config").and_then(|config| of(theirs, config)) else {
        return false;
    };
    let name = out.id("sink", theirs);
    let mut made = draft!(Sink { name });
    made.append(&mut destination);
    if let Some(proxies) = proxies {
        let used = proxies.iter().filter_map(|at| out.proxies.get(*at));
        made.proxies(used.filter_map(|proxy| proxy["id"].as_str()).collect::<Vec<_>>());
    }
    let new = || draft!(AccessLog { sinks: Vec::<Sink>::new() }).into();
    if let Some(Value::Array(sinks)) = out.gateway.entry("access_log").or_insert_with(new).get_mut("sinks") {
        sinks.push(made.into());
    }
    plugin.see_all();
    out.partial(plugin.at, place, "records have the gateway's own fields", "see gateway.access_log");
    true
}

/// What a plugin says of the place, which has no name yet.
fn of(theirs: &str, config: &Node) -> Option<Sink> {
    Some(match theirs {
        "file-log" => match text(config, "path")? {
            "/dev/stdout" => draft!(Sink { stdout: LogStdout::default() }),
            path => draft!(Sink { file: draft!(LogFile { path }) }),
        },
        "http-log" => {
            let url = text(config, "http_endpoint")?;
            text::url(url)?;
            let headers = config.get("headers").map_or(&[][..], Node::entries).iter();
            let headers: Map<String, Value> =
                headers.filter_map(|(name, value)| Some((name.clone(), value.plain()?.into()))).collect();
            let millis = config.get("timeout").and_then(Node::uint);
            let http = draft!(LogHttp {
                url,
                headers: (!headers.is_empty()).then_some(headers),
                timeout: millis.map(|millis| text::duration(millis.clamp(1, 60_000))),
            });
            draft!(Sink { http })
        }
        "tcp-log" => {
            let (host, port) = (text(config, "host")?, config.get("port").and_then(Node::uint)?);
            let is_tls = config.get("tls").and_then(Node::bool) == Some(true);
            let scheme = if is_tls { "tls" } else { "tcp" };
            draft!(Sink { tcp: draft!(LogTcp { address: format!("{scheme}://{host}:{port}") }) })
        }
        _ => return None,
    })
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
                proxies.push(id.into());
            }
        }
    }
}
