//! The plugins, one file each. A new one is a file of its own, a `mod` line and a row in [`PLUGINS`].

mod correlation_id;
mod grpc_web;
mod request_termination;

use gateway_core::plugin::{Entry, entry};

/// Every plugin; the order of this table is the order of execution.
pub const PLUGINS: &[Entry] = &[
    // see it
    entry::<correlation_id::CorrelationId>(),
    // speak its language
    entry::<grpc_web::GrpcWeb>(),
    // answer it here
    entry::<request_termination::RequestTermination>(),
];

#[cfg(test)]
mod tests;
