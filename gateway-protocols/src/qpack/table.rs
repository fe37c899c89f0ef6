//! The static table (RFC 9204, Appendix A).

use http::HeaderName;
use http::header::*;

use crate::hpack::{Name, SLOTS, slot};

const fn header(name: HeaderName) -> Name {
    Name::Header(name)
}

const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");
const EXPECT_CT: HeaderName = HeaderName::from_static("expect-ct");
const PURPOSE: HeaderName = HeaderName::from_static("purpose");
const TIMING_ALLOW_ORIGIN: HeaderName = HeaderName::from_static("timing-allow-origin");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Name and value of each entry; the first one has index 0.
#[rustfmt::skip]
pub(super) static STATIC: [(Name, &str); 99] = [
    (Name::Authority, ""), (Name::Path, "/"), (header(AGE), "0"), (header(CONTENT_DISPOSITION), ""),
    (header(CONTENT_LENGTH), "0"), (header(COOKIE), ""), (header(DATE), ""), (header(ETAG), ""),
    (header(IF_MODIFIED_SINCE), ""), (header(IF_NONE_MATCH), ""), (header(LAST_MODIFIED), ""), (header(LINK), ""),
    (header(LOCATION), ""), (header(REFERER), ""), (header(SET_COOKIE), ""), (Name::Method, "CONNECT"),
    (Name::Method, "DELETE"), (Name::Method, "GET"), (Name::Method, "HEAD"), (Name::Method, "OPTIONS"),
    (Name::Method, "POST"), (Name::Method, "PUT"), (Name::Scheme, "http"), (Name::Scheme, "https"),
    (Name::Status, "103"), (Name::Status, "200"), (Name::Status, "304"), (Name::Status, "404"), (Name::Status, "503"),
    (header(ACCEPT), "*/*"), (header(ACCEPT), "application/dns-message"),
    (header(ACCEPT_ENCODING), "gzip, deflate, br"), (header(ACCEPT_RANGES), "bytes"),
    (header(ACCESS_CONTROL_ALLOW_HEADERS), "cache-control"), (header(ACCESS_CONTROL_ALLOW_HEADERS), "content-type"),
    (header(ACCESS_CONTROL_ALLOW_ORIGIN), "*"), (header(CACHE_CONTROL), "max-age=0"),
    (header(CACHE_CONTROL), "max-age=2592000"), (header(CACHE_CONTROL), "max-age=604800"),
    (header(CACHE_CONTROL), "no-cache"), (header(CACHE_CONTROL), "no-store"),
    (header(CACHE_CONTROL), "public, max-age=31536000"), (header(CONTENT_ENCODING), "br"),
    (header(CONTENT_ENCODING), "gzip"), (header(CONTENT_TYPE), "application/dns-message"),
    (header(CONTENT_TYPE), "application/javascript"), (header(CONTENT_TYPE), "application/json"),
    (header(CONTENT_TYPE), "application/x-www-form-urlencoded"), (header(CONTENT_TYPE), "image/gif"),
    (header(CONTENT_TYPE), "image/jpeg"), (header(CONTENT_TYPE), "image/png"), (header(CONTENT_TYPE), "text/css"),
    (header(CONTENT_TYPE), "text/html; charset=utf-8"), (header(CONTENT_TYPE), "text/plain"),
    (header(CONTENT_TYPE), "text/plain;charset=utf-8"), (header(RANGE), "bytes=0-"),
    (header(STRICT_TRANSPORT_SECURITY), "max-age=31536000"),
    (header(STRICT_TRANSPORT_SECURITY), "max-age=31536000; includesubdomains"),
    (header(STRICT_TRANSPORT_SECURITY), "max-age=31536000; includesubdomains; preload"),
    (header(VARY), "accept-encoding"), (header(VARY), "origin"), (header(X_CONTENT_TYPE_OPTIONS), "nosniff"),
    (header(X_XSS_PROTECTION), "1; mode=block"), (Name::Status, "100"), (Name::Status, "204"), (Name::Status, "206"),
    (Name::Status, "302"), (Name::Status, "400"), (Name::Status, "403"), (Name::Status, "421"), (Name::Status, "425"),
    (Name::Status, "500"), (header(ACCEPT_LANGUAGE), ""), (header(ACCESS_CONTROL_ALLOW_CREDENTIALS), "FALSE"),
    (header(ACCESS_CONTROL_ALLOW_CREDENTIALS), "TRUE"), (header(ACCESS_CONTROL_ALLOW_HEADERS), "*"),
    (header(ACCESS_CONTROL_ALLOW_METHODS), "get"), (header(ACCESS_CONTROL_ALLOW_METHODS), "get, post, options"),
    (header(ACCESS_CONTROL_ALLOW_METHODS), "options"), (header(ACCESS_CONTROL_EXPOSE_HEADERS), "content-length"),
    (header(ACCESS_CONTROL_REQUEST_HEADERS), "content-type"), (header(ACCESS_CONTROL_REQUEST_METHOD), "get"),
    (header(ACCESS_CONTROL_REQUEST_METHOD), "post"), (header(ALT_SVC), "clear"), (header(AUTHORIZATION), ""),
    (header(CONTENT_SECURITY_POLICY), "script-src 'none'; object-src 'none'; base-uri 'none'"),
    (header(EARLY_DATA), "1"), (header(EXPECT_CT), ""), (header(FORWARDED), ""), (header(IF_RANGE), ""),
    (header(ORIGIN), ""), (header(PURPOSE), "prefetch"), (header(SERVER), ""), (header(TIMING_ALLOW_ORIGIN), "*"),
    (header(UPGRADE_INSECURE_REQUESTS), "1"), (header(USER_AGENT), ""), (header(X_FORWARDED_FOR), ""),
    (header(X_FRAME_OPTIONS), "deny"), (header(X_FRAME_OPTIONS), "sameorigin"),
];

/// The names of the static table with the indexes they stand under.
#[rustfmt::skip]
const NAMES: [(&str, &[u8]); 52] = [
    (":authority", &[0]), (":path", &[1]), ("age", &[2]), ("content-disposition", &[3]), ("content-length", &[4]),
    ("cookie", &[5]), ("date", &[6]), ("etag", &[7]), ("if-modified-since", &[8]), ("if-none-match", &[9]),
    ("last-modified", &[10]), ("link", &[11]), ("location", &[12]), ("referer", &[13]), ("set-cookie", &[14]),
    (":method", &[15, 16, 17, 18, 19, 20, 21]), (":scheme", &[22, 23]),
    (":status", &[24, 25, 26, 27, 28, 63, 64, 65, 66, 67, 68, 69, 70, 71]), ("accept", &[29, 30]),
    ("accept-encoding", &[31]), ("accept-ranges", &[32]), ("access-control-allow-headers", &[33, 34, 75]),
    ("access-control-allow-origin", &[35]), ("cache-control", &[36, 37, 38, 39, 40, 41]),
    ("content-encoding", &[42, 43]), ("content-type", &[44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54]),
    ("range", &[55]), ("strict-transport-security", &[56, 57, 58]), ("vary", &[59, 60]),
    ("x-content-type-options", &[61]), ("x-xss-protection", &[62]), ("accept-language", &[72]),
    ("access-control-allow-credentials", &[73, 74]), ("access-control-allow-methods", &[76, 77, 78]),
    ("access-control-expose-headers", &[79]), ("access-control-request-headers", &[80]),
    ("access-control-request-method", &[81, 82]), ("alt-svc", &[83]), ("authorization", &[84]),
    ("content-security-policy", &[85]), ("early-data", &[86]), ("expect-ct", &[87]), ("forwarded", &[88]),
    ("if-range", &[89]), ("origin", &[90]), ("purpose", &[91]), ("server", &[92]), ("timing-allow-origin", &[93]),
    ("upgrade-insecure-requests", &[94]), ("user-agent", &[95]), ("x-forwarded-for", &[96]),
    ("x-frame-options", &[97, 98]),
];

/// By slot: one more than the place in `NAMES`; zero is empty.
static FINDER: [u8; SLOTS] = {
    let mut finder = [0; SLOTS];
    let mut at = 0;
    while at < NAMES.len() {
        let mut slot = slot(NAMES[at].0.as_bytes());
        while finder[slot] != 0 {
            slot = (slot + 1) % SLOTS;
        }
        finder[slot] = at as u8 + 1;
        at += 1;
    }
    finder
};

/// The indexes under which a name stands in the static table.
pub(super) fn find(name: &[u8]) -> Option<&'static [u8]> {
    let mut slot = slot(name);
    loop {
        let at = FINDER[slot].checked_sub(1)?;
        let (known, indexes) = NAMES[usize::from(at)];
        if known.as_bytes() == name {
            return Some(indexes);
        }
        slot = (slot + 1) % SLOTS;
    }
}
