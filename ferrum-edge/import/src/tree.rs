//! YAML and JSON as a tree that knows the line of each value. JSON is read as the YAML it is.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};

use crate::error::Failure;
use crate::report::At;

/// Lists and maps inside one another.
const MAX_DEPTH: usize = 64;
/// Values in a file, with those that aliases repeat.
const MAX_VALUES: usize = 1_000_000;
/// Values that aliases add to those in the text, so that a short text cannot unfold to a huge document.
const MAX_ALIASED: usize = 100_000;

/// A value and where it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Node {
    pub(crate) at: At,
    pub(crate) value: NodeValue,
    seen: ReadMark,
}

/// Whether an importer has asked for a value. Copies of a node share it, so that what is copied into a table and read there
/// counts as read here.
#[derive(Debug, Clone, Default)]
struct ReadMark(Rc<Cell<bool>>);

impl PartialEq for ReadMark {
    /// No part of what a node says.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A value.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum NodeValue {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    pub(crate) fn new(at: At, value: NodeValue) -> Self {
        Self { at, value, seen: ReadMark::default() }
    }

    pub(crate) fn text(at: At, text: impl Into<String>) -> Self {
        Self::new(at, NodeValue::Text(text.into()))
    }

    pub(crate) fn list(at: At, list: Vec<Self>) -> Self {
        Self::new(at, NodeValue::List(list))
    }

    pub(crate) fn map(at: At, entries: Vec<(&str, Self)>) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Self::new(at, NodeValue::Map(entries))
    }

    /// What a key of a map says; `None` also where it says nothing.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let found = self.all_entries().iter().find(|(name, _)| name == key).map(|(_, value)| value)?;
        found.seen.0.set(true);
        Some(found).filter(|node| node.value != NodeValue::Null)
    }

    /// Whether a map has a key, also one that says nothing.
    pub(crate) fn has(&self, key: &str) -> bool {
        let found = self.all_entries().iter().find(|(name, _)| name == key);
        found.inspect(|(_, value)| value.seen.0.set(true)).is_some()
    }

    /// Whether an importer has asked for it.
    pub(crate) fn is_seen(&self) -> bool {
        self.seen.0.get()
    }

    /// Counts it as not read, and by itself: no copy shares that any more.
    pub(crate) fn forget_read(&mut self) {
        match Rc::get_mut(&mut self.seen.0) {
            Some(seen) => seen.set(false),
            None => self.seen = ReadMark::default(),
        }
    }

    /// Counts it as read, with all that is in it.
    pub(crate) fn see_all(&self) {
        self.seen.0.set(true);
        self.all_entries().iter().for_each(|(_, value)| value.see_all());
        self.all_items().iter().for_each(Self::see_all);
    }

    /// What a way of keys leads to.
    pub(crate) fn path(&self, keys: &[&str]) -> Option<&Self> {
        keys.iter().try_fold(self, |node, key| node.get(key))
    }

    /// A map's entries, which count as read; none for everything else.
    pub(crate) fn entries(&self) -> &[(String, Self)] {
        let entries = self.all_entries();
        entries.iter().for_each(|(_, value)| value.seen.0.set(true));
        entries
    }

    /// A map's entries, without counting them as read.
    pub(crate) fn all_entries(&self) -> &[(String, Self)] {
        match &self.value {
            NodeValue::Map(entries) => entries,
            _ => &[],
        }
    }

    /// A list's values, which count as read; none for everything else.
    pub(crate) fn items(&self) -> &[Self] {
        let items = self.all_items();
        items.iter().for_each(|item| item.seen.0.set(true));
        items
    }

    /// A list's values, without counting them as read.
    pub(crate) fn all_items(&self) -> &[Self] {
        match &self.value {
            NodeValue::List(list) => list,
            _ => &[],
        }
    }

    /// What a key's list has in it.
    pub(crate) fn each(&self, key: &str) -> &[Self] {
        self.get(key).map_or(&[], Self::items)
    }

    pub(crate) fn str(&self) -> Option<&str> {
        match &self.value {
            NodeValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn bool(&self) -> Option<bool> {
        match &self.value {
            NodeValue::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn int(&self) -> Option<i64> {
        match self.value {
            NodeValue::Int(value) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn uint(&self) -> Option<u64> {
        self.int().and_then(|value| u64::try_from(value).ok())
    }

    /// A scalar as text.
    pub(crate) fn plain(&self) -> Option<String> {
        Some(match &self.value {
            NodeValue::Text(text) => text.clone(),
            NodeValue::Bool(value) => value.to_string(),
            NodeValue::Int(value) => value.to_string(),
            NodeValue::Float(value) => value.to_string(),
            NodeValue::Null | NodeValue::List(_) | NodeValue::Map(_) => return None,
        })
    }

    /// The text of a key.
    pub(crate) fn text_of(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Self::str)
    }

    /// The texts of a key's list, or its one text.
    pub(crate) fn texts(&self, key: &str) -> Vec<String> {
        let Some(node) = self.get(key) else { return Vec::new() };
        match &node.value {
            NodeValue::List(_) => node.items().iter().filter_map(Self::plain).collect(),
            _ => node.plain().into_iter().collect(),
        }
    }

    /// Whether it says nothing: null, or an empty list or map.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.value {
            NodeValue::Null => true,
            NodeValue::List(list) => list.is_empty(),
            NodeValue::Map(entries) => entries.is_empty(),
            _ => false,
        }
    }

    fn size(&self) -> usize {
        1 + match &self.value {
            NodeValue::List(list) => list.iter().map(Self::size).sum(),
            NodeValue::Map(entries) => entries.iter().map(|(_, node)| 1 + node.size()).sum(),
            NodeValue::Text(text) => text.len() / 64,
            _ => 0,
        }
    }
}

/// Reads a text with one document.
pub(crate) fn one(name: &str, file: u16, text: &str) -> Result<Node, Failure> {
    let mut documents = all(name, file, text)?;
    if documents.len() > 1 {
        let line = documents[1].at.line;
        return Err(Failure::new(name, line, "a second document begins; one is read"));
    }
    Ok(documents.pop().unwrap_or_default())
}

/// Reads a text with any number of documents.
pub(crate) fn all(name: &str, file: u16, text: &str) -> Result<Vec<Node>, Failure> {
    let mut composer = Composer {
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        name,
        file,
        aliased: 0,
        values: 0,
    };
    composer.documents()
}

struct Composer<'t> {
    parser: Parser<'t, StrInput<'t>>,
    anchors: HashMap<usize, Node>,
    name: &'t str,
    file: u16,
    aliased: usize,
    values: usize,
}

impl<'t> Composer<'t> {
    fn wrong(&self, line: u32, what: impl Into<String>) -> Failure {
        Failure::new(self.name, line, what)
    }

    fn next(&mut self) -> Result<(Event<'t>, At), Failure> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, place(self.file, span))),
            Some(Err(error)) => {
                let line = u32::try_from(error.marker().line()).unwrap_or(0);
                Err(self.wrong(line, format!("this is neither YAML nor JSON: {}", error.info())))
            }
            None => Ok((Event::StreamEnd, At { file: self.file, ..At::default() })),
        }
    }

    fn documents(&mut self) -> Result<Vec<Node>, Failure> {
        let mut documents = Vec::new();
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(documents),
                (Event::DocumentStart(..), _) => {
                    self.anchors.clear();
                    let (event, at) = self.next()?;
                    let node = self.node(event, at, 0)?;
                    if node.value != NodeValue::Null {
                        documents.push(node);
                    }
                }
                _ => {}
            }
        }
    }

    fn node(&mut self, event: Event<'t>, at: At, depth: usize) -> Result<Node, Failure> {
        if depth > MAX_DEPTH {
            return Err(self.wrong(at.line, format!("more than {MAX_DEPTH} lists and maps in one another")));
        }
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(self.wrong(at.line, format!("more than {MAX_VALUES} values")));
        }
        let (value, anchor) = match event {
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err(self.wrong(at.line, "an alias is inside its own anchor"));
                };
                self.count(&node, at)?;
                return Ok(node);
            }
            Event::Scalar(text, style, anchor, tag) => {
                (scalar(text, style == ScalarStyle::Plain, tag.as_deref().and_then(Tag::core_suffix)), anchor)
            }
            Event::SequenceStart(_, anchor, _) => (NodeValue::List(self.list(depth)?), anchor),
            Event::MappingStart(_, anchor, _) => (NodeValue::Map(self.map(depth)?), anchor),
            _ => (NodeValue::Null, 0),
        };
        let node = Node::new(at, value);
        if anchor != 0 {
            self.count(&node, at)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn count(&mut self, node: &Node, at: At) -> Result<(), Failure> {
        self.aliased += node.size();
        if self.aliased > MAX_ALIASED {
            return Err(
                self.wrong(at.line, format!("anchors and aliases unfold to more than {MAX_ALIASED} values"))
            );
        }
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Failure> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(list),
                (Event::StreamEnd, at) => return Err(self.wrong(at.line, "the text ends within a list")),
                (event, at) => list.push(self.node(event, at, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(String, Node)>, Failure> {
        let mut entries: Vec<(String, Node)> = Vec::new();
        let mut keys = Keys::default();
        let mut merged = Vec::new();
        loop {
            let (key, at) = match self.next()? {
                (Event::MappingEnd, _) => break,
                (Event::Scalar(key, ..), at) => (key.into_owned(), at),
                (_, at) => return Err(self.wrong(at.line, "a key has to be plain text")),
            };
            let (event, mut value_at) = self.next()?;
            // A list or map begins on the line of its key, for readers.
            if matches!(event, Event::SequenceStart(..) | Event::MappingStart(..)) {
                value_at = at;
            }
            let value = self.node(event, value_at, depth + 1)?;
            if key == "<<" {
                merged.push(value);
                continue;
            }
            if let Some(first) = keys.add(&entries, &key, at.line) {
                let what = format!("duplicate key `{key}`, first used on line {first}");
                return Err(self.wrong(at.line, what));
            }
            entries.push((key, value));
        }
        for value in merged {
            merge(&mut entries, value);
        }
        Ok(entries)
    }
}

/// The lines of the keys of a map.
#[derive(Default)]
struct Keys {
    lines: Vec<u32>,
    /// Where each key is among the entries of a large map.
    places: HashMap<String, usize>,
}

impl Keys {
    /// Entries of a small map, which are looked through one by one.
    const SMALL: usize = 16;

    /// Adds the key of the next entry; returns the line of the one that has it already.
    fn add(&mut self, entries: &[(String, Node)], key: &str, line: u32) -> Option<u32> {
        let known = if entries.len() < Self::SMALL {
            entries.iter().position(|(known, _)| known == key)
        } else {
            if self.places.is_empty() {
                let known = entries.iter().enumerate().map(|(place, (key, _))| (key.clone(), place));
                self.places.extend(known);
            }
            self.places.insert(key.to_owned(), entries.len())
        };
        self.lines.push(line);
        known.and_then(|place| self.lines.get(place)).copied()
    }
}

/// Adds the entries of a `<<` value (a map, or a list of maps) that aren't there yet.
fn merge(entries: &mut Vec<(String, Node)>, value: Node) {
    match value.value {
        NodeValue::Map(more) => {
            for (key, node) in more {
                if entries.iter().all(|(known, _)| *known != key) {
                    entries.push((key, node));
                }
            }
        }
        NodeValue::List(nodes) => nodes.into_iter().for_each(|node| merge(entries, node)),
        _ => {}
    }
}

fn scalar(text: Cow<'_, str>, is_plain: bool, tag: Option<&str>) -> NodeValue {
    if tag == Some("str") || !is_plain && tag.is_none() {
        return NodeValue::Text(text.into_owned());
    }
    match &*text {
        "" | "~" | "null" | "Null" | "NULL" => NodeValue::Null,
        "true" | "True" | "TRUE" => NodeValue::Bool(true),
        "false" | "False" | "FALSE" => NodeValue::Bool(false),
        _ => number(&text).unwrap_or_else(|| NodeValue::Text(text.into_owned())),
    }
}

fn number(text: &str) -> Option<NodeValue> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return text.strip_prefix('+').unwrap_or(text).parse().ok().map(NodeValue::Int);
    }
    let is_float = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.contains(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if is_float { text.parse().ok().map(NodeValue::Float) } else { None }
}

fn place(file: u16, span: Span) -> At {
    let short = |number: usize| u32::try_from(number).unwrap_or(0);
    At { file, line: short(span.start.line()), column: short(span.start.col()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_know_their_lines() {
        let node = one("f", 0, "a: 1\nb:\n  - x\n  - {c: true}\n").unwrap();
        assert_eq!(node.path(&["b"]).unwrap().items()[1].get("c").unwrap().at.line, 4);
        assert_eq!(node.get("a").unwrap().int(), Some(1));
        let json = one("f", 0, "{\n\t\"a\": [1.5, \"x\\n\"],\n\t\"b\": null\n}").unwrap();
        assert_eq!(json.each("a")[1].str(), Some("x\n"));
        assert_eq!((json.each("a")[0].plain().as_deref(), json.get("b")), (Some("1.5"), None));
    }

    #[test]
    fn hostile_texts_are_refused() {
        assert!(one("f", 0, &"[".repeat(10_000)).is_err());
        assert!(one("f", 0, &format!("{}1{}", "{a: ".repeat(100), "}".repeat(100))).is_err());
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..12 {
            let m = n - 1;
            bomb.push_str(&format!("a{n}: &a{n} [{}]\n", vec![format!("*a{m}"); 10].join(", ")));
        }
        assert!(one("f", 0, &bomb).unwrap_err().to_string().contains("unfold"));
        assert!(one("f", 0, "a: &x [*x]").is_err());
        assert!(one("f", 0, "a: 1\na: 2").unwrap_err().to_string().starts_with("f:2:"));
        assert!(one("f", 0, "a: 1\n---\nb: 2").is_err());
        assert!(one("f", 0, "{ \"a\": ").is_err());
    }

    #[test]
    fn merged_maps() {
        let node = one("f", 0, "x: &d {a: 1, b: 2}\ny:\n  <<: *d\n  b: 3\n").unwrap();
        assert_eq!(node.path(&["y", "a"]).unwrap().int(), Some(1));
        assert_eq!(node.path(&["y", "b"]).unwrap().int(), Some(3));
    }
}
