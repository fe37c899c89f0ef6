//! Runs rounds with a progress line, and makes rows of them.

use std::io::{IsTerminal, Write};
use std::thread;
use std::time::Duration;

use crate::driver::Fault;
use crate::engine::{self, Progress};
use crate::measure::counters::Perf;
use crate::measure::{Role, Watched, process};
use crate::plan::Plan;
use crate::report::model::{Document, Round, Row, Verdict};
use crate::report::{marks, terminal};

/// Shows on standard error what is going on, if that is a terminal.
#[derive(Debug)]
pub struct Console {
    shown: bool,
    label: String,
    repeats: u32,
    counting: bool,
    /// Rounds that were thrown away because strangers disturbed them.
    pub repeated: u32,
}

impl Console {
    /// A console that may be told to be quiet.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        Self {
            shown: !quiet && std::io::stderr().is_terminal(),
            label: String::new(),
            repeats: 0,
            counting: false,
            repeated: 0,
        }
    }

    /// Repeats disturbed rounds up to this many times.
    #[must_use]
    pub fn repeating(mut self, times: u32) -> Self {
        self.repeats = times;
        self
    }

    /// Has `perf` count what the process under test does in each round.
    #[must_use]
    pub fn counting(mut self, counting: bool) -> Self {
        self.counting = counting;
        self
    }

    /// What the next rounds are about.
    pub fn label(&mut self, label: impl Into<String>) {
        self.label = label.into();
    }

    /// Runs one round.
    ///
    /// # Errors
    /// The plan cannot work at all.
    pub fn round(&mut self, plan: &Plan, watched: &[Watched]) -> Result<Round, Fault> {
        let mut left = self.repeats;
        loop {
            let subject = watched.iter().find(|watched| self.counting && watched.role == Role::Subject);
            let mut perf = None;
            let outcome = engine::run(plan, watched, &mut |progress| {
                if let (Progress::Running { .. }, None, Some(subject)) = (progress, &perf, subject) {
                    let pids = [vec![subject.pid], process::descendants(subject.pid)].concat();
                    perf = Some(Perf::start(&pids).ok());
                }
                self.tell(progress);
            })?;
            self.clear();
            let mut round = Round::new(plan, &outcome);
            let cost = round.subject.as_ref().map_or(0.0, |usage| usage.cpu_us_per_request);
            round.counts = perf.flatten().and_then(|perf| perf.end(cost));
            // The choice looks at strangers' CPU time only, never at the figures, and never hides a fault.
            let disturbed = round.marks.iter().any(|mark| mark == marks::DISTURBED);
            if left == 0 || !disturbed || !round.faults.is_empty() {
                return Ok(round);
            }
            left -= 1;
            self.repeated += 1;
            self.wait_quiet();
        }
    }

    /// Waits until hardly anything runs, but not for ever.
    fn wait_quiet(&self) {
        const LOOK: Duration = Duration::from_millis(500);
        for _ in 0..240 {
            let before = process::machine_time();
            thread::sleep(LOOK);
            let busy = process::machine_time().busy.saturating_sub(before.busy);
            if busy < LOOK / 8 {
                return;
            }
            self.line("waiting for a quiet machine");
        }
    }

    /// Says in a document how many rounds were repeated.
    pub fn note_repeats(&self, document: &mut Document) {
        if self.repeated > 0 {
            document.notes.push(format!(
                "{} rounds were repeated because other processes used the machine meanwhile (--repeat-disturbed).",
                self.repeated
            ));
        }
    }

    /// Shows a line that is not about a round.
    pub fn say(&self, text: &str) {
        self.line(text);
    }

    /// Takes the line away.
    pub fn clear(&self) {
        if self.shown {
            // A closed standard error means that nobody is watching.
            write!(std::io::stderr(), "\r\x1b[K").ok();
        }
    }

    fn tell(&self, progress: Progress) {
        if !self.shown {
            return;
        }
        match progress {
            Progress::Connecting { done, of } => self.line(&format!("connecting {done}/{of}")),
            Progress::WarmingUp { left } => {
                self.line(&format!("warming up, {:.0} s", left.as_secs_f64().ceil()))
            }
            Progress::Running { elapsed, of, completed, latency } => {
                let share = elapsed.as_secs_f64() / of.as_secs_f64();
                #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
                let rate = completed as f64 / elapsed.as_secs_f64().max(1e-3);
                let latency = latency.map_or_else(String::new, |[p50, p99]| {
                    format!("  p50 {} p99 {}", terminal::duration(p50), terminal::duration(p99))
                });
                self.line(&format!("{} {:3.0} %  {rate:.0}/s{latency}", bar(share), share * 100.0));
            }
        }
    }

    fn line(&self, text: &str) {
        if self.shown {
            write!(std::io::stderr(), "\r\x1b[K{:<28} {text}", self.label).ok();
        }
    }
}

fn bar(share: f64) -> String {
    const WIDTH: usize = 24;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and WIDTH")]
    let full = (share.clamp(0.0, 1.0) * WIDTH as f64) as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(WIDTH - full))
}

/// An empty row of a plan.
#[must_use]
pub fn row(id: &str, label: &str, subject: &str, plan: &Plan) -> Row {
    Row {
        id: id.to_owned(),
        label: label.to_owned(),
        subject: subject.to_owned(),
        path: plan.target.url(),
        load: plan.load,
        payload: plan.message.payload,
        expect: plan.expect,
        rounds: Vec::new(),
        verdict: Verdict::Valid,
        summary: None,
        marks: Vec::new(),
        simulated: None,
        left_out: 0,
    }
}
