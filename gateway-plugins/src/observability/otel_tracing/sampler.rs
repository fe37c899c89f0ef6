//! Which exchanges are recorded: decided when a trace begins or comes in, and again when an exchange has ended.

use std::time::Duration;

use gateway_core::config::units::Millis;
use gateway_core::http::reply::Cause;
use gateway_core::record::{ExchangeRecord, SessionRecord};
use gateway_core::trace::TraceId;
use schemars::JsonSchema;
use serde::Deserialize;

/// The samplers of OpenTelemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SamplerKind {
    /// Every trace.
    AlwaysOn,
    /// None.
    AlwaysOff,
    /// A share of all traces, by trace ID, regardless of the client's decision.
    #[serde(rename = "traceidratio")]
    TraceIdRatio,
    /// As the client decided; every trace that begins here.
    #[serde(rename = "parentbased_always_on")]
    ParentbasedAlwaysOn,
    /// As the client decided; no trace that begins here.
    #[serde(rename = "parentbased_always_off")]
    ParentbasedAlwaysOff,
    /// As the client decided; a share of the traces that begin here.
    #[serde(rename = "parentbased_traceidratio")]
    ParentbasedTraceIdRatio,
}

impl SamplerKind {
    /// The sampler of this name, as in `OTEL_TRACES_SAMPLER`.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "always_on" => Self::AlwaysOn,
            "always_off" => Self::AlwaysOff,
            "traceidratio" => Self::TraceIdRatio,
            "parentbased_always_on" => Self::ParentbasedAlwaysOn,
            "parentbased_always_off" => Self::ParentbasedAlwaysOff,
            "parentbased_traceidratio" => Self::ParentbasedTraceIdRatio,
            _ => return None,
        })
    }

    pub(super) fn has_ratio(self) -> bool {
        matches!(self, Self::TraceIdRatio | Self::ParentbasedTraceIdRatio)
    }

    fn asks_parent(self) -> bool {
        matches!(self, Self::ParentbasedAlwaysOn | Self::ParentbasedAlwaysOff | Self::ParentbasedTraceIdRatio)
    }
}

/// Decides.
pub(super) struct Sampler {
    kind: SamplerKind,
    /// Ids whose last 63 bits are below this are recorded.
    below: u64,
    errors: bool,
    slower_than: Option<Duration>,
}

impl Sampler {
    pub(super) fn new(kind: SamplerKind, ratio: f64, errors: bool, slower: Option<Millis>) -> Self {
        Self { kind, below: below(ratio), errors, slower_than: slower.map(Millis::duration) }
    }

    /// Whether a trace is recorded; `parent` is what whoever came before decided.
    pub(super) fn decide(&self, trace: TraceId, parent: Option<bool>) -> bool {
        if let Some(decided) = parent.filter(|_| self.kind.asks_parent()) {
            return decided;
        }
        match self.kind {
            SamplerKind::AlwaysOn | SamplerKind::ParentbasedAlwaysOn => true,
            SamplerKind::AlwaysOff | SamplerKind::ParentbasedAlwaysOff => false,
            SamplerKind::TraceIdRatio | SamplerKind::ParentbasedTraceIdRatio => number(trace) < self.below,
        }
    }

    /// Whether anything is recorded for what became of it.
    pub(super) fn looks_back(&self) -> bool {
        self.errors || self.slower_than.is_some()
    }

    /// Whether an exchange is recorded for what became of it.
    pub(super) fn wants(&self, record: &ExchangeRecord<'_>) -> bool {
        self.errors && is_failure(record) || self.is_slow(record.duration)
    }

    /// Whether a session is recorded for what became of it.
    pub(super) fn wants_session(&self, record: &SessionRecord<'_>) -> bool {
        self.errors && is_session_failure(record.reason)
    }

    fn is_slow(&self, took: Duration) -> bool {
        self.slower_than.is_some_and(|limit| took >= limit)
    }
}

/// Whether the gateway or its target failed: 500 and above, a response that was cut off by either, or a gRPC call that failed
/// with a 200.
pub(super) fn is_failure(record: &ExchangeRecord<'_>) -> bool {
    let is_cut = record.is_error && record.status < 400 && record.cause != Some(Cause::ClientGone);
    record.status >= 500 || is_cut || record.grpc_status.is_some_and(|code| GRPC_FAILURES.contains(&code))
}

/// What servers' spans count as failures: UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS. The others
/// say that the caller did something wrong.
const GRPC_FAILURES: [u16; 6] = [2, 4, 12, 13, 14, 15];

/// Ends of sessions that are nobody's failure.
const GOOD_ENDS: &[&str] =
    &["closed", "client_reset", "idle", "lifetime", "drained", "message_refused", "client_gone", "revoked"];

/// Whether a session ended by a failure.
pub(super) fn is_session_failure(reason: &str) -> bool {
    !GOOD_ENDS.contains(&reason)
}

/// The last 63 bits, as OpenTelemetry's samplers take them.
fn number(trace: TraceId) -> u64 {
    let [_, _, _, _, _, _, _, _, last @ ..] = trace.0;
    u64::from_be_bytes(last) >> 1
}

fn below(ratio: f64) -> u64 {
    const ALL: u64 = 1 << 63;
    if ratio >= 1.0 { ALL } else { (ratio.max(0.0) * ALL as f64) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(kind: SamplerKind, ratio: f64, parent: Option<bool>) -> f64 {
        let sampler = Sampler::new(kind, ratio, false, None);
        let of = 20_000;
        let taken = (0..of).filter(|_| sampler.decide(TraceId::random(), parent)).count();
        taken as f64 / f64::from(of)
    }

    #[test]
    fn a_sampler_follows_its_parent_or_its_share() {
        for (kind, alone, under_on, under_off) in [
            (SamplerKind::AlwaysOn, 1.0, 1.0, 1.0),
            (SamplerKind::AlwaysOff, 0.0, 0.0, 0.0),
            (SamplerKind::ParentbasedAlwaysOn, 1.0, 1.0, 0.0),
            (SamplerKind::ParentbasedAlwaysOff, 0.0, 1.0, 0.0),
        ] {
            assert_eq!(decided(kind, 1.0, None), alone, "{kind:?}");
            assert_eq!(decided(kind, 1.0, Some(true)), under_on, "{kind:?}");
            assert_eq!(decided(kind, 1.0, Some(false)), under_off, "{kind:?}");
        }
        for ratio in [0.0, 0.1, 0.5, 1.0] {
            let share = decided(SamplerKind::TraceIdRatio, ratio, Some(true));
            assert!((share - ratio).abs() < 0.02, "{share} of {ratio}");
            assert_eq!(decided(SamplerKind::ParentbasedTraceIdRatio, ratio, Some(true)), 1.0);
            let share = decided(SamplerKind::ParentbasedTraceIdRatio, ratio, None);
            assert!((share - ratio).abs() < 0.02, "{share} of {ratio}");
        }
    }

    #[test]
    fn a_trace_is_decided_alike_everywhere() {
        let trace = TraceId([0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0]);
        let at = |ratio| Sampler::new(SamplerKind::TraceIdRatio, ratio, false, None).decide(trace, None);
        assert!(at(0.13) && !at(0.12), "an eighth of the range");
    }
}
