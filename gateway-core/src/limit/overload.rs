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

    /// Sets the ceilings anew after a reload; what is under way stays counted.
    pub fn resize(&self, limits: &Limits) {
        self.connections.resize(limits.max_connections);
        self.exchanges.resize(limits.max_requests);
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
}
