//! Conditions of the configuration, asked about requests.

pub use crate::config::condition::*;
pub use crate::http::holds::Holds;

#[cfg(test)]
mod tests;
