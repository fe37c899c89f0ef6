//! Forwarding headers of one exchange, which replace the gateway's own values.

use http::{HeaderName, HeaderValue};

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

    /// The headers that replace the gateway's own values.
    pub(in crate::http) fn told_way(&self) -> &[(HeaderName, Option<HeaderValue>)] {
        self.rare.as_ref().map_or(&[], |rare| &rare.told)
    }
}
