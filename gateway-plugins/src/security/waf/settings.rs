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
    /// `block` refuses attacks, `detect` only counts and notes them, `off` looks at nothing. Default `block`.
    pub(super) mode: Mode,
    /// The rules that decide.
    pub(super) rules: RuleSettings,
    /// Rules that are only counted and noted, beside those that decide. Default none.
    pub(super) shadow: Option<RuleSettings>,
    /// Rules that some requests are not asked.
    #[schemars(length(max = 1000))]
    pub(super) exclusions: Vec<ExclusionSettings>,
    /// The status of refusals, 400 to 499. Default 400.
    #[schemars(range(min = 400, max = 499))]
    pub(super) deny_status: u16,
    /// Bodies of requests.
    pub(super) body: BodySettings,
    /// What one request may cost.
    pub(super) limits: LimitSettings,
    /// Responses of targets. Default not inspected.
    pub(super) response: Option<ResponseSettings>,
    /// Inspects what clients send on WebSockets, message by message; one that is refused ends the WebSocket with 1008. Default
    /// false.
    pub(super) websocket_messages: bool,
    /// Inspects the messages of gRPC calls, each before it is sent on, by the texts of their fields (`ARGS:grpc.1.2`, by the fields'
    /// numbers). One that is refused ends the call. Limits and policies of `body` count for each message; shadow rules do not
    /// see them. With false no body of a POST under `application/grpc` is inspected, save one with `Content-Encoding`. Default
    /// true.
    pub(super) grpc_messages: bool,
    /// The share of requests with matches whose matches are written into the access record (`waf.matches`), 0 to 1. Counters
    /// and `waf.rules` have all of them. Default 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(super) audit_sample: f64,
}

/// What the firewall does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// Nothing.
    Off,
    /// Counts and notes.
    Detect,
    /// Refuses.
    #[default]
    Block,
}

/// Which rules.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RuleSettings {
    /// Our own rules: `balanced` refuses what hardly any honest request has in it, `aggressive` also what looks suspicious.
    /// Not together with `crs`. Default `balanced`.
    pub(super) profile: Option<ProfileName>,
    /// A folder with the files of the OWASP Core Rule Set, or with rules of your own: `crs-setup.conf`, `*.conf` and `*.data`
    /// in it and in its folders `rules` and `plugins`. `ferrum-edge waf check FOLDER` says what can't be used.
    #[schemars(extend("format" = "path"))]
    pub(super) crs: Option<PathBuf>,
    /// Of the Core Rule Set: how many rules refuse, 1 (few false alarms) to 4. Default as the set-up says, or 1.
    #[schemars(range(min = 1, max = 4))]
    pub(super) paranoia_level: Option<u8>,
    /// Of the Core Rule Set: the level whose rules are counted without refusing, not below `paranoia_level`. Default the same.
    #[schemars(range(min = 1, max = 4))]
    pub(super) detection_paranoia_level: Option<u8>,
    /// The score at which a request is refused, 1 to 10000; one attack has 5. Default 5, or as the set-up says.
    #[schemars(range(min = 1, max = 10_000))]
    pub(super) threshold: Option<u32>,
    /// Of the Core Rule Set: the score at which a response is refused, 1 to 10000. Default as the set-up says, or 4.
    #[schemars(range(min = 1, max = 10_000))]
    pub(super) outbound_threshold: Option<u32>,
    /// Of the Core Rule Set: methods that are allowed. Default as the set-up says, or GET, HEAD, POST and OPTIONS.
    #[schemars(length(max = 32))]
    pub(super) allowed_methods: Vec<String>,
    /// Of the Core Rule Set: media types that bodies may have, such as `application/json`. Default as the set-up says.
    #[schemars(length(max = 100))]
    pub(super) allowed_content_types: Vec<String>,
    /// Variables of TX by name, set after the set-up, such as `max_num_args: "255"`. Only with `crs`.
    pub(super) variables: BTreeMap<String, String>,
    /// Rules that are left out, by id or range of ids, such as `920350` or `942100-942199`.
    #[schemars(length(max = 10_000))]
    pub(super) remove_rules: Vec<String>,
    /// Rules that are left out, by tag (a regular expression), such as `attack-php`.
    #[schemars(length(max = 100))]
    pub(super) remove_tags: Vec<String>,
}

/// A profile of our own rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProfileName {
    /// What hardly any honest request has in it.
    Balanced,
    /// Also what looks suspicious.
    Aggressive,
}

/// Rules that some requests are not asked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExclusionSettings {
    /// Which requests, as in `when`, for example `{path: /admin}`. Default all.
    #[serde(default)]
    pub(super) when: Option<written::Condition>,
    /// Rules by id or range of ids. One of `rules` and `tags` is required.
    #[serde(default)]
    #[schemars(length(max = 10_000))]
    pub(super) rules: Vec<String>,
    /// Rules by tag (a regular expression).
    #[serde(default)]
    #[schemars(length(max = 100))]
    pub(super) tags: Vec<String>,
    /// Only these targets of the rules, such as `ARGS:comment` or `REQUEST_COOKIES:/^_ga/`. Default the rules as a whole.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    pub(super) targets: Vec<String>,
}

/// Bodies of requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BodySettings {
    /// Whether they are inspected. Default true.
    pub(super) inspect: bool,
    /// Bytes of a body that are inspected, 1 to 16 MiB. Default 128 KiB.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub(super) max_size: Bytes,
    /// Bytes of a multipart body, 1 to 256 MiB; it is held in memory until it was inspected. Files in it are inspected by their names
    /// alone, so that they don't count in `max_size`; what is not a file is bounded by `limits`. Default 16 MiB.
    #[schemars(range(min = 1, max = 268_435_456))]
    pub(super) max_upload: Bytes,
    /// What becomes of larger ones: `reject` answers 413, `pass` inspects the head alone. Media (`image/*`, `audio/*`, `video/*`,
    /// `font/*`, PDF, archives) that begin as such have their first `max_size` inspected, and pass. Default `reject`.
    pub(super) over_limit: OnTrouble,
    /// What becomes of bodies that are not what their content type says: `reject`, or `pass` them by what could be read.
    /// Default `reject`.
    pub(super) malformed: OnTrouble,
    /// Whether the strings within GraphQL documents are inspected by themselves, without their escapes: `query` of a URL or of
    /// JSON, and bodies of `application/graphql`. Default true.
    pub(super) graphql: bool,
    /// What becomes of compressed bodies: `reject` answers 415, `pass` inspects the head alone. Default `reject`.
    pub(super) encoded: OnTrouble,
}

/// What becomes of what can't be inspected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnTrouble {
    /// It is refused.
    #[default]
    Reject,
    /// It goes on.
    Pass,
}

/// What one request may cost.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitSettings {
    /// Arguments of the query and the body together, 1 to 100,000. Default 1,000.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) arguments: usize,
    /// Levels of arrays and objects in JSON, 1 to 1,000. Default 64.
    #[schemars(range(min = 1, max = 1000))]
    pub(super) json_depth: usize,
    /// Levels of JSON within arguments that are read as JSON, such as `data={"a":1}`, 0 to 8. Default 2.
    #[schemars(range(max = 8))]
    pub(super) nested_json: usize,
    /// Levels of elements in XML, 1 to 1,000. Default 64.
    #[schemars(range(min = 1, max = 1000))]
    pub(super) xml_depth: usize,
    /// Parts of a multipart body, 1 to 10,000. Default 100.
    #[schemars(range(min = 1, max = 10_000))]
    pub(super) parts: usize,
    /// Bytes of one value that are inspected, 64 to 16 MiB. Default 128 KiB.
    #[schemars(range(min = 64, max = 16_777_216))]
    pub(super) value_size: Bytes,
    /// Bytes that the rules read in all, each value as often as it is read, 1 KiB to 16 GiB. Default 64 MiB.
    #[schemars(range(min = 1024, max = 17_179_869_184_u64))]
    pub(super) budget: Bytes,
    /// What becomes of a request that goes beyond one of these: `reject`, or `pass` it by what was inspected. Default
    /// `reject`.
    pub(super) exceeded: OnTrouble,
}

/// Responses of targets. Where bodies are inspected, `Accept-Encoding`, `Range` and `If-Range` are not sent to targets, and ranges are
/// answered with the whole.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ResponseSettings {
    /// Bytes of a body that are inspected, 0 to 16 MiB; 0 inspects heads alone. What is behind them passes. Default 256 KiB.
    #[schemars(range(max = 16_777_216))]
    pub(super) max_size: Bytes,
    /// Media types whose bodies are inspected. Default `text/html`, `text/plain`, `text/xml`, `application/json`.
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
