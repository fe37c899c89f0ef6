//! Kong's plugins that ask somebody else who a caller is: a directory, an authorization server, an issuer. A setting that is not
//! known here may guard: with one, there is no counterpart.

use super::counterparts::SettingsReader;
use super::{some, text, texts};
use crate::draft::{
    Introspection, JwksAuth, LdapAuth, OtelTracing, Plug, Provider, Redis, ResponseCache, SharedBy,
    SpanExporter, draft,
};
use crate::text;
use crate::tree::Node;

/// Settings that change nothing about who gets in, or say what is so anyway.
const COMMON: &[&str] = &[
    "hide_credentials",
    "anonymous",
    "timeout",
    "keepalive",
    "keepalive_pool",
    "http_version",
    "ttl",
    "cache_ttl",
];

/// Settings of openid-connect that are read, or are about other ways than bearer tokens.
const OPENID: &[&str] = &[
    "issuer",
    "auth_methods",
    "client_id",
    "client_secret",
    "client_auth",
    "audience",
    "audience_required",
    "scopes",
    "scopes_claim",
    "audience_claim",
    "bearer_token_param_type",
    "consumer_claim",
    "consumer_optional",
    "verify_claims",
    "verify_signature",
    "verify_nonce",
    "ssl_verify",
    "leeway",
    "consumer_by",
    "run_on_preflight",
    "response_mode",
    "redirect_uri",
    "cache_tokens",
    "cache_introspection",
    "cache_token_exchange",
    "cache_user_info",
    "scopes_required",
    "login_methods",
    "login_action",
    "logout_methods",
    "session_secret",
    "session_storage",
];

impl SettingsReader<'_> {
    /// Whether a key says something that is neither of these nor common.
    fn says_more_than(&mut self, known: &[&str]) -> bool {
        let keys = self.config.all_entries().iter().map(|(key, _)| key.as_str());
        let mut others = keys.filter(|key| !known.contains(key) && !COMMON.contains(key));
        let why = others.find(|key| self.says(key)).map(|key| format!("`{key}` has no counterpart here"));
        if why.is_some() {
            self.why = why;
            return true;
        }
        false
    }

    /// Binds under a name made from the user's, as Kong does.
    pub(super) fn ldap_auth(&mut self) -> Option<Plug> {
        let known = [
            "ldap_host",
            "ldap_port",
            "ldaps",
            "start_tls",
            "base_dn",
            "attribute",
            "verify_ldap_host",
            "header_type",
            "realm",
        ];
        let is_basic = text(self.config, "header_type").is_some_and(|it| it.eq_ignore_ascii_case("basic"));
        if self.says_more_than(&known) {
            return None;
        }
        if !is_basic {
            return self.cannot("only `header_type: basic` can be converted");
        }
        let (host, base, attribute) =
            (text(self.config, "ldap_host")?, text(self.config, "base_dn")?, text(self.config, "attribute")?);
        let (ldaps, start_tls) = (self.flag("ldaps", false), self.flag("start_tls", false));
        let port = self.number("ldap_port").unwrap_or(389);
        let scheme = if ldaps { "ldaps" } else { "ldap" };
        if (ldaps || start_tls) && !self.flag("verify_ldap_host", false) {
            self.not_converted("verify_ldap_host", "the directory's certificate is checked here");
        }
        let (hide_credentials, anonymous) = self.authentication();
        Some(Plug::of(draft!(LdapAuth {
            urls: [format!("{scheme}://{host}:{port}")],
            bind_dn: format!("{attribute}={{username}},{base}"),
            start_tls: start_tls.then_some(true),
            plaintext: (!ldaps && !start_tls).then_some(true),
            realm: text(self.config, "realm").filter(|it| !it.is_empty()),
            cache_ttl: self.number("cache_ttl").map(|ttl| ttl.min(86_400)),
            hide_credentials,
            anonymous,
        })))
    }

    pub(super) fn introspection(&mut self) -> Option<Plug> {
        let known = [
            "introspection_url",
            "authorization_value",
            "token_type_hint",
            "scopes_required",
            "introspect_request",
            "consumer_by",
            "run_on_preflight",
        ];
        if self.says_more_than(&known) {
            return None;
        }
        let (url, value) =
            (text(self.config, "introspection_url")?, text(self.config, "authorization_value")?);
        let pair = value.strip_prefix("Basic ").and_then(text::base64)?;
        let pair = String::from_utf8(pair).ok()?;
        let (client, secret) = pair.split_once(':')?;
        let (hide_credentials, anonymous) = self.authentication();
        Some(Plug::of(draft!(Introspection {
            introspection_url: url,
            client_id: client,
            client_secret: secret,
            token_type_hint: text(self.config, "token_type_hint"),
            required_scopes: self.list("scopes_required"),
            cache_ttl: self.number("ttl").unwrap_or(30).min(86_400),
            hide_credentials,
            anonymous,
        })))
    }

    /// Tokens that the client brings. What begins logins needs a session secret that Kong's configuration seldom has.
    pub(super) fn openid(&mut self) -> Option<Plug> {
        let methods = texts(self.config, "auth_methods");
        let places = texts(self.config, "bearer_token_param_type");
        let plain = places.is_empty() || places == ["header"];
        let checks = self.flag("verify_claims", true) && self.flag("verify_signature", true);
        let nested = ["audience_claim", "scopes_claim"].iter().any(|key| texts(self.config, key).len() > 1);
        if methods != ["bearer"] {
            return self.cannot("only `auth_methods: [bearer]` can be converted");
        }
        if !checks {
            return self.cannot("tokens that are not verified are not accepted here");
        }
        if !plain || nested || self.says_more_than(OPENID) {
            return None;
        }
        let issuer = text(self.config, "issuer")?;
        let ending = "/.well-known/openid-configuration";
        let mut provider = draft!(Provider {
            issuer: issuer.strip_suffix(ending).unwrap_or(issuer).trim_end_matches('/'),
            audience: self.list("audience_required"),
            required_scopes: self.list("scopes_required"),
            scope_claim: texts(self.config, "scopes_claim").first(),
        });
        match texts(self.config, "consumer_claim").as_slice() {
            [] => {}
            [claim] => {
                provider.consumer_identity_claim(claim);
                provider.require_consumer(!self.flag("consumer_optional", false));
            }
            _ => return None,
        }
        if texts(self.config, "audience_required").len() > 1
            || texts(self.config, "audience_claim").iter().any(|it| it != "aud")
        {
            return None;
        }
        self.config.see_all();
        if self.says("anonymous") {
            self.not_converted("anonymous", "requests without a token are refused here");
        }
        self.not_converted("issuer", "it has to be the issuer as tokens name it");
        Some(Plug::of(draft!(JwksAuth { providers: [provider] })))
    }

    /// The servers in which limits are counted.
    pub(super) fn redis(&mut self) -> Option<SharedBy> {
        let nested = self.config.get("redis").cloned();
        let said = |key: &str| -> Option<&Node> {
            let inner = nested.as_ref().and_then(|it| it.get(key));
            inner.or_else(|| self.config.get(&format!("redis_{key}")))
        };
        let Some(host) = said("host").and_then(Node::str).map(str::to_owned) else {
            self.not_converted("policy", "each gateway counts for itself");
            return None;
        };
        let port = said("port").and_then(Node::uint).unwrap_or(6379);
        let scheme = if said("ssl").and_then(Node::bool) == Some(true) { "rediss" } else { "redis" };
        let credential = |key| said(key).and_then(Node::str).filter(|it| !it.is_empty());
        let millis = said("timeout").and_then(Node::uint);
        let made = draft!(Redis {
            urls: [format!("{scheme}://{host}:{port}")],
            username: credential("username"),
            password: credential("password"),
            database: said("database").and_then(Node::uint),
            timeout: millis.map(|millis| text::duration(millis.clamp(1, 10_000))),
        });
        let name = self.out.redis(made);
        let denies = !self.flag("fault_tolerant", true);
        Some(draft!(SharedBy { name, on_error: denies.then_some("deny") }))
    }

    pub(super) fn opentelemetry(&self) -> Option<Plug> {
        let endpoint = text(self.config, "traces_endpoint").or_else(|| text(self.config, "endpoint"))?;
        let base = endpoint.strip_suffix("/v1/traces").unwrap_or(endpoint);
        text::url(base)?;
        Some(Plug::of(draft!(OtelTracing { exporter: draft!(SpanExporter { endpoint: base }) })))
    }

    pub(super) fn proxy_cache(&mut self) -> Option<Plug> {
        if text(self.config, "strategy").is_some_and(|it| it != "memory") {
            return self.cannot("only `strategy: memory` can be converted");
        }
        let ttl = self.number("cache_ttl").unwrap_or(300);
        let statuses = self.config.each("response_code").iter().filter_map(Node::uint);
        // A part is not stored, nor what is about what is stored.
        let (errors, good): (Vec<u64>, Vec<u64>) = statuses
            .filter(|it| (200..600).contains(it) && !matches!(it, 206 | 304))
            .partition(|it| *it >= 400);
        if self.says("vary_headers") || self.says("vary_query_params") {
            self.not_converted("vary_headers", "responses vary by what their own `Vary` says");
        }
        let says = !good.is_empty() || !errors.is_empty();
        let errors = some(errors);
        let negative_ttl = errors.is_some().then_some(ttl);
        Some(Plug::of(draft!(ResponseCache {
            statuses: says.then_some(good),
            negative_statuses: errors,
            negative_ttl,
            default_ttl: ttl,
        })))
    }
}
