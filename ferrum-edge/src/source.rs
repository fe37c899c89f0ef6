//! Where configurations come from. Operating modes differ in nothing else.

pub mod file;
