//! Where configurations come from. Operating modes differ in nothing else.

mod certificates;
pub mod database;
pub mod file;
