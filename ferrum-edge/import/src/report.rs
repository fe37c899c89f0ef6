//! What became of each construct of the original.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

/// Findings that a report keeps; more are only counted.
pub(crate) const MAX_FINDINGS: usize = 100_000;

/// Findings that a new one is compared with.
const MAX_LATEST: usize = 200;

/// Where something is in the original.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct At {
    /// Its place in [`Report::files`].
    pub(crate) file: u16,
    /// 1-based; 0 where it is not known.
    pub(crate) line: u32,
    /// Tells values on one line apart; 0 where it is not known.
    pub(crate) column: u32,
}

/// What became of a construct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Conversion {
    /// It means the same here.
    Converted,
    /// It needs no counterpart: the gateway does so anyway, or it is about the other program's process.
    NotNeeded,
    /// It is converted, and differs for some requests.
    Partial,
    /// It is not converted.
    NotConverted,
    /// It is an access rule that is not converted: the routes that it protected answer 503.
    Closed,
    /// It is an access rule that is not converted: the routes that it protected are open (`--open`).
    Opened,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The gateway behaves the same.
    Info,
    /// Some requests are answered otherwise.
    Warning,
    /// Somebody is kept out who may come in, or let in who may not.
    Danger,
}

impl Conversion {
    /// How much it matters.
    pub fn severity(self) -> Severity {
        match self {
            Self::Converted | Self::NotNeeded => Severity::Info,
            Self::Partial | Self::NotConverted => Severity::Warning,
            Self::Closed | Self::Opened => Severity::Danger,
        }
    }

    /// Whether the import says less than the original.
    pub fn is_loss(self) -> bool {
        self.severity() > Severity::Info
    }

    /// What to do about it, where the importer says nothing more exact.
    fn todo(self) -> &'static str {
        match self {
            Self::Converted | Self::NotNeeded => "",
            Self::Partial => "check whether it matters",
            Self::NotConverted => "write it by hand where it is needed",
            Self::Closed => "guard it by hand, then remove `request_termination`; `--open` leaves it open",
            Self::Opened => "guard it by hand before it takes traffic",
        }
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Converted => "converted",
            Self::NotNeeded => "not needed",
            Self::Partial => "converted in part",
            Self::NotConverted => "not converted",
            Self::Closed => "closed (503)",
            Self::Opened => "OPEN",
        }
    }
}

impl Severity {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Danger => "danger",
        }
    }
}

/// One construct, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What became of it.
    pub outcome: Conversion,
    /// The file it is in.
    pub file: Arc<str>,
    /// Its line, 1-based; 0 where it is not known.
    pub line: u32,
    /// What it is, as the original names it.
    pub what: String,
    /// Why it is not the same here. Empty for what is converted.
    pub why: String,
    /// What to do about it. Empty where nothing is to be done.
    pub todo: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}: {}: {}", self.outcome.severity().name(), self.outcome.name(), self.what)?;
        if !self.why.is_empty() {
            write!(f, ": {}", self.why)?;
        }
        if !self.todo.is_empty() {
            write!(f, " ({})", self.todo)?;
        }
        Ok(())
    }
}

/// A finding, and how many others say the same of the same directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindingGroup<'r> {
    /// The first of them.
    pub first: &'r Finding,
    /// The lines of the others, in the same file or in others.
    pub others: Vec<u32>,
}

impl fmt::Display for FindingGroup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        match self.others.as_slice() {
            [] => Ok(()),
            others => {
                let mut lines = others.to_vec();
                lines.dedup();
                let more = if lines.len() > MAX_LINES { ", …" } else { "" };
                let word = if lines.len() == 1 { "line" } else { "lines" };
                let lines: Vec<String> = lines.iter().take(MAX_LINES).map(ToString::to_string).collect();
                write!(f, " [and {} more, in {word} {}{more}]", others.len(), lines.join(", "))
            }
        }
    }
}

/// Lines that a group of findings names.
const MAX_LINES: usize = 10;

/// What became of all constructs.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub(crate) files: Vec<Arc<str>>,
    findings: Vec<Finding>,
    /// The lines of the latest findings, which may be met again.
    latest: VecDeque<u32>,
    counts: [usize; 6],
    /// Where something else than a plain conversion was noted.
    said: HashSet<At>,
    pub(crate) notes: Vec<&'static str>,
}

const ORDER: [Conversion; 6] = [
    Conversion::Converted,
    Conversion::NotNeeded,
    Conversion::Partial,
    Conversion::NotConverted,
    Conversion::Closed,
    Conversion::Opened,
];

impl Report {
    pub(crate) fn add(&mut self, outcome: Conversion, at: At, what: String, why: String, todo: String) {
        let file = self.files.get(usize::from(at.file)).cloned().unwrap_or_else(|| Arc::from(""));
        let todo = if todo.is_empty() { outcome.todo().to_owned() } else { todo };
        let finding = Finding { outcome, file, line: at.line, what, why, todo };
        if outcome != Conversion::Converted {
            self.said.insert(at);
        }
        // One construct is met several times where it holds for several proxies.
        let mut latest = self.latest.iter().zip(self.findings.iter().rev());
        if latest.any(|(line, known)| *line == finding.line && *known == finding) {
            return;
        }
        self.counts[ORDER.iter().position(|known| *known == outcome).unwrap_or(0)] += 1;
        if self.findings.len() < MAX_FINDINGS {
            self.latest.truncate(MAX_LATEST - 1);
            self.latest.push_front(finding.line);
            self.findings.push(finding);
        }
    }

    /// Whether it is noted of something there that it is not, or not wholly, converted.
    pub(crate) fn names(&self, at: At) -> bool {
        self.said.contains(&at)
    }

    /// A file's place in the list, by which findings name it.
    pub(crate) fn file(&mut self, name: &str) -> u16 {
        let at = self.files.iter().position(|known| **known == *name).unwrap_or_else(|| {
            self.files.push(Arc::from(name));
            self.files.len() - 1
        });
        u16::try_from(at).unwrap_or(u16::MAX)
    }

    /// By file and line, so that a reader goes through the original from top to bottom.
    pub(crate) fn sort(&mut self) {
        self.latest.clear();
        self.findings.sort_by(|a, b| (&a.file, a.line, a.outcome).cmp(&(&b.file, b.line, b.outcome)));
    }

    /// What holds for all requests, and is no finding of any place.
    pub fn notes(&self) -> &[&'static str] {
        &self.notes
    }

    /// The report for machines.
    pub fn to_json(&self) -> serde_json::Value {
        let findings: Vec<serde_json::Value> = self
            .findings
            .iter()
            .map(|finding| {
                serde_json::json!({
                    "outcome": finding.outcome.name(), "severity": finding.outcome.severity().name(),
                    "file": *finding.file, "line": finding.line, "what": finding.what, "why": finding.why,
                    "todo": finding.todo,
                })
            })
            .collect();
        let counts: serde_json::Map<String, serde_json::Value> =
            ORDER.iter().map(|outcome| (outcome.name().to_owned(), self.count(*outcome).into())).collect();
        serde_json::json!({ "counts": counts, "notes": self.notes, "findings": findings })
    }

    /// All findings, by file and line.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Those that say less than the original.
    pub fn losses(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.outcome.is_loss())
    }

    /// The same, those together that are not dangers and say the same of directives of one name.
    pub fn loss_groups(&self) -> Vec<FindingGroup<'_>> {
        let mut groups: Vec<FindingGroup<'_>> = Vec::new();
        let mut places = HashMap::new();
        for finding in self.losses() {
            // Each danger is to be looked at for itself.
            let key = (finding.outcome, directive(&finding.what), &finding.why);
            let known = places.get(&key).filter(|_| finding.outcome.severity() < Severity::Danger);
            match known.and_then(|at: &usize| groups.get_mut(*at)) {
                Some(group) => group.others.push(finding.line),
                None => {
                    places.insert(key, groups.len());
                    groups.push(FindingGroup { first: finding, others: Vec::new() });
                }
            }
        }
        groups
    }

    /// How many constructs had this outcome.
    pub fn count(&self, outcome: Conversion) -> usize {
        ORDER
            .iter()
            .position(|known| *known == outcome)
            .and_then(|at| self.counts.get(at))
            .copied()
            .unwrap_or(0)
    }

    /// Whether the import says less than the original.
    pub fn has_loss(&self) -> bool {
        ORDER.iter().any(|outcome| outcome.is_loss() && self.count(*outcome) > 0)
    }
}

/// The name of the directive that a finding is about.
fn directive(what: &str) -> &str {
    let own = what.rsplit_once(": ").map_or(what, |(_, own)| own);
    own.split_whitespace().next().unwrap_or(own)
}

impl fmt::Display for Report {
    /// The summary, as one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted =
            ORDER.iter().filter(|outcome| self.count(**outcome) > 0 || **outcome == Conversion::Converted);
        let parts: Vec<String> =
            counted.map(|outcome| format!("{} {}", self.count(*outcome), outcome.name())).collect();
        f.write_str(&parts.join(", "))
    }
}
