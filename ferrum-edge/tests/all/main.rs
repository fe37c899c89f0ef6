//! The program and its store as their users see them. One binary: linking is most of what a test binary costs.

#![allow(clippy::unwrap_used, reason = "helpers of tests may, too")]

#[path = "support/client.rs"]
mod client;
#[path = "support/process.rs"]
mod process;
#[path = "support/servers.rs"]
mod servers;

mod cli;
mod credentials_at_rest;
mod database;
mod embed;
#[cfg(feature = "fleet")]
mod fleet;
mod store;
