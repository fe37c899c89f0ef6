//! Configuration: as written ([`file`]), as meant ([`model`]), and the way from one to the other ([`resolve`]).

pub mod file;
pub mod index;
pub mod model;
pub mod problem;
pub mod resolve;
pub mod settings;
pub mod snapshot;
