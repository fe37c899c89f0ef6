//! Values that plugins add to the access record.

/// A value of a plugin's own in the access record.
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// A text; sinks escape it.
    Text(Box<str>),
    /// A whole number.
    Number(u64),
    /// A fraction.
    Fraction(f64),
    /// Yes or no.
    Flag(bool),
}

/// Fields of their own that the plugins of one exchange may add to its record.
pub const MAX_FIELDS: usize = 64;
/// Bytes of one text among them; what goes beyond is cut off.
pub const MAX_FIELD_BYTES: usize = 4096;

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        let mut end = text.len().min(MAX_FIELD_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self::Text(text.get(..end).unwrap_or_default().into())
    }
}

impl From<u64> for Field {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<f64> for Field {
    fn from(number: f64) -> Self {
        Self::Fraction(number)
    }
}

impl From<bool> for Field {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}
