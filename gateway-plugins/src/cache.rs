//! What was answered before: for anybody (`response_cache`), and for one request that comes twice (`request_deduplication`).

pub(crate) mod request_deduplication;
pub(crate) mod response_cache;
