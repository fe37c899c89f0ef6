//! Conditions of the configuration, asked about requests.

mod holds;

pub use crate::config::condition::*;
pub(crate) use holds::Assumed;

#[cfg(test)]
mod tests;
