//! What several families of plugins need.

pub mod accept;
pub mod caller_key;
pub mod coding;
pub mod conditional;
pub mod envoy;
pub mod facts;
pub mod generations;
mod gzip;
pub mod headers;
pub mod hex;
pub mod html;
mod kept;
pub mod list_fields;
pub mod one_or_many;
pub mod origin;
pub mod parse;
pub mod query;
pub mod range;
pub mod redis_link;
pub mod server_url;
pub mod set_associative;
pub mod statuses;
pub mod strict_json;
pub mod watched;
pub mod wildcard;
mod zstandard;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
