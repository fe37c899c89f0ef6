//! The plugins, one file each. A new one is a file of its own, a `mod` line and a row in [`PLUGINS`].

mod access_control;
mod caller_key;
mod correlation_id;
mod credential;
mod grpc_web;
mod jose;
mod jwt_auth;
mod key_auth;
mod rate_limiting;
mod rate_table;
mod request_termination;

use gateway_core::plugin::{Entry, entry};

/// Every plugin; the order of this table is the order of execution.
pub const PLUGINS: &[Entry] = &[
    // see it
    entry::<correlation_id::CorrelationId>(),
    // answer it here, before anybody is asked who they are
    entry::<request_termination::RequestTermination>(),
    // speak its language
    entry::<grpc_web::GrpcWeb>(),
    // who is it
    entry::<key_auth::KeyAuth>(),
    entry::<jwt_auth::JwtAuth>(),
    // may they
    entry::<access_control::AccessControl>(),
    // how often may they
    entry::<rate_limiting::RateLimiting>(),
];

#[cfg(test)]
mod tests;
