//! `run`: one test against a URL or address.

use super::measure::{Console, row};
use super::{CommandError, output};
use crate::cli::{ExitStatus, LoadArgs, OutputArgs};
use crate::measure::{Role, Watched};
use crate::plan::{Plan, Protocol, Target};
use crate::report::judge;
use crate::report::{Document, ReportKind};

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// http:// https:// h2c:// h2:// h3:// grpc:// grpcs:// ws:// wss:// tcp:// tls:// udp:// dtls://
    target: String,
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
    let mut target = Target::parse(&args.target)?;
    if args.h2 && target.protocol == Protocol::Http1 {
        target.protocol = Protocol::Http2;
    }
    if args.h3 && target.protocol == Protocol::Http1 {
        (target.protocol, target.tls) = (Protocol::Http3, true);
    }
    args.load.suits(&target)?;
    let plan = args.load.plan(target);
    let mut document = Document::begin(ReportKind::Run);
    document.notes = judge::limits_of(&plan);
    let mut console = Console::new(args.output.quiet).repeating(args.load.repeat_disturbed);
    console.label(plan.target.url());
    let mut result = row("run", &plan.target.url(), "target", &plan);
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
