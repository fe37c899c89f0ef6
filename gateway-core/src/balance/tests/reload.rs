//! What a target keeps when the configuration changes around it.

use super::*;

#[test]
fn unchanged_targets_are_the_same_object() {
    let now = Instant::now();
    let rules = upstream(Algorithm::LeastConnections, &[1, 1]);
    let before = Targets::build(&rules, None, now);
    let _held = before.pick(&ask(now)).unwrap();
    let after = Targets::build(&Upstream { algorithm: Algorithm::PowerOfTwo, ..rules }, Some(&before), now);
    for (old, new) in before.list().iter().zip(after.list()) {
        assert!(Arc::ptr_eq(old, new));
    }
}

#[test]
fn a_changed_weight_keeps_key_count_and_health() {
    let now = Instant::now();
    let mut rules = Upstream {
        active_health: Some(Box::new(active())),
        passive_health: Some(Box::new(passive(1))),
        ..upstream(Algorithm::LeastConnections, &[1, 1])
    };
    let before = Targets::build(&rules, None, now);
    let held = before.pick(&Ask { tried: &[1], ..ask(now) }).unwrap();
    before.list()[1].probed(false, now);
    Arc::make_mut(&mut rules.targets[0]).weight = 7;
    rules.targets.reverse();
    rules.active_health = Some(Box::new(ActiveHealth { healthy_threshold: 2, ..active() }));
    let after = Targets::build(&rules, Some(&before), now);
    assert_eq!(before.list()[0].key(), after.list()[1].key());
    assert_eq!(before.list()[1].key(), after.list()[0].key());
    assert_eq!(after.list()[1].status(now).in_flight, 1);
    assert!(!after.list()[0].is_healthy(now), "probed unhealthy under the old rules");
    drop(held.report(AttemptOutcome::ConnectFailed, now));
    assert_eq!(after.list()[1].status(now).in_flight, 0, "an old exchange still counts off");
    assert!(!after.list()[1].is_healthy(now), "and still teaches");
}

#[test]
fn switching_health_off_makes_everybody_healthy() {
    let now = Instant::now();
    let before = probed(Algorithm::RoundRobin, &[1, 1], now);
    before.list()[0].probed(false, now);
    let after = Targets::build(&upstream(Algorithm::RoundRobin, &[1, 1]), Some(&before), now);
    assert!(after.list()[0].is_healthy(now));
    assert_eq!(after.list()[0].status(now).probed_healthy, None);
    assert_eq!(after.list()[0].key(), before.list()[0].key());
}

#[test]
fn a_shrinking_list_forgets_and_a_growing_one_begins_anew() {
    let now = Instant::now();
    let before = Targets::build(&upstream(Algorithm::ConsistentHashing, &[1; 1000]), None, now);
    let small = Targets::build(&upstream(Algorithm::ConsistentHashing, &[1]), Some(&before), now);
    assert_eq!(small.list().len(), 1);
    assert_eq!(small.pick(&Ask { tried: &[0, 999], ..ask(now) }).unwrap().index, 0);
    let again = Targets::build(&upstream(Algorithm::ConsistentHashing, &[1; 2]), Some(&small), now);
    assert_eq!(again.list()[0].key(), before.list()[0].key());
    assert_ne!(again.list()[1].key(), before.list()[1].key());
}

#[test]
fn breakers_follow_their_targets() {
    let now = Instant::now();
    let mut rules = upstream(Algorithm::RoundRobin, &[1, 1, 1]);
    let before = Targets::build(&rules, None, now);
    let old = Breakers::build(&breaker(1), before.keys(), None, now);
    let tripped = before.pick(&Ask { tried: &[0, 2], breakers: Some(&old), ..ask(now) }).unwrap();
    tripped.report(AttemptOutcome::Broken, now);
    rules.targets.remove(0);
    let after = Targets::build(&rules, Some(&before), now);
    let new = Breakers::build(&breaker(1), after.keys(), Some(&old), now);
    assert!(!new.admits(0, now) && new.admits(1, now));
    assert!(new.status(2, now).is_none());
}

#[test]
fn the_same_target_twice_keeps_both() {
    let now = Instant::now();
    let mut rules = upstream(Algorithm::RoundRobin, &[1, 1]);
    rules.targets[1] = rules.targets[0].clone();
    let before = Targets::build(&rules, None, now);
    let keys = |targets: &Targets| targets.list().iter().map(|target| target.key()).collect::<Vec<_>>();
    assert_ne!(before.list()[0].key(), before.list()[1].key());
    assert_eq!(keys(&before), keys(&Targets::build(&rules, Some(&before), now)));
}

#[test]
fn turns_go_on_across_reloads() {
    let now = Instant::now();
    let rules = upstream(Algorithm::RoundRobin, &[1, 1, 1]);
    let mut targets = Targets::build(&rules, None, now);
    let mut seen = [0; 3];
    for _ in 0..30 {
        seen[targets.pick(&ask(now)).unwrap().index] += 1;
        targets = Targets::build(&rules, Some(&targets), now);
    }
    assert_eq!(seen, [10; 3], "reloading after every exchange must not favour the first target");
}
