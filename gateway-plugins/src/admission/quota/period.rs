//! The periods of quotas, in UTC: when the one that a moment is in ends.

use gateway_core::config::units::Unit;

const DAY: u64 = 86_400;
/// The longest fixed period, ten years.
const LONGEST: u64 = 3660 * DAY;

/// How long a quota lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admission) enum Period {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first to the first.
    Month,
    /// So many seconds, counted from 1970 on.
    Seconds(u64),
}

/// Why a text is no period.
#[derive(Debug, thiserror::Error)]
pub(in crate::admission) enum PeriodError {
    #[error("`{0}` is neither `day`, `week`, `month` nor a duration")]
    Unknown(String),
    #[error("a period has at least 1 second and at most 3660 days")]
    OutOfRange,
}

impl Period {
    /// Reads what a setting says.
    pub(in crate::admission) fn read(text: &str) -> Result<Self, PeriodError> {
        match text {
            "day" => return Ok(Self::Day),
            "week" => return Ok(Self::Week),
            "month" => return Ok(Self::Month),
            _ => {}
        }
        match Unit::Seconds.read(text) {
            Ok(seconds @ 1..=LONGEST) => Ok(Self::Seconds(seconds)),
            Ok(_) => Err(PeriodError::OutOfRange),
            Err(_) => Err(PeriodError::Unknown(text.to_owned())),
        }
    }

    /// When the period that this moment is in ends; both in seconds since 1970.
    pub(in crate::admission) fn end(self, now: u64) -> u64 {
        let day = now / DAY;
        match self {
            Self::Day => (day + 1) * DAY,
            // The first day of 1970 was a Thursday.
            Self::Week => (day - (day + 3) % 7 + 7) * DAY,
            Self::Month => next_month(day) * DAY,
            Self::Seconds(seconds) => (now / seconds + 1) * seconds,
        }
    }

    /// About how many seconds it lasts, for those who have to say one number; the end says it exactly.
    pub(in crate::admission) fn seconds(self) -> u64 {
        match self {
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Seconds(seconds) => seconds,
        }
    }

    /// A number of its own, the same for ever: what is counted is kept under it.
    pub(in crate::admission) fn code(self) -> u64 {
        match self {
            Self::Day => 1 << 60,
            Self::Week => 2 << 60,
            Self::Month => 3 << 60,
            Self::Seconds(seconds) => seconds,
        }
    }

    /// Its name in headers.
    pub(in crate::admission) fn name(self) -> String {
        match self {
            Self::Day => "day".into(),
            Self::Week => "week".into(),
            Self::Month => "month".into(),
            Self::Seconds(seconds) => format!("{seconds}s"),
        }
    }
}

/// The first day of the month after that of a day, both counted from 1970 on, in the Gregorian calendar.
fn next_month(day: u64) -> u64 {
    let mut first = 0;
    let mut year = 1970;
    // Whole spans of 400 years have the same days.
    let spans = day / 146_097;
    let day = day % 146_097;
    loop {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = if is_leap { 366 } else { 365 };
        if day < first + days {
            let february = if is_leap { 29 } else { 28 };
            for month in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
                first += month;
                if day < first {
                    return spans * 146_097 + first;
                }
            }
        }
        first += days;
        year += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds since 1970 of a date as HTTP writes it.
    fn at(text: &str) -> u64 {
        let time = httpdate::parse_http_date(text).unwrap();
        time.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
    }

    #[test]
    fn periods_end_with_the_calendar() {
        for (period, now, end) in [
            (Period::Day, "Sun, 22 Nov 2026 00:00:00 GMT", "Mon, 23 Nov 2026 00:00:00 GMT"),
            (Period::Day, "Sun, 22 Nov 2026 23:59:59 GMT", "Mon, 23 Nov 2026 00:00:00 GMT"),
            (Period::Week, "Sun, 22 Nov 2026 23:59:59 GMT", "Mon, 23 Nov 2026 00:00:00 GMT"),
            (Period::Week, "Mon, 23 Nov 2026 00:00:00 GMT", "Mon, 30 Nov 2026 00:00:00 GMT"),
            (Period::Month, "Thu, 01 Jan 1970 00:00:00 GMT", "Sun, 01 Feb 1970 00:00:00 GMT"),
            (Period::Month, "Sat, 31 Jan 2026 12:00:00 GMT", "Sun, 01 Feb 2026 00:00:00 GMT"),
            (Period::Month, "Tue, 29 Feb 2028 12:00:00 GMT", "Wed, 01 Mar 2028 00:00:00 GMT"),
            (Period::Month, "Mon, 01 Feb 2027 00:00:00 GMT", "Mon, 01 Mar 2027 00:00:00 GMT"),
            (Period::Month, "Sun, 28 Feb 2100 23:59:59 GMT", "Mon, 01 Mar 2100 00:00:00 GMT"),
            (Period::Month, "Thu, 31 Dec 2026 23:59:59 GMT", "Fri, 01 Jan 2027 00:00:00 GMT"),
            (Period::Month, "Tue, 15 Dec 2499 23:59:59 GMT", "Fri, 01 Jan 2500 00:00:00 GMT"),
            (Period::Seconds(3600), "Sun, 22 Nov 2026 11:34:05 GMT", "Sun, 22 Nov 2026 12:00:00 GMT"),
        ] {
            assert_eq!(period.end(at(now)), at(end), "{period:?} {now}");
        }
    }

    #[test]
    fn periods_are_read() {
        for (text, period) in [
            ("day", Some(Period::Day)),
            ("week", Some(Period::Week)),
            ("month", Some(Period::Month)),
            ("60", Some(Period::Seconds(60))),
            ("1h30m", Some(Period::Seconds(5400))),
            ("1d", Some(Period::Seconds(86_400))),
            ("0", None),
            ("year", None),
            ("20000d", None),
            ("1ms", None),
        ] {
            assert_eq!(Period::read(text).ok(), period, "{text}");
        }
    }
}
