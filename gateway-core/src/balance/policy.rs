//! The one trait all algorithms share.

use std::fmt::Debug;
use std::sync::Arc;

use super::consistent_hash::ConsistentHash;
use super::field::Field;
use super::least_connections::LeastConnections;
use super::least_latency::LeastLatency;
use super::power_of_two::PowerOfTwo;
use super::random::Random;
use super::round_robin::RoundRobin;
use super::target::Target;
use super::weighted::Weighted;
use crate::config::model::Algorithm;

/// Says which target comes next. Never called for a group of one.
pub(super) trait Policy: Debug + Send + Sync {
    /// The index of an open target of the field; `None` when no target is open.
    fn pick(&self, field: &Field<'_>) -> Option<usize>;
}

/// The algorithm, prepared for these targets.
pub(super) fn prepare(algorithm: Algorithm, targets: &[Arc<Target>]) -> Box<dyn Policy> {
    match algorithm {
        Algorithm::RoundRobin => Box::new(RoundRobin),
        Algorithm::WeightedRoundRobin => Box::new(Weighted::new(targets)),
        Algorithm::LeastConnections => Box::new(LeastConnections::new(targets)),
        Algorithm::LeastLatency => Box::new(LeastLatency),
        Algorithm::ConsistentHashing => Box::new(ConsistentHash::new(targets)),
        Algorithm::Random => Box::new(Random::new(targets)),
        Algorithm::PowerOfTwo => Box::new(PowerOfTwo::new(targets)),
    }
}
