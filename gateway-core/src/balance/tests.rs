//! Picking, as an exchange sees it.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::config::model::{
    ActiveHealth, Algorithm, CircuitBreaker, Id, PassiveHealth, Probe, TargetRules, Upstream,
};
use crate::health::{Breakers, HealthChange};

mod distribution;
mod hashing;
mod reload;
mod sharing;

const ALL: [Algorithm; 8] = [
    Algorithm::RoundRobin,
    Algorithm::WeightedRoundRobin,
    Algorithm::LeastConnections,
    Algorithm::LeastLatency,
    Algorithm::ConsistentHashing,
    Algorithm::Maglev,
    Algorithm::Random,
    Algorithm::PowerOfTwo,
];

fn target(host: &str, weight: u16) -> TargetRules {
    TargetRules { weight, ..TargetRules::new(Arc::from(host), 80) }
}

/// Targets `t0`, `t1`, … with these weights.
pub(super) fn upstream(algorithm: Algorithm, weights: &[u16]) -> Upstream {
    let targets = weights.iter().enumerate().map(|(index, weight)| target(&format!("t{index}"), *weight));
    Upstream { algorithm, ..Upstream::new(Id::new("u").unwrap(), targets.map(Arc::new).collect()) }
}

pub(super) fn active() -> ActiveHealth {
    ActiveHealth {
        probe: Probe::Tcp { tls: false, send: Box::default(), expect: None },
        interval: Duration::from_secs(10),
        timeout: Duration::from_secs(5),
        healthy_threshold: 1,
        unhealthy_threshold: 1,
    }
}

fn passive(threshold: u32) -> PassiveHealth {
    PassiveHealth {
        unhealthy_status_codes: vec![500, 503],
        unhealthy_threshold: threshold,
        window: Duration::from_secs(30),
        healthy_after: Duration::from_secs(30),
        healthy_after_max: Duration::from_secs(300),
        max_ejected_percent: 100,
    }
}

fn breaker(failures: u32) -> CircuitBreaker {
    CircuitBreaker {
        failure_threshold: failures,
        success_threshold: 1,
        open_for: Duration::from_secs(30),
        status_codes: vec![503],
        half_open_max_requests: 1,
        trip_on_connection_errors: true,
    }
}

fn probed(algorithm: Algorithm, weights: &[u16], now: Instant) -> Targets {
    Targets::build(
        &Upstream { active_health: Some(Box::new(active())), ..upstream(algorithm, weights) },
        None,
        now,
    )
}

/// Lets a probe find the target unhealthy, unless it is already.
pub(super) fn fail(target: &Target, now: Instant) {
    target.probed(false, now);
    assert!(!target.is_healthy(now));
}

fn ask<'t, 'a>(now: Instant) -> Ask<'t, 'a> {
    Ask { hash_key: Some(b"key"), ..Ask::any(now) }
}

fn response(status: u16) -> AttemptOutcome {
    AttemptOutcome::Response {
        status: StatusCode::from_u16(status).unwrap(),
        first_byte: Duration::from_millis(1),
    }
}

#[test]
fn picks_may_cross_await_points_and_targets_threads() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Send + Sync>() {}
    is_send::<Pick<'static>>();
    is_sync::<Targets>();
    is_sync::<Flight>();
}

#[test]
fn names_and_headers_of_a_target() {
    let mut rules = upstream(Algorithm::RoundRobin, &[1, 1]);
    rules.targets[0] = TargetRules { port: 8443, ..target("2001:db8::1", 1) }.into();
    rules.targets[1] = target("café", 1).into();
    let targets = Targets::build(&rules, None, Instant::now());
    let six = &targets.list()[0];
    assert_eq!(&**six.authority(), "[2001:db8::1]:8443");
    assert_eq!(six.host_header(443), "[2001:db8::1]:8443");
    assert_eq!(six.host_header(8443), "[2001:db8::1]");
    assert_eq!(targets.list()[1].host_header(80).as_bytes(), "café".as_bytes());
}

#[test]
fn an_empty_group_picks_nothing() {
    for algorithm in ALL {
        let targets = Targets::build(&upstream(algorithm, &[]), None, Instant::now());
        assert!(targets.pick(&ask(Instant::now())).is_none(), "{algorithm:?}");
    }
}

#[test]
fn one_target_is_always_picked_and_never_counted() {
    let now = Instant::now();
    for algorithm in ALL {
        let targets = Targets::build(&upstream(algorithm, &[1]), None, now);
        let pick = targets.pick(&Ask { tried: &[0], ..ask(now) }).unwrap();
        assert_eq!((pick.index, pick.degraded, pick.is_probe()), (0, false, false));
        assert_eq!(targets.list()[0].status(now).in_flight, 0);
        assert!(targets.hash_on().is_none());
    }
}

#[test]
fn unhealthy_targets_are_passed_over_by_every_algorithm() {
    let now = Instant::now();
    for algorithm in ALL {
        let targets = probed(algorithm, &[1, 65535, 7, 1], now);
        assert_eq!(targets.list()[1].probed(false, now), Some(HealthChange::Failed));
        for turn in 0..500_u32 {
            let key = turn.to_le_bytes();
            let pick = targets.pick(&Ask { hash_key: Some(&key), ..ask(now) }).unwrap();
            assert!(pick.index != 1 && !pick.degraded, "{algorithm:?}");
        }
        assert_eq!(targets.list()[1].probed(true, now), Some(HealthChange::Recovered));
    }
}

#[test]
fn when_all_are_unhealthy_all_are_tried() {
    fastrand::seed(7);
    let now = Instant::now();
    for algorithm in ALL {
        for count in [1, 2, 3] {
            let targets = probed(algorithm, &vec![1; count], now);
            targets.list().iter().for_each(|target| fail(target, now));
            let mut seen = vec![0; count];
            for turn in 0..600_u32 {
                let key = turn.to_le_bytes();
                let pick = targets.pick(&Ask { hash_key: Some(&key), ..ask(now) }).unwrap();
                assert!(pick.degraded);
                seen[pick.index] += 1;
            }
            assert!(seen.iter().all(|picks| *picks > 60), "{algorithm:?}: {seen:?}");
        }
    }
}

#[test]
fn tried_targets_come_last_but_before_unhealthy_ones() {
    let now = Instant::now();
    for algorithm in ALL {
        let targets = probed(algorithm, &[1, 1, 1], now);
        targets.list()[2].probed(false, now);
        for _ in 0..50 {
            let pick = targets.pick(&Ask { tried: &[0], ..ask(now) }).unwrap();
            assert_eq!((pick.index, pick.degraded), (1, false), "{algorithm:?}");
            let pick = targets.pick(&Ask { tried: &[0, 1], ..ask(now) }).unwrap();
            assert!(pick.index < 2 && !pick.degraded, "{algorithm:?}");
        }
        targets.list().iter().for_each(|target| fail(target, now));
        let pick = targets.pick(&Ask { tried: &[0, 1], ..ask(now) }).unwrap();
        assert_eq!((pick.index, pick.degraded), (2, true), "{algorithm:?}");
    }
}

#[test]
fn open_breakers_are_obeyed_and_all_open_picks_nothing() {
    let now = Instant::now();
    for algorithm in ALL {
        let targets = Targets::build(&upstream(algorithm, &[1, 1]), None, now);
        let breakers = Breakers::build(&breaker(1), targets.keys(), None, now);
        let ask = Ask { breakers: Some(&breakers), ..ask(now) };
        let first = targets.pick(&ask).unwrap();
        let broken = first.index;
        first.report(AttemptOutcome::ConnectFailed, now);
        for _ in 0..20 {
            assert_ne!(targets.pick(&ask).unwrap().index, broken, "{algorithm:?}");
        }
        targets.pick(&ask).unwrap().report(response(503), now);
        assert!(targets.pick(&ask).is_none(), "{algorithm:?}");
    }
}

#[test]
fn a_half_open_target_gets_its_probes_and_no_more() {
    let now = Instant::now();
    for algorithm in ALL {
        for count in [1, 2] {
            let targets = Targets::build(&upstream(algorithm, &vec![1; count]), None, now);
            let breakers = Breakers::build(&breaker(1), targets.keys(), None, now);
            let trip = Ask { breakers: Some(&breakers), ..ask(now) };
            (0..count).for_each(|_| drop(targets.pick(&trip).unwrap().report(AttemptOutcome::Broken, now)));
            let later = Ask { now: now + Duration::from_secs(31), ..trip };
            let probes: Vec<_> = (0..count).map(|_| targets.pick(&later).unwrap()).collect();
            assert!(probes.iter().all(Pick::is_probe), "{algorithm:?}");
            assert!(targets.pick(&later).is_none(), "{algorithm:?}");
            drop(probes);
            assert!(targets.pick(&later).unwrap().is_probe(), "a dropped probe gives its slot back");
        }
    }
}

#[test]
fn failures_take_a_target_out_and_time_brings_it_back() {
    let now = Instant::now();
    let rules =
        Upstream { passive_health: Some(Box::new(passive(2))), ..upstream(Algorithm::RoundRobin, &[1, 1]) };
    let targets = Targets::build(&rules, None, now);
    let fail = |now| {
        let pick = targets.pick(&Ask { tried: &[1], ..ask(now) }).unwrap();
        pick.report(response(500), now).health
    };
    assert_eq!(fail(now), None);
    assert_eq!(fail(now), Some(HealthChange::Failed));
    (0..20).for_each(|_| assert_eq!(targets.pick(&ask(now)).unwrap().index, 1));
    let back = now + Duration::from_secs(30);
    let mut seen = [false; 2];
    (0..4).for_each(|_| seen[targets.pick(&ask(back)).unwrap().index] = true);
    assert_eq!(seen, [true; 2]);
}

#[test]
fn a_success_in_need_brings_a_target_back() {
    let now = Instant::now();
    let rules =
        Upstream { passive_health: Some(Box::new(passive(1))), ..upstream(Algorithm::RoundRobin, &[1]) };
    let targets = Targets::build(&rules, None, now);
    let straggler = targets.pick(&ask(now)).unwrap();
    let settled = targets.pick(&ask(now)).unwrap().report(AttemptOutcome::TimedOut, now);
    assert_eq!(settled.health, Some(HealthChange::Failed));
    assert_eq!(straggler.report(response(200), now).health, None, "it was let through before the failure");
    let needed = targets.pick(&ask(now)).unwrap();
    assert!(needed.degraded);
    assert_eq!(needed.report(response(200), now).health, Some(HealthChange::Recovered));
    assert!(!targets.pick(&ask(now)).unwrap().degraded);
}

#[test]
fn exchanges_are_counted_until_their_flight_ends() {
    let now = Instant::now();
    for algorithm in [Algorithm::LeastConnections, Algorithm::LeastLatency, Algorithm::PowerOfTwo] {
        let targets = Targets::build(&upstream(algorithm, &[1, 1]), None, now);
        let count = || targets.list().iter().map(|target| target.status(now).in_flight).sum::<u32>();
        let (pick, dropped) = (targets.pick(&ask(now)).unwrap(), targets.pick(&ask(now)).unwrap());
        assert_eq!(count(), 2);
        drop(dropped);
        let settled = pick.report(response(200), now);
        assert_eq!(count(), 1, "{algorithm:?}: the body is still under way");
        drop(settled);
        assert_eq!(count(), 0);
    }
}

#[test]
fn threads_leave_no_count_and_no_slot_behind() {
    let now = Instant::now();
    let targets = probed(Algorithm::LeastConnections, &[1, 3, 5], now);
    let breakers = Breakers::build(
        &CircuitBreaker { open_for: Duration::ZERO, ..breaker(2) },
        targets.keys(),
        None,
        now,
    );
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for step in 0..5_000_u64 {
                    let now = now + Duration::from_millis(step * 2);
                    let Some(pick) = targets.pick(&Ask { breakers: Some(&breakers), ..ask(now) }) else {
                        continue;
                    };
                    match fastrand::u8(..4) {
                        0 => drop(pick),
                        1 => drop(pick.report(AttemptOutcome::Broken, now)),
                        _ => drop(pick.report(response(200), now)),
                    }
                }
            });
        }
    });
    assert!(targets.list().iter().all(|target| target.status(now).in_flight == 0));
    let later = now + Duration::from_secs(60);
    for index in 0..3 {
        let others: Vec<_> = (0..3).filter(|other| *other != index).collect();
        let pick = targets.pick(&Ask { tried: &others, breakers: Some(&breakers), ..ask(later) });
        assert_eq!(pick.map(|pick| pick.index), Some(index), "its breaker is stuck");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_happens_a_pick_is_open(
        algorithm in proptest::sample::select(&ALL[..]),
        weights in proptest::collection::vec(0u16.., 1..40),
        down in proptest::collection::vec(any::<bool>(), 40),
        tried in proptest::collection::vec(0usize..50, 0..8),
        key in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let now = Instant::now();
        let targets = probed(algorithm, &weights, now);
        for (target, down) in targets.list().iter().zip(&down) {
            if *down {
                target.probed(false, now);
            }
        }
        let healthy: Vec<_> = (0..weights.len()).filter(|index| !down[*index]).collect();
        for _ in 0..20 {
            let pick = targets.pick(&Ask { tried: &tried, hash_key: Some(&key), ..ask(now) }).unwrap();
            prop_assert_eq!(pick.degraded, healthy.is_empty());
            if !healthy.is_empty() {
                prop_assert!(healthy.contains(&pick.index));
            }
            let pool = if healthy.is_empty() { (0..weights.len()).collect() } else { healthy.clone() };
            if weights.len() > 1 && pool.iter().any(|index| !tried.contains(index)) {
                prop_assert!(!tried.contains(&pick.index));
            }
        }
    }
}
