//! Plugins' metrics: counters, gauges and histograms, registered once, with labels whose number is bounded.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::config::credential_names::redact_text;
use crate::metrics::Metric;
use crate::metrics::text::TextPage;
use crate::metrics::{HistogramSeries, Labels, MetricVisitor};

/// Label values a metric may have; what goes beyond shares `_other`.
pub const MAX_SERIES: usize = 1000;
/// The label value of what goes beyond [`MAX_SERIES`].
pub const OTHER: &str = "_other";
/// Cells a counter is spread over, so that workers don't fight for one.
const CELLS: usize = 16;
/// Upper bounds of a histogram's buckets, in seconds.
const BOUNDS: [f64; 14] =
    [0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// The plugins' metrics of one gateway. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Meters(Arc<Mutex<HashMap<&'static str, Family>>>);

#[derive(Debug)]
struct Family {
    metric: Metric,
    labels: &'static [&'static str],
    series: HashMap<Vec<Box<str>>, Series>,
}

#[derive(Debug, Clone)]
enum Series {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

/// Only goes up.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<[Cell; CELLS]>);

/// One worker's share, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, amount: u64) {
        self.0[cell()].0.fetch_add(amount, Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|cell| cell.0.load(Relaxed)).sum()
    }
}

/// Goes up and down.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Sets it.
    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    /// Adds to it, or takes away.
    pub fn add(&self, amount: i64) {
        self.0.fetch_add(amount, Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// How long things take.
#[derive(Debug, Clone, Default)]
pub struct Histogram(Arc<Buckets>);

#[derive(Debug, Default)]
struct Buckets {
    counts: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    /// Notes that something took so long.
    pub fn record(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.partition_point(|bound| *bound < seconds);
        self.0.counts[bucket].fetch_add(1, Relaxed);
        self.0.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// How many were noted.
    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Relaxed)).sum()
    }
}

/// The cell of this thread.
fn cell() -> usize {
    use std::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Relaxed) % CELLS;
    }
    MINE.with(|mine| *mine)
}

impl Meters {
    /// The counter of this metric with these label values.
    ///
    /// Look it up once, while the plugin is built: it takes a lock. Asked for twice it is the same counter.
    pub fn counter(&self, metric: Metric, labels: &'static [&'static str], values: &[&str]) -> Counter {
        match self.series(metric, labels, values, || Series::Counter(Counter::default())) {
            Some(Series::Counter(counter)) => counter,
            _ => Counter::default(),
        }
    }

    /// The gauge of this metric with these label values; as [`Self::counter`].
    pub fn gauge(&self, metric: Metric, labels: &'static [&'static str], values: &[&str]) -> Gauge {
        match self.series(metric, labels, values, || Series::Gauge(Gauge::default())) {
            Some(Series::Gauge(gauge)) => gauge,
            _ => Gauge::default(),
        }
    }

    /// The histogram, in seconds, of this metric with these label values; as [`Self::counter`].
    pub fn histogram(&self, metric: Metric, labels: &'static [&'static str], values: &[&str]) -> Histogram {
        match self.series(metric, labels, values, || Series::Histogram(Histogram::default())) {
            Some(Series::Histogram(histogram)) => histogram,
            _ => Histogram::default(),
        }
    }

    fn series(
        &self,
        metric: Metric,
        labels: &'static [&'static str],
        values: &[&str],
        make: impl FnOnce() -> Series,
    ) -> Option<Series> {
        let mut families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let family =
            families.entry(metric.name).or_insert_with(|| Family { metric, labels, series: HashMap::new() });
        // Two plugins that mean different things by one name: the first has it.
        if family.metric.kind != metric.kind || family.labels != labels || values.len() != labels.len() {
            return None;
        }
        let mut key: Vec<Box<str>> = values.iter().map(|value| Box::from(&*redact_text(value))).collect();
        if family.series.len() >= MAX_SERIES && !family.series.contains_key(&key) {
            key.fill(Box::from(OTHER));
        }
        Some(family.series.entry(key).or_insert_with(make).clone())
    }

    /// The values of a gauge by its labels' values, in the order of these.
    pub fn gauges(&self, name: &str) -> Vec<(Vec<Box<str>>, i64)> {
        let families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let series = families.get(name).into_iter().flat_map(|family| &family.series);
        let mut all: Vec<_> = series
            .filter_map(|(values, series)| match series {
                Series::Gauge(gauge) => Some((values.clone(), gauge.get())),
                Series::Counter(_) | Series::Histogram(_) => None,
            })
            .collect();
        all.sort();
        all
    }

    /// Shows every metric, by name and then by labels.
    pub fn visit(&self, visitor: &mut dyn MetricVisitor) {
        let families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut families: Vec<&Family> = families.values().collect();
        families.sort_unstable_by_key(|family| family.metric.name);
        for family in families {
            visitor.metric(&family.metric);
            let mut series: Vec<_> = family.series.iter().collect();
            series.sort_unstable_by(|a, b| a.0.cmp(b.0));
            for (values, series) in series {
                let values = values.iter().map(|value| &**value);
                let labels: Vec<(&str, &str)> = family.labels.iter().copied().zip(values).collect();
                match series {
                    Series::Counter(counter) => visitor.number(&labels, counter.get().into()),
                    Series::Gauge(gauge) => visitor.number(&labels, gauge.get().into()),
                    Series::Histogram(histogram) => histogram.visit(&labels, visitor),
                }
            }
        }
    }

    /// Every metric in the text format of Prometheus.
    pub fn text(&self) -> String {
        let mut page = TextPage::prometheus();
        self.visit(&mut page);
        page.finish()
    }
}

impl Histogram {
    fn visit(&self, labels: &Labels<'_>, visitor: &mut dyn MetricVisitor) {
        let counts = self.0.counts.each_ref().map(|count| count.load(Relaxed));
        let sum = Duration::from_micros(self.0.micros.load(Relaxed)).as_secs_f64();
        let series = HistogramSeries { bounds: &BOUNDS, counts: &counts, sum, ..HistogramSeries::default() };
        visitor.histogram(labels, &series);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HITS: Metric = Metric::counter("ferrum_test_hits_total", "Hits.");
    const TIME: Metric = Metric::histogram("ferrum_test_seconds", "Time.");

    #[test]
    fn a_metric_asked_for_twice_is_one() {
        let meters = Meters::default();
        meters.counter(HITS, &["proxy"], &["a"]).add(2);
        meters.counter(HITS, &["proxy"], &["a"]).add(3);
        let text = meters.text();
        assert!(text.contains("ferrum_test_hits_total{proxy=\"a\"} 5\n"), "{text}");
        assert_eq!(text.matches("# TYPE").count(), 1);
    }

    #[test]
    fn what_goes_beyond_the_limit_shares_a_series() {
        let meters = Meters::default();
        for n in 0..MAX_SERIES + 10 {
            meters.counter(HITS, &["proxy"], &[&n.to_string()]).add(1);
        }
        assert_eq!(meters.counter(HITS, &["proxy"], &["one more"]).get(), 10);
    }

    #[test]
    fn labels_show_no_credentials_of_urls() {
        let meters = Meters::default();
        meters.counter(HITS, &["url"], &["https://u:hush@a.test/list?token=hush"]).add(1);
        let text = meters.text();
        assert!(text.contains("url=\"https://REDACTED@a.test/list?token=REDACTED\"} 1"), "{text}");
    }

    #[test]
    fn values_can_not_forge_a_line() {
        let meters = Meters::default();
        meters.counter(HITS, &["proxy"], &["a\"\nforged 1"]).add(1);
        let text = meters.text();
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn a_histogram_sums_up_its_buckets() {
        let meters = Meters::default();
        let time = meters.histogram(TIME, &[], &[]);
        time.record(Duration::from_millis(3));
        time.record(Duration::from_secs(60));
        let text = meters.text();
        assert!(text.contains("ferrum_test_seconds_bucket{le=\"0.005\"} 1\n"), "{text}");
        assert!(text.contains("ferrum_test_seconds_bucket{le=\"+Inf\"} 2\n"), "{text}");
        assert!(text.contains("ferrum_test_seconds_count 2\n"), "{text}");
    }
}
