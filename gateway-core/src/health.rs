//! How targets are: what probes say, what traffic teaches, and when a circuit breaker cuts a target off.
//!
//! State machines only. Whoever runs probes and exchanges feeds them and brings the time along.

pub mod active;
pub mod breaker;
pub mod passive;
pub mod statuses;

pub use active::Active;
pub use breaker::{BreakerChange, BreakerStatus, Breakers};
pub use passive::Passive;

/// A target changed sides; worth a log line and a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthChange {
    /// It gets traffic again.
    Recovered,
    /// It gets no more traffic while another target is healthy.
    Failed,
}
