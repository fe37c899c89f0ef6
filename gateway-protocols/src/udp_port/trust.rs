//! Ends DTLS sessions whose clients' certificates come from no trusted CA any more.

use gateway_core::http::reply::Cause;

use super::Port;
use crate::udp::dtls::Verifier;

impl Port {
    /// Judges the certificates of open sessions again where the trusted CAs have changed.
    pub(super) fn end_untrusted(&mut self) {
        let Some(clients) = self.dtls.clients() else { return };
        if is_same(self.trusted.as_ref(), clients.as_ref()) {
            return;
        }
        let sessions = self.sessions.iter();
        let untrusted = sessions.filter(|(_, session)| !session.client.is_trusted(clients.as_ref()));
        let keys: Vec<_> = untrusted.map(|(slot, _)| self.id(slot).key).collect();
        self.trusted = clients;
        keys.into_iter().for_each(|key| self.end(key, Cause::Revoked.reason()));
    }
}

fn is_same(before: Option<&Verifier>, now: Option<&Verifier>) -> bool {
    match (before, now) {
        (None, None) => true,
        (Some(before), Some(now)) => before.is(now),
        _ => false,
    }
}
