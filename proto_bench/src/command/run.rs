//! `run`: one test against a URL or address, or several URLs of one server.

use std::path::PathBuf;

use super::measure::{Console, row};
use super::{CommandError, output, urls};
use crate::command::ExitStatus;
use crate::load_args::{LoadArgs, OutputArgs};
use crate::measure::{Role, Watched};
use crate::plan::{Plan, Protocol};
use crate::report::judge;
use crate::report::{Document, ReportKind};

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// http:// https:// h2c:// h2:// h3:// grpc:// grpcs:// ws:// wss:// tcp:// tls:// udp:// dtls://; several of one server over HTTP
    /// take turns.
    #[arg(required_unless_present = "urls")]
    targets: Vec<String>,
    /// File of further URLs of the server, one a line, each with a weight behind it where it is to be asked for more often.
    #[arg(long, value_name = "FILE")]
    urls: Option<PathBuf>,
    /// Speaks HTTP/2 to an http:// or https:// target.
    #[arg(long, conflicts_with = "h3")]
    h2: bool,
    /// Speaks HTTP/3 to an https:// target.
    #[arg(long)]
    h3: bool,
    /// Measures CPU and memory of this process and its children.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the test.
///
/// # Errors
/// A target that cannot be read, or a result that cannot be written.
pub fn run(args: Args) -> Result<ExitStatus, CommandError> {
    let targets = urls::targets(&args.targets, args.urls.as_deref())?;
    let Some((mut target, _)) = targets.first().cloned() else {
        return Err(CommandError::Usage("give a URL".to_owned()));
    };
    if args.h2 && target.protocol == Protocol::Http1 {
        target.protocol = Protocol::Http2;
    }
    if args.h3 && target.protocol == Protocol::Http1 {
        (target.protocol, target.tls) = (Protocol::Http3, true);
    }
    let load = args.load.for_any_server(&target);
    load.suits(&target)?;
    let mut plan = load.plan(target);
    urls::ask_for_all(&mut plan, &targets);
    let firsts = urls::expect_first_answers(&load, &mut plan);
    let mut document = Document::begin(ReportKind::Run);
    document.notes = judge::limits_of(&plan);
    document.notes.extend(firsts);
    let mut console = Console::new(args.output.quiet).repeating(args.load.repeat_disturbed);
    let more = match targets.len() {
        1 => String::new(),
        all => format!(" and {} more", all - 1),
    };
    console.label(format!("{}{more}", plan.target.url()));
    let mut result = row("run", &plan.target.url(), "target", &plan);
    result.path.push_str(&more);
    for _ in 0..args.load.rounds() {
        result.rounds.push(console.round(&plan, &watched(args.pid))?);
    }
    result.conclude();
    document.rows.push(result);
    console.note_repeats(&mut document);
    output::deliver(document, &args.output)
}

/// The process under test, if its pid is known.
#[must_use]
pub fn watched(pid: Option<u32>) -> Vec<Watched> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::cast_precision_loss, reason = "a number of cores")]
    let watch = |pid| Watched { role: Role::Subject, name: "target".to_owned(), pid, cores: cores as f64 };
    pid.map(watch).into_iter().collect()
}

/// Adds what a plan cannot tell to a document, once.
pub fn note_limits(document: &mut Document, plan: &Plan) {
    for note in judge::limits_of(plan) {
        if !document.notes.contains(&note) {
            document.notes.push(note);
        }
    }
}
