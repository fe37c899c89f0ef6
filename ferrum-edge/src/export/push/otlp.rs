//! Metrics by OTLP: cumulative sums, gauges and histograms.

use std::time::{SystemTime, UNIX_EPOCH};

use gateway_core::config::problem::Problems;
use gateway_core::plugin::World;
use gateway_telemetry::batch::Chunk;
use gateway_telemetry::deliver::Deliver;
use gateway_telemetry::otlp::{
    Encoder, Exporter, ExporterSettings, Field, Signal, build_exporter, pairs, resource,
};

use super::families::{self, Family, MetricKind, Point};

const NAME: Field = Field(1, "name");
const DESCRIPTION: Field = Field(2, "description");
const UNIT: Field = Field(3, "unit");
const GAUGE: Field = Field(5, "gauge");
const SUM: Field = Field(7, "sum");
const HISTOGRAM: Field = Field(9, "histogram");
const DATA_POINTS: Field = Field(1, "dataPoints");
const TEMPORALITY: Field = Field(2, "aggregationTemporality");
const MONOTONIC: Field = Field(3, "isMonotonic");
/// Sums since the start.
const CUMULATIVE: u32 = 2;
/// Metrics of one request.
const FAMILIES_AT_A_TIME: usize = 20;

/// Pushes to a collector.
pub(super) struct OtlpPush {
    exporter: Exporter,
    /// Since when counters count: a reload does not begin them anew.
    begun: u64,
}

impl OtlpPush {
    pub(super) fn new(
        settings: &ExporterSettings,
        begun: SystemTime,
        world: &World,
    ) -> Result<Self, Problems> {
        let exporter = build_exporter(settings, Signal::Metrics, "gateway.metrics.otlp.exporter", world)?;
        let attributes = world.variable("OTEL_RESOURCE_ATTRIBUTES").and_then(pairs).unwrap_or_default();
        let service = world.variable("OTEL_SERVICE_NAME").unwrap_or("ferrum-edge");
        Ok(Self { exporter: exporter.of_resource(resource(service, attributes)), begun: nanos(begun) })
    }

    /// What a collector refuses of one request is no reason to keep the others from it.
    pub(super) async fn push(&self, page: &str) -> Result<(), String> {
        let mut refused = None;
        for families in families::of(page).chunks(FAMILIES_AT_A_TIME) {
            let mut chunk = Chunk::default();
            for family in families.iter().filter(|family| !family.points.is_empty()) {
                if chunk.items > 0 {
                    chunk.bytes.extend(self.exporter.separator());
                }
                chunk.items += 1;
                let mut encoder = Encoder::new(&mut chunk.bytes, self.exporter.encoding());
                encoder.item(Signal::Metrics.item(), |metric| self.family(metric, family));
            }
            let delivered = self.exporter.deliver(&chunk).await.map_err(|failed| failed.message)?;
            if delivered.refused > 0 {
                refused =
                    Some(format!("the collector refused {} points: {}", delivered.refused, delivered.why));
            }
        }
        refused.map_or(Ok(()), Err)
    }

    fn family(&self, metric: &mut Encoder<'_>, family: &Family<'_>) {
        let name = family.name.strip_suffix("_total").unwrap_or(family.name);
        metric.text(NAME, name);
        metric.text(DESCRIPTION, family.help);
        metric.text(UNIT, unit(name));
        match family.kind {
            MetricKind::Gauge => metric.message(GAUGE, |gauge| self.numbers(gauge, &family.points)),
            MetricKind::Counter => metric.message(SUM, |sum| {
                self.numbers(sum, &family.points);
                sum.number(TEMPORALITY, CUMULATIVE);
                sum.bool(MONOTONIC, true);
            }),
            MetricKind::Histogram => metric.message(HISTOGRAM, |histogram| {
                histogram.list(DATA_POINTS, &family.points, |it, point| self.histogram(it, point));
                histogram.number(TEMPORALITY, CUMULATIVE);
            }),
        }
    }

    fn numbers(&self, metric: &mut Encoder<'_>, points: &[Point]) {
        metric.list(DATA_POINTS, points, |it, point| {
            it.fixed(Field(2, "startTimeUnixNano"), self.begun);
            it.fixed(Field(3, "timeUnixNano"), now());
            it.double(Field(4, "asDouble"), point.value);
            labels(it, Field(7, "attributes"), point);
        });
    }

    fn histogram(&self, it: &mut Encoder<'_>, point: &Point) {
        it.fixed(Field(2, "startTimeUnixNano"), self.begun);
        it.fixed(Field(3, "timeUnixNano"), now());
        it.fixed(Field(4, "count"), point.count());
        it.double(Field(5, "sum"), point.value);
        it.fixed_list(Field(6, "bucketCounts"), &point.buckets());
        it.double_list(Field(7, "explicitBounds"), &point.bounds);
        labels(it, Field(9, "attributes"), point);
    }
}

fn labels(it: &mut Encoder<'_>, field: Field, point: &Point) {
    it.attributes(field, |all| point.labels.iter().for_each(|(name, value)| all.text(name, value)));
}

fn unit(name: &str) -> &'static str {
    if name.ends_with("_seconds") {
        "s"
    } else if name.ends_with("_bytes") {
        "By"
    } else {
        "1"
    }
}

fn now() -> u64 {
    nanos(SystemTime::now())
}

fn nanos(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}
