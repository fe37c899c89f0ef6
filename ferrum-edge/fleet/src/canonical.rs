//! Canonical JSON: both sides compute the same hash of a document, however it was written.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;

/// How deep a document may nest.
const MAX_DEPTH: usize = 128;

/// The canonical form of a JSON object: no white space, keys ordered by their code points, strings escaped only where
/// JSON requires it, numbers as they were written.
///
/// `None` if the text is not a JSON object, nests deeper than 128, or has a key twice: readers disagree about which of the two counts.
pub fn canonical(document: &str) -> Option<String> {
    // Checks the whole text; the walk below relies on it.
    serde_json::from_str::<IgnoredAny>(document).ok()?;
    let mut walk = Walk { text: document.as_bytes(), at: 0, depth: 0 };
    let mut out = String::with_capacity(document.len());
    if walk.peek()? != b'{' {
        return None;
    }
    walk.value(document, &mut out)?;
    Some(out)
}

/// A walk through valid JSON.
struct Walk<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
}

impl Walk<'_> {
    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.get(self.at)?;
            if !byte.is_ascii_whitespace() {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Writes the value that begins here. `None` if a key is there twice, or it nests too deep.
    fn value(&mut self, text: &str, out: &mut String) -> Option<()> {
        match self.peek()? {
            bracket @ (b'{' | b'[') => {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return None;
                }
                if bracket == b'{' {
                    self.object(text, out)?
                } else {
                    self.list(text, out)?
                }
                self.depth -= 1;
                Some(())
            }
            b'"' => {
                out.push_str(&serde_json::to_string(&self.string(text)?).ok()?);
                Some(())
            }
            _ => {
                let begin = self.at;
                let is_end = |byte: &u8| matches!(byte, b',' | b']' | b'}') || byte.is_ascii_whitespace();
                let rest = self.text.get(begin..)?;
                self.at += rest.iter().position(is_end).unwrap_or(rest.len());
                out.push_str(text.get(begin..self.at)?);
                Some(())
            }
        }
    }

    fn object(&mut self, text: &str, out: &mut String) -> Option<()> {
        self.at += 1;
        let mut fields = BTreeMap::new();
        while self.peek()? != b'}' {
            if self.peek()? == b',' {
                self.at += 1;
                self.peek()?;
            }
            let key = self.string(text)?;
            self.peek()?;
            // The colon.
            self.at += 1;
            let mut value = String::new();
            self.value(text, &mut value)?;
            if fields.insert(key, value).is_some() {
                return None;
            }
        }
        self.at += 1;
        out.push('{');
        for (number, (key, value)) in fields.iter().enumerate() {
            if number > 0 {
                out.push(',');
            }
            out.push_str(&serde_json::to_string(key).ok()?);
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        Some(())
    }

    fn list(&mut self, text: &str, out: &mut String) -> Option<()> {
        self.at += 1;
        out.push('[');
        while self.peek()? != b']' {
            if self.peek()? == b',' {
                self.at += 1;
                out.push(',');
            }
            self.value(text, out)?;
        }
        self.at += 1;
        out.push(']');
        Some(())
    }

    /// The string that begins here, without its escapes.
    fn string(&mut self, text: &str) -> Option<String> {
        let begin = self.at;
        self.at += 1;
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b'\\' => self.at += 2,
                b'"' => {
                    self.at += 1;
                    return serde_json::from_str(text.get(begin..self.at)?).ok();
                }
                _ => self.at += 1,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_mean_the_same_have_one_form() {
        for (document, expected) in [
            ("{}", Some("{}")),
            (" { } ", Some("{}")),
            (r#"{"b":1,"a":[1, 2 ,{"d":null,"c":true}]}"#, Some(r#"{"a":[1,2,{"c":true,"d":null}],"b":1}"#)),
            (r#"{"a":"\u0041\/\n","é":"\u00e9"}"#, Some(r#"{"a":"A/\n","é":"é"}"#)),
            (
                r#"{"a":1.0,"b":1e3,"c":-0,"d":123456789012345678901234567890}"#,
                Some(r#"{"a":1.0,"b":1e3,"c":-0,"d":123456789012345678901234567890}"#),
            ),
            (r#"{"a":[],"b":{},"c":[[],[{}]]}"#, Some(r#"{"a":[],"b":{},"c":[[],[{}]]}"#)),
            (r#"{"a":"}]\"\\"}"#, Some(r#"{"a":"}]\"\\"}"#)),
            (r#"{"a":1,"a":1}"#, None),
            (r#"{"a":1,"\u0061":1}"#, None),
            (r#"{"x":{"a":1,"a":2}}"#, None),
            ("[]", None),
            ("1", None),
            ("{", None),
            (r#"{"a":1}}"#, None),
            ("", None),
        ] {
            assert_eq!(canonical(document).as_deref(), expected, "{document}");
        }
        let deep = format!("{}1{}", "{\"a\":".repeat(1000), "}".repeat(1000));
        assert!(canonical(&deep).is_none(), "depth is limited");
    }

    #[test]
    fn the_canonical_form_is_its_own() {
        let document = r#"{"z":[{"y":"\t","x":1}],"a":{"c":"\"","b":false}}"#;
        let first = canonical(document).unwrap();
        assert_eq!(canonical(&first).as_deref(), Some(first.as_str()));
    }
}
