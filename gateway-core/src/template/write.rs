//! Where a template's text goes, with all that keeps it harmless.

use std::fmt::{self, Write as _};

use super::position::{Position, ValueKind, stays};
use super::{TextContext, Unrenderable};

/// The text being made.
pub(super) struct Sink<'o> {
    out: &'o mut Vec<u8>,
    place: TextContext,
    limit: usize,
    /// Where the text begins.
    start: usize,
    /// The length that may not be exceeded.
    end: usize,
}

impl<'o> Sink<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>, place: TextContext, limit: usize) -> Self {
        let start = out.len();
        Self { out, place, limit, start, end: start.saturating_add(limit) }
    }

    /// Whether the text is shown to people, who must not see credentials.
    pub(super) fn is_log(&self) -> bool {
        self.place == TextContext::Log
    }

    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// Text of the template itself, which was looked at when it was parsed. In a query it is part of a value like any other.
    pub(super) fn literal(&mut self, text: &[u8]) -> Result<(), Unrenderable> {
        match self.place {
            TextContext::Query => self.value(text, ValueKind::Plain),
            TextContext::Url if self.begun() == b"/" => self.raw(without_slashes(text)),
            _ => self.raw(text),
        }
    }

    /// What is made so far.
    fn begun(&self) -> &[u8] {
        self.out.get(self.start..).unwrap_or_default()
    }

    fn raw(&mut self, text: &[u8]) -> Result<(), Unrenderable> {
        self.room(text.len())?;
        self.out.extend_from_slice(text);
        Ok(())
    }

    /// A value, encoded for its place.
    pub(super) fn some(&mut self, value: Option<&[u8]>) -> Result<(), Unrenderable> {
        self.some_of(ValueKind::Plain, value)
    }

    /// A value of this kind, encoded for its place.
    pub(super) fn some_of(&mut self, kind: ValueKind, value: Option<&[u8]>) -> Result<(), Unrenderable> {
        value.map_or(Ok(()), |value| self.value(value, kind))
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

    fn value(&mut self, value: &[u8], kind: ValueKind) -> Result<(), Unrenderable> {
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
        // At the beginning of a URL, two slashes would make a host of what follows.
        let value = match (self.place, self.begun()) {
            (TextContext::Url, b"/") => without_slashes(value),
            (TextContext::Url, b"") if value.starts_with(b"//") => {
                self.raw(b"/")?;
                without_slashes(value)
            }
            _ => value,
        };
        let position = Position::of(self.place, self.begun()).of_value(value, kind);
        if position == Position::Host && !value.iter().all(|byte| stays(*byte, position, kind)) {
            return Err(Unrenderable::Host);
        }
        for &byte in value {
            if stays(byte, position, kind) {
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

fn without_slashes(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| *byte != b'/').unwrap_or(text.len());
    text.get(start..).unwrap_or_default()
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

/// Room for what is displayed: an address or a number.
#[derive(Default)]
struct Short(smallvec::SmallVec<[u8; 64]>);

impl fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
