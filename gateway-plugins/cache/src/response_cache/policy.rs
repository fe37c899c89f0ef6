//! What may be stored, for how long it is fresh, and when it may be served stale (RFC 9111 §3 and §4.2, RFC 5861).

use std::time::{Duration, SystemTime};

use gateway_plugin_common::conditional::date;
use gateway_plugin_common::headers;
use http::header::{AGE, CONTENT_RANGE, DATE, ETAG, EXPIRES, HeaderName, LAST_MODIFIED, SET_COOKIE, VARY};
use http::{HeaderMap, StatusCode};

use super::control::{self, RequestControl, ResponseControl};

/// How much of the time since its last change a response counts as fresh, where heuristics are on: a tenth.
const HEURISTIC: u32 = 10;

/// What the operator decided.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) statuses: Vec<u16>,
    pub(super) negative_statuses: Vec<u16>,
    pub(super) negative_ttl: Duration,
    pub(super) default_ttl: Duration,
    pub(super) max_ttl: Duration,
    pub(super) heuristic_max: Duration,
    pub(super) stale_while_revalidate: Duration,
    pub(super) stale_if_error: Duration,
    pub(super) strips_set_cookie: bool,
}

/// What about the request bears on storing its response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Asker {
    /// It was sent with credentials, and what is stored is shared by all callers.
    pub(super) is_somebody: bool,
    /// It had a cookie that is not part of the key.
    pub(super) has_cookie: bool,
}

/// How long a stored response may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) lifetime: Duration,
    pub(super) stale_while_revalidate: Duration,
    pub(super) stale_if_error: Duration,
    /// Never served stale, whatever a request allows.
    pub(super) must_revalidate: bool,
    /// How old it was when it came.
    pub(super) initial_age: Duration,
}

/// Why a response is not stored; a word for `Cache-Status`.
pub(super) type Why = &'static str;

/// What a stored response is good for, for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// As it is.
    Fresh,
    /// As it is, while it is asked for anew behind the client's back.
    WhileRevalidated,
    /// After the target said so.
    Validated,
}

impl Rules {
    /// Decides whether a response is stored.
    ///
    /// # Errors
    /// The word for why it is not.
    pub(super) fn judge(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        asker: Asker,
        now: SystemTime,
        took: Duration,
    ) -> Result<Policy, Why> {
        let control = ResponseControl::of(headers);
        let is_negative =
            self.negative_statuses.contains(&status.as_u16()) && self.negative_ttl > Duration::ZERO;
        if !is_negative && !self.statuses.contains(&status.as_u16()) {
            return Err("STATUS");
        }
        if control.no_store && !control.must_understand {
            return Err("NO_STORE");
        }
        if control.private {
            return Err("PRIVATE");
        }
        if headers.contains_key(SET_COOKIE) && !self.strips_set_cookie {
            return Err("SET_COOKIE");
        }
        if headers.contains_key(CONTENT_RANGE) || headers::is_event_stream(headers) {
            return Err("PARTIAL");
        }
        varies_by_what_can_be_known(headers)?;
        if asker.is_somebody && !control.public && control.s_maxage.is_none() {
            return Err("CREDENTIALS");
        }
        let said = explicit(&control, headers);
        let lifetime = match said {
            Some(lifetime) => lifetime,
            None if asker.has_cookie || asker.is_somebody => return Err("COOKIE"),
            None if is_negative => self.negative_ttl,
            None => self.heuristic(headers, now).unwrap_or(self.default_ttl),
        };
        let lifetime = if self.max_ttl > Duration::ZERO { lifetime.min(self.max_ttl) } else { lifetime };
        let never_stale = control.must_revalidate || control.no_cache;
        // `s-maxage` says `proxy-revalidate` as well (RFC 9111 §5.2.2.10), so that only the target itself can allow more.
        let is_strict = never_stale || control.s_maxage.is_some();
        let stale = |said: Option<Duration>, ours: Duration| match said {
            _ if never_stale => Duration::ZERO,
            Some(said) => said,
            None if is_strict => Duration::ZERO,
            None => ours,
        };
        let policy = Policy {
            lifetime: if control.no_cache { Duration::ZERO } else { lifetime },
            stale_while_revalidate: stale(control.stale_while_revalidate, self.stale_while_revalidate),
            stale_if_error: stale(control.stale_if_error, self.stale_if_error),
            must_revalidate: is_strict,
            initial_age: initial_age(headers, now, took),
        };
        let is_of_use = policy.initial_age < policy.lifetime + policy.stale_while_revalidate
            || headers.contains_key(ETAG)
            || headers.contains_key(LAST_MODIFIED);
        // Without a word about its freshness it is not stored for its validators alone.
        let was_meant = said.is_some() || control.no_cache || policy.lifetime > Duration::ZERO;
        if is_of_use && was_meant { Ok(policy) } else { Err("NOT_FRESH") }
    }

    /// Whether answers of this status are stored though they are failures of the target.
    pub(super) fn stores_failure(&self, status: StatusCode) -> bool {
        self.negative_ttl > Duration::ZERO && self.negative_statuses.contains(&status.as_u16())
    }

    fn heuristic(&self, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
        if self.heuristic_max.is_zero() {
            return None;
        }
        let changed = headers.get(LAST_MODIFIED).and_then(date)?;
        let since = headers.get(DATE).and_then(date).unwrap_or(now).duration_since(changed).ok()?;
        Some((since / HEURISTIC).min(self.heuristic_max))
    }
}

/// The lifetime that the target said.
fn explicit(control: &ResponseControl, headers: &HeaderMap) -> Option<Duration> {
    if let Some(lifetime) = control.s_maxage.or(control.max_age) {
        return Some(lifetime);
    }
    let field = headers.get(EXPIRES).filter(|_| !control.is_targeted)?;
    // A date that can't be read is one in the past (RFC 9111 §5.3).
    let Some(expires) = date(field) else { return Some(Duration::ZERO) };
    let from = headers.get(DATE).and_then(date).unwrap_or_else(SystemTime::now);
    Some(expires.duration_since(from).unwrap_or_default())
}

/// RFC 9111 §4.2.3.
fn initial_age(headers: &HeaderMap, now: SystemTime, took: Duration) -> Duration {
    let apparent = headers.get(DATE).and_then(date).and_then(|date| now.duration_since(date).ok());
    // What is less than a second may be nothing but the date's rounding.
    let apparent = Duration::from_secs(apparent.unwrap_or_default().as_secs());
    // Of several, the oldest: a cache on the way may have added one instead of counting on.
    let fields = headers.get_all(AGE).into_iter().filter_map(|age| age.to_str().ok());
    let said = fields.flat_map(|age| age.split(',')).map(control::seconds).max();
    apparent.max(said.unwrap_or_default().saturating_add(took))
}

/// Fields that the gateway adds behind this plugin, so that it can't know what they will be.
fn is_added_later(name: &str) -> bool {
    const ADDED: &[&str] = &["forwarded", "via", "x-real-ip", "x-credential-identifier", "early-data"];
    name.starts_with("x-consumer-") || name.starts_with("x-forwarded-") || ADDED.contains(&name)
}

fn varies_by_what_can_be_known(headers: &HeaderMap) -> Result<(), Why> {
    match vary(headers) {
        Some(names) if !names.iter().any(|name| is_added_later(name.as_str())) => Ok(()),
        _ => Err("VARY"),
    }
}

/// The request fields that a response depends on; `None` where that can't be known.
pub(super) fn vary(headers: &HeaderMap) -> Option<Vec<HeaderName>> {
    let mut names = Vec::new();
    for value in headers.get_all(VARY) {
        for member in control::members(value.to_str().ok()?).filter(|member| !member.is_empty()) {
            if member == "*" {
                return None;
            }
            let name = HeaderName::from_bytes(member.as_bytes()).ok()?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    Some(names)
}

impl Policy {
    /// What a response of this age is good for. `stale_for` is for how long it has been marked stale by a purge.
    pub(super) fn allows(&self, age: Duration, stale_for: Option<Duration>, asked: &RequestControl) -> Use {
        if asked.no_cache || asked.max_age.is_some_and(|max| age > max) {
            return Use::Validated;
        }
        let over = match stale_for {
            Some(since) => Some(since),
            // As old as its lifetime is stale (RFC 9111 §4.2).
            None => age.checked_sub(self.lifetime),
        };
        let wanted = asked.min_fresh.unwrap_or_default();
        match over {
            None if self.lifetime.saturating_sub(age) >= wanted => Use::Fresh,
            None => Use::Validated,
            Some(_) if asked.min_fresh.is_some() => Use::Validated,
            Some(over) if over < self.stale_while_revalidate => Use::WhileRevalidated,
            Some(over) if !self.must_revalidate && asked.max_stale.is_some_and(|max| over <= max) => {
                Use::Fresh
            }
            Some(_) => Use::Validated,
        }
    }

    /// Whether it may stand in for an answer that failed.
    pub(super) fn serves_errors(&self, age: Duration, stale_for: Option<Duration>) -> bool {
        let over = stale_for.or_else(|| age.checked_sub(self.lifetime)).unwrap_or_default();
        over < self.stale_if_error
    }

    /// Seconds for which it stays fresh; negative when it is stale.
    pub(super) fn ttl(&self, age: Duration) -> i64 {
        let seconds = |it: Duration| i64::try_from(it.as_secs()).unwrap_or(i64::MAX);
        seconds(self.lifetime).saturating_sub(seconds(age))
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use http::HeaderValue;

    use super::*;

    const NOW: u64 = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT

    fn rules() -> Rules {
        Rules {
            statuses: vec![200, 301],
            negative_statuses: vec![404],
            negative_ttl: Duration::ZERO,
            default_ttl: Duration::ZERO,
            max_ttl: Duration::ZERO,
            heuristic_max: Duration::ZERO,
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            strips_set_cookie: false,
        }
    }

    fn judge(
        rules: &Rules,
        status: u16,
        asker: Asker,
        fields: &[(&'static str, &str)],
    ) -> Result<Policy, Why> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let now = UNIX_EPOCH + Duration::from_secs(NOW);
        rules.judge(StatusCode::from_u16(status).unwrap(), &headers, asker, now, Duration::ZERO)
    }

    fn lifetime(fields: &[(&'static str, &str)]) -> Result<u64, Why> {
        judge(&rules(), 200, Asker::default(), fields).map(|policy| policy.lifetime.as_secs())
    }

    const DAY: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");

    #[test]
    fn lifetimes() {
        for (fields, expected) in [
            (&[("cache-control", "max-age=60")][..], Ok(60)),
            (&[("cache-control", "max-age=60, s-maxage=5")], Ok(5)),
            (&[("cache-control", "max-age=60"), ("cdn-cache-control", "max-age=7")], Ok(7)),
            (&[DAY, ("expires", "Sun, 06 Nov 1994 08:50:37 GMT")], Ok(60)),
            (&[DAY, ("expires", "Sun, 06 Nov 1994 08:50:37 GMT"), ("cache-control", "max-age=5")], Ok(5)),
            (
                &[DAY, ("expires", "Sun, 06 Nov 1994 08:50:37 GMT"), ("cdn-cache-control", "public")],
                Err("NOT_FRESH"),
            ),
            (&[DAY, ("expires", "0")], Err("NOT_FRESH")),
            (&[DAY, ("expires", "0"), ("etag", "\"a\"")], Ok(0)),
            (&[], Err("NOT_FRESH")),
            (&[("etag", "\"a\"")], Err("NOT_FRESH")),
            (&[DAY, ("last-modified", "Sun, 06 Nov 1994 08:39:37 GMT")], Err("NOT_FRESH")),
            (&[("cache-control", "public")], Err("NOT_FRESH")),
            (&[("cache-control", "max-age=0")], Err("NOT_FRESH")),
            (&[("cache-control", "no-cache, max-age=60")], Err("NOT_FRESH")),
            (&[("cache-control", "no-cache"), ("etag", "\"a\"")], Ok(0)),
            (&[("cache-control", "no-store, max-age=60")], Err("NO_STORE")),
            (&[("cache-control", "private, max-age=60")], Err("PRIVATE")),
            (&[("cache-control", "max-age=60"), ("set-cookie", "a=b")], Err("SET_COOKIE")),
            (&[("cache-control", "max-age=60"), ("vary", "*")], Err("VARY")),
            (&[("cache-control", "max-age=60"), ("vary", "Accept, X-Consumer-Username")], Err("VARY")),
            (&[("cache-control", "max-age=60"), ("vary", "X-Forwarded-For")], Err("VARY")),
            (&[("cache-control", "max-age=60"), ("vary", "Accept, Accept-Encoding")], Ok(60)),
            (&[("cache-control", "max-age=60"), ("content-range", "bytes 0-1/5")], Err("PARTIAL")),
            (&[("cache-control", "max-age=60"), ("content-type", "Text/Event-Stream; x")], Err("PARTIAL")),
            (&[("cache-control", "max-age=60"), ("age", "60")], Err("NOT_FRESH")),
        ] {
            assert_eq!(lifetime(fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn what_the_operator_decides() {
        let nobody = Asker::default();
        let fresh = &[("cache-control", "max-age=60")];
        assert_eq!(judge(&rules(), 404, nobody, fresh), Err("STATUS"), "errors only when asked for");
        assert_eq!(judge(&rules(), 500, nobody, fresh), Err("STATUS"));
        let mut asked = rules();
        asked.negative_ttl = Duration::from_secs(5);
        assert_eq!(judge(&asked, 404, nobody, &[]).unwrap().lifetime.as_secs(), 5);
        assert_eq!(judge(&asked, 404, nobody, fresh).unwrap().lifetime.as_secs(), 60);
        assert_eq!(judge(&asked, 404, nobody, &[("cache-control", "no-store")]), Err("NO_STORE"));
        assert_eq!(judge(&asked, 200, nobody, &[]), Err("NOT_FRESH"), "that is for the errors only");
        let mut asked = rules();
        asked.default_ttl = Duration::from_secs(9);
        assert_eq!(judge(&asked, 200, nobody, &[]).unwrap().lifetime.as_secs(), 9);
        let cookie = Asker { has_cookie: true, ..nobody };
        assert_eq!(judge(&asked, 200, cookie, &[]), Err("COOKIE"), "the target said nothing");
        assert_eq!(judge(&asked, 200, cookie, fresh).unwrap().lifetime.as_secs(), 60);
        let mut asked = rules();
        asked.max_ttl = Duration::from_secs(3);
        assert_eq!(judge(&asked, 200, nobody, fresh).unwrap().lifetime.as_secs(), 3);
        let mut asked = rules();
        asked.heuristic_max = Duration::from_secs(100);
        let old = [DAY, ("last-modified", "Sun, 06 Nov 1994 08:39:37 GMT")];
        assert_eq!(judge(&asked, 200, nobody, &old).unwrap().lifetime.as_secs(), 60);
        let older = [DAY, ("last-modified", "Tue, 06 Nov 1984 08:39:37 GMT")];
        assert_eq!(judge(&asked, 200, nobody, &older).unwrap().lifetime.as_secs(), 100);
        let mut asked = rules();
        asked.strips_set_cookie = true;
        assert!(judge(&asked, 200, nobody, &[fresh[0], ("set-cookie", "a=b")]).is_ok());
    }

    #[test]
    fn callers_share_only_what_is_said_to_be_shared() {
        let caller = Asker { is_somebody: true, has_cookie: false };
        for (text, expected) in [
            ("max-age=60", Err("CREDENTIALS")),
            ("max-age=60, must-revalidate", Err("CREDENTIALS")),
            ("max-age=60, public", Ok(())),
            ("s-maxage=60", Ok(())),
            ("public, private, max-age=60", Err("PRIVATE")),
        ] {
            let judged = judge(&rules(), 200, caller, &[("cache-control", text)]);
            assert_eq!(judged.map(drop), expected, "{text}");
        }
    }

    #[test]
    fn ages() {
        let age = |fields: &[(&'static str, &str)]| {
            let fields = [&[("cache-control", "max-age=600")], fields].concat();
            judge(&rules(), 200, Asker::default(), &fields).unwrap().initial_age.as_secs()
        };
        assert_eq!(age(&[]), 0);
        assert_eq!(age(&[("age", "7")]), 7);
        for several in [&[("age", "7200, 0")][..], &[("age", "0,7200")], &[("age", "7200"), ("age", "0")]] {
            assert_eq!(age(&[&[("etag", "\"a\"")], several].concat()), 7200, "{several:?}");
        }
        // RFC 9111 §1.2.2: what is too large is the largest there is, not the smallest.
        for huge in ["18446744073709551615", "99999999999999999999999", "2147483649"] {
            assert_eq!(age(&[("etag", "\"a\""), ("age", huge)]), 1 << 31, "{huge}");
        }
        assert_eq!(age(&[("date", "Sun, 06 Nov 1994 08:49:27 GMT")]), 10);
        assert_eq!(age(&[("date", "Sun, 06 Nov 1994 08:49:27 GMT"), ("age", "70")]), 70);
        assert_eq!(
            age(&[("date", "Sun, 06 Nov 1994 09:49:27 GMT"), ("age", "x")]),
            0,
            "a clock ahead of ours"
        );
    }

    #[test]
    fn uses() {
        let secs = Duration::from_secs;
        let plain = judge(&rules(), 200, Asker::default(), &[("cache-control", "max-age=60")]).unwrap();
        let none = RequestControl::default();
        let allows = |policy: &Policy, age, asked: &RequestControl| policy.allows(secs(age), None, asked);
        assert_eq!(allows(&plain, 59, &none), Use::Fresh);
        assert_eq!(allows(&plain, 60, &none), Use::Validated);
        let asks = |change: fn(&mut RequestControl)| {
            let mut asked = RequestControl::default();
            change(&mut asked);
            asked
        };
        assert_eq!(allows(&plain, 1, &asks(|it| it.no_cache = true)), Use::Validated);
        assert_eq!(allows(&plain, 10, &asks(|it| it.max_age = Some(Duration::from_secs(9)))), Use::Validated);
        assert_eq!(allows(&plain, 10, &asks(|it| it.max_age = Some(Duration::from_secs(10)))), Use::Fresh);
        let min_fresh = asks(|it| it.min_fresh = Some(Duration::from_secs(20)));
        assert_eq!(allows(&plain, 40, &min_fresh), Use::Fresh);
        assert_eq!(allows(&plain, 41, &min_fresh), Use::Validated);
        let max_stale = asks(|it| it.max_stale = Some(Duration::from_secs(5)));
        assert_eq!(allows(&plain, 65, &max_stale), Use::Fresh);
        assert_eq!(allows(&plain, 66, &max_stale), Use::Validated);
        for strict in ["max-age=60, must-revalidate", "s-maxage=60", "max-age=60, proxy-revalidate"] {
            let strict = judge(&rules(), 200, Asker::default(), &[("cache-control", strict)]).unwrap();
            assert_eq!(allows(&strict, 61, &max_stale), Use::Validated);
        }
        let text = "s-maxage=60, stale-while-revalidate=10, stale-if-error=20";
        let stale = judge(&rules(), 200, Asker::default(), &[("cache-control", text)]).unwrap();
        assert_eq!(allows(&stale, 69, &none), Use::WhileRevalidated);
        assert_eq!(allows(&stale, 70, &none), Use::Validated);
        assert!(stale.serves_errors(secs(79), None) && !stale.serves_errors(secs(80), None));
        assert_eq!(stale.allows(secs(1), Some(secs(1)), &none), Use::WhileRevalidated, "marked by a purge");
        assert_eq!(stale.allows(secs(1), Some(secs(11)), &none), Use::Validated);
        let strict = "max-age=60, must-revalidate, stale-while-revalidate=10, stale-if-error=20";
        let strict = judge(&rules(), 200, Asker::default(), &[("cache-control", strict)]).unwrap();
        assert_eq!(allows(&strict, 61, &none), Use::Validated);
        assert!(!strict.serves_errors(secs(61), None));
        let mut ours = rules();
        (ours.stale_while_revalidate, ours.stale_if_error) = (secs(10), secs(10));
        let ours = judge(&ours, 200, Asker::default(), &[("cache-control", "max-age=60")]).unwrap();
        assert_eq!(allows(&ours, 61, &none), Use::WhileRevalidated);
        assert!(ours.serves_errors(secs(61), None));
    }

    #[test]
    fn with_s_maxage_only_the_target_allows_stale_responses() {
        let secs = Duration::from_secs;
        let mut ours = rules();
        (ours.stale_while_revalidate, ours.stale_if_error) = (secs(10), secs(10));
        for (said, allowed) in [
            ("s-maxage=60", (0, 0)),
            ("s-maxage=60, stale-if-error=5", (0, 5)),
            ("s-maxage=60, stale-while-revalidate=4", (4, 0)),
            ("max-age=60", (10, 10)),
        ] {
            let policy = judge(&ours, 200, Asker::default(), &[("cache-control", said)]).unwrap();
            let got = (policy.stale_while_revalidate.as_secs(), policy.stale_if_error.as_secs());
            assert_eq!(got, allowed, "{said}");
        }
    }
}
