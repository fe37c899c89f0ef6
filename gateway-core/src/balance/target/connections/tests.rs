//! How connections are counted, given up and waited for.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::balance::tests::upstream;
use crate::balance::{Ask, Target, Targets};
use crate::config::model::{Algorithm, TargetRules, Upstream};

fn rules(limits: &[u32]) -> Upstream {
    let mut rules = upstream(Algorithm::RoundRobin, &vec![1; limits.len()]);
    for (target, limit) in rules.targets.iter_mut().zip(limits) {
        *target = TargetRules { max_connections: NonZeroU32::new(*limit), ..(**target).clone() }.into();
    }
    rules
}

fn targets(limits: &[u32]) -> Targets {
    Targets::build(&rules(limits), None, Instant::now())
}

fn open(target: &Target) -> u32 {
    target.status(Instant::now()).connections.unwrap()
}

#[test]
fn a_target_whose_connections_are_busy_is_passed_over() {
    let targets = targets(&[1, 2]);
    let limit = targets.list()[0].connection_limit().unwrap();
    let place = limit.try_place(true).unwrap();
    let ask = Ask::any(Instant::now());
    for _ in 0..4 {
        assert_eq!(targets.pick(&ask).unwrap().index, 1);
    }
    assert!(targets.is_full(&ask));
    drop(place);
    assert!((0..4).any(|_| targets.pick(&ask).unwrap().index == 0));
    assert!(!targets.is_full(&ask));
}

#[test]
fn the_only_target_is_full_when_its_connections_are_busy_and_not_when_they_are_idle() {
    let targets = targets(&[1]);
    let limit = targets.list()[0].connection_limit().unwrap();
    let ask = Ask::any(Instant::now());
    let mut place = limit.try_place(true).unwrap();
    assert!(targets.pick(&ask).is_none());
    place.rest();
    assert!(targets.pick(&ask).is_some());
    assert!(limit.try_place(true).is_none(), "the idle one has the place");
    assert!(place.occupy(NonZeroU32::new(1)));
    assert!(targets.pick(&ask).is_none());
}

#[test]
fn there_are_never_more_than_allowed_over_all_threads() {
    let targets = targets(&[3]);
    let limit = targets.list()[0].connection_limit().unwrap();
    let (most, got) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for turn in 0..2000 {
                    let Some(mut place) = limit.try_place(turn % 2 == 0) else { continue };
                    got.fetch_add(1, Relaxed);
                    most.fetch_max(usize::try_from(open(&targets.list()[0])).unwrap(), Relaxed);
                    place.rest();
                    drop(place);
                }
            });
        }
    });
    assert!(most.load(Relaxed) <= 3 && got.load(Relaxed) > 0);
    assert_eq!(open(&targets.list()[0]), 0, "each place came back");
    assert!((0..3).map(|_| limit.try_place(true)).collect::<Option<Vec<_>>>().is_some(), "so did each claim");
}

#[tokio::test]
async fn who_wants_a_place_asks_for_an_idle_connection_and_gets_it() {
    let targets = targets(&[1]);
    let limit = targets.list()[0].connection_limit().unwrap();
    let mut idle = limit.try_place(true).unwrap();
    idle.rest();
    let kept = idle.kept();
    assert!(!kept.give_up(), "nobody has asked");
    let idle = std::sync::Mutex::new(Some(idle));
    let place = limit.place(true, || {
        assert!(kept.is_wanted() && kept.give_up());
        assert!(!kept.give_up(), "one was asked for");
        drop(idle.lock().unwrap().take());
    });
    let place = place.await.unwrap();
    assert_eq!(open(&targets.list()[0]), 1);
    assert!(!kept.is_wanted());
    drop(place);
}

/// One thread looks for callers again and again, mostly in vain, while another one calls.
#[test]
fn a_worker_that_finds_no_caller_does_not_lose_the_next_ones_request() {
    let targets = targets(&[1]);
    let limit = targets.list()[0].connection_limit().unwrap();
    let kept = limit.try_place(false).unwrap().kept();
    let (idle, is_over) = (std::sync::Mutex::new(None), AtomicBool::new(false));
    let came = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                if kept.give_up() {
                    drop(idle.lock().unwrap().take());
                }
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let came = (0..50_000).take_while(|_| {
            let placing =
                async { tokio::time::timeout(Duration::from_secs(5), limit.place(true, || {})).await };
            let Ok(Ok(mut place)) = runtime.block_on(placing) else { return false };
            place.rest();
            *idle.lock().unwrap() = Some(place);
            true
        });
        let came = came.count();
        is_over.store(true, Relaxed);
        came
    });
    assert_eq!(came, 50_000, "each got the place");
}

#[tokio::test]
async fn a_connection_that_others_wait_for_does_not_stay() {
    let targets = targets(&[1]);
    let limit = targets.list()[0].connection_limit().unwrap();
    let mut idle = limit.try_place(true).unwrap();
    idle.rest();
    assert!(idle.may_stay(NonZeroU32::new(1)));
    let placing = limit.place(true, || {});
    let mut placing = pin!(placing);
    let waker = Waker::noop();
    let mut cx = Context::from_waker(waker);
    assert!(Future::poll(placing.as_mut(), &mut cx).is_pending());
    assert!(!idle.may_stay(NonZeroU32::new(1)));
    assert!(!idle.occupy(NonZeroU32::new(1)), "who waits goes first");
    assert_eq!(limit.place(true, || {}).await.unwrap_err(), AllBusy, "no more wait than can be served");
    drop(idle);
    drop(placing.await.unwrap());
    assert_eq!(open(&targets.list()[0]), 0);
}

#[test]
fn a_lower_limit_holds_for_those_that_are_there() {
    let before = targets(&[3]);
    let limit = before.list()[0].connection_limit().unwrap();
    let places: Vec<_> = (0..3).map(|_| limit.try_place(true).unwrap()).collect();
    let after = Targets::build(&rules(&[1]), Some(&before), Instant::now());
    assert!(after.pick(&Ask::any(Instant::now())).is_none());
    let most = after.list()[0].rules.max_connections;
    assert!(!places[0].may_stay(most));
    drop(places);
    assert!(after.list()[0].connection_limit().unwrap().try_place(false).is_some());
}
