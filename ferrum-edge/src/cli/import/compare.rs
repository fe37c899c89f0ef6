//! `import --compare`: what the original answered to recorded requests, and what the imported configuration answers.
//!
//! Each request runs through the real pipeline without a socket. Targets answer what was recorded: only what the gateway decides by
//! itself can differ.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use gateway_core::http::body::Body;
use gateway_core::plugin::Registry;
use gateway_core::testing::{Got, Trial};
use gateway_import::{Disk, Files};
use http::header::LOCATION;
use http::{HeaderValue, Response, StatusCode};
use serde_json::Value;

use super::recorded::{self, LogOrigin, RecordedLog, RecordedRequest};
use crate::cli::offline::WrittenRequest;
use crate::cli::{BAD_CONFIG, DIFFERENT, FAILED, print};
use crate::source::file::{Source, Spec};

/// Requests that are compared at most.
const MAX_REQUESTS: usize = 100_000;
/// Groups of requests that are printed.
const MAX_SHOWN: usize = 100;
/// Plugins that count or store across requests: a log of days runs in seconds, so they would refuse or answer what they did not.
const ACROSS_REQUESTS: [&str; 9] = [
    "rate_limiting",
    "quota",
    "concurrency_limiting",
    "connection_limit",
    "bandwidth_limit",
    "traffic_quota",
    "response_cache",
    "request_deduplication",
    "request_mirror",
];

/// Requests with the same results.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    kind: &'static str,
    before: String,
    after: String,
}

/// What a request comes to.
enum Comparison {
    Same,
    /// A refusal that a target decides, as the original's may have.
    LeftToTarget,
    Different(Group),
}

/// Prints the requests of a log whose answers differ. Returns 4 if there are any.
pub(super) fn compare(
    import: &gateway_import::Import,
    log: &Path,
    host: Option<&str>,
    registry: &Registry,
) -> u8 {
    let mut document = import.document();
    let left_out = leave_out(&mut document);
    let host =
        host.map(str::to_owned).or_else(|| first_host(&document)).unwrap_or_else(|| "localhost".to_owned());
    let Some(origin) = LogOrigin::parse(&host) else {
        print::error(format_args!("--host {host}: not a host; write HOST, or https://HOST"));
        return BAD_CONFIG;
    };
    let RecordedLog { requests, unread } = match requests(log, origin) {
        Ok(read) => read,
        Err(code) => return code,
    };
    let registry = registry.clone().with_world(crate::world::world());
    let source =
        Source { spec: Spec::Text { name: "import", text: document.to_string() }, flags: Vec::new() };
    let model = match source.load(&registry) {
        Ok(model) => model,
        Err(problems) => {
            print::error(problems);
            print::error("the comparison needs the files that the configuration names");
            return BAD_CONFIG;
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print::error(error);
            return FAILED;
        }
    };
    let answer = Arc::new(Mutex::new((StatusCode::OK, None::<String>)));
    let told = answer.clone();
    let mut trial = Trial::of_model(&model, registry).answering(move |_| {
        let (status, location) = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        target_answer(status, location)
    });
    let (mut groups, mut same, mut left) = (BTreeMap::<Group, (u64, String)>::new(), 0_u64, 0_u64);
    for request in &requests {
        let status = StatusCode::from_u16(request.status).unwrap_or(StatusCode::OK);
        *answer.lock().unwrap_or_else(PoisonError::into_inner) = (status, request.location.clone());
        trial.forget();
        trial = trial.of_client(as_written_request(request).client(&model));
        match runtime.block_on(compare_request(&trial, request)) {
            Comparison::Same => same += 1,
            Comparison::LeftToTarget => left += 1,
            Comparison::Different(group) => {
                let example = || (0, format!("{} {}", request.method, request.url));
                groups.entry(group).or_insert_with(example).0 += 1;
            }
        }
    }
    show(&groups);
    summarize(requests.len(), same, left, &groups);
    tell_unread(unread);
    if left_out > 0 {
        print::error(format_args!(
            "{left_out} plugin configs that count or store across requests are left out"
        ));
    }
    if requests.is_empty() {
        return print::nothing_checked(log, "record of a request");
    }
    if groups.is_empty() { 0 } else { DIFFERENT }
}

/// Prints how many requests got which kind of answer.
fn summarize(all: usize, same: u64, left: u64, groups: &BTreeMap<Group, (u64, String)>) {
    let different = groups.values().map(|(count, _)| count).sum::<u64>();
    let left = if left == 1 { "1 refusal is".to_owned() } else { format!("{left} refusals are") };
    let differ = if different == 1 { "differs" } else { "differ" };
    print::line(format_args!(
        "{same} of {all} recorded requests get the same answer, {left} left to targets, {different} {differ}"
    ));
}

fn tell_unread(lines: usize) {
    match lines {
        0 => {}
        1 => print::error("1 line is no record of a request, and is left out"),
        _ => print::error(format_args!("{lines} lines are no records of requests, and are left out")),
    }
}

/// The requests of a log.
fn requests(log: &Path, origin: LogOrigin<'_>) -> Result<RecordedLog, u8> {
    let text = Disk.read(log).map_err(|error| {
        print::error(format_args!("{}: {error}", log.display()));
        FAILED
    })?;
    recorded::read(&text, origin, MAX_REQUESTS).map_err(|why| {
        print::error(format_args!("{}: {why}", log.display()));
        BAD_CONFIG
    })
}

/// Removes plugins that count or store across requests, and places for records; says how many plugins.
fn leave_out(document: &mut Value) -> usize {
    if let Some(gateway) = document["gateway"].as_object_mut() {
        gateway.retain(|key, _| {
            !matches!(key.as_str(), "access_log" | "tls" | "acme" | "https" | "additional_https")
        });
    }
    let Some(configs) = document["plugin_configs"].as_array_mut() else { return 0 };
    let before = configs.len();
    let is_kept =
        |config: &Value| config["plugin_name"].as_str().is_none_or(|name| !ACROSS_REQUESTS.contains(&name));
    configs.retain(is_kept);
    before - configs.len()
}

/// The first host that a proxy names.
fn first_host(document: &Value) -> Option<String> {
    let proxies = document["proxies"].as_array()?;
    let hosts = proxies.iter().flat_map(|proxy| {
        let matches = proxy["matches"].as_array().into_iter().flatten();
        matches.chain([proxy]).filter_map(|one| one["hosts"].as_array()).flatten()
    });
    hosts.filter_map(Value::as_str).find(|host| !host.contains('*')).map(str::to_owned)
}

fn target_answer(status: StatusCode, location: Option<String>) -> Response<Body> {
    let mut response = Response::new(Body::full(Vec::new()));
    *response.status_mut() = status;
    if let Some(location) = location.and_then(|location| HeaderValue::from_str(&location).ok()) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn as_written_request(request: &RecordedRequest) -> WrittenRequest<'_> {
    let RecordedRequest { method, url, headers, client, .. } = request;
    WrittenRequest { method, url, headers, body: &[], client: *client, tls: None }
}

/// Sends a request through the configuration.
async fn compare_request(trial: &Trial, request: &RecordedRequest) -> Comparison {
    let before = |location: Option<&str>| match location {
        Some(location) => format!("{} to {location}", request.status),
        None => request.status.to_string(),
    };
    let Ok(sent) = as_written_request(request).http() else {
        let group = Group { kind: "unsendable", before: before(None), after: "not a request".to_owned() };
        return Comparison::Different(group);
    };
    let Some(got) = trial.try_send(sent).await else { return Comparison::Same };
    let is_passed = !trial.asked().is_empty();
    let location = got.headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let recorded = request.location.as_deref();
    let moves_alike = match (recorded, location) {
        (Some(recorded), Some(location)) => is_passed || alike(request, recorded) == alike(request, location),
        _ => true,
    };
    if got.status == request.status && moves_alike {
        let is_refusal = matches!(request.status, 401 | 403 | 405 | 410 | 429);
        return if is_passed && is_refusal { Comparison::LeftToTarget } else { Comparison::Same };
    }
    let record = trial.records().pop();
    let by = record.as_ref().and_then(|record| record.plugin_config.clone().or_else(|| record.proxy.clone()));
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    let moved = (!moves_alike).then_some(location).flatten();
    let after = match moved {
        Some(location) => format!("{} to {location}{by}", got.status),
        None => format!("{}{by}", got.status),
    };
    let group = Group { kind: kind(request, &got), before: before(recorded.filter(|_| !moves_alike)), after };
    Comparison::Different(group)
}

fn kind(request: &RecordedRequest, got: &Got) -> &'static str {
    match (request.status < 400, got.status < 400) {
        (true, false) => "refused",
        (false, true) => "admitted",
        _ => "answered",
    }
}

/// A redirect's URL, without the host that was asked.
fn alike(request: &RecordedRequest, location: &str) -> String {
    let host = request.url.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let scheme = request.url.scheme_str().unwrap_or("http");
    location.strip_prefix(&format!("{scheme}://{host}")).unwrap_or(location).to_owned()
}

fn show(groups: &BTreeMap<Group, (u64, String)>) {
    let mut sorted: Vec<_> = groups.iter().collect();
    sorted.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    for (Group { kind, before, after }, (count, example)) in sorted.iter().take(MAX_SHOWN) {
        print::line(format_args!("{kind:<10} {count:>8}  {before} -> {after}   {example}"));
    }
    if sorted.len() > MAX_SHOWN {
        print::line(format_args!("{} more kinds of differences", sorted.len() - MAX_SHOWN));
    }
}
