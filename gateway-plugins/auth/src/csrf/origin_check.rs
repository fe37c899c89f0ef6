//! Whether a request comes from the site's own pages.

use gateway_core::http::exchange::Exchange;
use gateway_plugin_common::origin::Origin;
use gateway_plugin_common::origin::initiator::{SEC_FETCH_SITE, is_host, origin_of, single};
use http::header::{ORIGIN, REFERER};

/// Which origins may send requests.
pub(super) struct Origins {
    pub(super) trusted: Box<[Origin]>,
    pub(super) same_site: bool,
    pub(super) without: bool,
}

impl Origins {
    /// Whether this request may change something.
    pub(super) fn admit(&self, exchange: &Exchange) -> bool {
        let headers = &exchange.request.headers;
        let Ok(origin) = single(headers, &ORIGIN) else { return false };
        if origin.is_some_and(|origin| self.trusted.iter().any(|trusted| trusted.is(origin.as_bytes()))) {
            return true;
        }
        // Browsers alone set it, and no page can change it.
        match single(headers, &SEC_FETCH_SITE) {
            Ok(Some("same-origin" | "none")) => return true,
            Ok(Some("same-site")) => return self.same_site,
            Ok(Some(_)) | Err(_) => return false,
            Ok(None) => {}
        }
        let (scheme, host) = (exchange.scheme(), exchange.authority());
        if let Some(origin) = origin {
            return is_host(origin, scheme, host);
        }
        match single(headers, &REFERER) {
            Ok(Some(page)) => {
                let origin = origin_of(page);
                is_host(origin, scheme, host)
                    || self.trusted.iter().any(|trusted| trusted.is(origin.as_bytes()))
            }
            Ok(None) => self.without,
            Err(_) => false,
        }
    }
}
