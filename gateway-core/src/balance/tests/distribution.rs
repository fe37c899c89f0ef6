//! Who gets how much, and in which order.

use super::*;

fn picks(targets: &Targets, count: usize, now: Instant) -> Vec<usize> {
    (0..count).map(|_| targets.pick(&ask(now)).unwrap().index).collect()
}

fn counts(picks: &[usize], len: usize) -> Vec<usize> {
    let mut counts = vec![0; len];
    picks.iter().for_each(|index| counts[*index] += 1);
    counts
}

/// Whether each count is within `percent` of its weight's share.
pub(super) fn assert_shares(counts: &[usize], weights: &[u16], percent: f64) {
    let (all, total) =
        (counts.iter().sum::<usize>() as f64, weights.iter().map(|w| f64::from(*w)).sum::<f64>());
    for (count, weight) in counts.iter().zip(weights) {
        let expected = all * f64::from(*weight) / total;
        let error = (*count as f64 - expected).abs();
        assert!(error <= expected * percent / 100.0 + 1.0, "{counts:?} for {weights:?}");
    }
}

#[test]
fn round_robin_takes_each_in_turn() {
    let now = Instant::now();
    let targets = Targets::build(&upstream(Algorithm::RoundRobin, &[9, 1, 1]), None, now);
    assert_eq!(picks(&targets, 7, now), [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn round_robin_shares_a_closed_targets_turns_evenly() {
    let now = Instant::now();
    let targets = probed(Algorithm::RoundRobin, &[1; 5], now);
    targets.list()[1].probed(false, now);
    targets.list()[2].probed(false, now);
    assert_eq!(counts(&picks(&targets, 300, now), 5), [100, 0, 0, 100, 100]);
}

#[test]
fn weighted_round_robin_interleaves_smoothly() {
    let now = Instant::now();
    let targets = Targets::build(&upstream(Algorithm::WeightedRoundRobin, &[50, 10, 10]), None, now);
    assert_eq!(picks(&targets, 7, now), [0, 0, 1, 0, 2, 0, 0]);
    let targets = Targets::build(&upstream(Algorithm::WeightedRoundRobin, &[2, 1, 1]), None, now);
    assert_eq!(picks(&targets, 4, now), [0, 1, 2, 0]);
}

#[test]
fn hostile_weights_keep_their_exact_share_of_a_cycle() {
    let now = Instant::now();
    for weights in [[65535, 1, 1], [65535, 65534, 1], [65521, 65519, 65497]] {
        let total: usize = weights.iter().map(|weight| usize::from(*weight)).sum();
        let targets = Targets::build(&upstream(Algorithm::WeightedRoundRobin, &weights), None, now);
        let expected: Vec<_> = weights.iter().map(|weight| usize::from(*weight)).collect();
        assert_eq!(counts(&picks(&targets, total, now), 3), expected);
    }
}

#[test]
fn a_thousand_targets_of_any_weight_get_their_share() {
    let now = Instant::now();
    let weights: Vec<u16> = (0..1000).map(|index| 1 + index * 60).collect();
    let targets = Targets::build(&upstream(Algorithm::WeightedRoundRobin, &weights), None, now);
    let picks = picks(&targets, 1_000_000, now);
    let heavy =
        |picks: &[usize]| picks.iter().filter(|index| **index >= 500).count() as f64 / picks.len() as f64;
    assert!((heavy(&picks) - 0.75).abs() < 0.001);
    assert!(picks.chunks(100).all(|chunk| (heavy(chunk) - 0.75).abs() < 0.06), "not smooth");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn weighted_round_robin_never_strays_far(weights in proptest::collection::vec(1u16.., 2..12)) {
        let now = Instant::now();
        let targets = Targets::build(&upstream(Algorithm::WeightedRoundRobin, &weights), None, now);
        let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let mut seen = vec![0.0; weights.len()];
        for turn in 1..=3000 {
            seen[targets.pick(&ask(now)).unwrap().index] += 1.0;
            for (count, weight) in seen.iter().zip(&weights) {
                let expected = f64::from(turn) * f64::from(*weight) / total;
                prop_assert!((count - expected).abs() < 6.0, "{weights:?} after {turn}: {seen:?}");
            }
        }
    }
}

#[test]
fn a_closed_targets_share_goes_to_the_others_by_weight() {
    fastrand::seed(7);
    let now = Instant::now();
    for algorithm in [Algorithm::WeightedRoundRobin, Algorithm::Random] {
        for weights in [[60000, 3000, 1000], [6, 3, 1], [1, 3, 1]] {
            let targets = probed(algorithm, &weights, now);
            targets.list()[0].probed(false, now);
            let counts = counts(&picks(&targets, 8000, now), 3);
            assert_eq!(counts[0], 0);
            assert_shares(&counts[1..], &weights[1..], 8.0);
        }
    }
}

#[test]
fn random_follows_the_weights() {
    fastrand::seed(7);
    let now = Instant::now();
    let weights = [1, 2, 3, 4];
    let targets = Targets::build(&upstream(Algorithm::Random, &weights), None, now);
    assert_shares(&counts(&picks(&targets, 40_000, now), 4), &weights, 8.0);
}

#[test]
fn least_connections_fills_up_by_weight() {
    let now = Instant::now();
    let weights = [1, 2, 3];
    let targets = Targets::build(&upstream(Algorithm::LeastConnections, &weights), None, now);
    let held: Vec<_> = (0..600).map(|_| targets.pick(&ask(now)).unwrap()).collect();
    let counts = counts(&held.iter().map(|pick| pick.index).collect::<Vec<_>>(), 3);
    assert_shares(&counts, &weights, 1.0);
}

#[test]
fn least_connections_avoids_the_one_that_holds_on() {
    let now = Instant::now();
    let targets = Targets::build(&upstream(Algorithm::LeastConnections, &[1, 1, 1]), None, now);
    let held = targets.pick(&ask(now)).unwrap();
    let slow = held.index;
    let _streaming = held.report(response(200), now).flight;
    let counts = counts(&picks(&targets, 30, now), 3);
    assert_eq!(counts[slow], 0, "its body is still under way");
}

#[test]
fn least_connections_uses_an_idle_group_by_weight() {
    let now = Instant::now();
    let targets = Targets::build(&upstream(Algorithm::LeastConnections, &[1, 3]), None, now);
    assert_eq!(counts(&picks(&targets, 400, now), 2), [100, 300]);
}

#[test]
fn power_of_two_levels_the_load() {
    fastrand::seed(7);
    let now = Instant::now();
    let targets = Targets::build(&upstream(Algorithm::PowerOfTwo, &[1; 50]), None, now);
    let held: Vec<_> = (0..5000).map(|_| targets.pick(&ask(now)).unwrap()).collect();
    let counts = counts(&held.iter().map(|pick| pick.index).collect::<Vec<_>>(), 50);
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(most - least <= 12, "{counts:?}");
}

/// Reports so many answers of a target that took so long.
fn answer(targets: &Targets, index: usize, took: Duration, now: Instant) {
    let others: Vec<_> = (0..targets.list().len()).filter(|other| *other != index).collect();
    for _ in 0..5 {
        let pick = targets.pick(&Ask { tried: &others, ..ask(now) }).unwrap();
        pick.report(AttemptOutcome::Response { status: StatusCode::OK, first_byte: took }, now);
    }
}

#[test]
fn least_latency_prefers_the_fastest_without_herding() {
    let now = Instant::now();
    let targets = Targets::build(&upstream(Algorithm::LeastLatency, &[1, 1, 1]), None, now);
    for (index, millis) in [10, 20, 30].into_iter().enumerate() {
        answer(&targets, index, Duration::from_millis(millis), now);
    }
    assert_eq!(picks(&targets, 10, now), [0; 10], "one at a time the fastest is always free");
    let held: Vec<_> = (0..110).map(|_| targets.pick(&ask(now)).unwrap()).collect();
    let counts = counts(&held.iter().map(|pick| pick.index).collect::<Vec<_>>(), 3);
    assert!(counts[0] > counts[1] && counts[1] > counts[2] && counts[2] >= 18, "{counts:?}");
}

#[test]
fn least_latency_gives_a_cold_target_its_samples_and_no_more() {
    let now = Instant::now();
    let targets = Targets::build(&upstream(Algorithm::LeastLatency, &[1, 1]), None, now);
    answer(&targets, 0, Duration::from_millis(10), now);
    let held: Vec<_> = (0..20).map(|_| targets.pick(&ask(now)).unwrap()).collect();
    assert_eq!(held.iter().filter(|pick| pick.index == 1).count(), 5);
}

#[test]
fn least_latency_is_not_drawn_to_fast_failures_but_forgives_them() {
    let now = Instant::now();
    let targets = Targets::build(&upstream(Algorithm::LeastLatency, &[1, 1]), None, now);
    answer(&targets, 0, Duration::from_millis(50), now);
    answer(&targets, 1, Duration::from_millis(40), now);
    let fast = targets.pick(&ask(now)).unwrap();
    assert_eq!(fast.index, 1);
    fast.report(response(500), now);
    assert_eq!(picks(&targets, 10, now), [0; 10]);
    // The slower one keeps answering; the other's average grows old until it is the smaller one.
    let back = (0..60).find(|second| {
        let now = now + Duration::from_secs(*second);
        let pick = targets.pick(&ask(now)).unwrap();
        let index = pick.index;
        pick.report(
            AttemptOutcome::Response { status: StatusCode::OK, first_byte: Duration::from_millis(50) },
            now,
        );
        index == 1
    });
    assert!(back.is_some());
}
