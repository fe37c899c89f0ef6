//! Who counts connections.

use gateway_core::config::model::Id;
use gateway_core::http::upstream::Phases;

/// Counts what happens to connections before there is an exchange. Must not wait.
pub trait ConnectionRecorder: Send + Sync {
    /// A connection was accepted.
    fn accepted(&self);
    /// A connection was refused at the ceiling.
    fn refused(&self);
    /// A connection ended.
    fn closed(&self);
    /// A task panicked and was caught.
    fn panicked(&self);
    /// A connection to a target of this upstream was made.
    fn dialled(&self, upstream: &Id, phases: Phases);
}
