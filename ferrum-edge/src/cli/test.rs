//! `test`: sends the requests of a file through a configuration without a socket, and compares the results with the expectations.

mod case;
mod document;
mod report;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use gateway_core::config::file::{self, Origin};
use gateway_core::config::model::Model;
use gateway_core::plugin::Registry;

use super::{BAD_CONFIG, FAILED, Verbosity, logs, print};
use crate::source::file::{Machine, Source, Spec, read_text};
use document::TestFile;
use report::Outcome;

/// Arguments of `test`.
#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// Files of tests
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Configuration, instead of the one that a test file names
    #[arg(long, short, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// Only tests whose names contain this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: ReportFormat,
}

/// Output format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// For people: failures, and a sum
    #[default]
    Text,
    /// Test Anything Protocol, version 14
    Tap,
    /// JUnit's XML
    Junit,
}

/// The results of one file.
struct TestedFile {
    name: String,
    outcomes: Vec<Outcome>,
}

/// Runs the tests. Returns 1 if a test fails or there is none, and 3 if a file is invalid.
pub(super) fn test(args: &TestArgs, registry: &Registry) -> u8 {
    logs::init(Verbosity { verbose: 0 });
    let mut tested = Vec::new();
    for path in &args.files {
        match run(path, args, registry) {
            Ok(outcomes) => tested.push(TestedFile { name: path.display().to_string(), outcomes }),
            Err(code) => return code,
        }
    }
    if tested.iter().all(|file| file.outcomes.is_empty()) {
        // A pipeline that tests nothing must not look good.
        match &args.only {
            Some(only) => print::error(format_args!("no test has `{only}` in its name")),
            None => print::error("there is no test in these files"),
        }
        return FAILED;
    }
    match args.output {
        ReportFormat::Text => report::text(&tested),
        ReportFormat::Tap => report::tap(&tested),
        ReportFormat::Junit => report::junit(&tested),
    }
    let is_bad = tested.iter().any(|file| file.outcomes.iter().any(|outcome| !outcome.failures.is_empty()));
    if is_bad { FAILED } else { 0 }
}

fn run(path: &Path, args: &TestArgs, registry: &Registry) -> Result<Vec<Outcome>, u8> {
    let bad = |error: &dyn std::fmt::Display| {
        print::error(format_args!("{}: {error}", path.display()));
        BAD_CONFIG
    };
    let text = read_text(path).map_err(|error| bad(&error))?;
    let tests: TestFile = file::parse_item(&text, &Origin::file(path), "", &Machine).map_err(|problems| {
        print::error(problems);
        BAD_CONFIG
    })?;
    let beside = |name: &PathBuf| path.parent().unwrap_or_else(|| Path::new("")).join(name);
    let spec = args.spec.clone().or_else(|| tests.configuration.as_ref().map(beside));
    let spec = spec.ok_or_else(|| bad(&"name the configuration: `configuration: FILE`, or --spec FILE"))?;
    // Report an invalid configuration even if no test is left to run.
    load(&spec, registry)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| bad(&error))?;
    let mut outcomes = Vec::new();
    for test in &tests.tests {
        if args.only.as_ref().is_some_and(|only| !test.name.contains(only)) {
            continue;
        }
        // Build the plugins again for each test, because plugins and their world contain counts.
        let registry = registry.clone().with_world(crate::world::world());
        let model = load(&spec, &registry)?;
        let outcome = runtime.block_on(case::run(test, &tests.targets, &model, registry));
        outcomes.push(outcome.map_err(|why| bad(&format_args!("test `{}`: {why}", test.name)))?);
    }
    Ok(outcomes)
}

fn load(spec: &Path, registry: &Registry) -> Result<Model, u8> {
    let source = Source { spec: Spec::File(spec.to_owned()), flags: Vec::new() };
    source.load(registry).map_err(|problems| {
        print::error(problems);
        BAD_CONFIG
    })
}
