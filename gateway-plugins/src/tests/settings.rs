//! Settings that would have no effect, or that nothing could ever meet: each is refused by name.

use gateway_core::config::problem::Problems;
use gateway_core::plugin::Registry;
use gateway_plugin_common::testing::Machine;
use serde_json::{Value, json};

use super::super::PLUGINS;

fn problems(plugin: &str, config: &Value) -> Problems {
    match Registry::new(PLUGINS).build(plugin, None, config) {
        Ok(_) => Problems::default(),
        Err(problems) => problems,
    }
}

#[track_caller]
fn refused(plugin: &str, all: &[(Value, &str)]) {
    for (config, path) in all {
        let problems = problems(plugin, config);
        let paths: Vec<_> = problems.0.iter().map(|problem| problem.path.as_str()).collect();
        assert!(paths.contains(path), "{plugin} {config}: {path} is not refused: {problems}");
    }
}

/// Rows of `NEEDS` name settings that exist; those of lists and objects by their first step.
#[test]
fn what_settings_need_exists() {
    for plugin in PLUGINS {
        let schema = (plugin.schema)();
        let top = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        for needs in plugin.needs {
            let first = needs.setting.split(['.', '[']).next().unwrap_or_default();
            assert!(top.contains_key(first), "{}: there is no setting {first}", plugin.name);
            if first == needs.setting {
                for name in needs.need.names() {
                    assert!(top.contains_key(name), "{}: there is no setting {name}", plugin.name);
                }
            }
        }
    }
}

#[test]
fn settings_of_authentication_without_effect() {
    refused(
        "key_auth",
        &[
            (json!({ "key_location": ["header:x", "header:X"] }), "config.key_location"),
            (json!({ "key_location": "header:cookie" }), "config.key_location"),
            (json!({ "key_location": "header:host" }), "config.key_location"),
            (json!({ "key_location": [] }), "config.key_location"),
        ],
    );
    refused(
        "basic_auth",
        &[
            (json!({ "refresh": "5s" }), "config.refresh"),
            (json!({ "cache_ttl": 0, "cached_passwords": 5 }), "config.cached_passwords"),
            (json!({ "cache_ttl": 5, "cached_passwords": 0 }), "config.cache_ttl"),
        ],
    );
    let ldap = |more: Value| {
        let mut config = json!({ "urls": ["ldaps://h"], "bind_dn": "uid={username},dc=x" });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    };
    if cfg!(feature = "ldap") {
        refused(
            "ldap_auth",
            &[
                (ldap(json!({ "plaintext": true })), "config.plaintext"),
                (
                    ldap(json!({ "urls": ["ldap://h"], "plaintext": true, "start_tls": true })),
                    "config.plaintext",
                ),
                (
                    ldap(json!({ "urls": ["ldap://h"], "plaintext": true, "ca_path": "/ca" })),
                    "config.ca_path",
                ),
                (ldap(json!({ "cache_ttl": 0, "cached_passwords": 7 })), "config.cached_passwords"),
            ],
        );
    }
}

#[test]
fn settings_of_signed_credentials_without_effect() {
    refused(
        "jwt_auth",
        &[
            (json!({ "claims_to_headers": { "iss": "x-a", "sub": "X-A" } }), "config.claims_to_headers.sub"),
            (
                json!({ "claims_to_headers": { "sub": "x-consumer-username" } }),
                "config.claims_to_headers.sub",
            ),
            (json!({ "claims_to_headers": { "sub": "x-forwarded-for" } }), "config.claims_to_headers.sub"),
            (json!({ "issuer": "" }), "config.issuer"),
            (json!({ "audience": ["a", ""] }), "config.audience"),
            (json!({ "required_claims": { "typ": "" } }), "config.required_claims.typ"),
            (json!({ "required_claims": { "typ": [] } }), "config.required_claims.typ"),
            (json!({ "revocation_refresh": "5s" }), "config.revocation_refresh"),
            (json!({ "algorithms": [] }), "config.algorithms"),
            (json!({ "consumer_claim_field": "" }), "config.consumer_claim_field"),
        ],
    );
    refused(
        "hmac_auth",
        &[
            (
                json!({ "schemes": ["message_signatures"], "algorithms": ["hmac-sha256"] }),
                "config.algorithms",
            ),
            (
                json!({ "schemes": ["message_signatures"], "enforce_headers": ["date"] }),
                "config.enforce_headers",
            ),
            (
                json!({ "schemes": ["authorization"], "required_components": ["@method"] }),
                "config.required_components",
            ),
            (json!({ "schemes": ["authorization"], "tag": "x" }), "config.tag"),
            (json!({ "schemes": ["authorization"], "signature_label": "x" }), "config.signature_label"),
            (json!({ "max_body": 5 }), "config.max_body"),
            (json!({ "signature_label": "Sig 1" }), "config.signature_label"),
        ],
    );
}

#[test]
fn settings_of_plugins_that_ask_others_without_effect() {
    let jwks = |more: Value| {
        let mut provider = json!({ "issuer": "https://i" });
        provider.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "providers": [provider] })
    };
    refused(
        "jwks_auth",
        &[
            (jwks(json!({ "issuer": "http://i", "ca_path": "/ca" })), "config.providers[0].ca_path"),
            (jwks(json!({ "scope_claim": "scp" })), "config.providers[0].scope_claim"),
            (jwks(json!({ "required_scopes": ["a b"] })), "config.providers[0].required_scopes[0]"),
            (jwks(json!({ "required_roles": [""] })), "config.providers[0].required_roles[0]"),
            (jwks(json!({ "role_claim": "" })), "config.providers[0].role_claim"),
            (jwks(json!({ "consumer_identity_claim": "" })), "config.providers[0].consumer_identity_claim"),
            (jwks(json!({ "required_claims": { "": "a" } })), "config.providers[0].required_claims"),
            (jwks(json!({ "audience": "" })), "config.providers[0].audience"),
            (json!({ "providers": [{ "issuer": "https://i" }], "max_stale": 60 }), "config.max_stale"),
        ],
    );
    let asked = |more: Value| {
        let mut config = json!({ "introspection_url": "http://i/x", "client_id": "e" });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    };
    refused(
        "oauth2_introspection",
        &[
            (asked(json!({ "ca_path": "/ca" })), "config.ca_path"),
            (asked(json!({ "token_type_hint": "" })), "config.token_type_hint"),
            (asked(json!({ "scope_claim": "scp" })), "config.scope_claim"),
            (asked(json!({ "cached_tokens": 0, "cache_ttl": 100 })), "config.cache_ttl"),
            (asked(json!({ "cached_tokens": 0, "negative_cache_ttl": 1 })), "config.negative_cache_ttl"),
            (asked(json!({ "issuer": "" })), "config.issuer"),
            (asked(json!({ "required_scopes": ["a b"] })), "config.required_scopes[0]"),
        ],
    );
    let url = "http://127.0.0.1:1/x";
    refused(
        "forward_auth",
        &[
            (json!({ "url": url, "ca_path": "/ca" }), "config.ca_path"),
            (json!({ "url": url, "max_body": 5 }), "config.max_body"),
            (json!({ "url": url, "convention": "envoy", "preserve_method": true }), "config.preserve_method"),
            (
                json!({ "url": url, "status_on_error": 500, "failure_mode_allow": true }),
                "config.status_on_error",
            ),
        ],
    );
    let login = |more: Value| {
        let mut config = json!({
            "issuer": "https://i", "client_id": "e", "client_secret": "s",
            "session_secret": "a secret of thirty-two bytes, ok",
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    };
    refused(
        "oidc",
        &[
            (login(json!({ "redirect_uri": "https://x/other" })), "config.redirect_uri"),
            (login(json!({ "cookie_name": "__Host-x", "cookie_domain": "a.example" })), "config.cookie_name"),
            (login(json!({ "cookie_name": "__Host-x", "cookie_path": "/a" })), "config.cookie_name"),
        ],
    );
}

#[test]
fn settings_of_limits_without_effect() {
    let limits = json!([{ "rate": 1 }]);
    refused(
        "rate_limiting",
        &[
            (json!({ "limits": limits, "failure_statuses": ["5xx"] }), "config.failure_statuses"),
            (
                json!({ "limits": limits, "count": "failures", "failure_statuses": [] }),
                "config.failure_statuses",
            ),
            (
                json!({ "limits": limits, "limit_by": "header:x", "on_missing": "deny", "ipv4_prefix": 24 }),
                "config.ipv4_prefix",
            ),
            (json!({ "limits": limits, "limit_by": "route", "ipv6_prefix": 48 }), "config.ipv6_prefix"),
            (json!({ "limits": limits, "on_missing": "deny" }), "config.on_missing"),
            (json!({ "limits": limits, "limit_by": ["address", "address"] }), "config.limit_by[1]"),
            (json!({ "limits": limits, "limit_by": "cookie:a b;c" }), "config.limit_by"),
            (json!({ "limits": limits, "cost_header": "connection" }), "config.cost_header"),
        ],
    );
    for good in [
        json!({ "limits": limits, "limit_by": "header:x", "ipv4_prefix": 24 }),
        json!({ "limits": limits, "limit_by": ["route", "header:x"], "on_missing": "deny" }),
        json!({ "limits": limits, "limit_by": ["route", "address"], "ipv6_prefix": 48 }),
    ] {
        assert!(problems("rate_limiting", &good).is_empty(), "{good}");
    }
    refused(
        "quota",
        &[(
            json!({ "limits": [{ "limit": 1, "per": "day" }], "redis": { "name": "x" }, "save_interval": "1s" }),
            "config.save_interval",
        )],
    );
    refused("concurrency_limiting", &[(json!({ "max_concurrent": 5, "max_wait": "1s" }), "config.max_wait")]);
    refused(
        "ws_rate_limiting",
        &[
            (json!({ "messages_per_second": 1, "on_missing": "deny" }), "config.on_missing"),
            (json!({ "messages_per_second": 1, "ipv4_prefix": 8 }), "config.ipv4_prefix"),
        ],
    );
    refused(
        "request_deduplication",
        &[
            (json!({ "wait_timeout": "1s" }), "config.wait_timeout"),
            (json!({ "methods": ["post"] }), "config.methods[0]"),
        ],
    );
}

#[test]
fn settings_of_admission_without_effect() {
    refused(
        "ip_restriction",
        &[
            (json!({ "deny": ["10.0.0.0/8"], "refresh": "5s" }), "config.refresh"),
            (json!({ "deny": ["10.0.0.0/8"], "url_refresh": "5m" }), "config.url_refresh"),
            (json!({ "deny": ["10.0.0.0/8"], "url_timeout": "5s" }), "config.url_timeout"),
            (json!({ "deny": ["10.0.0.0/8"], "max_url_size": 5 }), "config.max_url_size"),
            (json!({ "deny": ["10.0.0.0/8"], "ca_path": "/ca" }), "config.ca_path"),
            (json!({ "deny": ["10.0.0.0/8"], "copy_path": "/tmp" }), "config.copy_path"),
            (json!({ "deny": ["10.0.0.0/8"], "on_missing_list": "allow" }), "config.on_missing_list"),
            (json!({ "deny": ["10.0.0.0/8"], "mode": "allow_first" }), "config.mode"),
        ],
    );
    refused(
        "geo_restriction",
        &[
            (json!({ "database": "/db", "deny_asns": [1] }), "config.database"),
            (
                json!({ "database": "/db", "asn_database": "/db", "deny_countries": ["CH"] }),
                "config.asn_database",
            ),
            (
                json!({ "database": "/db", "country_header": "x-c", "on_unknown": "deny" }),
                "config.on_unknown",
            ),
            (json!({ "database": "/db", "country_header": "x-c", "status_code": 451 }), "config.status_code"),
            (json!({ "database": "/db", "country_header": "x-c", "dry_run": true }), "config.dry_run"),
        ],
    );
    refused(
        "csrf",
        &[
            (json!({ "token": false, "secret": "a secret of thirty-two bytes, ok" }), "config.secret"),
            (json!({ "token": false, "cookie_name": "x" }), "config.cookie_name"),
            (json!({ "token": false, "ttl": "1h" }), "config.ttl"),
            (json!({ "token": false, "bind_to": "${request.path}" }), "config.bind_to"),
            (json!({ "origin": false, "allow_same_site": true }), "config.allow_same_site"),
            (json!({ "origin": false, "trusted_origins": ["https://a.example"] }), "config.trusted_origins"),
            (json!({ "max_form": 5 }), "config.max_form"),
            (json!({ "safe_methods": ["get"] }), "config.safe_methods[0]"),
        ],
    );
    refused(
        "cors",
        &[
            (json!({ "preflight_continue": true, "max_age": 5 }), "config.max_age"),
            (json!({ "preflight_continue": true, "allowed_methods": ["PUT"] }), "config.allowed_methods"),
            (json!({ "preflight_continue": true, "allowed_headers": ["x-a"] }), "config.allowed_headers"),
            (
                json!({ "preflight_continue": true, "allow_private_network": true }),
                "config.allow_private_network",
            ),
            (json!({ "allowed_methods": ["get"] }), "config.allowed_methods[0]"),
        ],
    );
    refused(
        "security_headers",
        &[
            (json!({ "nosniff": false, "frame_options": "", "referrer_policy": "" }), "config"),
            (json!({ "remove": ["content-length"] }), "config.remove[0]"),
        ],
    );
    refused(
        "request_validation",
        &[
            (json!({ "query_schema": { "type": "object" }, "max_body": 5 }), "config.max_body"),
            (json!({ "headers_schema": { "required": ["X-Tenant"] } }), "config.headers_schema"),
            (json!({ "headers_schema": { "properties": { "X-A": {} } } }), "config.headers_schema"),
        ],
    );
}

/// Plugins trust the roots that they are told to, and no others.
#[test]
fn roots_are_those_of_the_settings() {
    for (plugin, config) in [
        ("jwks_auth", json!({ "providers": [{ "issuer": "https://i", "ca_path": "/roots.pem" }] })),
        (
            "oauth2_introspection",
            json!({ "introspection_url": "https://i", "client_id": "e", "ca_path": "/roots.pem" }),
        ),
        ("forward_auth", json!({ "url": "https://i", "ca_path": "/roots.pem" })),
        ("ip_restriction", json!({ "deny_urls": ["https://i/list"], "ca_path": "/roots.pem" })),
    ] {
        let machine = Machine::default();
        let registry = Registry::new(PLUGINS).with_world(machine.world());
        if let Err(problems) = registry.build(plugin, None, &config) {
            panic!("{plugin}: {problems}");
        }
        let endpoints = machine.net.endpoints();
        let roots: Vec<_> = endpoints.iter().map(|endpoint| endpoint.tls.ca_path.as_deref()).collect();
        assert_eq!(roots, [Some(std::path::Path::new("/roots.pem"))], "{plugin}");
    }
}
