//! The middleware that changes header fields, answers preflight requests, and refuses hosts.

use super::{Made, TODO, is_true, list, number};
use crate::draft::{Cors, HeaderRule, Plug, Rewrite, draft};
use crate::traefik::Traefik;
use crate::tree::Node;

/// Fields of responses whose value is what the key says.
const VALUES: &[(&str, &str)] = &[
    ("customFrameOptionsValue", "X-Frame-Options"),
    ("contentSecurityPolicy", "Content-Security-Policy"),
    ("contentSecurityPolicyReportOnly", "Content-Security-Policy-Report-Only"),
    ("referrerPolicy", "Referrer-Policy"),
    ("permissionsPolicy", "Permissions-Policy"),
    ("featurePolicy", "Feature-Policy"),
    ("publicKey", "Public-Key-Pins"),
    ("customBrowserXSSValue", "X-XSS-Protection"),
];

/// Fields of responses that a key switches on.
const SWITCHES: &[(&str, &str, &str)] = &[
    ("frameDeny", "X-Frame-Options", "DENY"),
    ("contentTypeNosniff", "X-Content-Type-Options", "nosniff"),
    ("browserXssFilter", "X-XSS-Protection", "1; mode=block"),
];

/// Keys that refuse requests.
const GUARDS: &[&str] = &[
    "allowedHosts",
    "sslProxyHeaders",
    "sslRedirect",
    "sslTemporaryRedirect",
    "sslForceHost",
    "hostsProxyHeaders",
    "sslHost",
];

/// Changes of requests and of responses.
#[derive(Default)]
struct Changes {
    request: Vec<HeaderRule>,
    response: Vec<HeaderRule>,
    cors: bool,
}

impl Traefik<'_> {
    pub(super) fn headers(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let mut changes = Changes::default();
        for (key, value) in settings.entries() {
            self.header_key(what, key, value, settings, &mut changes, made);
        }
        if let Some(text) = hsts(settings) {
            changes.response.push(rule("Strict-Transport-Security", &text));
        }
        if changes.cors {
            self.cors(what, settings, made);
        }
        for (name, rules) in
            [("request_transformer", changes.request), ("response_transformer", changes.response)]
        {
            if !rules.is_empty() {
                made.plugins.push(Plug::of_rules(name, rules));
            }
        }
        self.out.converted(settings.at, what);
    }

    fn header_key(
        &mut self,
        what: &str,
        key: &str,
        value: &Node,
        settings: &Node,
        changes: &mut Changes,
        made: &mut Made,
    ) {
        let said = value.plain().unwrap_or_default();
        if let Some((_, name)) = VALUES.iter().find(|(known, _)| *known == key) {
            return changes.response.push(rule(name, &said));
        }
        if let Some((_, name, text)) = SWITCHES.iter().find(|(known, ..)| *known == key) {
            if is_true(settings, key) {
                changes.response.push(rule(name, text));
            }
            return;
        }
        match key {
            "customRequestHeaders" => {
                for (name, value) in value.entries() {
                    let value = value.plain().unwrap_or_default();
                    if name.eq_ignore_ascii_case("host") {
                        made.plugins.push(Plug::of(draft!(Rewrite { host: value })));
                    } else {
                        changes.request.push(rule(name, &value));
                    }
                }
            }
            "customResponseHeaders" => {
                let rules = value.entries().iter();
                changes
                    .response
                    .extend(rules.map(|(name, value)| rule(name, &value.plain().unwrap_or_default())));
            }
            "stsSeconds" | "stsIncludeSubdomains" | "stsPreload" | "forceSTSHeader" | "isDevelopment" => {}
            key if key.starts_with("accessControl") || key == "addVaryHeader" => changes.cors = true,
            key if GUARDS.contains(&key) => {
                if said != "false" && (!said.is_empty() || !value.is_empty()) {
                    let what = format!("{what}.{key}");
                    let why = "it refuses or redirects requests, and is not converted";
                    made.is_closed |= self.out.guard_not_converted(value.at, what, why, TODO);
                }
            }
            key => {
                let what = format!("{what}.{key}");
                self.out.not_converted(value.at, what, "the gateway does not support this", "");
            }
        }
    }

    fn cors(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let origins = list(settings, "accessControlAllowOriginList");
        let credentials = is_true(settings, "accessControlAllowCredentials");
        if origins.is_empty() || origins.iter().any(|it| it == "*") && credentials {
            let why = "origins by regex, or every origin with credentials, are not known";
            return self.out.not_converted(settings.at, what, why, "use the plugin `cors`");
        }
        let mut config = Cors::default();
        config.allowed_origins(origins);
        config.allow_credentials(credentials);
        let list = |key: &str| Some(list(settings, key)).filter(|list| !list.is_empty());
        config.allowed_methods(list("accessControlAllowMethods"));
        config.allowed_headers(list("accessControlAllowHeaders"));
        config.exposed_headers(list("accessControlExposeHeaders"));
        if let Some(age) = number(settings, "accessControlMaxAge") {
            config.max_age(age);
        }
        made.plugins.push(Plug::of(config));
    }
}

/// Sets a field, or removes it where nothing is said.
fn rule(name: &str, value: &str) -> HeaderRule {
    if value.is_empty() {
        return draft!(HeaderRule { operation: "remove", target: "header", key: name });
    }
    draft!(HeaderRule { operation: "set", target: "header", key: name, value: value.replace("${", "$${") })
}

fn hsts(settings: &Node) -> Option<String> {
    let mut text = format!("max-age={}", number(settings, "stsSeconds").filter(|it| *it > 0)?);
    if is_true(settings, "stsIncludeSubdomains") {
        text.push_str("; includeSubDomains");
    }
    if is_true(settings, "stsPreload") {
        text.push_str("; preload");
    }
    Some(text)
}
