//! JSON to values called `json.a.0.b`, without a tree: one pass over the bytes.

use super::{ItemKind, Sink, TOO_MANY, Unreadable};
use crate::bytes::hex;

const SYNTAX: Unreadable = Unreadable("the body is not JSON");
pub(crate) const DEEP: Unreadable = Unreadable("the JSON is nested too deeply");

/// An array or object that is open.
enum OpenContainer {
    /// How long the path was before it, and which element comes.
    Array(usize, u32),
    Object(usize),
}

struct JsonReader<'a> {
    text: &'a [u8],
    at: usize,
    path: Vec<u8>,
    scratch: Vec<u8>,
}

/// Reads one document. Keys and strings are decoded; other values are given as they are written.
pub(crate) fn read(text: &[u8], depth: usize, sink: &mut dyn Sink) -> Result<(), Unreadable> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut reader = JsonReader { text, at: 0, path: b"json".to_vec(), scratch: Vec::new() };
    let mut open: Vec<OpenContainer> = Vec::new();
    loop {
        reader.skip_space();
        // A value, or the end of an empty array or object.
        match reader.peek().ok_or(SYNTAX)? {
            opening @ (b'{' | b'[') => {
                if open.len() >= depth {
                    return Err(DEEP);
                }
                reader.at += 1;
                let before = reader.path.len();
                reader.skip_space();
                if opening == b'[' {
                    if reader.next_if(b']') {
                        reader.close(&mut open)?;
                    } else {
                        open.push(OpenContainer::Array(before, 0));
                        reader.path.extend_from_slice(b".0");
                        continue;
                    }
                } else if reader.next_if(b'}') {
                    reader.close(&mut open)?;
                } else {
                    open.push(OpenContainer::Object(before));
                    reader.key(before)?;
                    continue;
                }
            }
            _ => {
                reader.scalar(sink)?;
                reader.close(&mut open)?;
            }
        }
        if open.is_empty() {
            reader.skip_space();
            return if reader.at == text.len() { Ok(()) } else { Err(SYNTAX) };
        }
    }
}

impl JsonReader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next_if(&mut self, byte: u8) -> bool {
        let is = self.peek() == Some(byte);
        self.at += usize::from(is);
        is
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Behind a value: the comma before the next one, or the ends of what it was the last of.
    fn close(&mut self, open: &mut Vec<OpenContainer>) -> Result<(), Unreadable> {
        while let Some(last) = open.last_mut() {
            self.skip_space();
            match last {
                OpenContainer::Array(before, element) => {
                    self.path.truncate(*before);
                    if self.next_if(b',') {
                        *element += 1;
                        self.path.push(b'.');
                        self.path.extend_from_slice(element.to_string().as_bytes());
                        return Ok(());
                    }
                    if !self.next_if(b']') {
                        return Err(SYNTAX);
                    }
                }
                OpenContainer::Object(before) => {
                    let before = *before;
                    self.path.truncate(before);
                    if self.next_if(b',') {
                        self.skip_space();
                        return self.key(before);
                    }
                    if !self.next_if(b'}') {
                        return Err(SYNTAX);
                    }
                }
            }
            open.pop();
        }
        Ok(())
    }

    /// `"key" :`, which goes into the path.
    fn key(&mut self, before: usize) -> Result<(), Unreadable> {
        self.path.truncate(before);
        self.string()?;
        self.path.push(b'.');
        self.path.extend_from_slice(&self.scratch);
        self.skip_space();
        if self.next_if(b':') { Ok(()) } else { Err(SYNTAX) }
    }

    fn scalar(&mut self, sink: &mut dyn Sink) -> Result<(), Unreadable> {
        let taken = if self.peek() == Some(b'"') {
            self.string()?;
            sink.take(ItemKind::Argument, &self.path, &self.scratch)
        } else {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let length = rest
                .iter()
                .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
                .count();
            let word = rest.get(..length).unwrap_or_default();
            self.at += length;
            match word {
                b"true" | b"false" => {}
                // As an argument without a value.
                b"null" => {
                    return sink.take(ItemKind::Argument, &self.path, b"").then_some(()).ok_or(TOO_MANY);
                }
                word if is_number(word) => {}
                _ => return Err(SYNTAX),
            }
            sink.take(ItemKind::Argument, &self.path, word)
        };
        taken.then_some(()).ok_or(TOO_MANY)
    }

    /// A string into `scratch`.
    fn string(&mut self) -> Result<(), Unreadable> {
        if !self.next_if(b'"') {
            return Err(SYNTAX);
        }
        self.scratch.clear();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)).ok_or(SYNTAX)?;
            self.scratch.extend_from_slice(&rest[..plain]);
            self.at += plain + 1;
            match rest[plain] {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                _ => return Err(SYNTAX),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Unreadable> {
        let kind = self.peek().ok_or(SYNTAX)?;
        self.at += 1;
        self.scratch.push(match kind {
            b'"' | b'\\' | b'/' => kind,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.unicode(),
            _ => return Err(SYNTAX),
        });
        Ok(())
    }

    fn unicode(&mut self) -> Result<(), Unreadable> {
        let mut code = self.hex4()?;
        // Two halves of a character beyond the first 65,536.
        if (0xd800..0xdc00).contains(&code) && self.text.get(self.at..self.at + 2) == Some(b"\\u") {
            let before = self.at;
            self.at += 2;
            let low = self.hex4()?;
            if (0xdc00..0xe000).contains(&low) {
                code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            } else {
                self.at = before;
            }
        }
        let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        self.scratch.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, Unreadable> {
        let digits = self.text.get(self.at..self.at + 4).ok_or(SYNTAX)?;
        self.at += 4;
        digits.iter().try_fold(0, |code, digit| Some(code << 4 | u32::from(hex(*digit)?))).ok_or(SYNTAX)
    }
}

fn is_number(word: &[u8]) -> bool {
    let word = word.strip_prefix(b"-").unwrap_or(word);
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(word);
    if whole == 0 || (whole > 1 && word[0] == b'0') {
        return false;
    }
    let mut rest = &word[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = &fraction[count..];
    }
    if let Some(exponent) = rest.strip_prefix(b"e").or_else(|| rest.strip_prefix(b"E")) {
        let exponent =
            exponent.strip_prefix(b"+").or_else(|| exponent.strip_prefix(b"-")).unwrap_or(exponent);
        return !exponent.is_empty() && digits(exponent) == exponent.len();
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Collected;

    fn pairs(text: &str) -> Result<Vec<String>, Unreadable> {
        let mut found = Collected::default();
        read(text.as_bytes(), 8, &mut found)?;
        Ok(found.0.into_iter().map(|(_, name, value)| format!("{name}={value}")).collect())
    }

    #[test]
    fn leaves_are_named_by_their_path() {
        let text = r#" {"a": [1, {"b": "x\u003c\n"}, [], true], "c": {}, "d": null, "e": -1.5e+3} "#;
        assert_eq!(
            pairs(text).unwrap(),
            ["json.a.0=1", "json.a.1.b=x<\n", "json.a.3=true", "json.d=", "json.e=-1.5e+3"]
        );
        assert_eq!(pairs("\"top\"").unwrap(), ["json=top"]);
        assert_eq!(pairs("[[1],[2,3]]").unwrap(), ["json.0.0=1", "json.1.0=2", "json.1.1=3"]);
        assert_eq!(pairs(r#"["\ud83d\ude00\ud83d"]"#).unwrap(), ["json.0=😀\u{fffd}"]);
        assert_eq!(pairs(r#"{"a":1,"a":2}"#).unwrap(), ["json.a=1", "json.a=2"]);
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\"}",
            "{\"a\":1,}",
            "01",
            "1.",
            "--1",
            "nul",
            "[1] 2",
            "\"a",
            "\"\\x\"",
            "{a:1}",
            "[1 2]",
            "\"a\nb\"",
            "]",
            "{]",
            "[}",
        ] {
            assert_eq!(pairs(text), Err(SYNTAX), "{text}");
        }
        assert_eq!(pairs(&"[".repeat(9)), Err(DEEP));
        assert_eq!(pairs(&"[".repeat(1_000_000)), Err(DEEP));
        assert_eq!(pairs(&format!("[{}1]", "1,".repeat(2000))), Err(TOO_MANY));
    }
}
