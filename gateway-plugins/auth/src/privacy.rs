//! Responses that get something of one client's alone, such as its cookie.

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue};

/// What tells a cache before the gateway to keep a response, whatever `Cache-Control` says (RFC 9213, Edge Architecture).
const TARGETED: [&str; 2] = ["cdn-cache-control", "surrogate-control"];

/// Leaves a response to the client's own cache: a shared one may keep `Set-Cookie` along with the rest (RFC 9111 §7.3), and hand
/// it to everybody else. What the target says about how long it is good stays.
pub(crate) fn keep_private(headers: &mut HeaderMap) {
    let others: Vec<HeaderName> = headers
        .keys()
        .filter(|name| TARGETED.iter().any(|end| name.as_str().ends_with(end)))
        .cloned()
        .collect();
    for name in others {
        headers.remove(name);
    }
    let lines: Vec<String> = headers
        .get_all(CACHE_CONTROL)
        .iter()
        .map(|line| String::from_utf8_lossy(line.as_bytes()).into_owned())
        .collect();
    let all = lines.join(",");
    let mut kept = vec!["private"];
    for directive in directives(&all) {
        let name = directive.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        match name.as_str() {
            "no-store" => return,
            "" | "public" | "private" | "s-maxage" | "proxy-revalidate" => {}
            _ => kept.push(directive),
        }
    }
    // What no field can hold is left out, and with it the lifetime.
    let value = HeaderValue::try_from(kept.join(", ")).unwrap_or(HeaderValue::from_static("private"));
    headers.insert(CACHE_CONTROL, value);
}

/// The parts between commas; those in quotes part nothing.
fn directives(text: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = text.split(move |c| {
        let is_end = c == ',' && !quoted;
        match c {
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = quoted && c == '\\' && !escaped;
        is_end
    });
    parts.map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_client_keeps_it() {
        for (before, after) in [
            (&[][..], "private"),
            (&["public,max-age=60"], "private, max-age=60"),
            (&["max-age=60, s-maxage=600", "Public"], "private, max-age=60"),
            (&["private=\"a, public\", no-cache=\"b, c\""], "private, no-cache=\"b, c\""),
            (&["no-store"], "no-store"),
            (&["x=\"\\\", public\", S-MaxAge = 1"], "private, x=\"\\\", public\""),
        ] {
            let mut headers = HeaderMap::new();
            for line in before {
                headers.append(CACHE_CONTROL, HeaderValue::from_static(line));
            }
            for name in ["cdn-cache-control", "acme-cdn-cache-control", "surrogate-control", "etag"] {
                headers.insert(name, HeaderValue::from_static("max-age=9"));
            }
            keep_private(&mut headers);
            assert_eq!(headers[CACHE_CONTROL], after);
            assert_eq!(headers.get_all(CACHE_CONTROL).iter().count(), 1);
            assert_eq!(headers.len(), 2, "{headers:?}");
        }
    }
}
