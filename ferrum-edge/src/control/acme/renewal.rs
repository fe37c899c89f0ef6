//! When a certificate is renewed: when the CA says so (RFC 9773), else by how much of its life is left.

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use serde::Deserialize;

use super::bundle::Validity;
use super::jose::base64url;

/// From one look at what the CA says to the next, where the CA does not say.
const RECHECK: Duration = Duration::from_secs(6 * 3600);
/// The shortest and the longest time from one look to the next.
const RECHECKS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 3600));

/// When a CA would have a certificate renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: SystemTime,
    pub(super) to: SystemTime,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Information {
    suggested_window: Suggested,
}

#[derive(Deserialize)]
struct Suggested {
    start: String,
    end: String,
}

impl Window {
    /// Reads what a CA says.
    pub(super) fn read(document: &[u8]) -> Option<Self> {
        let Information { suggested_window: Suggested { start, end } } =
            serde_json::from_slice(document).ok()?;
        let (from, to) = (moment(&start)?, moment(&end)?);
        // RFC 9773 §4.2: anything else says nothing.
        (to > from).then_some(Self { from, to })
    }
}

/// How long to wait before the CA is asked again.
pub(super) fn recheck(asked: Option<Duration>) -> Duration {
    asked.unwrap_or(RECHECK).clamp(RECHECKS.0, RECHECKS.1)
}

/// When to renew. `spread`, from 0 to 1, is what sets certificates apart that were issued together.
pub(super) fn due(
    validity: Validity,
    window: Option<Window>,
    renew_before: Option<Duration>,
    spread: f64,
) -> SystemTime {
    let within = |from: SystemTime, to: SystemTime| {
        from + to.duration_since(from).unwrap_or_default().mul_f64(spread.clamp(0.0, 1.0))
    };
    if let Some(Window { from, to }) = window {
        return within(from, to).min(validity.to);
    }
    let life = validity.to.duration_since(validity.from).unwrap_or_default();
    let before = renew_before.unwrap_or(life / 3).min(life / 2);
    let latest = validity.to.checked_sub(before).unwrap_or(validity.from);
    let earliest = latest.checked_sub(life / 50).unwrap_or(latest);
    within(earliest.max(validity.from + life / 2), latest)
}

/// A number from 0 to 1 that is the same for the same certificate, on every gateway and after every start.
pub(super) fn spread(of: &[u8]) -> f64 {
    let hash = digest(&SHA256, of);
    let first = hash.as_ref().first_chunk().copied().unwrap_or_default();
    f64::from(u32::from_be_bytes(first)) / f64::from(u32::MAX)
}

/// What a CA calls a certificate (RFC 9773 §4.1); `None` where it does not name its issuer's key.
pub(super) fn identifier(leaf: &[u8]) -> Option<String> {
    let (issuer_key, serial) = gateway_core::certificate::issuer_key_and_serial(leaf)?;
    Some(format!("{}.{}", base64url(issuer_key), base64url(serial)))
}

/// A moment as RFC 3339 writes it.
fn moment(text: &str) -> Option<SystemTime> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let part = text.get(from..to)?;
        part.bytes().all(|c| c.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let is_formed = [(4, "-"), (7, "-"), (13, ":"), (16, ":")]
        .iter()
        .all(|(at, mark)| text.get(*at..*at + 1) == Some(mark))
        && matches!(text.get(10..11), Some("T" | "t" | " "));
    if !is_formed {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let rest = text.get(19..)?;
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => rest,
    };
    let ahead = match zone {
        "Z" | "z" => 0,
        _ => {
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            let (hours, minutes) = zone.strip_prefix(['+', '-'])?.split_once(':')?;
            // Exactly two digits each: anything else is no zone, and could be too large to count with.
            let two = |part: &str, limit: i64| -> Option<i64> {
                let is_formed = part.len() == 2 && part.bytes().all(|c| c.is_ascii_digit());
                let number: i64 = is_formed.then(|| part.parse().ok())??;
                (number < limit).then_some(number)
            };
            sign * (two(hours, 24)? * 3600 + two(minutes, 60)? * 60)
        }
    };
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - ahead;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// Days from 1970 to a date of the Gregorian calendar, counted in years that begin with March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leaps + (month * 306 + 5) / 10 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn at(days: u32) -> SystemTime {
        UNIX_EPOCH + DAY * days
    }

    #[test]
    fn moments_are_read() {
        let seconds = |text: &str| moment(text).map(|at| at.duration_since(UNIX_EPOCH).unwrap().as_secs());
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2025-01-02T04:00:00Z"), Some(1_735_790_400));
        assert_eq!(seconds("2025-01-02T04:00:00.123+01:00"), Some(1_735_786_800));
        assert_eq!(seconds("2024-02-29T23:59:59-00:30"), Some(1_709_252_999));
        let zones = ["+1", "+9223372036854775807:00", "+24:00", "+00:60", "+-1:00", "+1:00"];
        let zones = zones.map(|zone| format!("2025-01-02T04:00:00{zone}"));
        let others = ["", "2025-01-02", "2025-13-02T04:00:00Z", "2025-01-02T04:00:00"];
        for bad in zones.iter().map(String::as_str).chain(others) {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_the_ca_says_goes_before_what_is_left() {
        let validity = Validity { from: at(0), to: at(90) };
        assert_eq!(due(validity, None, None, 1.0), at(60));
        assert!(due(validity, None, None, 0.0) < at(60), "certificates issued together come apart");
        assert!(due(validity, None, None, 0.0) > at(58));
        assert_eq!(due(validity, None, Some(DAY * 10), 1.0), at(80));
        assert_eq!(
            due(validity, None, Some(DAY * 200), 1.0),
            at(45),
            "never before half of its life is over"
        );
        let window = |from, to| Some(Window { from: at(from), to: at(to) });
        assert_eq!(due(validity, window(10, 20), Some(DAY * 10), 0.5), at(15));
        assert_eq!(due(validity, window(100, 110), None, 0.5), at(90), "not after its end");
    }

    #[test]
    fn what_a_ca_says_is_read_when_it_makes_sense() {
        let read = |start: &str, end: &str| {
            Window::read(format!(r#"{{"suggestedWindow":{{"start":"{start}","end":"{end}"}}}}"#).as_bytes())
        };
        let window = read("1970-01-11T00:00:00Z", "1970-01-12T00:00:00Z");
        assert_eq!(window, Some(Window { from: at(10), to: at(11) }));
        assert_eq!(read("1970-01-12T00:00:00Z", "1970-01-11T00:00:00Z"), None);
        assert_eq!(Window::read(b"{}"), None);
        assert_eq!(recheck(None), RECHECK);
        assert_eq!(recheck(Some(Duration::ZERO)), Duration::from_secs(60));
        assert_eq!(recheck(Some(DAY * 30)), DAY);
    }

    #[test]
    fn a_certificate_has_one_place_between_others() {
        let (a, b) = (spread(b"a"), spread(b"b"));
        assert!((0.0..=1.0).contains(&a) && (0.0..=1.0).contains(&b) && a != b);
        assert!((spread(b"a") - a).abs() < f64::EPSILON);
    }
}
