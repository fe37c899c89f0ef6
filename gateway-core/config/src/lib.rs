//! The configuration of the gateway: as written ([`mod@file`]), as validated ([`model`]), and the conversion between them
//! ([`resolve`]).
//!
//! This crate opens no file and no socket. Of plugins, it knows only what [`resolve::PluginCheck`] returns. `gateway-core`
//! compiles a [`model::Model`] into the structures that traffic reads.
//!
//! # Where things are
//!
//! - `file/` contains the types that users write, and `file/legacy.rs` the table of old names. `settings/` contains environment
//!   variables and flags.
//! - `resolve/` converts them to `model/`, which cannot be invalid. `catalog/` checks an edit in time proportional to the edit.
//!   `changes.rs` is the difference between two configurations.
//! - `problem.rs` describes errors of a configuration; `warning/` finds settings that are valid and probably a mistake.
//! - `condition/` and `pattern/` are the matching language of routes, plugins, log filters and cache rules: as written, compiled,
//!   and whether two conditions exclude each other. `claims.rs` finds routes that match the same requests,
//!   `port_claims.rs` stream proxies that cannot share a port.
//! - `template/` is the template language and the table of its variables.
//! - `credential.rs` describes the types of credentials, `consumer.rs` finds the consumer of a credential, and
//!   `credential_names.rs` lists the names that mark a value as a secret.
//! - `units.rs` parses durations and sizes, `network.rs` IP networks, and `spelling.rs` normalises paths of requests.
//! - `hook_set.rs` lists the hooks of a plugin, and `capabilities.rs` what the plugin declares about them. `index.rs` is the
//!   persistent map that snapshots share.
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
mod port_claims;
pub mod problem;
pub mod resolve;
pub mod settings;
pub mod spelling;
pub mod template;
pub mod units;
pub mod warning;

pub use pattern::path_regex::in_request_spelling as path_regex_in_request_spelling;
