//! Counts of the gateway that this one replaced. A page of metrics continues them, so that Prometheus sees no reset at an upgrade.
//! What is pushed begins anew: OTLP has the time at which counting began, and StatsD differences.

use std::collections::{HashMap, HashSet};

use gateway_core::metrics::{ExponentialHistogram, HistogramSeries, Labels, MetricVisitor, Number};
use gateway_core::metrics::{Metric, MetricKind};
use serde::{Deserialize, Serialize};

/// Metrics about the process itself; a new process has its own.
const OF_PROCESS: &str = "process_";
/// Separates names and values in the key of a series; labels do not contain it.
const SEPARATOR: char = '\u{1}';

/// The counts of a gateway, by metric and series.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct CountTable(HashMap<String, HashMap<String, SeriesCount>>);

/// The count of one series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum SeriesCount {
    Whole(u64),
    Real(f64),
    Histogram(HistogramCount),
}

/// The durations of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct HistogramCount {
    bounds: Vec<f64>,
    counts: Vec<u64>,
    sum: f64,
    exponential: Option<ExponentialCount>,
}

/// The same in exponential buckets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ExponentialCount {
    scale: i32,
    zero_threshold: f64,
    zero: u64,
    first: i64,
    buckets: Vec<u64>,
}

impl CountTable {
    /// The counts that `show` shows.
    pub(crate) fn of(show: impl FnOnce(&mut dyn MetricVisitor)) -> Self {
        let mut collector = Collector::default();
        show(&mut collector);
        collector.table
    }

    /// Shows to `visitor` what `show` shows, with these counts added.
    pub(crate) fn continued(
        &self,
        visitor: &mut dyn MetricVisitor,
        show: impl FnOnce(&mut dyn MetricVisitor),
    ) {
        let mut continued =
            Continued { table: self, visitor, series: None, seen: HashSet::new(), key: String::new() };
        show(&mut continued);
        continued.show_unseen();
    }
}

fn write_key(key: &mut String, labels: &Labels<'_>) {
    key.clear();
    for (name, value) in labels {
        for part in [name, value] {
            key.push_str(part);
            key.push(SEPARATOR);
        }
    }
}

/// The names and values of a key.
fn labels_of(key: &str) -> Vec<(&str, &str)> {
    let mut parts = key.split_terminator(SEPARATOR);
    std::iter::from_fn(|| Some((parts.next()?, parts.next()?))).collect()
}

/// Gathers counts.
#[derive(Default)]
struct Collector {
    table: CountTable,
    /// The metric whose series follow, if it counts.
    metric: Option<&'static str>,
    key: String,
}

impl Collector {
    fn add(&mut self, labels: &Labels<'_>, count: SeriesCount) {
        let Some(metric) = self.metric else { return };
        write_key(&mut self.key, labels);
        self.table.0.entry(metric.to_owned()).or_default().insert(self.key.clone(), count);
    }
}

impl MetricVisitor for Collector {
    fn metric(&mut self, metric: &Metric) {
        let counts = metric.kind != MetricKind::Gauge && !metric.name.starts_with(OF_PROCESS);
        self.metric = counts.then_some(metric.name);
    }

    fn number(&mut self, labels: &Labels<'_>, value: Number) {
        let count = match value {
            Number::Whole(value) => SeriesCount::Whole(value),
            value => SeriesCount::Real(value.as_f64()),
        };
        self.add(labels, count);
    }

    fn histogram(&mut self, labels: &Labels<'_>, series: &HistogramSeries<'_>) {
        let exponential = series.exponential.map(|own| ExponentialCount {
            scale: own.scale,
            zero_threshold: own.zero_threshold,
            zero: own.zero,
            first: own.first,
            buckets: own.buckets.clone(),
        });
        let count = HistogramCount {
            bounds: series.bounds.to_vec(),
            counts: series.counts.to_vec(),
            sum: series.sum,
            exponential,
        };
        self.add(labels, SeriesCount::Histogram(count));
    }

    fn wants_exponential(&self) -> bool {
        true
    }
}

/// Adds the counts of a table to what it passes on.
struct Continued<'c> {
    table: &'c CountTable,
    visitor: &'c mut dyn MetricVisitor,
    /// The counts of the metric whose series follow.
    series: Option<&'c HashMap<String, SeriesCount>>,
    /// Its series so far, of those in the table.
    seen: HashSet<&'c str>,
    key: String,
}

impl<'c> Continued<'c> {
    fn before(&mut self, labels: &Labels<'_>) -> Option<&'c SeriesCount> {
        let series = self.series?;
        write_key(&mut self.key, labels);
        let (key, count) = series.get_key_value(&self.key)?;
        self.seen.insert(key);
        Some(count)
    }

    /// Shows the series of the last metric that only the table has, such as a proxy without requests here.
    fn show_unseen(&mut self) {
        for (key, count) in self.series.take().into_iter().flatten() {
            if self.seen.contains(key.as_str()) {
                continue;
            }
            let labels = labels_of(key);
            match count {
                SeriesCount::Whole(value) => self.visitor.number(&labels, Number::Whole(*value)),
                SeriesCount::Real(value) => self.visitor.number(&labels, Number::Real(*value)),
                SeriesCount::Histogram(count) => self.visitor.histogram(
                    &labels,
                    &HistogramSeries {
                        bounds: &count.bounds,
                        counts: &count.counts,
                        sum: count.sum,
                        exemplars: &[],
                        exponential: count.exponential.as_ref().map(ExponentialCount::histogram).as_ref(),
                    },
                ),
            }
        }
        self.seen.clear();
    }
}

impl MetricVisitor for Continued<'_> {
    fn metric(&mut self, metric: &Metric) {
        self.show_unseen();
        self.series = self.table.0.get(metric.name);
        self.visitor.metric(metric);
    }

    fn number(&mut self, labels: &Labels<'_>, value: Number) {
        let value = match (self.before(labels), value) {
            (Some(SeriesCount::Whole(before)), Number::Whole(value)) => {
                Number::Whole(value.wrapping_add(*before))
            }
            (Some(SeriesCount::Real(before)), value) => Number::Real(value.as_f64() + before),
            (_, value) => value,
        };
        self.visitor.number(labels, value);
    }

    fn histogram(&mut self, labels: &Labels<'_>, series: &HistogramSeries<'_>) {
        // Buckets that another version has otherwise can't be added.
        let Some(SeriesCount::Histogram(before)) = self.before(labels).filter(|before| before.fits(series))
        else {
            return self.visitor.histogram(labels, series);
        };
        let counts: Vec<u64> =
            series.counts.iter().zip(&before.counts).map(|(own, before)| own + before).collect();
        let exponential = series.exponential.map(|own| match &before.exponential {
            Some(before) => before.added(own),
            None => own.clone(),
        });
        let exponential = exponential.as_ref();
        let sum = series.sum + before.sum;
        self.visitor.histogram(labels, &HistogramSeries { counts: &counts, sum, exponential, ..*series });
    }

    fn wants_exponential(&self) -> bool {
        self.visitor.wants_exponential()
    }

    fn wants_exemplars(&self) -> bool {
        self.visitor.wants_exemplars()
    }
}

impl SeriesCount {
    fn fits(&self, series: &HistogramSeries<'_>) -> bool {
        matches!(self, Self::Histogram(count) if count.bounds == series.bounds && count.counts.len() == series.counts.len())
    }
}

impl ExponentialCount {
    fn histogram(&self) -> ExponentialHistogram {
        let (scale, zero_threshold, zero, first) = (self.scale, self.zero_threshold, self.zero, self.first);
        ExponentialHistogram { scale, zero_threshold, zero, first, buckets: self.buckets.clone() }
    }

    /// The sum of both, if their buckets are of one size.
    fn added(&self, own: &ExponentialHistogram) -> ExponentialHistogram {
        if (self.scale, self.zero_threshold) != (own.scale, own.zero_threshold) {
            return own.clone();
        }
        let (zero, first) = (own.zero + self.zero, own.first.min(self.first));
        let end = |first: i64, buckets: &[u64]| first + i64::try_from(buckets.len()).unwrap_or(0);
        let last = end(own.first, &own.buckets).max(end(self.first, &self.buckets));
        let mut buckets = vec![0; usize::try_from(last - first).unwrap_or(0)];
        for (from, some) in [(own.first, &own.buckets), (self.first, &self.buckets)] {
            let from = usize::try_from(from - first).unwrap_or(0);
            for (sum, count) in buckets[from..].iter_mut().zip(some) {
                *sum += count;
            }
        }
        ExponentialHistogram { scale: own.scale, zero_threshold: own.zero_threshold, zero, first, buckets }
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::metrics::text::TextPage;

    use super::*;

    const REQUESTS: Metric = Metric::counter("requests_total", "Requests.");
    const OPEN: Metric = Metric::gauge("open", "Open ones.");
    const TOOK: Metric = Metric { name: "took_seconds", kind: MetricKind::Histogram, help: "Time." };
    const CPU: Metric = Metric::counter("process_cpu_seconds_total", "Time.");

    /// A gateway's metrics with this many requests by proxy.
    fn show(visitor: &mut dyn MetricVisitor, requests: &[(&str, u64)]) {
        visitor.metric(&REQUESTS);
        for (proxy, count) in requests {
            visitor.number(&[("proxy", proxy)], Number::Whole(*count));
        }
        visitor.metric(&OPEN);
        visitor.number(&[], Number::Whole(7));
        visitor.metric(&TOOK);
        let exponential =
            ExponentialHistogram { scale: 2, zero_threshold: 0.0, zero: 1, first: 3, buckets: vec![1, 2] };
        visitor.histogram(
            &[],
            &HistogramSeries {
                bounds: &[1.0],
                counts: &[3, 1],
                sum: 2.5,
                exemplars: &[],
                exponential: Some(&exponential),
            },
        );
        visitor.metric(&CPU);
        visitor.number(&[], Number::Real(5.0));
    }

    #[test]
    fn counters_and_histograms_continue_and_gauges_do_not() {
        let before = CountTable::of(|visitor| show(visitor, &[("a", 10), ("gone", 4)]));
        let sent = serde_json::to_vec(&before).unwrap();
        let before: CountTable = serde_json::from_slice(&sent).unwrap();
        let mut page = TextPage::prometheus();
        before.continued(&mut page, |visitor| show(visitor, &[("a", 5), ("new", 1)]));
        let text = page.finish();
        let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            values,
            [
                "requests_total{proxy=\"a\"} 15",
                "requests_total{proxy=\"new\"} 1",
                "requests_total{proxy=\"gone\"} 4",
                "open 7",
                "took_seconds_bucket{le=\"1\"} 6",
                "took_seconds_bucket{le=\"+Inf\"} 8",
                "took_seconds_sum 5",
                "took_seconds_count 8",
                "process_cpu_seconds_total 5",
            ]
        );
    }

    #[test]
    fn sums_the_counts_of_a_chain_of_gateways() {
        let first = CountTable::of(|visitor| show(visitor, &[("a", 1)]));
        let second = CountTable::of(|visitor| first.continued(visitor, |visitor| show(visitor, &[("a", 2)])));
        let third = CountTable::of(|visitor| second.continued(visitor, |visitor| show(visitor, &[("a", 3)])));
        let series = &third.0["requests_total"];
        assert_eq!(series["proxy\u{1}a\u{1}"], SeriesCount::Whole(6));
        let SeriesCount::Histogram(took) = &third.0["took_seconds"][""] else { panic!("no histogram") };
        let exponential = took.exponential.as_ref().unwrap();
        assert_eq!((exponential.zero, exponential.first, &exponential.buckets), (3, 3, &vec![3, 6]));
    }

    #[test]
    fn exponential_buckets_of_other_places_are_aligned() {
        let before =
            ExponentialCount { scale: 2, zero_threshold: 0.0, zero: 0, first: 1, buckets: vec![1, 1] };
        let own = ExponentialHistogram { scale: 2, zero_threshold: 0.0, zero: 0, first: 4, buckets: vec![5] };
        let sum = before.added(&own);
        assert_eq!((sum.first, sum.buckets), (1, vec![1, 1, 0, 5]));
        let other = ExponentialHistogram { scale: 3, ..own };
        assert_eq!(before.added(&other), other, "buckets of another size begin anew");
    }
}
