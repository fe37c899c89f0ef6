//! The idle pool against a plain model of it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn rules(max_idle: usize, seconds: u64) -> PoolRules {
    PoolRules { max_idle, idle_timeout: Duration::from_secs(seconds), ..PoolRules::default() }
}

/// Puts a connection that must find room.
fn keep<C: Debug + PartialEq>(idle: &mut Idle<C>, key: u64, connection: C, seconds: u64, now: Instant) {
    assert_eq!(idle.put(key, connection, &rules(8, seconds), now), None);
}

#[test]
fn gives_the_last_one_first_and_only_to_its_key() {
    let (mut idle, now) = (Idle::default(), Instant::now());
    for (key, connection) in [(1, "a"), (2, "x"), (1, "b")] {
        assert_eq!(idle.put(key, connection, &rules(8, 90), now), None);
    }
    assert_eq!((idle.count(1), idle.count(2), idle.len()), (2, 1, 3));
    assert_eq!([(); 3].map(|()| idle.take(1, now)), [Some("b"), Some("a"), None]);
    assert_eq!(idle.take(3, now), None);
}

#[test]
fn what_waited_too_long_is_never_given() {
    let (mut idle, now) = (Idle::default(), Instant::now());
    keep(&mut idle, 1, "patient", 1000, now);
    keep(&mut idle, 1, "short", 10, now);
    let then = now + Duration::from_secs(10);
    assert_eq!(idle.take(1, then), Some("patient"));
    assert_eq!((idle.take(1, then), idle.len()), (None, 0));
    keep(&mut idle, 1, "for ever", 0, now);
    assert_eq!(idle.take(1, now + Duration::from_secs(1 << 30)), Some("for ever"));
}

#[test]
fn a_full_key_drops_its_oldest() {
    let (mut idle, now) = (Idle::default(), Instant::now());
    assert_eq!([1, 2].map(|connection| idle.put(1, connection, &rules(2, 90), now)), [None, None]);
    assert_eq!(idle.put(1, 3, &rules(2, 90), now), Some(Rejected(1)));
    assert_eq!(idle.count(1), 2);
}

#[test]
fn a_full_pool_drops_the_oldest_of_all() {
    let (mut idle, now) = (Idle::new(3), Instant::now());
    for key in 0..3 {
        assert_eq!(idle.put(key, key, &rules(8, 90), now), None);
    }
    assert_eq!(idle.take(0, now), Some(0));
    assert_eq!(idle.put(0, 0, &rules(8, 90), now), None);
    assert_eq!(idle.put(9, 9, &rules(8, 90), now), Some(Rejected(1)), "0 was used since");
    assert_eq!(idle.len(), 3);
}

#[test]
fn what_may_not_be_kept_comes_back() {
    let (mut idle, now) = (Idle::new(3), Instant::now());
    let no_keep_alive = PoolRules { keep_alive: false, ..rules(8, 90) };
    assert_eq!(idle.put(1, 1, &no_keep_alive, now), Some(Rejected(1)));
    assert_eq!(idle.put(1, 1, &rules(0, 90), now), Some(Rejected(1)));
    assert_eq!(Idle::new(0).put(1, 1, &rules(8, 90), now), Some(Rejected(1)));
    assert!(idle.is_empty());
}

#[test]
fn a_sweep_drops_the_expired_and_the_dead() {
    let (mut idle, now) = (Idle::default(), Instant::now());
    for (connection, seconds) in [(0, 10), (1, 100), (2, 100), (3, 10)] {
        keep(&mut idle, u64::from(connection % 2_u8), connection, seconds, now);
    }
    assert_eq!(idle.sweep(now + Duration::from_secs(10), |connection| *connection != 2), 3);
    assert_eq!((idle.take(0, now), idle.take(1, now), idle.take(1, now)), (None, Some(1), None));
}

#[test]
fn a_million_targets_leave_nothing_behind() {
    let (mut idle, now) = (Idle::new(1000), Instant::now());
    for key in 0..1_000_000 {
        keep(&mut idle, key, (), 90, now);
        assert!(idle.take(key, now).is_some());
    }
    assert!(idle.stacks.len() <= 2001 && idle.slots.len() == 0);
    idle.sweep(now, |()| true);
    assert!(idle.stacks.capacity() <= 128);
}

#[test]
fn forgetting_a_key_closes_its_connections() {
    let (mut idle, now) = (Idle::default(), Instant::now());
    let socket = Rc::new(());
    for key in [1, 1, 2] {
        keep(&mut idle, key, socket.clone(), 90, now);
    }
    assert_eq!(idle.forget(1), 2);
    assert_eq!((Rc::strong_count(&socket), idle.len(), idle.forget(1)), (2, 1, 0));
}

#[derive(Debug, Clone)]
enum Step {
    Put { key: u64, max_idle: usize, seconds: u64 },
    Take { key: u64 },
    Forget { key: u64 },
    Sweep,
    Wait { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..4_u64, 1..5_usize, 1..20_u64)
            .prop_map(|(key, max_idle, seconds)| Step::Put { key, max_idle, seconds }),
        6 => (0..4_u64).prop_map(|key| Step::Take { key }),
        1 => (0..4_u64).prop_map(|key| Step::Forget { key }),
        1 => Just(Step::Sweep),
        2 => (0..8_u64).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

/// Key, number, deadline; in the order of putting.
type Model = BTreeMap<u32, (u64, Instant)>;

fn newest(model: &Model, key: u64) -> Option<u32> {
    model.iter().rev().find(|(_, entry)| entry.0 == key).map(|(number, _)| *number)
}

fn oldest(model: &Model, key: Option<u64>) -> Option<u32> {
    model.iter().find(|(_, entry)| key.is_none_or(|key| entry.0 == key)).map(|(number, _)| *number)
}

proptest! {
    #[test]
    fn behaves_like_its_model(steps in proptest::collection::vec(step(), 1..200)) {
        const TOTAL: usize = 8;
        let (mut idle, mut model, mut now) = (Idle::new(TOTAL), Model::new(), Instant::now());
        for (number, step) in (0_u32..).zip(steps) {
            match step {
                Step::Put { key, max_idle, seconds } => {
                    let of_key = model.values().filter(|entry| entry.0 == key).count();
                    let evicted = match () {
                        () if of_key >= max_idle => oldest(&model, Some(key)),
                        () if model.len() >= TOTAL => oldest(&model, None),
                        () => None,
                    };
                    evicted.map(|number| model.remove(&number));
                    model.insert(number, (key, now + Duration::from_secs(seconds)));
                    let rejected = idle.put(key, number, &rules(max_idle, seconds), now);
                    prop_assert_eq!(rejected, evicted.map(Rejected));
                }
                Step::Take { key } => {
                    let mut expected = None;
                    while let Some(number) = newest(&model, key).filter(|_| expected.is_none()) {
                        expected = model.remove(&number).filter(|entry| entry.1 > now).map(|_| number);
                    }
                    prop_assert_eq!(idle.take(key, now), expected);
                }
                Step::Forget { key } => {
                    let before = model.len();
                    model.retain(|_, entry| entry.0 != key);
                    prop_assert_eq!(idle.forget(key), before - model.len());
                }
                Step::Sweep => {
                    let before = model.len();
                    model.retain(|_, entry| entry.1 > now);
                    prop_assert_eq!(idle.sweep(now, |_| true), before - model.len());
                }
                Step::Wait { seconds } => now += Duration::from_secs(seconds),
            }
            prop_assert_eq!(idle.len(), model.len());
            for key in 0..4 {
                prop_assert_eq!(idle.count(key), model.values().filter(|entry| entry.0 == key).count());
            }
        }
    }
}
