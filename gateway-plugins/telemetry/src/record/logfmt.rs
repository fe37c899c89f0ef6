//! Logfmt: `name=value` pairs with spaces between; values in quotation marks where they need them.

use std::fmt::Display;
use std::time::{Duration, SystemTime};

use super::FieldVisitor;
use crate::json::{Rfc3339, escape};

/// A line that is being written.
pub struct Logfmt<'b> {
    out: &'b mut Vec<u8>,
    begin: usize,
}

impl<'b> Logfmt<'b> {
    /// A line behind what is in the buffer.
    pub fn begin(out: &'b mut Vec<u8>) -> Self {
        let begin = out.len();
        Self { out, begin }
    }

    fn key(&mut self, key: &str) {
        if self.out.len() > self.begin {
            self.out.push(b' ');
        }
        self.out.extend_from_slice(key.as_bytes());
        self.out.push(b'=');
    }
}

impl FieldVisitor for Logfmt<'_> {
    fn text(&mut self, key: &str, text: impl AsRef<[u8]>) {
        self.key(key);
        let text = text.as_ref();
        let is_bare = |byte: &u8| matches!(byte, 0x21..=0x7e) && !matches!(byte, b'"' | b'=' | b'\\');
        if !text.is_empty() && text.len() <= crate::json::MAX_TEXT && text.iter().all(is_bare) {
            self.out.extend_from_slice(text);
            return;
        }
        self.out.push(b'"');
        escape(self.out, text);
        self.out.push(b'"');
    }

    fn plain(&mut self, key: &str, value: impl Display) {
        self.text(key, value.to_string());
    }

    fn number(&mut self, key: &str, number: u64) {
        self.key(key);
        self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    fn fraction(&mut self, key: &str, number: f64) {
        if number.is_finite() {
            self.plain(key, number);
        }
    }

    fn seconds(&mut self, key: &str, duration: Duration) {
        self.plain(key, format_args!("{}.{:06}", duration.as_secs(), duration.subsec_micros()));
    }

    fn time(&mut self, key: &str, time: SystemTime) {
        self.plain(key, Rfc3339(time));
    }
}
