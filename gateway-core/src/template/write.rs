//! Where a template's text goes, with all that keeps it harmless.

use std::fmt::{self, Write as _};

use super::{TextContext, Unrenderable};

/// The text being made.
pub(super) struct Sink<'o> {
    out: &'o mut Vec<u8>,
    place: TextContext,
    limit: usize,
    /// The length that may not be exceeded.
    end: usize,
}

impl<'o> Sink<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>, place: TextContext, limit: usize) -> Self {
        let end = out.len().saturating_add(limit);
        Self { out, place, limit, end }
    }

    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// Text of the template itself, which was looked at when it was parsed. In a query it is part of a value like any other.
    pub(super) fn literal(&mut self, text: &[u8]) -> Result<(), Unrenderable> {
        match self.place {
            TextContext::Query => self.value(text, false),
            TextContext::Text | TextContext::Log | TextContext::Path => self.raw(text),
        }
    }

    fn raw(&mut self, text: &[u8]) -> Result<(), Unrenderable> {
        self.room(text.len())?;
        self.out.extend_from_slice(text);
        Ok(())
    }

    /// A value, encoded for its place.
    pub(super) fn some(&mut self, value: Option<&[u8]>) -> Result<(), Unrenderable> {
        value.map_or(Ok(()), |value| self.value(value, false))
    }

    /// A value that stood in a path or query and is encoded already.
    pub(super) fn encoded(&mut self, value: Option<&[u8]>) -> Result<(), Unrenderable> {
        value.map_or(Ok(()), |value| self.value(value, true))
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), Unrenderable> {
        self.some(Some(text.as_bytes()))
    }

    pub(super) fn number(&mut self, number: impl itoa::Integer) -> Result<(), Unrenderable> {
        self.raw(itoa::Buffer::new().format(number).as_bytes())
    }

    pub(super) fn display(&mut self, value: impl fmt::Display) -> Result<(), Unrenderable> {
        let mut text = Short::default();
        match write!(text, "{value}") {
            Ok(()) => self.some(Some(&text.0)),
            Err(fmt::Error) => Err(Unrenderable::TooLong(self.limit)),
        }
    }

    fn room(&self, more: usize) -> Result<(), Unrenderable> {
        if self.out.len() + more > self.end { Err(Unrenderable::TooLong(self.limit)) } else { Ok(()) }
    }

    fn value(&mut self, value: &[u8], is_encoded: bool) -> Result<(), Unrenderable> {
        if self.place == TextContext::Text {
            // What a header may not have (RFC 9110 §5.5), and what would begin a new line of a log.
            if value.iter().any(|b| (*b < b' ' && *b != b'\t') || *b == 0x7f) {
                return Err(Unrenderable::Control);
            }
            return self.raw(value);
        }
        if self.place == TextContext::Log {
            return self.logged(value);
        }
        for &byte in value {
            if stays(byte, self.place, is_encoded) {
                self.room(1)?;
                self.out.push(byte);
            } else {
                self.room(3)?;
                let digit = |n: u8| char::from_digit(n.into(), 16).unwrap_or('0').to_ascii_uppercase() as u8;
                self.out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
            }
        }
        Ok(())
    }
}

/// Bytes of one value in a line of a log.
const MAX_LOGGED: usize = 1024;

impl Sink<'_> {
    /// A value of a log line.
    fn logged(&mut self, value: &[u8]) -> Result<(), Unrenderable> {
        for chunk in value[..value.len().min(MAX_LOGGED)].utf8_chunks() {
            for c in chunk.valid().chars() {
                let mut space = [0; 4];
                let bytes = c.encode_utf8(&mut space).as_bytes();
                match c {
                    '"' | '\\' => self.raw(&[b'\\', bytes[0]])?,
                    c if c.is_control() => self.hex(bytes)?,
                    _ => self.raw(bytes)?,
                }
            }
            self.hex(chunk.invalid())?;
        }
        Ok(())
    }

    /// Bytes as `\xHH`.
    fn hex(&mut self, bytes: &[u8]) -> Result<(), Unrenderable> {
        bytes.iter().try_for_each(|byte| self.raw(format!("\\x{byte:02x}").as_bytes()))
    }
}

/// Whether a byte may stand as it is (RFC 3986 §3.3, §3.4).
fn stays(byte: u8, place: TextContext, is_encoded: bool) -> bool {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' | b'@' => true,
        b'!' | b'$' | b'\'' | b'(' | b')' | b'*' | b',' | b';' => true,
        b'%' => is_encoded,
        b'&' | b'=' | b'+' => place == TextContext::Path || is_encoded,
        b'?' => is_encoded,
        _ => false,
    }
}

/// Room for what is displayed: an address or a number.
#[derive(Default)]
struct Short(smallvec::SmallVec<[u8; 64]>);

impl fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
