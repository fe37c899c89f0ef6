//! What several families of plugins need.

pub mod accept;
pub mod caller_key;
pub mod coding;
pub mod conditional;
pub mod envoy;
pub mod facts;
mod gzip;
pub mod headers;
pub mod html;
mod kept;
pub mod list_fields;
pub mod origin;
pub mod parse;
pub mod query;
pub mod range;
pub mod redis_link;
pub mod server_url;
pub mod statuses;
pub mod strict_json;
pub mod watched;
pub mod wildcard;
mod zstandard;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
