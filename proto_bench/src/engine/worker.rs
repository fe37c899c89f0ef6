//! One thread of the generator: its runtime, its connections, and their opening and reopening.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout_at};

use super::lanes::{self, LaneEnd};
use super::{MakeDriver, Seat, Shared};
use crate::driver::{Driver, Fault, Opened};
use crate::measure::{Recorder, Tally};
use crate::pace::{OpenSchedule, Pacer, Window};
use crate::plan::{Pace, Plan};

/// What the connections of one thread share.
pub(super) struct World<D> {
    pub(super) plan: Rc<Plan>,
    pub(super) driver: D,
    pub(super) shared: Arc<Shared>,
    pub(super) seat: Seat,
    /// Handshakes at a time: more would overflow the server's accept queue and measure that instead.
    permits: Semaphore,
    connecting: RefCell<Tally>,
    stage: RefCell<Option<Stage>>,
}

/// What exists once the window is known.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) pacer: Pacer,
    pub(super) window: Window,
    pub(super) recorder: Rc<RefCell<Recorder>>,
}

const CONNECTING_AT_ONCE: usize = 64;
/// Failed openings of one thread before it stops trying.
const FAILURES_UNTIL_GIVEN_UP: u64 = 5;

/// Runs one thread's share to the end of the window.
pub(super) fn run<D: Driver>(
    plan: Plan,
    seat: &Seat,
    shared: &Arc<Shared>,
    make: &MakeDriver<D>,
) -> Result<Tally, Fault> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .event_interval(127)
        .build_local(LocalOptions::default())
        .map_err(Fault::Io)?;
    let plan = Rc::new(plan);
    let tally = runtime.block_on(async {
        let world = Rc::new(World {
            driver: make(&plan)?,
            plan,
            shared: Arc::clone(shared),
            seat: seat.clone(),
            permits: Semaphore::new(CONNECTING_AT_ONCE),
            connecting: RefCell::default(),
            stage: RefCell::new(None),
        });
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

impl Stage {
    fn left(&self) -> Duration {
        self.window.until.saturating_duration_since(Instant::now())
    }

    fn is_over(&self) -> bool {
        self.left().is_zero()
    }
}

impl<D: Driver> World<D> {
    /// Opens a connection before the window; tries again until the deadline, because servers may still be starting
    /// to accept, but each failure counts.
    async fn open_until(&self, deadline: Instant) -> Option<Opened<D::Lane>> {
        let permit = self.permits.acquire().await;
        loop {
            let begun = Instant::now();
            let fault = match timeout_at(deadline.into(), self.driver.connect()).await {
                Ok(Ok(mut opened)) => {
                    self.connecting.borrow_mut().opened(begun, opened.negotiated.take());
                    drop(permit);
                    return Some(opened);
                }
                Ok(Err(fault)) => fault,
                Err(_) => Fault::Connect(std::io::ErrorKind::TimedOut.into()),
            };
            self.connecting.borrow_mut().fault(&fault);
            let given_up = self.connecting.borrow().fault_count() > FAILURES_UNTIL_GIVEN_UP;
            if given_up || Instant::now() >= deadline {
                return None;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn reopen(&self, stage: &Stage) -> Option<Opened<D::Lane>> {
        match timeout_at(stage.window.until.into(), self.driver.connect()).await {
            Ok(Ok(opened)) => {
                stage.recorder.borrow_mut().reopened();
                Some(opened)
            }
            Ok(Err(fault)) => {
                stage.recorder.borrow_mut().fault(&fault);
                None
            }
            Err(_) => None,
        }
    }

    /// Whether the window was ended early.
    pub(super) fn stopped(&self) -> bool {
        self.shared.stop.is_told()
    }

    /// Waits for the window; the first connection that sees it sets up what the thread shares.
    async fn stage(self: &Rc<Self>) -> Option<Stage> {
        let mut receiver = self.shared.window.clone();
        let window = (*receiver.wait_for(Option::is_some).await.ok()?)?;
        Some(self.stage.borrow_mut().get_or_insert_with(|| self.set_up(window)).clone())
    }

    fn set_up(&self, window: Window) -> Stage {
        let open = matches!(self.plan.load.pace, Pace::Open { .. });
        let mut recorder = Recorder::new(window, open);
        recorder.take_over(&self.connecting.borrow());
        let recorder = Rc::new(RefCell::new(recorder));
        let pacer = match self.plan.load.pace {
            Pace::Closed => Pacer::Closed(window),
            Pace::Open { rate } => Pacer::Open(self.start_schedule(window, rate, &recorder)),
        };
        Stage { pacer, window, recorder }
    }

    fn start_schedule(
        &self,
        window: Window,
        rate: f64,
        recorder: &Rc<RefCell<Recorder>>,
    ) -> Rc<OpenSchedule> {
        let seat = &self.seat;
        let own = f64::from(seat.connections.end - seat.connections.start);
        let share = own / f64::from(self.plan.load.connections.max(1));
        #[expect(clippy::cast_precision_loss, reason = "a handful of threads")]
        let phase = seat.thread as f64 / seat.threads as f64;
        let schedule = Rc::new(OpenSchedule::new(window, rate * share, phase, Tally::default().lateness));
        let (ticking, recorder) = (Rc::clone(&schedule), Rc::clone(recorder));
        spawn_local(async move {
            if let Err(error) = ticking.run().await {
                recorder.borrow_mut().fault(&Fault::Io(error));
            }
        });
        schedule
    }

    /// Adds up what the thread counted.
    fn finish(&self) -> Tally {
        let Some(stage) = self.stage.borrow_mut().take() else { return self.connecting.take() };
        let mut recorder = stage.recorder.borrow_mut();
        if let Pacer::Open(schedule) = &stage.pacer {
            schedule.never_started().for_each(|due| recorder.never_started(due));
            recorder.take_lateness(schedule);
        }
        let empty = Recorder::new(stage.window, false);
        std::mem::replace(&mut *recorder, empty).into_tally()
    }
}
