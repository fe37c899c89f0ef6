//! Plugins that ask callers who they are.

use super::settings::{Amount, Any, Flag, List, Number, Numbers, One, Text, Texts, settings};

settings! {
    KeyAuth: "key_auth" { key_location: Texts, hide_credentials: Flag, anonymous: Text }
    BasicAuth: "basic_auth" { realm: Text, htpasswd_files: Texts, hide_credentials: Flag, anonymous: Text }
    HmacAuth: "hmac_auth" {
        schemes: Texts, clock_skew: Amount, algorithms: Texts, enforce_headers: Texts, validate_request_body: Flag,
        hide_credentials: Flag, anonymous: Text,
    }
    JwtAuth: "jwt_auth" {
        token_lookup: Texts, consumer_claim_field: Text, require_exp: Flag, hide_credentials: Flag, anonymous: Text,
    }
    LdapAuth: "ldap_auth" {
        urls: Texts, start_tls: Flag, plaintext: Flag, bind_dn: Text, realm: Text, hide_credentials: Flag, anonymous: Text,
        cache_ttl: Amount,
    }
    Introspection: "oauth2_introspection" {
        introspection_url: Text, client_id: Text, client_secret: Text, token_type_hint: Text, cache_ttl: Amount,
        required_scopes: Texts, hide_credentials: Flag, anonymous: Text,
    }
    JwksAuth: "jwks_auth" {
        providers: List<Provider>, claims_to_headers: Any, hide_credentials: Flag, require_exp: Flag,
    }
    /// Who issues tokens.
    Provider: "jwks_auth/providers" {
        issuer: Text, jwks_uri: Text, audience: Texts, required_scopes: Texts, scope_claim: Text,
        consumer_identity_claim: Text, require_consumer: Flag,
    }
    ForwardAuth: "forward_auth" {
        url: Text, ca_path: Text, convention: Text, timeout: Amount, request_headers: Texts, set_request_headers: Any,
        preserve_method: Flag, preserve_host: Flag, preserve_query: Flag, send_body: Flag, max_body: Amount,
        allow_partial_body: Flag, response_headers: Texts, client_headers: Texts, login: One<Login>, status_on_error: Number,
        failure_mode_allow: Flag,
    }
    /// Answers that send clients to log in.
    Login: "forward_auth/login" { statuses: Numbers, location: Text, location_header: Text, status_code: Number }
}
