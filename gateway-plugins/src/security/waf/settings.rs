//! What users write.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gateway_core::condition::written;
use gateway_core::config::units::Bytes;
use gateway_waf::Limits;
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `waf`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// `block` rejects attacks, `detect` only counts and logs them, `off` inspects nothing. Default `block`.
    pub(super) mode: Mode,
    /// The rules that decide.
    pub(super) rules: RuleSettings,
    /// Rules that are only counted and logged, beside those that decide. Default none.
    pub(super) shadow: Option<RuleSettings>,
    /// Rules that do not apply to some requests.
    #[schemars(length(max = 1000))]
    pub(super) exclusions: Vec<ExclusionSettings>,
    /// Status of rejections, 400 to 499. Default 400.
    #[schemars(range(min = 400, max = 499))]
    pub(super) deny_status: u16,
    /// Inspection of request bodies.
    pub(super) body: BodySettings,
    /// Limits for one request.
    pub(super) limits: LimitSettings,
    /// Inspection of responses. Default not inspected.
    pub(super) response: Option<ResponseSettings>,
    /// Inspects the messages of clients on WebSockets; a rejected one ends the WebSocket with 1008. Default false.
    pub(super) websocket_messages: bool,
    /// Inspects the messages of gRPC calls before each is forwarded, by the texts of their fields (`ARGS:grpc.1.2`, by
    /// field numbers). A rejected message ends the call. Limits and policies of `body` apply to each message; shadow
    /// rules do not inspect them. If false, no body of a POST under `application/grpc` is inspected, except one with
    /// `Content-Encoding`. Default true.
    pub(super) grpc_messages: bool,
    /// Share of matching requests whose matches are logged (`waf.matches`), 0 to 1. Counters and `waf.rules` contain
    /// all of them. Default 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(super) audit_sample: f64,
}

/// Mode of the firewall.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// None.
    Off,
    /// Counts and logs.
    Detect,
    /// Rejects.
    #[default]
    Block,
}

/// Set of rules.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RuleSettings {
    /// Built-in rules: `balanced` rejects what legitimate requests hardly ever contain, `aggressive` also what looks
    /// suspicious. Not together with `crs`. Default `balanced`.
    pub(super) profile: Option<ProfileName>,
    /// Folder with the files of the OWASP Core Rule Set, or with custom rules: `crs-setup.conf`, `*.conf` and `*.data`
    /// in it and in its folders `rules` and `plugins`. `ferrum-edge waf check FOLDER` lists what cannot be used.
    #[schemars(extend("format" = "path"))]
    pub(super) crs: Option<PathBuf>,
    /// Core Rule Set: the paranoia level, 1 (few false alarms) to 4. Default as in the set-up file, or 1.
    #[schemars(range(min = 1, max = 4))]
    pub(super) paranoia_level: Option<u8>,
    /// Core Rule Set: the level whose rules are counted without rejecting, at least `paranoia_level`. Default the same.
    #[schemars(range(min = 1, max = 4))]
    pub(super) detection_paranoia_level: Option<u8>,
    /// Score at which a request is rejected, 1 to 10000; one attack scores 5. Default 5, or as in the set-up file.
    #[schemars(range(min = 1, max = 10_000))]
    pub(super) threshold: Option<u32>,
    /// Core Rule Set: the score at which a response is rejected, 1 to 10000. Default as in the set-up file, or 4.
    #[schemars(range(min = 1, max = 10_000))]
    pub(super) outbound_threshold: Option<u32>,
    /// Core Rule Set: allowed methods. Default as in the set-up file, or GET, HEAD, POST and OPTIONS.
    #[schemars(length(max = 32))]
    pub(super) allowed_methods: Vec<String>,
    /// Core Rule Set: allowed media types of bodies, such as `application/json`. Default as in the set-up file.
    #[schemars(length(max = 100))]
    pub(super) allowed_content_types: Vec<String>,
    /// TX variables by name, set after the set-up file, such as `max_num_args: "255"`. Only with `crs`.
    pub(super) variables: BTreeMap<String, String>,
    /// Rules to remove, by ID or range of IDs, such as `920350` or `942100-942199`.
    #[schemars(length(max = 10_000))]
    pub(super) remove_rules: Vec<String>,
    /// Rules to remove, by tag (a regular expression), such as `attack-php`.
    #[schemars(length(max = 100))]
    pub(super) remove_tags: Vec<String>,
}

/// A profile of the built-in rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProfileName {
    /// Rejects what legitimate requests hardly ever contain.
    Balanced,
    /// Also rejects what looks suspicious.
    Aggressive,
}

/// Rules that do not apply to some requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExclusionSettings {
    /// Requests to exclude, as in `when`, for example `{path: /admin}`. Default all.
    #[serde(default)]
    pub(super) when: Option<written::Condition>,
    /// Rules by ID or range of IDs. One of `rules` and `tags` is required.
    #[serde(default)]
    #[schemars(length(max = 10_000))]
    pub(super) rules: Vec<String>,
    /// Rules by tag (a regular expression).
    #[serde(default)]
    #[schemars(length(max = 100))]
    pub(super) tags: Vec<String>,
    /// Targets of the rules to exclude, such as `ARGS:comment` or `REQUEST_COOKIES:/^_ga/`. Default the whole rules.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    pub(super) targets: Vec<String>,
}

/// Inspection of request bodies.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BodySettings {
    /// Whether bodies are inspected. Default true.
    pub(super) inspect: bool,
    /// Size of an inspected body, 1 byte to 16 MiB. Default 128 KiB.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub(super) max_size: Bytes,
    /// Size of a multipart body, 1 byte to 256 MiB; the gateway buffers it until it was inspected. Only the names of
    /// its files are inspected, so files do not count for `max_size`; `limits` applies to all other parts. Default 16
    /// MiB.
    #[schemars(range(min = 1, max = 268_435_456))]
    pub(super) max_upload: Bytes,
    /// What happens to larger bodies: `reject` answers 413, `pass` inspects the head alone. Media (`image/*`,
    /// `audio/*`, `video/*`, `font/*`, PDF, archives) with a valid beginning pass after their first `max_size` bytes
    /// were inspected. Default `reject`.
    pub(super) over_limit: OnTrouble,
    /// What happens to bodies that do not match their content type: `reject`, or `pass` after inspecting what could be
    /// read. Default `reject`.
    pub(super) malformed: OnTrouble,
    /// Inspects the strings in GraphQL documents separately and unescaped: `query` of a URL or of JSON, and bodies of
    /// `application/graphql`. Default true.
    pub(super) graphql: bool,
    /// What happens to compressed bodies: `reject` answers 415, `pass` inspects the head alone. Default `reject`.
    pub(super) encoded: OnTrouble,
}

/// What happens to a body that cannot be inspected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnTrouble {
    /// It is rejected.
    #[default]
    Reject,
    /// It passes.
    Pass,
}

/// Limits for one request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitSettings {
    /// Arguments of query and body together, 1 to 100,000. Default 1,000.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) arguments: usize,
    /// Depth of JSON, 1 to 1,000. Default 64.
    #[schemars(range(min = 1, max = 1000))]
    pub(super) json_depth: usize,
    /// Depth of JSON within arguments that contain JSON, such as `data={"a":1}`, 0 to 8. Default 2.
    #[schemars(range(max = 8))]
    pub(super) nested_json: usize,
    /// Depth of XML, 1 to 1,000. Default 64.
    #[schemars(range(min = 1, max = 1000))]
    pub(super) xml_depth: usize,
    /// Parts of a multipart body, 1 to 10,000. Default 100.
    #[schemars(range(min = 1, max = 10_000))]
    pub(super) parts: usize,
    /// Inspected bytes of one value, 64 to 16 MiB. Default 128 KiB.
    #[schemars(range(min = 64, max = 16_777_216))]
    pub(super) value_size: Bytes,
    /// Bytes that all rules read together, each value as often as it is read, 1 KiB to 16 GiB. Default 64 MiB.
    #[schemars(range(min = 1024, max = 17_179_869_184_u64))]
    pub(super) budget: Bytes,
    /// What happens to a request that exceeds a limit: `reject`, or `pass` after inspecting what could be read. Default
    /// `reject`.
    pub(super) exceeded: OnTrouble,
}

/// Inspection of responses. If bodies are inspected, targets do not receive `Accept-Encoding`, `Range` and `If-Range`,
/// and requests for ranges get the whole response.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ResponseSettings {
    /// Inspected bytes of a body, 0 to 16 MiB; 0 inspects heads alone. The rest of the body passes. Default 256 KiB.
    #[schemars(range(max = 16_777_216))]
    pub(super) max_size: Bytes,
    /// Media types of inspected bodies. Default `text/html`, `text/plain`, `text/xml`, `application/json`.
    #[schemars(length(max = 100))]
    pub(super) content_types: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Block,
            rules: RuleSettings::default(),
            shadow: None,
            exclusions: Vec::new(),
            deny_status: 400,
            body: BodySettings::default(),
            limits: LimitSettings::default(),
            response: None,
            websocket_messages: false,
            grpc_messages: true,
            audit_sample: 1.0,
        }
    }
}

impl Default for BodySettings {
    fn default() -> Self {
        Self {
            inspect: true,
            graphql: true,
            max_size: Bytes(128 << 10),
            max_upload: Bytes(16 << 20),
            over_limit: OnTrouble::Reject,
            malformed: OnTrouble::Reject,
            encoded: OnTrouble::Reject,
        }
    }
}

impl Default for LimitSettings {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            arguments: limits.arguments,
            json_depth: limits.json_depth,
            nested_json: limits.nested_json,
            xml_depth: limits.xml_depth,
            parts: limits.parts,
            value_size: Bytes(limits.value_size as u64),
            budget: Bytes(limits.budget_bytes),
            exceeded: OnTrouble::Reject,
        }
    }
}

impl Default for ResponseSettings {
    fn default() -> Self {
        let types = ["text/html", "text/plain", "text/xml", "application/json"];
        Self { max_size: Bytes(256 << 10), content_types: types.map(str::to_owned).to_vec() }
    }
}
