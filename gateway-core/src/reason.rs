//! Reasons why the gateway rejected, answered or ended something. Each has one code, used in `type` and `code` of bodies, access
//! records, the `reason` label of metrics, log lines, `logs` and the reference. This module also names the setting that caused
//! it.
//!
//! A code is either that of a cause (`http/reply.rs`) or in [`REASONS`]. A workspace test compares both with all rejections in
//! the sources. Third-party plugins may use codes of their own.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

/// A reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// The code, in snake case. It is stable.
    pub word: &'static str,
    /// One sentence without a full stop.
    pub meaning: &'static str,
    /// The setting that caused it: below `gateway`, `proxies` or `upstreams`, or below the name of a plugin. Empty if there is
    /// none.
    pub setting: &'static str,
}

const fn row(word: &'static str, meaning: &'static str, setting: &'static str) -> Reason {
    Reason { word, meaning, setting }
}

/// All reasons that are not causes, by topic.
#[rustfmt::skip]
pub const REASONS: &[Reason] = &[
    // The gateway.
    row("acme_challenge", "A CA's challenge for a certificate was answered", "gateway.acme"),
    row("callers_differ", "Two credentials of the request identify different callers", "proxies.plugins"),
    row("script_not_found", "No script that the FastCGI target may run belongs to the path", "proxies.fastcgi"),
    row("scripts_unreadable", "The gateway can't read the folder of the FastCGI target's scripts", "proxies.fastcgi.local_root"),
    row("subset_empty", "No target has the tags of the chosen subset", "upstreams.targets"),
    row("subset_unhealthy", "No target of the chosen subset is healthy", "upstreams.health_checks"),
    row("targets_full", "Every target has as many requests or connections as it may have", "upstreams.targets.max_requests"),
    row("upstream_unknown", "A plugin chose an upstream that does not exist, or that the proxy can't use", "upstreams"),
    // Sessions.
    row("client_reset", "The client reset the connection", ""),
    row("closed", "Both ends closed", ""),
    row("closed_early", "The client closed before it sent anything", ""),
    row("dtls_certificate_missing", "The client showed no certificate", "proxies.frontend_tls"),
    row("dtls_certificate_refused", "The client's certificate is not accepted", "proxies.frontend_tls"),
    row("dtls_failed", "The DTLS session with the client failed", "proxies.frontend_tls"),
    row("dtls_panicked", "A defect of the gateway ended the DTLS session", ""),
    row("dtls_timeout", "The client did not finish the DTLS handshake in time", ""),
    row("exhausted", "The gateway had no file descriptor or memory for the session", "gateway.limits"),
    row("handshake_displaced", "Newer clients took the place of an unfinished handshake", "gateway.limits"),
    row("handshake_failed", "The TLS handshake failed", "gateway.tls"),
    row("handshake_timeout", "The client did not finish its handshake in time", "gateway.client_timeouts"),
    row("idle", "Nothing moved for too long", "proxies.tcp_idle_timeout"),
    row("lifetime", "The session lasted as long as it may", "proxies.websocket_lifetime"),
    row("message_refused", "A plugin refused a message", "plugin_configs"),
    row("message_too_large", "A message was larger than it may be", "plugin_configs"),
    row("protocol_violated", "An end broke the rules of its protocol", ""),
    row("proxy_protocol_malformed", "The PROXY protocol header is malformed", "gateway.accept_proxy_protocol"),
    row("starttls_injected", "Bytes followed the client's request for TLS in plain text", "proxies.frontend_starttls"),
    row("starttls_missing", "The client went on without asking for TLS", "proxies.frontend_starttls"),
    row("proxy_protocol_untrusted", "A PROXY protocol header came from an address that is not trusted", "gateway.trusted_proxies"),
    row("quota_exceeded", "The caller has used the bytes of its quota", "traffic_quota.bytes"),
    row("quota_expired", "The caller's quota has expired", "traffic_quota.expires"),
    row("restarted", "The client began a new session from the same address", ""),
    row("target_certificate_refused", "The target's certificate is not accepted", "proxies.backend_tls_ca_path"),
    row("target_dtls_failed", "The DTLS session with the target failed", "proxies.backend_scheme"),
    row("target_dtls_timeout", "The target did not finish the DTLS handshake in time", "proxies.backend_connect_timeout"),
    row("target_failed", "The target's socket failed", "proxies.backend_host"),
    row("target_refused", "The target's machine refused the datagrams", "proxies.backend_port"),
    row("target_reset", "The target reset the connection", ""),
    row("tls_alert_received", "The client ended the TLS handshake, often because it does not trust the certificate", "gateway.tls"),
    // Authentication.
    row("certificate_ambiguous", "The client's certificate matches several consumers", "mtls_auth"),
    row("certificate_caller", "No consumer has the client's certificate", "mtls_auth"),
    row("certificate_chain_too_long", "The client's certificate chain is too long", "mtls_auth"),
    row("certificate_expired", "The client's certificate has expired", "mtls_auth"),
    row("certificate_issuer", "The client's certificate is of another issuer", "mtls_auth"),
    row("certificate_missing", "The client showed no certificate", "mtls_auth"),
    row("certificate_refused", "The client's certificate is not accepted", "mtls_auth"),
    row("certificate_unreadable", "The client's certificate can't be read", "mtls_auth"),
    row("credentials_malformed", "The Authorization header is malformed", "basic_auth"),
    row("csrf_cross_origin", "The request came from a page of another origin", "csrf.trusted_origins"),
    row("csrf_form_too_large", "The form is larger than is searched for a token", "csrf.max_form"),
    row("csrf_token_invalid", "The CSRF token is wrong", "csrf"),
    row("csrf_token_missing", "The CSRF token is missing", "csrf"),
    row("forward_auth_body_too_large", "The body is too large to be sent to the authorization service", "forward_auth.max_body"),
    row("forward_auth_no_caller", "The authorization service names no caller", "forward_auth"),
    row("forward_auth_refused", "The authorization service refused the request", "forward_auth"),
    row("insufficient_scope", "The token lacks a scope", "jwt_auth"),
    row("introspection_busy", "Too many tokens wait for introspection", "oauth2_introspection"),
    row("introspection_failed", "The introspection server did not answer", "oauth2_introspection.introspection_url"),
    row("invalid_token", "The token is not accepted", "jwt_auth"),
    row("ldap_busy", "Too many logins wait for the LDAP server", "ldap_auth"),
    row("ldap_failed", "The LDAP server did not answer", "ldap_auth"),
    row("oidc_code", "The provider's code could not be exchanged", "oidc"),
    row("oidc_denied", "The provider denied the login", "oidc"),
    row("oidc_issuer", "The login came back from another issuer", "oidc"),
    row("oidc_logged_in", "A login ended, and the client was sent on", "oidc"),
    row("oidc_logged_in_before", "A login was already ended", "oidc"),
    row("oidc_logged_out", "The client was logged out", "oidc"),
    row("oidc_login", "The client was sent to the login", "oidc"),
    row("oidc_logout_asked", "The client is asked whether to log out", "oidc"),
    row("oidc_logout_cross_site", "Another site tried to log the client out", "oidc"),
    row("oidc_logout_session", "The logout names no session", "oidc"),
    row("oidc_logout_token", "The logout token is not accepted", "oidc"),
    row("oidc_provider_failed", "The OpenID provider did not answer", "oidc"),
    row("oidc_session_too_large", "The session is too large for cookies", "oidc"),
    row("oidc_state", "The login's state is missing or wrong", "oidc"),
    row("password_checks_busy", "Too many passwords wait to be checked", "basic_auth"),
    row("password_missing", "The credentials have no password", "basic_auth"),
    row("password_wrong", "The password is wrong", "basic_auth"),
    row("session_missing", "There is no session, and the request can't be sent to the login", "oidc"),
    row("signature_algorithm", "The signature's algorithm is not allowed", "hmac_auth"),
    row("signature_body_broken", "The signed body did not arrive whole", "hmac_auth"),
    row("signature_body_too_large", "The body is too large to be verified", "hmac_auth.max_body"),
    row("signature_busy", "Too many signed bodies wait to be verified", "hmac_auth"),
    row("signature_date", "The signature's time is too far off", "hmac_auth.clock_skew"),
    row("signature_digest", "The body's digest is wrong", "hmac_auth"),
    row("signature_invalid", "The signature is wrong", "hmac_auth"),
    row("signature_malformed", "The signature is malformed", "hmac_auth"),
    row("signature_missing", "The signature is missing", "hmac_auth"),
    row("signature_replayed", "The signature was used before", "hmac_auth"),
    row("signature_uncovered", "The signature does not cover what it has to", "hmac_auth.required_components"),
    row("token_algorithm", "The token's algorithm is not allowed", "jwt_auth"),
    row("token_audience", "The token is for another audience", "jwt_auth"),
    row("token_caller", "The token names no consumer", "jwt_auth"),
    row("token_claim", "A claim of the token is missing or wrong", "jwt_auth"),
    row("token_expired", "The token has expired", "jwt_auth"),
    row("token_inactive", "The server says that the token is not active", "oauth2_introspection"),
    row("token_issuer", "The token is of another issuer", "jwt_auth"),
    row("token_key_unknown", "The issuer has no key of this name", "jwks_auth"),
    row("token_keys_missing", "The issuer's keys could not be fetched", "jwks_auth.providers"),
    row("token_malformed", "The token is malformed", "jwt_auth"),
    row("token_missing", "The token is missing", "jwt_auth"),
    row("token_not_yet_valid", "The token is not valid yet", "jwt_auth"),
    row("token_revoked", "The token was revoked", "jwt_auth"),
    row("token_scope", "The token lacks a scope", "jwt_auth"),
    row("token_signature", "The token's signature is wrong", "jwt_auth"),
    // Access and limits.
    row("address_denied", "The client's address is denied", "ip_restriction.deny"),
    row("address_list_missing", "A list of addresses was not loaded yet", "ip_restriction.allow_urls"),
    row("bandwidth_limit_key_missing", "The request lacks what the limit counts by", "bandwidth_limit.limit_by"),
    row("bot_denied", "The client was recognised as a bot", "bot_detection"),
    row("concurrency_limit_key_missing", "The request lacks what the limit counts by", "concurrency_limiting.limit_by"),
    row("connection_limit_concurrent", "The caller has too many open sessions", "connection_limit.max_concurrent"),
    row("connection_limit_key_missing", "The session lacks what the limit counts by", "connection_limit.limit_by"),
    row("connection_limit_rate", "The caller opens sessions too fast", "connection_limit.new_per_second"),
    row("cors_header", "The page may not send one of the headers", "cors.allowed_headers"),
    row("cors_method", "The page may not use the method", "cors.allowed_methods"),
    row("cors_origin", "The page's origin is not allowed", "cors.allowed_origins"),
    row("length_required", "The request has to declare its length", "request_size_limiting"),
    row("location_denied", "The client's country or network is denied", "geo_restriction"),
    row("quota_exhausted", "The caller has used its quota", "quota"),
    row("quota_key_missing", "The request lacks what the quota counts by", "quota.limit_by"),
    row("quota_store_away", "The Redis server of the quota did not answer", "quota.redis"),
    row("rate_limit_key_missing", "The request lacks what the limit counts by", "rate_limiting.limit_by"),
    row("rate_limit_store_away", "The Redis server of the limit did not answer", "rate_limiting.redis"),
    row("rate_limited", "The caller exceeds its rate", "rate_limiting.limits"),
    row("request_too_large", "The request body is larger than it may be", "request_size_limiting.max_size"),
    row("response_too_large", "The response is larger than it may be", "response_size_limiting"),
    row("waf_body_encoded", "The firewall can't inspect a compressed body", "waf.body.encoded"),
    row("waf_body_too_large", "The body is larger than the firewall inspects", "waf.body.max_size"),
    row("waf_rejected", "A firewall rule rejects the request", "waf.exclusions"),
    row("too_many_under_way", "Too many requests are under way", "concurrency_limiting"),
    row("traffic_quota_key_missing", "The session lacks what the quota counts by", "traffic_quota.limit_by"),
    row("udp_limit_key_missing", "The session lacks what the limit counts by", "udp_rate_limiting.limit_by"),
    row("udp_limit_rate", "The caller opens UDP sessions too fast", "udp_rate_limiting.sessions_per_second"),
    row("udp_limit_sessions", "The caller has too many UDP sessions", "udp_rate_limiting.max_sessions"),
    // Validation.
    row("content_encoding_unsupported", "The body's coding can't be validated", "request_validation"),
    row("content_type_unsupported", "The body's content type is not accepted", "request_validation"),
    row("graphql_aliases", "The operation has too many aliases", "graphql_limits.max_aliases"),
    row("graphql_batch", "The batch has too many operations", "graphql_limits.max_batch"),
    row("graphql_busy", "Too many operations wait to be checked", "graphql_limits"),
    row("graphql_cost", "The operation costs too much", "graphql_limits.max_cost"),
    row("graphql_depth", "The operation is nested too deeply", "graphql_limits.max_depth"),
    row("graphql_directives", "The operation has too many directives", "graphql_limits.max_directives"),
    row("graphql_introspection", "Introspection is not allowed", "graphql_limits"),
    row("graphql_malformed", "The request is not a GraphQL request", "graphql_limits"),
    row("graphql_method", "The method is not allowed for GraphQL", "graphql_limits"),
    row("graphql_not_switched", "The target did not switch to the GraphQL protocol", "graphql_limits"),
    row("graphql_operation_name", "The operation's name is missing or unknown", "graphql_limits"),
    row("graphql_operation_type", "The type of operation is not allowed", "graphql_limits"),
    row("graphql_persisted", "Persisted operations can't be checked", "graphql_limits"),
    row("graphql_root_fields", "The operation has too many root fields", "graphql_limits.max_root_fields"),
    row("graphql_syntax", "The operation is not valid GraphQL", "graphql_limits"),
    row("graphql_tokens", "The operation has too many tokens", "graphql_limits.max_tokens"),
    row("graphql_too_large", "The request is too large to be checked", "graphql_limits.max_body"),
    row("graphql_unsupported", "The GraphQL request is of a kind that can't be checked", "graphql_limits"),
    row("request_invalid", "The request does not match its schema", "request_validation"),
    // Content.
    row("bad_path", "The path is not a valid name of a file", "static_files"),
    row("dictionary", "A compression dictionary was served", "compression"),
    row("fault_injected", "A fault was injected on purpose", "fault_injection"),
    row("file_forbidden", "The file may not be served", "static_files"),
    row("file_not_found", "There is no such file", "static_files.root"),
    row("file_unreadable", "The file can't be read", "static_files.root"),
    row("files_busy", "Too many files are being read", "static_files"),
    row("folder", "The client was sent to the folder's URL", "static_files"),
    row("idempotency_answer_not_stored", "The first answer was too large to be kept", "request_deduplication"),
    row("idempotency_body_too_large", "The body is too large to be compared", "request_deduplication"),
    row("idempotency_conflict", "A request with the same key is under way", "request_deduplication"),
    row("idempotency_key_invalid", "The idempotency key is not valid", "request_deduplication"),
    row("idempotency_key_missing", "The idempotency key is missing", "request_deduplication"),
    row("idempotency_key_reused", "The idempotency key was used for another request", "request_deduplication"),
    row("idempotency_outcome_unknown", "What came of the first request is not known", "request_deduplication"),
    row("idempotency_scope_missing", "The request has no caller whose keys are kept", "request_deduplication"),
    row("idempotency_store_away", "The Redis server of the keys did not answer", "request_deduplication.redis"),
    row("idempotency_store_full", "No more keys can be kept", "request_deduplication"),
    row("internal_redirect_grpc", "The target names a file for a gRPC call", "internal_redirect"),
    row("internal_redirect_name", "The target names what is not a path", "internal_redirect"),
    row("internal_redirect_twice", "What the target names is redirected again", "internal_redirect"),
    row("internal_redirect_unlisted", "The target names what no location serves", "internal_redirect.locations"),
    row("idempotent_replay", "The first answer was sent again", "request_deduplication"),
    row("listing", "A folder's listing was served", "static_files"),
    row("mock", "A mock was served", "response_mock"),
    row("no_mock", "No mock matches", "response_mock"),
    row("only_if_cached", "The client wants a stored answer, and there is none", "response_cache"),
    row("redirect_loop", "The redirect would lead to itself", "redirect"),
    row("redirect_not_possible", "The redirect's location can't be made of the request", "redirect.location"),
    row("upload_stored", "An upload was stored", "upload"),
    row("upload_too_slow", "The upload did not arrive in time", "upload"),
    // Cache.
    row("cache_collapsed", "The answer to another request for the same was served", "response_cache"),
    row("cache_hit", "A stored answer was served", "response_cache"),
    row("cache_stale", "A stale stored answer was served", "response_cache"),
    // Transformation.
    row("body_ambiguous", "The body has a key twice", "request_transformer"),
    row("body_compressed", "The body is compressed and can't be changed", "request_transformer"),
    row("body_incomplete", "The body did not arrive whole", "script"),
    row("body_not_json", "The body is not JSON", "request_transformer"),
    row("coding_unknown", "The body's coding is not supported", "request_decompression"),
    row("ext_proc", "The external processor answered", "ext_proc"),
    row("ext_proc_body_too_large", "The body is too large for the external processor", "ext_proc"),
    row("ext_proc_failed", "The external processor failed", "ext_proc"),
    row("grpc_deadline_missing", "The call has no deadline", "grpc_deadline.require_deadline"),
    row("grpc_json_transcoding", "The request could not be transcoded to gRPC", "grpc_json_transcoding"),
    row("grpc_timeout_malformed", "The grpc-timeout header is malformed", "grpc_deadline"),
    row("rewrite_not_possible", "The path can't be made of the request", "rewrite"),
    row("script", "A script answered", "script"),
    row("script_body_compressed", "The body is compressed and the script can't read it", "script"),
    row("script_body_too_large", "The body is too large for the script", "script.max_body"),
    row("script_failed", "The script failed", "script"),
    row("value_not_usable", "A value is not valid in the header it was to be set in", "request_transformer"),
    row("wasm", "A module answered", "wasm"),
    row("wasm_body_too_large", "The body is too large for the module", "wasm"),
    row("wasm_closed", "A module closed the exchange", "wasm"),
    row("wasm_failed", "A module failed", "wasm"),
];

/// The reason with this code, if it is not that of a cause.
pub fn of(word: &str) -> Option<&'static Reason> {
    static BY_WORD: LazyLock<HashMap<&'static str, &'static Reason>> =
        LazyLock::new(|| REASONS.iter().map(|reason| (reason.word, reason)).collect());
    BY_WORD.get(word).copied()
}

/// The setting that caused a result, and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecidingSetting {
    /// As [`Reason::setting`].
    pub name: &'static str,
    /// The value, if the gateway knows it.
    pub limit: Option<LimitValue>,
}

/// The value of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitValue {
    /// A size in bytes.
    Bytes(u64),
    /// A duration.
    Time(Duration),
    /// A count.
    Count(u64),
}

impl fmt::Display for LimitValue {
    /// Writes the value as in a configuration, with the largest unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SIZES: [(u64, &str); 4] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")];
        const TIMES: [(u64, &str); 4] = [(3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")];
        let (count, units) = match self {
            Self::Bytes(bytes) => (*bytes, SIZES),
            Self::Time(time) => (u64::try_from(time.as_millis()).unwrap_or(u64::MAX), TIMES),
            Self::Count(count) => return write!(f, "{count}"),
        };
        let fits = |unit: &&(u64, &str)| count > 0 && count.is_multiple_of(unit.0);
        let (size, unit) = units.iter().find(fits).copied().unwrap_or((1, units[3].1));
        write!(f, "{}{unit}", count / size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_snake_case_and_unique() {
        for (n, reason) in REASONS.iter().enumerate() {
            let Reason { word, meaning, .. } = reason;
            assert!(word.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'), "{word}");
            assert!(!meaning.is_empty() && !meaning.ends_with('.'), "{word}");
            assert!(REASONS.iter().skip(n + 1).all(|other| other.word != *word), "{word}");
        }
    }

    #[test]
    fn limits_are_written_as_settings_are() {
        assert_eq!(LimitValue::Bytes(10 << 20).to_string(), "10MiB");
        assert_eq!(LimitValue::Time(Duration::from_secs(30)).to_string(), "30s");
        assert_eq!(LimitValue::Time(Duration::from_millis(1500)).to_string(), "1500ms");
        assert_eq!(LimitValue::Bytes(0).to_string(), "0B");
        assert_eq!(LimitValue::Count(7).to_string(), "7");
    }
}
