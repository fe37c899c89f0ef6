//! JSON objects on one line, written straight into a buffer.

use std::cell::Cell;
use std::fmt::{Display, Write};
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of a text written to a record; what is beyond is cut off.
pub const MAX_TEXT: usize = 2048;

/// One object of one line.
pub struct JsonLine<'b>(&'b mut Vec<u8>);

impl<'b> JsonLine<'b> {
    /// An object that begins behind what is in the buffer.
    pub fn begin(buffer: &'b mut Vec<u8>) -> Self {
        buffer.push(b'{');
        Self(buffer)
    }

    /// Ends the object.
    pub fn close(self) {
        self.0.push(b'}');
    }

    /// Ends the object and the line.
    pub fn end(self) {
        self.0.extend_from_slice(b"}\n");
    }

    /// A text; any bytes, those that are not UTF-8 are replaced.
    #[inline(always)]
    pub fn text(&mut self, key: &str, text: impl AsRef<[u8]>) {
        self.key(key);
        self.quoted(text.as_ref());
    }

    /// A text that needs no escaping: letters, digits, and signs other than quotation marks and backslashes.
    #[inline(always)]
    pub fn word(&mut self, key: &str, word: &str) {
        debug_assert!(
            word.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\')),
            "{word:?} needs escaping"
        );
        self.key(key);
        self.0.push(b'"');
        self.0.extend_from_slice(word.as_bytes());
        self.0.push(b'"');
    }

    #[inline(never)]
    fn quoted(&mut self, text: &[u8]) {
        self.0.push(b'"');
        escape(self.0, text);
        self.0.push(b'"');
    }

    /// A text put together by `write`, which escapes by itself.
    pub fn text_by(&mut self, key: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.key(key);
        self.0.push(b'"');
        write(self.0);
        self.0.push(b'"');
    }

    /// Something whose text never needs escaping: an address, a version.
    pub fn plain(&mut self, key: &str, value: impl Display) {
        self.key(key);
        self.0.push(b'"');
        append(self.0, format_args!("{value}"));
        self.0.push(b'"');
    }

    /// An address.
    #[inline(always)]
    pub fn address(&mut self, key: &str, address: IpAddr) {
        self.key(key);
        self.address_value(address);
    }

    #[inline(never)]
    fn address_value(&mut self, address: IpAddr) {
        self.0.push(b'"');
        self.0.extend_from_slice(AddressText::of(address).as_bytes());
        self.0.push(b'"');
    }

    /// Something that JSON writes without quotation marks.
    pub fn bare(&mut self, key: &str, value: impl Display) {
        self.key(key);
        append(self.0, format_args!("{value}"));
    }

    /// A whole number.
    #[inline(always)]
    pub fn number(&mut self, key: &str, number: impl itoa::Integer) {
        self.key(key);
        self.number_value(number);
    }

    #[inline(never)]
    fn number_value(&mut self, number: impl itoa::Integer) {
        self.0.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Seconds with six places.
    #[inline(always)]
    pub fn seconds(&mut self, key: &str, duration: Duration) {
        self.key(key);
        self.seconds_value(duration);
    }

    #[inline(never)]
    fn seconds_value(&mut self, duration: Duration) {
        self.number_value(duration.as_secs());
        let mut fraction = *b".000000";
        fraction[1..].copy_from_slice(&digits::<6>(duration.subsec_micros()));
        self.0.extend_from_slice(&fraction);
    }

    /// RFC 3339 in UTC with microseconds.
    pub fn time(&mut self, key: &str, time: SystemTime) {
        self.key(key);
        self.0.push(b'"');
        self.0.extend_from_slice(&Rfc3339(time).text());
        self.0.push(b'"');
    }

    /// Where it is called, the key is known: to copy few bytes of which the number is known takes no call.
    #[inline(always)]
    fn key(&mut self, key: &str) {
        self.0.reserve(key.len() + 4);
        if self.0.last() != Some(&b'{') {
            self.0.push(b',');
        }
        self.0.push(b'"');
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b"\":");
    }
}

/// An address as text. Every record has two, and the formatting of numbers is dear.
#[derive(Debug, Clone, Copy)]
pub struct AddressText {
    /// Room for the longest, an IPv6 address with an IPv4 address at its end.
    bytes: [u8; 46],
    length: usize,
}

impl AddressText {
    /// The text of an address.
    pub fn of(address: IpAddr) -> Self {
        let mut text = Self { bytes: [0; 46], length: 0 };
        match address {
            IpAddr::V4(address) => {
                for (at, part) in address.octets().into_iter().enumerate() {
                    if at > 0 {
                        text.push(b".");
                    }
                    text.push(itoa::Buffer::new().format(part).as_bytes());
                }
            }
            IpAddr::V6(address) => {
                let written = write!(text, "{address}");
                debug_assert!(written.is_ok(), "{address} is too long");
            }
        }
        text
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn push(&mut self, part: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.length..self.length + part.len()) {
            room.copy_from_slice(part);
            self.length += part.len();
        }
    }
}

impl Write for AddressText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

fn append(buffer: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    struct Bytes<'b>(&'b mut Vec<u8>);
    impl Write for Bytes<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    let written = Bytes(buffer).write_fmt(text);
    debug_assert!(
        written.is_ok(),
        "a buffer takes whatever is written, and what is formatted here never fails"
    );
}

/// Appends text the way it stands within quotation marks (RFC 8259 §7). Control characters beyond ASCII are escaped, too: a
/// terminal that shows a line would obey them.
pub fn escape(out: &mut Vec<u8>, text: &[u8]) {
    escape_line(out, &text[..text.len().min(MAX_TEXT)]);
}

/// The same for a whole line, however long it is.
pub fn escape_line(out: &mut Vec<u8>, text: &[u8]) {
    // Without an early end, so that it takes many bytes at a time.
    let is_special = |byte: u8| !matches!(byte, 0x20..=0x7e) | matches!(byte, b'"' | b'\\');
    if !text.iter().fold(false, |found, byte| found | is_special(*byte)) {
        out.extend_from_slice(text);
        return;
    }
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                    append(out, format_args!("\\u{:04x}", u32::from(c)));
                }
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

/// A moment as RFC 3339 in UTC with microseconds.
pub struct Rfc3339(
    /// The moment.
    pub SystemTime,
);

impl Rfc3339 {
    /// Its text. Every record has one, and the formatting of numbers is dear.
    fn text(&self) -> [u8; 27] {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (days, second) = (since.as_secs() / 86_400, (since.as_secs() % 86_400) as u32);
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        text[..10].copy_from_slice(&date_text(days));
        text[11..13].copy_from_slice(&digits::<2>(second / 3600));
        text[14..16].copy_from_slice(&digits::<2>(second / 60 % 60));
        text[17..19].copy_from_slice(&digits::<2>(second % 60));
        text[20..26].copy_from_slice(&digits::<6>(since.subsec_micros()));
        text
    }
}

impl Display for Rfc3339 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

/// The two digits of each number below 100.
static PAIRS: [[u8; 2]; 100] = pairs();

const fn pairs() -> [[u8; 2]; 100] {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
}

/// The last digits of a number, with zeros before it; of even count.
fn digits<const COUNT: usize>(mut number: u32) -> [u8; COUNT] {
    let mut digits = [b'0'; COUNT];
    for two in digits.rchunks_exact_mut(2) {
        two.copy_from_slice(&PAIRS[(number % 100) as usize]);
        number /= 100;
    }
    digits
}

/// Milliseconds since 1970 UTC of a moment as RFC 3339 writes it; `None` for another text, and before 1970.
pub fn millis_of(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let is = |at: usize, any: &[u8]| text.as_bytes().get(at).is_some_and(|byte| any.contains(byte));
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_shaped = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    if !is_shaped
        || !(1..=12).contains(&month)
        || !(1..=days_of(year, month)).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let rest = text.get(19..)?;
    let fraction = rest.strip_prefix('.').map_or("", |rest| {
        let end = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest.get(..end).unwrap_or_default()
    });
    let zone = rest.get(if rest.starts_with('.') { 1 + fraction.len() } else { 0 }..)?;
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let at = text.len() - zone.len();
            let minutes = number(at + 1, at + 3)? * 60 + number(at + 4, at + 6)?;
            let is_shaped = zone.len() == 6 && is(at, b"+-") && is(at + 3, b":");
            is_shaped.then_some(if zone.starts_with('-') { -minutes } else { minutes })?
        }
    };
    let millis: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + (minute - offset) * 60 + second;
    u64::try_from(seconds * 1000 + millis).ok()
}

/// The days of a month.
fn days_of(year: i64, month: i64) -> i64 {
    let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days(next_year, next, 1) - days(year, month, 1)
}

/// The days from the epoch to a date, in the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // As in `date`, years begin in March.
    let (year, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// `YYYY-MM-DD` of a day since the epoch. The next one asked for is nearly always the same.
fn date_text(days: u64) -> [u8; 10] {
    thread_local! {
        static LAST: Cell<(u64, [u8; 10])> = const { Cell::new((0, *b"1970-01-01")) };
    }
    let (last, text) = LAST.get();
    if last == days {
        return text;
    }
    let (year, month, day) = date(days);
    let mut text = *b"0000-00-00";
    text[..4].copy_from_slice(&digits::<4>(year as u32));
    text[5..7].copy_from_slice(&digits::<2>(month as u32));
    text[8..].copy_from_slice(&digits::<2>(day as u32));
    LAST.set((days, text));
    text
}

/// Year, month and day of a day since the epoch, in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    // Years counted from March have the leap day at their end, so that months have fixed places within them.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut JsonLine<'_>)) -> serde_json::Value {
        let mut buffer = Vec::new();
        let mut line = JsonLine::begin(&mut buffer);
        write(&mut line);
        line.end();
        assert_eq!(buffer.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
        serde_json::from_slice(&buffer).unwrap()
    }

    #[test]
    fn any_bytes_become_one_line_of_json() {
        let every: Vec<u8> = (0..=255).collect();
        let value = written(|line| line.text("every", &every));
        let text = value["every"].as_str().unwrap();
        assert!(text.starts_with("\0\u{1}") && text.contains("\"#$") && text.ends_with('\u{fffd}'));
        let value = written(|line| {
            line.text("umlaut", "grün\n");
            line.number("n", 7_u64);
            line.seconds("s", Duration::from_micros(1_000_042));
        });
        assert_eq!(value, serde_json::json!({ "umlaut": "grün\n", "n": 7, "s": 1.000_042 }));
    }

    #[test]
    fn addresses_are_written_whole() {
        for text in [
            "0.0.0.0",
            "192.0.2.255",
            "::",
            "::ffff:255.255.255.255",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
        ] {
            let address = text.parse().unwrap();
            assert_eq!(AddressText::of(address).as_bytes(), text.as_bytes());
            assert_eq!(written(|line| line.address("a", address)), serde_json::json!({ "a": text }));
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let value = written(|line| line.text("long", "ü".repeat(MAX_TEXT)));
        assert_eq!(value["long"].as_str().unwrap().len(), MAX_TEXT);
        let odd = format!("x{}", "ü".repeat(MAX_TEXT));
        assert!(written(|line| line.text("long", &odd))["long"].as_str().unwrap().ends_with('\u{fffd}'));
    }

    #[test]
    fn long_lines_are_whole() {
        let line = format!("x{}", "ü".repeat(MAX_TEXT));
        let mut out = b"\"".to_vec();
        escape_line(&mut out, line.as_bytes());
        out.push(b'"');
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), line);
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for seconds in [0, 951_782_400, 951_868_799, 1_795_132_799, 4_107_542_400, 13_569_465_599] {
            let time = UNIX_EPOCH + Duration::new(seconds, 7_000_000);
            assert_eq!(millis_of(&Rfc3339(time).to_string()), Some(seconds * 1000 + 7));
        }
        assert_eq!(millis_of("2000-02-29T00:00:00Z"), Some(951_782_400_000));
        assert_eq!(millis_of("1971-12-31T00:00:00Z"), Some(729 * 86_400_000));
        assert_eq!(millis_of("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(millis_of("1970-01-01t00:00:00.5-00:30"), Some(1_800_500));
        for text in [
            "",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-13-01T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "4927-02-29T21:44:39Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:00+0100",
            "1970-01-01T00:00:00Z ",
            "1969-12-31T23:59:59Z",
            "+970-01-01T00:00:00Z",
            "1970-01-01T00:00:00\u{fc}",
            "1970-01-01T00:00:00.Zx",
        ] {
            assert_eq!(millis_of(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_utc() {
        let at = |seconds| Rfc3339(UNIX_EPOCH + Duration::new(seconds, 1_500)).to_string();
        assert_eq!(at(0), "1970-01-01T00:00:00.000001Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000001Z");
        assert_eq!(at(1_795_132_799), "2026-11-19T23:59:59.000001Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.000001Z");
    }
}
