//! The parameters of a request: variables from the core, header fields, and the selected script.

use gateway_core::config::model::FastCgi;
use gateway_core::http::cgi_request::{CgiRequest, Script};
use gateway_core::http::upstream::Call;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, HeaderName};
use http::{HeaderMap, HeaderValue};

use super::record::{length, pair};

/// The names and values, as the content of `FCGI_PARAMS` records.
pub(super) fn encode(
    call: &Call<'_>,
    rules: &FastCgi,
    cgi: &CgiRequest,
    script: Option<&Script>,
    body: u64,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    for (name, value) in cgi.variables.iter() {
        pair(&mut out, name, value);
    }
    let mut own = |name: &str, value: &[u8]| {
        if !rules.params.iter().any(|(param, _)| **param == *name) {
            pair(&mut out, name.as_bytes(), value);
        }
    };
    let query = script.and_then(|script| script.query.as_ref()).unwrap_or(&cgi.query);
    own("QUERY_STRING", query);
    match (script, &rules.scripts) {
        (Some(script), Some(places)) => {
            let name = [&cgi.prefix[..], &script.name].concat();
            own("SCRIPT_NAME", &name);
            own("DOCUMENT_URI", &name);
            own("SCRIPT_FILENAME", &[places.root.as_bytes(), &script.name].concat());
            own("PATH_INFO", &script.path_info);
            if !script.path_info.is_empty() {
                own("PATH_TRANSLATED", &[places.root.as_bytes(), &script.path_info].concat());
            }
        }
        _ => {
            own("SCRIPT_NAME", &cgi.prefix);
            own("PATH_INFO", &cgi.path);
        }
    }
    // PHP treats an empty value as a missing one.
    let mut digits = itoa::Buffer::new();
    let has_body = body > 0 || call.headers.contains_key(CONTENT_LENGTH);
    own("CONTENT_LENGTH", if has_body { digits.format(body).as_bytes() } else { b"" });
    headers(&mut out, call, rules);
    out
}

/// Adds header fields as `HTTP_*`; joins several fields of one name. Omits `Proxy`, because programs take `HTTP_PROXY` for the
/// setting of their own proxy.
fn headers(out: &mut Vec<u8>, call: &Call<'_>, rules: &FastCgi) {
    let overrides = rules.params.iter().any(|(name, _)| name.starts_with("HTTP_"));
    let is_overridden = |name: &HeaderName| {
        overrides && rules.params.iter().any(|(param, _)| param.as_bytes() == variable(name.as_str()))
    };
    let mut field = |name: &HeaderName, values: &mut dyn Iterator<Item = &HeaderValue>| {
        if is_overridden(name) {
            return;
        }
        let separator: &[u8] = if *name == COOKIE { b"; " } else { b", " };
        let mut joined = Vec::new();
        for (n, value) in values.enumerate() {
            if n > 0 {
                joined.extend_from_slice(separator);
            }
            joined.extend_from_slice(value.as_bytes());
        }
        length(out, name.as_str().len() + 5);
        length(out, joined.len());
        out.extend_from_slice(b"HTTP_");
        out.extend(name.as_str().bytes().map(letter));
        out.extend_from_slice(&joined);
    };
    field(&HOST, &mut std::iter::once(call.host));
    for name in call.headers.keys().filter(|name| is_sent(name, call.headers)) {
        field(name, &mut call.headers.get_all(name).iter());
    }
    for (name, value) in call.forwarding.fields() {
        field(name, &mut std::iter::once(value));
    }
}

/// Whether to send a field as `HTTP_*`. If two names map to the same variable, the name with hyphens wins.
fn is_sent(name: &HeaderName, headers: &HeaderMap) -> bool {
    if *name == HOST || *name == CONTENT_LENGTH || *name == CONTENT_TYPE || *name == "proxy" {
        return false;
    }
    !name.as_str().contains('_') || !headers.contains_key(name.as_str().replace('_', "-"))
}

fn variable(name: &str) -> Vec<u8> {
    b"HTTP_".iter().copied().chain(name.bytes().map(letter)).collect()
}

fn letter(c: u8) -> u8 {
    if c == b'-' { b'_' } else { c.to_ascii_uppercase() }
}
