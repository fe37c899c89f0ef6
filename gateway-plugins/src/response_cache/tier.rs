//! The tiers below memory: a folder on disk, and Redis or Valkey.
//!
//! What is stored in memory is written to both, behind the request. What memory does not have is looked for on the disk
//! and then in Redis, and taken back into memory. An invalidation and a purge reach all of them.

use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use gateway_core::plugin::World;
use gateway_core::plugin::world::meters::{Counter, Gauge};
use gateway_core::record::Metric;
use tokio::time::Instant;

use super::disk::Disk;
use super::key::{Bytes, Chooser, Key};
use super::purge::Purge;
use super::remote::{Remote, Since};
use super::store::Stored;
use super::wire::Label;

const LOOKUPS: Metric = Metric {
    name: "ferrum_response_cache_tier_lookups_total",
    kind: "counter",
    help: "Lookups in the tiers below memory: hit, miss, damaged (a file that was not whole), away or busy.",
};
const WRITES: Metric = Metric {
    name: "ferrum_response_cache_tier_writes_total",
    kind: "counter",
    help: "Responses for the tiers below memory: written, dropped (the queue was full), failed, overtaken.",
};
const BYTES: Metric = Metric {
    name: "ferrum_response_cache_tier_stored_bytes",
    kind: "gauge",
    help: "Bytes of stored responses on the disk.",
};
const OBJECTS: Metric = Metric {
    name: "ferrum_response_cache_tier_entries",
    kind: "gauge",
    help: "Stored responses on the disk.",
};
const EVICTED: Metric = Metric {
    name: "ferrum_response_cache_tier_evictions_total",
    kind: "counter",
    help: "Responses on the disk that gave way to others.",
};

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

/// The tiers below memory that are configured.
#[derive(Default)]
pub(super) struct Tiers {
    pub(super) disk: Option<Arc<Disk>>,
    pub(super) remote: Option<Arc<Remote>>,
    /// How responses are told apart; those that were stored under other settings are not found.
    pub(super) recipe: Box<[u8]>,
}

impl Tiers {
    /// Whether there is any.
    pub(super) fn any(&self) -> bool {
        self.disk.is_some() || self.remote.is_some()
    }

    /// Whether they could know more than memory does.
    pub(super) fn is_worth_asking(&self, key: &Key) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.is_up())
            || self.disk.as_ref().is_some_and(|disk| disk.may_have(&self.address(key)))
    }

    fn address(&self, key: &Key) -> Address {
        Address { place: place_of(&key.place), parts: digest(&[&self.recipe, b"\0", &key.parts]) }
    }

    /// Looks for a response, and says since when changes of it are known in Redis.
    pub(super) async fn find(
        &self,
        key: &Key,
        chooser: &Chooser<'_>,
        now: Instant,
    ) -> (Option<(Arc<Stored>, Tier)>, Option<Since>) {
        let address = self.address(key);
        if let Some(disk) = &self.disk
            && let Some((stored, label)) = disk.find(&address, chooser, now).await
        {
            // Purges that other gateways made while this one was not there.
            let is_purged =
                self.remote.as_ref().is_some_and(|remote| remote.is_purged(&label, &stored.head.tags));
            if !is_purged {
                return (Some((stored, Tier::Disk)), None);
            }
            disk.invalidate(&address.place);
        }
        let Some(remote) = &self.remote else { return (None, None) };
        let (stored, since) = remote.find(&address, chooser, now).await;
        (stored.map(|stored| (stored, Tier::Redis)), since)
    }

    /// What is known about purges and invalidations as a request sets out.
    pub(super) fn since(&self) -> Option<Since> {
        self.remote.as_ref().map(|remote| remote.since())
    }

    /// Has a response written, behind the request.
    pub(super) fn put(&self, key: &Key, stored: &Arc<Stored>, since: Option<Since>) {
        if !self.any() {
            return;
        }
        let mark = since.as_ref().map_or_else(Mark::default, |since| since.mark);
        let label = Label { address: self.address(key), url: key.url().into(), mark };
        if let Some(disk) = &self.disk {
            disk.put(label.clone(), stored.clone());
        }
        if let Some(remote) = &self.remote {
            remote.put(label, stored.clone(), since);
        }
    }

    /// Forgets a place.
    pub(super) fn invalidate(&self, place: &Bytes, url: &str) {
        if !self.any() {
            return;
        }
        let place = place_of(place);
        if let Some(disk) = &self.disk {
            disk.invalidate(&place);
        }
        if let Some(remote) = &self.remote {
            remote.invalidate(&place, url);
        }
    }

    /// Removes what a purge covers, or marks it stale; says how many responses on the disk. Blocks.
    pub(super) fn purge(&self, purge: &Purge) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.purge(purge))
    }

    /// Tells other gateways of a purge, and Redis.
    pub(super) fn announce(&self, purge: &Purge) {
        if let Some(remote) = &self.remote {
            remote.announce(purge.clone());
        }
    }
}

fn place_of(place: &[u8]) -> [u8; 16] {
    digest(&[place])
}
