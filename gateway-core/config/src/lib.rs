//! The configuration of the gateway: as written ([`mod@file`]), as meant ([`model`]), and the way from one to the other ([`resolve`]).
//!
//! This crate opens no file and no socket. It knows plugins only by what [`resolve::PluginCheck`] tells of them. `gateway-core` compiles a
//! [`model::Model`] into what traffic reads.
//!
//! # Where things are
//!
//! - `file/` is what users write, and `file/legacy.rs` the table of old names. `settings/` are environment variables and flags.
//! - `resolve/` makes `model/` of it, which cannot be invalid. `catalog/` checks an edit at the edit's cost. `changes.rs` is the
//!   difference between two configurations.
//! - `problem.rs` is what is wrong with a configuration, `warning/` finds what is valid and probably a mistake.
//! - `condition/` and `pattern/` are the matching language of routes, plugins, log filters and cache rules: as written, compiled, and whether
//!   two conditions exclude each other. `claims.rs` finds routes that claim the same requests.
//! - `template/` is the template language and the table of its variables.
//! - `credential.rs` describes types of credentials, `consumer.rs` finds consumers by theirs, `credential_names.rs` lists the names that make a
//!   value a secret.
//! - `units.rs` parses durations and sizes everywhere, `network.rs` IP networks, `spelling.rs` paths as requests spell them.
//! - `hook_set.rs` is the hooks in which a plugin takes a seat, `capabilities.rs` what it declares of them; `index.rs` is the persistent map
//!   that snapshots share.
#![warn(missing_docs)]

pub mod capabilities;
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
pub mod nearest;
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
