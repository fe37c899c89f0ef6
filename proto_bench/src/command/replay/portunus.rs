//! The published test of Portunus, a forwarder of TCP and UDP: how much one connection carries, how exactly a cap holds, and what comes
//! out at each offered load; directly, through a kernel's redirect, and through proxies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::super::stand::Stand;
use super::super::{CommandError, output};
use super::{Args, cores};
use crate::bulk::{BulkOutcome, BulkPlan, Carrier, Sink};
use crate::command::ExitStatus;
use crate::measure::machine;
use crate::peers::gateway;
use crate::process::{Server, find, pin_self};
use crate::text_files::write_file;

mod paths;
mod show;
mod table;

use paths::Path as Way;
use table::{ROWS, Row, Subject};

/// The result.
#[derive(Debug, Serialize)]
struct Report {
    format: &'static str,
    command: String,
    machine: machine::Machine,
    versions: BTreeMap<String, String>,
    notes: Vec<String>,
    rows: Vec<Measured>,
}

/// A row with all its subjects.
#[derive(Debug, Serialize)]
struct Measured {
    id: String,
    label: String,
    carrier: Carrier,
    /// Megabits a second; none is as fast as it goes.
    offered: Option<f64>,
    published: Vec<(String, f64)>,
    results: Vec<Cell>,
}

/// A subject in a row.
#[derive(Debug, Serialize)]
struct Cell {
    subject: String,
    rounds: Vec<BulkOutcome>,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
}

impl Cell {
    /// Megabits a second of all valid rounds, in order of size.
    fn megabits(&self) -> Vec<f64> {
        let valid = self.rounds.iter().filter(|round| round.void.is_empty());
        let mut all: Vec<f64> = valid.map(|round| round.megabits).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    fn median_of(&self, of: impl Fn(&BulkOutcome) -> Option<f64>) -> Option<f64> {
        let mut all: Vec<f64> = self.rounds.iter().filter_map(of).collect();
        all.sort_by(f64::total_cmp);
        median(&all)
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let (low, high) = (sorted.get((sorted.len().checked_sub(1)?) / 2)?, sorted.get(sorted.len() / 2)?);
    Some((low + high) / 2.0)
}

/// Runs the replay.
///
/// # Errors
/// A name that is not in the table, or a result that cannot be written.
pub(super) fn run(args: &Args) -> Result<ExitStatus, CommandError> {
    refuse_idle_flags(args)?;
    let rows = chosen_rows(args)?;
    let subjects = chosen_subjects(args)?;
    if args.list {
        output::print(&show::list(&rows))?;
        return Ok(ExitStatus::Valid);
    }
    let (server_cores, generator_cores) = cores(args);
    pin_self(&generator_cores).map_err(|source| CommandError::Pin {
        core: generator_cores.first().copied().unwrap_or_default(),
        source,
    })?;
    let programs = programs(args);
    let mut report = Report {
        format: "proto_bench-portunus/1",
        command: machine::command_line(),
        machine: machine::look(),
        versions: versions(&programs),
        notes: show::notes(args.rounds, &server_cores, &generator_cores),
        rows: Vec::new(),
    };
    let stand = Stand::new()?;
    for row in rows {
        if !args.output.quiet {
            eprint_line(&format!("{}: {}", row.id, row.label));
        }
        let measured = measure(args, row, &subjects, &programs, &stand, &server_cores)?;
        report.rows.push(measured);
    }
    deliver(args, &report)
}

fn deliver(args: &Args, report: &Report) -> Result<ExitStatus, CommandError> {
    let json = serde_json::to_string_pretty(report).unwrap_or_default() + "\n";
    let text = show::markdown(report);
    match args.output.json.as_deref() {
        Some(path) if path == Path::new("-") => output::print(&json)?,
        Some(path) => {
            write_file(path, &json)?;
            output::print(&text)?;
        }
        None => output::print(&text)?,
    }
    if let Some(path) = &args.output.markdown {
        write_file(path, &text)?;
    }
    let mut rounds = report.rows.iter().flat_map(|row| &row.results).flat_map(|cell| &cell.rounds);
    Ok(if rounds.any(|round| !round.void.is_empty()) { ExitStatus::Void } else { ExitStatus::Valid })
}

fn eprint_line(text: &str) {
    use std::io::Write as _;
    // Progress that nobody reads is no fault.
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// One row: its subjects in turns, each with its share of the seconds in every round.
fn measure(
    args: &Args,
    row: &Row,
    subjects: &[Subject],
    programs: &BTreeMap<&'static str, PathBuf>,
    stand: &Stand,
    server_cores: &[usize],
) -> Result<Measured, CommandError> {
    let seconds = args.seconds.unwrap_or(row.seconds) / f64::from(args.rounds);
    let window = Duration::from_secs_f64(seconds.max(0.05));
    let sink = Sink::open(row.carrier, ([127, 0, 0, 1], 0).into())?;
    let mut results: Vec<(Cell, Option<Way>)> = Vec::new();
    for subject in subjects.iter().filter(|subject| row.has(**subject)) {
        let opened = paths::open(*subject, row, sink.address(), programs, stand, server_cores);
        let (way, missing) = match opened {
            Ok(way) => (Some(way), None),
            Err(why) => (None, Some(why.to_string())),
        };
        results.push((Cell { subject: subject.name().to_owned(), rounds: Vec::new(), missing }, way));
    }
    for _ in 0..args.rounds {
        for (cell, way) in &mut results {
            let Some(way) = way else { continue };
            let plan = BulkPlan {
                carrier: row.carrier,
                to: way.listen(),
                rate: row.offered.map(|megabits| megabits * 1e6),
                streams: row.streams,
                datagram: 1400,
                omit: args.warm_up,
                window,
                subject: way.server().map(Server::pid),
            };
            match way.round(&sink, &plan) {
                Ok(outcome) => cell.rounds.push(outcome),
                Err(why) => cell.missing = Some(why.to_string()),
            }
        }
    }
    Ok(Measured {
        id: row.id.to_owned(),
        label: row.label.to_owned(),
        carrier: row.carrier,
        offered: row.offered,
        published: row.published.iter().map(|(who, rate)| ((*who).to_owned(), *rate)).collect(),
        results: results.into_iter().map(|(cell, _)| cell).collect(),
    })
}

fn refuse_idle_flags(args: &Args) -> Result<(), CommandError> {
    let idle = [
        ("--clients", args.clients.is_some()),
        ("--scale-down", args.scale_down),
        ("--dry-run", args.dry_run),
        ("--html", args.output.html.is_some()),
    ];
    match idle.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(CommandError::Usage(format!("portunus has no use for {flag}"))),
        None => Ok(()),
    }
}

fn chosen_rows(args: &Args) -> Result<Vec<&'static Row>, CommandError> {
    for pattern in &args.rows {
        if !ROWS.iter().any(|row| row.matches(pattern)) {
            return Err(CommandError::Usage(format!(
                "no row of portunus fits `{pattern}`; --list shows them"
            )));
        }
    }
    let chosen = |row: &&Row| args.rows.is_empty() || args.rows.iter().any(|pattern| row.matches(pattern));
    Ok(ROWS.iter().filter(chosen).collect())
}

fn chosen_subjects(args: &Args) -> Result<Vec<Subject>, CommandError> {
    for name in &args.subjects {
        if !Subject::ALL.iter().any(|subject| subject.name() == name) {
            let known: Vec<&str> = Subject::ALL.iter().map(|subject| subject.name()).collect();
            let known = known.join(", ");
            return Err(CommandError::Usage(format!("portunus has no subject `{name}`; it has {known}")));
        }
    }
    let chosen = |subject: &Subject| {
        args.subjects.is_empty() || args.subjects.iter().any(|name| name == subject.name())
    };
    Ok(Subject::ALL.into_iter().filter(chosen).collect())
}

/// The programs that are here, by name.
fn programs(args: &Args) -> BTreeMap<&'static str, PathBuf> {
    let gateway = gateway::find_program(args.gateway.as_deref()).map(|path| ("ferrum-edge", path));
    let others = ["haproxy", "nginx", "unshare", "iptables", "ip"];
    gateway.into_iter().chain(others.into_iter().filter_map(|name| Some((name, find(name)?)))).collect()
}

fn versions(programs: &BTreeMap<&'static str, PathBuf>) -> BTreeMap<String, String> {
    let arguments =
        [("ferrum-edge", "--version"), ("haproxy", "-v"), ("nginx", "-v"), ("iptables", "--version")];
    let mut found = BTreeMap::new();
    for (name, argument) in arguments {
        if let Some(path) = programs.get(name) {
            found.extend(machine::versions(&[(name, &path.to_string_lossy(), &[argument])]));
        }
    }
    found
}

#[cfg(test)]
mod tests;
