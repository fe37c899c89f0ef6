//! The codes of warnings, by which they are silenced.

/// Every code with its meaning.
pub const CODES: &[(&str, &str)] = &[
    ("no_proxies", "there is no proxy, so the gateway serves nothing"),
    ("proxy_shadowed", "a proxy with higher precedence matches all requests of another proxy"),
    ("proxy_closed", "a proxy answers 503 to every request, because one of its plugins can't run for it"),
    ("plugin_unused", "a plugin config runs for no proxy"),
    (
        "global_displaced",
        "a conditional plugin config on a proxy replaces a global one, so requests it skips get neither",
    ),
    ("upstream_unused", "no proxy names an upstream"),
    ("unknown_proxy", "a sink of the access log names a proxy that does not exist"),
    ("access_without_identity", "`access_control` admits callers by name on a proxy that identifies nobody"),
    ("unknown_consumer", "a plugin config names a consumer or a group that does not exist"),
    ("certificate_not_asked", "`mtls_auth` runs where clients are not asked for a certificate"),
    ("consumer_unusable", "a consumer has no credential that a plugin checks"),
    ("target_missing", "a proxy has no target, and its plugins answer some requests only"),
    ("target_documentation", "a target is in a range or domain reserved for documentation"),
    ("target_unverified", "a target's certificate is not verified"),
    ("target_tls_unusable", "the TLS files for a proxy's targets can't be used: its requests fail"),
    ("setting_without_effect", "a setting has no effect, or no listener serves the proxies"),
    ("old_spelling", "a setting is written under a name that it had before, and is read as the new one"),
    ("unknown_variable", "an unknown `FERRUM_` environment variable is set"),
    ("path_placeholder", "a path has a segment such as `:id`, which is matched literally"),
    ("admin_exposed", "other machines can reach the admin API"),
    ("restart_needed", "a reload changed a setting that is read at start only"),
    ("certificate_expired", "a certificate or revocation list has expired; `status` reports it as an error"),
    ("certificate_expires", "a certificate expires within 30 days, or one from a CA is due for renewal"),
    (
        "certificate_unusable",
        "a changed certificate, key or revocation list can't be used: the previous one stays active",
    ),
    ("answers_before_guard", "a plugin that answers requests was moved in front of one that rejects callers"),
    ("acme_unanswered", "no listener accepts the connections by which a CA validates names"),
    ("acme_name_unserved", "the gateway gets a certificate for a name that no proxy serves"),
    ("acme_failing", "the gateway can't get or renew a certificate"),
];

/// Whether a code is one of [`CODES`].
pub fn is_code(text: &str) -> bool {
    CODES.iter().any(|(code, _)| *code == text)
}
