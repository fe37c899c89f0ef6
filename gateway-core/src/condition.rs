//! Conditions of the configuration, asked about requests.

mod holds;

pub use crate::config::condition::*;
pub use holds::Holds;
pub(crate) use holds::{Assumed, holds_as};

#[cfg(test)]
mod tests;
