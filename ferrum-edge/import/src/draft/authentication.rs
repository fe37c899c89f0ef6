//! Plugins that ask callers who they are.

use super::settings::{Amount, Any, Flag, List, Number, Numbers, One, Text, Texts, settings};

settings! {
    BasicAuth: "basic_auth" { realm: Text, htpasswd_files: Texts, hide_credentials: Flag }
    JwksAuth: "jwks_auth" {
        providers: List<Provider>, claims_to_headers: Any, hide_credentials: Flag, require_exp: Flag,
    }
    /// Who issues tokens.
    Provider: "jwks_auth/providers" {
        issuer: Text, jwks_uri: Text, ca_path: Text, audience: Texts, required_scopes: Texts, scope_claim: Text,
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
