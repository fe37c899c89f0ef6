//! One side of a session: datagrams as they are, or through DTLS.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use dimpl::{Dtls, Output};

use super::dtls::Verifier;

/// What a leg has to say.
pub(super) enum Emit<'a> {
    /// Bytes for the wire.
    Wire(&'a [u8]),
    /// Payload for the other leg.
    Payload(&'a [u8]),
}

/// One side of a session.
pub(super) enum Leg {
    Plain,
    Dtls(Box<Sealed>),
}

/// A side behind DTLS.
pub(super) struct Sealed {
    engine: Dtls,
    verifier: Option<Verifier>,
    ready: bool,
    /// Payload that waits for the handshake.
    waiting: VecDeque<Vec<u8>>,
    /// When the engine wants to be called.
    pub(super) wake: Option<Instant>,
}

/// Why a leg is dead; a stable word for the record.
pub(super) type Dead = &'static str;

/// Datagrams that wait for a handshake; later ones are lost, as UDP may lose them.
const MAX_WAITING: usize = 16;
/// The engine's largest output: a whole UDP datagram.
const OUTPUT: usize = 65_536;

thread_local! {
    /// Where engines put their output; too large to have one each. What one leg puts out may make the other put
    /// something out in turn, so each takes a buffer of its own and brings it back.
    static SCRATCH: std::cell::RefCell<Vec<Vec<u8>>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Leg {
    pub(super) fn sealed(engine: Dtls, verifier: Option<Verifier>) -> Self {
        Self::Dtls(Box::new(Sealed { engine, verifier, ready: false, waiting: VecDeque::new(), wake: None }))
    }

    /// Whether payload passes now.
    pub(super) fn is_ready(&self) -> bool {
        match self {
            Self::Plain => true,
            Self::Dtls(sealed) => sealed.ready,
        }
    }

    /// A datagram came off the wire.
    pub(super) fn receive(&mut self, datagram: &[u8], emit: &mut dyn FnMut(Emit<'_>)) -> Result<(), Dead> {
        match self {
            Self::Plain => {
                emit(Emit::Payload(datagram));
                Ok(())
            }
            Self::Dtls(sealed) => sealed.guarded(|it| {
                it.engine.handle_timeout(Instant::now()).map_err(|_| "dtls_timeout")?;
                it.engine.handle_packet(datagram).map_err(|_| "dtls_failed")?;
                it.drain(emit)
            }),
        }
    }

    /// Payload is to go onto the wire.
    pub(super) fn send(&mut self, payload: &[u8], emit: &mut dyn FnMut(Emit<'_>)) -> Result<(), Dead> {
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
    pub(super) fn tick(&mut self, now: Instant, emit: &mut dyn FnMut(Emit<'_>)) -> Result<(), Dead> {
        match self {
            Self::Plain => Ok(()),
            Self::Dtls(sealed) => sealed.guarded(|it| {
                it.engine.handle_timeout(now).map_err(|_| "dtls_timeout")?;
                it.drain(emit)
            }),
        }
    }

    /// Says goodbye.
    pub(super) fn close(&mut self, emit: &mut dyn FnMut(Emit<'_>)) {
        if let Self::Dtls(sealed) = self
            && sealed.ready
        {
            // The peer may be gone already; then the farewell is lost, as any datagram may be.
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
        catch_unwind(AssertUnwindSafe(|| work(self))).unwrap_or(Err("dtls_panicked"))
    }

    fn drain(&mut self, emit: &mut dyn FnMut(Emit<'_>)) -> Result<(), Dead> {
        let mut scratch = SCRATCH.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; OUTPUT]);
        let drained = self.drain_through(&mut scratch, emit);
        SCRATCH.with_borrow_mut(|buffers| buffers.push(scratch));
        drained
    }

    fn drain_through(&mut self, scratch: &mut Vec<u8>, emit: &mut dyn FnMut(Emit<'_>)) -> Result<(), Dead> {
        loop {
            match self.engine.poll_output(scratch) {
                Output::Packet(bytes) => emit(Emit::Wire(bytes)),
                Output::ApplicationData(bytes) => emit(Emit::Payload(bytes)),
                Output::PeerCert(certificate)
                    if self.verifier.as_ref().is_some_and(|verifier| !verifier.accepts(certificate)) =>
                {
                    return Err("dtls_certificate_refused");
                }
                Output::Connected => {
                    self.ready = true;
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
