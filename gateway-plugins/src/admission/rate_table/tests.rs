//! The table alone: what passes, under threads, with more keys than it has places for.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn table(keys: usize) -> (Table, Instant) {
    let now = Instant::now();
    (Table::new(keys, now, Counter::default()), now)
}

#[test]
fn a_burst_and_then_the_rate() {
    let (table, now) = table(10);
    let rule = Rule::new(10, SECOND, 3).unwrap();
    let left: Vec<_> = (0..3).map(|_| table.take(7, rule, 1, now)).collect();
    assert!(left.iter().all(|it| it.passed));
    assert_eq!(left.iter().map(|it| it.remaining).collect::<Vec<_>>(), [2, 1, 0]);
    let refused = table.take(7, rule, 1, now);
    assert_eq!((refused.passed, refused.retry_in), (false, Duration::from_millis(100)));
    assert_eq!(refused.full_in, Duration::from_millis(300));
    assert!(table.take(8, rule, 1, now).passed, "another key has its own");
    let later = now + Duration::from_millis(100);
    assert_eq!([(); 2].map(|()| table.take(7, rule, 1, later).passed), [true, false]);
}

#[test]
fn looking_takes_nothing_charging_takes_all_and_a_refund_gives_back() {
    let (table, now) = table(10);
    let rule = Rule::new(1, SECOND, 2).unwrap();
    assert!((0..9).all(|_| table.look(1, rule, 1, now).passed));
    (0..9).for_each(|_| table.charge(1, rule, 1, now));
    let looked = table.look(1, rule, 1, now);
    assert_eq!((looked.passed, looked.retry_in), (false, SECOND), "a charge never owes more than the burst");
    table.refund(1, rule, 1, now);
    assert_eq!([(); 2].map(|()| table.take(1, rule, 1, now).passed), [true, false]);
    table.refund(99, rule, 1, now);
    assert!(table.set(id(99, rule)).find(id(99, rule)).is_none(), "nothing is made to give back to");
}

#[test]
fn a_changed_rule_begins_anew() {
    let (table, now) = table(10);
    let day = Rule::new(1, Duration::from_secs(86_400), 1).unwrap();
    assert_eq!([(); 2].map(|()| table.take(1, day, 1, now).passed), [true, false]);
    assert!(table.take(1, Rule::new(1, SECOND, 1).unwrap(), 1, now).passed);
}

#[test]
fn rules_that_cant_be_counted_are_none() {
    for (rate, period, burst) in
        [(0, 1, 1), (1_000_001, 1, 1), (1, 0, 1), (1, 1, 0), (1, u64::MAX, 1), (1, 3_000_000_000, 2)]
    {
        assert_eq!(Rule::new(rate, Duration::from_secs(period), burst), None, "{rate} {period} {burst}");
    }
    assert!(Rule::new(MAX_PER_SECOND, SECOND, 1).is_some());
}

/// Ten times what is allowed for a minute, from several threads that share one clock.
#[test]
fn what_passes_is_within_one_percent_of_what_is_allowed() {
    // A burst of one forgives nothing: threads that come in another order than their moments would delay what passes next.
    for (rate, burst, threads) in [(100, 100, 4), (1000, 2, 4), (5, 20, 4), (1000, 1, 1)] {
        let (table, start) = table(1000);
        let rule = Rule::new(rate, SECOND, burst).unwrap();
        let (tick, passed) = (AtomicU64::new(0), AtomicU64::new(0));
        let ticks = rate * 60 * 10;
        let next = || Some(tick.fetch_add(1, Relaxed)).filter(|n| *n < ticks);
        let ask = |n| {
            let now = start + Duration::from_nanos(n * 100_000_000 / rate);
            passed.fetch_add(u64::from(table.take(1, rule, 1, now).passed), Relaxed);
        };
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| std::iter::from_fn(next).for_each(ask));
            }
        });
        let (passed, allowed) = (passed.into_inner(), rate * 60 + burst);
        assert!(passed.abs_diff(allowed) * 100 <= allowed, "{passed} of {allowed}");
    }
}

#[test]
fn threads_that_bring_the_same_new_keys_share_their_bursts() {
    let (table, now) = table(4000);
    let rule = Rule::new(1, Duration::from_secs(3600), 5).unwrap();
    let passed = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for key in 0..1000 {
                    for _ in 0..10 {
                        passed.fetch_add(u64::from(table.take(key, rule, 1, now).passed), Relaxed);
                    }
                }
            });
        }
    });
    let passed = passed.into_inner();
    // Two threads that make one entry at the same moment may lose one of what they took.
    assert!((5000..=5050).contains(&passed), "{passed}");
}

#[test]
fn a_million_keys_stay_in_the_memory_asked_for_and_evict_only_what_must_go() {
    let keys = 100_000;
    let (table, now) = table(keys);
    let before = table.bytes();
    assert_eq!(before, keys * BYTES_PER_KEY);
    assert_eq!(BYTES_PER_KEY, 32);
    let rule = Rule::new(1, SECOND, 10).unwrap();
    let hash = |key: u64| {
        let mut hasher = table.hasher();
        hasher.write_u64(key);
        hasher.finish()
    };
    (0..keys as u64).for_each(|key| assert!(table.take(hash(key), rule, 1, now).passed));
    let early = table.evicted.get();
    assert!(early < keys as u64 / 50, "{early} were forgotten although all had room");
    (0..1_000_000).for_each(|key| assert!(table.take(hash(key), rule, 1, now).passed));
    assert_eq!(table.bytes(), before);
    assert!(table.evicted.get() > 700_000);
    // An hour later all are whole again: their places are taken and nothing is lost.
    let (lost, later) = (table.evicted.get(), now + Duration::from_secs(3600));
    (2_000_000..2_010_000).for_each(|key| assert!(table.take(hash(key), rule, 1, later).passed));
    assert!(table.evicted.get() - lost < 10, "idle entries go first");
}

#[test]
fn what_is_nearest_to_whole_goes_first() {
    let (table, now) = table(1);
    assert_eq!(table.sets.iter().count(), 1);
    let rule = Rule::new(1, SECOND, 100).unwrap();
    (0..50).for_each(|_| assert!(table.take(1, rule, 1, now).passed));
    (100..1000).for_each(|key| assert!(table.take(key, rule, 1, now).passed));
    assert_eq!(table.look(1, rule, 1, now).remaining, 50, "the one that took most stays");
}
