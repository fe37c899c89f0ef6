//! One request before a round, to see what the server answers.

use std::rc::Rc;

use tokio::runtime::{Builder, LocalOptions};
use tokio::time::timeout;

use crate::driver::{self, Driver, Fault, Lane, Stamp, VerifiedAnswer};
use crate::plan::{Expect, ExpectBody, Plan, Protocol};

/// What the server answers to a request of this plan, whatever its status and its body.
///
/// # Errors
/// No answer, or a protocol other than HTTP.
pub fn first_answer(plan: &Plan) -> Result<VerifiedAnswer, Fault> {
    match plan.target.protocol {
        Protocol::Http1 => ask(plan, driver::h1::H1::new),
        Protocol::Http2 => ask(plan, driver::h2::H2::new),
        Protocol::Http3 => ask(plan, driver::h3::H3::new),
        _ => Err(Fault::protocol("only HTTP has answers with a status")),
    }
}

fn ask<D: Driver>(
    plan: &Plan,
    make: impl Fn(&Rc<Plan>) -> Result<D, Fault>,
) -> Result<VerifiedAnswer, Fault> {
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).map_err(Fault::Io)?;
    let mut plan = plan.clone();
    plan.expect = Expect { status: plan.expect.status, body: ExpectBody::Unverified, refused: None };
    let mut answer = runtime.block_on(async { timeout(plan.timing.timeout, once(&plan, &make)).await });
    if let Ok(Err(Fault::Status { got, .. })) = answer {
        plan.expect.status = got;
        answer = runtime.block_on(async { timeout(plan.timing.timeout, once(&plan, &make)).await });
    }
    runtime.shutdown_background();
    answer.unwrap_or(Err(Fault::Timeout))
}

async fn once<D: Driver>(
    plan: &Plan,
    make: &impl Fn(&Rc<Plan>) -> Result<D, Fault>,
) -> Result<VerifiedAnswer, Fault> {
    let mut opened = make(&Rc::new(plan.clone()))?.connect().await?;
    let lane = opened.lanes.first_mut().ok_or(Fault::Closed)?;
    lane.round_trip(Stamp { connection: 0, lane: 0, sequence: 1 }).await
}
