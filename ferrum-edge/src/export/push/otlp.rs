//! Metrics by OTLP: cumulative sums, gauges and histograms.

use std::time::{SystemTime, UNIX_EPOCH};

use gateway_core::config::problem::Problems;
use gateway_core::metrics::{HistogramSeries, Labels, MetricVisitor, Number};
use gateway_core::metrics::{Metric, MetricKind};
use gateway_core::plugin::World;
use gateway_telemetry::batch::Chunk;
use gateway_telemetry::deliver::{Deliver, Delivered, Failed};
use gateway_telemetry::otlp::{
    Encoder, Encoding, Exporter, ExporterSettings, Field, Signal, build_exporter, pairs, resource,
};

use super::Scrape;

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
const METRICS_AT_A_TIME: usize = 20;

/// Pushes to a collector.
pub(super) struct OtlpPush {
    exporter: Exporter,
    /// Since when counters count: a reload does not begin them anew.
    begun: u64,
}

/// Why a push failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum OtlpPushError {
    #[error(transparent)]
    Failed(#[from] Failed),
    #[error("the collector refused {} points: {}", .0.refused, .0.why)]
    Refused(Delivered),
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

    /// Pushes once; `false` where the gateway is gone. What a collector refuses of one request is no reason to keep the others from
    /// it.
    pub(super) async fn push(&self, scrape: &Scrape) -> Result<bool, OtlpPushError> {
        let mut requests = Requests::new(self.exporter.encoding(), self.begun);
        if !scrape(&mut requests) {
            return Ok(false);
        }
        let mut refused = None;
        for chunk in requests.finish() {
            let delivered = self.exporter.deliver(&chunk).await?;
            if delivered.refused > 0 {
                refused = Some(OtlpPushError::Refused(delivered));
            }
        }
        refused.map_or(Ok(true), Err)
    }
}

/// The metrics of a push, request by request.
struct Requests {
    encoding: Encoding,
    begun: u64,
    now: u64,
    chunks: Vec<Chunk>,
    /// The metric whose points follow; none at the beginning.
    metric: Option<Metric>,
    /// Its points so far.
    points: Vec<u8>,
}

impl Requests {
    fn new(encoding: Encoding, begun: u64) -> Self {
        let now = nanos(SystemTime::now());
        Self { encoding, begun, now, chunks: Vec::new(), metric: None, points: Vec::new() }
    }

    fn finish(mut self) -> Vec<Chunk> {
        self.end_metric();
        self.chunks
    }

    /// Adds the metric to a request, unless it has no point.
    fn end_metric(&mut self) {
        let Some(metric) = self.metric.take().filter(|_| !self.points.is_empty()) else { return };
        if self.chunks.last().is_none_or(|chunk| chunk.items >= METRICS_AT_A_TIME) {
            self.chunks.push(Chunk::default());
        }
        let Some(chunk) = self.chunks.last_mut() else { return };
        separate(&mut chunk.bytes, self.encoding);
        chunk.items += 1;
        let points = std::mem::take(&mut self.points);
        let name = metric.name.strip_suffix("_total").unwrap_or(metric.name);
        Encoder::new(&mut chunk.bytes, self.encoding).item(Signal::Metrics.item(), |it| {
            it.text(NAME, name);
            it.text(DESCRIPTION, metric.help.trim());
            it.text(UNIT, unit(name));
            match metric.kind {
                MetricKind::Gauge => it.message(GAUGE, |gauge| gauge.list_of(DATA_POINTS, &points)),
                MetricKind::Counter => it.message(SUM, |sum| {
                    sum.list_of(DATA_POINTS, &points);
                    sum.number(TEMPORALITY, CUMULATIVE);
                    sum.bool(MONOTONIC, true);
                }),
                MetricKind::Histogram => it.message(HISTOGRAM, |histogram| {
                    histogram.list_of(DATA_POINTS, &points);
                    histogram.number(TEMPORALITY, CUMULATIVE);
                }),
            }
        });
    }

    fn point(&mut self, write: impl FnOnce(&mut Encoder<'_>)) {
        separate(&mut self.points, self.encoding);
        let (begun, now) = (self.begun, self.now);
        Encoder::new(&mut self.points, self.encoding).item(DATA_POINTS, |it| {
            it.fixed(Field(2, "startTimeUnixNano"), begun);
            it.fixed(Field(3, "timeUnixNano"), now);
            write(it);
        });
    }
}

impl MetricVisitor for Requests {
    fn metric(&mut self, metric: &Metric) {
        self.end_metric();
        self.metric = Some(*metric);
    }

    fn number(&mut self, labels: &Labels<'_>, value: Number) {
        self.point(|it| {
            it.double(Field(4, "asDouble"), value.as_f64());
            attributes(it, Field(7, "attributes"), labels);
        });
    }

    fn histogram(&mut self, labels: &Labels<'_>, series: &HistogramSeries<'_>) {
        self.point(|it| {
            it.fixed(Field(4, "count"), series.count());
            it.double(Field(5, "sum"), series.sum);
            it.fixed_list(Field(6, "bucketCounts"), series.counts);
            it.double_list(Field(7, "explicitBounds"), series.bounds);
            attributes(it, Field(9, "attributes"), labels);
        });
    }
}

fn attributes(it: &mut Encoder<'_>, field: Field, labels: &Labels<'_>) {
    it.attributes(field, |all| labels.iter().for_each(|(name, value)| all.text(name, value)));
}

/// Parts items of a list in JSON; in protobuf nothing stands between them.
fn separate(items: &mut Vec<u8>, encoding: Encoding) {
    if encoding == Encoding::Json && !items.is_empty() {
        items.push(b',');
    }
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

fn nanos(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}
