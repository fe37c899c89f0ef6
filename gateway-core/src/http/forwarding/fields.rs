//! The fields themselves, as adapters write them.

use std::sync::Arc;

use http::HeaderValue;
use http::header::{FORWARDED, HeaderName, VIA};

use crate::config::consumer::Identity;

/// `X-Forwarded-For`
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// `X-Forwarded-Proto`
pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// `X-Forwarded-Host`
pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// `X-Forwarded-Port`
pub const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");

pub(super) static NAMES: [HeaderName; 6] =
    [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, X_FORWARDED_PORT, FORWARDED, VIA];

/// The fields; one of each name at most.
#[derive(Debug, Clone, Default)]
pub struct Forwarding {
    pub(super) way: [Option<HeaderValue>; NAMES.len()],
    pub(super) caller: Option<Arc<Identity>>,
}

impl Forwarding {
    /// What is to be written behind the request's own fields, none of which has one of these names.
    pub fn fields(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        let way = NAMES.iter().zip(&self.way).filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let caller = self.caller.iter().flat_map(|caller| caller.fields());
        way.chain(caller.map(|(name, value)| (name, value)))
    }
}
