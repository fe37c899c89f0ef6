//! `sweep`: open loop at rising rates.

use super::measure::{Console, row};
use super::run::{note_limits, watched};
use super::{CommandError, output};
use crate::command::ExitStatus;
use crate::load_args::{LoadArgs, OutputArgs};
use crate::plan::{Pace, Target};
use crate::report::{Document, ReportKind};

/// Arguments of `sweep`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// As for `run`.
    target: String,
    /// Rates, requests a second; without them, ten steps from 10 % to 100 % of what a closed loop reaches.
    #[arg(long, value_delimiter = ',')]
    rates: Vec<f64>,
    /// Measures CPU and memory of this process and its children.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the sweep, all its rates in each round.
///
/// # Errors
/// A target that cannot be read, or a result that cannot be written.
pub fn run(args: &Args) -> Result<ExitStatus, CommandError> {
    let target = Target::parse(&args.target)?;
    let mut document = Document::begin(ReportKind::Sweep);
    let mut console = Console::new(args.output.quiet).repeating(args.load.repeat_disturbed);
    args.load.suits(&target)?;
    let mut plan = args.load.plan(target);
    let rates = if args.rates.is_empty() {
        plan.load.pace = Pace::Closed;
        console.label("finding the limit");
        let limit = console.round(&plan, &watched(args.pid))?;
        document.notes.push(format!("A closed loop reached {:.0} requests a second.", limit.rate));
        (1..=10).map(|tenth| (limit.rate * f64::from(tenth) / 10.0).round()).collect()
    } else {
        args.rates.clone()
    };
    let plans: Vec<_> = rates
        .iter()
        .map(|rate| {
            let mut plan = plan.clone();
            plan.load.pace = Pace::Open { rate: *rate };
            plan
        })
        .collect();
    for (plan, rate) in plans.iter().zip(&rates) {
        note_limits(&mut document, plan);
        document.rows.push(row(&format!("rate-{rate:.0}"), &format!("{rate:.0}/s"), "target", plan));
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
