//! Conditions of the configuration, asked about requests.

pub use crate::config::condition::*;

#[cfg(test)]
mod tests;
