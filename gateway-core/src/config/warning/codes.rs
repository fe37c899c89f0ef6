//! The codes of warnings, by which they are silenced.

/// Every code, and what it says.
pub const CODES: &[(&str, &str)] = &[
    ("no_proxies", "there is no proxy, so that nothing is served"),
    ("proxy_shadowed", "a proxy that goes before another one takes every request of it"),
    (
        "proxy_closed",
        "a proxy answers 503 to everything, because one of its plugins can't run where it stands",
    ),
    ("plugin_unused", "a plugin config runs for no proxy"),
    (
        "global_displaced",
        "a plugin config of a proxy that runs for some requests only takes the place of a global one",
    ),
    ("upstream_unused", "no proxy names an upstream"),
    ("unknown_proxy", "a sink of the access log names a proxy that does not exist"),
    ("access_without_identity", "`access_control` lets callers in by name where nobody is identified"),
    ("unknown_consumer", "a plugin config names a consumer or a group that does not exist"),
    ("certificate_not_asked", "`mtls_auth` runs where clients are not asked for a certificate"),
    ("consumer_unusable", "a consumer has no credential that a plugin checks"),
    ("target_documentation", "a target is in a range or domain reserved for documentation"),
    ("target_unverified", "a target's certificate is not checked"),
    ("target_tls_unusable", "the files for TLS towards a proxy's targets can't be used: its requests fail"),
    ("setting_without_effect", "a setting changes nothing, or no listener serves the proxies"),
    ("unknown_variable", "an environment variable with `FERRUM_` is none that the gateway reads"),
    ("path_placeholder", "a path has a segment such as `:id`, which is matched as it is written"),
    ("admin_exposed", "the admin API can be reached from other machines"),
    ("restart_needed", "a reload changed a setting that is read at the start only"),
    (
        "certificate_expires",
        "a certificate has expired or does so within 30 days, or one that the gateway renews by itself is near its end",
    ),
    (
        "certificate_unusable",
        "a changed certificate, key, or revocation list can't be used: the one before it is still served",
    ),
    (
        "answers_before_guard",
        "a plugin that answers requests was moved in front of one that keeps callers out",
    ),
    ("acme_unanswered", "no listener takes the connections by which a CA checks names"),
    ("acme_name_unserved", "the gateway gets a certificate for a name that no proxy answers for"),
    ("acme_failing", "the gateway can't get or renew a certificate"),
];

/// Whether a code is one of [`CODES`].
pub fn is_code(text: &str) -> bool {
    CODES.iter().any(|(code, _)| *code == text)
}
