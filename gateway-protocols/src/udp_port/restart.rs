//! A DTLS client that begins anew at the address and port of its session (RFC 6347 §4.2.8): a restarted program, or
//! somebody who sends hellos in its name. The new handshake goes on beside the session, which ends only when the new
//! client has finished.

use std::net::SocketAddr;
use std::time::Instant;

use gateway_core::snapshot::streams::Transport;

use super::Port;
use crate::udp::client_table::addresses;
use crate::udp::hello::Hello;
use crate::udp::questions::slot_of;
use crate::udp::session::RESTARTED;
use crate::udp::stray::AddressPair;

/// The first and last type of a record with a whole header; other first bytes are DTLS 1.3's short one.
const TYPES: std::ops::RangeInclusive<u8> = 20..=26;

impl Port {
    /// Whether a session's client speaks DTLS to the gateway.
    pub(super) fn is_sealed(&self, key: u64) -> bool {
        self.random(key).is_some()
    }

    fn random(&self, key: u64) -> Option<&[u8; 32]> {
        self.sessions.get(slot_of(key))?.client.random()
    }

    /// A datagram from the address of a DTLS session.
    pub(super) fn take_sealed(&mut self, pair: AddressPair, key: u64, datagram: &[u8], now: Instant) {
        let beside = self.beside.get(&pair).copied();
        if let Some(hello) = Hello::read(datagram) {
            let known = [Some(key), beside].into_iter().flatten();
            let mut known = known.filter(|key| self.random(*key) == Some(hello.random));
            return match known.next() {
                // Said again, as its answer was lost.
                Some(key) => self.forward(key, datagram, now),
                None => self.greet_again(pair, &hello, datagram, now),
            };
        }
        let Some(beside) = beside else { return self.forward(key, datagram, now) };
        // What is not sealed belongs to a handshake. Of the rest nobody knows whose it is but who can open it.
        self.forward(beside, datagram, now);
        if !is_plain(datagram) && self.session_of(pair) == Some(key) {
            self.forward(key, datagram, now);
        }
    }

    fn greet_again(&mut self, pair: AddressPair, hello: &Hello<'_>, datagram: &[u8], now: Instant) {
        let snapshot = self.worker.snapshot();
        let Some(proxies) = snapshot.streams.on(Transport::Udp, self.number) else { return };
        let name = hello.server_name().flatten().filter(|_| proxies.asks_for_name());
        // Proxies that select by protocol pass DTLS through.
        let Some(route) = proxies.find(name.as_deref(), &[]) else { return };
        if gateway_core::snapshot::streams::rules(route).is_some_and(|rules| rules.frontend_tls) {
            self.greet(pair, name, route, datagram, now);
        }
    }

    /// Registers a new session by its client's address, or beside the one that has it.
    pub(super) fn join(&mut self, pair: AddressPair, key: u64) {
        if self.session_of(pair).is_none() {
            self.by_client.insert(pair, key, addresses(&self.sessions));
        } else if let Some(before) = self.beside.insert(pair, key) {
            self.end(before, "handshake_displaced");
        }
    }

    /// A handshake is done: where it was beside a session, that one ends.
    pub(super) fn settle(&mut self, pair: AddressPair, key: u64) {
        if self.beside.get(&pair) != Some(&key) {
            return;
        }
        self.beside.remove(&pair);
        if let Some(before) = self.by_client.insert(pair, key, addresses(&self.sessions)) {
            self.end(before, RESTARTED);
        }
    }

    /// Ends the session that keeps its restarted client out because there may be no more; true when there was one.
    pub(super) fn yield_place(&mut self, pair: AddressPair) -> bool {
        let before = self.beside.get(&pair).copied().or_else(|| self.session_of(pair));
        if let Some(before) = before {
            self.end(before, RESTARTED);
        }
        before.is_some()
    }

    /// Takes a session off its client's address; one beside it takes its place.
    pub(super) fn leave(&mut self, pair: AddressPair, named: Option<&SocketAddr>, key: u64) {
        if let Some(source) = named {
            self.named.remove(&(pair, *source));
            return;
        }
        if self.beside.get(&pair) == Some(&key) {
            self.beside.remove(&pair);
        }
        if self.by_client.remove(pair, key)
            && let Some(beside) = self.beside.remove(&pair)
        {
            self.by_client.insert(pair, beside, addresses(&self.sessions));
        }
    }
}

/// Whether a record is of the epoch before there are keys.
fn is_plain(datagram: &[u8]) -> bool {
    let typed = datagram.first().is_some_and(|kind| TYPES.contains(kind));
    typed && datagram.get(3..5) == Some(&[0, 0])
}
