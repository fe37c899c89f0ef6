//! Shows the histograms.

use std::array::from_fn;
use std::collections::{BTreeMap, HashMap};
use std::time::UNIX_EPOCH;

use gateway_core::metrics::names;
use gateway_core::metrics::{Exemplar, ExponentialHistogram, HistogramSeries, Labels};

use super::Walk;
use crate::export::histogram::{BUCKETS, Merged, SECONDS};
use crate::export::labels::{CLASS_NAMES, VERSIONS};
use crate::export::shard::PHASES;
use crate::export::{Telemetry, native};

/// How long requests take, by HTTP version and status class.
pub(super) fn requests(walk: &mut Walk<'_>, telemetry: &Telemetry) {
    walk.head(&names::REQUEST_DURATION);
    for (version, version_name) in VERSIONS.iter().enumerate() {
        for (class, class_name) in CLASS_NAMES.iter().enumerate() {
            let mut merged = Merged::default();
            telemetry.workers.iter().for_each(|worker| merged.add(&worker.durations[version][class]));
            // A series appears when it first happens: most gateways never speak every version.
            if merged.count() == 0 {
                continue;
            }
            let exemplars = match walk.0.wants_exemplars() {
                true => newest(telemetry, version, class).to_vec(),
                false => Vec::new(),
            };
            let natives = telemetry.workers.iter().map(|worker| &worker.natives[version][class]);
            let exponential = walk.0.wants_exponential().then(|| native::merged(natives));
            let labels =
                [("network_protocol_version", *version_name), ("http_response_status_class", *class_name)];
            show(walk, &labels, &merged, &exemplars, exponential.as_ref());
        }
    }
}

/// The newest exemplar of each bucket.
fn newest(telemetry: &Telemetry, version: usize, class: usize) -> [Option<Exemplar>; BUCKETS] {
    from_fn(|bucket| {
        let kept = telemetry.workers.iter().filter_map(|worker| worker.exemplars.of(version, class, bucket));
        let newest = kept.max_by_key(|exemplar| exemplar.at)?;
        let at = newest.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(Exemplar { trace: newest.trace.to_string(), took: newest.took, at })
    })
}

/// How long targets take to answer.
pub(super) fn first_bytes(walk: &mut Walk<'_>, telemetry: &Telemetry) {
    let mut merged = Merged::default();
    telemetry.workers.iter().for_each(|worker| merged.add(&worker.first_bytes));
    let natives = telemetry.workers.iter().map(|worker| &worker.native_first_bytes);
    let exponential = walk.0.wants_exponential().then(|| native::merged(natives));
    walk.head(&names::UPSTREAM_DURATION);
    show(walk, &[], &merged, &[], exponential.as_ref());
}

/// How long targets take to send their whole answers.
pub(super) fn last_bytes(walk: &mut Walk<'_>, telemetry: &Telemetry) {
    let mut merged = Merged::default();
    telemetry.workers.iter().for_each(|worker| merged.add(&worker.last_bytes));
    walk.head(&names::UPSTREAM_RESPONSE_DURATION);
    show(walk, &[], &merged, &[], None);
}

/// How long each proxy's exchanges take.
pub(super) fn proxies(walk: &mut Walk<'_>, telemetry: &Telemetry) {
    let natives: HashMap<_, _> = match walk.0.wants_exponential() {
        true => {
            telemetry.native_timings().into_iter().map(|(id, total, first)| (id, (total, first))).collect()
        }
        false => HashMap::new(),
    };
    let timed = telemetry.timings();
    walk.head(&names::PROXY_DURATION);
    for (id, timings) in &timed {
        let exponential = natives.get(id).map(|(total, _)| total);
        show(walk, &[("proxy", id.as_str())], &timings.total, &[], exponential);
    }
    walk.head(&names::PROXY_UPSTREAM_DURATION);
    for (id, timings) in timed.iter().filter(|(_, timings)| timings.first_byte.count() > 0) {
        let exponential = natives.get(id).map(|(_, first_byte)| first_byte).filter(|first| first.count() > 0);
        show(walk, &[("proxy", id.as_str())], &timings.first_byte, &[], exponential);
    }
    walk.head(&names::PROXY_UPSTREAM_RESPONSE_DURATION);
    for (id, timings) in timed.iter().filter(|(_, timings)| timings.last_byte.count() > 0) {
        show(walk, &[("proxy", id.as_str())], &timings.last_byte, &[], None);
    }
}

/// How long connections to targets take to open, by phase.
pub(super) fn dials(walk: &mut Walk<'_>, telemetry: &Telemetry) {
    let mut sums = BTreeMap::new();
    telemetry.workers.iter().for_each(|worker| worker.dials.add_to(&mut sums));
    walk.head(&names::UPSTREAM_CONNECTION);
    for (upstream, merged) in &sums {
        for (phase, merged) in PHASES.iter().zip(merged).filter(|(_, merged)| merged.count() > 0) {
            show(walk, &[("upstream", upstream.as_str()), ("phase", phase)], merged, &[], None);
        }
    }
}

fn show(
    walk: &mut Walk<'_>,
    labels: &Labels<'_>,
    merged: &Merged,
    exemplars: &[Option<Exemplar>],
    exponential: Option<&ExponentialHistogram>,
) {
    let (bounds, counts, sum) = (&SECONDS, &merged.buckets, merged.seconds());
    walk.0.histogram(labels, &HistogramSeries { bounds, counts, sum, exemplars, exponential });
}
