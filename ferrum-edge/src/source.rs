//! Where configurations come from. Operating modes differ in nothing else.

pub(crate) mod certificates;
#[cfg(feature = "database")]
pub mod database;
pub mod file;
mod outputs;
pub mod variables;
pub(crate) mod warnings;
