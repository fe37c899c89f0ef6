//! The algorithm that an upstream names.

use std::sync::Arc;

use super::consistent_hash::ConsistentHash;
use super::least_connections::LeastConnections;
use super::least_latency::LeastLatency;
use super::maglev::Maglev;
use super::policy::Policy;
use super::power_of_two::PowerOfTwo;
use super::random::Random;
use super::round_robin::RoundRobin;
use super::target::Target;
use super::weighted::Weighted;
use crate::config::model::Algorithm;

/// The algorithm, prepared for these targets.
pub(super) fn prepare(algorithm: Algorithm, targets: &[Arc<Target>]) -> Box<dyn Policy> {
    match algorithm {
        Algorithm::RoundRobin => Box::new(RoundRobin),
        Algorithm::WeightedRoundRobin => Box::new(Weighted::new(targets)),
        Algorithm::LeastConnections => Box::new(LeastConnections::new(targets)),
        Algorithm::LeastLatency => Box::new(LeastLatency),
        Algorithm::ConsistentHashing => Box::new(ConsistentHash::new(targets)),
        Algorithm::Maglev => Box::new(Maglev::new(targets)),
        Algorithm::Random => Box::new(Random::new(targets)),
        Algorithm::PowerOfTwo => Box::new(PowerOfTwo::new(targets)),
    }
}
