//! The metrics as Prometheus' protobuf messages (`io.prometheus.client.MetricFamily`), each with its length before it: the only
//! format with native histograms. Histograms have the buckets with written bounds as well, so that a scraper takes which it wants.

use std::collections::HashMap;
use std::time::UNIX_EPOCH;

use gateway_core::record::metric;

use super::Telemetry;
use super::exemplars::Exemplar;
use super::labels::{CLASSES, VERSIONS, request_labels};
use super::native::{MergedNative, SCHEMA, ZERO};
use super::open_metrics::{self, quality};
use super::push::families::{self, Family, MetricKind, Point};

/// What is served as `Content-Type`.
pub(crate) const CONTENT_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Whether a scraper prefers this format, by its `Accept`.
pub(crate) fn is_preferred(accept: &str) -> bool {
    let wants = ["proto=io.prometheus.client.metricfamily", "encoding=delimited"];
    let Some(ours) = quality(accept, "application/vnd.google.protobuf", &wants) else { return false };
    let others = ["application/openmetrics-text", "text/plain"];
    ours > 0.0 && others.iter().all(|other| quality(accept, other, &[]).is_none_or(|other| ours >= other))
}

/// The text format rewritten, with native histograms and exemplars.
pub(crate) fn of(text: &str, telemetry: &Telemetry) -> Vec<u8> {
    let natives = natives(telemetry);
    let exemplars = open_metrics::newest(telemetry);
    let mut out = Vec::with_capacity(text.len());
    for family in families::of(text) {
        let mut message = Message::default();
        message.text(1, family.name);
        message.text(2, family.help);
        message.number(
            3,
            match family.kind {
                MetricKind::Counter => 0,
                MetricKind::Gauge => 1,
                MetricKind::Histogram => 4,
            },
        );
        for point in &family.points {
            let labels = written(&point.labels);
            let native = natives.get(&(family.name, labels.clone()));
            message.message(4, |it| one(it, &family, point, native, &exemplars, &labels));
        }
        varint(&mut out, message.0.len() as u64);
        out.extend_from_slice(&message.0);
    }
    out
}

/// Labels as the text format writes them, without its escapes.
fn written(labels: &[(String, String)]) -> String {
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    pairs.join(",")
}

/// Native histograms by name and labels.
type Natives = HashMap<(&'static str, String), MergedNative>;

fn natives(telemetry: &Telemetry) -> Natives {
    let mut found = Natives::new();
    for version in 0..VERSIONS.len() {
        for class in 0..CLASSES {
            let merged =
                MergedNative::of(telemetry.workers.iter().map(|worker| &worker.natives[version][class]));
            found.insert((metric::REQUEST_DURATION.name, request_labels(version, class)), merged);
        }
    }
    let merged = MergedNative::of(telemetry.workers.iter().map(|worker| &worker.native_first_bytes));
    found.insert((metric::UPSTREAM_DURATION.name, String::new()), merged);
    for (id, total, first_byte) in telemetry.native_timings() {
        let labels = written(&[("proxy".to_owned(), id.to_string())]);
        if first_byte.count() > 0 {
            found.insert((metric::PROXY_UPSTREAM_DURATION.name, labels.clone()), first_byte);
        }
        found.insert((metric::PROXY_DURATION.name, labels), total);
    }
    found
}

/// One series.
fn one(
    it: &mut Message,
    family: &Family<'_>,
    point: &Point,
    native: Option<&MergedNative>,
    exemplars: &HashMap<String, Exemplar>,
    labels: &str,
) {
    for (name, value) in &point.labels {
        it.message(1, |it| {
            it.text(1, name);
            it.text(2, value);
        });
    }
    match family.kind {
        MetricKind::Gauge => it.message(2, |it| it.double(1, point.value)),
        MetricKind::Counter => it.message(3, |it| it.double(1, point.value)),
        MetricKind::Histogram => it.message(7, |it| {
            // A worker may count between the two readings: what the native one says is at least as new.
            it.number(1, native.map_or_else(|| point.count(), MergedNative::count));
            it.double(2, point.value);
            let bounds = point.bounds.iter().copied().chain([f64::INFINITY]);
            for (bound, count) in bounds.zip(&point.cumulative) {
                it.message(3, |it| {
                    it.number(1, *count);
                    it.double(2, bound);
                    let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
                    let sample = format!("{}_bucket{{{labels},le=\"{bound}\"}}", family.name);
                    if let Some(exemplar) = exemplars.get(&sample) {
                        it.message(3, |it| write_exemplar(it, exemplar));
                    }
                });
            }
            if let Some(native) = native {
                write_native(it, native);
            }
        }),
    }
}

fn write_exemplar(it: &mut Message, exemplar: &Exemplar) {
    it.message(1, |it| {
        it.text(1, "trace_id");
        it.text(2, &exemplar.trace.to_string());
    });
    it.double(2, exemplar.took.as_secs_f64());
    let at = exemplar.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    it.message(3, |it| {
        it.number(1, at.as_secs());
        it.number(2, u64::from(at.subsec_nanos()));
    });
}

/// The exponential buckets: runs of those with counts, and each count as the difference to the one before.
fn write_native(it: &mut Message, native: &MergedNative) {
    it.signed(5, i64::from(SCHEMA));
    it.double(6, ZERO);
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
        let head = [&[5 << 3, 6, 6 << 3 | 1][..], &ZERO.to_le_bytes()].concat();
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

    const PROMETHEUS: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
        application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
        text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

    #[test]
    fn a_scraper_gets_what_it_prefers() {
        for (accept, preferred) in [
            (PROMETHEUS, true),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
                true,
            ),
            ("application/vnd.google.protobuf", false),
            ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", false),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.1,text/plain",
                false,
            ),
            ("application/openmetrics-text;version=1.0.0", false),
            ("", false),
        ] {
            assert_eq!(is_preferred(accept), preferred, "{accept}");
        }
    }

    /// Spans leave out empty buckets, counts are differences.
    #[test]
    fn native_buckets_are_written_in_runs() {
        let buckets = vec![3, 1, 0, 0, 2];
        let mut message = Message::default();
        write_native(&mut message, &MergedNative { zero: 7, first: 0, buckets });
        let expected = [
            // schema 3, zero threshold 2^-20, seven below it
            &[5 << 3, 6, 6 << 3 | 1][..],
            &ZERO.to_le_bytes(),
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
        let text = "# HELP a_total Many.\n# TYPE a_total counter\na_total{x=\"1\"} 2\n# HELP g Now.\n# TYPE g gauge\ng 1.5\n";
        let telemetry = Telemetry::new(1, &gateway_core::config::model::Settings::default()).unwrap();
        let expected = [
            &[39, 0x0a, 7][..],
            b"a_total",
            &[0x12, 5],
            b"Many.",
            &[0x18, 0, 0x22, 19, 0x0a, 6, 0x0a, 1, b'x', 0x12, 1, b'1', 0x1a, 9, 9],
            &2f64.to_le_bytes(),
        ];
        let got = of(text, &telemetry);
        let expected = expected.concat();
        assert_eq!(got[..expected.len()], expected);
        assert_eq!(usize::from(got[expected.len()]), got.len() - expected.len() - 1);
    }
}
