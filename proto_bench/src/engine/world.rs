//! What the connections of one thread share, and the window once it is known.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout_at};

use super::{Seat, SharedCounters};
use crate::driver::{Driver, Fault, NewConnection};
use crate::measure::{Recorder, Tally};
use crate::pace::{OpenSchedule, Pacer, Window};
use crate::plan::{Pace, Plan};

const CONNECTING_AT_ONCE: usize = 64;
/// Failed openings of one thread before it stops trying.
const FAILURES_UNTIL_GIVEN_UP: u64 = 5;

/// What the connections of one thread share.
pub(super) struct World<D> {
    pub(super) plan: Rc<Plan>,
    pub(super) driver: D,
    pub(super) shared: Arc<SharedCounters>,
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

impl Stage {
    pub(super) fn left(&self) -> Duration {
        self.window.until.saturating_duration_since(Instant::now())
    }

    pub(super) fn is_over(&self) -> bool {
        self.left().is_zero()
    }
}

impl<D: Driver> World<D> {
    /// Before the window is known.
    pub(super) fn new(driver: D, plan: Rc<Plan>, shared: &Arc<SharedCounters>, seat: &Seat) -> Self {
        Self {
            plan,
            driver,
            shared: Arc::clone(shared),
            seat: seat.clone(),
            permits: Semaphore::new(CONNECTING_AT_ONCE),
            connecting: RefCell::default(),
            stage: RefCell::new(None),
        }
    }

    /// Opens a connection before the window; tries again until the deadline, because servers may still be starting
    /// to accept, but each failure counts.
    pub(super) async fn open_until(&self, deadline: Instant) -> Option<NewConnection<D::Lane>> {
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

    pub(super) async fn reopen(&self, stage: &Stage) -> Option<NewConnection<D::Lane>> {
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
    pub(super) async fn stage(self: &Rc<Self>) -> Option<Stage> {
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
    pub(super) fn finish(&self) -> Tally {
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
