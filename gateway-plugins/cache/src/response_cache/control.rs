//! `Cache-Control` of requests and responses (RFC 9111 §5.2), `CDN-Cache-Control` (RFC 9213).

use std::time::Duration;

use gateway_core::request_values;
use http::header::{CACHE_CONTROL, PRAGMA};
use http::{HeaderMap, HeaderName, HeaderValue};

/// `CDN-Cache-Control`: what caches that work for the target do, in the place of `Cache-Control`.
const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");
/// The longest time a directive may name, in seconds (RFC 9111 §1.2.2).
const MAX_SECONDS: u64 = 1 << 31;

/// What a request says about caching.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RequestControl {
    pub(super) no_cache: bool,
    pub(super) no_store: bool,
    pub(super) only_if_cached: bool,
    pub(super) max_age: Option<Duration>,
    pub(super) min_fresh: Option<Duration>,
    /// How stale it may be; [`Duration::MAX`] where no limit is named.
    pub(super) max_stale: Option<Duration>,
}

/// What a response says about caching.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ResponseControl {
    pub(super) no_store: bool,
    pub(super) no_cache: bool,
    pub(super) private: bool,
    pub(super) public: bool,
    /// `must-revalidate` or `proxy-revalidate`.
    pub(super) must_revalidate: bool,
    pub(super) must_understand: bool,
    pub(super) max_age: Option<Duration>,
    pub(super) s_maxage: Option<Duration>,
    pub(super) stale_while_revalidate: Option<Duration>,
    pub(super) stale_if_error: Option<Duration>,
    /// It was `CDN-Cache-Control` that said so: then `Expires` does not count either.
    pub(super) is_targeted: bool,
}

impl RequestControl {
    /// Reads a request; `Pragma: no-cache` counts where there is no `Cache-Control`.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut control = Self::default();
        if !headers.contains_key(CACHE_CONTROL) {
            control.no_cache = each(headers, &PRAGMA).any(|(name, _)| name.eq_ignore_ascii_case("no-cache"));
            return control;
        }
        for (name, value) in each(headers, &CACHE_CONTROL) {
            let seconds = || Some(seconds(value));
            match name.to_ascii_lowercase().as_str() {
                "no-cache" => control.no_cache = true,
                "no-store" => control.no_store = true,
                "only-if-cached" => control.only_if_cached = true,
                "max-age" => control.max_age = least(control.max_age, seconds()),
                "min-fresh" => control.min_fresh = seconds().max(control.min_fresh),
                "max-stale" if value.is_empty() => control.max_stale = Some(Duration::MAX),
                "max-stale" => control.max_stale = least(control.max_stale, seconds()),
                _ => {}
            }
        }
        control
    }
}

impl ResponseControl {
    /// Reads a response. `CDN-Cache-Control` decides alone where it is there, not empty, and can be read.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let targeted = is_dictionary(headers, &CDN_CACHE_CONTROL);
        let field = if targeted { CDN_CACHE_CONTROL } else { CACHE_CONTROL };
        let mut control = Self { is_targeted: targeted, ..Self::default() };
        for (name, value) in each(headers, &field) {
            let seconds = || Some(seconds(value));
            match name.to_ascii_lowercase().as_str() {
                "no-store" => control.no_store = true,
                // With field names they mean only these; to take them as if without is the safe side.
                "no-cache" => control.no_cache = true,
                "private" => control.private = true,
                "public" => control.public = true,
                "must-revalidate" | "proxy-revalidate" => control.must_revalidate = true,
                "must-understand" => control.must_understand = true,
                "max-age" => control.max_age = least(control.max_age, seconds()),
                "s-maxage" => control.s_maxage = least(control.s_maxage, seconds()),
                "stale-while-revalidate" => {
                    control.stale_while_revalidate = least(control.stale_while_revalidate, seconds());
                }
                "stale-if-error" => control.stale_if_error = least(control.stale_if_error, seconds()),
                _ => {}
            }
        }
        control
    }
}

/// Whether a field is a dictionary of structured fields with at least one member. One that can't be read counts as missing
/// (RFC 9213 §2.1).
fn is_dictionary(headers: &HeaderMap, name: &HeaderName) -> bool {
    let Some(value) = request_values::header(headers, name) else { return false };
    let text = std::str::from_utf8(&value).unwrap_or("\"");
    sfv::Parser::new(text).parse::<sfv::Dictionary>().is_ok_and(|members| !members.is_empty())
}

/// The shorter of two times, so that a directive that is there twice can't lengthen anything.
fn least(known: Option<Duration>, new: Option<Duration>) -> Option<Duration> {
    match (known, new) {
        (Some(known), Some(new)) => Some(known.min(new)),
        (known, new) => known.or(new),
    }
}

/// A time in seconds. One that can't be read counts as zero: stale (RFC 9111 §4.2.1).
pub(super) fn seconds(value: &str) -> Duration {
    let value = value.trim().trim_matches('"');
    let is_number = !value.is_empty() && value.bytes().all(|c| c.is_ascii_digit());
    let seconds = if is_number { value.parse().unwrap_or(MAX_SECONDS).min(MAX_SECONDS) } else { 0 };
    Duration::from_secs(seconds)
}

/// The directives of a field with their values, an empty one where there is none.
fn each<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = (&'h str, &'h str)> {
    let texts = headers.get_all(name).into_iter().map(HeaderValue::to_str);
    // What is not text can't be a directive; that nothing of it is stored is the safe side.
    texts.flat_map(|text| members(text.unwrap_or("no-store"))).filter_map(|member| {
        let (name, value) = member.split_once('=').unwrap_or((member, ""));
        let name = name.trim();
        (!name.is_empty()).then_some((name, value.trim()))
    })
}

/// The members of a list; commas within quotes don't part them.
pub(super) fn members(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    text.split(move |c: char| {
        if escaped {
            escaped = false;
            return false;
        }
        match c {
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' => return !quoted,
            _ => {}
        }
        false
    })
    .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn secs(n: u64) -> Option<Duration> {
        Some(Duration::from_secs(n))
    }

    #[test]
    fn responses() {
        let of = |text: &str| ResponseControl::of(&headers(&[("cache-control", text)]));
        let plain = ResponseControl::default();
        assert_eq!(
            of("max-age=60, S-MaxAge=\"90\""),
            ResponseControl { max_age: secs(60), s_maxage: secs(90), ..plain }
        );
        assert!(of("private=\"set-cookie, max-age=5\"").private);
        assert_eq!(of("private=\"set-cookie, max-age=5\"").max_age, None, "it is within quotes");
        assert!(of("no-cache=\"a\\\", b\", no-store").no_store, "a quote may be escaped");
        assert!(!of("x=\"no-store\"").no_store && !of("xno-store").no_store);
        assert_eq!(of("max-age=1, max-age=60").max_age, secs(1), "the shorter counts");
        for bad in ["max-age=x", "max-age", "max-age=-1", "max-age=1.5", "max-age=+1", "max-age="] {
            assert_eq!(of(bad).max_age, secs(0), "{bad}");
        }
        assert_eq!(of("max-age=99999999999999999999").max_age, secs(MAX_SECONDS));
        let not_text = HeaderValue::from_bytes(b"max-age=60, \xff").unwrap();
        let not_text = HeaderMap::from_iter([(CACHE_CONTROL, not_text)]);
        assert!(ResponseControl::of(&not_text).no_store);
    }

    #[test]
    fn a_field_for_such_caches_decides_alone() {
        let both = headers(&[("cache-control", "no-store"), ("cdn-cache-control", "max-age=60")]);
        let control = ResponseControl::of(&both);
        assert_eq!((control.no_store, control.max_age, control.is_targeted), (false, secs(60), true));
        for unreadable in ["", " ", "max-age=60, &", "max-age=60,,", "Max-Age=60", "max-age", "max-age=\"6"] {
            let fields = headers(&[("cache-control", "no-store"), ("cdn-cache-control", unreadable)]);
            let control = ResponseControl::of(&fields);
            // A member without a value is one, and names no time.
            assert!(unreadable == "max-age" || (control.no_store && !control.is_targeted), "{unreadable}");
        }
    }

    #[test]
    fn requests() {
        let of = |text: &str| RequestControl::of(&headers(&[("cache-control", text)]));
        assert_eq!(of("max-stale").max_stale, Some(Duration::MAX));
        assert_eq!(of("max-stale=5, min-fresh=7").max_stale, secs(5));
        assert_eq!(of("max-stale=5, min-fresh=7").min_fresh, secs(7));
        assert!(of("only-if-cached").only_if_cached && of("no-store").no_store);
        assert!(RequestControl::of(&headers(&[("pragma", "no-cache")])).no_cache);
        let both = headers(&[("pragma", "no-cache"), ("cache-control", "max-age=5")]);
        assert!(!RequestControl::of(&both).no_cache, "pragma is for those without");
    }
}
