//! Configuration: as written ([`mod@file`]), as meant ([`model`]), and the way from one to the other ([`resolve`]).

pub mod catalog;
pub mod changes;
pub mod credential;
pub mod exporter;
pub mod file;
pub mod index;
pub mod model;
pub(crate) mod patterns;
pub mod problem;
pub mod resolve;
pub mod settings;
pub mod units;
pub mod warning;

pub use patterns::path_regex::in_request_spelling as path_regex_in_request_spelling;
