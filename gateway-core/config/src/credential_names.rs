//! The one list of names by which requests and responses carry credentials: header fields and query parameters.
//!
//! Caches and deduplication go by it to keep answers of one caller from another; logs, traces, copies and the admin API go by
//! it to show no secret. Names that an operator or a plugin configures come in addition.

mod fields;
mod urls;

use http::HeaderName;

pub use fields::{redact_field, redact_referer};
pub use urls::{REDACTED, is_credential_url, redact_query, redact_text, redact_url};

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
    CREDENTIAL_FIELDS.binary_search(&name).is_ok()
        || spell(name.as_bytes(), &mut [0; MAX_NAME]).is_some_and(has_credential_ending)
}

/// Whether the value of a query parameter or form field is a credential, also when its name is percent-encoded, in capitals or
/// subscripted (`key[]`).
pub fn is_credential_parameter(name: &str) -> bool {
    is_credential_name(name.as_bytes(), [])
}

/// The same, where these names are credentials as well.
pub fn is_credential_name<'n>(name: &[u8], others: impl IntoIterator<Item = &'n Box<str>>) -> bool {
    let mut buffer = [0; MAX_NAME];
    let Some(plain) = spell(name, &mut buffer) else { return false };
    let is_same = |other: &str| spell(other.as_bytes(), &mut [0; MAX_NAME]) == Some(plain);
    CREDENTIAL_PARAMETERS.binary_search_by(|known| known.as_bytes().cmp(plain)).is_ok()
        || has_credential_ending(plain)
        || others.into_iter().any(|other| is_same(other))
}

/// A name as [`CREDENTIAL_PARAMETERS`] has it: decoded, without a subscript, in lower case, with `-` for `_`. None where it is
/// longer than any of them.
fn spell<'b>(name: &[u8], buffer: &'b mut [u8; MAX_NAME]) -> Option<&'b [u8]> {
    let mut length = 0;
    for byte in percent_encoding::percent_decode(name) {
        if byte == b'[' && length > 0 {
            break;
        }
        *buffer.get_mut(length)? = if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
        length += 1;
    }
    buffer.get(..length)
}

fn has_credential_ending(name: &[u8]) -> bool {
    CREDENTIAL_ENDINGS.iter().any(|ending| {
        name.strip_suffix(ending.as_bytes())
            .is_some_and(|start| matches!(start.last(), None | Some(b'-' | b'.')))
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
