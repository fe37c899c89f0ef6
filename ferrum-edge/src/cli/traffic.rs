//! `diff --traffic`: lists recorded requests that a configuration would route elsewhere, reject or admit.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use gateway_core::plugin::Registry;
use gateway_core::snapshot::Snapshot;
use gateway_core::snapshot::compile::Compiler;
use http::{HeaderMap, HeaderValue, Method, Uri};
use serde_json::Value;

use super::{BAD_CONFIG, DIFFERENT, FAILED, print};
use crate::explain::{self, Question};
use crate::source::file::{Source, Spec};

/// Maximum number of records that are compared.
const MAX_RECORDS: u64 = 1_000_000;
/// Maximum size of a record, in bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Maximum number of separate groups of requests.
const MAX_GROUPS: usize = 10_000;
/// Maximum number of groups that are printed.
const MAX_SHOWN: usize = 100;

/// The recorded result of a request and its result with the new configuration. Requests with the same results form one group.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    kind: &'static str,
    before: String,
    after: String,
}

/// The number of requests in a group, and one of them as an example.
struct Requests {
    count: u64,
    example: String,
}

/// Compares each record of a log with the result of its request in the configuration `spec`. Conditions on header fields see only
/// the fields in the log: `Host` and the user agent. Returns 4 if there is a difference.
pub(super) fn compare(spec: &Path, log: &Path, registry: Registry) -> u8 {
    let source = Source { spec: Spec::File(spec.to_owned()), flags: Vec::new() };
    let model = match source.load(&registry) {
        Ok(model) => model,
        Err(problems) => {
            print::error(problems);
            return BAD_CONFIG;
        }
    };
    let empty = Snapshot::empty(model.settings.clone());
    let now = tokio::time::Instant::now();
    let snapshot = Compiler::new(registry).compile(&model, &empty, now).snapshot;
    let file = match File::open(log) {
        Ok(file) => file,
        Err(error) => {
            print::error(format_args!("{}: {error}", log.display()));
            return FAILED;
        }
    };
    let (mut groups, mut compared, mut unread) = (BTreeMap::<Group, Requests>::new(), 0_u64, 0_u64);
    let mut lines = BufReader::new(file);
    while compared < MAX_RECORDS {
        let mut line = Vec::new();
        match lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                print::error(format_args!("{}: {error}", log.display()));
                return FAILED;
            }
        }
        let record: Value = serde_json::from_slice(&line).unwrap_or_default();
        let Some((question, example)) = question(&record) else {
            // Records of sessions contain no request.
            unread += u64::from(record["kind"].as_str().is_none_or(|kind| kind == "http"));
            continue;
        };
        compared += 1;
        if let Some(group) = group(&record, &explain::explain(&snapshot, &question)) {
            let is_full = groups.len() >= MAX_GROUPS && !groups.contains_key(&group);
            let group =
                if is_full { Group { before: "…".into(), after: "…".into(), ..group } } else { group };
            groups.entry(group).or_insert(Requests { count: 0, example }).count += 1;
        }
    }
    show(&groups);
    let changed: u64 = groups.values().map(|requests| requests.count).sum();
    print::line(format_args!("{changed} of {compared} recorded requests would change"));
    if unread > 0 {
        print::error(format_args!("{unread} lines are no access records in JSON, and are left out"));
    }
    if compared == 0 {
        return print::nothing_checked(log, "record of a request in JSON");
    }
    if changed > 0 { DIFFERENT } else { 0 }
}

fn show(groups: &BTreeMap<Group, Requests>) {
    let mut sorted: Vec<_> = groups.iter().collect();
    sorted.sort_by_key(|(_, requests)| std::cmp::Reverse(requests.count));
    for (Group { kind, before, after }, Requests { count, example }) in sorted.iter().take(MAX_SHOWN) {
        print::line(format_args!("{kind:<10} {count:>8}  {before} -> {after}   {example}"));
    }
    if sorted.len() > MAX_SHOWN {
        print::line(format_args!("{} more kinds of changes", sorted.len() - MAX_SHOWN));
    }
}

/// The request of a record, and its text for the output; `None` if the record is not that of an exchange.
pub(super) fn question(record: &Value) -> Option<(Question, String)> {
    let text = |name: &str| record[name].as_str();
    let method: Method = text("http.request.method")?.parse().ok()?;
    let path = text("url.path")?;
    let query = text("url.query").map(|query| format!("?{query}")).unwrap_or_default();
    let host = text("server.address");
    let port = record["server.port"].as_u64().map(|port| format!(":{port}")).unwrap_or_default();
    let scheme = text("url.scheme").unwrap_or("http");
    let url: Uri = match host {
        Some(host) => format!("{scheme}://{}{port}{path}{query}", bracketed(host)),
        None => format!("{path}{query}"),
    }
    .parse()
    .ok()?;
    let mut headers = HeaderMap::new();
    if let Some(agent) = text("user_agent.original").and_then(|agent| HeaderValue::from_str(agent).ok()) {
        headers.insert("user-agent", agent);
    }
    let client = text("client.address").and_then(|address| address.parse().ok());
    let example = format!("{method} {url}");
    let question = Question {
        method,
        url,
        headers,
        client: client.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        tls: text("tls.client.server_name").map(str::to_owned),
        body_bytes: record["http.request.body.size"].as_u64().filter(|bytes| *bytes > 0),
        body: None,
        consumer: None,
        recorded_caller: text("enduser.id").map(str::to_owned),
    };
    Some((question, example))
}

fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}

/// Rejections by the proxy and its rules, which `explain` also finds. Plugins and targets cause the others.
const DECIDED_BY_ROUTE: [&str; 5] =
    ["no_route", "method_not_allowed", "body_too_large", "quarantined", "bad_path"];

/// The difference; `None` if there is none.
fn group(record: &Value, explained: &Value) -> Option<Group> {
    let proxy =
        |value: &Value| value.as_str().map_or_else(|| "no proxy".to_owned(), |id| format!("proxy {id}"));
    let (before, after) = (proxy(&record["proxy.id"]), proxy(&explained["proxy"]["id"]));
    let refused_before = record["error.type"].as_str().filter(|word| DECIDED_BY_ROUTE.contains(word));
    let refused_after = explained["refusal"].as_str();
    match (refused_before, refused_after) {
        (None, Some(why)) => Some(Group { kind: "refused", before, after: why.to_owned() }),
        (Some(why), None) => Some(Group { kind: "admitted", before: why.to_owned(), after }),
        (None, None) if before != after => Some(Group { kind: "elsewhere", before, after }),
        _ => None,
    }
}
