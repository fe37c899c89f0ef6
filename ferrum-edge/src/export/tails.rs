//! Those who follow records as they come, by the admin API: few, each with a filter and a bounded queue.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use gateway_core::condition::Condition;
use gateway_telemetry::batch::{Batches, Limits};
use gateway_telemetry::json::JsonLine;
use gateway_telemetry::record::{self, Extras, Record};
use ipnet::IpNet;
use serde_json::Value;

use super::traffic::Traffic;
use gateway_core::condition::Holds;

/// Those who may follow at a time.
pub(crate) const MAX_TAILS: usize = 8;
/// Records that wait for one of them; further ones are left out, and how many is said.
const LIMITS: Limits = Limits { items: 4096, bytes: 4 << 20, chunk_items: 256, chunk_bytes: 256 << 10 };

/// Which records somebody wants.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// Only of these proxies; all where there are none.
    pub(crate) proxies: Vec<String>,
    /// Only exchanges for which this holds; sessions are left out then.
    pub(crate) when: Option<Condition>,
    /// Only what took at least so long.
    pub(crate) slower_than: Duration,
    /// Only of these callers, by name; all where there are none.
    pub(crate) consumers: Vec<String>,
    /// Only from these addresses; all where there are none.
    pub(crate) clients: Vec<IpNet>,
    /// Only exchanges whose path begins with one of these; all where there are none.
    pub(crate) paths: Vec<String>,
}

impl Filter {
    fn wants(&self, record: Record<'_>) -> bool {
        let (route, took, is_meant) = match record {
            Record::Exchange(record) => {
                let is_meant =
                    self.when.as_ref().is_none_or(|when| when.holds_with(record.exchange, record.status));
                (record.route, record.duration, is_meant)
            }
            Record::Session(record) => (record.route, record.duration, self.when.is_none()),
        };
        let is_proxy =
            || route.is_some_and(|route| self.proxies.iter().any(|id| id == route.proxy.id.as_str()));
        took >= self.slower_than
            && is_meant
            && (self.proxies.is_empty() || is_proxy())
            && self.wants_request(record)
    }

    fn wants_request(&self, record: Record<'_>) -> bool {
        let (caller, client, path) = match record {
            Record::Exchange(record) => {
                let exchange = record.exchange;
                (&exchange.identity, exchange.client_address, exchange.request.uri.path())
            }
            Record::Session(record) => (&record.session.identity, record.session.client_address, ""),
        };
        let is_caller = |name: &String| caller.as_ref().is_some_and(|caller| *caller.name == **name);
        (self.consumers.is_empty() || self.consumers.iter().any(is_caller))
            && (self.clients.is_empty() || self.clients.iter().any(|net| net.contains(&client)))
            && (self.paths.is_empty() || self.paths.iter().any(|prefix| path.starts_with(prefix.as_str())))
    }
}

/// All who follow.
#[derive(Default)]
pub(crate) struct Tails {
    /// How many follow, and one more while traffic is watched.
    count: AtomicUsize,
    list: RwLock<Vec<Arc<Tail>>>,
    is_watched: AtomicBool,
    traffic: Traffic,
}

/// One who follows.
pub(crate) struct Tail {
    filter: Filter,
    batches: Batches,
}

/// A place among those who follow; given up when dropped.
pub(crate) struct Following {
    tails: Arc<Tails>,
    tail: Arc<Tail>,
    said: u64,
}

impl Tails {
    /// Hands a record to those who want it.
    #[inline]
    pub(crate) fn record(&self, record: Record<'_>) {
        if self.count.load(Relaxed) > 0 {
            self.hand_out(record);
        }
    }

    #[cold]
    fn hand_out(&self, record: Record<'_>) {
        if self.is_watched.load(Relaxed) && !self.traffic.observe(record) {
            let list = self.list.write().unwrap_or_else(PoisonError::into_inner);
            self.is_watched.store(self.traffic.is_watched(), Relaxed);
            self.recount(&list);
        }
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        for tail in list.iter().filter(|tail| tail.filter.wants(record)) {
            tail.batches.push(|out| {
                let mut line = JsonLine::begin(out);
                match record {
                    Record::Exchange(record) => record::exchange(&mut line, record, &Extras::default()),
                    Record::Session(record) => record::session(&mut line, record, &Extras::default()),
                }
                line.end();
            });
        }
    }

    /// A place, from now on; `None` when all are taken.
    pub(crate) fn follow(self: &Arc<Self>, filter: Filter) -> Option<Following> {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        if list.len() >= MAX_TAILS {
            return None;
        }
        let tail = Arc::new(Tail { filter, batches: Batches::new(LIMITS, None) });
        list.push(tail.clone());
        self.recount(&list);
        Some(Following { tails: self.clone(), tail, said: 0 })
    }
}

impl Tails {
    /// The traffic by proxy and target since somebody began to watch; watching begins with the first look, and ends when
    /// nobody looks any more.
    pub(crate) fn traffic(&self) -> Value {
        let list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let counts = self.traffic.look();
        self.is_watched.store(true, Relaxed);
        self.recount(&list);
        counts
    }

    fn recount(&self, list: &[Arc<Tail>]) {
        self.count.store(list.len() + usize::from(self.is_watched.load(Relaxed)), Relaxed);
    }
}

impl Following {
    /// The next lines, each with a line feed; empty when nothing came for so long.
    pub(crate) async fn next(&mut self, wait: Duration) -> Vec<u8> {
        let until = tokio::time::Instant::now() + wait;
        loop {
            if let Some(chunk) = self.tail.batches.take() {
                let mut lines = chunk.bytes;
                let lost = self.tail.batches.lost();
                if lost > self.said {
                    lines.extend_from_slice(
                        format!("{{\"kind\":\"lost\",\"records\":{}}}\n", lost - self.said).as_bytes(),
                    );
                    self.said = lost;
                }
                return lines;
            }
            if tokio::time::Instant::now() >= until {
                return Vec::new();
            }
            // Records of one moment come together; a full chunk comes at once.
            drop(tokio::time::timeout(GATHER, self.tail.batches.full()).await);
        }
    }
}

/// How long it waits for more.
const GATHER: Duration = Duration::from_millis(100);

impl Drop for Following {
    fn drop(&mut self) {
        let mut list = self.tails.list.write().unwrap_or_else(PoisonError::into_inner);
        list.retain(|tail| !Arc::ptr_eq(tail, &self.tail));
        self.tails.recount(&list);
    }
}
