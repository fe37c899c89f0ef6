//! The program and its store from the user's side. All tests are in one binary, because linking takes most of the time to build a
//! test binary.

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
mod starttls;
mod store;
