//! The open loop: requests are due by the clock, and a late server does not make them due later.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::Window;

/// The due times of one thread's requests. Any idle lane takes the next one, so one stalled answer holds up its own
/// lane and nothing else, as long as lanes are left; what is due while all are busy keeps its due time.
#[derive(Debug)]
pub struct OpenSchedule {
    window: Window,
    first: Instant,
    interval_ns: f64,
    next: Cell<u64>,
    /// Due times of requests that have to be sent again.
    again: RefCell<Vec<Instant>>,
    idle: RefCell<VecDeque<Waker>>,
    lane_idle: Notify,
    /// How late idle lanes were woken: the generator's own lateness, in nanoseconds.
    lateness: RefCell<Histogram<u64>>,
}

impl OpenSchedule {
    /// A schedule of `rate` requests a second; `phase` in [0, 1) shifts threads against each other. `lateness` is empty
    /// and takes how late idle lanes are woken, in nanoseconds.
    #[must_use]
    pub fn new(window: Window, rate: f64, phase: f64, lateness: Histogram<u64>) -> Self {
        let interval_ns = 1e9 / rate.max(1e-6);
        let first = window.start + nanoseconds(interval_ns * phase);
        Self {
            window,
            first,
            interval_ns,
            next: Cell::new(0),
            again: RefCell::default(),
            idle: RefCell::default(),
            lane_idle: Notify::new(),
            lateness: RefCell::new(lateness),
        }
    }

    /// Waits for the next due request and takes it; nothing once the window is over.
    pub async fn take(&self) -> Option<Instant> {
        poll_fn(|cx| self.poll_take(cx)).await
    }

    /// Takes back a due time whose request has to be sent again.
    pub fn give_back(&self, due: Instant) {
        self.again.borrow_mut().push(due);
    }

    fn poll_take(&self, cx: &Context<'_>) -> Poll<Option<Instant>> {
        let due = self.due(self.next.get());
        let now = Instant::now();
        if now < self.window.until
            && let Some(due) = self.again.borrow_mut().pop()
        {
            return Poll::Ready(Some(due));
        }
        if due >= self.window.until || now >= self.window.until {
            return Poll::Ready(None);
        }
        if due <= now {
            self.next.set(self.next.get() + 1);
            return Poll::Ready(Some(due));
        }
        self.idle.borrow_mut().push_back(cx.waker().clone());
        self.lane_idle.notify_one();
        Poll::Pending
    }

    /// Wakes idle lanes when requests become due, until the window is over. Runs beside the lanes of its thread.
    ///
    /// # Errors
    /// The kernel refuses a timer. tokio's own timers tick in milliseconds, which would show in every latency.
    pub async fn run(&self) -> io::Result<()> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[expect(
            deprecated,
            reason = "unsound only for types that lie about their descriptor; OwnedFd cannot"
        )]
        let timer = AsyncFd::new(timer)?;
        loop {
            if self.idle.borrow().is_empty() {
                self.lane_idle.notified().await;
                continue;
            }
            let due = self.due(self.next.get()).min(self.window.until);
            sleep_until(&timer, due).await?;
            if Instant::now() >= self.window.until {
                break;
            }
            self.wake_due();
            // Lets the woken lanes take their turns before the next look.
            tokio::task::yield_now().await;
        }
        self.wake_all_until_done().await;
        Ok(())
    }

    /// Adds to `total` how late idle lanes were woken.
    pub fn add_lateness(&self, total: &mut Histogram<u64>) {
        total.add(&*self.lateness.borrow()).expect("all histograms are made with the same bounds");
    }

    /// Due times that came within the counted window and were never taken, because every lane was busy.
    pub fn never_started(&self) -> impl Iterator<Item = Instant> + '_ {
        (self.next.get()..)
            .map(|index| self.due(index))
            .take_while(|due| *due < self.window.until)
            .chain(self.again.borrow().clone())
            .filter(|due| self.window.counts(*due))
    }

    fn due(&self, index: u64) -> Instant {
        #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 requests")]
        let offset = index as f64 * self.interval_ns;
        self.first + nanoseconds(offset)
    }

    fn wake_due(&self) {
        let now = Instant::now();
        let mut index = self.next.get();
        let mut idle = self.idle.borrow_mut();
        let mut lateness = self.lateness.borrow_mut();
        loop {
            let due = self.due(index);
            if due > now || due >= self.window.until {
                return;
            }
            let Some(waker) = idle.pop_front() else { return };
            waker.wake();
            index += 1;
            if self.window.counts(due) {
                lateness.saturating_record(u64::try_from((now - due).as_nanos()).unwrap_or(u64::MAX));
            }
        }
    }

    async fn wake_all_until_done(&self) {
        loop {
            for waker in self.idle.take() {
                waker.wake();
            }
            self.lane_idle.notified().await;
        }
    }
}

async fn sleep_until(timer: &AsyncFd<OwnedFd>, due: Instant) -> io::Result<()> {
    let wait = due.saturating_duration_since(Instant::now());
    if wait.is_zero() {
        return Ok(());
    }
    let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
    let value = Timespec { tv_sec: seconds, tv_nsec: i64::from(wait.subsec_nanos()) };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
    let mut ready = timer.readable().await?;
    let mut expirations = [0; 8];
    // Reading re-arms the readiness; a spurious wake-up reads nothing and only makes the caller look again.
    match rustix::io::read(timer, &mut expirations) {
        Ok(_) | Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn nanoseconds(value: f64) -> Duration {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and far below 2^64"
    )]
    Duration::from_nanos(value as u64)
}
