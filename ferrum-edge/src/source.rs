//! Where configurations come from. Operating modes differ in nothing else.

#[cfg(feature = "cli")]
pub(crate) mod audited_file;
#[cfg(feature = "fleet")]
pub(crate) mod control_plane;
#[cfg(feature = "database")]
pub mod database;
pub mod file;
mod outputs;
pub(crate) mod warnings;

pub use crate::variables;
