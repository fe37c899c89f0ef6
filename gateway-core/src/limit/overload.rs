//! The gateway's own ceilings over all workers: connections and exchanges, and what is refused while it is overloaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::collected::{CollectedBodies, ExpectedBody};
use super::concurrency::{Concurrency, Permit};
use crate::config::model::{Limits, LoadPriority};

/// What the whole gateway carries at a time. Traffic beyond it is refused at once, never queued.
#[derive(Debug, Clone)]
pub struct Overload {
    connections: Arc<Concurrency>,
    exchanges: Arc<Concurrency>,
    collected: CollectedBodies,
    level: Arc<AtomicU8>,
    /// The number from which on descriptors are not for clients.
    client_descriptors: Arc<AtomicU64>,
}

/// Descriptors that clients leave free for everything else, such as the admin listener: this share of the limit, between
/// these bounds.
const RESERVED_SHARE: u64 = 16;
const RESERVED: std::ops::RangeInclusive<u64> = 8..=256;

/// Bytes that a request's body takes while it passes: what is read of it ahead of its target.
const BODY_BYTES: u64 = 16 << 10;
/// The share of a limit from which on most is refused.
const MOST: f64 = 0.97;

/// How short memory, descriptors or time are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum OverloadLevel {
    /// Not short.
    #[default]
    Normal,
    /// Idle connections are closed.
    CloseIdle,
    /// Besides, proxies with a low priority are refused.
    RefuseLow,
    /// Only proxies with a high priority are served.
    RefuseMost,
}

impl OverloadLevel {
    /// From no to most load.
    pub const ALL: [Self; 4] = [Self::Normal, Self::CloseIdle, Self::RefuseLow, Self::RefuseMost];

    /// As status and logs name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::CloseIdle => "close_idle",
            Self::RefuseLow => "refuse_low",
            Self::RefuseMost => "refuse_most",
        }
    }
}

impl Overload {
    /// The ceilings of these limits.
    pub fn new(limits: &Limits) -> Self {
        Self {
            connections: Concurrency::new(limits.max_connections),
            exchanges: Concurrency::new(limits.max_requests),
            collected: CollectedBodies::new(limits.max_collected_body),
            level: Arc::default(),
            client_descriptors: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }

    /// Says how many file descriptors the process may have open; `None` for any number.
    pub fn set_descriptor_limit(&self, limit: Option<u64>) {
        let limit = limit.map_or(u64::MAX, |limit| {
            limit.saturating_sub((limit / RESERVED_SHARE).clamp(*RESERVED.start(), *RESERVED.end()))
        });
        self.client_descriptors.store(limit, Ordering::Relaxed);
    }

    /// Whether a client's connection may keep this descriptor. The system hands out the lowest number that is free, so a high
    /// one says that nearly all are in use, without counting them.
    pub fn has_descriptor_for_client(&self, descriptor: i32) -> bool {
        u64::try_from(descriptor).is_ok_and(|it| it < self.client_descriptors.load(Ordering::Relaxed))
    }

    /// Sets the ceilings anew after a reload; what is under way stays counted.
    pub fn resize(&self, limits: &Limits) {
        self.connections.resize(limits.max_connections);
        self.exchanges.resize(limits.max_requests);
        self.collected.resize(limits.max_collected_body);
    }

    /// The ceiling of bodies that are collected. Each thread of the gateway counts on it.
    pub fn collected(&self) -> &CollectedBodies {
        &self.collected
    }

    /// A place for a client connection, from accepting to closing it.
    pub fn connection(&self) -> Option<Permit> {
        self.connections.permit()
    }

    /// A place for an exchange, from its request's head to its response's end.
    pub fn exchange(&self) -> Option<Permit> {
        self.exchanges.permit()
    }

    /// Memory for the body of a request of a proxy with this priority; `None` where it is short. Looks at memory are too rare to
    /// see thousands of bodies that begin between two of them.
    pub fn body(&self, priority: LoadPriority) -> Option<ExpectedBody> {
        let bytes = if priority == LoadPriority::High { 0 } else { BODY_BYTES };
        self.collected.expect(bytes)
    }

    /// Says how much memory is used, of how much; `None` where it has no limit.
    pub fn set_memory(&self, used: u64, limit: Option<u64>) {
        let most = limit.map(|limit| (limit as f64 * MOST) as u64);
        self.collected.set_memory(most.map(|most| most.saturating_sub(used)));
    }

    /// Connections counted now.
    pub fn connections(&self) -> usize {
        self.connections.used()
    }

    /// Exchanges counted now; 0 when there is no ceiling on them.
    pub fn exchanges(&self) -> usize {
        self.exchanges.used()
    }

    /// Says how loaded the process is.
    pub fn set_level(&self, level: OverloadLevel) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// How loaded the process is.
    pub fn level(&self) -> OverloadLevel {
        OverloadLevel::ALL[usize::from(self.level.load(Ordering::Relaxed)).min(OverloadLevel::ALL.len() - 1)]
    }

    /// Whether new work of a proxy with this priority is taken now.
    pub fn admits(&self, priority: LoadPriority) -> bool {
        match priority {
            LoadPriority::High => true,
            LoadPriority::Normal => self.level.load(Ordering::Relaxed) < OverloadLevel::RefuseMost as u8,
            LoadPriority::Low => self.level.load(Ordering::Relaxed) < OverloadLevel::RefuseLow as u8,
        }
    }
}

/// Which level follows from how much is used, each as a share of its limit, and how late workers are. A level is left
/// only when the load is clearly below it, so that it does not flap.
pub fn level_of(used: f64, lateness: f64, now: OverloadLevel) -> OverloadLevel {
    // From which share of a limit, and of the lateness that is allowed.
    const STEPS: [(OverloadLevel, f64, f64); 3] = [
        (OverloadLevel::RefuseMost, MOST, 2.0),
        (OverloadLevel::RefuseLow, 0.92, 1.0),
        (OverloadLevel::CloseIdle, 0.85, f64::INFINITY),
    ];
    /// How far below its threshold a level is left.
    const MARGIN: f64 = 0.03;
    let reached = STEPS.iter().find(|(level, share, late)| {
        let margin = if *level <= now { MARGIN } else { 0.0 };
        used >= share - margin || lateness >= late * (1.0 - margin)
    });
    reached.map_or(OverloadLevel::Normal, |(level, ..)| *level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_counting_across_a_reload() {
        let limits = Limits { max_connections: 1, max_requests: 1, ..Limits::default() };
        let overload = Overload::new(&limits);
        let held = (overload.connection().unwrap(), overload.exchange().unwrap());
        overload.resize(&Limits { max_connections: 2, ..limits });
        let second = overload.connection().unwrap();
        assert!(overload.exchange().is_none());
        overload.resize(&Limits { max_connections: 1, max_requests: 0, ..limits });
        assert!(overload.connection().is_none() && overload.exchange().is_some());
        drop((held, second));
        assert_eq!((overload.connections(), overload.exchanges()), (0, 0));
    }

    #[test]
    fn the_least_important_is_refused_first() {
        use LoadPriority::{High, Low, Normal};
        let overload = Overload::new(&Limits::default());
        for (level, admitted) in [
            (OverloadLevel::Normal, [true, true, true]),
            (OverloadLevel::CloseIdle, [true, true, true]),
            (OverloadLevel::RefuseLow, [false, true, true]),
            (OverloadLevel::RefuseMost, [false, false, true]),
        ] {
            overload.clone().set_level(level);
            assert_eq!(overload.level(), level);
            assert_eq!([Low, Normal, High].map(|priority| overload.admits(priority)), admitted, "{level:?}");
        }
    }

    #[test]
    fn levels_follow_the_load_and_do_not_flap() {
        use OverloadLevel::{CloseIdle, Normal, RefuseLow, RefuseMost};
        for (used, lateness, now, next) in [
            (0.5, 0.0, Normal, Normal),
            (0.85, 0.0, Normal, CloseIdle),
            (0.83, 0.0, Normal, Normal),
            (0.83, 0.0, CloseIdle, CloseIdle),
            (0.81, 0.0, CloseIdle, Normal),
            (0.93, 0.0, Normal, RefuseLow),
            (0.90, 0.0, CloseIdle, CloseIdle),
            (0.90, 0.0, RefuseLow, RefuseLow),
            (0.99, 0.0, Normal, RefuseMost),
            (0.95, 0.0, RefuseMost, RefuseMost),
            (0.5, 0.0, RefuseMost, Normal),
            (0.0, 0.9, Normal, Normal),
            (0.0, 1.0, Normal, RefuseLow),
            (0.0, 2.5, Normal, RefuseMost),
            (0.0, 0.98, RefuseLow, RefuseLow),
        ] {
            assert_eq!(level_of(used, lateness, now), next, "{used} {lateness} {now:?}");
        }
    }
}
