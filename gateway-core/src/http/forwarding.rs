//! What the gateway tells targets about the way a request took: `X-Forwarded-*`, `Forwarded` (RFC 7239), `Via`.
//!
//! Every request carries these fields and nobody in the gateway looks them up, so they are not in the request's map,
//! where each would be hashed: adapters write them behind it.

use std::sync::Arc;

use http::HeaderValue;
use http::header::{FORWARDED, HeaderName, VIA};

use super::names::is_identity;
use crate::config::consumer::Identity;

/// `X-Forwarded-For`
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// `X-Forwarded-Proto`
pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// `X-Forwarded-Host`
pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// `X-Forwarded-Port`
pub const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");

pub(crate) static NAMES: [HeaderName; 6] =
    [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, X_FORWARDED_PORT, FORWARDED, VIA];

/// The fields; one of each name at most.
#[derive(Debug, Clone, Default)]
pub struct Forwarding {
    pub(crate) way: [Option<HeaderValue>; NAMES.len()],
    pub(crate) caller: Option<Arc<Identity>>,
}

impl Forwarding {
    /// What is to be written behind the request's own fields, none of which has one of these names.
    pub fn fields(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        let way = NAMES.iter().zip(&self.way).filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let caller = self.caller.iter().flat_map(|caller| caller.fields());
        way.chain(caller.map(|(name, value)| (name, value)))
    }
}

/// Whether plugins and proxies may set what targets are told of the way in this field.
pub fn is_settable(name: &HeaderName) -> bool {
    [&X_FORWARDED_FOR, &X_FORWARDED_PROTO, &X_FORWARDED_HOST, &X_FORWARDED_PORT].contains(&name)
}

/// Whether targets are told of the way or the caller in this field. It is written behind what plugins do, so that no rule of
/// theirs has an effect on it.
pub fn is_told(name: &HeaderName) -> bool {
    NAMES.contains(name) || is_identity(name.as_str())
}
