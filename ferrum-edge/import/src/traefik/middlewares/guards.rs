//! Middlewares that keep requests out.

use serde_json::Value;

use super::{Made, TODO, is_true, list, number};
use crate::cond::Cond;
use crate::draft::{
    ForwardAuth, HeaderRule, IpRestriction, Password, Plug, RequestTransformer, basic_auth, draft, only_group,
};
use crate::report::At;
use crate::text;
use crate::traefik::Traefik;
use crate::tree::Node;

impl Traefik<'_> {
    /// Names that addresses which are asked for may be others here; says whether what asks has to be closed.
    fn are_other_clients(&mut self, what: &str, at: At) -> bool {
        if self.has_unknown_clients {
            let why = "some entry points take addresses from the PROXY protocol and others don't; here all do, or none";
            return self.out.guard_not_converted(at, what, why, "set gateway.accept_proxy_protocol");
        }
        if self.out.gateway.contains_key("trusted_proxies") && !self.has_proxy_protocol {
            let why =
                "Traefik looks at the address of the connection; here it is the one that trusted proxies say";
            self.out.partial(at, what, why, "see gateway.trusted_proxies");
        }
        false
    }

    /// The same of a rule that asks for clients' addresses.
    pub(in crate::traefik) fn asks_for_clients(&mut self, what: &str, router: &Node, rule: &Cond) -> bool {
        let Cond::Is(cond) = rule else { return false };
        mentions(cond, "clients") && self.are_other_clients(&format!("{what}: ClientIP"), router.at)
    }

    pub(super) fn ip_allow_list(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let networks = list(settings, "sourceRange");
        let strategy = settings.get("ipStrategy").filter(|it| !it.is_empty());
        if networks.is_empty() || !networks.iter().all(|it| text::is_network(it)) || strategy.is_some() {
            let why = "these are not networks, or `ipStrategy` says whose address counts";
            let todo = "set gateway.trusted_proxies, and use the plugin `ip_restriction`";
            made.is_closed |= self.out.guard_not_converted(settings.at, what, why, todo);
            return;
        }
        made.is_closed |= self.are_other_clients(what, settings.at);
        if self.has_unknown_clients {
            return;
        }
        let status = number(settings, "rejectStatusCode").filter(|it| (400..600).contains(it)).unwrap_or(403);
        made.plugins.push(Plug::of(draft!(IpRestriction { allow: networks, status_code: status })));
        self.out.converted(settings.at, what);
    }

    pub(super) fn basic_auth(&mut self, what: &str, settings: &Node, made: &mut Made) {
        // Labels have them in one text, with dollar signs twice.
        let mut users = settings.texts("users");
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
                known && self.out.account(name, Password::Hash(hash), std::slice::from_ref(&group))
            });
        }
        if !good {
            let why = "only users in the file, with hashes by bcrypt or apr1 and one password each, can be converted";
            made.is_closed |= self.out.guard_not_converted(settings.at, what, why, TODO);
            return;
        }
        let hides = is_true(settings, "removeHeader");
        let realm = settings.text_of("realm").unwrap_or("traefik");
        made.plugins.push(basic_auth(realm, hides));
        made.plugins.push(only_group(&group));
        // It takes the place of what the client sends under this name.
        if let Some(name) = settings.text_of("headerField").filter(|name| !name.is_empty()) {
            let rule = draft!(HeaderRule {
                operation: "set",
                target: "header",
                key: name,
                value: "${consumer.username}"
            });
            made.plugins.push(Plug::of(draft!(RequestTransformer { rules: [rule] })));
        }
        self.out.converted(settings.at, what);
    }

    pub(super) fn forward_auth(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let address = settings.text_of("address").filter(|it| text::url(it).is_some());
        let unknown = ["authResponseHeadersRegex"];
        let Some(address) = address.filter(|_| unknown.iter().all(|key| settings.get(key).is_none())) else {
            let why = "its address is not a URL, or it has settings that have no counterpart";
            made.is_closed |=
                self.out.guard_not_converted(settings.at, what, why, "use the plugin `forward_auth`");
            return;
        };
        let mut config = draft!(ForwardAuth {
            url: address,
            convention: "traefik",
            response_headers: list(settings, "authResponseHeaders"),
            status_on_error: 500
        });
        let sent = list(settings, "authRequestHeaders");
        if !sent.is_empty() {
            config.request_headers(sent);
        }
        let cookies = settings.texts("addAuthCookiesToResponse");
        if !cookies.is_empty() {
            config.client_headers(["Set-Cookie"]);
            let why = "all cookies of the answer are passed on, not only those that are named";
            self.out.partial(settings.at, format_args!("{what}.addAuthCookiesToResponse"), why, "");
        }
        if is_true(settings, "preserveRequestMethod") || is_true(settings, "forwardBody") {
            config.preserve_method(true);
        }
        if is_true(settings, "forwardBody") {
            config.send_body(true);
            if let Some(bytes) = number(settings, "maxBodySize").filter(|it| *it > 0) {
                config.max_body(bytes);
            }
        }
        if settings.has("trustForwardHeader") {
            let why = "`gateway.trusted_proxies` says whose headers are believed";
            self.out.partial(settings.at, format_args!("{what}.trustForwardHeader"), why, "");
        }
        if let Some(file) = settings.path(&["tls", "ca"]).and_then(Node::str) {
            config.ca_path(file);
        }
        made.plugins.push(Plug::of(config));
        self.out.converted(settings.at, what);
    }
}

/// Whether a condition has this key anywhere.
fn mentions(cond: &Value, key: &str) -> bool {
    match cond {
        Value::Object(parts) => parts.iter().any(|(name, part)| name == key || mentions(part, key)),
        Value::Array(parts) => parts.iter().any(|part| mentions(part, key)),
        _ => false,
    }
}
