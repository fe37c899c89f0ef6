//! What a plugin in its seat asks of an exchange: a copy to go on with, and what a target gets of the request.

use std::borrow::Cow;

use http::HeaderValue;

use super::seat::Seat;
use crate::balance::Target;
use crate::config::model::{Proxy, TargetRules, Traffic};
use crate::http::exchange::{Exchange, Fork};
use crate::route::forward_path;

impl Exchange {
    /// A copy of this request, to go on from the plugin in this seat without the client; `None` when its body can't be
    /// sent twice. Its response comes back to the plugin's response hook and goes no further.
    pub fn fork(&self, seat: Seat<'_>) -> Option<Box<Fork>> {
        let (state, place) = (seat.state(), seat.place());
        let plugin = state.plugins.at(place)?.clone();
        Some(Box::new(Fork { exchange: self.copied()?, proxy: state.proxy.clone(), plugin, place }))
    }

    /// The path behind what the route matched, where its proxy strips that, else all of it; the one that a plugin has
    /// rewritten it to, where one has. Begins with `/`.
    pub fn stripped_path(&self, seat: Seat<'_>) -> Cow<'_, str> {
        if let Some(target) = &self.forward_path {
            return Cow::Borrowed(target.split_once('?').map_or(target.as_str(), |(path, _)| path));
        }
        let strips = matches!(&seat.proxy().traffic, Traffic::Http(rules) if rules.strip_listen_path);
        forward_path(self.path(), self.path_bytes, strips, None)
    }

    /// Path and query as this target gets them, by what plugins have decided so far.
    pub fn path_for(&self, target: &TargetRules, seat: Seat<'_>) -> Cow<'_, str> {
        match (&self.forward_path, &seat.proxy().traffic, self.request.uri.path_and_query()) {
            (Some(path), ..) => Cow::Borrowed(path),
            (None, Traffic::Http(rules), Some(sent)) => {
                let prefix = target.path.as_deref().or(rules.backend_path.as_deref());
                forward_path(sent.as_str(), self.path_bytes, rules.strip_listen_path, prefix)
            }
            _ => Cow::Borrowed("/"),
        }
    }

    /// The host as this target gets it, by what plugins have decided so far.
    pub fn host_for<'e>(&'e self, target: &'e Target, proxy: &Proxy) -> &'e HeaderValue {
        if let Some(host) = self.forward_host() {
            return host;
        }
        let keeps = matches!(&proxy.traffic, Traffic::Http(rules) if rules.preserve_host_header);
        if keeps && let Some(host) = self.request.headers.get(http::header::HOST) {
            return host;
        }
        target.host_header(if proxy.backend.scheme.is_encrypted() { 443 } else { 80 })
    }
}
