//! One thread of the generator: its runtime, its connections, and their opening and reopening.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::lanes::{self, LaneEnd};
use super::world::World;
use super::{MakeDriver, Seat, SharedCounters};
use crate::driver::{Driver, Fault};
use crate::measure::Tally;
use crate::plan::Plan;

/// Runs one thread's share to the end of the window.
pub(super) fn run<D: Driver>(
    plan: Plan,
    seat: &Seat,
    shared: &Arc<SharedCounters>,
    make: &MakeDriver<D>,
) -> Result<Tally, Fault> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .event_interval(127)
        .build_local(LocalOptions::default())
        .map_err(Fault::Io)?;
    let plan = Rc::new(plan);
    let tally = runtime.block_on(async {
        let world = Rc::new(World::new(make(&plan)?, plan, shared, seat));
        run_connections(&world).await
    });
    // Connections that drivers keep alive in tasks of their own end with the runtime.
    runtime.shutdown_background();
    tally
}

async fn run_connections<D: Driver>(world: &Rc<World<D>>) -> Result<Tally, Fault> {
    let numbers = world.seat.connections.clone();
    let clients: Vec<_> = numbers
        .map(|number| {
            let world = Rc::clone(world);
            spawn_local(async move { client(&world, number).await })
        })
        .collect();
    for client in clients {
        client.await.map_err(|_| Fault::protocol("a connection's task panicked"))?;
    }
    Ok(world.finish())
}

/// One connection from its opening to the end of the window.
async fn client<D: Driver>(world: &Rc<World<D>>, number: u32) {
    let deadline = Instant::now() + world.plan.timing.connect;
    let fresh = world.plan.message.fresh;
    let mut opened = if fresh { None } else { world.open_until(deadline).await };
    world.shared.settled.fetch_add(1, Ordering::Relaxed);
    let Some(stage) = world.stage().await else { return };
    if fresh {
        return lanes::drive_fresh(world, &stage, number).await;
    }
    let mut backoff = Duration::from_millis(10);
    while !stage.is_over() && !world.stopped() {
        let end = match opened.take() {
            Some(connection) => lanes::drive_all(world, &stage, connection, number).await,
            None => LaneEnd::Lost,
        };
        if end == LaneEnd::Lost {
            sleep(backoff.min(stage.left())).await;
            backoff = (backoff * 2).min(Duration::from_secs(1));
        }
        if end != LaneEnd::Over && !stage.is_over() && !world.stopped() {
            opened = world.reopen(&stage).await;
        }
    }
}
