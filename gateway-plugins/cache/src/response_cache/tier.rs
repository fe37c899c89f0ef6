//! What the tiers below memory have in common: by what they find a response, and what is counted of them.

use aws_lc_rs::digest::{Context, SHA256};
use gateway_core::metrics::Metric;
use gateway_core::plugin::World;
use gateway_core::plugin::world::meters::{Counter, Gauge};

const LOOKUPS: Metric = Metric::counter(
    "ferrum_response_cache_tier_lookups_total",
    "Lookups in the tiers below memory: hit, miss, damaged (a file that was not whole), away or busy.",
);
const WRITES: Metric = Metric::counter(
    "ferrum_response_cache_tier_writes_total",
    "Responses for the tiers below memory: written, dropped (the queue was full), failed, overtaken.",
);
const BYTES: Metric =
    Metric::gauge("ferrum_response_cache_tier_stored_bytes", "Bytes of stored responses on the disk.");
const OBJECTS: Metric = Metric::gauge("ferrum_response_cache_tier_entries", "Stored responses on the disk.");
const EVICTED: Metric =
    Metric::counter("ferrum_response_cache_tier_evictions_total", "Evicted responses on the disk.");

/// Where a response was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    Memory,
    Disk,
    Redis,
}

impl Tier {
    /// The word in `Cache-Status`, metrics and the record.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Redis => "redis",
        }
    }
}

/// What a response is found by below memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Address {
    /// Proxy, scheme, host, path and query.
    pub(super) place: [u8; 16],
    /// What else tells responses of the place apart, and how the settings tell them apart.
    pub(super) parts: [u8; 16],
}

/// Which purges of all gateways a response has seen: their number, in the history that `epoch` names. Zero where nobody
/// counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) epoch: u64,
    pub(super) number: u64,
}

/// The first half of a SHA-256 of these parts.
pub(super) fn digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().first_chunk().copied().unwrap_or_default()
}

/// What is counted of one tier.
#[derive(Debug, Clone)]
pub(super) struct TierMeters {
    pub(super) hit: Counter,
    pub(super) miss: Counter,
    pub(super) damaged: Counter,
    pub(super) away: Counter,
    pub(super) busy: Counter,
    pub(super) written: Counter,
    pub(super) dropped: Counter,
    pub(super) failed: Counter,
    pub(super) overtaken: Counter,
    pub(super) bytes: Gauge,
    pub(super) objects: Gauge,
    pub(super) evicted: Counter,
}

impl TierMeters {
    pub(super) fn new(world: &World, tier: Tier) -> Self {
        const LABELS: &[&str] = &["plugin_config", "tier"];
        const OUTCOMES: &[&str] = &["plugin_config", "tier", "outcome"];
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let (meters, tier) = (world.meters(), tier.word());
        let lookup = |outcome| meters.counter(LOOKUPS, OUTCOMES, &[owner, tier, outcome]);
        let write = |outcome| meters.counter(WRITES, OUTCOMES, &[owner, tier, outcome]);
        // How much is in Redis only Redis knows.
        let gauge = |metric| match tier {
            "disk" => meters.gauge(metric, LABELS, &[owner, tier]),
            _ => Gauge::default(),
        };
        Self {
            hit: lookup("hit"),
            miss: lookup("miss"),
            damaged: lookup("damaged"),
            away: lookup("away"),
            busy: lookup("busy"),
            written: write("written"),
            dropped: write("dropped"),
            failed: write("failed"),
            overtaken: write("overtaken"),
            bytes: gauge(BYTES),
            objects: gauge(OBJECTS),
            evicted: match tier {
                "disk" => meters.counter(EVICTED, LABELS, &[owner, tier]),
                _ => Counter::default(),
            },
        }
    }
}
