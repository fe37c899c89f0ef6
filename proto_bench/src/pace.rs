//! Who decides when the next request starts: the last answer (closed loop) or the clock (open loop).

use std::rc::Rc;
use std::time::{Duration, Instant};

mod open;
mod timeout;

pub use open::OpenSchedule;
pub use timeout::Timeout;

/// When load starts, when counting starts, and when both end.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub start: Instant,
    pub from: Instant,
    pub until: Instant,
}

/// Hands out turns to the lanes of one thread.
#[derive(Debug, Clone)]
pub enum Pacer {
    Closed(Window),
    Open(Rc<OpenSchedule>),
}

/// Leave to send one request.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// When the request should start; its latency counts from here.
    pub intended: Instant,
    /// When it could start.
    pub sent: Instant,
}

impl Window {
    /// Load from now on, counted after the warm-up.
    #[must_use]
    pub fn starting_now(warm_up: Duration, duration: Duration) -> Self {
        let start = Instant::now();
        Self { start, from: start + warm_up, until: start + warm_up + duration }
    }

    /// Whether this moment is counted.
    #[must_use]
    pub fn counts(&self, moment: Instant) -> bool {
        self.from <= moment && moment < self.until
    }

    /// How long is counted.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.until - self.from
    }
}

impl Pacer {
    /// The next turn, or nothing once the window is over. `now` is the moment the lane's last answer came, so that a
    /// closed loop needs no further look at the clock.
    pub async fn turn(&self, now: Instant) -> Option<Turn> {
        match self {
            Self::Closed(window) => (now < window.until).then_some(Turn { intended: now, sent: now }),
            Self::Open(schedule) => {
                let intended = schedule.take().await?;
                Some(Turn { intended, sent: Instant::now() })
            }
        }
    }

    /// Takes a turn back whose request has to be sent again, on another connection. It keeps its due time.
    pub fn give_back(&self, turn: Turn) {
        if let Self::Open(schedule) = self {
            schedule.give_back(turn.intended);
        }
    }
}
