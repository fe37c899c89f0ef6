//! Annotations of an Ingress: ingress-nginx's, and those of others, of which none may open what they guard.

use super::{Common, Ingress, defaults};
use crate::cond::Cond;
use crate::draft::{
    ConcurrencyLimiting, Cors, IpRestriction, Limit, Plug, RateLimiting, Redirect, Retry, Rewrite, draft,
};
use crate::text;
use crate::tree::Node;

const PREFIX: &str = "nginx.ingress.kubernetes.io/";
pub(super) const TODO: &str = "guard it with a plugin, then remove `request_termination`";

/// What an annotation of ingress-nginx says.
pub(super) fn get(ingress: &Node, name: &str) -> Option<String> {
    let all = ingress.path(&["metadata", "annotations"])?;
    all.entries()
        .iter()
        .find(|(key, _)| key.strip_prefix(PREFIX) == Some(name))
        .and_then(|(_, value)| value.plain())
}

pub(super) fn says(ingress: &Node, name: &str) -> bool {
    get(ingress, name).as_deref() == Some("true")
}

pub(super) fn denies(ingress: &Node, name: &str) -> bool {
    get(ingress, name).as_deref() == Some("false")
}

/// Annotations that change nothing that is not so anyway, or are looked at with another.
const KNOWN: &[&str] = &[
    "ssl-redirect",
    "force-ssl-redirect",
    "use-regex",
    "proxy-buffering",
    "proxy-buffer-size",
    "proxy-buffers-number",
    "proxy-request-buffering",
    "proxy-max-temp-file-size",
    "service-upstream",
    "proxy-http-version",
    "websocket-services",
    "enable-access-log",
    "enable-rewrite-log",
    "enable-opentelemetry",
    "auth-secret",
    "auth-secret-type",
    "auth-realm",
    "auth-response-headers",
    "server-alias",
    "cors-allow-origin",
    "cors-allow-methods",
    "cors-allow-headers",
    "cors-allow-credentials",
    "cors-max-age",
    "cors-expose-headers",
    "limit-burst-multiplier",
    "limit-whitelist",
    "permanent-redirect-code",
    "temporal-redirect-code",
    "canary-by-header",
    "canary-by-header-value",
    "canary-by-header-pattern",
    "canary-by-cookie",
    "canary-weight",
    "canary-weight-total",
    "client-body-buffer-size",
    "preserve-trailing-slash",
    "auth-tls-verify-depth",
    "auth-tls-error-page",
    "auth-tls-pass-certificate-to-upstream",
    "ssl-ciphers",
    "ssl-prefer-server-ciphers",
    "proxy-next-upstream-timeout",
    "auth-keepalive",
    "auth-keepalive-requests",
];

/// One annotation.
#[derive(Clone, Copy)]
pub(super) struct Annotation<'a> {
    /// The Ingress and the annotation, as reports call them.
    pub(super) what: &'a str,
    /// Its name without the prefix.
    pub(super) name: &'a str,
    /// Its value as text.
    pub(super) said: &'a str,
    pub(super) value: &'a Node,
}

impl Ingress<'_> {
    /// What the annotations say for all paths.
    pub(super) fn common(&mut self, what: &str, namespace: &str, ingress: &Node) -> Common {
        let mut made = Common { settings: defaults(), ..Common::default() };
        made.settings.append(&mut self.all.settings.clone());
        let none = Node::default();
        for (key, value) in ingress.path(&["metadata", "annotations"]).unwrap_or(&none).entries() {
            let text = value.plain().unwrap_or_default();
            let what = format!("{what}: {key}");
            match key.strip_prefix(PREFIX) {
                Some(name) => {
                    let one = Annotation { what: &what, name, said: &text, value };
                    self.annotation(one, namespace, ingress, &mut made);
                }
                None => self.foreign(&what, key, value, &mut made),
            }
        }
        self.for_all(what, ingress, &mut made);
        made
    }

    /// The same of a canary, which has only its own way to be asked for: ingress-nginx takes all else from the main Ingress.
    pub(super) fn canary_common(&mut self, what: &str, ingress: &Node) -> Common {
        let mut made = Common::default();
        let none = Node::default();
        for (key, value) in ingress.path(&["metadata", "annotations"]).unwrap_or(&none).entries() {
            let what = format!("{what}: {key}");
            match key.strip_prefix(PREFIX) {
                Some("canary") => self.canary(&what, value, ingress, &mut made),
                Some(name) if name.starts_with("canary") => self.out.converted(value.at, what),
                Some(_) => {
                    self.out.not_needed(value.at, what, "ingress-nginx takes it from the main Ingress")
                }
                None => self.foreign(&what, key, value, &mut made),
            }
        }
        made
    }

    pub(super) fn close_routes(&mut self, what: &str, value: &Node, why: &str, made: &mut Common) {
        made.is_closed |= self.out.guard_not_converted(value.at, what, why, TODO);
    }

    /// An annotation of another controller.
    fn foreign(&mut self, what: &str, key: &str, value: &Node, made: &mut Common) {
        let words = [
            "auth",
            "allow",
            "deny",
            "whitelist",
            "middleware",
            "plugin",
            "waf",
            "oidc",
            "jwt",
            "source-range",
            "security",
        ];
        let ours = [
            "kubectl.kubernetes.io",
            "cert-manager.io",
            "external-dns",
            "meta.helm.sh",
            "argocd",
            "kubernetes.io/ingress.class",
            "app.kubernetes.io",
            "acme.cert-manager.io",
            "kubernetes.io/tls-acme",
        ];
        if ours.iter().any(|start| key.starts_with(start)) {
            self.out.not_needed(value.at, what, "it is not about requests");
        } else if words.iter().any(|word| key.contains(word)) {
            self.close_routes(what, value, "it may guard, and belongs to another controller", made);
        } else {
            self.out.not_converted(value.at, what, "it belongs to another controller", "");
        }
    }

    /// One annotation, by its name without the prefix.
    fn annotation(&mut self, one: Annotation<'_>, namespace: &str, ingress: &Node, made: &mut Common) {
        let Annotation { what, name, said, value } = one;
        match name {
            "whitelist-source-range" | "allowlist-source-range" | "denylist-source-range" => {
                self.addresses(one, made);
            }
            "auth-type" => self.auth_type(one, namespace, ingress, made),
            "auth-url" => self.auth_url(one, ingress, made),
            "auth-method" => match said.to_ascii_uppercase().as_str() {
                "GET" | "" => self.out.converted(value.at, what),
                _ => self.out.not_converted(value.at, what, "the authentication server is asked by GET", ""),
            },
            "auth-proxy-set-headers" => {
                let why = "the authentication server gets the fields of the request";
                self.out.not_converted(value.at, what, why, "see `request_headers` of `forward_auth`");
            }
            "permanent-redirect" | "temporal-redirect" => self.redirect(one, ingress, made),
            "backend-protocol" => self.protocol(what, said, value, made),
            "enable-cors" if said == "true" => self.cors(what, value, ingress, made),
            "limit-rps" | "limit-rpm" | "limit-connections" => self.limit(one, ingress, made),
            "canary" => self.canary(what, value, ingress, made),
            "upstream-vhost" if said.contains('$') => {
                self.out.not_converted(
                    value.at,
                    what,
                    "variables in it have no counterpart",
                    "use `rewrite.host`",
                );
            }
            _ if name.ends_with("-snippet") && !name.starts_with("modsecurity") => {
                self.snippet(what, said, value, made)
            }
            _ if self.guards(one, made) || self.setting(one, made) => {}
            _ if KNOWN.contains(&name) => self.out.converted(value.at, what),
            _ if ["auth", "deny", "allow"].iter().any(|word| name.contains(word)) => {
                self.close_routes(what, value, "it may guard, and is not known", made);
            }
            _ => self.out.not_converted(value.at, what, "the gateway does not support this", ""),
        }
    }

    fn addresses(&mut self, one: Annotation<'_>, made: &mut Common) {
        let Annotation { what, name, said, value } = one;
        let parts = said.split(',').map(|it| it.trim().to_owned());
        let networks: Vec<String> = parts.filter(|it| !it.is_empty()).collect();
        if networks.is_empty() || !networks.iter().all(|it| text::is_network(it)) {
            return self.close_routes(what, value, "these are not networks", made);
        }
        made.plugins.push(Plug::of(if name == "denylist-source-range" {
            draft!(IpRestriction { deny: networks })
        } else {
            draft!(IpRestriction { allow: networks })
        }));
        self.out.converted(value.at, what);
    }

    /// Guards that are not converted, and what belongs to them. Whether this was one.
    fn guards(&mut self, one: Annotation<'_>, made: &mut Common) -> bool {
        let Annotation { what, name, said, value } = one;
        let why = match name {
            "auth-tls-secret" | "auth-tls-verify-client" if said != "off" => {
                "clients' certificates are asked for by the whole gateway"
            }
            "satisfy" if said == "any" => "every guard has to be passed here",
            "enable-modsecurity" | "enable-owasp-core-rules" if said == "true" => {
                "its rules are not in the manifest; see the plugin `waf`"
            }
            "auth-signin"
            | "auth-signin-redirect-param"
            | "auth-cache-key"
            | "auth-cache-duration"
            | "auth-always-set-cookie" => {
                let why = "requests that are refused get the answer of the authentication server";
                self.out.not_converted(value.at, what, why, "use the plugin `oidc` for logins");
                return true;
            }
            "modsecurity-snippet"
            | "modsecurity-transaction-id"
            | "enable-global-auth"
            | "satisfy"
            | "auth-tls-secret"
            | "auth-tls-verify-client"
            | "enable-modsecurity"
            | "enable-owasp-core-rules"
            | "enable-cors" => {
                self.out.converted(value.at, what);
                return true;
            }
            _ => return false,
        };
        self.close_routes(what, value, why, made);
        true
    }

    /// What is a setting of proxies. Whether this was one.
    pub(super) fn setting(&mut self, one: Annotation<'_>, made: &mut Common) -> bool {
        let Annotation { what, name, said, value } = one;
        match name {
            "rewrite-target" => made.rewrite = Some(said.to_owned()),
            "app-root" => made.app_root = Some(said.to_owned()).filter(|root| root.starts_with('/')),
            "proxy-body-size" => match text::bytes(said, 1000) {
                Some(bytes) => made.settings.max_request_body(bytes),
                None => {
                    self.out.not_converted(value.at, what, "it is not a size", "");
                    return true;
                }
            },
            "proxy-send-timeout" => {
                self.out.not_needed(value.at, what, "`proxy-read-timeout` covers both directions");
                return true;
            }
            "proxy-connect-timeout" | "proxy-read-timeout" => {
                let Some(millis) = text::millis(said, 1000) else {
                    self.out.not_converted(value.at, what, "it is not a time", "");
                    return true;
                };
                let millis = millis.clamp(1, 86_400_000);
                match name {
                    "proxy-read-timeout" => made.settings.read_timeout(millis),
                    _ => made.settings.backend_connect_timeout(text::duration(millis)),
                }
            }
            "proxy-next-upstream-tries" => {
                if let Ok(tries) = said.parse::<u64>() {
                    made.settings.retry(draft!(Retry { max_retries: tries.saturating_sub(1).min(100) }));
                }
            }
            "proxy-ssl-verify" => made.settings.backend_tls_verify_server_cert(said == "on"),
            "proxy-ssl-name" => made.settings.backend_tls_server_name(said),
            "upstream-vhost" => made.plugins.push(Plug::of(draft!(Rewrite { host: said }))),
            _ => return false,
        }
        self.out.converted(value.at, what);
        true
    }

    fn redirect(&mut self, one: Annotation<'_>, ingress: &Node, made: &mut Common) {
        let Annotation { what, name, said, value } = one;
        let default = if name == "permanent-redirect" { 301 } else { 302 };
        let status = get(ingress, &format!("{name}-code"))
            .and_then(|it| it.parse::<u16>().ok())
            .filter(|it| matches!(it, 301 | 302 | 303 | 307 | 308))
            .unwrap_or(default);
        let to = said
            .replace("$request_uri", "${request.target}")
            .replace("$scheme", "${request.scheme}")
            .replace("$host", "${request.host}");
        let starts = ["http://", "https://", "/", "${request.scheme}://"];
        let is_good = starts.iter().any(|start| to.starts_with(start)) && !to.replace("${", "").contains('$');
        if !is_good {
            return self.close_routes(what, value, "this redirect can't be converted", made);
        }
        made.redirect = Some(draft!(Redirect { status_code: status, location: to, query: "drop" }));
        self.out.converted(value.at, what);
    }

    fn protocol(&mut self, what: &str, said: &str, value: &Node, made: &mut Common) {
        match said.to_ascii_uppercase().as_str() {
            "HTTP" | "AUTO_HTTP" => {}
            protocol @ ("HTTPS" | "GRPCS" | "GRPC") => {
                made.is_tls = protocol != "GRPC";
                if protocol.starts_with("GRPC") {
                    made.settings.backend_http_version("2");
                }
                if made.is_tls {
                    let why = "ingress-nginx checks no certificates by default; here they are checked";
                    let todo = "set backend_tls_ca_path, or backend_tls_verify_server_cert: false";
                    return self.out.partial(value.at, what, why, todo);
                }
            }
            _ => return self.close_routes(what, value, "this protocol is not spoken to targets", made),
        }
        self.out.converted(value.at, what);
    }

    /// A snippet of nginx's configuration.
    fn snippet(&mut self, what: &str, said: &str, value: &Node, made: &mut Common) {
        if is_guard(said) {
            self.close_routes(
                what,
                value,
                "it may guard: nginx's directives in annotations are not converted",
                made,
            );
        } else {
            self.out.not_converted(
                value.at,
                what,
                "nginx's directives in annotations are not converted",
                "use plugins",
            );
        }
    }

    fn cors(&mut self, what: &str, value: &Node, ingress: &Node, made: &mut Common) {
        let list = |name: &str| -> Option<Vec<String>> {
            Some(
                get(ingress, name)?
                    .split(',')
                    .map(|it| it.trim().to_owned())
                    .filter(|it| !it.is_empty())
                    .collect(),
            )
        };
        let origins = list("cors-allow-origin").unwrap_or_else(|| vec!["*".to_owned()]);
        let any = origins.iter().any(|it| it == "*");
        let mut credentials = !denies(ingress, "cors-allow-credentials");
        if any && credentials {
            self.out.partial(
                value.at,
                what,
                "every origin together with credentials is refused here; there are none",
                "name the origins",
            );
            credentials = false;
        } else {
            self.out.converted(value.at, what);
        }
        made.plugins.push(Plug::of(draft!(Cors {
            allowed_origins: if any { vec!["*".to_owned()] } else { origins },
            allow_credentials: credentials,
            allowed_methods: list("cors-allow-methods"),
            allowed_headers: list("cors-allow-headers"),
            exposed_headers: list("cors-expose-headers"),
            max_age: get(ingress, "cors-max-age").and_then(|it| it.parse::<u64>().ok()),
        })));
    }

    fn limit(&mut self, one: Annotation<'_>, ingress: &Node, made: &mut Common) {
        let Annotation { what, name, said, value } = one;
        let Some(most) = said.parse::<u64>().ok().filter(|it| *it > 0) else {
            return self.out.not_converted(value.at, what, "it is not a number", "");
        };
        let free: Vec<String> = get(ingress, "limit-whitelist")
            .map(|it| it.split(',').map(|it| it.trim().to_owned()).collect())
            .unwrap_or_default();
        let are_networks = !free.is_empty() && free.iter().all(|it| text::is_network(it));
        let when = if are_networks { Cond::clients(free).negate() } else { Cond::Always };
        let plug = if name == "limit-connections" {
            Plug::of(draft!(ConcurrencyLimiting { max_concurrent: most, status_code: 503 }))
        } else {
            let burst =
                get(ingress, "limit-burst-multiplier").and_then(|it| it.parse::<u64>().ok()).unwrap_or(5);
            let per = if name == "limit-rps" { "1s" } else { "1m" };
            let burst = most.saturating_mul(burst).saturating_add(1);
            let limits = [draft!(Limit { rate: most, per, burst })];
            Plug::of(draft!(RateLimiting { limits, headers: "none", status_code: 503 }))
        };
        made.plugins.push(plug.when(when.when()));
        self.out.converted(value.at, what);
    }
}

/// Whether directives of nginx's may keep somebody out.
pub(super) fn is_guard(said: &str) -> bool {
    const WORDS: [&str; 14] = [
        "deny",
        "allow",
        "auth",
        "return",
        "if",
        "satisfy",
        "internal",
        "limit_except",
        "access_by",
        "rewrite",
        "secure_link",
        "valid_referers",
        "lua",
        "js_",
    ];
    said.split(|c: char| c.is_whitespace() || matches!(c, ';' | '{' | '}' | '('))
        .any(|word| WORDS.iter().any(|guard| word == *guard || word.starts_with(guard) && guard.len() > 3))
}
