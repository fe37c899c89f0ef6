//! The first datagrams of a client over DTLS, until its address is proved. Nothing is kept before that: neither a place
//! among the sessions, nor a handshake.

use std::sync::Arc;
use std::time::Instant;

use gateway_core::snapshot::Route;

use super::Port;
use super::arrive::MAX_HANDSHAKES;
use crate::udp::cookie::{Claim, FirstHello, Proof};
use crate::udp::dtls::{Certificates, Server};
use crate::udp::flight::Flight;
use crate::udp::headers::NewClient;
use crate::udp::hello::{DTLS_1_0, Hello, record};
use crate::udp::leg::{Emit, Leg};
use crate::udp::peer_chain::PeerChain;
use crate::udp::retry::Retry;
use crate::udp::stray::AddressPair;
use crate::udp::transcript::Transcript;

/// The type of records with alerts (RFC 5246 §6.2.1).
const ALERT: u8 = 21;
/// Fatal: the version is not supported (RFC 5246 §7.2).
const PROTOCOL_VERSION: [u8; 2] = [2, 70];

/// A client's engine that has heard what came before the hello with the cookie.
struct Proven {
    client: Leg,
    proof: Proof,
    /// The hello with the cookie, as the engine is to hear it; `None` for as it came.
    second: Option<Vec<u8>>,
}

impl Port {
    /// Answers a client's first hello with a cookie, and begins a session at the second.
    pub(super) fn greet(
        &mut self,
        pair: AddressPair,
        name: Option<String>,
        route: &Arc<Route>,
        datagram: &[u8],
        now: Instant,
    ) {
        let Some(hello) = Hello::read(datagram) else { return };
        if hello.is_outdated() {
            // Shorter than any hello, so that nobody gains by having it sent to somebody else.
            return self.wire.reply(pair, &record(ALERT, &DTLS_1_0, 0, &PROTOCOL_VERSION));
        }
        let claim = Claim { hello: &hello, client: pair.client };
        let asked = hello.server_name().flatten();
        let only_13 = hello.offers_13();
        let Some(server) = self.dtls.server(asked.as_deref(), only_13, now) else { return };
        let Server { engine, verifier, certificates } = server;
        let peer = verifier.is_some().then(|| Arc::new(PeerChain::of_client()));
        let client = Leg::sealed(engine, verifier);
        let transcript = Transcript { peer, ..transcript(&hello, certificates) };
        let proven = if let Some(proof) = claim.proof() {
            repeated(&claim, proof, client, transcript)
        } else if let Some(first) = claim.proven_hash() {
            retried(&claim, first, client, transcript)
        } else {
            return self.challenge(pair, &claim, client, datagram);
        };
        let Some(Proven { mut client, proof, second }) = proven else { return };
        client.begun_with(*hello.random);
        client.limit(now, self.worker.snapshot().settings.client_timeouts.handshake);
        if self.handshakes.len() >= MAX_HANDSHAKES && !self.make_room() {
            return;
        }
        let who = NewClient::asking_for(name.or(asked));
        let Some(key) = self.begin(pair, &who, route, client, now) else { return };
        let datagram = second.as_deref().unwrap_or(datagram);
        proof.during(&hello, || self.forward(key, datagram, now));
    }

    /// Asks a client to come back with a cookie. The engine that says so is dropped.
    fn challenge(&self, pair: AddressPair, claim: &Claim<'_, '_>, mut client: Leg, datagram: &[u8]) {
        let Some(fresh) = claim.fresh() else { return };
        let wire = &self.wire;
        // Whatever is wrong with it, there is nobody to tell: the address may be anybody's.
        let _answered = fresh.during(claim.hello, || {
            client.receive(datagram, &mut |emit| {
                let Emit::Wire(bytes) = emit else { return };
                match Retry::read(bytes) {
                    None => wire.reply(pair, bytes),
                    Some(retry) => {
                        if let Some(bytes) = retry.answer(claim) {
                            wire.reply(pair, &bytes);
                        }
                    }
                }
            })
        });
    }
}

/// What is put right for a client with this hello.
fn transcript(hello: &Hello<'_>, certificates: Option<Certificates>) -> Transcript {
    let (message, list) = match certificates {
        None => (None, None),
        Some(Certificates::Message(message)) => (Some(message), None),
        Some(Certificates::List(list)) => (None, Some(list)),
    };
    // What DTLS 1.3 says needs nothing else.
    let flight = if hello.offers_13() { None } else { Flight::new(hello, message) };
    Transcript { flight: flight.map(Arc::new), list, ..Transcript::default() }
}

/// For a client of DTLS 1.2, which repeats its hello with the cookie: the engine hears the first one again.
fn repeated(claim: &Claim<'_, '_>, proof: Proof, mut client: Leg, transcript: Transcript) -> Option<Proven> {
    let before = claim.hello.without_cookie(proof.padding);
    // The client has the answer already.
    proof.during(claim.hello, || client.receive(&before, &mut |_| ())).ok()?;
    client.correct(transcript);
    Some(Proven { client, proof, second: None })
}

/// For a client of DTLS 1.3: the engine asks again for what it asked for, and its transcript is put right.
fn retried(
    claim: &Claim<'_, '_>,
    said: FirstHello<'_>,
    mut client: Leg,
    transcript: Transcript,
) -> Option<Proven> {
    let proof = claim.fresh()?;
    let first = match said.is_other_share {
        true => claim.hello.without_key_share(),
        false => claim.hello.without_cookie(None),
    };
    let second = claim.hello.with_cookie(&proof.cookie);
    let mut beginning = None;
    let answered = proof.during(claim.hello, || {
        client.receive(&first, &mut |emit| {
            if let Emit::Wire(bytes) = emit {
                let retry = Retry::read(bytes);
                beginning = retry.and_then(|retry| retry.transcript(claim, said.hash, &first, &second));
            }
        })
    });
    answered.ok()?;
    client.correct(Transcript { beginning: Some(Arc::new(beginning?)), ..transcript });
    Some(Proven { client, proof, second: Some(second) })
}
