//! Failures within a sliding window, and the ways back.

use std::thread;

use super::*;

fn rules(threshold: u32, healthy_after: u64) -> PassiveHealth {
    PassiveHealth {
        unhealthy_status_codes: vec![500],
        unhealthy_threshold: threshold,
        window: Duration::from_secs(30),
        healthy_after: Duration::from_secs(healthy_after),
        healthy_after_max: Duration::from_secs(300),
        max_ejected_percent: 100,
    }
}

fn passive(threshold: u32, healthy_after: u64, probes: Option<u32>) -> (Passive, Instant) {
    let now = Instant::now();
    (Passive::new(&rules(threshold, healthy_after), probes, Epoch::starting(now)), now)
}

/// No other target is out.
const ALONE: fn() -> (usize, usize) = || (0, 2);

fn at(now: Instant, seconds: u64) -> Instant {
    now + Duration::from_secs(seconds)
}

#[test]
fn the_window_slides() {
    let (target, now) = passive(3, 10, None);
    for second in [0, 29, 31] {
        assert_eq!(
            target.failed(FailureKind::Connect, at(now, second), ALONE),
            None,
            "never three within thirty seconds"
        );
    }
    assert_eq!(
        target.failed(FailureKind::Connect, at(now, 59), ALONE),
        Some(HealthChange::Failed),
        "29, 31 and 59"
    );
    assert!(target.is_down(at(now, 68)) && !target.is_down(at(now, 69)));
    assert_eq!(target.out_for(at(now, 60)), Some(Some(Duration::from_secs(9))));
    assert_eq!(target.out_for(at(now, 69)), None);
}

#[test]
fn one_failure_is_enough_when_the_rules_say_so() {
    for threshold in [0, 1] {
        let (target, now) = passive(threshold, 10, None);
        assert_eq!(target.failed(FailureKind::Connect, now, ALONE), Some(HealthChange::Failed));
    }
}

#[test]
fn whoever_comes_back_starts_with_a_clean_sheet() {
    let (target, now) = passive(2, 1, None);
    assert_eq!(target.failed(FailureKind::Connect, now, ALONE), None);
    assert_eq!(target.failed(FailureKind::Connect, now, ALONE), Some(HealthChange::Failed));
    assert_eq!(target.failed(FailureKind::Connect, now, ALONE), None, "stragglers don't prolong it");
    assert_eq!(
        target.failed(FailureKind::Connect, at(now, 1), ALONE),
        None,
        "the old failures are forgotten"
    );
    assert_eq!(target.failed(FailureKind::Connect, at(now, 1), ALONE), Some(HealthChange::Failed));
}

#[test]
fn a_probe_decides_when_the_rules_say_so() {
    let (target, now) = passive(1, 0, Some(2));
    assert_eq!(target.probed(true), None, "nothing to recover from");
    target.failed(FailureKind::Connect, now, ALONE);
    assert_eq!(target.out_for(at(now, 1 << 20)), Some(None));
    assert_eq!([true, false, true].map(|good| target.probed(good)), [None; 3]);
    assert_eq!(target.probed(true), Some(HealthChange::Recovered));
    assert!(!target.is_down(now));
}

#[test]
fn without_probes_nobody_waits_for_ever() {
    let (target, now) = passive(1, 0, None);
    target.failed(FailureKind::Connect, now, ALONE);
    assert!(target.is_down(now));
    assert!(!target.is_down(now + DEFAULT_HEALTHY_AFTER));
}

#[test]
fn probes_do_not_shorten_a_time_that_is_set() {
    let (target, now) = passive(1, 30, Some(1));
    target.failed(FailureKind::Connect, now, ALONE);
    assert_eq!(target.probed(true), None);
    assert!(target.is_down(at(now, 29)));
}

#[test]
fn huge_rules_neither_overflow_nor_eat_memory() {
    let now = Instant::now();
    let huge = PassiveHealth { window: Duration::MAX, healthy_after: Duration::MAX, ..rules(u32::MAX, 0) };
    let target = Passive::new(&huge, None, Epoch::starting(now));
    let failures = (0..MAX_THRESHOLD).filter_map(|_| target.failed(FailureKind::Connect, now, ALONE)).count();
    assert_eq!(failures, 1);
    assert!(target.is_down(at(now, 1 << 30)));
}

#[test]
fn threads_report_one_change() {
    let (target, now) = passive(100, 30, None);
    let fail = || (0..100).filter_map(|_| target.failed(FailureKind::Connect, now, ALONE)).count();
    let changes: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(fail)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(changes, 1);
    assert!(target.is_down(now));
}

#[test]
fn it_stays_out_longer_each_time_in_a_row() {
    let rules = PassiveHealth { healthy_after_max: Duration::from_secs(25), ..rules(1, 10) };
    let now = Instant::now();
    let target = Passive::new(&rules, None, Epoch::starting(now));
    let mut second = 0;
    for stays in [10, 20, 25, 25] {
        assert_eq!(target.failed(FailureKind::Connect, at(now, second), ALONE), Some(HealthChange::Failed));
        assert!(target.is_down(at(now, second + stays - 1)), "{stays} s");
        second += stays;
        assert!(!target.is_down(at(now, second)), "{stays} s");
    }
    // Well for longer than the window: it begins anew.
    second += 31;
    target.failed(FailureKind::Connect, at(now, second), ALONE);
    assert!(!target.is_down(at(now, second + 10)));
}

#[test]
fn only_so_many_are_out_at_a_time() {
    let rules = PassiveHealth { max_ejected_percent: 50, ..rules(1, 10) };
    let now = Instant::now();
    for (out, all, goes) in [(0, 1, true), (0, 3, true), (1, 3, true), (2, 3, false), (1, 2, false)] {
        let target = Passive::new(&rules, None, Epoch::starting(now));
        assert_eq!(target.failed(FailureKind::Connect, now, || (out, all)).is_some(), goes, "{out} of {all}");
    }
}
