//! What targets are told of the way of a request, in place of what the gateway would tell.

use http::{HeaderName, HeaderValue};

use super::Exchange;

impl Exchange {
    /// Sends this value in a field of the way (`X-Forwarded-*`); `None` sends no such field. The last one counts, and goes before the
    /// proxy's `forwarded`.
    pub fn tell_way(&mut self, name: HeaderName, value: Option<HeaderValue>) {
        let told = &mut self.rare().told;
        match told.iter_mut().find(|(known, _)| *known == name) {
            Some(known) => known.1 = value,
            None => told.push((name, value)),
        }
    }

    /// What is told in place of the gateway's own values.
    pub(in crate::http) fn told_way(&self) -> &[(HeaderName, Option<HeaderValue>)] {
        self.rare.as_ref().map_or(&[], |rare| &rare.told)
    }
}
