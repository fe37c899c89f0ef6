//! Forwarding headers of one exchange, which replace the gateway's own values.

use http::header::VIA;
use http::{HeaderName, HeaderValue};

use super::super::forwarding::NAMES;
use super::Exchange;

impl Exchange {
    /// Sends this value in a forwarding header (`X-Forwarded-*`); with `None`, sends no such header. The last call for a name
    /// wins, and takes precedence over `forwarded` of the proxy.
    pub fn tell_way(&mut self, name: HeaderName, value: Option<HeaderValue>) {
        let told = &mut self.rare().told;
        match told.iter_mut().find(|(known, _)| *known == name) {
            Some(known) => known.1 = value,
            None => told.push((name, value)),
        }
    }

    /// Removes what a client claims about its way that is not trusted.
    pub fn remove_claims(&mut self) {
        if !self.client.trusted {
            for name in NAMES.iter().filter(|name| **name != VIA) {
                self.request.headers.remove(name);
            }
        }
    }

    /// The headers that replace the gateway's own values.
    pub(crate) fn told_way(&self) -> &[(HeaderName, Option<HeaderValue>)] {
        self.rare.as_ref().map_or(&[], |rare| &rare.told)
    }
}
