//! Drives the lanes of a connection: turn, round trip, record, until the window is over or the connection lost.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::task::spawn_local;

use super::world::{Stage, World};
use crate::driver::{Driver, Fault, Lane, NewConnection, Stamp, VerifiedAnswer};
use crate::pace::Timeout;

/// How a lane, or a whole connection, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneEnd {
    /// The window is over.
    Over,
    /// The server said that it closes the connection; no fault.
    Closing,
    /// A fault ended the connection.
    Lost,
}

/// Drives all lanes of a connection at once.
pub(super) async fn drive_all<D: Driver>(
    world: &Rc<World<D>>,
    stage: &Stage,
    opened: NewConnection<D::Lane>,
    connection: u32,
) -> LaneEnd {
    let mut lanes = opened.lanes;
    if lanes.len() == 1
        && let Some(lane) = lanes.pop()
    {
        return drive(world, stage, lane, Stamp { connection, lane: 0, sequence: 0 }).await;
    }
    let tasks: Vec<_> = (0..)
        .zip(lanes)
        .map(|(number, lane)| {
            let (world, stage) = (Rc::clone(world), stage.clone());
            let first = Stamp { connection, lane: number, sequence: 0 };
            spawn_local(async move { drive(&world, &stage, lane, first).await })
        })
        .collect();
    let mut end = LaneEnd::Over;
    for task in tasks {
        match task.await {
            Ok(LaneEnd::Over) => {}
            Ok(LaneEnd::Closing) if end == LaneEnd::Over => end = LaneEnd::Closing,
            Ok(LaneEnd::Closing) => {}
            Ok(LaneEnd::Lost) | Err(_) => end = LaneEnd::Lost,
        }
    }
    end
}

async fn drive<D: Driver>(world: &World<D>, stage: &Stage, mut lane: D::Lane, first: Stamp) -> LaneEnd {
    let progress = &world.shared.completed[world.seat.thread];
    let latency = &world.shared.latency[world.seat.thread];
    let mut timeout = Timeout::new(world.plan.timing.timeout);
    let mut stamp = first;
    let mut now = Instant::now();
    while let Some(turn) = stage.pacer.turn(now).await {
        if world.stopped() {
            break;
        }
        stamp.sequence += 1;
        let outcome = timeout.limit(turn.sent, lane.round_trip(stamp)).await.unwrap_or(Err(Fault::Timeout));
        now = Instant::now();
        let mut recorder = stage.recorder.borrow_mut();
        match outcome {
            Ok(answer) => {
                if let Some(taken) = recorder.answer(turn, now, answer) {
                    latency.record(taken);
                }
                progress.store(recorder.completed(), Ordering::Relaxed);
                if answer.last {
                    return LaneEnd::Closing;
                }
            }
            Err(Fault::Unprocessed) => {
                stage.pacer.give_back(turn);
                return LaneEnd::Closing;
            }
            Err(fault) => {
                recorder.fault(&fault);
                if fault.ends_connection() {
                    return LaneEnd::Lost;
                }
            }
        }
    }
    LaneEnd::Over
}

/// Opens a new connection for each request.
pub(super) async fn drive_fresh<D: Driver>(world: &World<D>, stage: &Stage, connection: u32) {
    let progress = &world.shared.completed[world.seat.thread];
    let latency = &world.shared.latency[world.seat.thread];
    let mut timeout = Timeout::new(world.plan.timing.timeout);
    let mut stamp = Stamp { connection, lane: 0, sequence: 0 };
    let mut now = Instant::now();
    while let Some(turn) = stage.pacer.turn(now).await {
        stamp.sequence += 1;
        let outcome = timeout.limit(turn.sent, connect_and_ask(world, stamp)).await;
        now = Instant::now();
        let mut recorder = stage.recorder.borrow_mut();
        match outcome.unwrap_or(Err(Fault::Timeout)) {
            Ok((answer, negotiated)) => {
                recorder.connected(turn.sent, negotiated);
                if let Some(taken) = recorder.answer(turn, now, answer) {
                    latency.record(taken);
                }
                progress.store(recorder.completed(), Ordering::Relaxed);
            }
            Err(fault) => recorder.fault(&fault),
        }
    }
}

async fn connect_and_ask<D: Driver>(
    world: &World<D>,
    stamp: Stamp,
) -> Result<(VerifiedAnswer, Option<String>), Fault> {
    let mut opened = world.driver.connect().await?;
    let lane = opened.lanes.first_mut().ok_or(Fault::Closed)?;
    Ok((lane.round_trip(stamp).await?, opened.negotiated))
}
