//! `replay`: the published tests of other projects, here and now, with the published figures beside ours.

use std::path::PathBuf;
use std::time::Duration;

use super::measure::Console;
use super::stand::Stand;
use super::{CommandError, output};
use crate::command::ExitStatus;
use crate::load_args::{OutputArgs, parse_duration};
use crate::measure::machine;
use crate::peers::{Peer, gateway};
use crate::process::{BackendProcess, find, pin_self};
use crate::replay::tokens::Tokens;
use crate::replay::{self, Program, Row, Seed, Subject, Table, content};
use crate::report::model::Replay;
use crate::report::{self, Document, ReportKind};

mod bench;
mod portunus;
mod show;

use bench::{Bench, Sizes};

/// Whose tests there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Tests {
    /// Static files, a proxy, tokens, limits, a cache, scripts, compression, a mirror.
    Conduit,
    /// A proxy behind TLS with a firewall and a cache.
    Zion,
    /// Fixed answers, files and a proxy, 10 to 10,000 clients.
    Hotdogs,
    /// Bulk over TCP and UDP: as fast as it goes, under a cap, and at 100 Mbit/s to 20 Gbit/s offered.
    Portunus,
}

impl Tests {
    /// The table of requests; `None` for bulk.
    fn seed(self) -> Option<Seed> {
        match self {
            Self::Conduit => Some(Seed::Conduit),
            Self::Zion => Some(Seed::Zion),
            Self::Hotdogs => Some(Seed::Hotdogs),
            Self::Portunus => None,
        }
    }
}

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Whose tests.
    #[arg(value_enum)]
    seed: Tests,
    /// Rows with this in their id or label; `*` stands for anything. May be repeated. All without it.
    #[arg(long = "row", value_name = "PATTERN", value_delimiter = ',')]
    rows: Vec<String>,
    /// Whom to measure, by the names of the table; those that are not installed are left out, and the report says so.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    subjects: Vec<String>,
    /// Measured time of each subject in each row, over all its rounds [default: as published].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,
    /// Clients of every row [default: as published].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(replay::MOST_CLIENTS)))]
    clients: Option<u32>,
    /// Rounds, in which the subjects take turns; each has its share of the seconds.
    #[arg(short = 'R', long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Load before each round that is not counted.
    #[arg(short = 'w', long, default_value = "500ms", value_parser = parse_duration)]
    warm_up: Duration,
    /// Takes fewer clients where this machine's limit of open files is too low for a row, and says so; without it the row is
    /// left out.
    #[arg(long)]
    scale_down: bool,
    /// Shows the rows with their published figures, and ends.
    #[arg(long)]
    list: bool,
    /// Shows the configurations of the rows, and ends.
    #[arg(long, conflicts_with = "list")]
    dry_run: bool,
    /// The gateway's program; without it, `ferrum-edge` beside this program or in the search path.
    #[arg(long, value_name = "PROGRAM")]
    gateway: Option<PathBuf>,
    /// Cores of the subjects, with as many workers [default: the first half].
    #[arg(long, value_delimiter = ',', value_name = "CORES")]
    server_cores: Vec<usize>,
    /// Cores of generator and backends [default: the others].
    #[arg(long, value_delimiter = ',', value_name = "CORES")]
    generator_cores: Vec<usize>,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is said of a gateway in a folder `debug`.
const UNOPTIMISED: &str = "The gateway's program is in a folder `debug`: an unoptimised build, whose figures show only that the \
                           rows work.";

/// Runs the replay.
///
/// # Errors
/// A name that is not in the table, cores that are not there, or a result that cannot be written.
pub fn run(args: &Args) -> Result<ExitStatus, CommandError> {
    let Some(seed) = args.seed.seed() else { return portunus::run(args) };
    let table = seed.table()?;
    let rows = chosen_rows(args, seed, &table)?;
    let subjects = chosen_subjects(args, &table)?;
    if args.list {
        output::print(&show::list(&rows))?;
        return Ok(ExitStatus::Valid);
    }
    if args.dry_run {
        output::print(&show::configurations(&table, &rows, &subjects))?;
        return Ok(ExitStatus::Valid);
    }
    let (server_cores, generator_cores) = cores(args);
    pin_self(&generator_cores).map_err(|source| CommandError::Pin {
        core: generator_cores.first().copied().unwrap_or_default(),
        source,
    })?;
    let mut document = begin(args, seed, &table, &subjects, &server_cores, &generator_cores);
    let mut console = Console::new(args.output.quiet);
    let bench = prepare(args, &table, &subjects, server_cores, &generator_cores)?;
    let many = rows.len();
    for (number, row) in (1..).zip(rows) {
        bench.row(row, &mut document, &mut console)?;
        if number < many {
            // A replay takes long: what is there is kept even if the rest never comes.
            output::save(&document, &args.output)?;
        }
    }
    document.rows.iter_mut().for_each(report::Row::conclude);
    output::deliver(document, &args.output)
}

/// Backends, files, scripts and tokens.
fn prepare<'a>(
    args: &Args,
    table: &'a Table,
    subjects: &[&'a Subject],
    server_cores: Vec<usize>,
    generator_cores: &[usize],
) -> Result<Bench<'a>, CommandError> {
    let stand = Stand::new()?;
    let (site, scripts) = (stand.directory.join("site"), stand.directory.join("scripts"));
    content::write(table, &site, &scripts)?;
    let tokens = Tokens::make(&scripts)?;
    let certificates = stand.directory.to_string_lossy().into_owned();
    let threads = generator_cores.len().max(1).to_string();
    let arguments = ["-p", "http", "--threads", &threads, "--write-certificate", &certificates];
    let backend = BackendProcess::start(&arguments, generator_cores)?;
    let mirrors =
        table.setups.values().flat_map(|setup| setup.with.values()).any(|it| it.contains("{{mirror}}"));
    let mirror = match mirrors {
        true => Some(BackendProcess::start(&["-p", "http", "--threads", &threads], generator_cores)?),
        false => None,
    };
    let programs = subjects.iter().map(|subject| (*subject, program(args, subject.program))).collect();
    let sizes = Sizes {
        seconds: args.seconds,
        clients: args.clients,
        rounds: args.rounds,
        warm_up: args.warm_up,
        scale_down: args.scale_down,
        descriptors: machine::raise_open_files(),
    };
    Ok(Bench { table, programs, sizes, stand, backend, mirror, tokens, server_cores })
}

fn begin(
    args: &Args,
    seed: Seed,
    table: &Table,
    subjects: &[&Subject],
    server_cores: &[usize],
    generator_cores: &[usize],
) -> Document {
    let mut document = Document::begin(ReportKind::Replay);
    let mut seen = Vec::new();
    for kind in subjects.iter().map(|subject| subject.program) {
        if seen.contains(&kind) {
            continue;
        }
        seen.push(kind);
        match program(args, kind) {
            Some(found) => {
                if kind == Program::Gateway && found.components().any(|part| part.as_os_str() == "debug") {
                    document.notes.push(UNOPTIMISED.to_owned());
                }
                let found = found.to_string_lossy();
                let versions = machine::versions(&[(kind.name(), &found, peer(kind).version_arguments())]);
                document.versions.extend(versions);
            }
            None => document.notes.push(missing(kind)),
        }
    }
    let list = |cores: &[usize]| cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let measured = args.seconds.map_or_else(|| "as published".to_owned(), |seconds| format!("{seconds} s"));
    let settings = [
        (
            "cores",
            format!(
                "subjects on {}; generator and backends on {}",
                list(server_cores),
                list(generator_cores)
            ),
        ),
        (
            "rounds",
            format!(
                "{measured} a row and subject in {} rounds, each after {:?} of warm-up, subjects in turns and all up at once",
                args.rounds, args.warm_up
            ),
        ),
    ];
    document.settings.extend(settings.map(|(name, value)| (name.to_owned(), value)));
    document.notes.push(
        "Published figures are of another machine: their rates are context and no yardstick. What can be compared is one \
         row with another of the same source, and our rows with each other."
            .to_owned(),
    );
    document.notes.push(
        "Bodies of all answers are compared byte by byte. Files, fixed answers and answers of caches carry no stamp, so that \
         an answer that belongs to another request for the same bytes would not show."
            .to_owned(),
    );
    document.notes.extend(table.notes.iter().cloned());
    document.replay = Some(Replay {
        seed: seed.name().to_owned(),
        title: table.title.clone(),
        source: table.source.clone(),
        conditions: table.conditions.clone(),
        rows: Vec::new(),
        starts: Vec::new(),
        at_rest: table.at_rest.clone(),
    });
    document
}

fn chosen_rows<'t>(args: &Args, seed: Seed, table: &'t Table) -> Result<Vec<&'t Row>, CommandError> {
    for pattern in &args.rows {
        if !table.rows.iter().any(|row| row.matches(pattern)) {
            return Err(CommandError::Usage(format!(
                "no row of {} fits `{pattern}`; --list shows them",
                seed.name()
            )));
        }
    }
    let chosen = |row: &&Row| args.rows.is_empty() || args.rows.iter().any(|pattern| row.matches(pattern));
    Ok(table.rows.iter().filter(chosen).collect())
}

fn chosen_subjects<'t>(args: &Args, table: &'t Table) -> Result<Vec<&'t Subject>, CommandError> {
    for name in &args.subjects {
        if table.subject(name).is_none() {
            let known: Vec<&str> = table.subjects.iter().map(|subject| subject.name.as_str()).collect();
            return Err(CommandError::Usage(format!(
                "{} has no subject `{name}`; it has {}",
                table.title,
                known.join(", ")
            )));
        }
    }
    let chosen = |subject: &&Subject| args.subjects.is_empty() || args.subjects.contains(&subject.name);
    Ok(table.subjects.iter().filter(chosen).collect())
}

/// The subjects' cores and the others, as told, or half of the machine each.
fn cores(args: &Args) -> (Vec<usize>, Vec<usize>) {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let half = (all / 2).max(1);
    let or = |told: &[usize], usual: std::ops::Range<usize>| match told {
        [] if usual.is_empty() => vec![0],
        [] => usual.collect(),
        told => told.to_vec(),
    };
    (or(&args.server_cores, 0..half), or(&args.generator_cores, half..all))
}

/// The program of a subject, if it is here.
fn program(args: &Args, kind: Program) -> Option<PathBuf> {
    match kind {
        Program::Gateway => gateway::find_program(args.gateway.as_deref()),
        kind => find(kind.name()),
    }
}

fn peer(kind: Program) -> Peer {
    match kind {
        Program::Gateway => Peer::Gateway,
        Program::Nginx => Peer::Nginx,
        Program::Haproxy => Peer::Haproxy,
        Program::Caddy => Peer::Caddy,
    }
}

/// What is said of a program that is not here.
fn missing(kind: Program) -> String {
    match kind {
        Program::Gateway => "No ferrum-edge program was found; give one with --gateway.".to_owned(),
        kind => format!("{0} is not installed here (apt-get install {0}).", kind.name()),
    }
}

/// Why a text is no time that a row may take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum SecondsError {
    #[error("`{0}` is no number of seconds")]
    Number(String),
    #[error("write 0.1 to 3600")]
    Range,
}

fn seconds(text: &str) -> Result<f64, SecondsError> {
    let number = text.trim_end_matches('s').parse();
    let seconds: f64 = number.map_err(|_| SecondsError::Number(text.to_owned()))?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err(SecondsError::Range) }
}
