//! Serves the console's pages.

use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, LOCATION,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::super::problem::{not_found, problem};
use super::super::request::is_tagged;
use super::archive::{Asset, asset};

/// Under which the pages lie.
pub(super) const ROOT: &str = "/console";
/// A page loads its own scripts, styles and images and asks its own origin; it can't be framed, and text never becomes a
/// script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(HeaderName, &str); 7] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_FRAME_OPTIONS, "DENY"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
];

/// `/console`: relative links need the slash.
pub(super) async fn to_root() -> Response {
    (StatusCode::PERMANENT_REDIRECT, [(LOCATION, "/console/")]).into_response()
}

/// A file of the archive.
pub(super) async fn page(uri: Uri, headers: HeaderMap) -> Response {
    let name = uri.path().strip_prefix(ROOT).unwrap_or_default().trim_start_matches('/');
    match asset(if name.is_empty() { "index.html" } else { name }) {
        Some(asset) if is_tagged(&headers, asset.etag.as_bytes()) => {
            (StatusCode::NOT_MODIFIED, caching(asset)).into_response()
        }
        Some(_) if !takes_gzip(&headers) => {
            let detail = "The console's files are sent gzipped, and `Accept-Encoding` excludes that";
            problem(StatusCode::NOT_ACCEPTABLE, "not_acceptable", detail)
        }
        Some(asset) => {
            let content =
                [(CONTENT_TYPE, asset.content_type), (CONTENT_ENCODING, "gzip"), (VARY, "accept-encoding")];
            (caching(asset), content, asset.bytes).into_response()
        }
        None => not_found(uri).await,
    }
}

fn caching(asset: &Asset) -> [(HeaderName, HeaderValue); 2] {
    let kept = if asset.is_immutable { "public, max-age=31536000, immutable" } else { "no-cache" };
    let etag = HeaderValue::from_str(&asset.etag).unwrap_or_else(|_| HeaderValue::from_static("\"\""));
    [(CACHE_CONTROL, HeaderValue::from_static(kept)), (ETAG, etag)]
}

/// Without the header every coding is acceptable (RFC 9110 §12.5.3).
fn takes_gzip(headers: &HeaderMap) -> bool {
    let Some(accepted) = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()) else {
        return true;
    };
    let mut codings = accepted.split(',').map(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_excluded = weight.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
        (name.trim(), !is_excluded)
    });
    codings.any(|(name, is_accepted)| is_accepted && (name.eq_ignore_ascii_case("gzip") || name == "*"))
}

/// Adds what protects a page to every answer below `/console`.
pub(super) async fn protected(response: Response) -> Response {
    shielded(response)
}

/// Adds what protects a page.
pub(super) fn shielded(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
