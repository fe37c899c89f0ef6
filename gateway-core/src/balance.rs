//! Balancing: which target of an upstream an exchange or a session goes to.
//!
//! [`Targets`] is the runtime form of an upstream, shared by every proxy that names it and by all workers. Picking
//! takes no lock and allocates nothing. Health, breakers and targets already tried are looked at in one place
//! ([`Targets::pick`]); an algorithm only says which of the remaining ones comes next.

mod affinity;
mod algorithm;
mod ask;
mod consistent_hash;
mod field;
mod latency;
mod least_connections;
mod least_latency;
mod maglev;
mod policy;
mod power_of_two;
mod queue;
mod random;
mod round_robin;
mod spread;
mod subset;
mod target;
mod targets;
mod weighted;
mod wheel;

pub use affinity::Affinity;
pub use ask::Ask;
pub use subset::{Fallback, NoSubset, Subset};
pub use target::connections::{AllBusy, ConnectionLimit, ConnectionPlace, KeptConnections};
pub use target::failures::RecentFailures;
pub use target::{Target, TargetStatus};
pub use targets::Targets;
pub use targets::pick::{AttemptOutcome, Flight, Pick, Settled};

#[cfg(test)]
mod tests;
