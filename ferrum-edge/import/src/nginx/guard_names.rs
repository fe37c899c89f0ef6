//! The names of directives that keep requests out of a location.

use std::borrow::Cow;

/// Stands for an include that could not be read.
pub(super) const UNREAD: &str = "include (not read)";

/// Directives that keep requests out, or say how, and have a counterpart.
const CONVERTED: &[&str] = &[
    "allow",
    "deny",
    "satisfy",
    "auth_basic",
    "auth_basic_user_file",
    "auth_request",
    "auth_request_set",
    "internal",
    "limit_except",
    "valid_referers",
    "ssl_verify_client",
    // Nothing by themselves.
    "auth_jwt_key_file",
    "auth_jwt_key_request",
    "secure_link_md5",
];

/// Those that have none.
pub(super) const NOT_CONVERTED: &[&str] = &[
    "auth_jwt",
    "auth_oidc",
    "secure_link",
    "secure_link_secret",
    "access_by_lua",
    "access_by_lua_block",
    "access_by_lua_file",
    "rewrite_by_lua_block",
    "rewrite_by_lua_file",
    "js_access",
    "perl",
    "modsecurity",
    "app_protect_enable",
    UNREAD,
];

/// Whether a directive keeps requests out, or says how.
pub(super) fn is_guard(name: &str) -> bool {
    CONVERTED.contains(&name) || NOT_CONVERTED.contains(&name)
}

/// Whether a directive of a module we don't know keeps requests out, to go by its name.
pub(super) fn is_guard_by_name(name: &str) -> bool {
    const WORDS: [&str; 21] = [
        "auth",
        "jwt",
        "oidc",
        "saml",
        "ldap",
        "waf",
        "captcha",
        "geoip2_deny",
        "access_by",
        "naxsi",
        "testcookie",
        "ssl_ocsp",
        "shib",
        "secrulesenabled",
        "modsecurityenabled",
        "wallarm",
        "server_rewrite_by",
        "rewrite_by",
        "hmac_secure_link",
        "spnego",
        "gss",
    ];
    let name = match name.bytes().any(|b| b.is_ascii_uppercase()) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    };
    let name = &*name;
    (name.split('_').any(|part| WORDS.contains(&part)) || WORDS.iter().any(|word| name.starts_with(word)))
        && !is_guard(name)
        && !name.starts_with("proxy_")
}
