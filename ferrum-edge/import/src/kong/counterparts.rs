//! The settings of Kong's plugins as those of ours.

use super::{replace_uri, some, text, texts};
use crate::cond::Cond;
use crate::draft::{
    AccessControl, BasicAuth, BotDetection, CorrelationId, Cors, GrpcWeb, HeaderRule, HmacAuth, Import,
    IpRestriction, JwtAuth, KeyAuth, Limit, Matcher, Plug, RateLimiting, RequestSizeLimiting,
    RequestTermination, draft,
};
use crate::tree::{Node, NodeValue};

/// What one of Kong's plugins is here.
pub(super) struct Counterpart {
    pub(super) plug: Plug,
    /// A second plugin of ours that does a part of it.
    pub(super) second: Option<Plug>,
}

/// Our plugin with its settings; or why there is none like it, or none that keeps out whom this one does.
pub(super) fn counterpart(
    out: &mut Import,
    place: &str,
    theirs: &str,
    config: &Node,
) -> Result<Counterpart, String> {
    let mut reader = SettingsReader { out, place, config, why: None, second: None };
    match reader.ours(theirs) {
        Some(plug) => Ok(Counterpart { plug, second: reader.second }),
        None => Err(reader.why.unwrap_or_else(|| "its settings have no counterpart here".to_owned())),
    }
}

/// Reads the settings of one plugin.
pub(super) struct SettingsReader<'r> {
    pub(super) out: &'r mut Import,
    place: &'r str,
    pub(super) config: &'r Node,
    /// Why there is no counterpart.
    pub(super) why: Option<String>,
    /// What a further plugin of ours does of it.
    second: Option<Plug>,
}

impl SettingsReader<'_> {
    fn ours(&mut self, theirs: &str) -> Option<Plug> {
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
            "request-transformer" => self.transformer("request_transformer", "querystring")?,
            "response-transformer" => self.transformer("response_transformer", "")?,
            "correlation-id" => self.correlation_id(),
            "request-termination" => self.request_termination(),
            "grpc-web" => Plug::of(GrpcWeb::default()),
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

    pub(super) fn not_converted(&mut self, key: &str, why: &str) {
        self.out.not_converted_here(format_args!("{}.{key}", self.place), why);
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

    /// A list that says something.
    pub(super) fn list(&self, key: &str) -> Option<Vec<String>> {
        some(texts(self.config, key))
    }

    /// What all authentication plugins have: whether credentials are hidden, and who callers without one are.
    pub(super) fn authentication(&mut self) -> (bool, Option<String>) {
        if !self.flag("run_on_preflight", true) {
            self.not_converted(
                "run_on_preflight",
                "preflight requests are asked for a credential, too; see `cors`",
            );
        }
        let anonymous = text(self.config, "anonymous").filter(|it| !it.is_empty()).map(str::to_owned);
        if anonymous.is_some() {
            self.not_converted("anonymous", "a wrong credential is refused here");
        }
        (self.flag("hide_credentials", false), anonymous)
    }

    fn key_auth(&mut self) -> Plug {
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
        if self.says("key_in_body") {
            self.not_converted("key_in_body", "the key is not looked for in bodies");
        }
        let (hide_credentials, anonymous) = self.authentication();
        Plug::of(draft!(KeyAuth { key_location: places, hide_credentials, anonymous }))
    }

    fn basic_auth(&mut self) -> Plug {
        let (hide_credentials, anonymous) = self.authentication();
        let realm = text(self.config, "realm");
        Plug::of(draft!(BasicAuth { hide_credentials, anonymous, realm }))
    }

    fn hmac_auth(&mut self) -> Option<Plug> {
        let known = ["hmac-sha256", "hmac-sha384", "hmac-sha512"];
        let algorithms = texts(self.config, "algorithms");
        let kept: Vec<&String> = algorithms.iter().filter(|name| known.contains(&name.as_str())).collect();
        if kept.is_empty() && !algorithms.is_empty() {
            return self.cannot("none of its `algorithms` is known here: HMAC-SHA1 is not accepted");
        }
        let (hide_credentials, anonymous) = self.authentication();
        if algorithms.is_empty() || kept.len() < algorithms.len() {
            self.not_converted("algorithms", "HMAC-SHA1 is not accepted");
        }
        Some(Plug::of(draft!(HmacAuth {
            schemes: ["authorization"],
            algorithms: some(kept),
            clock_skew: self.number("clock_skew"),
            enforce_headers: self.list("enforce_headers"),
            validate_request_body: self.flag("validate_request_body", false),
            hide_credentials,
            anonymous,
        })))
    }

    /// Tokens name a consumer by the claim that holds its credential's key.
    fn jwt(&mut self) -> Option<Plug> {
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
        let verified = texts(self.config, "claims_to_verify");
        if verified.is_empty() {
            self.not_converted(
                "claims_to_verify",
                "`exp` and `nbf` of tokens that have them are verified here",
            );
        }
        let (hide_credentials, anonymous) = self.authentication();
        Some(Plug::of(draft!(JwtAuth {
            token_lookup: places,
            consumer_claim_field: text(self.config, "key_claim_name").unwrap_or("iss"),
            require_exp: verified.iter().any(|claim| claim == "exp"),
            hide_credentials,
            anonymous,
        })))
    }

    /// Groups are those of the consumer's ACLs; with others, whom it keeps out is not known.
    fn acl(&mut self) -> Option<Plug> {
        let others = ["include_consumer_groups", "always_use_authenticated_groups"];
        if let Some(key) = others.iter().find(|key| self.flag(key, false)) {
            return self.cannot(format!("`{key}`: only the groups of consumers' ACLs are known"));
        }
        if self.flag("hide_groups_header", false) {
            self.not_converted("hide_groups_header", "targets get X-Consumer-Groups");
        }
        let (allowed_groups, disallowed_groups) = (self.list("allow"), self.list("deny"));
        Some(Plug::of(draft!(AccessControl { allowed_groups, disallowed_groups })))
    }

    fn ip_restriction(&mut self) -> Plug {
        if self.says("message") {
            self.not_converted("message", "refusals have a text of their own");
        }
        let (allow, deny) = (self.list("allow"), self.list("deny"));
        Plug::of(draft!(IpRestriction { allow, deny, status_code: self.number("status") }))
    }

    fn bot_detection(&mut self) -> Option<Plug> {
        let (allow, deny) = (self.patterns("allow")?, self.patterns("deny")?);
        Some(Plug::of(draft!(BotDetection { allow: some(allow), deny: some(deny) })))
    }

    /// Patterns are regexes, which have to fit a part of the header, in its case.
    fn patterns(&mut self, key: &str) -> Option<Vec<String>> {
        let list = texts(self.config, key);
        if let Some(bad) = list.iter().find(|regex| !crate::text::is_regex(regex)) {
            return self.cannot(format!("`{key}`: the regex `{bad}` has no counterpart"));
        }
        Some(list.iter().map(|regex| format!("~(?-i:{regex})")).collect())
    }

    fn rate_limiting(&mut self) -> Option<Plug> {
        let periods = [
            ("second", "1s"),
            ("minute", "1m"),
            ("hour", "1h"),
            ("day", "24h"),
            ("month", "720h"),
            ("year", "8760h"),
        ];
        let limits: Vec<Limit> = periods
            .iter()
            .filter_map(|(key, per)| Some(draft!(Limit { rate: self.number(key)?, per: *per })))
            .collect();
        if limits.is_empty() {
            return self.cannot("it has no limit");
        }
        let limit_by = match text(self.config, "limit_by").unwrap_or("consumer") {
            "consumer" | "credential" => "consumer".to_owned(),
            "ip" => "address".to_owned(),
            "consumer-group" => "group".to_owned(),
            "header" => format!("header:{}", text(self.config, "header_name")?),
            "path" | "service" => {
                self.not_converted("limit_by", "the limit is for each proxy");
                "route".to_owned()
            }
            other => {
                let why = format!("`limit_by: {other}` has no counterpart");
                return self.cannot(why);
            }
        };
        let redis = match text(self.config, "policy") {
            Some("redis") => self.redis(),
            Some(policy) if policy != "local" => {
                self.not_converted("policy", "each gateway counts for itself");
                None
            }
            _ => None,
        };
        Some(Plug::of(draft!(RateLimiting {
            limits,
            limit_by,
            on_missing: "address",
            headers: if self.flag("hide_client_headers", false) { "none" } else { "both" },
            status_code: self.number("error_code"),
            redis,
        })))
    }

    fn request_size_limiting(&self) -> Plug {
        let unit: u64 = match text(self.config, "size_unit") {
            Some("bytes") => 1,
            Some("kilobytes") => 1 << 10,
            _ => 1 << 20,
        };
        Plug::of(draft!(RequestSizeLimiting {
            max_size: self.number("allowed_payload_size").unwrap_or(128).saturating_mul(unit),
            require_content_length: self.flag("require_content_length", false),
        }))
    }

    fn cors(&mut self) -> Option<Plug> {
        let mut origins = texts(self.config, "origins");
        // One that stands for all leaves no others.
        if origins.is_empty() || origins.iter().any(|origin| origin == "*") {
            origins = vec!["*".to_owned()];
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
            self.not_converted(
                "credentials",
                "every origin together with credentials is refused here; there are none",
            );
            credentials = false;
        }
        let headers = self.list("headers").or_else(|| (!credentials).then(|| vec!["*".to_owned()]));
        if headers.is_none() {
            self.not_converted("headers", "beside credentials only the usual request headers are allowed");
        }
        Some(Plug::of(draft!(Cors {
            allowed_origins: origins,
            allow_credentials: credentials,
            allowed_methods: self.list("methods"),
            allowed_headers: headers,
            exposed_headers: self.list("exposed_headers"),
            max_age: self.number("max_age"),
            preflight_continue: self.flag("preflight_continue", false),
            allow_private_network: self.flag("private_network", false),
        })))
    }

    /// In Kong's order: remove, rename, replace, add, append.
    fn transformer(&mut self, ours: &'static str, query: &str) -> Option<Plug> {
        let mut rules = Vec::new();
        let path = replace_uri::new_path(self.config).filter(|_| ours == "request_transformer");
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
                    "uri" if path.is_some() => continue,
                    _ => {
                        if !items.is_empty() {
                            self.out.not_converted_here(
                                format_args!("{}.{theirs}.{list}", self.place),
                                "it is not changed",
                            );
                        }
                        continue;
                    }
                };
                for item in items {
                    match rule(operation, target, item) {
                        Some(rule) => rules.push(rule),
                        None => rules.extend(self.value_not_converted(
                            &format!("{theirs}.{list}"),
                            ours,
                            target,
                            item,
                        )),
                    }
                }
            }
        }
        let changes = Plug::of_rules(ours, rules.clone());
        let Some(path) = path else { return Some(changes) };
        let Some(rewrite) = replace_uri::rewrite(path) else {
            return self
                .cannot("`replace.uri`: a path with other expressions than one value is not made anew");
        };
        if rules.is_empty() {
            return Some(rewrite);
        }
        if replace_uri::reads_fields(&rewrite) {
            return self.cannot("`replace.uri`: a path of fields is not made anew beside other changes");
        }
        self.second = Some(rewrite);
        Some(changes)
    }

    /// Reports a value that is not converted. Where a target would not get what the client sends, it is removed: it does not pass
    /// for what Kong says in its place.
    fn value_not_converted(&mut self, key: &str, ours: &str, target: &str, item: &str) -> Option<HeaderRule> {
        let replaces = key.starts_with("replace.") || key.starts_with("rename.");
        let is_removed = replaces && ours == "request_transformer";
        let rest = if is_removed { "; what the client sends is removed" } else { "" };
        let why = format!("values with expressions are not converted{rest}");
        self.out.not_converted_here(format_args!("{}.{key}: `{item}`", self.place), why);
        let name = item.split(':').next().unwrap_or_default();
        if is_removed { rule("remove", target, name) } else { None }
    }

    fn correlation_id(&self) -> Plug {
        let header_name = text(self.config, "header_name").unwrap_or("Kong-Request-ID");
        let echo_downstream = self.flag("echo_downstream", false);
        Plug::of(draft!(CorrelationId { header_name, echo_downstream }))
    }

    fn request_termination(&self) -> Plug {
        let plug = Plug::of(draft!(RequestTermination {
            status_code: self.number("status_code"),
            message: text(self.config, "message"),
            content_type: text(self.config, "content_type"),
            body: text(self.config, "body"),
        }));
        let trigger = text(self.config, "trigger").filter(|name| !name.is_empty()).map(|name| {
            let present = Matcher::present(true);
            Cond::header(name, present.clone()).or(Cond::query(name, present))
        });
        plug.when(trigger.and_then(|trigger| trigger.when()))
    }
}

/// One of Kong's `name`, `old:new` or `name:value` as a rule of ours.
fn rule(operation: &str, target: &str, item: &str) -> Option<HeaderRule> {
    let key = |name: &str| match target {
        "body" => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
        _ => name.to_owned(),
    };
    let mut made = draft!(HeaderRule { operation, target });
    if operation == "remove" {
        made.key(key(item.trim()));
        return Some(made);
    }
    let (name, value) = item.split_once(':')?;
    made.key(key(name.trim()));
    match operation {
        _ if value.contains("$(") => return None,
        "rename" => made.new_key(key(value.trim())),
        _ => made.value(value.trim().replace('$', "$$")),
    }
    Some(made)
}
