//! The metrics as Prometheus' protobuf messages (`io.prometheus.client.MetricFamily`), each with its length before it: the only
//! format with native histograms. Histograms have the buckets with written bounds as well, so that a scraper takes which it wants.

use gateway_core::metrics::{Exemplar, ExponentialHistogram, HistogramSeries, Labels, MetricVisitor, Number};
use gateway_core::metrics::{Metric, MetricKind};

/// A page in the making.
pub(crate) struct ProtobufPage {
    page: Vec<u8>,
    /// The family whose series follow; none at the beginning.
    family: Option<Message>,
    kind: MetricKind,
}

impl ProtobufPage {
    pub(crate) fn new() -> Self {
        Self { page: Vec::with_capacity(16 << 10), family: None, kind: MetricKind::Gauge }
    }

    /// The whole page.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.end_family();
        self.page
    }

    fn end_family(&mut self) {
        let Some(Message(mut family)) = self.family.take() else { return };
        varint(&mut self.page, family.len() as u64);
        self.page.append(&mut family);
    }

    /// Adds a series of the family.
    fn series(&mut self, labels: &Labels<'_>, write: impl FnOnce(&mut Message)) {
        let Some(family) = &mut self.family else { return };
        family.message(4, |it| {
            for (name, value) in labels {
                it.message(1, |it| {
                    it.text(1, name);
                    it.text(2, value);
                });
            }
            write(it);
        });
    }
}

impl MetricVisitor for ProtobufPage {
    fn metric(&mut self, metric: &Metric) {
        self.end_family();
        let mut family = Message::default();
        family.text(1, metric.name);
        family.text(2, metric.help.trim());
        let kind = match metric.kind {
            MetricKind::Counter => 0,
            MetricKind::Gauge => 1,
            MetricKind::Histogram => 4,
        };
        family.number(3, kind);
        self.family = Some(family);
        self.kind = metric.kind;
    }

    fn number(&mut self, labels: &Labels<'_>, value: Number) {
        let field = if self.kind == MetricKind::Counter { 3 } else { 2 };
        self.series(labels, |it| it.message(field, |it| it.double(1, value.as_f64())));
    }

    fn histogram(&mut self, labels: &Labels<'_>, series: &HistogramSeries<'_>) {
        self.series(labels, |it| it.message(7, |it| write_histogram(it, series)));
    }

    fn wants_exponential(&self) -> bool {
        true
    }

    fn wants_exemplars(&self) -> bool {
        true
    }
}

fn write_histogram(it: &mut Message, series: &HistogramSeries<'_>) {
    // A worker may count between the two readings: what the exponential buckets say is at least as new.
    it.number(1, series.exponential.map_or_else(|| series.count(), ExponentialHistogram::count));
    it.double(2, series.sum);
    for (bucket, (bound, count)) in series.cumulative().enumerate() {
        it.message(3, |it| {
            it.number(1, count);
            it.double(2, bound);
            if let Some(Some(exemplar)) = series.exemplars.get(bucket) {
                it.message(3, |it| write_exemplar(it, exemplar));
            }
        });
    }
    if let Some(native) = series.exponential {
        write_native(it, native);
    }
}

fn write_exemplar(it: &mut Message, exemplar: &Exemplar) {
    it.message(1, |it| {
        it.text(1, "trace_id");
        it.text(2, &exemplar.trace);
    });
    it.double(2, exemplar.took.as_secs_f64());
    it.message(3, |it| {
        it.number(1, exemplar.at.as_secs());
        it.number(2, u64::from(exemplar.at.subsec_nanos()));
    });
}

/// The exponential buckets: runs of those with counts, and each count as the difference to the one before.
fn write_native(it: &mut Message, native: &ExponentialHistogram) {
    it.signed(5, native.scale.into());
    it.double(6, native.zero_threshold);
    it.number(7, native.zero);
    // The index that would follow the last run.
    let (mut expected, mut before) = (0, 0);
    let mut deltas = Vec::new();
    let mut at = 0;
    while at < native.buckets.len() {
        let run = native.buckets[at..].iter().take_while(|count| **count > 0).count();
        if run > 0 {
            let index = native.first + at as i64;
            it.message(12, |it| {
                it.signed(1, index - expected);
                it.number(2, run as u64);
            });
            expected = index + run as i64;
            for count in &native.buckets[at..at + run] {
                let count = i64::try_from(*count).unwrap_or(i64::MAX);
                deltas.push(count - before);
                before = count;
            }
        }
        at += run.max(1);
    }
    deltas.iter().for_each(|delta| it.signed(13, *delta));
}

/// A message in the making.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn tag(&mut self, field: u64, kind: u64) {
        varint(&mut self.0, field << 3 | kind);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.tag(field, 0);
        varint(&mut self.0, value);
    }

    /// `sint32` and `sint64`: zigzag.
    fn signed(&mut self, field: u64, value: i64) {
        self.number(field, ((value << 1) ^ (value >> 63)) as u64);
    }

    fn double(&mut self, field: u64, value: f64) {
        self.tag(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, field: u64, text: &str) {
        self.tag(field, 2);
        varint(&mut self.0, text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.tag(field, 2);
        varint(&mut self.0, inner.0.len() as u64);
        self.0.append(&mut inner.0);
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn take_varint(bytes: &mut &[u8]) -> usize {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= usize::from(first & 0x7f) << shift;
            if *first < 0x80 {
                break;
            }
        }
        value
    }

    /// How many native histograms a family of this page has.
    pub(in super::super) fn natives_of(mut page: &[u8], family: &str) -> usize {
        let head = [&[5 << 3, 6, 6 << 3 | 1][..], &(-20_f64).exp2().to_le_bytes()].concat();
        while !page.is_empty() {
            let length = take_varint(&mut page);
            let (message, rest) = page.split_at(length);
            page = rest;
            let name = [&[0x0a, family.len() as u8][..], family.as_bytes()].concat();
            if message.starts_with(&name) {
                return message.windows(head.len()).filter(|window| *window == head).count();
            }
        }
        panic!("no family {family}");
    }

    /// Spans leave out empty buckets, counts are differences.
    #[test]
    fn native_buckets_are_written_in_runs() {
        let (zero_threshold, buckets) = ((-20_f64).exp2(), vec![3, 1, 0, 0, 2]);
        let native = ExponentialHistogram { scale: 3, zero_threshold, zero: 7, first: 0, buckets };
        let mut message = Message::default();
        write_native(&mut message, &native);
        let expected = [
            // schema 3, zero threshold 2^-20, seven below it
            &[5 << 3, 6, 6 << 3 | 1][..],
            &zero_threshold.to_le_bytes(),
            &[7 << 3, 7],
            // a span from 0 of two, then one after two empty ones
            &[12 << 3 | 2, 4, 1 << 3, 0, 2 << 3, 2],
            &[12 << 3 | 2, 4, 1 << 3, 4, 2 << 3, 1],
            // 3, -2, +1
            &[13 << 3, 6, 13 << 3, 3, 13 << 3, 2],
        ]
        .concat();
        assert_eq!(message.0, expected);
    }

    #[test]
    fn every_family_is_one_message_with_its_length() {
        let mut page = ProtobufPage::new();
        page.metric(&Metric::counter("a_total", "Many."));
        page.number(&[("x", "1")], 2_u64.into());
        page.metric(&Metric::gauge("g", "Now."));
        page.number(&[], 1.5.into());
        let expected = [
            &[39, 0x0a, 7][..],
            b"a_total",
            &[0x12, 5],
            b"Many.",
            &[0x18, 0, 0x22, 19, 0x0a, 6, 0x0a, 1, b'x', 0x12, 1, b'1', 0x1a, 9, 9],
            &2f64.to_le_bytes(),
        ];
        let got = page.finish();
        let expected = expected.concat();
        assert_eq!(got[..expected.len()], expected);
        assert_eq!(usize::from(got[expected.len()]), got.len() - expected.len() - 1);
    }
}
