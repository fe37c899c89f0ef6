//! One side of a session: datagrams as they are, or through DTLS.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dimpl::{CertificateError, Dtls, Output, ProtocolVersion};
use gateway_core::http::exchange::{Client, ClientTls};
use gateway_core::stream::session::Session;
use rustls_pki_types::CertificateDer;

use super::dtls::Verifier;
use super::flight::Flight;
use super::offer::Offer;
use super::peer_chain::PeerChain;
use super::transcript::Transcript;

/// What a leg has to say.
pub(crate) enum Emit<'a> {
    /// Bytes for the wire.
    Wire(&'a [u8]),
    /// Payload for the other leg.
    Payload(&'a [u8]),
}

/// One side of a session.
pub(crate) enum Leg {
    Plain,
    Dtls(Box<Sealed>),
}

/// A side behind DTLS.
pub(crate) struct Sealed {
    engine: Dtls,
    verifier: Option<Verifier>,
    /// The peer has shown a certificate that was accepted.
    certified: bool,
    /// That of a client, which may have to be judged again.
    shown: Option<Box<ShownCertificate>>,
    /// The random of the client's hello, by which it is told from one of a client that begins anew.
    random: Option<[u8; 32]>,
    /// Where the engine's transcript is another than it believes; until the handshake is over.
    transcript: Option<Transcript>,
    /// What is put right of the engine's first flight.
    flight: Option<Arc<Flight>>,
    ready: bool,
    /// When the handshake has taken too long; `None` leaves that to the engine.
    deadline: Option<Instant>,
    /// Payload that waits for the handshake.
    waiting: VecDeque<Vec<u8>>,
    /// When the engine wants to be called.
    wake: Option<Instant>,
}

/// A certificate and what was shown behind it.
struct ShownCertificate {
    leaf: Vec<u8>,
    behind: Vec<CertificateDer<'static>>,
}

/// Why a leg is dead; a stable word for the record.
pub(crate) type Dead = &'static str;

/// A fatal alert of DTLS 1.2 before there are keys, with a record number beyond those of a handshake.
const BAD_CERTIFICATE: [u8; 15] = [21, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 2, 2, 42];
/// Datagrams that wait for a handshake; later ones are lost, as UDP may lose them.
const MAX_WAITING: usize = 16;
/// The engine's largest output: a whole UDP datagram.
const OUTPUT: usize = 65_536;

thread_local! {
    /// Where engines put their output; too large to have one each. What one leg puts out may make the other put
    /// something out in turn, so each takes a buffer of its own and brings it back.
    static SCRATCH: std::cell::RefCell<Vec<Vec<u8>>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Why an engine gave up.
fn reason(error: &dimpl::Error) -> Dead {
    match error {
        dimpl::Error::CertificateError(
            CertificateError::NoClientCertificateReceived | CertificateError::NoServerCertificateReceived,
        ) => "dtls_certificate_missing",
        dimpl::Error::CertificateError(_) => "dtls_certificate_refused",
        _ => "dtls_failed",
    }
}

impl Leg {
    pub(crate) fn sealed(engine: Dtls, verifier: Option<Verifier>) -> Self {
        Self::Dtls(Box::new(Sealed {
            engine,
            verifier,
            certified: false,
            shown: None,
            random: None,
            transcript: None,
            flight: None,
            ready: false,
            deadline: None,
            waiting: VecDeque::new(),
            wake: None,
        }))
    }

    /// A side whose peer is a target. What it shows behind its certificate is taken into account.
    pub(crate) fn to_target(engine: Dtls, verifier: Option<Verifier>, offer: Offer) -> Self {
        let peer = verifier.is_some().then(|| Arc::new(PeerChain::of_target()));
        let mut leg = Self::sealed(engine, verifier);
        leg.correct(Transcript { peer, offer: Some(Arc::new(offer)), ..Transcript::default() });
        leg
    }

    /// Gives the handshake so long from now on; nothing is no limit but the engine's.
    pub(crate) fn limit(&mut self, now: Instant, timeout: Duration) {
        if let Self::Dtls(sealed) = self {
            sealed.deadline = (!timeout.is_zero()).then(|| now.checked_add(timeout)).flatten();
        }
    }

    /// When a handshake wants to be called, if there is one.
    pub(crate) fn wake(&self) -> Option<Instant> {
        match self {
            Self::Dtls(sealed) if !sealed.ready => [sealed.wake, sealed.deadline].into_iter().flatten().min(),
            _ => None,
        }
    }

    /// Keeps the random of the client's hello.
    pub(crate) fn begun_with(&mut self, random: [u8; 32]) {
        if let Self::Dtls(sealed) = self {
            sealed.random = Some(random);
        }
    }

    /// The random of a DTLS client's hello.
    pub(crate) fn random(&self) -> Option<&[u8; 32]> {
        match self {
            Self::Plain => None,
            Self::Dtls(sealed) => sealed.random.as_ref(),
        }
    }

    /// Has the engine's transcript and first flight put right like this.
    pub(crate) fn correct(&mut self, transcript: Transcript) {
        if let Self::Dtls(sealed) = self {
            sealed.flight = transcript.flight.clone();
            sealed.transcript = Some(transcript).filter(|transcript| !transcript.is_right());
        }
    }

    /// Whether the certificate that a client has shown, if it has, is good by these CAs as well.
    pub(crate) fn is_trusted(&self, clients: Option<&Verifier>) -> bool {
        let Self::Dtls(sealed) = self else { return true };
        let Some(shown) = &sealed.shown else { return true };
        clients.is_some_and(|clients| clients.accepts(&shown.leaf, &shown.behind))
    }

    /// Adds what a DTLS client's handshake said, once it is over.
    pub(crate) fn tell(&self, session: &mut Session) {
        let Self::Dtls(sealed) = self else { return };
        let shown = sealed.shown.as_deref();
        let facts = ClientTls {
            server_name: session.server_name.clone(),
            version: match sealed.engine.protocol_version() {
                Some(ProtocolVersion::DTLS1_3) => "DTLSv1.3",
                Some(ProtocolVersion::DTLS1_2) => "DTLSv1.2",
                _ => "unknown",
            },
            certificate: shown.map(|shown| Arc::from(&*shown.leaf)),
            chain: shown
                .map(|shown| shown.behind.iter().map(|it| Arc::from(&**it)).collect())
                .unwrap_or_default(),
            ..ClientTls::default()
        };
        let Client { peer, local, port, trusted, .. } = &*session.client;
        session.client = Arc::new(Client::new(*peer, *local, *trusted, Some(facts)).at_port(*port));
        // Its cookie has shown that it hears the gateway at its address.
        session.unproven = false;
    }

    /// Whether payload passes now.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::Plain => true,
            Self::Dtls(sealed) => sealed.ready,
        }
    }

    /// A datagram came off the wire.
    pub(crate) fn receive(&mut self, datagram: &[u8], emit: &mut dyn FnMut(Emit<'_>)) -> Result<(), Dead> {
        match self {
            Self::Plain => {
                emit(Emit::Payload(datagram));
                Ok(())
            }
            Self::Dtls(sealed) => sealed.guarded(|it| {
                it.engine.handle_timeout(Instant::now()).map_err(|_| "dtls_timeout")?;
                match it.engine.handle_packet(datagram) {
                    Ok(()) => it.drain(emit),
                    Err(error) => {
                        // The engine may have an alert for the peer.
                        it.with_scratch(|it, scratch| it.close_notify(scratch, emit));
                        Err(reason(&error))
                    }
                }
            }),
        }
    }

    /// Payload is to go onto the wire.
    pub(crate) fn send(&mut self, payload: &[u8], emit: &mut dyn FnMut(Emit<'_>)) -> Result<(), Dead> {
        match self {
            Self::Plain => {
                emit(Emit::Wire(payload));
                Ok(())
            }
            Self::Dtls(sealed) if !sealed.ready => {
                if sealed.waiting.len() < MAX_WAITING {
                    sealed.waiting.push_back(payload.to_vec());
                }
                Ok(())
            }
            Self::Dtls(sealed) => sealed.guarded(|it| {
                it.engine.send_application_data(payload).map_err(|_| "dtls_failed")?;
                it.drain(emit)
            }),
        }
    }

    /// Time has passed: retransmissions, or the very first flight.
    pub(crate) fn tick(&mut self, now: Instant, emit: &mut dyn FnMut(Emit<'_>)) -> Result<(), Dead> {
        match self {
            Self::Plain => Ok(()),
            Self::Dtls(sealed)
                if !sealed.ready && sealed.deadline.is_some_and(|deadline| deadline <= now) =>
            {
                Err("dtls_timeout")
            }
            Self::Dtls(sealed) => sealed.guarded(|it| {
                it.engine.handle_timeout(now).map_err(|_| "dtls_timeout")?;
                it.drain(emit)
            }),
        }
    }

    /// Sends close_notify.
    pub(crate) fn close(&mut self, emit: &mut dyn FnMut(Emit<'_>)) {
        if let Self::Dtls(sealed) = self
            && sealed.ready
        {
            // The peer may be gone already; then the close_notify is lost, as any datagram may be.
            let _said = sealed.guarded(|it| {
                it.engine.close().map_err(|_| "dtls_failed")?;
                it.drain(emit)
            });
        }
    }
}

impl Sealed {
    /// A defect in the engine ends this session and no other.
    fn guarded(&mut self, work: impl FnOnce(&mut Self) -> Result<(), Dead>) -> Result<(), Dead> {
        let transcript = self.transcript.clone();
        let work = AssertUnwindSafe(|| match transcript {
            Some(transcript) => transcript.during(|| work(self)),
            None => work(self),
        });
        catch_unwind(work).unwrap_or(Err("dtls_panicked"))
    }

    fn drain(&mut self, emit: &mut dyn FnMut(Emit<'_>)) -> Result<(), Dead> {
        self.with_scratch(|it, scratch| it.drain_through(scratch, emit))
    }

    fn with_scratch<T>(&mut self, work: impl FnOnce(&mut Self, &mut Vec<u8>) -> T) -> T {
        let mut scratch = SCRATCH.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; OUTPUT]);
        let done = work(self, &mut scratch);
        SCRATCH.with_borrow_mut(|buffers| buffers.push(scratch));
        done
    }

    /// Sends what the engine has to say, and passes nothing on.
    fn close_notify(&mut self, scratch: &mut [u8], emit: &mut dyn FnMut(Emit<'_>)) {
        loop {
            match self.engine.poll_output(scratch) {
                Output::Packet(bytes) => emit(Emit::Wire(bytes)),
                Output::Timeout(_) | Output::BufferTooSmall { .. } => return,
                _ => {}
            }
        }
    }

    /// Tells a peer that its certificate is refused. Engines leave that to us as well.
    fn turn_away(&mut self, scratch: &mut [u8], emit: &mut dyn FnMut(Emit<'_>)) {
        if self.engine.protocol_version() == Some(ProtocolVersion::DTLS1_2) {
            emit(Emit::Wire(&BAD_CERTIFICATE));
        } else if self.engine.close().is_ok() {
            self.close_notify(scratch, emit);
        }
    }

    fn drain_through(&mut self, scratch: &mut Vec<u8>, emit: &mut dyn FnMut(Emit<'_>)) -> Result<(), Dead> {
        loop {
            match self.engine.poll_output(scratch) {
                Output::Packet(bytes) => {
                    let offer = self.transcript.as_ref().and_then(|transcript| transcript.offer.as_ref());
                    let hello = offer.and_then(|offer| offer.datagram(bytes));
                    match (hello, self.flight.as_ref().and_then(|flight| flight.datagrams(bytes))) {
                        (Some(hello), _) => emit(Emit::Wire(&hello)),
                        (None, None) => emit(Emit::Wire(bytes)),
                        (None, Some(datagrams)) => {
                            datagrams.iter().for_each(|datagram| emit(Emit::Wire(datagram)));
                        }
                    }
                }
                Output::ApplicationData(bytes) => emit(Emit::Payload(bytes)),
                Output::PeerCert(certificate) => {
                    let shown = self.transcript.as_ref().and_then(|transcript| transcript.peer.clone());
                    let behind = shown.as_deref().map(PeerChain::intermediates).unwrap_or_default();
                    if self.verifier.as_ref().is_some_and(|verifier| !verifier.accepts(certificate, behind)) {
                        self.turn_away(scratch, emit);
                        return Err("dtls_certificate_refused");
                    }
                    self.certified = true;
                    if self.verifier.as_ref().is_some_and(Verifier::is_for_clients) {
                        let (leaf, behind) = (certificate.to_vec(), behind.to_vec());
                        self.shown = Some(Box::new(ShownCertificate { leaf, behind }));
                    }
                }
                // No engine goes on without one; nothing is passed on if it did.
                Output::Connected if self.verifier.is_some() && !self.certified => {
                    return Err("dtls_certificate_refused");
                }
                Output::Connected => {
                    self.ready = true;
                    self.transcript = None;
                    while let Some(payload) = self.waiting.pop_front() {
                        self.engine.send_application_data(&payload).map_err(|_| "dtls_failed")?;
                    }
                }
                Output::CloseNotify => return Err("closed"),
                Output::BufferTooSmall { needed } if needed <= 2 * OUTPUT => scratch.resize(needed, 0),
                Output::BufferTooSmall { .. } => return Err("dtls_failed"),
                Output::Timeout(at) => {
                    self.wake = Some(at);
                    return Ok(());
                }
                _ => {}
            }
        }
    }
}
