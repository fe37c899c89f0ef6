//! Preflights of CORS (Fetch §4.8): questions of browsers whether a page may send a request of another method.

use http::Method;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};

use super::exchange::Exchange;

impl Exchange {
    /// Whether this is a preflight.
    pub fn is_preflight(&self) -> bool {
        *self.method() == Method::OPTIONS
            && self.request.headers.contains_key(ORIGIN)
            && self.request.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// The method of the request that a preflight asks about; `None` where this is not a preflight.
    pub fn announced_method(&self) -> Option<Method> {
        if !self.is_preflight() {
            return None;
        }
        let announced = self.request.headers.get(ACCESS_CONTROL_REQUEST_METHOD)?;
        Method::from_bytes(announced.as_bytes()).ok()
    }
}
