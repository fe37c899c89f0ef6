//! What several families of plugins need.

pub(crate) mod accept;
pub(crate) mod caller_key;
pub(crate) mod coding;
pub(crate) mod conditional;
pub(crate) mod envoy;
pub(crate) mod facts;
mod gzip;
pub(crate) mod headers;
pub(crate) mod html;
mod kept;
pub(crate) mod list_fields;
pub(crate) mod origin;
pub(crate) mod parse;
pub(crate) mod query;
pub(crate) mod range;
pub(crate) mod redis_link;
pub(crate) mod server_url;
pub(crate) mod statuses;
pub(crate) mod strict_json;
pub(crate) mod watched;
pub(crate) mod wildcard;
mod zstandard;

#[cfg(test)]
pub(crate) mod testing;
