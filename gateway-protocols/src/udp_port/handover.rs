//! A datagram port whose socket two processes share: see [`crate::handover`].

use std::time::Instant;

use super::Port;
use crate::handover::{Forwarded, Handed, SessionAddress};
use crate::udp::stray::AddressPair;

impl Port {
    /// Handles a message of another process.
    pub(super) fn take_handed(&mut self, handed: Handed) {
        match handed {
            Handed::Paused(answer) => {
                self.place.is_handed = true;
                if !std::mem::replace(&mut self.place.counts, true) {
                    self.worker.shared().datagrams.count_left(0, self.sessions.len());
                }
                // A proxy's socket carries many clients. Those that each datagram names go on with the process that reads it.
                let kept = self.sessions.iter().filter(|(_, session)| session.named.is_none());
                let sessions = kept.map(|(_, session)| self.address(session.pair)).collect();
                let _sent = answer.send(sessions);
            }
            Handed::Resumed => self.place.is_handed = false,
            Handed::Datagram(packet) => {
                let pair = AddressPair { client: packet.client, local: packet.local };
                let is_new = self.place.is_handed && self.session_of(pair).is_none();
                // A new session belongs to the process that reads the socket.
                let kept = if is_new { self.worker.shared().datagrams.bounce(packet) } else { Some(packet) };
                if let Some(packet) = kept {
                    self.take_request(pair, &packet.bytes, Instant::now());
                }
            }
        }
    }

    /// Forwards a datagram whose session the predecessor has. Returns false if it has none.
    pub(super) fn forward_to_before(&self, pair: AddressPair, datagram: &[u8]) -> bool {
        let packet = || Forwarded {
            listener: self.wire.local,
            place: self.place.number,
            client: pair.client,
            local: pair.local,
            ecn: None,
            stride: datagram.len(),
            bytes: datagram.into(),
        };
        self.worker.shared().datagrams.forward_session(&self.address(pair), packet)
    }

    /// Updates the count after a session was opened or closed; `before` is the previous number of sessions.
    pub(super) fn count_left(&self, before: usize) {
        if self.place.counts {
            self.worker.shared().datagrams.count_left(before, self.sessions.len());
        }
    }

    fn address(&self, pair: AddressPair) -> SessionAddress {
        SessionAddress { listener: self.wire.local, client: pair.client, local: pair.local }
    }
}
