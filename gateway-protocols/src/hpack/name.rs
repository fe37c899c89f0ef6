//! Field names, and the static table (RFC 7541, Appendix A).

use bytes::Bytes;
use http::header::*;

use super::ENTRY_OVERHEAD;

/// A field's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    Method,
    Scheme,
    Authority,
    Path,
    Status,
    /// RFC 8441.
    Protocol,
    Header(HeaderName),
    /// Not a lower-case token, or a pseudo-header field nobody defined: whatever it is in is malformed. So many octets,
    /// which the table has to count.
    Bad(usize),
}

/// A decoded field.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: Name,
    pub(crate) value: Value,
    /// Octets it counts for (RFC 7541 §4.1).
    pub(crate) size: usize,
}

/// A field's value, looked at once and then only shared.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// Of a pseudo-header field.
    Text(Bytes),
    /// Of any other.
    Header(HeaderValue),
    /// It holds octets that no value may hold (RFC 9113 §8.2.1).
    Bad,
}

impl Name {
    pub(crate) fn parse(text: &[u8]) -> Self {
        match text {
            b":method" => Self::Method,
            b":scheme" => Self::Scheme,
            b":authority" => Self::Authority,
            b":path" => Self::Path,
            b":status" => Self::Status,
            b":protocol" => Self::Protocol,
            _ => HeaderName::from_lowercase(text).map_or(Self::Bad(text.len()), Self::Header),
        }
    }

    /// Octets of the name.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Method | Self::Scheme | Self::Status => 7,
            Self::Path => 5,
            Self::Protocol => 9,
            Self::Authority => 10,
            Self::Header(name) => name.as_str().len(),
            Self::Bad(length) => *length,
        }
    }
}

impl Field {
    pub(crate) fn new(name: Name, value: Bytes) -> Self {
        let size = name.len() + value.len() + ENTRY_OVERHEAD;
        let padded = |octet: Option<&u8>| matches!(octet, Some(b' ' | b'\t'));
        let value = match name {
            _ if padded(value.first()) || padded(value.last()) => Value::Bad,
            Name::Header(_) | Name::Bad(_) => {
                HeaderValue::from_maybe_shared(value).map_or(Value::Bad, Value::Header)
            }
            // What reads these takes only what it knows, or has a grammar of its own that is narrower.
            _ => Value::Text(value),
        };
        Self { name, value, size }
    }

    /// An entry of the static table.
    pub(crate) fn fixed(name: &Name, value: &'static str) -> Self {
        let size = name.len() + value.len() + ENTRY_OVERHEAD;
        let value = match name {
            Name::Header(_) => Value::Header(HeaderValue::from_static(value)),
            _ => Value::Text(Bytes::from_static(value.as_bytes())),
        };
        Self { name: name.clone(), value, size }
    }
}

const fn header(name: HeaderName) -> Name {
    Name::Header(name)
}

/// Name and value of each entry; the first one has index 1.
#[rustfmt::skip]
pub(super) static STATIC: [(Name, &str); 61] = [
    (Name::Authority, ""), (Name::Method, "GET"), (Name::Method, "POST"), (Name::Path, "/"),
    (Name::Path, "/index.html"), (Name::Scheme, "http"), (Name::Scheme, "https"), (Name::Status, "200"),
    (Name::Status, "204"), (Name::Status, "206"), (Name::Status, "304"), (Name::Status, "400"),
    (Name::Status, "404"), (Name::Status, "500"), (header(ACCEPT_CHARSET), ""),
    (header(ACCEPT_ENCODING), "gzip, deflate"), (header(ACCEPT_LANGUAGE), ""), (header(ACCEPT_RANGES), ""),
    (header(ACCEPT), ""), (header(ACCESS_CONTROL_ALLOW_ORIGIN), ""), (header(AGE), ""), (header(ALLOW), ""),
    (header(AUTHORIZATION), ""), (header(CACHE_CONTROL), ""), (header(CONTENT_DISPOSITION), ""),
    (header(CONTENT_ENCODING), ""), (header(CONTENT_LANGUAGE), ""), (header(CONTENT_LENGTH), ""),
    (header(CONTENT_LOCATION), ""), (header(CONTENT_RANGE), ""), (header(CONTENT_TYPE), ""), (header(COOKIE), ""),
    (header(DATE), ""), (header(ETAG), ""), (header(EXPECT), ""), (header(EXPIRES), ""), (header(FROM), ""),
    (header(HOST), ""), (header(IF_MATCH), ""), (header(IF_MODIFIED_SINCE), ""), (header(IF_NONE_MATCH), ""),
    (header(IF_RANGE), ""), (header(IF_UNMODIFIED_SINCE), ""), (header(LAST_MODIFIED), ""), (header(LINK), ""),
    (header(LOCATION), ""), (header(MAX_FORWARDS), ""), (header(PROXY_AUTHENTICATE), ""),
    (header(PROXY_AUTHORIZATION), ""), (header(RANGE), ""), (header(REFERER), ""), (header(REFRESH), ""),
    (header(RETRY_AFTER), ""), (header(SERVER), ""), (header(SET_COOKIE), ""),
    (header(STRICT_TRANSPORT_SECURITY), ""), (header(TRANSFER_ENCODING), ""), (header(USER_AGENT), ""),
    (header(VARY), ""), (header(VIA), ""), (header(WWW_AUTHENTICATE), ""),
];

/// The names that stand in the static table under one index or more, with their first index.
#[rustfmt::skip]
const NAMES: [(&str, u8); 52] = [
    (":authority", 1), (":method", 2), (":path", 4), (":scheme", 6), (":status", 8), ("accept-charset", 15),
    ("accept-encoding", 16), ("accept-language", 17), ("accept-ranges", 18), ("accept", 19),
    ("access-control-allow-origin", 20), ("age", 21), ("allow", 22), ("authorization", 23), ("cache-control", 24),
    ("content-disposition", 25), ("content-encoding", 26), ("content-language", 27), ("content-length", 28),
    ("content-location", 29), ("content-range", 30), ("content-type", 31), ("cookie", 32), ("date", 33), ("etag", 34),
    ("expect", 35), ("expires", 36), ("from", 37), ("host", 38), ("if-match", 39), ("if-modified-since", 40),
    ("if-none-match", 41), ("if-range", 42), ("if-unmodified-since", 43), ("last-modified", 44), ("link", 45),
    ("location", 46), ("max-forwards", 47), ("proxy-authenticate", 48), ("proxy-authorization", 49), ("range", 50),
    ("referer", 51), ("refresh", 52), ("retry-after", 53), ("server", 54), ("set-cookie", 55),
    ("strict-transport-security", 56), ("transfer-encoding", 57), ("user-agent", 58), ("vary", 59), ("via", 60),
    ("www-authenticate", 61),
];

/// Slots of the table that finds a name; a power of two, sparse enough that few names share a slot.
pub(crate) const SLOTS: usize = 256;

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

/// Where a name is looked for first.
pub(crate) const fn slot(name: &[u8]) -> usize {
    let Some((&first, _)) = name.split_first() else { return 0 };
    let (last, middle) = (name[name.len() - 1], name[name.len() / 2]);
    (name.len() * 31 + first as usize * 7 + last as usize * 13 + middle as usize * 5) % SLOTS
}

/// The first index of a name in the static table.
pub(super) fn static_index(name: &[u8]) -> Option<usize> {
    let mut slot = slot(name);
    loop {
        let at = FINDER[slot].checked_sub(1)?;
        let (known, index) = NAMES[usize::from(at)];
        if known.as_bytes() == name {
            return Some(usize::from(index));
        }
        slot = (slot + 1) % SLOTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_say_the_same() {
        for (at, (name, _)) in STATIC.iter().enumerate() {
            let text = match name {
                Name::Method => ":method",
                Name::Scheme => ":scheme",
                Name::Authority => ":authority",
                Name::Path => ":path",
                Name::Status => ":status",
                Name::Header(name) => name.as_str(),
                other => panic!("{other:?}"),
            };
            let first = STATIC.iter().position(|(other, _)| other == name).unwrap();
            assert_eq!(static_index(text.as_bytes()), Some(first + 1), "{text} at {at}");
            assert_eq!(Name::parse(text.as_bytes()), *name);
            assert_eq!(name.len(), text.len());
        }
        for unknown in ["", "x", "x-forwarded-for", ":protocol", "contenT-type"] {
            assert_eq!(static_index(unknown.as_bytes()), None, "{unknown}");
        }
    }

    #[test]
    fn names_in_upper_case_are_bad() {
        for bad in ["X", "a b", ":x", "", "a:b", "é"] {
            assert_eq!(Name::parse(bad.as_bytes()), Name::Bad(bad.len()), "{bad}");
        }
    }
}
