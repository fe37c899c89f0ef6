//! The sliding window against a plain count of moments.

use std::sync::atomic::AtomicU32;
use std::thread;

use proptest::prelude::*;

use super::*;

fn window(limit: u32, seconds: u64) -> (Window, Instant) {
    let now = Instant::now();
    (Window::new(limit, Duration::from_secs(seconds), Epoch::starting(now)), now)
}

fn passes(window: &Window, state: &WindowState, now: Instant) -> usize {
    let granted = |()| matches!(window.take(state, 1, now), Allowance::Granted { .. });
    std::iter::repeat(()).map(granted).take(100_000).take_while(|granted| *granted).count()
}

#[test]
fn lets_the_limit_through_and_frees_it_gradually() {
    let (window, now) = window(10, 60);
    let state = WindowState::default();
    let first = window.take(&state, 1, now);
    assert_eq!(first, Allowance::Granted { remaining: 9, reset: Duration::from_secs(120) });
    assert_eq!(passes(&window, &state, now), 9);
    let minute = now + Duration::from_secs(60);
    assert_eq!(passes(&window, &state, minute), 0, "the whole last minute is still in the window");
    assert_eq!(passes(&window, &state, minute + Duration::from_secs(30)), 5);
    assert_eq!(passes(&window, &state, now + Duration::from_secs(600)), 10);
}

#[test]
fn a_refusal_costs_nothing() {
    let (window, now) = window(3, 60);
    let state = WindowState::default();
    assert!(matches!(window.take(&state, 4, now), Allowance::Refused { .. }));
    assert_eq!(passes(&window, &state, now), 3);
}

#[test]
fn an_old_state_is_idle() {
    let (window, now) = window(3, 60);
    let state = WindowState::default();
    assert!(window.is_idle(&state, now));
    window.take(&state, 1, now);
    assert!(!window.is_idle(&state, now + Duration::from_secs(119)));
    assert!(window.is_idle(&state, now + Duration::from_secs(120)));
}

#[test]
fn extremes_do_not_overflow() {
    let now = Instant::now();
    for (limit, period) in [(0, Duration::ZERO), (u32::MAX, Duration::MAX), (1, Duration::from_nanos(1))] {
        let window = Window::new(limit, period, Epoch::starting(now));
        let state = WindowState::default();
        for step in [0, 1, 1 << 20, 1 << 32] {
            let now = now + Duration::from_secs(step);
            window.take(&state, u32::MAX, now);
            window.take(&state, 1, now);
            state.current.add(u32::MAX, window.moment(now));
            state.current.add(7, window.moment(now));
        }
    }
}

#[test]
fn threads_share_exactly_one_limit() {
    let (window, now) = window(1000, 60);
    let (state, passed) = (WindowState::default(), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| passed.fetch_add(passes(&window, &state, now) as u32, Relaxed));
        }
    });
    assert_eq!(passed.into_inner(), 1000);
}

#[test]
fn threads_lose_no_count_at_the_turn_of_a_period() {
    let (window, now) = window(u32::MAX, 1);
    for round in 0..200 {
        let sliding = Sliding::default();
        let (last, first) = (now + Duration::from_secs(round), now + Duration::from_secs(round + 1));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..50).for_each(|_| sliding.add(1, window.moment(last)));
                });
            }
        });
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..50).for_each(|_| sliding.add(1, window.moment(first)));
                });
            }
        });
        assert_eq!(sliding.estimate(window.moment(first)), 400);
    }
}

proptest! {
    #[test]
    fn never_passes_twice_the_limit_in_any_window(
        limit in 1u32..20,
        gaps in proptest::collection::vec(0u64..700, 1..200),
    ) {
        let (window, mut now) = window(limit, 1);
        let state = WindowState::default();
        let mut granted: Vec<Instant> = Vec::new();
        for gap in gaps {
            now += Duration::from_millis(gap);
            if let Allowance::Granted { .. } = window.take(&state, 1, now) {
                granted.push(now);
            }
            let within = granted.iter().filter(|moment| now - **moment < Duration::from_secs(1)).count();
            prop_assert!(within <= 2 * limit as usize);
        }
    }

    #[test]
    fn retry_after_is_long_enough_and_not_much_longer(
        limit in 1u32..50,
        cost in 1u32..50,
        gaps in proptest::collection::vec(0u64..400, 1..60),
    ) {
        prop_assume!(cost <= limit);
        let (window, mut now) = window(limit, 1);
        let state = WindowState::default();
        for gap in gaps {
            now += Duration::from_millis(gap);
            if let Allowance::Refused { retry_after } = window.take(&state, cost, now) {
                prop_assert!(retry_after <= Duration::from_secs(2));
                let almost = window.take(&state, cost, now + retry_after - Duration::from_nanos(1));
                let refused = matches!(almost, Allowance::Refused { .. });
                prop_assert!(refused || retry_after == Duration::from_nanos(1), "{:?}", retry_after);
                now += retry_after;
                let granted = matches!(window.take(&state, cost, now), Allowance::Granted { .. });
                prop_assert!(granted);
            }
        }
    }
}
