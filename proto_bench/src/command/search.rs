//! `search`: the highest rate at which a percentile of the latency stays below a limit; with several limits, the frontier.

use std::time::Duration;

use super::measure::{Console, row};
use super::run::{note_limits, watched};
use super::{CommandError, output};
use crate::command::ExitStatus;
use crate::load_args::{LoadArgs, OutputArgs, parse_duration};
use crate::plan::{Pace, Plan, Target};
use crate::report::model::Round;
use crate::report::{Document, ReportKind};

/// Arguments of `search`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// As for `run`.
    target: String,
    /// Limits of the 99th percentile, such as 10ms or 1ms,5ms,10ms,50ms,100ms.
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "10ms", value_parser = parse_duration)]
    p99: Vec<Duration>,
    /// Where a search ends: when the rate is known to this share of what a closed loop reaches.
    #[arg(long, default_value_t = 0.03, value_name = "SHARE", value_parser = share)]
    precision: f64,
    /// Measures CPU and memory of this process and its children.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is known of the rates so far.
#[derive(Debug, Default)]
struct Known {
    /// By rate, in the order in which they were tried.
    tried: Vec<(f64, Round)>,
}

impl Known {
    /// The highest rate that holds a limit, and the lowest that does not.
    fn bounds(&self, limit: Duration, most: f64) -> (f64, f64) {
        let failing = self.tried.iter().filter(|(_, round)| !holds(round, limit));
        let low = failing.map(|(rate, _)| *rate).fold(most, f64::min);
        // A rate above one that fails is luck.
        let holding = self.tried.iter().filter(|(rate, round)| *rate < low && holds(round, limit));
        (holding.map(|(rate, _)| *rate).fold(0.0, f64::max), low)
    }

    /// The rate to try next; `None` once the limit's rate is known well enough.
    fn next(&self, limit: Duration, most: f64, precision: f64) -> Option<f64> {
        let (holding, failing) = self.bounds(limit, most);
        (failing - holding > precision * most).then(|| f64::midpoint(holding, failing))
    }

    fn round(&self, rate: f64) -> Option<&Round> {
        self.tried.iter().find(|(tried, _)| (*tried - rate).abs() < f64::EPSILON).map(|(_, round)| round)
    }
}

/// Whether a round keeps its rate, with right answers, and its 99th percentile below the limit.
fn holds(round: &Round, limit: Duration) -> bool {
    let sustained = round.open_loop.as_ref().is_some_and(|open| open.sustained);
    sustained && round.void.is_empty() && round.latency.p99_us <= limit.as_secs_f64() * 1e6
}

/// Runs the search.
///
/// # Errors
/// A target that cannot be read, or a result that cannot be written.
pub fn run(args: &Args) -> Result<ExitStatus, CommandError> {
    let target = Target::parse(&args.target)?;
    args.load.suits(&target)?;
    if args.load.rate.is_some() {
        return Err(CommandError::Usage("the rate is what is searched for; leave -r out".to_owned()));
    }
    let mut document = Document::begin(ReportKind::Sweep);
    let mut console = Console::new(args.output.quiet).repeating(args.load.repeat_disturbed);
    let plan = args.load.plan(target);
    note_limits(&mut document, &plan);
    console.label("finding the limit");
    let closed = console.round(&plan, &watched(args.pid))?;
    if !closed.void.is_empty() {
        let why = closed.void.join("; ");
        return Err(CommandError::Usage(format!("a closed loop has no valid round to begin with: {why}")));
    }
    let most = closed.rate;
    document.notes.push(format!(
        "A closed loop of {} connections reached {most:.0} requests a second. Latencies begin when a request is due, whether or not it \
         could be sent then. Rates are known to {:.1} % of that.",
        plan.load.connections,
        args.precision * 100.0
    ));
    let mut known = Known::default();
    let mut limits = args.p99.clone();
    limits.sort();
    limits.dedup();
    for limit in limits {
        search(args, limit, most, &plan, &mut known, &mut console)?;
        conclude(limit, most, &plan, &known, &mut document);
    }
    document.rows.iter_mut().for_each(crate::report::Row::conclude);
    console.note_repeats(&mut document);
    output::deliver(document, &args.output)
}

fn search(
    args: &Args,
    limit: Duration,
    most: f64,
    plan: &Plan,
    known: &mut Known,
    console: &mut Console,
) -> Result<(), CommandError> {
    while let Some(rate) = known.next(limit, most, args.precision) {
        let mut plan = plan.clone();
        plan.load.pace = Pace::Open { rate };
        console.label(format!("p99 below {limit:?}: {rate:.0}/s"));
        let round = console.round(&plan, &watched(args.pid))?;
        known.tried.push((rate, round));
    }
    Ok(())
}

/// A row with the round of the highest rate that holds, or a note that none does.
fn conclude(limit: Duration, most: f64, plan: &Plan, known: &Known, document: &mut Document) {
    let (rate, _) = known.bounds(limit, most);
    let Some(round) = known.round(rate) else {
        document.notes.push(format!("No rate keeps the 99th percentile below {limit:?}."));
        return;
    };
    let mut plan = plan.clone();
    plan.load.pace = Pace::Open { rate };
    let mut found =
        row(&format!("p99-{limit:?}"), &format!("p99 below {limit:?}: {rate:.0}/s"), "target", &plan);
    found.rounds.push(round.clone());
    document.rows.push(found);
}

/// Why a text is no share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum ShareError {
    #[error("`{0}` is no number")]
    Number(String),
    #[error("write 0.001 to 0.5")]
    Range,
}

fn share(text: &str) -> Result<f64, ShareError> {
    let share: f64 = text.parse().map_err(|_| ShareError::Number(text.to_owned()))?;
    if (0.001..=0.5).contains(&share) { Ok(share) } else { Err(ShareError::Range) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{Latency, OpenLoop};

    /// A server whose 99th percentile is 1 ms up to 600 a second and 1 ms more for each request a second beyond.
    fn served(rate: f64) -> Round {
        let p99_us = 1e3 + (rate - 600.0).max(0.0) * 1e3;
        let open = OpenLoop { asked_rate: rate, sustained: rate <= 900.0, never_started: 0 };
        let mut round: Round = serde_json::from_value(serde_json::json!({})).unwrap_or_else(|_| empty());
        round.latency = Latency { p99_us, ..Latency::default() };
        round.open_loop = Some(open);
        round
    }

    fn empty() -> Round {
        let plan = Plan::new(Target::at(crate::plan::Protocol::Tcp, false, ([127, 0, 0, 1], 9).into()));
        let outcome = crate::engine::run(
            &Plan {
                timing: crate::plan::Timing {
                    warm_up: Duration::ZERO,
                    duration: Duration::from_millis(20),
                    timeout: Duration::from_millis(20),
                    connect: Duration::from_millis(20),
                },
                load: crate::plan::Load { connections: 1, streams: 1, pace: Pace::Open { rate: 10.0 } },
                threads: 1,
                ..plan.clone()
            },
            &[],
            &mut |_| {},
        );
        let mut round = Round::new(&plan, &outcome.expect("a plan that can run"));
        round.void.clear();
        round
    }

    fn highest_rate(known: &mut Known, limit: u64) -> f64 {
        let limit = Duration::from_millis(limit);
        while let Some(rate) = known.next(limit, 1000.0, 0.01) {
            known.tried.push((rate, served(rate)));
        }
        known.bounds(limit, 1000.0).0
    }

    #[test]
    fn the_highest_rate_that_holds_is_found_and_rounds_are_used_again() {
        let mut known = Known::default();
        let one = highest_rate(&mut known, 1);
        assert!((590.0..=600.0).contains(&one), "{one}");
        let tried = known.tried.len();
        assert!(tried <= 8, "{tried} rounds");
        let hundred = highest_rate(&mut known, 100);
        assert!((690.0..=700.0).contains(&hundred), "{hundred}");
        assert!(known.tried.len() < 2 * tried, "what is known is not measured again");
        // Beyond 900 a second nothing is sustained, whatever the latency.
        let any = highest_rate(&mut known, 10_000);
        assert!((890.0..=900.0).contains(&any), "{any}");
    }

    #[test]
    fn a_limit_that_no_rate_holds_has_none() {
        let mut known = Known::default();
        assert!(highest_rate(&mut known, 0) < f64::EPSILON);
    }
}
