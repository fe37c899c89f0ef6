//! How long a function may run. What the machine does meanwhile is not the script's fault: under a limit on processor time, such
//! as a container's, a process may stand still for a tenth of a second.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

thread_local! {
    /// Of the function that this thread runs.
    static DEADLINE: Cell<Option<Deadline>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Deadline {
    /// When to look at the processor time, which takes a system call.
    look: Instant,
    half: Duration,
    /// The thread's processor time at which the function has to end; known once half of its time is over by the clock.
    end: Option<Duration>,
}

/// A function of this thread begins, and has so much time: no less than half of it on the processor, and no more than all.
pub(super) fn begin(time: Duration) {
    let half = time / 2;
    let look = Instant::now().checked_add(half);
    DEADLINE.set(look.map(|look| Deadline { look, half, end: None }));
}

/// It has ended.
pub(super) fn clear() {
    DEADLINE.set(None);
}

/// Whether it has had its time.
pub(super) fn is_over() -> bool {
    let Some(deadline) = DEADLINE.get() else { return false };
    let now = Instant::now();
    if now < deadline.look {
        return false;
    }
    let spent = processor_time();
    let end = deadline.end.unwrap_or(spent + deadline.half);
    let Some(left) = end.checked_sub(spent).filter(|left| !left.is_zero()) else { return true };
    let look = now.checked_add(left).unwrap_or(now);
    DEADLINE.set(Some(Deadline { look, end: Some(end), ..deadline }));
    false
}

/// What this thread has had so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets the clock go on while this thread has no work.
    fn stand_still(time: Duration) {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            std::thread::park_timeout(left);
        }
    }

    #[test]
    fn only_time_on_the_processor_counts() {
        assert!(!is_over(), "nothing runs");
        begin(Duration::from_millis(400));
        for _ in 0..3 {
            stand_still(Duration::from_millis(250));
            assert!(!is_over(), "it did nothing");
        }
        while !is_over() {
            std::hint::spin_loop();
        }
        clear();
        assert!(!is_over());
    }

    #[test]
    fn without_time_it_is_over_at_once() {
        begin(Duration::ZERO);
        assert!(is_over());
        clear();
    }
}
