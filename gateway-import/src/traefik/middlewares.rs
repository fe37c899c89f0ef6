//! Traefik's middlewares as plugins. What guards and can't be translated closes its routers.

use serde_json::{Value, json};

use super::Traefik;
use crate::draft::Plug;
use crate::text;
use crate::tree::Node;

const TODO: &str = "guard it with a plugin, then remove `request_termination`";

/// What a middleware becomes.
#[derive(Debug, Clone, Default)]
pub(super) struct Made {
    pub(super) plugins: Vec<Plug>,
    pub(super) is_closed: bool,
    pub(super) retry: Option<u64>,
}

impl Traefik<'_> {
    /// The middleware of this name; `None` when there is none.
    pub(super) fn middleware(&mut self, name: &str, depth: usize) -> Option<Made> {
        let called = name.split('@').next().unwrap_or(name);
        let node = self.middlewares.get(called).cloned()?;
        let mut made = Made::default();
        for (kind, settings) in node.entries() {
            let what = format!("middleware {called}: {kind}");
            if kind.eq_ignore_ascii_case("chain") {
                for inner in settings.texts("middlewares") {
                    let inner = if depth < 8 { self.middleware(&inner, depth + 1) } else { None };
                    match inner {
                        Some(inner) => {
                            made.plugins.extend(inner.plugins);
                            made.is_closed |= inner.is_closed;
                        }
                        None => {
                            made.is_closed |= self.out.guard(
                                settings.at,
                                &what,
                                "a middleware in it is not there, or is itself",
                                TODO,
                            )
                        }
                    }
                }
                continue;
            }
            self.one(&what, &kind.to_ascii_lowercase(), settings, &mut made);
        }
        Some(made)
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each word of the format")]
    fn one(&mut self, what: &str, kind: &str, settings: &Node, made: &mut Made) {
        let at = settings.at;
        match kind {
            "basicauth" => return self.basic_auth(what, settings, made),
            "forwardauth" => return self.forward_auth(what, settings, made),
            "ipwhitelist" | "ipallowlist" => {
                let list = settings.texts("sourceRange");
                let good = !list.is_empty()
                    && list.iter().all(|it| text::is_network(it))
                    && settings.get("ipStrategy").is_none();
                if !good {
                    made.is_closed |= self.out.guard(
                        at,
                        what,
                        "these are not networks, or `ipStrategy` says whose address counts",
                        TODO,
                    );
                    return;
                }
                let status = settings.get("rejectStatusCode").and_then(Node::uint).unwrap_or(403);
                made.plugins
                    .push(Plug::new("ip_restriction", json!({ "allow": list, "status_code": status })));
            }
            "stripprefix" => {
                let rules: Vec<Value> = settings
                    .texts("prefixes")
                    .iter()
                    .map(|prefix| json!({ "from": format!("^{}/?(.*)$", text::literal(prefix.trim_end_matches('/'))), "to": "/${1}" }))
                    .collect();
                if rules.is_empty() {
                    return self.out.lost(at, what, "it names no prefixes", "");
                }
                made.plugins.push(Plug::new("rewrite", json!({ "regex": rules })));
            }
            "stripprefixregex" | "replacepathregex" => {
                let pair = match kind {
                    "stripprefixregex" => settings
                        .texts("regex")
                        .first()
                        .map(|regex| (format!("^(?:{})/?(.*)$", regex.trim_start_matches('^')), None)),
                    _ => settings
                        .text_of("regex")
                        .map(|regex| (regex.to_owned(), settings.text_of("replacement").map(groups))),
                };
                match pair
                    .filter(|(regex, to)| text::is_regex(regex) && (to.is_some() || !regex.contains("((")))
                {
                    Some((regex, to)) => {
                        // The last group is what follows the prefix.
                        let last = regex::Regex::new(&regex).map_or(1, |regex| regex.captures_len() - 1);
                        let to = to.unwrap_or_else(|| format!("/${{{last}}}"));
                        made.plugins
                            .push(Plug::new("rewrite", json!({ "regex": [{ "from": regex, "to": to }] })));
                    }
                    None => {
                        made.is_closed |=
                            self.out.guard(at, what, "this regex is none here", "use the plugin `rewrite`");
                        return;
                    }
                }
            }
            "addprefix" => match settings.text_of("prefix") {
                Some(prefix) => {
                    let config = json!({ "regex": [{ "from": "^(.*)$", "to": format!("{}${{1}}", prefix.trim_end_matches('/')) }] });
                    made.plugins.push(Plug::new("rewrite", config));
                }
                None => return self.out.lost(at, what, "it names no prefix", ""),
            },
            "replacepath" => match settings.text_of("path") {
                Some(path) => made.plugins.push(Plug::new("rewrite", json!({ "path": path }))),
                None => return self.out.lost(at, what, "it names no path", ""),
            },
            "redirectscheme" => {
                let scheme = settings.text_of("scheme").unwrap_or("https");
                let permanent =
                    settings.get("permanent").and_then(|it| it.plain()).as_deref() == Some("true");
                let mut config =
                    json!({ "scheme": scheme, "status_code": if permanent { 301 } else { 302 } });
                if let Some(port) = settings
                    .get("port")
                    .and_then(Node::plain)
                    .and_then(|it| it.parse::<u16>().ok())
                    .filter(|it| *it != 443)
                {
                    config["port"] = json!(port);
                }
                made.plugins.push(Plug::new("redirect", config));
            }
            "ratelimit" => {
                let average = settings
                    .get("average")
                    .and_then(Node::plain)
                    .and_then(|it| it.parse::<u64>().ok())
                    .unwrap_or(0);
                let burst = settings
                    .get("burst")
                    .and_then(Node::plain)
                    .and_then(|it| it.parse::<u64>().ok())
                    .unwrap_or(1)
                    .max(1);
                let period = settings
                    .get("period")
                    .and_then(Node::plain)
                    .map_or(Some(1000), |it| text::millis(&it, 1000));
                let (true, Some(period)) = (average > 0, period) else {
                    return self.out.lost(
                        at,
                        what,
                        "its rate is not known",
                        "use the plugin `rate_limiting`",
                    );
                };
                if settings.get("sourceCriterion").is_some() {
                    self.out.partial(
                        at,
                        what,
                        "requests are counted by the client's address",
                        "set `limit_by`",
                    );
                }
                let limit =
                    json!({ "rate": average, "per": format!("{}s", text::seconds(period)), "burst": burst });
                made.plugins
                    .push(Plug::new("rate_limiting", json!({ "limits": [limit], "headers": "none" })));
            }
            "inflightreq" => match settings
                .get("amount")
                .and_then(Node::plain)
                .and_then(|it| it.parse::<u64>().ok())
                .filter(|it| *it > 0)
            {
                Some(amount) => {
                    made.plugins.push(Plug::new(
                        "concurrency_limiting",
                        json!({ "max_concurrent": amount, "status_code": 429 }),
                    ));
                }
                None => return self.out.lost(at, what, "its amount is not known", ""),
            },
            "compress" => made.plugins.push(Plug::new(
                "compression",
                json!({ "algorithms": ["br", "gzip"], "min_content_length": 1024 }),
            )),
            "buffering" => {
                if let Some(bytes) = settings
                    .get("maxRequestBodyBytes")
                    .and_then(Node::plain)
                    .and_then(|it| it.parse::<u64>().ok())
                    .filter(|it| *it > 0)
                {
                    made.plugins.push(Plug::new("request_size_limiting", json!({ "max_bytes": bytes })));
                }
            }
            "retry" => {
                made.retry = settings.get("attempts").and_then(Node::plain).and_then(|it| it.parse().ok())
            }
            "headers" => return self.headers(what, settings, made),
            "contenttype" | "grpcweb" => {
                if kind == "grpcweb" {
                    made.plugins.push(Plug::new("grpc_web", json!({})));
                }
            }
            "errors" | "circuitbreaker" => {
                return self.out.lost(
                    at,
                    what,
                    "it is not translated",
                    "see `error_pages` and `circuit_breaker`",
                );
            }
            "redirectregex" => {
                made.is_closed |= self.out.guard(
                    at,
                    what,
                    "redirects by regex of the whole URL are not known",
                    "use the plugin `redirect`",
                );
                return;
            }
            _ => {
                made.is_closed |= self.out.guard(at, what, "it guards, or is not known", TODO);
                return;
            }
        }
        self.out.done(at, what);
    }

    fn basic_auth(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let mut users = settings.texts("users");
        // Labels have them in one text.
        if let [one] = users.as_slice() {
            users = one.split(',').map(|it| it.trim().replace("$$", "$")).collect();
        }
        self.accounts += 1;
        let group = format!("traefik-{}", self.accounts);
        let mut good = !users.is_empty() && settings.get("usersFile").is_none();
        for user in &users {
            let pair = user.split_once(':');
            good &= pair.is_some_and(|(name, hash)| {
                let known = ["$2", "$apr1$"].iter().any(|start| hash.starts_with(start));
                known && self.account(name, hash, &group)
            });
        }
        if !good {
            let why = "only users in the file, with hashes by bcrypt or apr1 and one password each, can be translated";
            made.is_closed |= self.out.guard(settings.at, what, why, TODO);
            return;
        }
        let hides = settings.get("removeHeader").and_then(Node::plain).as_deref() == Some("true");
        let realm = settings.text_of("realm").unwrap_or("traefik");
        made.plugins.push(Plug::new("basic_auth", json!({ "realm": realm, "hide_credentials": hides })));
        made.plugins.push(Plug::new("access_control", json!({ "allowed_groups": [group] })));
        self.out.done(settings.at, what);
    }

    fn account(&mut self, name: &str, hash: &str, group: &str) -> bool {
        let credentials = json!({ "basic_auth": { "password_hash": hash } });
        match self.out.consumers.iter_mut().find(|known| known["username"] == name) {
            Some(known) if known["credentials"] != credentials => return false,
            Some(known) => {
                if let Some(Value::Array(groups)) = known.get_mut("acl_groups") {
                    groups.push(json!(group));
                }
            }
            None => {
                let id = self.out.id("consumer", name);
                self.out.consumers.push(
                    json!({ "id": id, "username": name, "acl_groups": [group], "credentials": credentials }),
                );
            }
        }
        true
    }

    fn forward_auth(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let address = settings.text_of("address").filter(|it| text::url(it).is_some());
        let unknown =
            ["authResponseHeadersRegex", "addAuthCookiesToResponse", "forwardBody", "preserveRequestMethod"];
        let Some(address) = address.filter(|_| unknown.iter().all(|key| settings.get(key).is_none())) else {
            let why = "its address is not a URL, or it has settings that have no counterpart";
            made.is_closed |= self.out.guard(settings.at, what, why, "use the plugin `forward_auth`");
            return;
        };
        let list = |key: &str| -> Vec<String> {
            let all = settings.texts(key);
            all.iter()
                .flat_map(|it| it.split(','))
                .map(|it| it.trim().to_owned())
                .filter(|it| !it.is_empty())
                .collect()
        };
        let mut config = json!({ "url": address, "convention": "traefik", "response_headers": list("authResponseHeaders"), "status_on_error": 500 });
        let sent = list("authRequestHeaders");
        if !sent.is_empty() {
            config["request_headers"] = json!(sent);
        }
        if let Some(file) = settings.path(&["tls", "ca"]).and_then(Node::str) {
            config["ca_path"] = json!(file);
        }
        made.plugins.push(Plug::new("forward_auth", config));
        self.out.done(settings.at, what);
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each word of the format")]
    fn headers(&mut self, what: &str, settings: &Node, made: &mut Made) {
        const SECURITY: &[(&str, &str, &str)] = &[
            ("frameDeny", "X-Frame-Options", "DENY"),
            ("contentTypeNosniff", "X-Content-Type-Options", "nosniff"),
            ("browserXssFilter", "X-XSS-Protection", "1; mode=block"),
        ];
        let (mut request, mut response) = (Vec::new(), Vec::new());
        let rule = |name: &str, value: &str| match value {
            "" => json!({ "operation": "remove", "target": "header", "key": name }),
            value => {
                json!({ "operation": "set", "target": "header", "key": name, "value": value.replace("${", "$${") })
            }
        };
        let is_true = |node: &Node| node.plain().as_deref() == Some("true");
        let mut cors = false;
        for (key, value) in settings.entries() {
            let said = value.plain().unwrap_or_default();
            match key.as_str() {
                "customRequestHeaders" | "customResponseHeaders" => {
                    for (name, value) in value.entries() {
                        let value = value.plain().unwrap_or_default();
                        let is_host = name.eq_ignore_ascii_case("host");
                        match key.as_str() {
                            "customRequestHeaders" if is_host => {
                                made.plugins.push(Plug::new("rewrite", json!({ "host": value })))
                            }
                            "customRequestHeaders" => request.push(rule(name, &value)),
                            _ => response.push(rule(name, &value)),
                        }
                    }
                }
                "customFrameOptionsValue" => response.push(rule("X-Frame-Options", &said)),
                "contentSecurityPolicy" => response.push(rule("Content-Security-Policy", &said)),
                "referrerPolicy" => response.push(rule("Referrer-Policy", &said)),
                "permissionsPolicy" => response.push(rule("Permissions-Policy", &said)),
                "stsSeconds" => {
                    let mut text = format!("max-age={said}");
                    if settings.get("stsIncludeSubdomains").is_some_and(is_true) {
                        text.push_str("; includeSubDomains");
                    }
                    if settings.get("stsPreload").is_some_and(is_true) {
                        text.push_str("; preload");
                    }
                    response.push(rule("Strict-Transport-Security", &text));
                }
                "stsIncludeSubdomains" | "stsPreload" | "forceSTSHeader" => {}
                key if key.starts_with("accessControl") || key == "addVaryHeader" => cors = true,
                "allowedHosts" | "sslProxyHeaders" | "sslRedirect" | "hostsProxyHeaders"
                    if !said.is_empty() || !value.is_empty() =>
                {
                    made.is_closed |= self.out.guard(
                        value.at,
                        format_args!("{what}.{key}"),
                        "it refuses requests, and is not translated",
                        TODO,
                    );
                }
                key => match SECURITY.iter().find(|(name, ..)| *name == key) {
                    Some((_, name, text)) if is_true(value) => response.push(rule(name, text)),
                    Some(_) => {}
                    None => self.out.lost(
                        value.at,
                        format_args!("{what}.{key}"),
                        "the gateway does not support this",
                        "",
                    ),
                },
            }
        }
        if cors {
            self.cors(what, settings, made);
        }
        for (name, rules) in [("request_transformer", request), ("response_transformer", response)] {
            if !rules.is_empty() {
                made.plugins.push(Plug::new(name, json!({ "rules": rules })));
            }
        }
        self.out.done(settings.at, what);
    }

    fn cors(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let list = |key: &str| -> Vec<String> {
            settings
                .texts(key)
                .iter()
                .flat_map(|it| it.split(','))
                .map(|it| it.trim().to_owned())
                .filter(|it| !it.is_empty())
                .collect()
        };
        let origins = list("accessControlAllowOriginList");
        let is_true = |key: &str| settings.get(key).and_then(Node::plain).as_deref() == Some("true");
        if origins.is_empty()
            || origins.iter().any(|it| it == "*") && is_true("accessControlAllowCredentials")
        {
            return self.out.lost(
                settings.at,
                what,
                "origins by regex, or every origin with credentials, are not known",
                "use the plugin `cors`",
            );
        }
        let mut config = json!({ "allowed_origins": origins, "allow_credentials": is_true("accessControlAllowCredentials") });
        for (theirs, ours) in [
            ("accessControlAllowMethods", "allowed_methods"),
            ("accessControlAllowHeaders", "allowed_headers"),
            ("accessControlExposeHeaders", "exposed_headers"),
        ] {
            let list = list(theirs);
            if !list.is_empty() {
                config[ours] = json!(list);
            }
        }
        if let Some(age) =
            settings.get("accessControlMaxAge").and_then(Node::plain).and_then(|it| it.parse::<u64>().ok())
        {
            config["max_age"] = json!(age);
        }
        made.plugins.push(Plug::new("cors", config));
    }
}

/// `$1` as `${1}`.
fn groups(text: &str) -> String {
    let mut made = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match rest.peek() {
            Some(digit) if c == '$' && digit.is_ascii_digit() => {
                made.push_str(&format!("${{{digit}}}"));
                rest.next();
            }
            _ => made.push(c),
        }
    }
    made
}
