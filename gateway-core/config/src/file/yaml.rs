//! YAML 1.2 into the tree, with duplicate keys refused and aliases bounded.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};

use super::hints;
use super::tree::{MapEntry, Node, Trail, Value};
use crate::problem::{Problem, Problems};

/// Lists and maps inside one another.
pub(super) const MAX_DEPTH: usize = 64;
/// Values that anchors keep and aliases add to those in the text, so that a short text cannot unfold to a huge document.
/// Long texts count as several.
const MAX_ALIASED: usize = 100_000;

/// Reads a text; `None` when it isn't YAML at all, which is then a problem.
pub(super) fn parse(text: &str, problems: &mut Problems) -> Option<Node> {
    let mut composer = Composer {
        text,
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        aliased: 0,
        trail: Trail::new(),
        problems,
    };
    match composer.document() {
        Ok(root) => Some(root),
        Err(ReadError { line, message, remedy }) => {
            problems.push(Problem { line, ..Problem::new("", message) }).remedy = remedy.map(str::to_owned);
            None
        }
    }
}

/// Why reading stopped.
struct ReadError {
    line: u32,
    message: String,
    remedy: Option<&'static str>,
}

impl ReadError {
    fn new(line: u32, message: impl Into<String>, remedy: &'static str) -> Self {
        Self { line, message: message.into(), remedy: Some(remedy) }
    }
}

struct Composer<'t, 'p> {
    text: &'t str,
    parser: Parser<'t, StrInput<'t>>,
    anchors: HashMap<usize, Node>,
    aliased: usize,
    trail: Trail,
    problems: &'p mut Problems,
}

impl<'t> Composer<'t, '_> {
    fn next(&mut self) -> Result<(Event<'t>, u32), ReadError> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, line(span))),
            Some(Err(error)) => {
                let line = error.marker().line();
                let source = self.text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
                Err(ReadError {
                    line: u32::try_from(line).unwrap_or(0),
                    message: format!("this is not YAML: {}", error.info()),
                    remedy: hints::yaml(&error.info(), source),
                })
            }
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    fn document(&mut self) -> Result<Node, ReadError> {
        let mut root = None;
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentEnd, _) => {}
                (Event::StreamEnd, _) => return Ok(root.unwrap_or(Node { line: 1, value: Value::Null })),
                (Event::DocumentStart(..), line) if root.is_some() => {
                    return Err(ReadError::new(
                        line,
                        "a second document begins; one is read",
                        "remove the line `---`",
                    ));
                }
                (Event::DocumentStart(..), _) => {
                    let (event, line) = self.next()?;
                    root = Some(self.node(event, line, 0)?);
                }
                _ => {}
            }
        }
    }

    fn node(&mut self, event: Event<'t>, line: u32, depth: usize) -> Result<Node, ReadError> {
        if depth > MAX_DEPTH {
            let message = format!("there are more than {MAX_DEPTH} nested levels");
            return Err(ReadError::new(line, message, "write it flatter"));
        }
        let (node, anchor) = match event {
            Event::Alias(anchor) => return self.alias(anchor, line),
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                (tagged(tag.as_deref(), line, |core| scalar(&text, plain, core)), anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                let nodes = self.list(depth)?;
                (tagged(tag.as_deref(), line, |_| Value::List(nodes)), anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                let entries = self.map(depth)?;
                (tagged(tag.as_deref(), line, |_| Value::Map(entries)), anchor)
            }
            _ => return Ok(Node { line, value: Value::Null }),
        };
        if anchor != 0 {
            self.copied(&node, line)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn alias(&mut self, anchor: usize, line: u32) -> Result<Node, ReadError> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(ReadError::new(line, "this alias is inside its own anchor", "remove it"));
        };
        let node = node.clone();
        self.copied(&node, line)?;
        Ok(node)
    }

    /// Counts a copy of a node, for an anchor or an alias.
    fn copied(&mut self, node: &Node, line: u32) -> Result<(), ReadError> {
        self.aliased += node.size();
        if self.aliased > MAX_ALIASED {
            let message = format!("anchors and aliases unfold to more than {MAX_ALIASED} values");
            return Err(ReadError::new(line, message, "use fewer of them"));
        }
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, ReadError> {
        let mut nodes = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(nodes),
                (event, line) => {
                    let back = self.trail.position(nodes.len());
                    nodes.push(self.node(event, line, depth + 1)?);
                    self.trail.back(back);
                }
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<MapEntry>, ReadError> {
        let mut entries: Vec<MapEntry> = Vec::new();
        let mut seen: HashMap<String, u32> = HashMap::new();
        let mut merged = Vec::new();
        loop {
            let (key, line) = match self.next()? {
                (Event::MappingEnd, _) => break,
                (Event::Scalar(key, ..), line) => (key.into_owned(), line),
                (_, line) => {
                    return Err(ReadError::new(
                        line,
                        "a key has to be plain text",
                        "put `{{ … }}` of a template in quotes",
                    ));
                }
            };
            if key.contains('\u{a0}') {
                return Err(ReadError::new(line, "there is a no-break space here", "write a plain space"));
            }
            let back = self.trail.key(&key);
            let (event, value_line) = self.next()?;
            let value = self.node(event, value_line, depth + 1)?;
            if let Some(first) = seen.get(&key).filter(|_| key != "<<") {
                duplicate(&self.trail, line, *first, self.problems);
                self.trail.back(back);
                continue;
            }
            self.trail.back(back);
            if key == "<<" {
                merged.push(value);
                continue;
            }
            seen.insert(key.clone(), line);
            entries.push(MapEntry { key, line, value });
        }
        for value in merged {
            merge(&mut entries, value);
        }
        Ok(entries)
    }
}

/// A key that stands twice: which of the two was meant, nobody can tell.
pub(super) fn duplicate(at: &Trail, line: u32, first: u32, problems: &mut Problems) {
    problems.push(
        Problem { line, ..Problem::new(at.as_str(), format!("duplicate key, first used on line {first}")) }
            .remedy("keep one of the two"),
    );
}

/// Adds the entries of a `<<` value (a map, or a list of maps) that aren't there yet.
fn merge(entries: &mut Vec<MapEntry>, value: Node) {
    match value.value {
        Value::Map(more) => {
            for entry in more {
                if entries.iter().all(|e| e.key != entry.key) {
                    entries.push(entry);
                }
            }
        }
        Value::List(nodes) => nodes.into_iter().for_each(|node| merge(entries, node)),
        _ => {}
    }
}

/// A value under its tag: `!fixed {…}` is written as `{fixed: {…}}`, YAML's own tags say how to read the text.
fn tagged(tag: Option<&Tag>, line: u32, value: impl FnOnce(Option<&str>) -> Value) -> Node {
    match tag {
        Some(tag) if tag.core_suffix().is_none() && !tag.suffix().is_empty() => {
            let key = tag.suffix().to_owned();
            let value = Node { line, value: value(None) };
            Node { line, value: Value::Map(vec![MapEntry { key, line, value }]) }
        }
        tag => Node { line, value: value(tag.and_then(Tag::core_suffix)) },
    }
}

/// The core schema of YAML 1.2: `yes`, `no`, `on` and `off` are text.
fn scalar(text: &str, plain: bool, tag: Option<&str>) -> Value {
    let value = Value::Text { text: text.to_owned(), loose: false };
    if tag == Some("str") || !plain && tag.is_none() {
        return value;
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    number(text).map_or(value, Value::Number)
}

fn number(text: &str) -> Option<serde_json::Number> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if digits.bytes().all(|b| b.is_ascii_digit()) && !digits.is_empty() {
        if negative {
            return text.parse::<i64>().ok().map(Into::into);
        }
        return digits.parse::<u64>().ok().map(Into::into);
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(Into::into);
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return u64::from_str_radix(octal, 8).ok().map(Into::into);
    }
    let is_float = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if is_float { serde_json::Number::from_f64(text.parse().ok()?) } else { None }
}

fn line(span: Span) -> u32 {
    u32::try_from(span.start.line()).unwrap_or(0)
}
