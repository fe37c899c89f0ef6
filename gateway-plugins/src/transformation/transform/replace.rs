//! Replacements in the values of header fields and cookies: of a prefix, of a regex's matches, or of the whole value.

use gateway_core::config::problem::Problems;
use gateway_core::template::{Facts, MAX_RENDERED, Moment, Render, Template, TextContext};
use gateway_plugin_common::parse;
use regex::bytes::{Captures, Regex};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Unusable;

/// Bytes a value may have after a replacement.
const MAX_VALUE: usize = 64 << 10;
/// Replacements one list may have.
const MAX_REPLACEMENTS: usize = 100;
/// How a group of `pattern` begins in `with`.
const GROUP: &str = "${match.";

/// What to replace, and its replacement. Exactly one of `equals`, `prefix` and `pattern` is required.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Replacement {
    /// The whole value, as a template.
    equals: Option<String>,
    /// Prefix of the value, as a template such as `http://${request.host}/`.
    prefix: Option<String>,
    /// Regex; each match in the value is replaced.
    pattern: Option<String>,
    /// The new text, as a template. `${match.1}` and `${match.name}` are groups of `pattern`.
    with: String,
}

/// How values are compared and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// A header field, or a cookie's path.
    Text,
    /// A domain: letter case and a dot at its beginning do not matter. `equals` keeps the dot.
    Domain,
}

/// A compiled replacement.
pub(crate) struct Replacer {
    find: Find<Template>,
    with: Vec<Piece<Template>>,
}

/// A replacement whose templates are rendered.
pub(crate) struct Rendered<'r> {
    find: Find<Vec<u8>, &'r Regex>,
    with: Vec<Piece<Vec<u8>>>,
}

enum Find<T, R = Regex> {
    Equals(T),
    Prefix(T),
    Pattern(R),
}

/// A piece of the new text.
enum Piece<T> {
    Text(T),
    Group(usize),
}

impl Replacer {
    /// Compiles a list, of which the first replacement that matches is applied.
    pub(crate) fn read_all(
        at: &str,
        list: Vec<Replacement>,
        moment: Moment,
        problems: &mut Problems,
    ) -> Vec<Self> {
        if list.len() > MAX_REPLACEMENTS {
            problems.add(at, format!("has more than {MAX_REPLACEMENTS} entries"));
            return Vec::new();
        }
        let read = list.into_iter().enumerate();
        read.filter_map(|(n, one)| Self::read(&format!("{at}[{n}]"), one, moment, problems)).collect()
    }

    fn read(at: &str, from: Replacement, moment: Moment, problems: &mut Problems) -> Option<Self> {
        let template = |field: &str, text: &str, problems: &mut Problems| {
            if text.is_empty() {
                problems.add(format!("{at}.{field}"), "is empty, so it would match every value");
            }
            parse::template(&format!("{at}.{field}"), text, moment, problems)
        };
        let find = match (from.equals, from.prefix, from.pattern) {
            (Some(text), None, None) => Find::Equals(template("equals", &text, problems)?),
            (None, Some(text), None) => Find::Prefix(template("prefix", &text, problems)?),
            (None, None, Some(text)) => {
                Find::Pattern(parse::byte_regex(&format!("{at}.pattern"), &text, problems)?)
            }
            _ => {
                problems.add(at, "needs exactly one of `equals`, `prefix` and `pattern`");
                return None;
            }
        };
        let regex = match &find {
            Find::Pattern(regex) => Some(regex),
            Find::Equals(_) | Find::Prefix(_) => None,
        };
        let with = pieces(&format!("{at}.with"), &from.with, regex, moment, problems)?;
        Some(Self { find, with })
    }

    /// The templates that it is made of.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        let find = match &self.find {
            Find::Equals(template) | Find::Prefix(template) => Some(template),
            Find::Pattern(_) => None,
        };
        find.into_iter().chain(self.with.iter().filter_map(|piece| match piece {
            Piece::Text(template) => Some(template),
            Piece::Group(_) => None,
        }))
    }

    /// Renders its templates. In a cookie, no value of the request adds an attribute.
    ///
    /// # Errors
    /// When a value cannot be used.
    pub(crate) fn render(&self, facts: &Facts<'_>, context: TextContext) -> Result<Rendered<'_>, Unusable> {
        let text = |template: &Template| {
            let mut out = Vec::new();
            template.render(facts, context, MAX_RENDERED, &mut out).map_err(|_| Unusable)?;
            Ok(out)
        };
        let find = match &self.find {
            Find::Equals(template) => Find::Equals(text(template)?),
            Find::Prefix(template) => Find::Prefix(text(template)?),
            Find::Pattern(regex) => Find::Pattern(regex),
        };
        let with = self.with.iter().map(|piece| match piece {
            Piece::Text(template) => text(template).map(Piece::Text),
            Piece::Group(group) => Ok(Piece::Group(*group)),
        });
        Ok(Rendered { find, with: with.collect::<Result<_, _>>()? })
    }
}

/// The new value by the first replacement that matches; `None` where none does.
///
/// # Errors
/// When the new value would be too long.
pub(crate) fn replace(
    all: &[Rendered<'_>],
    value: &[u8],
    kind: ValueKind,
) -> Result<Option<Vec<u8>>, Unusable> {
    for one in all {
        if let Some(made) = one.replace(value, kind)? {
            return Ok(Some(made));
        }
    }
    Ok(None)
}

impl Rendered<'_> {
    fn replace(&self, value: &[u8], kind: ValueKind) -> Result<Option<Vec<u8>>, Unusable> {
        let mut out = Vec::new();
        match &self.find {
            Find::Equals(wanted) => {
                if !is_same(wanted, value, kind) {
                    return Ok(None);
                }
                self.write(None, &mut out)?;
                if kind == ValueKind::Domain && value.starts_with(b".") && !out.starts_with(b".") {
                    out.insert(0, b'.');
                }
            }
            // One that came out empty is nobody's beginning.
            Find::Prefix(prefix) => match value.strip_prefix(prefix.as_slice()) {
                Some(rest) if !prefix.is_empty() => {
                    self.write(None, &mut out)?;
                    append(&mut out, rest)?;
                }
                _ => return Ok(None),
            },
            Find::Pattern(regex) => {
                let mut end = 0;
                let mut has_match = false;
                for found in regex.captures_iter(value) {
                    has_match = true;
                    let Some(whole) = found.get(0) else { continue };
                    append(&mut out, value.get(end..whole.start()).unwrap_or_default())?;
                    self.write(Some(&found), &mut out)?;
                    end = whole.end();
                }
                if !has_match {
                    return Ok(None);
                }
                append(&mut out, value.get(end..).unwrap_or_default())?;
            }
        }
        Ok(Some(out))
    }

    fn write(&self, found: Option<&Captures<'_>>, out: &mut Vec<u8>) -> Result<(), Unusable> {
        self.with.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => append(out, text),
            Piece::Group(group) => {
                append(out, found.and_then(|found| found.get(*group)).map_or(&[][..], |it| it.as_bytes()))
            }
        })
    }
}

fn append(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Unusable> {
    if out.len() + bytes.len() > MAX_VALUE {
        return Err(Unusable);
    }
    out.extend_from_slice(bytes);
    Ok(())
}

fn is_same(wanted: &[u8], value: &[u8], kind: ValueKind) -> bool {
    match kind {
        ValueKind::Text => wanted == value,
        ValueKind::Domain => {
            let bare = |text: &[u8]| text.strip_prefix(b".").unwrap_or(text).to_ascii_lowercase();
            bare(wanted) == bare(value)
        }
    }
}

/// The new text in pieces: templates, and groups of the regex between them.
fn pieces(
    at: &str,
    text: &str,
    regex: Option<&Regex>,
    moment: Moment,
    problems: &mut Problems,
) -> Option<Vec<Piece<Template>>> {
    let mut made = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let start = group_start(rest);
        let (before, group) = start.map_or((rest, None), |start| {
            let (before, group) = rest.split_at(start);
            (before, group.strip_prefix(GROUP))
        });
        if !before.is_empty() {
            made.push(Piece::Text(parse::template(at, before, moment, problems)?));
        }
        let Some(group) = group else { break };
        let Some((name, behind)) = group.split_once('}') else {
            problems.add(at, "a `${match.` has no `}`");
            return None;
        };
        let Some(index) = regex.and_then(|regex| group_index(regex, name)) else {
            let why = match regex {
                Some(_) => format!("`pattern` has no group `{name}`"),
                None => "only `pattern` has groups".to_owned(),
            };
            problems.add(at, why);
            return None;
        };
        made.push(Piece::Group(index));
        rest = behind;
    }
    Some(made)
}

/// Where a group of the regex is named; a doubled dollar sign is text.
fn group_start(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let found = at + text.get(at..)?.find('$')?;
        let rest = text.get(found..)?;
        if rest.starts_with(GROUP) {
            return Some(found);
        }
        at = found + if rest.starts_with("$$") { 2 } else { 1 };
    }
}

fn group_index(regex: &Regex, name: &str) -> Option<usize> {
    match name.parse::<usize>() {
        Ok(index) => (index < regex.captures_len()).then_some(index),
        Err(_) => regex.capture_names().position(|known| known == Some(name)),
    }
}
