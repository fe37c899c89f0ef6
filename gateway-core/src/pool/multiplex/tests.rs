//! Sharing connections: who gets which, and when another is dialled.

use super::*;

const KEY: u64 = 7;

fn rules(connections: usize) -> PoolRules {
    PoolRules { http2_connections: connections, ..PoolRules::default() }
}

/// A pool with this many connections of the key, numbered from 0.
fn pool(connections: usize, max_streams: usize) -> (Multiplex<usize>, Vec<ConnectionId>) {
    let mut pool = Multiplex::default();
    let dials: Vec<_> = (0..connections).map(|_| dial(pool.choose(KEY, &rules(connections)))).collect();
    let ids = dials.into_iter().enumerate();
    let ids =
        ids.map(|(number, dial)| pool.dialled(dial, number, max_streams, &rules(connections))).collect();
    (pool, ids)
}

fn dial(choice: Choice<'_, usize>) -> Dial {
    match choice {
        Choice::Dial(dial) => dial,
        other => panic!("expected a dial, not {other:?}"),
    }
}

fn stream(choice: Choice<'_, usize>) -> (usize, Lease, Option<Dial>) {
    match choice {
        Choice::Use { connection, lease, dial } => (*connection, lease, dial),
        other => panic!("expected a stream, not {other:?}"),
    }
}

#[test]
fn the_first_exchange_dials_and_others_wait_for_it() {
    let mut pool = Multiplex::default();
    let first = dial(pool.choose(KEY, &rules(1)));
    assert!(matches!(pool.choose(KEY, &rules(1)), Choice::Wait));
    assert!(matches!(pool.choose(KEY + 1, &rules(1)), Choice::Dial(_)), "another key is another matter");
    let id = pool.dialled(first, 0, 100, &rules(1));
    let (_, lease, dial) = stream(pool.choose(KEY, &rules(1)));
    assert_eq!((lease.connection(), dial.is_none()), (id, true));
}

#[test]
fn a_cancelled_dial_lets_the_next_one_dial() {
    let mut pool = Multiplex::<usize>::default();
    for _ in 0..10 {
        drop(dial(pool.choose(KEY, &rules(1))));
    }
    let held = dial(pool.choose(KEY, &rules(1)));
    pool.sweep(Instant::now(), |_| true);
    assert!(matches!(pool.choose(KEY, &rules(1)), Choice::Wait), "a sweep does not forget a dial under way");
    drop(held);
}

#[test]
fn streams_go_to_the_least_busy() {
    let (mut pool, _) = pool(2, 100);
    let leases: Vec<_> = (0..10).map(|_| stream(pool.choose(KEY, &rules(2)))).collect();
    assert_eq!(leases.iter().filter(|(number, ..)| *number == 0).count(), 5);
    assert_eq!(pool.streams(KEY), 10);
    let kept: Vec<_> = leases.into_iter().filter(|(number, ..)| *number == 1).collect();
    assert_eq!(stream(pool.choose(KEY, &rules(2))).0, 0);
    drop(kept);
    assert_eq!(pool.streams(KEY), 0);
}

#[test]
fn a_busy_connection_asks_for_another_just_once() {
    let (mut pool, _) = pool(1, 100);
    let quiet: Vec<_> = (0..SPREAD_AT).map(|_| stream(pool.choose(KEY, &rules(2)))).collect();
    assert!(quiet.iter().all(|(.., dial)| dial.is_none()));
    let (_, _lease, dial) = stream(pool.choose(KEY, &rules(2)));
    let dial = dial.unwrap();
    assert!(stream(pool.choose(KEY, &rules(2))).2.is_none(), "one is being dialled");
    pool.dialled(dial, 1, 100, &rules(2));
    assert_eq!(stream(pool.choose(KEY, &rules(2))).0, 1);
}

#[test]
fn beyond_all_limits_it_is_full() {
    let (mut pool, ids) = pool(2, 1);
    let held = [stream(pool.choose(KEY, &rules(2))), stream(pool.choose(KEY, &rules(2)))];
    assert!(matches!(pool.choose(KEY, &rules(2)), Choice::Full));
    pool.limit(ids[1], 2);
    assert_eq!(stream(pool.choose(KEY, &rules(2))).0, 1);
    pool.limit(ids[1], 0);
    drop(held);
    assert_eq!(stream(pool.choose(KEY, &rules(2))).0, 0, "a peer that allows no streams gets none");
}

#[test]
fn a_retired_connection_ends_its_streams_and_goes() {
    let (mut pool, ids) = pool(1, 100);
    let (_, lease, _) = stream(pool.choose(KEY, &rules(1)));
    pool.retire(ids[0]);
    let replacement = dial(pool.choose(KEY, &rules(1)));
    pool.dialled(replacement, 1, 100, &rules(1));
    assert_eq!((pool.count(KEY), stream(pool.choose(KEY, &rules(1))).0), (2, 1));
    drop(lease);
    drop(stream(pool.choose(KEY, &rules(1))));
    assert_eq!((pool.count(KEY), pool.len()), (1, 1));
}

#[test]
fn a_broken_connection_is_removed_whatever_it_carries() {
    let (mut pool, ids) = pool(1, 100);
    let (_, lease, _) = stream(pool.choose(KEY, &rules(1)));
    assert_eq!(pool.remove(ids[0]), Some(0));
    assert_eq!(pool.remove(ids[0]), None);
    drop(lease);
    pool.retire(ids[0]);
    assert!(pool.is_empty() && matches!(pool.choose(KEY, &rules(1)), Choice::Dial(_)));
}

#[test]
fn idle_connections_are_swept_after_their_timeout() {
    let (mut pool, _) = pool(1, 100);
    let now = Instant::now();
    let (_, lease, _) = stream(pool.choose(KEY, &rules(1)));
    let timeout = rules(1).idle_timeout;
    assert_eq!(pool.sweep(now + timeout * 2, |_| true), 0, "it carries a stream");
    drop(lease);
    assert_eq!(pool.sweep(now + timeout * 2, |_| true), 0, "it has only begun to be idle");
    drop(stream(pool.choose(KEY, &rules(1))));
    assert_eq!(pool.sweep(now + timeout * 3, |_| true), 0, "it was used meanwhile");
    assert_eq!(pool.sweep(now + timeout * 4, |_| true), 1);
    assert!(pool.groups.is_empty());
}

#[test]
fn the_dead_and_the_unconfigured_go() {
    let (mut pool, _) = pool(3, 100);
    assert_eq!(pool.sweep(Instant::now(), |number| *number != 1), 1);
    let (_, lease, _) = stream(pool.choose(KEY, &rules(2)));
    pool.forget(KEY);
    assert_eq!(pool.count(KEY), 1, "one still carries a stream");
    drop(lease);
    assert_eq!(pool.sweep(Instant::now(), |_| true), 1);
}

#[test]
fn a_connection_that_turned_out_to_be_shareable_is_adopted_once() {
    let mut pool = Multiplex::default();
    let id = pool.adopt(KEY, 5, 100, &rules(1)).unwrap();
    assert_eq!(pool.adopt(KEY, 6, 100, &rules(1)), Err(Rejected(6)));
    let (number, lease, _) = stream(pool.choose(KEY, &rules(1)));
    assert_eq!((number, lease.connection()), (5, id));
}

#[test]
fn the_pool_as_a_whole_has_a_limit() {
    let mut pool = Multiplex::new(2);
    for key in 0..2 {
        let dial = dial(pool.choose(key, &rules(2)));
        pool.dialled(dial, 0, 100, &rules(2));
    }
    assert!(matches!(pool.choose(2, &rules(2)), Choice::Full));
    assert!(matches!(pool.choose(1, &rules(2)), Choice::Use { .. }));
}
