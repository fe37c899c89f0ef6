//! One breaker's life, and many threads at it.

use std::sync::Barrier;
use std::thread;

use super::*;

/// The key of the one target.
const TARGET: [u64; 1] = [7];

fn rules() -> CircuitBreaker {
    CircuitBreaker {
        failure_threshold: 3,
        success_threshold: 2,
        open_for: Duration::from_secs(30),
        status_codes: vec![500],
        half_open_max_requests: 2,
        trip_on_connection_errors: true,
    }
}

fn breakers(now: Instant) -> Breakers {
    Breakers::build(&rules(), TARGET, None, now)
}

fn settle(breakers: &Breakers, verdict: Verdict, now: Instant) -> Option<BreakerChange> {
    breakers.admit(0, now).unwrap().settle(verdict, now)
}

fn open(breakers: &Breakers, now: Instant) {
    let changes = [(); 3].map(|()| settle(breakers, Verdict::Failure, now));
    assert_eq!(changes, [None, None, Some(BreakerChange::Opened)]);
}

#[test]
fn only_failures_in_a_row_open_it() {
    let now = Instant::now();
    let breakers = breakers(now);
    settle(&breakers, Verdict::Failure, now);
    settle(&breakers, Verdict::Failure, now);
    settle(&breakers, Verdict::Neutral, now);
    assert_eq!(breakers.status(0, now), Some(BreakerStatus::Closed { failures: 2 }));
    settle(&breakers, Verdict::Success, now);
    open(&breakers, now);
    assert!(breakers.admit(0, now).is_none() && !breakers.admits(0, now));
    assert_eq!(breakers.status(0, now), Some(BreakerStatus::Open { remaining: Duration::from_secs(30) }));
}

#[test]
fn probes_close_it() {
    let now = Instant::now();
    let breakers = breakers(now);
    open(&breakers, now);
    let just_before = now + Duration::from_millis(29_999);
    assert!(breakers.admit(0, just_before).is_none());
    let then = now + Duration::from_secs(30);
    let (first, second) = (breakers.admit(0, then).unwrap(), breakers.admit(0, then).unwrap());
    assert!(first.is_probe() && second.is_probe());
    assert!(breakers.admit(0, then).is_none(), "both slots are taken");
    assert_eq!(first.settle(Verdict::Success, then), None);
    assert_eq!(breakers.status(0, then), Some(BreakerStatus::HalfOpen { probes: 1, successes: 1 }));
    assert_eq!(second.settle(Verdict::Success, then), Some(BreakerChange::Closed));
    assert!(!breakers.admit(0, then).unwrap().is_probe());
}

#[test]
fn a_failed_probe_opens_it_for_the_full_time() {
    let now = Instant::now();
    let breakers = breakers(now);
    open(&breakers, now);
    let then = now + Duration::from_secs(40);
    assert_eq!(settle(&breakers, Verdict::Failure, then), Some(BreakerChange::Opened));
    assert_eq!(breakers.status(0, then), Some(BreakerStatus::Open { remaining: Duration::from_secs(30) }));
}

#[test]
fn slots_come_back_however_a_probe_ends() {
    let now = Instant::now();
    let breakers = breakers(now);
    open(&breakers, now);
    let then = now + Duration::from_secs(30);
    for _ in 0..100 {
        drop(breakers.admit(0, then).unwrap());
        settle(&breakers, Verdict::Neutral, then);
    }
    assert_eq!(breakers.status(0, then), Some(BreakerStatus::HalfOpen { probes: 0, successes: 0 }));
}

#[test]
fn stragglers_of_another_period_change_nothing() {
    let now = Instant::now();
    let breakers = breakers(now);
    let early = [(); 6].map(|()| breakers.admit(0, now).unwrap());
    open(&breakers, now);
    let then = now + Duration::from_secs(30);
    let probe = breakers.admit(0, then).unwrap();
    let late_probe = breakers.admit(0, then).unwrap();
    let [failure, success, neutral, ..] = early;
    failure.settle(Verdict::Failure, then);
    success.settle(Verdict::Success, then);
    drop(neutral);
    assert_eq!(breakers.status(0, then), Some(BreakerStatus::HalfOpen { probes: 2, successes: 0 }));
    probe.settle(Verdict::Failure, then);
    let again = then + Duration::from_secs(30);
    let fresh = breakers.admit(0, again).unwrap();
    assert_eq!(late_probe.settle(Verdict::Success, again), None);
    assert_eq!(breakers.status(0, again), Some(BreakerStatus::HalfOpen { probes: 1, successes: 0 }));
    drop(fresh);
}

#[test]
fn hostile_rules_are_tamed() {
    let now = Instant::now();
    let zero = CircuitBreaker {
        failure_threshold: 0,
        success_threshold: 0,
        open_for: Duration::ZERO,
        half_open_max_requests: 0,
        ..rules()
    };
    let breakers = Breakers::build(&zero, TARGET, None, now);
    assert_eq!(settle(&breakers, Verdict::Failure, now), Some(BreakerChange::Opened));
    assert_eq!(
        settle(&breakers, Verdict::Success, now + Duration::from_millis(1)),
        Some(BreakerChange::Closed)
    );
    let huge = CircuitBreaker {
        failure_threshold: u32::MAX,
        success_threshold: u32::MAX,
        open_for: Duration::MAX,
        half_open_max_requests: u32::MAX,
        ..rules()
    };
    let breakers = Breakers::build(&huge, TARGET, None, now);
    for _ in 0..MAX_COUNT {
        settle(&breakers, Verdict::Failure, now);
    }
    assert!(breakers.admit(0, now + Duration::from_secs(1 << 30)).is_none());
}

#[test]
fn an_unknown_target_is_always_let_through() {
    let now = Instant::now();
    let breakers = breakers(now);
    assert!(breakers.admits(7, now));
    assert_eq!(breakers.admit(7, now).unwrap().settle(Verdict::Failure, now), None);
}

#[test]
fn threads_never_share_a_slot() {
    let now = Instant::now();
    let breakers = breakers(now);
    open(&breakers, now);
    let then = now + Duration::from_secs(30);
    let (probes, start) = (std::sync::atomic::AtomicU32::new(0), Barrier::new(8));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..5_000 {
                    let Some(permit) = breakers.admit(0, then) else { continue };
                    assert!(probes.fetch_add(1, Relaxed) < 2);
                    probes.fetch_sub(1, Relaxed);
                    permit.settle(Verdict::Neutral, then);
                }
            });
        }
    });
    assert_eq!(breakers.status(0, then), Some(BreakerStatus::HalfOpen { probes: 0, successes: 0 }));
}

#[test]
fn exactly_one_thread_opens_it() {
    let now = Instant::now();
    let breakers = breakers(now);
    let start = Barrier::new(8);
    let opened: usize = thread::scope(|scope| {
        let fail = || {
            start.wait();
            let outcomes = (0..100).filter_map(|_| breakers.admit(0, now));
            outcomes.filter_map(|permit| permit.settle(Verdict::Failure, now)).count()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(fail)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(opened, 1);
}
