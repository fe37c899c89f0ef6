//! The published tests of other projects as data: rows, configurations and figures, one table a seed in `replays/`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::plan::Coding;

pub mod content;
pub mod template;
pub mod tokens;

/// A seed: a published set of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Seed {
    /// Static files, a proxy, tokens, limits, a cache, scripts, compression, a mirror.
    Conduit,
    /// A proxy behind TLS with a firewall and a cache.
    Zion,
    /// Fixed answers, files and a proxy, 10 to 10,000 clients.
    Hotdogs,
}

/// Why a table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("the table of {seed} cannot be read: {source}")]
    Form { seed: &'static str, source: toml::de::Error },
    #[error("the table of {seed} is wrong:\n{}", problems.join("\n"))]
    Wrong { seed: &'static str, problems: Vec<String> },
}

/// A seed's table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub title: String,
    /// What was published, and when.
    pub source: String,
    /// On what the published figures were measured.
    pub conditions: String,
    /// What a reader must know beside the figures.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What was published of programs that do nothing yet.
    #[serde(default)]
    pub at_rest: Vec<AtRest>,
    /// Who can be measured, in the order of the report.
    #[serde(rename = "subject")]
    pub subjects: Vec<Subject>,
    /// Files of the folder that static rows serve.
    #[serde(default, rename = "file")]
    pub files: Vec<SiteFile>,
    /// Texts that configurations name, such as scripts, by file name; `.wat` becomes `.wasm`.
    #[serde(default)]
    pub scripts: BTreeMap<String, String>,
    /// Ways to configure the subjects, by name.
    #[serde(rename = "setup")]
    pub setups: BTreeMap<String, Setup>,
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// Somebody who can be measured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    pub name: String,
    pub program: Program,
    /// What all its configurations have in common; `{{setup}}` stands for the rest.
    #[serde(default)]
    pub base: Option<String>,
}

/// What a subject runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    Gateway,
    Nginx,
    Haproxy,
    Caddy,
}

/// A file of the folder that static rows serve.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteFile {
    pub path: String,
    pub bytes: usize,
}

/// How each subject is configured for some rows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Whether requests go on to a backend: each client then takes a second connection.
    #[serde(default)]
    pub backend: bool,
    /// Configurations by subject.
    pub with: BTreeMap<String, String>,
    /// Why a subject has none.
    #[serde(default)]
    pub without: BTreeMap<String, String>,
}

/// A published row.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub id: String,
    pub label: String,
    pub setup: String,
    /// Over TLS; all rows are HTTP/1.1.
    #[serde(default)]
    pub tls: bool,
    pub clients: u32,
    /// Measured time, as published.
    pub seconds: f64,
    /// Requests a second where they come by the clock; without it each client waits for its answer.
    #[serde(default)]
    pub rate: Option<f64>,
    #[serde(default = "root")]
    pub path: String,
    /// Sends this in a POST; without it requests are GETs.
    #[serde(default)]
    pub send: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    pub answer: ReplayAnswer,
    /// What we do otherwise than the published test, and why.
    #[serde(default)]
    pub differs: Option<String>,
    /// Why the row cannot be run.
    #[serde(default)]
    pub skip: Option<String>,
    #[serde(default)]
    pub published: Vec<Published>,
}

/// What every answer must be.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayAnswer {
    #[serde(default = "ok")]
    pub status: u16,
    /// Another status that is right as well.
    #[serde(default)]
    pub refused: Option<u16>,
    pub body: Body,
    /// The content coding that the body must have.
    #[serde(default)]
    pub coding: Option<Coding>,
}

/// The bytes of an answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Body {
    /// A file of the folder.
    File(String),
    /// So many of the backend's bytes.
    Size(usize),
    /// So many bytes of the backend's JSON.
    Json(usize),
    Text(String),
    /// What the request sent.
    Echo,
    /// Anything: refusals have words of their own.
    Any,
}

/// What somebody takes who does nothing yet, as published.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AtRest {
    pub who: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_mb: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mebibytes: Option<f64>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub estimated: bool,
}

/// A published figure. Milliseconds, requests a second.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Who was measured, in the words of the source.
    pub who: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Resident memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mebibytes: Option<f64>,
    /// Per cent of the requests that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<f64>,
    /// The source itself calls it an estimate.
    #[serde(default, skip_serializing_if = "is_false")]
    pub estimated: bool,
    /// Why the figure cannot be right, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong: Option<String>,
    /// What else limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Clients above which a row's descriptors and ports are worth a look.
pub const MOST_CLIENTS: u32 = 50_000;
/// Descriptors of a process beside its connections.
const SPARE: u64 = 512;

impl Seed {
    pub const ALL: [Self; 3] = [Self::Conduit, Self::Zion, Self::Hotdogs];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Conduit => "conduit",
            Self::Zion => "zion",
            Self::Hotdogs => "hotdogs",
        }
    }

    /// Its table.
    ///
    /// # Errors
    /// A mistake in the table.
    pub fn table(self) -> Result<Table, TableError> {
        let text = match self {
            Self::Conduit => include_str!("../replays/conduit.toml"),
            Self::Zion => include_str!("../replays/zion.toml"),
            Self::Hotdogs => include_str!("../replays/hotdogs.toml"),
        };
        let seed = self.name();
        let table: Table = toml::from_str(text).map_err(|source| TableError::Form { seed, source })?;
        let problems = table.problems();
        if problems.is_empty() { Ok(table) } else { Err(TableError::Wrong { seed, problems }) }
    }
}

impl Program {
    /// Its command, and its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Caddy => "caddy",
        }
    }
}

impl Row {
    /// Whether a part of its id or label, or one of them with `*` for anything, is the pattern.
    #[must_use]
    pub fn matches(&self, pattern: &str) -> bool {
        [&self.id, &self.label].into_iter().any(|text| {
            let (text, pattern) = (text.to_lowercase(), pattern.to_lowercase());
            if pattern.contains('*') { fits(&pattern, &text) } else { text.contains(&pattern) }
        })
    }

    /// Descriptors that one process needs at most: a subject's, which has two for each client where it goes on to a backend.
    #[must_use]
    pub fn descriptors(&self, setup: &Setup, clients: u32) -> u64 {
        let each = if setup.backend { 2 } else { 1 };
        u64::from(clients) * each + SPARE
    }

    /// The most clients for which so many descriptors are enough.
    #[must_use]
    pub fn most_clients(&self, setup: &Setup, descriptors: u64) -> u32 {
        let each = if setup.backend { 2 } else { 1 };
        u32::try_from(descriptors.saturating_sub(SPARE) / each).unwrap_or(u32::MAX)
    }
}

impl Table {
    /// The subject of this name.
    #[must_use]
    pub fn subject(&self, name: &str) -> Option<&Subject> {
        self.subjects.iter().find(|subject| subject.name == name)
    }

    /// Everything that is wrong with it.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        for row in &self.rows {
            let id = &row.id;
            if !seen.insert(id) {
                found.push(format!("row {id} is there twice"));
            }
            if !self.setups.contains_key(&row.setup) {
                found.push(format!("row {id}: there is no setup {}", row.setup));
            }
            if let Body::File(path) = &row.answer.body
                && !self.files.iter().any(|file| file.path == *path)
            {
                found.push(format!("row {id}: there is no file {path}"));
            }
            if row.clients == 0 || row.clients > MOST_CLIENTS || row.seconds <= 0.0 {
                found.push(format!(
                    "row {id}: clients and seconds must be above 0, clients at most {MOST_CLIENTS}"
                ));
            }
            if row.published.is_empty() {
                found.push(format!("row {id} has no published figure"));
            }
            for value in row.headers.values().chain(&row.send) {
                found
                    .extend(template::unknown(value).map(|name| format!("row {id}: unknown {{{{{name}}}}}")));
            }
        }
        for (name, setup) in &self.setups {
            found.extend(self.problems_of_setup(name, setup));
        }
        found
    }

    fn problems_of_setup(&self, name: &str, setup: &Setup) -> Vec<String> {
        let mut found = Vec::new();
        for subject in &self.subjects {
            let (with, without) =
                (setup.with.contains_key(&subject.name), setup.without.contains_key(&subject.name));
            if with == without {
                found.push(format!("setup {name}: {} needs a configuration or a reason", subject.name));
            }
        }
        for subject in setup.with.keys().chain(setup.without.keys()) {
            if self.subject(subject).is_none() {
                found.push(format!("setup {name}: there is no subject {subject}"));
            }
        }
        for (subject, text) in &setup.with {
            let base = self.subject(subject).and_then(|subject| subject.base.as_deref()).unwrap_or_default();
            let unknown = template::unknown(text).chain(template::unknown(base));
            found.extend(unknown.map(|word| format!("setup {name}, {subject}: unknown {{{{{word}}}}}")));
        }
        found
    }
}

/// Whether a text fits a pattern, in which `*` stands for anything.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(before) = last.replace(part) {
            let Some((_, after)) = rest.split_once(before) else { return false };
            rest = after;
        }
    }
    last.is_none_or(|last| rest.ends_with(last)) && (last.is_some() || rest.is_empty())
}

fn root() -> String {
    "/".to_owned()
}

const fn ok() -> u16 {
    200
}

fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_right() {
        for seed in Seed::ALL {
            let table = seed.table().unwrap_or_else(|error| panic!("{error}"));
            assert!(table.rows.len() >= 15, "{}: {} rows", seed.name(), table.rows.len());
            assert!(table.rows.iter().any(|row| row.published.iter().any(|it| it.wrong.is_some())));
        }
    }

    #[test]
    fn mistakes_in_a_table_are_named() {
        let text = r#"
            title = "t"
            source = "s"
            conditions = "c"
            [[subject]]
            name = "gateway"
            program = "gateway"
            [[subject]]
            name = "nginx"
            program = "nginx"
            [setup.a]
            with = { gateway = "{{listen}} {{colour}}", caddy = "" }
            [[row]]
            id = "one"
            label = "One"
            setup = "b"
            clients = 0
            seconds = 1
            answer = { body = { file = "none" } }
        "#;
        let table: Table = toml::from_str(text).expect("the form is right");
        let found = table.problems().join("\n");
        for words in [
            "no setup b",
            "no file none",
            "above 0",
            "no published",
            "nginx needs",
            "no subject caddy",
            "{{colour}}",
        ] {
            assert!(found.contains(words), "{words} in {found}");
        }
        assert!(
            toml::from_str::<Table>(&text.replace("seconds", "hours")).is_err(),
            "unknown keys are refused"
        );
    }

    #[test]
    fn rows_are_chosen_by_a_part_or_a_pattern() {
        let row = &Seed::Hotdogs.table().expect("a table").rows[0];
        let mut row = row.clone();
        "10-synthetic".clone_into(&mut row.id);
        "Fixed answer, 10 clients".clone_into(&mut row.label);
        for (pattern, is_right) in [
            ("synthetic", true),
            ("FIXED", true),
            ("10-*", true),
            ("*0-syn*", true),
            ("syn*", false),
            ("10-*c", true),
            ("10-*x", false),
            ("*", true),
            ("proxy", false),
        ] {
            assert_eq!(row.matches(pattern), is_right, "{pattern}");
        }
    }

    #[test]
    fn descriptors_count_both_sides() {
        let table = Seed::Hotdogs.table().expect("a table");
        let row = |id: &str| table.rows.iter().find(|row| row.id == id).expect("a row");
        let of = |id: &str| {
            let row = row(id);
            (row, &table.setups[&row.setup])
        };
        let (row, setup) = of("10000-synthetic");
        assert_eq!(row.descriptors(setup, row.clients), 10_512);
        let (row, setup) = of("10000-proxy");
        assert_eq!(row.descriptors(setup, row.clients), 20_512);
        assert_eq!(row.most_clients(setup, 20_000), 9_744);
        assert!(row.descriptors(setup, row.most_clients(setup, 20_000)) <= 20_000);
    }
}
