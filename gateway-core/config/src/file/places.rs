//! The lines of a document by path, for problems found after it was read.

use super::tree::{Node, Value};
use super::{Format, Origin, json, yaml};
use crate::problem::Problems;

/// Knows the lines of a document.
///
/// Only the text is kept: it is read a second time when there is a problem to locate, so that a good document, however
/// large, pays nothing.
#[derive(Debug, Default)]
pub struct Positions {
    pub(super) file: String,
    text: String,
    format: Option<Format>,
}

impl Positions {
    pub(super) fn new(file: &str, text: &str, format: Format) -> Self {
        Self { file: file.to_owned(), text: text.to_owned(), format: Some(format) }
    }

    /// The places of a text.
    pub fn of(text: &str, origin: &Origin) -> Self {
        Self::new(&origin.name, text, origin.format(text))
    }

    /// Fills in the file and the line of each problem that has neither; a missing key gets the line of what lacks it.
    #[must_use]
    pub fn locate(&self, mut problems: Problems) -> Problems {
        let mut lost =
            problems.0.iter_mut().filter(|p| p.file.is_empty() && p.line == 0 && p.more == 0).peekable();
        if lost.peek().is_none() {
            return problems;
        }
        let mut ignored = Problems::default();
        let root = match self.format {
            Some(Format::Yaml) => yaml::parse(&self.text, &mut ignored),
            Some(Format::Json) => json::parse(&self.text, &mut ignored),
            None => None,
        };
        for problem in lost {
            problem.file.clone_from(&self.file);
            problem.line = root.as_ref().map_or(0, |root| line(root, &problem.path));
        }
        problems
    }
}

/// The line of a path, or of as much of it as there is; 0 when that is nothing.
fn line(root: &Node, path: &str) -> u32 {
    let (mut node, mut line) = (root, 0);
    let spread = path.replace('[', ".[");
    for step in spread.split('.').filter(|step| !step.is_empty()) {
        let next = match &node.value {
            Value::Map(entries) => {
                entries.iter().find(|entry| entry.key == step).map(|entry| (&entry.value, entry.line))
            }
            Value::List(nodes) => match step.strip_prefix('[').and_then(|step| step.strip_suffix(']')) {
                Some(n) => n.parse::<usize>().ok().and_then(|n| nodes.get(n)),
                None => nodes.iter().find(|node| node.id() == Some(step)),
            }
            .map(|node| (node, node.line)),
            _ => None,
        };
        let Some(next) = next else {
            break;
        };
        (node, line) = next;
    }
    line
}
