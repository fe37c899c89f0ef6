//! Adds the response headers that make browsers careful.
//!
//! What a target says itself stays, unless `override` is set. Replies of the gateway's own get the headers as well.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Seconds;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::Reply;
use gateway_core::plugin::{
    Capabilities, Capability, Family, Hooks, OnResponse, OnUnrouted, Plugin, Seat, SeatNumber, Step, World,
};
use gateway_plugin_common::headers::is_framing;
use gateway_plugin_common::statuses::Statuses;
use http::header::{
    CONTENT_SECURITY_POLICY, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `security_headers`. A header with an empty text is not added.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// `X-Content-Type-Options: nosniff`. Default true.
    nosniff: bool,
    /// `X-Frame-Options`: `DENY` or `SAMEORIGIN`. Default `SAMEORIGIN`.
    frame_options: String,
    /// `Referrer-Policy`. Default `strict-origin-when-cross-origin`.
    referrer_policy: String,
    /// `Content-Security-Policy`. Default none.
    content_security_policy: String,
    /// `Permissions-Policy`. Default none.
    permissions_policy: String,
    /// `Cross-Origin-Opener-Policy`. Default none.
    cross_origin_opener_policy: String,
    /// `Cross-Origin-Embedder-Policy`. Default none.
    cross_origin_embedder_policy: String,
    /// `Cross-Origin-Resource-Policy`. Default none.
    cross_origin_resource_policy: String,
    /// `Strict-Transport-Security` (RFC 6797), on responses to clients that use TLS, also if a trusted proxy terminates
    /// it (`X-Forwarded-Proto`). Default none.
    hsts: Option<Hsts>,
    /// Response headers to remove, such as `Server` or `X-Powered-By`. Default none.
    remove: Vec<String>,
    /// Replaces the same headers of targets. Default false.
    r#override: bool,
    /// Statuses of the responses to change, such as `200` or `3xx`. Default: all, also errors.
    #[schemars(length(max = 50))]
    statuses: Vec<String>,
}

/// HTTP Strict Transport Security.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Hsts {
    /// `max-age`. Default 365 days; 0 revokes the policy.
    max_age: Seconds,
    /// Includes all subdomains. Default false.
    include_subdomains: bool,
    /// Permits preload lists of browsers; requires `include_subdomains` and at least a year. Default false.
    preload: bool,
}

const YEAR: u64 = 31_536_000;

impl Default for Hsts {
    fn default() -> Self {
        Self { max_age: Seconds(YEAR), include_subdomains: false, preload: false }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            nosniff: true,
            frame_options: "SAMEORIGIN".into(),
            referrer_policy: "strict-origin-when-cross-origin".into(),
            content_security_policy: String::new(),
            permissions_policy: String::new(),
            cross_origin_opener_policy: String::new(),
            cross_origin_embedder_policy: String::new(),
            cross_origin_resource_policy: String::new(),
            hsts: None,
            remove: Vec::new(),
            r#override: false,
            statuses: Vec::new(),
        }
    }
}

/// The plugin.
pub(crate) struct SecurityHeaders {
    fields: Box<[(HeaderName, HeaderValue)]>,
    hsts: Option<HeaderValue>,
    remove: Box<[HeaderName]>,
    replaces: bool,
    /// Empty means all.
    statuses: Statuses,
}

const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const REFERRER_POLICIES: [&str; 8] = [
    "no-referrer",
    "no-referrer-when-downgrade",
    "origin",
    "origin-when-cross-origin",
    "same-origin",
    "strict-origin",
    "strict-origin-when-cross-origin",
    "unsafe-url",
];

impl Plugin for SecurityHeaders {
    const NAME: &'static str = "security_headers";
    const FAMILY: Family = Family::Security;
    const SUMMARY: &'static str = "Adds security-related response headers.";
    const EXAMPLE: &'static str = include_str!("../../examples/security_headers.yaml");
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        check_words(&config, &mut problems);
        let name = HeaderName::from_static;
        let texts = [
            ("frame_options", X_FRAME_OPTIONS, &config.frame_options),
            ("referrer_policy", REFERRER_POLICY, &config.referrer_policy),
            ("content_security_policy", CONTENT_SECURITY_POLICY, &config.content_security_policy),
            ("permissions_policy", name("permissions-policy"), &config.permissions_policy),
            (
                "cross_origin_opener_policy",
                name("cross-origin-opener-policy"),
                &config.cross_origin_opener_policy,
            ),
            (
                "cross_origin_embedder_policy",
                name("cross-origin-embedder-policy"),
                &config.cross_origin_embedder_policy,
            ),
            (
                "cross_origin_resource_policy",
                name("cross-origin-resource-policy"),
                &config.cross_origin_resource_policy,
            ),
        ];
        let is_any = config.nosniff || config.hsts.is_some() || !config.remove.is_empty();
        if !is_any && texts.iter().all(|(_, _, text)| text.is_empty()) {
            problems.add("config", "no header is set and none is removed");
        }
        let mut fields: Vec<(HeaderName, HeaderValue)> = Vec::with_capacity(texts.len() + 1);
        if config.nosniff {
            fields.push((X_CONTENT_TYPE_OPTIONS, NOSNIFF));
        }
        for (option, name, text) in texts.into_iter().filter(|(_, _, text)| !text.is_empty()) {
            match HeaderValue::from_str(text) {
                Ok(value) => fields.push((name, value)),
                Err(_) => {
                    problems.add(format!("config.{option}"), "has characters that a header may not have");
                }
            }
        }
        let mut remove = Vec::with_capacity(config.remove.len());
        for (n, text) in config.remove.iter().enumerate() {
            match HeaderName::from_bytes(text.as_bytes()) {
                Ok(name) if is_framing(&name) => {
                    problems.add(
                        format!("config.remove[{n}]"),
                        format!("`{text}` frames messages and can't be removed"),
                    );
                }
                Ok(name) => remove.push(name),
                Err(_) => {
                    problems
                        .add(format!("config.remove[{n}]"), format!("`{text}` is not a valid header name"));
                }
            }
        }
        let hsts = config.hsts.and_then(|hsts| HeaderValue::from_str(&hsts.text()).ok());
        let replaces = config.r#override;
        let statuses = Statuses::read("statuses", &config.statuses, &mut problems);
        problems.into_result(Self { fields: fields.into(), hsts, remove: remove.into(), replaces, statuses })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::AttendsEveryReply])
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_unrouted(self.clone());
        hooks.on_response(self);
    }
}

fn check_words(config: &Config, problems: &mut Problems) {
    if !matches!(config.frame_options.as_str(), "" | "DENY" | "SAMEORIGIN") {
        problems.add("config.frame_options", format!("`{}` is not known to browsers", config.frame_options)).remedy =
            Some("write `DENY` or `SAMEORIGIN`; others are said with `frame-ancestors` in `content_security_policy`".into());
    }
    // Several are a fallback for browsers that do not know the later ones.
    let policies = config.referrer_policy.split(',').map(str::trim);
    for policy in policies.filter(|it| !it.is_empty() && !REFERRER_POLICIES.contains(it)) {
        problems.add("config.referrer_policy", format!("`{policy}` is not a referrer policy"));
    }
    let words = [
        (
            "cross_origin_opener_policy",
            &config.cross_origin_opener_policy,
            &["unsafe-none", "same-origin-allow-popups", "same-origin", "noopener-allow-popups"][..],
        ),
        (
            "cross_origin_embedder_policy",
            &config.cross_origin_embedder_policy,
            &["unsafe-none", "require-corp", "credentialless"][..],
        ),
        (
            "cross_origin_resource_policy",
            &config.cross_origin_resource_policy,
            &["same-site", "same-origin", "cross-origin"][..],
        ),
    ];
    for (option, text, known) in words {
        if !text.is_empty() && !known.contains(&text.as_str()) {
            problems.add(format!("config.{option}"), format!("`{text}` is not known to browsers")).remedy =
                Some(format!("one of {}", known.join(", ")));
        }
    }
    if let Some(hsts) = config.hsts.filter(|hsts| hsts.preload)
        && !(hsts.include_subdomains && hsts.max_age.0 >= YEAR)
    {
        problems.add("config.hsts.preload", "needs `include_subdomains` and a `max_age` of a year at least");
    }
}

impl Hsts {
    fn text(self) -> String {
        let subdomains = if self.include_subdomains { "; includeSubDomains" } else { "" };
        let preload = if self.preload { "; preload" } else { "" };
        format!("max-age={}{subdomains}{preload}", self.max_age)
    }
}

impl OnResponse for SecurityHeaders {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        _seat: Seat<'a>,
    ) -> Step<'a> {
        let status = response.status();
        self.apply(exchange, status, response.headers_mut());
        Step::Next
    }
}

impl OnUnrouted for SecurityHeaders {
    fn on_unrouted(&self, exchange: &mut Exchange, reply: &mut Reply, _place: SeatNumber) {
        self.apply(exchange, reply.http_status(), &mut reply.headers);
    }
}

impl SecurityHeaders {
    fn apply(&self, exchange: &Exchange, status: StatusCode, headers: &mut HeaderMap) {
        if !self.statuses.is_empty() && !self.statuses.has(status.as_u16()) {
            return;
        }
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.fields {
            if self.replaces || !headers.contains_key(name) {
                headers.insert(name, value.clone());
            }
        }
        // Browsers do not believe it over plain HTTP (RFC 6797 §7.2).
        let hsts = self.hsts.as_ref().filter(|_| exchange.scheme() == "https");
        if let Some(hsts) = hsts.filter(|_| self.replaces || !headers.contains_key(STRICT_TRANSPORT_SECURITY))
        {
            headers.insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
    }
}

#[cfg(test)]
mod tests;
