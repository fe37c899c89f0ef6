//! The one list of names by which requests and responses carry credentials: header fields and query parameters.
//!
//! Caches and deduplication go by it to keep answers of one caller from another; logs, traces, copies and the admin API go by
//! it to show no secret. Names that an operator or a plugin configures come in addition.

use std::borrow::Cow;

use http::HeaderName;

/// Header fields whose values are credentials, in lower case and sorted.
pub const CREDENTIAL_FIELDS: &[&str] = &[
    "api-key",
    "api_key",
    "apikey",
    "authorization",
    "cookie",
    "dpop",
    "ocp-apim-subscription-key",
    "private-token",
    "proxy-authorization",
    "set-cookie",
    "set-cookie2",
    "x-access-token",
    "x-amz-security-token",
    "x-amzn-oidc-accesstoken",
    "x-amzn-oidc-data",
    "x-api-key",
    "x-apikey",
    "x-auth",
    "x-auth-key",
    "x-authorization",
    "x-functions-key",
    "x-goog-api-key",
    "x-goog-iap-jwt-assertion",
    "x-jwt-assertion",
    "x-ms-token-aad-access-token",
    "x-ms-token-aad-id-token",
    "x-original-authorization",
    "x-rapidapi-key",
    "x-session-id",
    "x-subscription-key",
];

/// Query parameters, form fields and parts of names whose values are credentials, in lower case with `-` for `_`, sorted.
pub const CREDENTIAL_PARAMETERS: &[&str] = &[
    "access-key",
    "access-token",
    "api-key",
    "apikey",
    "assertion",
    "auth",
    "authorization",
    "client-assertion",
    "client-secret",
    "code",
    "credential",
    "credentials",
    "id-token",
    "id-token-hint",
    "jwt",
    "key",
    "logout-token",
    "passphrase",
    "passwd",
    "password",
    "private-key",
    "pwd",
    "refresh-token",
    "secret",
    "session",
    "session-id",
    "sessionid",
    "sig",
    "signature",
    "subject-token",
    "subscription-key",
    "token",
    "x-access-token",
    "x-amz-credential",
    "x-amz-security-token",
    "x-amz-signature",
    "x-api-key",
    "x-auth-token",
    "x-goog-credential",
    "x-goog-signature",
];

/// The last words of names that carry credentials whatever comes before: `x-csrf-token`, `x-hub-signature`.
const CREDENTIAL_ENDINGS: &[&str] =
    &["access-key", "api-key", "apikey", "jwt", "passwd", "password", "secret", "token"];
/// Longer names are no credential's.
const MAX_NAME: usize = 128;

/// Whether the values of a header field are credentials: the field is one of [`CREDENTIAL_FIELDS`], or the last words of its
/// name say so (`x-…-token`, `…-secret`, `…-api-key`).
pub fn is_credential_field(name: &HeaderName) -> bool {
    let name = name.as_str();
    CREDENTIAL_FIELDS.binary_search(&name).is_ok() || has_credential_ending(&spell(name))
}

/// Whether the value of a query parameter or form field is a credential, also when its name is percent-encoded, in capitals or
/// subscripted (`key[]`).
pub fn is_credential_parameter(name: &str) -> bool {
    let plain = plain_parameter(name);
    plain.len() <= MAX_NAME
        && (CREDENTIAL_PARAMETERS.binary_search(&&*plain).is_ok() || has_credential_ending(&plain))
}

/// A parameter's name as [`CREDENTIAL_PARAMETERS`] has it: decoded, without a subscript, in lower case, with `-` for `_`.
pub fn plain_parameter(name: &str) -> String {
    let decoded = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
    let end = decoded.find('[').filter(|at| *at > 0).unwrap_or(decoded.len());
    spell(decoded.get(..end).unwrap_or_default()).into_owned()
}

/// In lower case, with `-` for `_`.
fn spell(name: &str) -> Cow<'_, str> {
    match name.bytes().any(|byte| byte == b'_' || byte.is_ascii_uppercase()) {
        true => name.to_ascii_lowercase().replace('_', "-").into(),
        false => name.into(),
    }
}

fn has_credential_ending(name: &str) -> bool {
    CREDENTIAL_ENDINGS.iter().any(|ending| {
        name.strip_suffix(ending).is_some_and(|start| start.is_empty() || start.ends_with(['-', '.']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_and_spelled_as_they_are_looked_up() {
        assert!(CREDENTIAL_FIELDS.is_sorted() && CREDENTIAL_PARAMETERS.is_sorted());
        for name in CREDENTIAL_FIELDS {
            assert!(is_credential_field(&HeaderName::from_static(name)), "{name}");
        }
        for name in CREDENTIAL_PARAMETERS {
            assert!(is_credential_parameter(name), "{name}");
        }
    }

    #[test]
    fn names_of_credentials_are_recognised() {
        for name in ["authorization", "x-api-key", "api-key", "x-auth-token", "x-csrf-token", "x-acme-secret"]
        {
            assert!(is_credential_field(&HeaderName::from_static(name)), "{name}");
        }
        for name in ["accept", "x-request-id", "etag", "x-tokens", "x-key-id", "sec-websocket-key"] {
            assert!(!is_credential_field(&HeaderName::from_static(name)), "{name}");
        }
        for name in ["api_key", "API_KEY", "api%5Fkey", "api-key", "key[]", "my_token", "%74oken"] {
            assert!(is_credential_parameter(name), "{name}");
        }
        for name in ["page", "keys", "tokens", "", "[", "monkey", "x"] {
            assert!(!is_credential_parameter(name), "{name}");
        }
        assert!(!is_credential_parameter(&format!("{}-token", "k".repeat(200))));
    }
}
