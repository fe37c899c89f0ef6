//! The gateway's own ceilings: connections and exchanges over all workers.

use std::sync::Arc;

use super::concurrency::{Concurrency, Permit};
use crate::config::model::Limits;

/// What the whole process carries at a time. Traffic beyond it is refused at once, never queued.
#[derive(Debug, Clone)]
pub struct Overload {
    connections: Arc<Concurrency>,
    exchanges: Arc<Concurrency>,
}

impl Overload {
    /// The ceilings of these limits.
    pub fn new(limits: &Limits) -> Self {
        Self {
            connections: Concurrency::new(limits.max_connections),
            exchanges: Concurrency::new(limits.max_requests),
        }
    }

    /// The ceilings after a reload. One that did not change goes on counting; what began under another one is
    /// counted there until it ends.
    pub fn renewed(&self, limits: &Limits) -> Self {
        Self {
            connections: keep(&self.connections, limits.max_connections),
            exchanges: keep(&self.exchanges, limits.max_requests),
        }
    }

    /// A place for a client connection, from accepting to closing it.
    pub fn connection(&self) -> Option<Permit> {
        self.connections.permit()
    }

    /// A place for an exchange, from its request's head to its response's end.
    pub fn exchange(&self) -> Option<Permit> {
        self.exchanges.permit()
    }

    /// Connections counted now.
    pub fn connections(&self) -> usize {
        self.connections.used()
    }

    /// Exchanges counted now; 0 when there is no ceiling on them.
    pub fn exchanges(&self) -> usize {
        self.exchanges.used()
    }
}

fn keep(old: &Arc<Concurrency>, ceiling: usize) -> Arc<Concurrency> {
    if old.ceiling() == ceiling { old.clone() } else { Concurrency::new(ceiling) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_counting_across_a_reload() {
        let limits = Limits { max_connections: 1, max_requests: 1, ..Limits::default() };
        let before = Overload::new(&limits);
        let held = (before.connection().unwrap(), before.exchange().unwrap());
        let after = before.renewed(&Limits { max_requests: 2, ..limits });
        assert!(after.connection().is_none());
        assert!(after.exchange().is_some());
        drop(held);
        assert_eq!((after.connections(), after.exchanges()), (0, 0));
    }
}
