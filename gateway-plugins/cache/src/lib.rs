//! What was answered before: for anybody (`response_cache`), and for one request that comes twice (`request_deduplication`).

mod request_deduplication;
mod response_cache;

use gateway_core::plugin::{Entry, entry};

/// The plugin `request_deduplication`.
pub const REQUEST_DEDUPLICATION: Entry = entry::<request_deduplication::RequestDeduplication>();

/// The plugin `response_cache`.
pub const RESPONSE_CACHE: Entry = entry::<response_cache::ResponseCache>();
