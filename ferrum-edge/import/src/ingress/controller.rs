//! The controller's ConfigMap: what ingress-nginx does for all Ingresses.

use serde_json::Value;

use super::Ingress;
use super::annotations::{Annotation, denies, get, is_guard, says};
use crate::draft::{
    ForwardAuth, IpRestriction, Match, Matcher, Plug, PluginConfig, Proxy, RequestTermination, Settings,
    draft,
};
use crate::text;
use crate::tree::Node;

const TODO: &str = "guard the proxies with a plugin, then remove `request_termination`";

/// Keys by which a ConfigMap is known to be the controller's, whatever its name.
const OWN: &[&str] = &[
    "global-auth-url",
    "whitelist-source-range",
    "allowlist-source-range",
    "denylist-source-range",
    "block-cidrs",
    "block-user-agents",
    "block-referers",
    "ssl-redirect",
    "force-ssl-redirect",
    "enable-modsecurity",
    "enable-owasp-modsecurity-crs",
    "use-forwarded-headers",
    "use-proxy-protocol",
    "http-snippet",
    "server-snippet",
    "location-snippet",
    "main-snippet",
    "proxy-body-size",
];

/// What the controller does for all Ingresses.
#[derive(Debug, Default)]
pub(super) struct Controller {
    /// Who is asked whether a caller may come in, and the paths for which nobody is.
    auth: Option<(ForwardAuth, Vec<String>)>,
    allow: Option<Vec<String>>,
    deny: Option<Vec<String>>,
    /// Networks that are kept out of all hosts, whatever an Ingress says.
    blocked: Option<Vec<String>>,
    pub(super) redirects: Option<bool>,
    pub(super) forces_redirects: bool,
    pub(super) settings: Proxy,
    /// Something that guards can't be converted.
    pub(super) is_closed: bool,
}

/// Whether a ConfigMap is the controller's.
pub(super) fn is_of(document: &Node) -> bool {
    let name = document.path(&["metadata", "name"]).and_then(Node::str).unwrap_or_default();
    let is_named =
        name.contains("ingress-nginx") || name.contains("nginx-ingress") || name == "nginx-configuration";
    is_named || document.get("data").is_some_and(|data| OWN.iter().any(|key| data.get(key).is_some()))
}

impl Ingress<'_> {
    /// Reads a ConfigMap.
    pub(super) fn controller(&mut self, document: &Node) {
        let name = document.path(&["metadata", "name"]).and_then(Node::str).unwrap_or_default().to_owned();
        let Some(data) = document.get("data") else { return };
        for (key, value) in data.entries() {
            let what = format!("ConfigMap {name}: {key}");
            let said = value.plain().unwrap_or_default();
            self.said(&what, key, said.trim(), value, data);
        }
    }

    fn said(&mut self, what: &str, key: &str, said: &str, value: &Node, data: &Node) {
        let list: Vec<String> =
            said.split(',').map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect();
        let networks =
            || (!list.is_empty() && list.iter().all(|it| text::is_network(it))).then(|| list.clone());
        match key {
            _ if said.is_empty() => self.out.not_needed(value.at, what, "it says nothing"),
            "global-auth-url" => self.global_auth(what, said, value, data),
            "whitelist-source-range" | "allowlist-source-range" | "denylist-source-range" | "block-cidrs" => {
                let Some(networks) = networks() else {
                    return self.close_all_routes(what, value, "these are not networks");
                };
                match key {
                    // A plugin of an Ingress's own would take the place of a global one.
                    "block-cidrs" => self.all.blocked = Some(networks),
                    "denylist-source-range" => self.all.deny = Some(networks),
                    _ => self.all.allow = Some(networks),
                }
                self.out.converted(value.at, what);
            }
            "block-user-agents" => self.block(what, "user-agent", value, &list),
            "block-referers" => self.block(what, "referer", value, &list),
            "ssl-redirect" => {
                self.all.redirects = Some(said != "false");
                self.out.converted(value.at, what);
            }
            "force-ssl-redirect" => {
                self.all.forces_redirects = said == "true";
                self.out.converted(value.at, what);
            }
            "use-forwarded-headers" | "proxy-real-ip-cidr" | "use-proxy-protocol" => {
                self.trusts(what, key, said, value, data);
            }
            "proxy-body-size" | "proxy-connect-timeout" | "proxy-read-timeout" | "proxy-send-timeout" => {
                let mut all =
                    super::Common { settings: std::mem::take(&mut self.all.settings), ..Default::default() };
                self.setting(Annotation { what, name: key, said, value }, &mut all);
                self.all.settings = all.settings;
            }
            "enable-modsecurity" | "enable-owasp-modsecurity-crs" if said == "true" => {
                self.close_all_routes(what, value, "its rules are not in the manifest; see the plugin `waf`");
            }
            "modsecurity-snippet" | "global-auth-response-headers" | "no-auth-locations" => {
                self.out.converted(value.at, what);
            }
            "http-snippet" | "server-snippet" | "location-snippet" if is_guard(said) => {
                self.close_all_routes(what, value, "it may guard: nginx's directives are not converted");
            }
            "global-auth-signin" | "global-auth-signin-redirect-param" | "global-auth-cache-key" => {
                let why = "requests that are refused get the answer of the authentication server";
                self.out.not_converted(value.at, what, why, "use the plugin `oidc` for logins");
            }
            "proxy-set-headers" | "add-headers" | "custom-http-errors" => {
                self.out.not_converted(value.at, what, "it is not converted", "use a plugin");
            }
            _ if ["auth", "deny", "allow", "block", "modsecurity"].iter().any(|word| key.contains(word))
                && !matches!(key, "allow-snippet-annotations" | "allow-backend-server-header")
                && said != "false" =>
            {
                self.close_all_routes(what, value, "it may guard, and is not known");
            }
            _ => self.out.not_converted(value.at, what, "it is a setting of nginx's, and not converted", ""),
        }
    }

    fn close_all_routes(&mut self, what: &str, value: &Node, why: &str) {
        self.all.is_closed |= self.out.guard_not_converted(value.at, what, why, TODO);
    }

    /// A plugin for all proxies.
    fn everywhere<S: Settings>(&mut self, config: S, when: Match) {
        let (plugin_name, config): (&str, Value) = (S::PLACE, config.into());
        let id = self.out.id("plugin", &format!("controller-{plugin_name}"));
        let made = draft!(PluginConfig { id, plugin_name, scope: "global", config, when });
        self.out.plugin_configs.push(made.into());
    }

    /// `global-auth-url`: who is asked about the requests of every Ingress that does not say otherwise.
    fn global_auth(&mut self, what: &str, said: &str, value: &Node, data: &Node) {
        let has = |key: &str| data.text_of(key).is_some_and(|it| !it.trim().is_empty());
        if said.contains('$') || text::url(said).is_none() {
            return self.close_all_routes(what, value, "its URL has variables, or is none");
        }
        if has("global-auth-snippet") {
            return self.close_all_routes(what, value, "it has a snippet of nginx's directives");
        }
        let split = |key: &str| -> Option<Vec<String>> {
            let list = data.text_of(key)?.split(',').map(|it| it.trim().to_owned());
            Some(list.filter(|it| !it.is_empty()).collect())
        };
        let config = draft!(ForwardAuth {
            url: said,
            convention: "nginx",
            status_on_error: 500,
            response_headers: split("global-auth-response-headers").unwrap_or_default(),
        });
        let free =
            split("no-auth-locations").unwrap_or_else(|| vec!["/.well-known/acme-challenge".to_owned()]);
        self.all.auth = Some((config, free));
        self.out.converted(value.at, what);
    }

    /// Values of a header that are refused: plain ones whatever their case, and regexes behind `~` or `~*`.
    fn block(&mut self, what: &str, header: &str, value: &Node, list: &[String]) {
        let one = |it: &String| {
            let (flag, regex) = match (it.strip_prefix("~*"), it.strip_prefix('~')) {
                (Some(regex), _) => ("(?i)", regex),
                (None, Some(regex)) => ("", regex),
                (None, None) => return Some(Matcher::exact(it).ignore_case(true)),
            };
            let regex = format!("{flag}{regex}");
            if let Some(how) = Matcher::contained(&regex) {
                return Some(how);
            }
            let whole = format!("{flag}{}", text::anywhere(regex.strip_prefix(flag)?));
            text::is_regex(&whole).then(|| Matcher::regex(whole))
        };
        let Some(all) = list.iter().map(one).collect::<Option<Vec<_>>>() else {
            return self.close_all_routes(what, value, "one of its regexes is none here");
        };
        let any: Vec<Match> = all.into_iter().map(|how| Match::of_header(header, how)).collect();
        let config = draft!(RequestTermination { status_code: 403, content_type: "text/plain", body: "" });
        self.everywhere(config, draft!(Match { any }));
        self.out.converted(value.at, what);
    }

    /// Whom nginx believes about clients' addresses.
    fn trusts(&mut self, what: &str, key: &str, said: &str, value: &Node, data: &Node) {
        let is_on = |key: &str| data.get(key).and_then(Node::plain).as_deref() == Some("true");
        if key == "use-proxy-protocol" && said == "true" {
            self.out.gateway.accept_proxy_protocol(true);
        }
        if is_on("use-forwarded-headers") || is_on("use-proxy-protocol") {
            let cidr = data.text_of("proxy-real-ip-cidr").unwrap_or("0.0.0.0/0,::/0");
            let list: Vec<&str> = cidr.split(',').map(str::trim).filter(|it| text::is_network(it)).collect();
            self.out.gateway.trusted_proxies(list);
        }
        self.out.converted(value.at, what);
    }

    /// What the controller does for an Ingress that does not say otherwise.
    pub(super) fn for_all(&mut self, what: &str, ingress: &Node, made: &mut super::Common) {
        made.is_closed |= self.all.is_closed;
        if let Some(blocked) = &self.all.blocked {
            made.plugins.push(Plug::of(draft!(IpRestriction { deny: blocked })));
        }
        let has = |keys: &[&str]| keys.iter().any(|key| get(ingress, key).is_some());
        if let Some(allow) =
            self.all.allow.clone().filter(|_| !has(&["whitelist-source-range", "allowlist-source-range"]))
        {
            made.plugins.push(Plug::of(draft!(IpRestriction { allow })));
        }
        if let Some(deny) = self.all.deny.clone().filter(|_| !has(&["denylist-source-range"])) {
            made.plugins.push(Plug::of(draft!(IpRestriction { deny })));
        }
        match &self.all.auth {
            _ if denies(ingress, "enable-global-auth") || has(&["auth-url"]) => {}
            Some((config, free)) => {
                let paths: Vec<Match> =
                    free.iter().map(|path| draft!(Match { path: Matcher::prefix(path) })).collect();
                let when = (!paths.is_empty()).then(|| draft!(Match { not: draft!(Match { any: paths }) }));
                made.plugins.push(Plug::of(config.clone()).when(when.map(Value::from)));
            }
            None if says(ingress, "enable-global-auth") => {
                let why = "the server to ask is in the controller's ConfigMap, which is not in the files";
                made.is_closed |= self.out.guard_not_converted(
                    ingress.at,
                    format_args!("{what}: enable-global-auth"),
                    why,
                    TODO,
                );
            }
            None => {}
        }
    }
}
