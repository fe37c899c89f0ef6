//! Priorities, slow start, panic, limits, queues, cookies and subsets.

use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::thread;

use http::HeaderMap;
use http::header::{COOKIE, HeaderValue};

use super::*;
use crate::config::model::{self, CookieAttributes, HashOn, SameSite, Sharing};

fn sharing() -> Sharing {
    Sharing { wait: Duration::from_secs(1), ..Sharing::default() }
}

/// Targets with these priorities, probed.
fn tiers(algorithm: Algorithm, priorities: &[u8]) -> Upstream {
    let mut rules = upstream(algorithm, &vec![1; priorities.len()]);
    for (target, priority) in rules.targets.iter_mut().zip(priorities) {
        *target = TargetRules { priority: *priority, ..(**target).clone() }.into();
    }
    rules.active_health = Some(Box::new(active()));
    rules
}

fn limited(limits: &[u32]) -> Upstream {
    let mut rules = upstream(Algorithm::RoundRobin, &vec![1; limits.len()]);
    for (target, limit) in rules.targets.iter_mut().zip(limits) {
        *target = TargetRules { max_requests: NonZeroU32::new(*limit), ..(**target).clone() }.into();
    }
    rules
}

fn picks(targets: &Targets, ask: &Ask<'_, '_>, count: usize) -> Vec<usize> {
    let mut seen = vec![0; targets.list().len()];
    for n in 0..count {
        let key = n.to_le_bytes();
        let pick = targets.pick(&Ask { hash_key: Some(&key), ..*ask }).unwrap();
        seen[pick.index] += 1;
    }
    seen
}

#[test]
fn a_backup_gets_nothing_while_others_are_well() {
    let now = Instant::now();
    for algorithm in ALL {
        let targets = Targets::build(&tiers(algorithm, &[1, 0, 0, 2]), None, now);
        let seen = picks(&targets, &ask(now), 300);
        assert_eq!((seen[0], seen[3]), (0, 0), "{algorithm:?}");
        assert_eq!(seen[1] + seen[2], 300);
        [1, 2].iter().for_each(|index: &usize| fail(&targets.list()[*index], now));
        assert_eq!(picks(&targets, &ask(now), 30), [30, 0, 0, 0], "{algorithm:?}");
        fail(&targets.list()[0], now);
        assert_eq!(picks(&targets, &ask(now), 30), [0, 0, 0, 30], "{algorithm:?}");
        fail(&targets.list()[3], now);
        assert!(targets.pick(&ask(now)).unwrap().degraded);
        targets.list()[2].probed(true, now);
        assert_eq!(picks(&targets, &ask(now), 30), [0, 0, 30, 0], "{algorithm:?}");
    }
}

#[test]
fn a_retry_goes_to_the_backup_before_it_goes_back() {
    let now = Instant::now();
    let targets = Targets::build(&tiers(Algorithm::RoundRobin, &[0, 1]), None, now);
    assert_eq!(targets.pick(&Ask { tried: &[0], ..ask(now) }).unwrap().index, 1);
    assert_eq!(targets.pick(&Ask { tried: &[0, 1], ..ask(now) }).unwrap().index, 0);
}

#[test]
fn a_recovered_target_warms_up() {
    let now = Instant::now();
    let start = |seconds| now + Duration::from_secs(seconds);
    let slow = Sharing { slow_start: Duration::from_secs(100), ..sharing() };
    for algorithm in [Algorithm::RoundRobin, Algorithm::WeightedRoundRobin, Algorithm::Random] {
        let rules = Upstream {
            active_health: Some(Box::new(active())),
            sharing: Some(Box::new(slow)),
            ..upstream(algorithm, &[1, 1])
        };
        let targets = Targets::build(&rules, None, now);
        let all = picks(&targets, &ask(start(1)), 1000);
        assert!((400..600).contains(&all[0]), "those of the beginning are warm: {all:?}");
        fail(&targets.list()[0], start(10));
        targets.list()[0].probed(true, start(10));
        for (second, share) in [(10, 20..100), (60, 170..350), (110, 400..600)] {
            let seen = picks(&targets, &ask(start(second)), 1000);
            assert!(share.contains(&seen[0]), "{algorithm:?} after {second} s: {seen:?}");
        }
    }
}

#[test]
fn backups_get_nothing_while_those_before_them_warm_up() {
    let now = Instant::now();
    let slow = Sharing { slow_start: Duration::from_secs(100), ..sharing() };
    let rules = Upstream {
        active_health: Some(Box::new(active())),
        sharing: Some(Box::new(slow)),
        ..tiers(Algorithm::RoundRobin, &[0, 0, 1])
    };
    let targets = Targets::build(&rules, None, now);
    for index in [0, 1] {
        fail(&targets.list()[index], now);
        targets.list()[index].probed(true, now);
    }
    let seen = picks(&targets, &ask(now), 1000);
    assert_eq!(seen[2], 0, "{seen:?}");
    assert!(seen[0] > 300 && seen[1] > 300, "{seen:?}");
}

#[test]
fn an_added_target_warms_up_and_alone_gets_all() {
    let now = Instant::now();
    let slow = Some(Box::new(Sharing { slow_start: Duration::from_secs(100), ..sharing() }));
    let with = |weights| Upstream {
        sharing: slow.clone(),
        active_health: Some(Box::new(active())),
        ..upstream(Algorithm::RoundRobin, weights)
    };
    let before = Targets::build(&with(&[1]), None, now);
    let targets = Targets::build(&with(&[1, 1]), Some(&before), now);
    let seen = picks(&targets, &ask(now), 1000);
    assert!((20..100).contains(&seen[1]), "{seen:?}");
    fail(&targets.list()[0], now);
    assert_eq!(picks(&targets, &ask(now), 100), [0, 100], "nobody else is there");
}

#[test]
fn too_few_healthy_targets_are_not_left_alone_with_the_load() {
    let now = Instant::now();
    let panic = Some(Box::new(Sharing { panic_threshold_percent: 50, ..sharing() }));
    let rules = Upstream { sharing: panic, ..tiers(Algorithm::RoundRobin, &[0; 4]) };
    let targets = Targets::build(&rules, None, now);
    [0, 1].iter().for_each(|index: &usize| fail(&targets.list()[*index], now));
    assert_eq!(picks(&targets, &ask(now), 100)[..2], [0, 0], "half are well: not fewer than 50 %");
    fail(&targets.list()[2], now);
    assert_eq!(picks(&targets, &ask(now), 100), [25; 4]);
}

#[test]
fn a_target_never_has_more_than_it_may() {
    let now = Instant::now();
    let targets = Targets::build(&limited(&[2, 1]), None, now);
    let held: Vec<_> = (0..3).map(|_| targets.pick(&ask(now)).unwrap()).collect();
    assert_eq!(held.iter().filter(|pick| pick.index == 0).count(), 2);
    assert!(targets.pick(&ask(now)).is_none());
    assert!(targets.is_full(&ask(now)));
    let mut held = held.into_iter();
    let settled = held.next().unwrap().report(response(200), now);
    assert!(targets.pick(&ask(now)).is_none(), "its body is still on the way");
    drop(settled);
    assert!(targets.pick(&ask(now)).is_some());
    let alone = Targets::build(&limited(&[1]), None, now);
    let only = alone.pick(&ask(now)).unwrap();
    assert!(alone.pick(&ask(now)).is_none());
    drop(only);
    assert!(alone.pick(&ask(now)).is_some());
}

#[test]
fn threads_never_exceed_the_limit() {
    let now = Instant::now();
    let targets = Targets::build(&limited(&[3, 2]), None, now);
    let (at_once, most) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5000 {
                    let Some(pick) = targets.pick(&ask(now)) else { continue };
                    most.fetch_max(at_once.fetch_add(1, Relaxed) + 1, Relaxed);
                    thread::yield_now();
                    at_once.fetch_sub(1, Relaxed);
                    drop(pick);
                }
            });
        }
    });
    assert!(most.into_inner() <= 5);
    assert_eq!(targets.list().iter().map(|target| target.status(now).in_flight).sum::<u32>(), 0);
}

fn queued(limit: u32, waiting: u32) -> Upstream {
    let sharing = Sharing { max_waiting: waiting, ..sharing() };
    Upstream { sharing: Some(Box::new(sharing)), ..limited(&[limit]) }
}

fn is_waiting(future: Pin<&mut impl Future>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[tokio::test(start_paused = true)]
async fn who_waits_gets_the_next_place() {
    let targets = Targets::build(&queued(1, 2), None, Instant::now());
    let asked = ask(Instant::now());
    let held = targets.pick(&asked).unwrap();
    let (mut first, mut second) = (pin!(targets.wait(&asked)), pin!(targets.wait(&asked)));
    assert!(is_waiting(first.as_mut()));
    assert!(is_waiting(second.as_mut()));
    assert_eq!(targets.waiting_now(), 2);
    assert!(targets.wait(&asked).await.is_none(), "the queue is full");
    drop(held);
    let held = first.await.expect("the place that became free");
    assert!(is_waiting(second.as_mut()));
    let begun = Instant::now();
    assert!(second.await.is_none(), "nobody left in time");
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert_eq!(targets.waiting_now(), 0);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn who_waits_stays_in_line_over_a_reload() {
    let before = Targets::build(&queued(1, 2), None, Instant::now());
    let asked = ask(Instant::now());
    let held = before.pick(&asked).unwrap();
    let mut waiting = pin!(before.wait(&asked));
    assert!(is_waiting(waiting.as_mut()));
    let after = Targets::build(&queued(1, 2), Some(&before), Instant::now());
    assert_eq!(after.waiting_now(), 1);
    drop(held);
    assert!(waiting.await.is_some());
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_breaker_or_without_a_queue() {
    let now = Instant::now();
    let targets = Targets::build(&limited(&[1]), None, now);
    let held = targets.pick(&ask(now)).unwrap();
    assert!(targets.wait(&ask(now)).await.is_none());
    drop(held);
    let targets = Targets::build(&queued(1, 2), None, now);
    let breakers = Breakers::build(&breaker(1), targets.keys(), None, now);
    let asked = Ask { breakers: Some(&breakers), ..ask(now) };
    drop(targets.pick(&asked).unwrap().report(response(503), now));
    assert!(targets.pick(&asked).is_none());
    assert!(targets.wait(&asked).await.is_none());
    assert_eq!(Instant::now(), now);
}

fn attributes() -> CookieAttributes {
    CookieAttributes {
        path: Arc::from("/"),
        ttl: Duration::from_secs(60),
        domain: Some(Arc::from("a.example")),
        http_only: true,
        secure: None,
        same_site: Some(SameSite::Lax),
    }
}

fn with_cookie(names_target: bool) -> Upstream {
    let affinity = model::Affinity { cookie: Arc::from("at"), names_target, attributes: attributes() };
    let algorithm = if names_target { Algorithm::RoundRobin } else { Algorithm::ConsistentHashing };
    Upstream {
        affinity: Some(Box::new(affinity)),
        hash_on: if names_target { HashOn::Ip } else { HashOn::Cookie(Arc::from("at")) },
        active_health: Some(Box::new(active())),
        ..upstream(algorithm, &[1, 1, 1])
    }
}

fn with_value(set_cookie: &HeaderValue) -> HeaderMap {
    let pair = set_cookie.to_str().unwrap().split(';').next().unwrap();
    HeaderMap::from_iter([(COOKIE, HeaderValue::try_from(format!("a=b; {pair}")).unwrap())])
}

#[test]
fn a_cookie_names_the_target() {
    let now = Instant::now();
    let targets = Targets::build(&with_cookie(true), None, now);
    let affinity = targets.affinity().unwrap();
    let empty = HeaderMap::new();
    assert_eq!((affinity.target(&empty), affinity.new_key(&empty)), (None, None));
    for index in 0..3 {
        let cookie = affinity.set_cookie(&empty, index, None, true).unwrap();
        let text = cookie.to_str().unwrap();
        assert!(
            text.ends_with("; Path=/; Domain=a.example; Max-Age=60; HttpOnly; SameSite=Lax; Secure"),
            "{text}"
        );
        assert!(!text.contains("t0"), "{text}");
        let over_http = affinity.set_cookie(&empty, index, None, false).unwrap();
        assert!(!over_http.to_str().unwrap().contains("Secure"), "{over_http:?}");
        let headers = with_value(&cookie);
        assert_eq!(affinity.target(&headers), Some(index));
        assert_eq!(affinity.set_cookie(&headers, index, None, true), None, "it has the right one");
        assert!(affinity.set_cookie(&headers, (index + 1) % 3, None, true).is_some());
    }
    let forged = HeaderMap::from_iter([(COOKIE, HeaderValue::from_static("at=t1:80"))]);
    assert_eq!(affinity.target(&forged), None);
}

#[test]
fn the_preferred_target_is_taken_while_it_may_be() {
    let now = Instant::now();
    let targets = Targets::build(&with_cookie(true), None, now);
    let preferring = Ask { preferred: Some(2), ..ask(now) };
    assert_eq!(picks(&targets, &preferring, 10), [0, 0, 10]);
    assert_ne!(targets.pick(&Ask { tried: &[2], ..preferring }).unwrap().index, 2);
    fail(&targets.list()[2], now);
    assert_eq!(picks(&targets, &preferring, 10)[2], 0);
}

#[test]
fn a_hashed_cookie_is_given_to_who_has_none() {
    let now = Instant::now();
    let targets = Targets::build(&with_cookie(false), None, now);
    let affinity = targets.affinity().unwrap();
    let key = affinity.new_key(&HeaderMap::new()).expect("there is none yet");
    let cookie = affinity.set_cookie(&HeaderMap::new(), 1, Some(&key), false).unwrap();
    assert!(cookie.to_str().unwrap().starts_with(&format!("at={key}; Path=/")));
    let headers = with_value(&cookie);
    assert_eq!(affinity.new_key(&headers), None);
    assert_eq!(affinity.set_cookie(&headers, 1, None, false), None);
}

#[test]
fn a_subset_is_never_left() {
    let now = Instant::now();
    for algorithm in ALL {
        let targets = probed(algorithm, &[1, 1, 1], now);
        let asked = Ask { subset: Some(&[false, true, false]), ..ask(now) };
        assert_eq!(picks(&targets, &asked, 30), [0, 30, 0], "{algorithm:?}");
        assert!(!targets.has_untried(&Ask { tried: &[1], ..asked }));
        fail(&targets.list()[1], now);
        assert_eq!(picks(&targets, &asked, 30), [0, 30, 0], "unhealthy, and the only one: {algorithm:?}");
        assert!(targets.pick(&Ask { subset: Some(&[false; 3]), ..ask(now) }).is_none());
    }
    let alone = probed(Algorithm::RoundRobin, &[1], now);
    assert!(alone.pick(&Ask { subset: Some(&[false]), ..ask(now) }).is_none());
}
