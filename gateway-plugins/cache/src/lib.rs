//! What was answered before: for anybody (`response_cache`), and for one request that comes twice (`request_deduplication`).
//!
//! # Where things are
//!
//! - `response_cache/`: `key.rs` is the cache key, `policy.rs` decides what is stored and how long it is fresh, `control.rs` reads
//!   `Cache-Control`, `visit.rs` is the way of a request, `flights.rs` has one request fetch for all that wait, `fill.rs` stores a response
//!   while it is read. `store.rs` is the memory; `tiers.rs`, `disk.rs` and `remote.rs` are the tiers below it. `purge.rs`, `warm.rs`.
//! - `request_deduplication/`: `visit.rs` is the way of a request, `local.rs` has the keys of this gateway, `shared.rs` those that gateways
//!   share, `saved.rs` an answer that is kept.

mod request_deduplication;
mod response_cache;

use gateway_core::plugin::{Entry, entry};

/// The plugin `request_deduplication`.
pub const REQUEST_DEDUPLICATION: Entry = entry::<request_deduplication::RequestDeduplication>();

/// The plugin `response_cache`.
pub const RESPONSE_CACHE: Entry = entry::<response_cache::ResponseCache>();
