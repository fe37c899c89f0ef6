//! A walk over all metrics: each owner of metrics shows them to a [`MetricVisitor`], and each format is such a visitor.
//!
//! Nothing is collected on the way, so that a page of 60 MB needs no second copy of it. [`text`] has the two text formats, [`names`] the
//! gateway's own metrics; plugins declare theirs.

pub mod names;
pub mod text;

use std::fmt;
use std::time::Duration;

/// A metric: its name, its kind and what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The name, as scraped.
    pub name: &'static str,
    /// How its values change.
    pub kind: MetricKind,
    /// One sentence for people.
    pub help: &'static str,
}

/// How the values of a metric change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only goes up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts durations by size.
    Histogram,
}

impl MetricKind {
    /// The word of Prometheus for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Metric {
    /// A metric that only goes up.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricKind::Counter, help }
    }

    /// A metric that goes up and down.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricKind::Gauge, help }
    }

    /// A metric that counts durations by size.
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricKind::Histogram, help }
    }
}

/// The labels of a series, in the order in which they are written: name and value.
pub type Labels<'l> = [(&'l str, &'l str)];

/// Sees every series of every metric, one metric after the other.
pub trait MetricVisitor {
    /// The series that follow are of this metric; there may be none.
    fn metric(&mut self, metric: &Metric);

    /// A series of a counter or a gauge.
    fn number(&mut self, labels: &Labels<'_>, value: Number);

    /// A series of a histogram.
    fn histogram(&mut self, labels: &Labels<'_>, series: &HistogramSeries<'_>);

    /// Whether it wants [`HistogramSeries::exponential`]; reading those takes time.
    fn wants_exponential(&self) -> bool {
        false
    }

    /// Whether it wants [`HistogramSeries::exemplars`].
    fn wants_exemplars(&self) -> bool {
        false
    }
}

/// A value, as exact as it was counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A count.
    Whole(u64),
    /// A count that may be below zero.
    Signed(i64),
    /// Seconds and the like.
    Real(f64),
}

impl Number {
    /// The value for formats that have only such numbers: above 2^53 it is rounded.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Signed(value) => value as f64,
            Self::Real(value) => value,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::Real(value) => value.fmt(f),
        }
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// The durations of one series, by size.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HistogramSeries<'h> {
    /// Upper bounds in seconds; the last bucket, without a bound, is not among them.
    pub bounds: &'h [f64],
    /// How many are in each bucket alone, one more than there are bounds.
    pub counts: &'h [u64],
    /// The sum in seconds.
    pub sum: f64,
    /// An example of each bucket that has one; empty where the visitor wants none.
    pub exemplars: &'h [Option<Exemplar>],
    /// The same durations in exponential buckets; `None` where there are none or the visitor wants none.
    pub exponential: Option<&'h ExponentialHistogram>,
}

impl HistogramSeries<'_> {
    /// How many durations there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The buckets: upper bound (infinite for the last) and how many are not above it.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts).scan(0, |sum, (bound, count)| {
            *sum += count;
            Some((bound, *sum))
        })
    }
}

/// A traced exchange that stands for those of its bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exemplar {
    /// The ID of its trace, in hexadecimal.
    pub trace: String,
    /// How long it took.
    pub took: Duration,
    /// When it ended, since the Unix epoch.
    pub at: Duration,
}

/// Durations in buckets whose bounds grow by a constant factor (Prometheus calls them native histograms).
#[derive(Debug, Clone, PartialEq)]
pub struct ExponentialHistogram {
    /// There are 2^`scale` buckets for each doubling.
    pub scale: i32,
    /// What is not longer than this many seconds is in no bucket.
    pub zero_threshold: f64,
    /// How many that are.
    pub zero: u64,
    /// The index of the first bucket that is given: the bucket `index` ends at 2^(`index` / 2^`scale`) seconds.
    pub first: i64,
    /// How many are in each bucket alone, from `first` on.
    pub buckets: Vec<u64>,
}

impl ExponentialHistogram {
    /// How many durations there are.
    pub fn count(&self) -> u64 {
        self.zero + self.buckets.iter().sum::<u64>()
    }
}
