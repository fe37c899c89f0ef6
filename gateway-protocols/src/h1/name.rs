//! Names of fields, found among the usual ones by their first and last bytes: what is not there is read byte by byte.

use std::sync::LazyLock;

use http::header::{self, HeaderName, InvalidHeaderName};

/// The name that `text` stands for, in whatever case.
///
/// # Errors
/// It is not a name (RFC 9110 §5.1).
pub(super) fn read(text: &[u8]) -> Result<HeaderName, InvalidHeaderName> {
    match TABLE.find(text) {
        Some(name) => Ok(name.clone()),
        None => HeaderName::from_bytes(text),
    }
}

/// Where the colon behind a line's name is, looked for in eight bytes at a time: names are too short for anything that has
/// to be prepared.
pub(super) fn end(line: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let (pieces, rest) = line.as_chunks::<8>();
    for (at, piece) in pieces.iter().enumerate() {
        // A colon becomes zero; the lowest zero borrows from its highest bit.
        let zeros = u64::from_le_bytes(*piece) ^ (ONES * u64::from(b':'));
        let found = zeros.wrapping_sub(ONES) & !zeros & (ONES << 7);
        if found != 0 {
            return Some(8 * at + found.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|c| *c == b':')?;
    Some(8 * pieces.len() + at)
}

/// Bits of a slot's number.
const BITS: u32 = 11;

/// The usual names by what their ends hash to. No two share a slot.
struct Table {
    factor: u64,
    /// One more than the place in `usual`, or zero.
    slots: [u8; 1 << BITS],
    usual: Vec<Usual>,
}

/// A name with what its text is compared by.
struct Usual {
    name: HeaderName,
    ends: NameEnds,
    /// The bit that tells upper from lower case, where there is a letter.
    cases: NameEnds,
}

/// The first and last bytes of a name of at least two, as numbers; they overlap in short ones.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NameEnds(u64, u64);

/// The bit that tells upper from lower case, in each byte.
const CASE: u64 = 0x2020_2020_2020_2020;
/// Up to this many bytes the ends are the whole.
const WHOLE: usize = 16;

static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

impl NameEnds {
    #[inline]
    fn of(text: &[u8]) -> Option<Self> {
        if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
            return Some(Self(u64::from_le_bytes(*first), u64::from_le_bytes(*last)));
        }
        if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
            return Some(Self(u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into()));
        }
        let (first, last) = (text.first_chunk()?, text.last_chunk()?);
        Some(Self(u16::from_le_bytes(*first).into(), u16::from_le_bytes(*last).into()))
    }

    /// The slot of a name of so many bytes.
    #[inline]
    fn slot(self, bytes: usize, factor: u64) -> usize {
        let mixed = (self.0 | CASE) ^ (self.1 | CASE).rotate_left(19) ^ bytes as u64;
        (mixed.wrapping_mul(factor) >> (u64::BITS - BITS)) as usize
    }
}

impl Table {
    fn new() -> Self {
        let usual: Vec<Usual> = names().filter_map(Usual::new).collect();
        // Odd factors until one gives each name a slot of its own; the golden ratio's is the first.
        let mut factor = 0x9e37_79b9_7f4a_7c15_u64;
        loop {
            if let Some(slots) = Self::spread(&usual, factor) {
                return Self { factor, slots, usual };
            }
            factor = factor.wrapping_mul(0x5851_f42d_4c95_7f2d) | 1;
        }
    }

    /// A slot for each name, unless two would share one.
    fn spread(usual: &[Usual], factor: u64) -> Option<[u8; 1 << BITS]> {
        let mut slots = [0; 1 << BITS];
        for (number, usual) in (1..).zip(usual) {
            let slot = &mut slots[usual.ends.slot(usual.name.as_str().len(), factor)];
            if *slot != 0 {
                return None;
            }
            *slot = number;
        }
        Some(slots)
    }

    #[inline]
    fn find(&self, text: &[u8]) -> Option<&HeaderName> {
        let ends = NameEnds::of(text)?;
        let number = self.slots[ends.slot(text.len(), self.factor)];
        let usual = self.usual.get(usize::from(number).checked_sub(1)?)?;
        let known = usual.name.as_str();
        let same = known.len() == text.len()
            && ends.0 | usual.cases.0 == usual.ends.0
            && ends.1 | usual.cases.1 == usual.ends.1
            && (text.len() <= WHOLE || known.as_bytes().eq_ignore_ascii_case(text));
        same.then_some(&usual.name)
    }
}

impl Usual {
    fn new(name: HeaderName) -> Option<Self> {
        let text = name.as_str().as_bytes();
        let case = |c: &u8| if c.is_ascii_lowercase() { c ^ c.to_ascii_uppercase() } else { 0 };
        let cases: Vec<u8> = text.iter().map(case).collect();
        let (ends, cases) = (NameEnds::of(text)?, NameEnds::of(&cases)?);
        Some(Self { name, ends, cases })
    }
}

/// The names that clients and servers use most.
fn names() -> impl Iterator<Item = HeaderName> {
    USUAL.into_iter().chain(OTHERS.map(HeaderName::from_static))
}

const USUAL: [HeaderName; 68] = [
    header::ACCEPT,
    header::ACCEPT_CHARSET,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::ACCEPT_RANGES,
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::ACCESS_CONTROL_EXPOSE_HEADERS,
    header::ACCESS_CONTROL_MAX_AGE,
    header::ACCESS_CONTROL_REQUEST_HEADERS,
    header::ACCESS_CONTROL_REQUEST_METHOD,
    header::AGE,
    header::ALLOW,
    header::ALT_SVC,
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CACHE_STATUS,
    header::CDN_CACHE_CONTROL,
    header::CONNECTION,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LENGTH,
    header::CONTENT_LOCATION,
    header::CONTENT_RANGE,
    header::CONTENT_SECURITY_POLICY,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::DNT,
    header::DATE,
    header::ETAG,
    header::EXPECT,
    header::EXPIRES,
    header::FORWARDED,
    header::FROM,
    header::HOST,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::LAST_MODIFIED,
    header::LINK,
    header::LOCATION,
    header::MAX_FORWARDS,
    header::ORIGIN,
    header::PRAGMA,
    header::RANGE,
    header::REFERER,
    header::REFERRER_POLICY,
    header::RETRY_AFTER,
    header::SERVER,
    header::SET_COOKIE,
    header::STRICT_TRANSPORT_SECURITY,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::UPGRADE_INSECURE_REQUESTS,
    header::USER_AGENT,
    header::VARY,
    header::VIA,
    header::WWW_AUTHENTICATE,
    header::X_CONTENT_TYPE_OPTIONS,
    header::X_FRAME_OPTIONS,
    header::X_XSS_PROTECTION,
];

const OTHERS: [&str; 24] = [
    "early-data",
    "keep-alive",
    "priority",
    "proxy-connection",
    "sec-ch-ua",
    "sec-ch-ua-mobile",
    "sec-ch-ua-platform",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-user",
    "server-timing",
    "traceparent",
    "tracestate",
    "x-api-key",
    "x-cache",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-powered-by",
    "x-real-ip",
    "x-request-id",
    "x-requested-with",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_name_is_found_in_any_case() {
        for name in names() {
            let text = name.as_str();
            let mixed: String = text
                .chars()
                .enumerate()
                .map(|(at, c)| if at % 2 == 0 { c.to_ascii_uppercase() } else { c })
                .collect();
            for spelling in [text.to_owned(), text.to_ascii_uppercase(), mixed] {
                assert_eq!(TABLE.find(spelling.as_bytes()), Some(&name), "{spelling}");
            }
        }
    }

    #[test]
    fn the_first_colon_ends_a_name() {
        for before in 0..40 {
            for line in [format!("{}: a:b", "n".repeat(before)), format!("{}:", ";".repeat(before))] {
                assert_eq!(end(line.as_bytes()), Some(before), "{line}");
            }
            assert_eq!(end("\u{ba}".repeat(before).as_bytes()), None);
        }
    }

    #[test]
    fn what_is_read_is_what_the_slow_way_reads() {
        // Each usual name with one byte replaced by each other one, cut short, and prolonged.
        for name in names() {
            let text = name.as_str().as_bytes();
            let mut spellings =
                vec![text[1..].to_vec(), text[..text.len() - 1].to_vec(), [text, b"s"].concat()];
            for at in 0..text.len() {
                for byte in 0..=u8::MAX {
                    let mut other = text.to_vec();
                    other[at] = byte;
                    spellings.push(other);
                }
            }
            for spelling in spellings {
                assert_eq!(read(&spelling).ok(), HeaderName::from_bytes(&spelling).ok(), "{spelling:?}");
            }
        }
        assert!(read(b"").is_err() && read(b"a").is_ok_and(|name| name == "a"));
    }
}
