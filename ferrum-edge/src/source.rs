//! Where configurations come from. Operating modes differ in nothing else.

pub(crate) mod certificates;
pub mod database;
pub mod file;
pub(crate) mod warnings;
