//! Decides whether a round may be quoted, and under which reservations.

use std::time::Duration;

use super::marks;
use super::model::Round;
use crate::engine::RoundOutcome;
use crate::plan::{ExpectBody, Pace, Plan};

/// The generator, or a backend, used this share of its cores: then it was the limit, not the subject.
const AT_ITS_LIMIT: f64 = 0.95;
/// Less idle time than this, in cores, and the machine as a whole was the limit.
const NO_IDLE: f64 = 0.1;
/// More foreign CPU time than this, in cores, and the round was disturbed.
const DISTURBED: f64 = 0.15;

/// Fills in a round's void reasons and marks.
pub fn judge(plan: &Plan, outcome: &RoundOutcome, round: &mut Round) {
    round.void = void_reasons(plan, outcome, round);
    round.marks = reservations(plan, round);
}

fn void_reasons(plan: &Plan, outcome: &RoundOutcome, round: &Round) -> Vec<String> {
    let mut reasons: Vec<String> = round
        .faults
        .iter()
        .map(|fault| format!("{} {} (first: {})", fault.count, fault.kind.name(), fault.example))
        .collect();
    if round.completed == 0 {
        reasons.push("no verified answer at all".to_owned());
    }
    let asked = u64::from(plan.load.connections);
    if !plan.message.fresh && outcome.tally.opened < asked {
        reasons.push(format!("only {} of {asked} connections opened", outcome.tally.opened));
    }
    if let Some(law) = round.littles_law.filter(|law| !law.holds && round.completed > 0) {
        reasons.push(format!(
            "Little's law broken: rate x mean latency is {:.1} in flight on {} lanes",
            law.in_flight, law.lanes
        ));
    }
    for (watched, consumed) in &outcome.watched {
        if consumed.gone {
            reasons.push(format!("{} (pid {}) ended during the round", watched.name, watched.pid));
        }
    }
    reasons
}

fn reservations(plan: &Plan, round: &Round) -> Vec<String> {
    let mut found = Vec::new();
    let mut mark = |condition: bool, name: &str| {
        if condition {
            found.push(name.to_owned());
        }
    };
    let generator = &round.generator;
    mark(generator.cores_used >= AT_ITS_LIMIT * generator.cores_allowed, marks::GENERATOR);
    let backend = round.backend.as_ref();
    mark(backend.is_some_and(|usage| usage.cores_used >= AT_ITS_LIMIT * usage.cores_allowed), marks::BACKEND);
    mark(round.machine.idle < NO_IDLE, marks::MACHINE);
    mark(round.machine.foreign > DISTURBED, marks::DISTURBED);
    mark(round.machine.stolen > 0.05, marks::STOLEN);
    mark(round.unstamped > 0, marks::UNSTAMPED);
    mark(!plan.expect.body.is_verified(), marks::UNVERIFIED);
    mark(round.open_loop.is_some_and(|open| !open.sustained), marks::UNSUSTAINED);
    let late = round.generator_lateness.as_ref().is_some_and(|late| {
        // Lateness shows in every latency; it is of no account while it is small against them.
        late.p99_us > (round.latency.p99_us / 4.0).max(500.0)
    });
    mark(late, marks::LATE_GENERATOR);
    found
}

/// What a round cannot tell, in words.
#[must_use]
pub fn limits_of(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    if plan.load.pace == Pace::Closed {
        notes.push(
            "Closed loop: each lane waits for its answer before it asks again, so a server that stalls is asked less \
             while it stalls, and the requests that would have met the stall are missing from the percentiles. Use \
             --rate for latencies that include them."
                .to_owned(),
        );
    }
    match plan.expect.body {
        ExpectBody::Echo | ExpectBody::Content(_) => {}
        ExpectBody::Size(_) if plan.urls.len() > 1 => {
            notes.push("Contents of answers are not verified, only their sizes.".to_owned());
        }
        ExpectBody::Size(size) => {
            notes.push(format!("Contents of answers are not verified, only that they have {size} bytes."));
        }
        ExpectBody::Unverified => notes.push("Contents and sizes of answers are not verified.".to_owned()),
    }
    if plan.message.fresh {
        notes.push(
            "A new connection for each request, closed by reset; sessions are never resumed.".to_owned(),
        );
    }
    if plan.timing.warm_up < Duration::from_secs(1) {
        notes.push("Less than a second of warm-up.".to_owned());
    }
    notes
}
