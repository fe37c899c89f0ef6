//! What users write, and what it is checked to mean.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::model::BackendHttp;
use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Bytes, Millis};
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::{Client, Endpoint, EndpointError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::on_error::OnError;

/// Settings of `wasm`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The module's file (`.wasm`), read and compiled when the configuration is loaded. Required.
    #[schemars(extend("format" = "path"))]
    path: PathBuf,
    /// SHA-256 of the file, in hexadecimal; the gateway rejects a file with another hash. Default: not verified.
    sha256: Option<String>,
    /// Interface of the module: `proxy_wasm`, or `conduit` for Conduit's (`on_request`, `on_response`), which supports
    /// only the settings `path`, `sha256`, `settings`, `on_error`, `timeout`, `max_memory` and `max_body`. Default:
    /// detected by its exports.
    interface: Interface,
    /// Configuration of the module (`proxy_on_configure`): a string as it is, anything else as JSON. Default empty.
    settings: Value,
    /// Configuration of its virtual machine (`proxy_on_vm_start`), in the same form. Default empty.
    vm_settings: Value,
    /// Property `plugin_root_id`, by which some modules select their behaviour. Default empty.
    root_id: String,
    /// Environment variables of the module; it sees no others. Default none.
    #[schemars(length(max = 100))]
    #[schemars(extend("format" = "secret"))]
    environment: BTreeMap<String, String>,
    /// What happens to an exchange if the module fails or takes too long: `closed` answers 500, `open` continues
    /// without the module. In both cases only this exchange fails, and the next one gets a new instance. Default
    /// `closed`.
    on_error: OnError,
    /// Time limit for one call of the module, without the time in which it pauses the exchange; it may be exceeded by 4
    /// ms. Default 20 ms.
    #[schemars(range(min = 0.001, max = 1))]
    timeout: Millis,
    /// Time limit for the start of an instance. Each worker has one. Default 1 s.
    #[schemars(range(min = 0.001, max = 10))]
    start_timeout: Millis,
    /// Memory of one instance. An instance that reached three quarters of it gets no more exchanges and is replaced.
    /// Default 64 MiB.
    #[schemars(range(min = 65_536, max = 1_073_741_824))]
    max_memory: Bytes,
    /// Bytes of a body that are buffered while the module pauses; beyond that, the exchange ends with 413 or 502. A
    /// gRPC stream may buffer as much for sending. Default 1 MiB.
    #[schemars(range(min = 1, max = 67_108_864))]
    max_body: Bytes,
    /// Servers that the module can call, by cluster name. Default none.
    #[schemars(length(max = 100))]
    calls: BTreeMap<String, Call>,
    /// Concurrent calls and gRPC streams of one exchange, or of the module in the background. Default 10.
    #[schemars(range(min = 1, max = 1000))]
    max_calls: usize,
    /// Entries of shared data; if the table is full, some are removed. Default 10,000.
    #[schemars(range(min = 16, max = 10_000_000))]
    max_shared_values: usize,
    /// Entries of each shared queue, of which there are at most 32; a full queue accepts no more. Default 1000.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_queue_length: usize,
}

/// Interface of a module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Interface {
    /// Detected by its exports.
    #[default]
    Auto,
    /// Proxy-Wasm.
    ProxyWasm,
    /// Conduit's.
    Conduit,
}

/// Whether a module is written for Conduit's interface.
fn is_for_conduit(module: &wasmtime::Module) -> bool {
    let has = |name: &str| module.get_export(name).is_some();
    has("on_request") && has("memory") && !module.exports().any(|it| it.name().starts_with("proxy_"))
}

impl Interface {
    /// Whether a module is called by Conduit's interface.
    pub(super) fn is_conduit(self, module: &wasmtime::Module) -> Result<bool, Problems> {
        let is_one = is_for_conduit(module);
        if self == Self::Conduit && !is_one {
            let message = "is `conduit`, but the module does not export `on_request` and `memory`, or is for Proxy-Wasm";
            return Err(Problems::one("config.interface", message));
        }
        Ok(is_one && self != Self::ProxyWasm)
    }
}

/// Server that modules can call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Call {
    /// The server: an `http` or `https` URL without a path. The module specifies the path.
    url: String,
    /// PEM file with the only trusted roots for this URL. Default: the public roots.
    #[serde(default)]
    #[schemars(extend("format" = "path"))]
    ca_path: Option<PathBuf>,
    /// Time limit for a call; the module may specify less. Default 5 s.
    #[schemars(range(min = 0.001, max = 60))]
    #[serde(default = "call_timeout")]
    timeout: Millis,
    /// How long a gRPC stream may stay open. Default 1 h.
    #[schemars(range(min = 0.001, max = 86_400))]
    #[serde(default = "stream_timeout")]
    stream_timeout: Millis,
    /// Size of a response's body, and of each message on a gRPC stream. Default 1 MiB.
    #[schemars(range(min = 1, max = 67_108_864))]
    #[serde(default = "answer_bytes")]
    max_response: Bytes,
}

fn call_timeout() -> Millis {
    Millis(5000)
}

fn stream_timeout() -> Millis {
    Millis(3_600_000)
}

fn answer_bytes() -> Bytes {
    Bytes(1 << 20)
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            sha256: None,
            interface: Interface::Auto,
            settings: Value::Null,
            vm_settings: Value::Null,
            root_id: String::new(),
            environment: BTreeMap::new(),
            on_error: OnError::Closed,
            timeout: Millis(20),
            start_timeout: Millis(1000),
            max_memory: Bytes(64 << 20),
            max_body: Bytes(1 << 20),
            calls: BTreeMap::new(),
            max_calls: 10,
            max_shared_values: 10_000,
            max_queue_length: 1000,
        }
    }
}

/// Settings, checked.
pub(super) struct Rules {
    pub(super) path: PathBuf,
    pub(super) sha256: Option<String>,
    pub(super) interface: Interface,
    /// Settings that were given and are about Proxy-Wasm alone.
    of_proxy_wasm: Vec<&'static str>,
    pub(super) settings: Arc<[u8]>,
    pub(super) vm_settings: Arc<[u8]>,
    pub(super) root_id: String,
    /// `NAME=value`.
    pub(super) environment: Vec<String>,
    pub(super) on_error: OnError,
    pub(super) timeout: Duration,
    pub(super) start_timeout: Duration,
    pub(super) max_memory: usize,
    pub(super) max_body: usize,
    /// The servers that the module may call.
    pub(super) servers: Vec<Callee>,
    pub(super) max_calls: usize,
    pub(super) max_shared_values: usize,
    pub(super) max_queue_length: usize,
}

/// A server that the module may call.
pub(super) struct Callee {
    pub(super) name: String,
    /// For calls, and for gRPC streams, which may take longer.
    pub(super) calls: Client,
    pub(super) streams: Client,
    pub(super) timeout: Duration,
    pub(super) stream_timeout: Duration,
    /// Bytes of one message of a stream.
    pub(super) max_message: u64,
}

/// Checks settings; all that is wrong with them goes to `problems`.
pub(super) fn read(config: Config, world: &World, problems: &mut Problems) -> Rules {
    if config.path.as_os_str().is_empty() {
        problems.add("config.path", "is required");
    }
    let of_proxy_wasm = of_proxy_wasm(&config);
    let sha256 = config.sha256.map(|digest| digest.to_ascii_lowercase());
    let is_digest = |digest: &String| digest.len() == 64 && digest.bytes().all(|c| c.is_ascii_hexdigit());
    if sha256.as_ref().is_some_and(|digest| !is_digest(digest)) {
        problems.add("config.sha256", "is not a SHA-256: 64 hexadecimal digits");
    }
    for name in config.environment.keys() {
        if name.is_empty() || name.contains(['=', '\0']) {
            problems.add(format!("config.environment.{name}"), "is not the name of a variable");
        }
    }
    let mut servers = Vec::new();
    for (name, call) in config.calls {
        let place = format!("config.calls.{name}.url");
        match callee(name, call, world) {
            Ok(callee) => servers.push(callee),
            Err(error) => {
                problems.add(place, error);
            }
        }
    }
    Rules {
        path: config.path,
        sha256,
        interface: config.interface,
        of_proxy_wasm,
        settings: written(&config.settings),
        vm_settings: written(&config.vm_settings),
        root_id: config.root_id,
        environment: config.environment.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        on_error: config.on_error,
        timeout: config.timeout.duration(),
        start_timeout: config.start_timeout.duration(),
        max_memory: usize::try_from(config.max_memory.0).unwrap_or(usize::MAX),
        max_body: usize::try_from(config.max_body.0).unwrap_or(usize::MAX),
        servers,
        max_calls: config.max_calls,
        max_shared_values: config.max_shared_values,
        max_queue_length: config.max_queue_length,
    }
}

/// Settings that differ from their defaults and are about Proxy-Wasm alone.
fn of_proxy_wasm(config: &Config) -> Vec<&'static str> {
    let default = Config::default();
    [
        ("vm_settings", !config.vm_settings.is_null()),
        ("root_id", !config.root_id.is_empty()),
        ("environment", !config.environment.is_empty()),
        ("start_timeout", config.start_timeout.0 != default.start_timeout.0),
        ("calls", !config.calls.is_empty()),
        ("max_calls", config.max_calls != default.max_calls),
        ("max_shared_values", config.max_shared_values != default.max_shared_values),
        ("max_queue_length", config.max_queue_length != default.max_queue_length),
    ]
    .into_iter()
    .filter_map(|(name, is_given)| is_given.then_some(name))
    .collect()
}

/// Refuses settings that a module of Conduit's interface has no use for.
pub(super) fn only_for_proxy_wasm(rules: &Rules, problems: &mut Problems) {
    for name in &rules.of_proxy_wasm {
        problems.add(format!("config.{name}"), "has no effect on a module of Conduit's interface");
    }
}

/// Why a module can't call a server.
#[derive(Debug, thiserror::Error)]
enum CalleeError {
    #[error(transparent)]
    Url(#[from] EndpointError),
    #[error("a URL here has no path; the module says what it asks for")]
    Path,
    #[error(transparent)]
    Client(#[from] Problems),
}

fn callee(name: String, call: Call, world: &World) -> Result<Callee, CalleeError> {
    let (endpoint, uri) = Endpoint::of_url(&call.url)?;
    if uri.path_and_query().is_some_and(|path| path.as_str() != "/") {
        return Err(CalleeError::Path);
    }
    let (timeout, stream_timeout) = (call.timeout.duration(), call.stream_timeout.duration());
    let mut endpoint = endpoint.trusting(call.ca_path).within_setting(timeout, "timeout");
    endpoint.max_response = call.max_response.0;
    let mut streams = endpoint.clone().within_setting(stream_timeout, "stream_timeout");
    streams.connect_timeout = Some(timeout);
    streams.http = BackendHttp::Http2;
    // Each message is bounded instead.
    streams.max_response = u64::MAX;
    Ok(Callee {
        name,
        calls: world.client(endpoint)?,
        streams: world.client(streams)?,
        timeout,
        stream_timeout,
        max_message: call.max_response.0,
    })
}

fn written(value: &Value) -> Arc<[u8]> {
    match value {
        Value::Null => Arc::default(),
        Value::String(text) => text.as_bytes().into(),
        other => other.to_string().into_bytes().into(),
    }
}
