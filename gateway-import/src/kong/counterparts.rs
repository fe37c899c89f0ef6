//! The settings of Kong's plugins as those of ours.

use serde_json::{Map, Value, json};

use super::{text, texts};
use crate::draft::{Import, set};
use crate::tree::{Node, NodeValue};

/// Our plugin's name and settings; `None` when there is none like it, or none that keeps out whom this one does.
pub(super) fn settings(
    out: &mut Import,
    place: &str,
    theirs: &str,
    config: &Node,
) -> Option<(&'static str, Map<String, Value>)> {
    let reader = &mut SettingsReader { out, place, config, made: Map::new() };
    let ours = match theirs {
        "key-auth" => reader.key_auth(),
        "basic-auth" => reader.basic_auth(),
        "hmac-auth" => reader.hmac_auth()?,
        "jwt" => reader.jwt()?,
        "acl" => reader.acl()?,
        "ip-restriction" => reader.ip_restriction(),
        "bot-detection" => reader.bot_detection(),
        "rate-limiting" => reader.rate_limiting()?,
        "request-size-limiting" => reader.request_size_limiting(),
        "cors" => reader.cors()?,
        "request-transformer" => reader.transformer("request_transformer", "querystring"),
        "response-transformer" => reader.transformer("response_transformer", ""),
        "correlation-id" => reader.correlation_id(),
        "request-termination" => reader.request_termination(),
        "grpc-web" => "grpc_web",
        "ldap-auth" => reader.ldap_auth()?,
        "oauth2-introspection" => reader.introspection()?,
        "openid-connect" => reader.openid()?,
        "opentelemetry" => reader.opentelemetry()?,
        "proxy-cache" => reader.proxy_cache()?,
        _ => return None,
    };
    Some((ours, std::mem::take(&mut reader.made)))
}

/// The key under which settings have the condition of the plugin config.
pub(super) const WHEN: &str = "__when";

/// Reads the settings of one plugin.
pub(super) struct SettingsReader<'r> {
    pub(super) out: &'r mut Import,
    place: &'r str,
    pub(super) config: &'r Node,
    made: Map<String, Value>,
}

impl SettingsReader<'_> {
    pub(super) fn flag(&self, key: &str, default: bool) -> bool {
        self.config.get(key).and_then(Node::bool).unwrap_or(default)
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.config.get(key).and_then(Node::uint)
    }

    pub(super) fn set(&mut self, key: &str, value: impl Into<Value>) {
        set(&mut self.made, key, value);
    }

    pub(super) fn miss(&mut self, key: &str, why: &str) {
        self.out.miss(format_args!("{}.{key}", self.place), why);
    }

    /// Whether a key says something.
    pub(super) fn says(&self, key: &str) -> bool {
        match self.config.get(key).map(|node| &node.value) {
            None | Some(NodeValue::Null | NodeValue::Bool(false)) => false,
            Some(NodeValue::List(list)) => !list.is_empty(),
            Some(NodeValue::Text(text)) => !text.is_empty(),
            Some(_) => true,
        }
    }

    /// Copies a list that says something.
    pub(super) fn copied(&mut self, theirs: &str, ours: &str) {
        let list = texts(self.config, theirs);
        if !list.is_empty() {
            self.set(ours, list);
        }
    }

    /// What all authentication plugins have.
    pub(super) fn authentication(&mut self) {
        self.set("hide_credentials", self.flag("hide_credentials", false));
        if !self.flag("run_on_preflight", true) {
            self.miss("run_on_preflight", "preflight requests are asked for a credential, too; see `cors`");
        }
        if let Some(anonymous) = text(self.config, "anonymous").filter(|it| !it.is_empty()) {
            self.set("anonymous", anonymous);
            self.miss("anonymous", "a wrong credential is refused here");
        }
    }

    fn key_auth(&mut self) -> &'static str {
        let mut names = texts(self.config, "key_names");
        if names.is_empty() {
            names.push("apikey".to_owned());
        }
        let (header, query) = (self.flag("key_in_header", true), self.flag("key_in_query", true));
        let places: Vec<String> = names
            .iter()
            .flat_map(|name| {
                let places =
                    [header.then(|| format!("header:{name}")), query.then(|| format!("query:{name}"))];
                places.into_iter().flatten()
            })
            .collect();
        self.set("key_location", places);
        if self.says("key_in_body") {
            self.miss("key_in_body", "the key is not looked for in bodies");
        }
        self.authentication();
        "key_auth"
    }

    fn basic_auth(&mut self) -> &'static str {
        self.authentication();
        if let Some(realm) = text(self.config, "realm") {
            self.set("realm", realm);
        }
        "basic_auth"
    }

    fn hmac_auth(&mut self) -> Option<&'static str> {
        self.set("schemes", json!(["authorization"]));
        let known = ["hmac-sha256", "hmac-sha384", "hmac-sha512"];
        let algorithms = texts(self.config, "algorithms");
        if !algorithms.is_empty() {
            let kept: Vec<_> =
                algorithms.iter().filter(|name| known.contains(&name.as_str())).cloned().collect();
            if kept.is_empty() {
                return None;
            }
            self.set("algorithms", kept);
        }
        if let Some(skew) = self.number("clock_skew") {
            self.set("clock_skew_seconds", skew);
        }
        self.copied("enforce_headers", "enforce_headers");
        self.set("validate_request_body", self.flag("validate_request_body", false));
        self.authentication();
        if algorithms.is_empty() || algorithms.iter().any(|name| !known.contains(&name.as_str())) {
            self.miss("algorithms", "HMAC-SHA1 is not accepted");
        }
        Some("hmac_auth")
    }

    /// Tokens name a consumer by the claim that holds its credential's key.
    fn jwt(&mut self) -> Option<&'static str> {
        if self.flag("secret_is_base64", false) || self.number("maximum_expiration").unwrap_or(0) > 0 {
            return None;
        }
        let named = |key: &str, default: &[&str]| match self.config.get(key) {
            None => default.iter().map(|name| (*name).to_owned()).collect(),
            Some(_) => texts(self.config, key),
        };
        let places: Vec<String> = [
            ("header", named("header_names", &["authorization"])),
            ("query", named("uri_param_names", &["jwt"])),
            ("cookie", named("cookie_names", &[])),
        ]
        .into_iter()
        .flat_map(|(place, names)| names.into_iter().map(move |name| format!("{place}:{name}")))
        .collect();
        self.set("token_lookup", places);
        self.set("consumer_claim_field", text(self.config, "key_claim_name").unwrap_or("iss"));
        let verified = texts(self.config, "claims_to_verify");
        self.set("require_exp", verified.iter().any(|claim| claim == "exp"));
        if verified.is_empty() {
            self.miss("claims_to_verify", "`exp` and `nbf` of tokens that have them are verified here");
        }
        self.authentication();
        Some("jwt_auth")
    }

    /// Groups are those of the consumer's ACLs; with others, whom it keeps out is not known.
    fn acl(&mut self) -> Option<&'static str> {
        let others = ["include_consumer_groups", "always_use_authenticated_groups"];
        if others.iter().any(|key| self.flag(key, false)) {
            return None;
        }
        if self.flag("hide_groups_header", false) {
            self.miss("hide_groups_header", "targets get X-Consumer-Groups");
        }
        self.copied("allow", "allowed_groups");
        self.copied("deny", "disallowed_groups");
        Some("access_control")
    }

    fn ip_restriction(&mut self) -> &'static str {
        self.copied("allow", "allow");
        self.copied("deny", "deny");
        if let Some(status) = self.number("status") {
            self.set("status_code", status);
        }
        if self.says("message") {
            self.miss("message", "refusals have a text of their own");
        }
        "ip_restriction"
    }

    fn bot_detection(&mut self) -> &'static str {
        self.copied("allow", "allow");
        self.copied("deny", "deny");
        "bot_detection"
    }

    fn rate_limiting(&mut self) -> Option<&'static str> {
        let periods = [
            ("second", "1s"),
            ("minute", "1m"),
            ("hour", "1h"),
            ("day", "24h"),
            ("month", "720h"),
            ("year", "8760h"),
        ];
        let limits: Vec<Value> = periods
            .iter()
            .filter_map(|(key, per)| Some(json!({ "rate": self.number(key)?, "per": per })))
            .collect();
        if limits.is_empty() {
            return None;
        }
        self.set("limits", limits);
        let by = match text(self.config, "limit_by").unwrap_or("consumer") {
            "consumer" | "credential" => "consumer".to_owned(),
            "ip" => "address".to_owned(),
            "consumer-group" => "group".to_owned(),
            "header" => format!("header:{}", text(self.config, "header_name")?),
            "path" | "service" => {
                self.miss("limit_by", "the limit is for each proxy");
                "route".to_owned()
            }
            _ => return None,
        };
        self.set("limit_by", by);
        self.set("on_missing", "address");
        self.set("headers", if self.flag("hide_client_headers", false) { "none" } else { "both" });
        if let Some(status) = self.number("error_code") {
            self.set("status_code", status);
        }
        match text(self.config, "policy") {
            Some("redis") => self.redis(),
            Some(policy) if policy != "local" => self.miss("policy", "each gateway counts for itself"),
            _ => {}
        }
        Some("rate_limiting")
    }

    fn request_size_limiting(&mut self) -> &'static str {
        let unit: u64 = match text(self.config, "size_unit") {
            Some("bytes") => 1,
            Some("kilobytes") => 1 << 10,
            _ => 1 << 20,
        };
        self.set("max_bytes", self.number("allowed_payload_size").unwrap_or(128).saturating_mul(unit));
        self.set("require_content_length", self.flag("require_content_length", false));
        "request_size_limiting"
    }

    fn cors(&mut self) -> Option<&'static str> {
        let mut origins = texts(self.config, "origins");
        if origins.is_empty() {
            origins.push("*".to_owned());
        }
        let is_plain = |origin: &String| {
            origin == "*"
                || origin.contains("://") && !origin.contains(['*', '(', '[', '\\', '^', '$', '?', '+'])
        };
        if !origins.iter().all(is_plain) {
            return None;
        }
        let mut credentials = self.flag("credentials", false);
        if credentials && origins.iter().any(|origin| origin == "*") {
            self.miss(
                "credentials",
                "every origin together with credentials is refused here; there are none",
            );
            credentials = false;
        }
        self.set("allowed_origins", origins);
        self.set("allow_credentials", credentials);
        self.copied("methods", "allowed_methods");
        match texts(self.config, "headers") {
            headers if headers.is_empty() && credentials => {
                self.miss("headers", "beside credentials only the usual request headers are allowed");
            }
            headers if headers.is_empty() => self.set("allowed_headers", json!(["*"])),
            headers => self.set("allowed_headers", headers),
        }
        self.copied("exposed_headers", "exposed_headers");
        if let Some(age) = self.number("max_age") {
            self.set("max_age", age);
        }
        self.set("preflight_continue", self.flag("preflight_continue", false));
        self.set("allow_private_network", self.flag("private_network", false));
        Some("cors")
    }

    /// In Kong's order: remove, rename, replace, add, append.
    fn transformer(&mut self, ours: &'static str, query: &str) -> &'static str {
        let mut rules = Vec::new();
        for (theirs, operation) in [
            ("remove", "remove"),
            ("rename", "rename"),
            ("replace", "update"),
            ("add", "add"),
            ("append", "append"),
        ] {
            let Some(lists) = self.config.get(theirs) else { continue };
            for (list, items) in lists.entries() {
                let items: Vec<&str> = items.items().iter().filter_map(Node::str).collect();
                let target = match list.as_str() {
                    "headers" => "header",
                    "body" | "json" => "body",
                    name if name == query => "query",
                    _ => {
                        if !items.is_empty() {
                            self.out
                                .miss(format_args!("{}.{theirs}.{list}", self.place), "it is not changed");
                        }
                        continue;
                    }
                };
                for item in items {
                    match rule(operation, target, item) {
                        Some(rule) => rules.push(rule),
                        None => self.out.miss(
                            format_args!("{}.{theirs}.{list}: `{item}`", self.place),
                            "values with expressions are not translated",
                        ),
                    }
                }
            }
        }
        self.set("rules", rules);
        ours
    }

    fn correlation_id(&mut self) -> &'static str {
        self.set("header_name", text(self.config, "header_name").unwrap_or("Kong-Request-ID"));
        self.set("echo_downstream", self.flag("echo_downstream", false));
        "correlation_id"
    }

    fn request_termination(&mut self) -> &'static str {
        if let Some(status) = self.number("status_code") {
            self.set("status_code", status);
        }
        for key in ["message", "content_type", "body"] {
            if let Some(value) = text(self.config, key) {
                self.set(key, value);
            }
        }
        if let Some(name) = text(self.config, "trigger").filter(|name| !name.is_empty()) {
            let present = json!({ name: { "present": true } });
            self.set(WHEN, json!({ "any": [{ "headers": present }, { "query": present }] }));
        }
        "request_termination"
    }
}

/// One of Kong's `name`, `old:new` or `name:value` as a rule of ours.
fn rule(operation: &str, target: &str, item: &str) -> Option<Value> {
    let key = |name: &str| match target {
        "body" => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
        _ => name.to_owned(),
    };
    let mut made = json!({ "operation": operation, "target": target });
    if operation == "remove" {
        made["key"] = json!(key(item.trim()));
        return Some(made);
    }
    let (name, value) = item.split_once(':')?;
    made["key"] = json!(key(name.trim()));
    match operation {
        "rename" => made["new_key"] = json!(key(value.trim())),
        _ if value.contains("$(") => return None,
        _ => made["value"] = json!(value.trim().replace('$', "$$")),
    }
    Some(made)
}
