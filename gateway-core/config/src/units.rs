//! Durations and sizes: text with a unit such as `5s` or `10MiB`, or a plain number of seconds or bytes.
//!
//! [`Millis`], [`Seconds`] and [`Bytes`] are used the same way in configuration files, plugin settings and flags.
//! [`Millis`] is exact to a millisecond (`1.5`, `1500ms`), [`Seconds`] counts whole seconds. What a type cannot
//! hold exactly is refused, never rounded.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// What a value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds of a duration, which a plain number gives in seconds.
    Milliseconds,
    /// Whole seconds of a duration.
    Seconds,
    /// Bytes of a size.
    Bytes,
}

/// The JSON Schema keyword that names the unit of a plain number.
pub const KEYWORD: &str = "x-unit";
/// The seconds of a millisecond: what a plain number of seconds is a multiple of where milliseconds are counted.
const MILLISECOND: f64 = 0.001;
/// Seconds or bytes that nobody means, beyond which a number is not exact any more.
const MOST: f64 = 9e12;

/// Units of time, in nanoseconds; the longer spelling of two that begin alike comes first.
const TIME: &[(&str, u128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
];

/// Units of size, in bytes. `M` alone is left out: half of all programs read it as 1000², the other half as 1024².
const SIZE: &[(&str, u128)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Digits after the point that are read; more say nothing about a duration or size.
const MAX_DECIMALS: usize = 9;

/// Why a text is no duration or size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({remedy})")]
pub struct BadValue {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

impl Unit {
    /// The unit of the value that a schema describes.
    pub fn of_schema(schema: &serde_json::Value) -> Option<Self> {
        match schema.get(KEYWORD)?.as_str()? {
            "s" if schema.get("multipleOf").is_some() => Some(Self::Milliseconds),
            "s" => Some(Self::Seconds),
            "bytes" => Some(Self::Bytes),
            _ => None,
        }
    }

    const fn keyword(self) -> &'static str {
        match self {
            Self::Milliseconds | Self::Seconds => "s",
            Self::Bytes => "bytes",
        }
    }

    /// How many of this unit a plain number is, where that is a whole number of them.
    pub fn of_number(self, number: &serde_json::Number) -> Option<u64> {
        match self {
            Self::Milliseconds => match number.as_u64() {
                Some(seconds) => seconds.checked_mul(1000),
                None => number.as_f64().and_then(whole_millis),
            },
            Self::Seconds | Self::Bytes => number.as_u64(),
        }
    }

    /// `count` of this unit as a schema's bounds and messages write it, in seconds or bytes.
    #[expect(clippy::cast_precision_loss, reason = "bounds are far below 2^52")]
    pub fn plain(self, count: u64) -> f64 {
        match self {
            Self::Milliseconds => count as f64 / 1000.0,
            Self::Seconds | Self::Bytes => count as f64,
        }
    }

    /// The one way to write `count` of this unit in a stored document: the plain number where that is whole, else
    /// text.
    pub fn canonical(self, count: u64) -> serde_json::Value {
        match self {
            Self::Milliseconds if !count.is_multiple_of(1000) => format!("{count}ms").into(),
            Self::Milliseconds => (count / 1000).into(),
            Self::Seconds | Self::Bytes => count.into(),
        }
    }

    /// One of this unit, in what its table counts.
    const fn scale(self) -> u128 {
        match self {
            Self::Milliseconds => 1_000_000,
            Self::Seconds => 1_000_000_000,
            Self::Bytes => 1,
        }
    }

    const fn table(self) -> &'static [(&'static str, u128)] {
        match self {
            Self::Milliseconds | Self::Seconds => TIME,
            Self::Bytes => SIZE,
        }
    }

    /// Reads a text as a number of this unit. Several parts are added (`1h30m`).
    ///
    /// # Errors
    /// An unknown unit, a value that is not a whole number of this unit, one that is too large.
    pub fn read(self, text: &str) -> Result<u64, BadValue> {
        let trimmed = text.trim();
        if trimmed.starts_with(|c: char| c.is_ascii_digit())
            && let Ok(number) = trimmed.parse::<serde_json::Number>()
        {
            return self.of_number(&number).ok_or_else(|| self.not_whole(text));
        }
        if !trimmed.is_empty() && trimmed.bytes().all(|b| b.is_ascii_digit()) {
            return Err(self.bad(format!("`{text}` is too large")));
        }
        let mut total: u128 = 0;
        let mut rest = trimmed;
        while !rest.is_empty() {
            let (number, after) = split(rest, |c| c.is_ascii_digit() || c == '.');
            let (name, after) = split(after.trim_start(), |c| c.is_alphabetic());
            total += self.part(text, number, name)?;
            rest = after.trim_start();
        }
        if trimmed.is_empty() {
            return Err(self.bad("this is empty".to_owned()));
        }
        if !total.is_multiple_of(self.scale()) {
            return Err(self.not_whole(text));
        }
        u64::try_from(total / self.scale()).map_err(|_| self.bad(format!("`{text}` is too large")))
    }

    /// One number with its unit, in what the table counts.
    fn part(self, text: &str, number: &str, name: &str) -> Result<u128, BadValue> {
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        let is_number = !whole.is_empty()
            && whole.len() <= 18
            && decimals.len() <= MAX_DECIMALS
            && !number.ends_with('.')
            && !decimals.contains('.');
        if !is_number || name.is_empty() {
            let what = if self == Self::Bytes { "size" } else { "duration" };
            return Err(self.bad(format!("`{text}` is not a {what}")));
        }
        let found = self.table().iter().find(|(unit, _)| *unit == name);
        let Some((_, scale)) = found else {
            let mut bad = self.bad(format!("`{name}` in `{text}` is not a unit"));
            let letter = name.chars().next().unwrap_or_default().to_ascii_uppercase();
            if self == Self::Bytes && matches!(letter, 'K' | 'M' | 'G' | 'T') && name.len() <= 2 {
                let first = if letter == 'K' { 'k' } else { letter };
                bad.remedy = format!(
                    "write `{number}{letter}iB`, which counts by 1024, or `{number}{first}B`, which counts by 1000"
                );
            }
            return Err(bad);
        };
        let power = 10_u128.pow(u32::try_from(decimals.len()).unwrap_or(0));
        let digits: u128 = whole.parse::<u128>().unwrap_or(0) * power
            + if decimals.is_empty() { 0 } else { decimals.parse().unwrap_or(0) };
        if !(digits * scale).is_multiple_of(power) {
            return Err(self.bad(format!("`{text}` is too precise")));
        }
        Ok(digits * scale / power)
    }

    /// `text` is a number that this unit cannot hold exactly, or at all.
    pub(crate) fn not_whole(self, text: &str) -> BadValue {
        if text.parse().is_ok_and(|number: f64| number >= MOST) {
            return self.bad(format!("`{text}` is too large"));
        }
        let counted = match self {
            Self::Milliseconds => "milliseconds",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
        };
        BadValue {
            message: format!("`{text}` is not a whole number of {counted}"),
            remedy: format!("this setting counts whole {counted}"),
        }
    }

    fn bad(self, message: String) -> BadValue {
        let remedy = match self {
            Self::Milliseconds => "such as 500ms, 5s, 1m or 1h30m; a plain number counts seconds",
            Self::Seconds => "such as 30s, 5m or 1h; a plain number counts seconds",
            Self::Bytes => "such as 64KiB, 10MiB or 1GB; a plain number counts bytes",
        };
        BadValue { message, remedy: remedy.to_owned() }
    }

    fn schema(self) -> Schema {
        let (pattern, what) = match self {
            Self::Milliseconds | Self::Seconds => {
                ("^\\s*([0-9]+|([0-9]+(\\.[0-9]+)?\\s*(ns|us|µs|ms|s|m|h|d|w)\\s*)+)\\s*$", "duration")
            }
            Self::Bytes => {
                ("^\\s*([0-9]+|([0-9]+(\\.[0-9]+)?\\s*(B|[kK]B|MB|GB|TB|KiB|MiB|GiB|TiB)\\s*)+)\\s*$", "size")
            }
        };
        let number = if self == Self::Milliseconds { "number" } else { "integer" };
        let mut schema = json_schema!({ "type": [number, "string"], "format": what, "pattern": pattern });
        schema.insert(KEYWORD.to_owned(), self.keyword().into());
        if self == Self::Milliseconds {
            schema.insert("multipleOf".to_owned(), MILLISECOND.into());
        }
        schema.insert("minimum".to_owned(), 0.into());
        schema
    }
}

/// The longest start of `text` whose characters all fit, and the rest.
fn split(text: &str, fits: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !fits(c)).unwrap_or(text.len()))
}

/// Seconds as milliseconds, where they are a whole number of them. Fractions such as 0.3 have no exact binary form,
/// so that a millionth of a millisecond is forgiven.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range, checked")]
fn whole_millis(seconds: f64) -> Option<u64> {
    let millis = seconds * 1000.0;
    let is_whole = (millis - millis.round()).abs() < 1e-6;
    ((0.0..MOST * 1000.0).contains(&millis) && is_whole).then(|| millis.round() as u64)
}

/// Reads a number or a text with a unit.
struct UnitVisitor(Unit);

impl Visitor<'_> for UnitVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == Unit::Bytes {
            "a size such as 10MiB, or a number of bytes"
        } else {
            "a duration such as 5s, or a number"
        })
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
        self.0
            .of_number(&value.into())
            .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(value), &self))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<u64, E> {
        let count = serde_json::Number::from_f64(value).and_then(|number| self.0.of_number(&number));
        count.ok_or_else(|| E::invalid_value(de::Unexpected::Float(value), &self))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
        let count =
            u64::try_from(value).map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))?;
        self.visit_u64(count)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        self.0.read(text).map_err(E::custom)
    }
}

macro_rules! value {
    ($(#[doc = $doc:literal])+ $name:ident, $unit:expr) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                $unit.canonical(self.0).serialize(to)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(UnitVisitor($unit)).map(Self)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $unit.schema()
            }

            // In place, so that a field may narrow the range.
            fn inline_schema() -> bool {
                true
            }
        }

        impl FromStr for $name {
            type Err = BadValue;

            fn from_str(text: &str) -> Result<Self, BadValue> {
                $unit.read(text).map(Self)
            }
        }

        impl From<u64> for $name {
            fn from(value: u64) -> Self {
                Self(value)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

value! {
    /// A duration, exact to a millisecond; a plain number counts seconds.
    Millis, Unit::Milliseconds
}
value! {
    /// A duration of whole seconds, which a plain number counts.
    Seconds, Unit::Seconds
}
value! {
    /// A size; a plain number counts bytes.
    Bytes, Unit::Bytes
}

impl Millis {
    /// As a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl Seconds {
    /// As a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl Bytes {
    /// As a count of bytes in memory; more than fits is the most there can be.
    pub fn count(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_units() {
        let cases = [
            (Unit::Milliseconds, "5", Ok(5000)),
            (Unit::Milliseconds, "0.5", Ok(500)),
            (Unit::Milliseconds, "0.0005", Err("whole number of milliseconds")),
            (Unit::Milliseconds, "5s", Ok(5000)),
            (Unit::Milliseconds, " 1500ms ", Ok(1500)),
            (Unit::Milliseconds, "1.5s", Ok(1500)),
            (Unit::Milliseconds, "1h30m", Ok(5_400_000)),
            (Unit::Milliseconds, "1m 30 s", Ok(90_000)),
            (Unit::Milliseconds, "1d", Ok(86_400_000)),
            (Unit::Milliseconds, "500us", Err("whole number of milliseconds")),
            (Unit::Milliseconds, "5 parsecs", Err("`parsecs` in `5 parsecs` is not a unit")),
            (Unit::Milliseconds, "-5s", Err("is not a duration")),
            (Unit::Milliseconds, "s", Err("is not a duration")),
            (Unit::Milliseconds, "1.s", Err("is not a duration")),
            (Unit::Milliseconds, "1.2.3s", Err("is not a duration")),
            (Unit::Milliseconds, "", Err("empty")),
            (Unit::Milliseconds, "99999999999999999999", Err("too large")),
            (Unit::Milliseconds, "999999999999999999w", Err("too large")),
            (Unit::Seconds, "30", Ok(30)),
            (Unit::Seconds, "1.5", Err("whole number of seconds")),
            (Unit::Seconds, "5m", Ok(300)),
            (Unit::Seconds, "2000ms", Ok(2)),
            (Unit::Seconds, "1500ms", Err("whole number of seconds")),
            (Unit::Bytes, "1024", Ok(1024)),
            (Unit::Bytes, "10MiB", Ok(10 << 20)),
            (Unit::Bytes, "10MB", Ok(10_000_000)),
            (Unit::Bytes, "1.5KiB", Ok(1536)),
            (Unit::Bytes, "0.3B", Err("too precise")),
            (Unit::Bytes, "10m", Err("`m` in `10m` is not a unit")),
            (Unit::Bytes, "5s", Err("is not a unit")),
        ];
        for (unit, text, expected) in cases {
            match (unit.read(text), expected) {
                (Ok(value), Ok(expected)) => assert_eq!(value, expected, "{text}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
                (got, expected) => panic!("{text}: {got:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn read_by_serde_like_by_hand() {
        #[derive(Deserialize, JsonSchema)]
        struct Settings {
            #[schemars(range(max = 60))]
            wait: Option<Millis>,
            keep: Seconds,
            most: Bytes,
        }
        let settings: Settings =
            serde_json::from_str(r#"{"wait": "5s", "keep": 7, "most": "64KiB"}"#).expect("is good");
        assert_eq!(
            (settings.wait, settings.keep, settings.most),
            (Some(Millis(5000)), Seconds(7), Bytes(65536))
        );
        assert!(serde_json::from_str::<Settings>(r#"{"keep": -7, "most": 1}"#).is_err());
        assert!(serde_json::from_str::<Settings>(r#"{"keep": 1.5, "most": 1}"#).is_err());
        let schema = schemars::schema_for!(Settings);
        let wait = schema.pointer("/properties/wait").expect("stands in place");
        assert_eq!((&wait["x-unit"], &wait["multipleOf"]), (&"s".into(), &0.001.into()));
        assert_eq!((&wait["minimum"], &wait["maximum"]), (&0.into(), &60.into()));
        let keep = schema.pointer("/properties/keep").expect("stands in place");
        assert_eq!(
            (Unit::of_schema(wait), Unit::of_schema(keep)),
            (Some(Unit::Milliseconds), Some(Unit::Seconds))
        );
        for (written, millis) in [("2", 2000), ("0.25", 250), (r#""250ms""#, 250), ("0.3", 300)] {
            assert_eq!(serde_json::from_str::<Millis>(written).expect(written), Millis(millis));
        }
        let stored = |millis| serde_json::to_string(&Millis(millis)).expect("is JSON");
        assert_eq!((stored(2000), stored(250)), ("2".to_owned(), r#""250ms""#.to_owned()));
    }
}
