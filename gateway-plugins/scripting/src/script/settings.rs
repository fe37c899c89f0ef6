//! What users write, and what it is checked to mean.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Bytes, Millis, Seconds};
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::{Client, Endpoint, EndpointError};
use http::Uri;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::on_error::OnError;

/// Settings of `script`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The script. Exactly one of `source` and `path` is required. A script has a function `on_request(request)`, a
    /// function `on_response(request, response)`, or both. Statements outside of functions run once, when the script is
    /// loaded; all functions can read the constants they define.
    ///
    /// If a function returns `false`, the request is rejected with 403.
    ///
    /// Request: `request.method`, `.scheme`, `.host`, `.version`, `.proxy`, `.id`, `.client_ip` and `.client_port` are
    /// read-only; `request.path` and `.query` can also be set. `request.param(name)` is a decoded query parameter, and
    /// `request.cookie(name)` a cookie; both are `()` if absent. `request.captures` contains the captures of the
    /// route's path. `request.identity` is `()` or has `name`, `groups`, `consumer` (the ID, or `()`) and `claims`.
    /// `request.tls` is `()` or has `version`, `cipher`, `server_name`, and, with a client certificate, `subject`,
    /// `common_name` and `alternative_names`. `request.upstream = "id"` selects one of `upstreams`.
    /// `request.send_once()` disables hedging, and retries after the first byte was sent.
    ///
    /// Response: `response.status` can be read and set; `response.from_target` is true if a target sent the response.
    ///
    /// Both: `.header(name)` is the first value or `()`, `.headers(name)` an array of all values, `.header_names()` an
    /// array of names; `.set_header(name, value)`, `.add_header(name, value)`, `.remove_header(name)`. Headers that
    /// frame messages can't be changed. `.body` is the body as a string and `.body_bytes` as a blob, with
    /// `read_request_body` or `read_response_body`; setting either replaces the body, also one that was not read.
    ///
    /// `request.reply(status)`, `request.reply(status, body)` and `request.reply(status, body, headers)` answer instead
    /// of the target, or replace its response. `request.note(name, value)` sets one of `record_fields`.
    /// `request.set(name, value)` and `request.get(name)` pass values from the request's functions to the response's.
    ///
    /// `fetch(call, options, |answer| ...)` calls one of `calls`, after the function has returned. `options` is a map
    /// with `method`, `path` (appended to the URL's), `headers` and `body`, each optional. The callback receives a map
    /// with `status`, `headers`, `body` and `error`: `()`, or a word, with status 0. It can do everything that its
    /// function could, including another fetch.
    ///
    /// Shared by all requests of this plugin config: `shared_get(key)`, `shared_set(key, value, seconds)`,
    /// `shared_add(key, amount, seconds)`, which returns the new sum, and `shared_remove(key)`. Values are strings and
    /// integers, and expire after so many seconds (0: never); `shared_add` does not extend their lifetime.
    /// `count(name)` adds 1 to one of `counters`.
    ///
    /// Tools: `json_decode(text)`, `json_encode(value)`, `base64_encode(value)`, `base64_decode(text)` (a blob),
    /// `url_encode(text)`, `url_decode(text)`, `sha256(value)` and `hmac_sha256(key, value)` (hexadecimal), `equal(a,
    /// b)` (in constant time), `random(limit)` (0 to `limit` - 1), `now_ms()` (since 1970), `settings` (as configured),
    /// and Rhai's own functions for numbers, strings, arrays, blobs and maps. `print(text)` and `debug(text)` write to
    /// the program log. There are no files, no modules, no `eval`, no `curry`, and no `sleep`. The closures of one
    /// exchange may capture 10,000 variables.
    source: Option<String>,
    /// File with the script. The gateway checks it every `refresh` and compiles it again if it changed. A version that
    /// does not compile is logged, reported in `/v1/status` and not used. Replace the file by renaming.
    #[schemars(extend("format" = "path"))]
    path: Option<PathBuf>,
    /// How often the gateway checks `path` for changes; at least 1 s. Default 5 s.
    #[schemars(range(min = 1))]
    refresh: Option<Seconds>,
    /// The constant `settings` of the script: any object. Default empty.
    settings: serde_json::Map<String, serde_json::Value>,
    /// What happens to an exchange whose script fails or exceeds a limit: `closed` answers 500, `open` continues with
    /// the changes made so far. Default `closed`.
    on_error: OnError,
    /// Processor time for one function. On a busy machine, at least half of it is usable. Waiting for calls does not
    /// count. Default 20 ms.
    #[schemars(range(min = 0.001, max = 1))]
    timeout: Millis,
    /// Operations for one function; about 10 million run in a second. Default 100,000.
    #[schemars(range(min = 100, max = 10_000_000))]
    max_operations: u64,
    /// Depth of nested function calls. Default 32.
    #[schemars(range(min = 1, max = 64))]
    max_call_depth: usize,
    /// Size of a string. Default 256 KiB; at least `max_body` if bodies are read.
    #[schemars(range(min = 64, max = 16_777_216))]
    max_string: Option<Bytes>,
    /// Elements of an array, and bytes of a blob if that is more than `max_string`. Default 10,000.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_array_size: usize,
    /// Entries of a map, checked whenever a function receives, changes or returns it. In between, only `max_operations`
    /// and `timeout` limit what `map[key] = value` adds. Default 1000.
    #[schemars(range(min = 1, max = 100_000))]
    max_map_size: usize,
    /// Buffers the request's body for `on_request`; a body larger than `max_body` gets 413. Default false.
    read_request_body: bool,
    /// Buffers the response's body for `on_response`; a response with a larger body becomes 502. The client receives
    /// nothing before the whole response has arrived. The gateway asks the target not to compress; a compressed
    /// response becomes 502. Default false.
    read_response_body: bool,
    /// Size of a buffered body. Default 64 KiB.
    #[schemars(range(min = 1, max = 16_777_216))]
    max_body: Bytes,
    /// Servers that `fetch` can call, by name. Default none.
    #[schemars(length(max = 100))]
    calls: BTreeMap<String, Call>,
    /// Calls by the functions of one exchange. Default 4.
    #[schemars(range(min = 1, max = 100))]
    max_calls: u32,
    /// Concurrent calls of all exchanges; one more fails with `busy`. Default 1000.
    #[schemars(range(min = 1, max = 100_000))]
    max_concurrent_calls: usize,
    /// Upstreams that a script may select. Default none.
    #[schemars(length(max = 100))]
    upstreams: Vec<String>,
    /// Fields that scripts may add to the access record, in snake case; they are logged as `script.NAME`. Default none.
    #[schemars(length(max = 32))]
    record_fields: Vec<String>,
    /// Names for `count`; they are the label `event` of `ferrum_script_events_total`. Default none.
    #[schemars(length(max = 100))]
    counters: Vec<String>,
    /// Values that `shared_set` and `shared_add` store. If there are more, expired values are removed first, then any
    /// others. Default 10,000.
    #[schemars(range(min = 16, max = 10_000_000))]
    max_shared_values: usize,
}

/// Server that scripts can call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Call {
    /// URL of the server.
    url: String,
    /// PEM file with the only trusted roots for this URL. Default: the public roots.
    #[serde(default)]
    #[schemars(extend("format" = "path"))]
    ca_path: Option<PathBuf>,
    /// Time limit for the whole response. Default 1 s.
    #[schemars(range(min = 0.001, max = 60))]
    #[serde(default = "call_timeout")]
    timeout: Millis,
    /// Size of a response's body. Default 64 KiB.
    #[schemars(range(min = 1, max = 16_777_216))]
    #[serde(default = "answer_bytes")]
    max_response: Bytes,
}

fn call_timeout() -> Millis {
    Millis(1000)
}

fn answer_bytes() -> Bytes {
    Bytes(64 << 10)
}

impl Default for Config {
    fn default() -> Self {
        Self {
            source: None,
            path: None,
            refresh: None,
            settings: serde_json::Map::new(),
            on_error: OnError::Closed,
            timeout: Millis(20),
            max_operations: 100_000,
            max_call_depth: 32,
            max_string: None,
            max_array_size: 10_000,
            max_map_size: 1000,
            read_request_body: false,
            read_response_body: false,
            max_body: Bytes(64 << 10),
            calls: BTreeMap::new(),
            max_calls: 4,
            max_concurrent_calls: 1000,
            upstreams: Vec::new(),
            record_fields: Vec::new(),
            counters: Vec::new(),
            max_shared_values: 10_000,
        }
    }
}

/// Settings, checked.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) source: Source,
    pub(super) settings: serde_json::Map<String, serde_json::Value>,
    pub(super) on_error: OnError,
    pub(super) limits: Limits,
    pub(super) read_request_body: bool,
    pub(super) read_response_body: bool,
    pub(super) max_body: u64,
    pub(super) servers: Vec<Server>,
    pub(super) max_calls: u32,
    pub(super) max_concurrent_calls: usize,
    pub(super) upstreams: Vec<Arc<str>>,
    pub(super) record_fields: Vec<(Box<str>, &'static str)>,
    pub(super) counters: Vec<String>,
    pub(super) max_shared_values: usize,
}

/// Where a script comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// The configuration.
    Inline(String),
    /// A file, looked at so often.
    File(PathBuf, Duration),
}

/// What one run of a function may take.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    pub(super) time: Duration,
    pub(super) operations: u64,
    pub(super) depth: usize,
    pub(super) string: usize,
    pub(super) array: usize,
    pub(super) map: usize,
}

/// Server that scripts can call.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) client: Client,
    pub(super) uri: Uri,
}

/// Checks settings; all that is wrong with them goes to `problems`.
pub(super) fn read(config: Config, world: &World, problems: &mut Problems) -> Rules {
    let source = match (config.source, config.path) {
        (Some(source), None) => {
            if config.refresh.is_some() {
                problems.add("config.refresh", "has no effect without `path`");
            }
            Source::Inline(source)
        }
        (None, Some(path)) => Source::File(path, config.refresh.unwrap_or(Seconds(5)).duration()),
        (given, _) => {
            let message = if given.is_some() { "has a second source beside it" } else { "is required" };
            problems.add("config.source", message).remedy =
                Some("give exactly one of `source` and `path`".into());
            Source::Inline(String::new())
        }
    };
    let least = if config.read_request_body || config.read_response_body { config.max_body.0 } else { 0 };
    let string = config.max_string.map_or_else(|| least.max(256 << 10), |bytes| bytes.0);
    if string < least {
        problems.add("config.max_string", "is less than `max_body`, so that bodies do not fit");
    }
    let servers =
        config.calls.into_iter().filter_map(|(name, call)| server(name, call, world, problems)).collect();
    let mut names = |option: &str, given: &[String]| {
        for (n, name) in given.iter().enumerate() {
            if !is_snake(name) {
                problems.add(format!("config.{option}[{n}]"), format!("`{name}` is not a name")).remedy =
                    Some("use lower-case letters, digits and `_`, at most 64".into());
            }
        }
    };
    names("record_fields", &config.record_fields);
    names("counters", &config.counters);
    Rules {
        source,
        settings: config.settings,
        on_error: config.on_error,
        limits: Limits {
            time: config.timeout.duration(),
            operations: config.max_operations,
            depth: config.max_call_depth,
            string: usize::try_from(string).unwrap_or(usize::MAX),
            array: config.max_array_size,
            map: config.max_map_size,
        },
        read_request_body: config.read_request_body,
        read_response_body: config.read_response_body,
        max_body: config.max_body.0,
        servers,
        max_calls: config.max_calls,
        max_concurrent_calls: config.max_concurrent_calls,
        upstreams: config.upstreams.into_iter().map(Arc::from).collect(),
        record_fields: fields(config.record_fields, problems),
        counters: config.counters,
        max_shared_values: config.max_shared_values,
    }
}

fn is_snake(name: &str) -> bool {
    let is_part = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
    (1..=64).contains(&name.len()) && name.bytes().all(is_part)
}

fn server(name: String, call: Call, world: &World, problems: &mut Problems) -> Option<Server> {
    match client(call, world) {
        Ok((client, uri)) => Some(Server { name, client, uri }),
        Err(error) => {
            problems.add(format!("config.calls.{name}.url"), error);
            None
        }
    }
}

/// Why a script can't call a server.
#[derive(Debug, thiserror::Error)]
enum CalleeError {
    #[error(transparent)]
    Url(#[from] EndpointError),
    #[error("a URL here must not have a query; give it with `path` in the script")]
    Query,
    #[error(transparent)]
    Client(#[from] Problems),
}

fn client(call: Call, world: &World) -> Result<(Client, Uri), CalleeError> {
    let (endpoint, uri) = Endpoint::of_url(&call.url)?;
    if uri.query().is_some() {
        return Err(CalleeError::Query);
    }
    let mut endpoint = endpoint.trusting(call.ca_path).within_setting(call.timeout.duration(), "timeout");
    endpoint.max_response = call.max_response.0;
    Ok((world.client(endpoint)?, uri))
}

/// Names of record fields that all configurations of this process may have had in all.
const MAX_FIELD_NAMES: usize = 1000;

/// The names as the record has them. Each is kept for good, so that there is a limit on how many there may be.
fn fields(names: Vec<String>, problems: &mut Problems) -> Vec<(Box<str>, &'static str)> {
    static KNOWN: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    let mut read = Vec::new();
    for (n, name) in names.into_iter().enumerate().filter(|(_, name)| is_snake(name)) {
        let full = format!("script.{name}");
        let kept = match known.get(full.as_str()) {
            Some(kept) => *kept,
            None if known.len() >= MAX_FIELD_NAMES => {
                let message = format!("this process has had {MAX_FIELD_NAMES} names of fields already");
                problems.add(format!("config.record_fields[{n}]"), message);
                continue;
            }
            None => {
                let kept: &'static str = Box::leak(full.into_boxed_str());
                known.insert(kept);
                kept
            }
        };
        read.push((name.into(), kept));
    }
    read
}
