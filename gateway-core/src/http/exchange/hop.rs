//! What a client said to this hop only: it goes no further, and conditions still see it.

use http::HeaderMap;
use http::header::{HeaderName, TE, UPGRADE};

use super::Exchange;
use crate::request_values;

impl Exchange {
    /// A header field as conditions and templates see it: also one that the client sent for this hop only, such as `Upgrade`, and
    /// that goes no further.
    pub fn header(&self, name: &HeaderName) -> Option<request_values::Value<'_>> {
        let found = request_values::header(&self.request.headers, name);
        found.or_else(|| request_values::header(self.rare.as_ref()?.hop.as_deref()?, name)).or_else(|| {
            match *name {
                // Over HTTP/2 and HTTP/3 it is asked for in another way.
                UPGRADE => {
                    self.upgrade.as_ref().map(|value| request_values::Value::Borrowed(value.as_bytes()))
                }
                TE if self.trailers => Some(request_values::Value::Borrowed(b"trailers")),
                _ => None,
            }
        })
    }

    /// Keeps what was said to this hop.
    pub(crate) fn keep_hop(&mut self, hop: Option<Box<HeaderMap>>) {
        if hop.is_some() {
            self.rare().hop = hop;
        }
    }
}
