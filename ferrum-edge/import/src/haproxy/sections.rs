//! The grammar of haproxy.cfg: sections of lines of words.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::why::Why;
use super::words::{self, Environment, UnknownVariable};
use crate::error::Failure;
use crate::report::At;
use crate::text;

/// Lines of one configuration.
const MAX_LINES: usize = 500_000;

/// A line as words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HaproxyLine {
    pub(super) at: At,
    pub(super) words: Vec<String>,
    /// What the words lack: a variable whose value is not in the file.
    pub(super) unknown: Option<UnknownVariable>,
}

impl HaproxyLine {
    /// Why the line can't be read, where a variable in it is not known.
    pub(super) fn lacks(&self) -> Option<Why> {
        self.unknown.as_ref().map(|unknown| Why::Environment(unknown.name.clone()))
    }

    pub(super) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(super) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    /// An argument as text; empty where there is none.
    pub(super) fn word(&self, n: usize) -> &str {
        self.words.get(n).map_or("", String::as_str)
    }

    pub(super) fn text(&self) -> String {
        self.words.join(" ")
    }
}

/// All sections of a configuration.
#[derive(Debug, Default)]
pub(super) struct Sections {
    pub(super) all: Rc<[Section]>,
    /// Places of sections by their names.
    places: HashMap<String, Vec<usize>>,
}

impl Sections {
    pub(super) fn new(all: Vec<Section>) -> Self {
        let mut places: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, section) in all.iter().enumerate() {
            places.entry(section.name.clone()).or_default().push(place);
        }
        Self { all: all.into(), places }
    }

    /// The first section of this name that is of one of these kinds.
    pub(super) fn find(&self, kinds: &[&str], name: &str) -> Option<&Section> {
        let named = self.places.get(name)?.iter().filter_map(|place| self.all.get(*place));
        named.into_iter().find(|section| kinds.contains(&section.kind.as_str()))
    }

    /// The section that answers by this name.
    pub(super) fn backend(&self, name: &str) -> Option<Section> {
        self.find(&["backend", "listen"], name).cloned()
    }
}

/// A section.
#[derive(Debug, Clone, Default)]
pub(super) struct Section {
    pub(super) at: At,
    /// `frontend`, `backend`, `listen`, …
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) lines: Vec<HaproxyLine>,
    /// What the `defaults` before it say.
    pub(super) defaults: Vec<HaproxyLine>,
    own_index: LineIndex,
    default_index: LineIndex,
}

/// Where the lines of each name are, from when they are first asked for. A copy has none, for its lines may be changed.
#[derive(Debug, Default)]
struct LineIndex(OnceCell<HashMap<String, Vec<usize>>>);

impl LineIndex {
    /// Those of the lines that begin so.
    fn begin<'l>(&self, lines: &'l [HaproxyLine], words: &[&str]) -> Vec<&'l HaproxyLine> {
        let fits = |line: &&HaproxyLine| words.iter().enumerate().all(|(n, word)| line.word(n) == *word);
        let Some(first) = words.first() else { return Vec::new() };
        let index = self.0.get_or_init(|| {
            let mut index: HashMap<String, Vec<usize>> = HashMap::new();
            for (place, line) in lines.iter().enumerate() {
                index.entry(line.name().to_owned()).or_default().push(place);
            }
            index
        });
        let places = index.get(*first).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|place| lines.get(*place)).filter(fits).collect()
    }
}

impl Clone for LineIndex {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Section {
    /// The lines that begin so, its own or else those of its defaults.
    pub(super) fn said<'s>(&'s self, words: &[&str]) -> Vec<&'s HaproxyLine> {
        let own = self.own_index.begin(&self.lines, words);
        if own.is_empty() { self.default_index.begin(&self.defaults, words) } else { own }
    }

    /// The first of those.
    pub(super) fn first<'s>(&'s self, words: &[&str]) -> Option<&'s HaproxyLine> {
        self.said(words).first().copied()
    }

    /// The rules of these kinds: those of its defaults, and then its own.
    pub(super) fn rules<'s>(&'s self, kinds: &'s [&str]) -> impl Iterator<Item = &'s HaproxyLine> {
        self.defaults.iter().chain(&self.lines).filter(move |line| kinds.contains(&line.name()))
    }

    /// Whether it carries bytes rather than HTTP.
    pub(super) fn is_tcp(&self) -> bool {
        self.first(&["mode"]).is_none_or(|mode| mode.word(1) != "http")
    }
}

const KINDS: &[&str] = &[
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "userlist",
    "peers",
    "resolvers",
    "mailers",
    "cache",
    "ring",
    "http-errors",
    "program",
    "log-forward",
    "fcgi-app",
    "crt-list",
    "traces",
];

/// Reads a text.
pub(super) fn parse(name: &str, file: u16, source: &str) -> Result<Vec<Section>, Failure> {
    let mut sections: Vec<Section> = Vec::new();
    let mut defaults: Vec<HaproxyLine> = Vec::new();
    // Those that sections name with `from`.
    let mut named: HashMap<String, Vec<HaproxyLine>> = HashMap::new();
    let mut environment = Environment::default();
    for (n, line) in source.lines().enumerate() {
        let number = u32::try_from(n + 1).unwrap_or(0);
        if n > MAX_LINES {
            return Err(Failure::new(name, number, format!("more than {MAX_LINES} lines")));
        }
        let read = words::read(line, &environment).map_err(|why| Failure::new(name, number, why))?;
        let (words, unknown) = (read.words, read.unknown);
        let Some(first) = words.first() else { continue };
        let at = At { file, line: number, column: 0 };
        let is_section = KINDS.contains(&first.as_str());
        if let Some(unknown) = unknown.as_ref().filter(|unknown| is_section || names(first) >= unknown.word) {
            let why = Why::Environment(unknown.name.clone());
            return Err(Failure::new(name, number, format!("{why}; write the value into the file")));
        }
        if is_section {
            let from = words.iter().position(|word| word == "from").and_then(|n| words.get(n + 1));
            let chosen = from.map(|from| named.get(from).cloned().unwrap_or_default());
            let name = words.get(1).filter(|word| *word != "from").cloned().unwrap_or_default();
            if first == "defaults" {
                defaults = chosen.clone().unwrap_or_default();
                named.insert(name.clone(), defaults.clone());
            }
            let defaults = chosen.unwrap_or_else(|| defaults.clone());
            sections.push(Section { at, kind: first.clone(), name, defaults, ..Section::default() });
            continue;
        }
        let Some(section) = sections.last_mut() else {
            return Err(Failure::new(
                name,
                number,
                format!("`{first}` is in no section: this is not haproxy.cfg"),
            ));
        };
        if first.starts_with('.') {
            return Err(Failure::new(
                name,
                number,
                "directives such as `.if` are not evaluated; import the result",
            ));
        }
        if section.kind == "global" {
            environment.follow(&words, unknown.as_ref());
        }
        let line = HaproxyLine { at, words, unknown };
        if section.kind == "defaults" {
            defaults.push(line.clone());
            named.entry(section.name.clone()).or_default().push(line.clone());
        }
        section.lines.push(line);
    }
    if sections.is_empty() {
        return Err(Failure::new(name, 1, "there is no section in it"));
    }
    Ok(sections)
}

/// Up to which of its words a line can't be understood at all: what it is, which ACL it names, whether a section is of HTTP.
fn names(first: &str) -> usize {
    usize::from(matches!(first, "acl" | "mode"))
}

/// Whether a stick-table stores this counter.
pub(super) fn stores(line: &HaproxyLine, what: &str) -> bool {
    line.words.iter().any(|word| word.split(',').any(|it| it == what))
}

/// The time over which a stick-table counts requests.
pub(super) fn rate_period(line: &HaproxyLine) -> Option<String> {
    let store = line
        .words
        .iter()
        .find_map(|word| word.split(',').find_map(|it| it.strip_prefix("http_req_rate(")))?;
    let millis = text::millis(store.trim_end_matches(')'), 1)?;
    Some(format!("{}s", text::seconds(millis)))
}
