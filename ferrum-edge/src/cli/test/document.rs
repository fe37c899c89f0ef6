//! The format of test files.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

/// A file of tests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TestFile {
    /// The configuration, beside the file.
    pub(super) configuration: Option<PathBuf>,
    /// What targets answer; the first that fits does. Every other target answers 200 with the body `ok`.
    #[serde(default)]
    pub(super) targets: Vec<ScriptedTarget>,
    /// The tests. Each begins with a fresh gateway: no test sees another's counts.
    pub(super) tests: Vec<Test>,
}

/// What a target answers.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedTarget {
    /// Its `host:port`; every target where none is written.
    pub(super) target: Option<String>,
    /// What the path that it is asked for begins with.
    pub(super) path: Option<String>,
    /// Default 200.
    pub(super) status: Option<u16>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) body: String,
}

/// A request and its expected result.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) request: TestRequest,
    /// The request is sent so many times; what is expected is of the last one. Default 1.
    pub(super) repeat: Option<u32>,
    #[serde(default)]
    pub(super) expect: Expectation,
}

/// A request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TestRequest {
    /// Default GET.
    pub(super) method: Option<String>,
    /// A URL, or only a path.
    pub(super) url: String,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) body: String,
    /// The client's address.
    #[serde(default = "loopback")]
    pub(super) client: IpAddr,
}

fn loopback() -> IpAddr {
    Ipv4Addr::LOCALHOST.into()
}

/// What is expected; what is not written is not looked at.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Expectation {
    /// The proxy's id; `none` where no proxy matches.
    pub(super) proxy: Option<String>,
    /// Plugins that run for the request, by their names or the ids of their configs, in this order; others may run between.
    pub(super) plugins: Option<Vec<String>>,
    /// The `host:port` of the target that was asked last; `none` where none was.
    pub(super) target: Option<String>,
    pub(super) status: Option<u16>,
    /// Why the gateway answered, as in `error.type` and `reply.reason` of the record; `none` where the target answered.
    pub(super) reason: Option<String>,
    /// The id of the plugin config that answered.
    pub(super) plugin_config: Option<String>,
    /// Who the caller is recognised as.
    pub(super) caller: Option<String>,
    /// Header fields of the response: a value, `*` for any, or null for none.
    pub(super) headers: BTreeMap<String, Option<String>>,
    /// What the body of the response contains.
    pub(super) body_contains: Option<String>,
    /// What the target was sent.
    pub(super) sent: Option<ExpectedSent>,
}

/// What the target was sent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ExpectedSent {
    pub(super) method: Option<String>,
    /// Path and query.
    pub(super) path: Option<String>,
    /// The script that a FastCGI target runs, as `SCRIPT_FILENAME` names it; `none` if it runs none.
    pub(super) script_filename: Option<String>,
    /// The path behind the script, as in `PATH_INFO`.
    pub(super) path_info: Option<String>,
    /// As of the response.
    pub(super) headers: BTreeMap<String, Option<String>>,
    pub(super) body_contains: Option<String>,
}
