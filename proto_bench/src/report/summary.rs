//! From rounds to rows: medians, spreads, and a verdict over all.

use super::marks;
use super::model::{Latency, Round, Row, Spread, Summary, Verdict};
use crate::measure::counters::Counts;

/// Undisturbed rounds that are enough to leave the others out.
const ENOUGH: usize = 3;

impl Round {
    /// Whether other processes, or other guests of the host, used the machine meanwhile.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.marks.iter().any(|mark| mark == marks::DISTURBED || mark == marks::STOLEN)
    }
}

impl Row {
    /// Fills in verdict, summary and marks from the rounds.
    pub fn conclude(&mut self) {
        if let Verdict::Unavailable(_) = self.verdict {
            return;
        }
        let several = self.rounds.len() > 1;
        let reasons: Vec<String> = (1..)
            .zip(&self.rounds)
            .flat_map(|(number, round)| {
                round.void.iter().map(move |reason| {
                    if several { format!("round {number}: {reason}") } else { reason.clone() }
                })
            })
            .collect();
        let clean: Vec<&Round> = self.rounds.iter().filter(|round| !round.is_disturbed()).collect();
        // The choice looks at what others did, never at the figures.
        let kept = if clean.len() >= ENOUGH { clean } else { self.rounds.iter().collect() };
        let mut marks: Vec<String> = kept.iter().flat_map(|round| round.marks.clone()).collect();
        marks.sort_unstable();
        marks.dedup();
        self.left_out = self.rounds.len() - kept.len();
        self.marks = marks;
        if reasons.is_empty() && !self.rounds.is_empty() {
            self.verdict = Verdict::Valid;
            self.summary = Some(Summary::new(&kept).with(self.simulated));
        } else {
            self.verdict = Verdict::Void(reasons);
            self.summary = None;
        }
    }
}

impl Summary {
    /// Medians and spreads of these rounds.
    #[must_use]
    pub fn new(rounds: &[&Round]) -> Self {
        let spread = |figure: &dyn Fn(&Round) -> f64| Spread::of(rounds.iter().copied().map(figure));
        let latency = |figure: &dyn Fn(&Latency) -> f64| spread(&|round: &Round| figure(&round.latency));
        let watched = rounds.iter().all(|round| round.subject.is_some());
        let subject = |figure: &dyn Fn(&super::model::Usage) -> f64| {
            watched.then(|| Spread::of(rounds.iter().filter_map(|round| round.subject.as_ref()).map(figure)))
        };
        #[expect(clippy::cast_precision_loss, reason = "memory sizes stay far below 2^53")]
        let resident = subject(&|usage| usage.resident_bytes as f64);
        Self {
            rate: spread(&|round| round.rate),
            cpu_us_per_request: subject(&|usage| usage.cpu_us_per_request),
            generator_us_per_request: spread(&|round| round.generator.cpu_us_per_request),
            mean_us: latency(&|latency| latency.mean_us),
            p50_us: latency(&|latency| latency.p50_us),
            p90_us: latency(&|latency| latency.p90_us),
            p95_us: latency(&|latency| latency.p95_us),
            p99_us: latency(&|latency| latency.p99_us),
            p999_us: latency(&|latency| latency.p999_us),
            max_us: latency(&|latency| latency.max_us),
            resident_bytes: resident,
            instructions: counted(rounds, |counts| Some(counts.instructions)),
            instruction_misses: counted(rounds, |counts| counts.instruction_misses),
            data_misses: counted(rounds, |counts| counts.data_misses),
        }
    }

    /// With what was counted in runs of its own in place of the rounds' counts.
    fn with(self, simulated: Option<Counts>) -> Self {
        let Some(counts) = simulated else { return self };
        let alone = |figure: Option<f64>| figure.map(|figure| Spread::of([figure].into_iter()));
        Self {
            instructions: alone(Some(counts.instructions)),
            instruction_misses: alone(counts.instruction_misses),
            data_misses: alone(counts.data_misses),
            ..self
        }
    }
}

/// A count over the rounds, where all have it.
fn counted(rounds: &[&Round], figure: fn(Counts) -> Option<f64>) -> Option<Spread> {
    let values: Vec<f64> = rounds.iter().filter_map(|round| figure(round.counts?)).collect();
    (!values.is_empty() && values.len() == rounds.len()).then(|| Spread::of(values.into_iter()))
}

impl Spread {
    /// The same in another unit.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let Self { median, min, max, cv_percent } = self;
        Self { median: median * factor, min: min * factor, max: max * factor, cv_percent }
    }

    /// Median, extremes and coefficient of variation.
    #[must_use]
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (values.first().copied(), values.last().copied()) else {
            return Self::default();
        };
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            values[middle - 1].midpoint(values[middle])
        } else {
            values[middle]
        };
        #[expect(clippy::cast_precision_loss, reason = "a handful of rounds")]
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if count > 1.0 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        let cv_percent = if mean > 0.0 { deviation / mean * 100.0 } else { 0.0 };
        Self { median, min, max, cv_percent }
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn medians_of_odd_and_even_numbers() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[]), Spread::default());
        assert!((spread(&[3.0, 1.0, 2.0]).median - 2.0).abs() < 1e-9);
        assert!((spread(&[4.0, 1.0, 2.0, 3.0]).median - 2.5).abs() < 1e-9);
        assert!((spread(&[9.0, 11.0]).cv_percent - 14.142).abs() < 1e-3);
    }
}
