//! Settings of `otel_tracing`, with OpenTelemetry's variables as defaults.

use std::collections::BTreeMap;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Bytes, Millis};
use gateway_core::plugin::World;
use gateway_plugin_common::parse;
use gateway_telemetry::batch::Limits;
use gateway_telemetry::context::Propagator;
use gateway_telemetry::deliver::Pace;
use gateway_telemetry::otlp::{self, ExporterSettings};
use http::HeaderName;
use schemars::JsonSchema;
use serde::Deserialize;

use super::sampler::{Sampler, SamplerKind};

/// Settings of `otel_tracing`. OpenTelemetry's `OTEL_*` variables are the defaults.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("older" = "leave_out"))]
pub(crate) struct Config {
    /// Span exporter.
    pub(super) exporter: ExporterSettings,
    /// Service name of the spans. Default `OTEL_SERVICE_NAME`, else `ferrum-edge`.
    pub(super) service_name: Option<String>,
    /// Resource attributes of all telemetry, such as `deployment.environment.name`. Default `OTEL_RESOURCE_ATTRIBUTES`.
    pub(super) resource_attributes: Option<BTreeMap<String, String>>,
    /// Formats of trace context to read, in this order, and to write. Default `OTEL_PROPAGATORS`, else `tracecontext`
    /// and `baggage`.
    pub(super) propagators: Option<Vec<Propagator>>,
    /// Continues the client's trace. If false, every request begins a new trace, and the gateway removes the client's
    /// context in the formats above. Default true.
    pub(super) accept_context: bool,
    /// Sampling of traces. Default `OTEL_TRACES_SAMPLER`, else `parentbased_always_on`.
    pub(super) sampler: Option<SamplerKind>,
    /// Share of traces that a sampler with `traceidratio` records, 0 to 1. Default `OTEL_TRACES_SAMPLER_ARG`, else 1.
    #[schemars(range(min = 0, max = 1))]
    pub(super) sample_ratio: Option<f64>,
    /// Also records the gateway's own spans of exchanges with status 500 or above, or with a truncated response.
    /// Default true.
    pub(super) record_errors: bool,
    /// Also records the gateway's own spans of exchanges that take at least this long. Default: none.
    #[schemars(range(min = 0.001, max = 3600))]
    pub(super) record_slower_than: Option<Millis>,
    /// Request header fields to record as `http.request.header.<name>`; credentials are redacted, as in the access log.
    /// Default none.
    pub(super) request_headers: Vec<String>,
    /// Query parameters to redact in `url.query`, in addition to well-known ones such as `token` and `api_key`. Default
    /// none.
    #[schemars(length(max = 100))]
    pub(super) redact_query: Vec<String>,
    /// Keys of `baggage` to record as `baggage.<key>`; requires the propagator `baggage`. Default none.
    pub(super) baggage_attributes: Vec<String>,
    /// Response header field that contains the trace ID, such as `x-trace-id`. Default none.
    pub(super) response_header: Option<String>,
    /// Export queue limits.
    pub(super) queue: Queue,
}

/// Limits of the export queue.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Queue {
    /// Queued spans. If the queue is full, all spans of a request are dropped together and counted; if one request has
    /// more spans than this, only its own span is kept. Default `OTEL_BSP_MAX_QUEUE_SIZE`, else 16,384.
    #[schemars(range(min = 1, max = 10_000_000))]
    max_spans: Option<usize>,
    /// Size of the queue. Default 16 MiB.
    #[schemars(range(min = 4096, max = 17_179_869_184_u64))]
    max_size: Option<Bytes>,
    /// Spans in one export request. Default `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`, else 512.
    #[schemars(range(min = 1, max = 100_000))]
    max_batch: Option<usize>,
    /// Longest delay before spans are exported. Default `OTEL_BSP_SCHEDULE_DELAY`, else 5 s.
    #[schemars(range(min = 0.001, max = 3600))]
    interval: Option<Millis>,
    /// How long an export is retried before its spans are dropped. Default 60 s.
    #[schemars(range(min = 0, max = 3600))]
    retry_for: Option<Millis>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            exporter: ExporterSettings::default(),
            service_name: None,
            resource_attributes: None,
            propagators: None,
            accept_context: true,
            sampler: None,
            sample_ratio: None,
            record_errors: true,
            record_slower_than: None,
            request_headers: Vec::new(),
            redact_query: Vec::new(),
            baggage_attributes: Vec::new(),
            response_header: None,
            queue: Queue::default(),
        }
    }
}

/// Bytes from which on a request is sent.
const CHUNK_BYTES: usize = 1 << 20;

impl Config {
    /// Who sends: the service and its attributes.
    pub(super) fn resource(&self, world: &World, problems: &mut Problems) -> Vec<(String, String)> {
        let others: Vec<(String, String)> = match &self.resource_attributes {
            Some(attributes) => attributes.clone().into_iter().collect(),
            None => {
                const NAME: &str = "OTEL_RESOURCE_ATTRIBUTES";
                let text = world.variable(NAME).unwrap_or_default();
                otlp::pairs(text).unwrap_or_else(|| {
                    problems.add(NAME, "is not a list like `name=value,other=value`");
                    Vec::new()
                })
            }
        };
        let named = others.iter().find(|(key, _)| key == "service.name").map(|(_, name)| name.clone());
        let variable = world.variable("OTEL_SERVICE_NAME").map(str::to_owned);
        let service = self.service_name.clone().or(variable).or(named);
        otlp::resource(service.as_deref().unwrap_or("ferrum-edge"), others)
    }

    /// Formats of context.
    pub(super) fn propagators(&self, world: &World, problems: &mut Problems) -> Vec<Propagator> {
        const NAME: &str = "OTEL_PROPAGATORS";
        if let Some(listed) = &self.propagators {
            return listed.clone();
        }
        let Some(text) = world.variable(NAME) else {
            return vec![Propagator::TraceContext, Propagator::Baggage];
        };
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "none");
        words
            .filter_map(|word| {
                let known = Propagator::named(word);
                if known.is_none() {
                    problems.add(NAME, format!("`{word}` is not supported")).remedy =
                        Some("use `tracecontext`, `baggage`, `b3`, `b3multi`, `jaeger` or `none`".into());
                }
                known
            })
            .collect()
    }

    /// Which exchanges are recorded.
    pub(super) fn sampler(&self, world: &World, problems: &mut Problems) -> Sampler {
        const NAME: &str = "OTEL_TRACES_SAMPLER";
        const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
        let kind = self.sampler.or_else(|| {
            let text = world.variable(NAME)?;
            let known = SamplerKind::named(text);
            if known.is_none() {
                problems.add(NAME, format!("`{text}` is not supported"));
            }
            known
        });
        let kind = kind.unwrap_or(SamplerKind::ParentbasedAlwaysOn);
        if self.sample_ratio.is_some() && !kind.has_ratio() {
            problems.add("config.sample_ratio", "needs a sampler with `traceidratio`");
        }
        let ratio = self.sample_ratio.or_else(|| {
            let text = world.variable(ARGUMENT).filter(|_| kind.has_ratio())?;
            let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
            if ratio.is_none() {
                problems.add(ARGUMENT, format!("`{text}` is not a number from 0 to 1"));
            }
            ratio
        });
        Sampler::new(kind, ratio.unwrap_or(1.0), self.record_errors, self.record_slower_than)
    }

    /// Header fields with the names of their attributes.
    pub(super) fn headers(&self, problems: &mut Problems) -> Box<[(HeaderName, String)]> {
        let names = self.request_headers.iter().enumerate();
        let named = names.filter_map(|(n, name)| {
            let name = parse::header_name(&format!("config.request_headers[{n}]"), name, problems)?;
            let attribute = format!("http.request.header.{name}");
            Some((name, attribute))
        });
        named.collect()
    }

    /// Keys of baggage with the names of their attributes.
    pub(super) fn baggage(
        &self,
        propagators: &[Propagator],
        problems: &mut Problems,
    ) -> Box<[(String, String)]> {
        if !self.baggage_attributes.is_empty() && !propagators.contains(&Propagator::Baggage) {
            problems.add("config.baggage_attributes", "needs the propagator `baggage`");
        }
        self.baggage_attributes.iter().map(|key| (key.clone(), format!("baggage.{key}"))).collect()
    }

    /// The bounds of what waits, and how it is sent.
    pub(super) fn queue(&self, world: &World, problems: &mut Problems) -> (Limits, Pace) {
        let mut number = |name: &str| {
            let text = world.variable(name)?;
            let number = text.parse::<usize>().ok().filter(|number| *number > 0);
            if number.is_none() {
                problems.add(name, format!("`{text}` is not a positive number"));
            }
            number
        };
        let queue = &self.queue;
        let items = queue.max_spans.or_else(|| number("OTEL_BSP_MAX_QUEUE_SIZE")).unwrap_or(16_384);
        let chunk = queue.max_batch.or_else(|| number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE")).unwrap_or(512);
        let delay = || number("OTEL_BSP_SCHEDULE_DELAY").map(|millis| Duration::from_millis(millis as u64));
        let interval = queue.interval.map(Millis::duration).or_else(delay);
        let bytes = queue.max_size.map_or(16 << 20, Bytes::count);
        let limits =
            Limits { items, bytes, chunk_items: chunk.min(items), chunk_bytes: CHUNK_BYTES.min(bytes) };
        let pace = Pace {
            interval: interval.unwrap_or(Duration::from_secs(5)),
            retry_for: queue.retry_for.map_or(Duration::from_secs(60), Millis::duration),
        };
        (limits, pace)
    }
}
