//! `clients`: the same test from more and more connections.

use super::measure::{Console, row};
use super::run::{note_limits, watched};
use super::{CommandError, output};
use crate::command::ExitStatus;
use crate::load_args::{LoadArgs, OutputArgs};
use crate::plan::Target;
use crate::report::{Document, ReportKind};

/// Arguments of `clients`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// As for `run`.
    target: String,
    /// Numbers of connections, rising.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 200, 500, 1_000, 10_000])]
    steps: Vec<u32>,
    /// Measures CPU and memory of this process and its children.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the ramp, all its steps in each round.
///
/// # Errors
/// A target that cannot be read, or a result that cannot be written.
pub fn run(args: &Args) -> Result<ExitStatus, CommandError> {
    let target = Target::parse(&args.target)?;
    args.load.suits(&target)?;
    if args.load.connections.is_some() {
        return Err(CommandError::Usage(
            "the numbers of connections are those of --steps, not -c".to_owned(),
        ));
    }
    let mut document = Document::begin(ReportKind::Clients);
    let mut console = Console::new(args.output.quiet).repeating(args.load.repeat_disturbed);
    let plans: Vec<_> = args
        .steps
        .iter()
        .map(|connections| {
            let mut plan = args.load.plan(target.clone());
            plan.load.connections = *connections;
            plan
        })
        .collect();
    for plan in &plans {
        note_limits(&mut document, plan);
        let connections = plan.load.connections;
        document.rows.push(row(
            &format!("clients-{connections}"),
            &format!("{connections} connections"),
            "target",
            plan,
        ));
    }
    for _ in 0..args.load.rounds() {
        for (row, plan) in document.rows.iter_mut().zip(&plans) {
            console.label(row.label.clone());
            row.rounds.push(console.round(plan, &watched(args.pid))?);
        }
    }
    document.rows.iter_mut().for_each(crate::report::Row::conclude);
    console.note_repeats(&mut document);
    output::deliver(document, &args.output)
}
