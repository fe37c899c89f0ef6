//! Billing periods and dates, in UTC.

use crate::admission::quota::period::Period;

/// Seconds of a day.
pub(super) const DAY: u64 = 86_400;
/// The longest rolling period.
pub(super) const LONGEST_ROLLING: u64 = 366 * DAY;
/// Parts of a rolling period that are forgotten one after the other.
const ROLLING_PARTS: u64 = 96;

/// How long bytes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Billing {
    /// Until the next beginning of a day, a week or a fixed time.
    Fixed(Period),
    /// Until this day of the month, or the last one of a shorter month.
    Month {
        /// 1 to 31.
        anchor: u64,
    },
    /// Those of the last so many seconds.
    Rolling(u64),
}

impl Billing {
    /// When the period that this moment is in ends, in seconds since 1970; never for a rolling one.
    pub(super) fn end(self, now: u64) -> Option<u64> {
        match self {
            Self::Fixed(period) => Some(period.end(now)),
            Self::Month { anchor } => Some(next_anchor(now / DAY, anchor) * DAY),
            Self::Rolling(_) => None,
        }
    }

    /// Of a rolling period how long a part of it lasts.
    pub(super) fn part(self) -> Option<u64> {
        match self {
            Self::Rolling(seconds) => Some((seconds / ROLLING_PARTS).max(1)),
            Self::Fixed(_) | Self::Month { .. } => None,
        }
    }

    /// A number of its own, the same for ever: what is counted is kept under it.
    pub(super) fn code(self) -> u64 {
        match self {
            Self::Fixed(period) => period.code(),
            Self::Month { anchor } => (4 << 60) + anchor,
            Self::Rolling(seconds) => (5 << 60) + seconds,
        }
    }
}

fn next_anchor(today: u64, anchor: u64) -> u64 {
    let (year, month) = month_of(today);
    let this = day_of(year, month, anchor);
    if this > today {
        return this;
    }
    match month {
        12 => day_of(year + 1, 1, anchor),
        _ => day_of(year, month + 1, anchor),
    }
}

/// Reads `2027-01-31` as days since 1970.
pub(super) fn read_date(text: &str) -> Option<u64> {
    let mut parts = text.split('-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let is_date = text.len() == 10
        && parts.next().is_none()
        && (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=length(year, month)).contains(&day);
    is_date.then(|| day_of(year, month, day))
}

/// Days since 1970 of a date; a day beyond the month's end is its last one.
fn day_of(year: u64, month: u64, day: u64) -> u64 {
    let day = day.min(length(year, month));
    // Counted in years that begin in March, so that a leap day is the last one.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * years + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day - 1;
    days - 719_468
}

/// The year and month that a day is in.
fn month_of(day: u64) -> (u64, u64) {
    let mut year = 1970 + day / 366;
    while day_of(year + 1, 1, 1) <= day {
        year += 1;
    }
    let month = (2..=12).take_while(|month| day_of(year, *month, 1) <= day).last().unwrap_or(1);
    (year, month)
}

fn length(year: u64, month: u64) -> u64 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(text: &str) -> u64 {
        read_date(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn months_begin_at_their_anchor() {
        for (now, anchor, end) in [
            ("2026-11-27", 1, "2026-12-01"),
            ("2026-11-27", 28, "2026-11-28"),
            ("2026-11-28", 28, "2026-12-28"),
            ("2027-01-31", 31, "2027-02-28"),
            ("2028-02-28", 31, "2028-02-29"),
            ("2028-02-29", 31, "2028-03-31"),
            ("2026-12-15", 15, "2027-01-15"),
            ("1970-01-01", 1, "1970-02-01"),
            ("2100-02-27", 30, "2100-02-28"),
        ] {
            assert_eq!(next_anchor(date(now), anchor), date(end), "{now} {anchor}");
        }
        assert_eq!(
            Billing::Month { anchor: 1 }.end(date("2026-11-27") * DAY + 7),
            Some(date("2026-12-01") * DAY)
        );
    }

    #[test]
    fn days_agree_with_http_dates() {
        for (text, http) in [
            ("1970-01-01", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("2000-02-29", "Tue, 29 Feb 2000 00:00:00 GMT"),
            ("2026-11-27", "Fri, 27 Nov 2026 00:00:00 GMT"),
            ("2499-12-31", "Thu, 31 Dec 2499 00:00:00 GMT"),
        ] {
            let time = httpdate::parse_http_date(http).unwrap();
            let seconds = time.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
            assert_eq!(date(text) * DAY, seconds, "{text}");
        }
        for day in (0..200_000).step_by(97) {
            let (year, month) = month_of(day);
            assert!(day_of(year, month, 1) <= day && day <= day_of(year, month, 31), "{day}");
        }
        for text in ["2026-02-29", "2026-13-01", "26-01-01", "2026-1-01", "2026-01-01-1", "x"] {
            assert_eq!(read_date(text), None, "{text}");
        }
    }
}
