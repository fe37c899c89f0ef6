//! JSON into the tree, with duplicate keys refused.

use std::collections::HashMap;

use serde::de::IgnoredAny;

use super::hints;
use super::tree::{MapEntry, Node, Trail, Value};
use super::yaml::duplicate;
use crate::problem::{Problem, Problems};

/// Reads a text; `None` when it isn't JSON at all, which is then a problem.
///
/// serde_json judges the text first (and bounds its depth at 128), because it says well what is wrong and where.
/// What follows only has to find its way through a text known to be good, to learn the lines.
pub(super) fn parse(text: &str, problems: &mut Problems) -> Option<Node> {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        let line = u32::try_from(error.line()).unwrap_or(0);
        let message = error.to_string();
        let remedy = hints::json(&message, text, error.line(), error.column());
        problems.push(Problem { line, ..Problem::new("", format!("this is not JSON: {message}")) }).remedy =
            remedy.map(str::to_owned);
        return None;
    }
    let mut scanner = Scanner { text, at: 0, line: 1, trail: Trail::new(), problems };
    scanner.node()
}

/// Keys that are looked at one by one. Most objects have few, and there may be millions of them.
const FEW: usize = 32;

/// The line of a key among those before it; in `lines` once there are many.
fn line_of(key: &str, entries: &[MapEntry], lines: &mut HashMap<String, u32>) -> Option<u32> {
    if entries.len() < FEW {
        return entries.iter().find(|entry| entry.key == key).map(|entry| entry.line);
    }
    if lines.is_empty() {
        lines.extend(entries.iter().map(|entry| (entry.key.clone(), entry.line)));
    }
    lines.get(key).copied()
}

struct Scanner<'t, 'p> {
    text: &'t str,
    at: usize,
    line: u32,
    trail: Trail,
    problems: &'p mut Problems,
}

impl<'t> Scanner<'t, '_> {
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' | b',' | b':' => {}
                byte => return Some(*byte),
            }
            self.at += 1;
        }
        None
    }

    fn node(&mut self) -> Option<Node> {
        let first = self.peek()?;
        let line = self.line;
        let value = match first {
            b'{' => Value::Map(self.map()?),
            b'[' => Value::List(self.list()?),
            b'"' => Value::Text { text: self.string()?, loose: false },
            _ => self.word()?,
        };
        Some(Node { line, value })
    }

    fn list(&mut self) -> Option<Vec<Node>> {
        self.at += 1;
        let mut nodes = Vec::new();
        while self.peek()? != b']' {
            let back = self.trail.position(nodes.len());
            nodes.push(self.node()?);
            self.trail.back(back);
        }
        self.at += 1;
        Some(nodes)
    }

    fn map(&mut self) -> Option<Vec<MapEntry>> {
        self.at += 1;
        let mut entries = Vec::with_capacity(8);
        let mut lines = HashMap::new();
        while self.peek()? != b'}' {
            let line = self.line;
            let key = self.string()?;
            let back = self.trail.key(&key);
            let value = self.node()?;
            match line_of(&key, &entries, &mut lines) {
                Some(first) => duplicate(&self.trail, line, first, self.problems),
                None => {
                    if !lines.is_empty() {
                        lines.insert(key.clone(), line);
                    }
                    entries.push(MapEntry { key, line, value });
                }
            }
            self.trail.back(back);
        }
        self.at += 1;
        Some(entries)
    }

    /// A string, from its opening to its closing quote.
    fn string(&mut self) -> Option<String> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut at = start + 1;
        let mut is_plain = true;
        while *bytes.get(at)? != b'"' {
            let is_escape = bytes[at] == b'\\';
            at += if is_escape { 2 } else { 1 };
            is_plain &= !is_escape;
        }
        self.at = at + 1;
        if is_plain {
            return self.text.get(start + 1..at).map(str::to_owned);
        }
        serde_json::from_str(self.text.get(start..self.at)?).ok()
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Option<Value> {
        let rest = self.text.get(self.at..)?;
        let word: &'t str = rest.split([',', ']', '}', ' ', '\t', '\r', '\n']).next()?;
        self.at += word.len();
        Some(match word {
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            number => Value::Number(serde_json::from_str(number).ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_key_is_found_among_few_and_many() {
        for keys in [1, FEW - 1, FEW, FEW + 1, 3 * FEW] {
            for twice in [0, keys / 2, keys - 1] {
                let all: Vec<_> = (0..keys).chain([twice]).map(|n| format!("\"k{n}\": 1")).collect();
                let mut problems = Problems::default();
                assert!(parse(&format!("{{{}}}", all.join(",\n")), &mut problems).is_some());
                let said: Vec<_> = problems.0.iter().map(|problem| problem.message.as_str()).collect();
                assert_eq!(said, [format!("duplicate key, first used on line {}", twice + 1)], "{keys} keys");
            }
        }
    }
}
