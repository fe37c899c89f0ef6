//! The settings of Kong's plugins as those of ours.

use serde_json::{Map, Value, json};

use super::{text, texts};
use crate::draft::{Import, set};
use crate::tree::{Node, NodeValue};

/// Our plugin's name and settings; or why there is none like it, or none that keeps out whom this one does.
pub(super) fn settings(
    out: &mut Import,
    place: &str,
    theirs: &str,
    config: &Node,
) -> Result<(&'static str, Map<String, Value>), String> {
    let mut reader = SettingsReader { out, place, config, made: Map::new(), why: None };
    match reader.ours(theirs) {
        Some(ours) => Ok((ours, reader.made)),
        None => Err(reader.why.unwrap_or_else(|| "its settings have no counterpart here".to_owned())),
    }
}

/// The key under which settings have the condition of the plugin config.
pub(super) const WHEN: &str = "__when";

/// Reads the settings of one plugin.
pub(super) struct SettingsReader<'r> {
    pub(super) out: &'r mut Import,
    place: &'r str,
    pub(super) config: &'r Node,
    made: Map<String, Value>,
    /// Why there is no counterpart.
    pub(super) why: Option<String>,
}

impl SettingsReader<'_> {
    fn ours(&mut self, theirs: &str) -> Option<&'static str> {
        Some(match theirs {
            "key-auth" => self.key_auth(),
            "basic-auth" => self.basic_auth(),
            "hmac-auth" => self.hmac_auth()?,
            "jwt" => self.jwt()?,
            "acl" => self.acl()?,
            "ip-restriction" => self.ip_restriction(),
            "bot-detection" => self.bot_detection()?,
            "rate-limiting" => self.rate_limiting()?,
            "request-size-limiting" => self.request_size_limiting(),
            "cors" => self.cors()?,
            "request-transformer" => self.transformer("request_transformer", "querystring"),
            "response-transformer" => self.transformer("response_transformer", ""),
            "correlation-id" => self.correlation_id(),
            "request-termination" => self.request_termination(),
            "grpc-web" => "grpc_web",
            "ldap-auth" => self.ldap_auth()?,
            "oauth2-introspection" => self.introspection()?,
            "openid-connect" => self.openid()?,
            "opentelemetry" => self.opentelemetry()?,
            "proxy-cache" => self.proxy_cache()?,
            _ => return self.cannot("there is no such plugin here"),
        })
    }

    /// Says why there is no counterpart.
    pub(super) fn cannot<T>(&mut self, why: impl Into<String>) -> Option<T> {
        self.why = Some(why.into());
        None
    }

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
                return self.cannot("none of its `algorithms` is known here: HMAC-SHA1 is not accepted");
            }
            self.set("algorithms", kept);
        }
        if let Some(skew) = self.number("clock_skew") {
            self.set("clock_skew", skew);
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
        if self.flag("secret_is_base64", false) {
            return self.cannot("`secret_is_base64`: secrets are taken as they are written");
        }
        if self.number("maximum_expiration").unwrap_or(0) > 0 {
            return self.cannot("`maximum_expiration`: how long tokens are good is not limited");
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
        if let Some(key) = others.iter().find(|key| self.flag(key, false)) {
            return self.cannot(format!("`{key}`: only the groups of consumers' ACLs are known"));
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

    /// Patterns are regexes, which have to fit a part of the header, in its case.
    fn bot_detection(&mut self) -> Option<&'static str> {
        for key in ["allow", "deny"] {
            let list = texts(self.config, key);
            if let Some(bad) = list.iter().find(|regex| !crate::text::is_regex(regex)) {
                return self.cannot(format!("`{key}`: the regex `{bad}` has no counterpart"));
            }
            if !list.is_empty() {
                let list: Vec<String> = list.iter().map(|regex| format!("~(?-i:{regex})")).collect();
                self.set(key, list);
            }
        }
        Some("bot_detection")
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
            return self.cannot("it has no limit");
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
            other => {
                let why = format!("`limit_by: {other}` has no counterpart");
                return self.cannot(why);
            }
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
        self.set("max_size", self.number("allowed_payload_size").unwrap_or(128).saturating_mul(unit));
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
        if let Some(regex) = origins.iter().find(|origin| !is_plain(origin)) {
            return self.cannot(format!("`origins`: `{regex}` is a regex, which origins can't be here"));
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
                        None => rules.extend(self.untold(&format!("{theirs}.{list}"), ours, target, item)),
                    }
                }
            }
        }
        self.set("rules", rules);
        ours
    }

    /// Names a value that is not translated. Where a target would not get what the client sends, it is removed: it does not pass
    /// for what Kong says in its place.
    fn untold(&mut self, key: &str, ours: &str, target: &str, item: &str) -> Option<Value> {
        let replaces = key.starts_with("replace.") || key.starts_with("rename.");
        let is_removed = replaces && ours == "request_transformer";
        let rest = if is_removed { "; what the client sends is removed" } else { "" };
        let why = format!("values with expressions are not translated{rest}");
        self.out.miss(format_args!("{}.{key}: `{item}`", self.place), why);
        let name = item.split(':').next().unwrap_or_default();
        if is_removed { rule("remove", target, name) } else { None }
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
        _ if value.contains("$(") => return None,
        "rename" => made["new_key"] = json!(key(value.trim())),
        _ => made["value"] = json!(value.trim().replace('$', "$$")),
    }
    Some(made)
}
