//! Configuration: as written ([`mod@file`]), as meant ([`model`]), and the way from one to the other ([`resolve`]).

pub mod catalog;
pub mod changes;
pub mod claims;
pub mod condition;
pub mod consumer;
pub mod credential;
pub mod credential_names;
pub mod endpoint;
pub mod exporter;
pub mod file;
pub mod hook_set;
pub mod index;
pub mod model;
pub mod network;
pub mod pattern;
pub mod problem;
pub mod resolve;
pub mod settings;
pub mod spelling;
pub mod template;
pub mod units;
pub mod warning;

pub use pattern::path_regex::in_request_spelling as path_regex_in_request_spelling;
