//! WebSockets once both sides have agreed to one: tunnelled unopened, or read message by message for plugins; and the
//! Close frames (RFC 6455 §7) of whoever has to end one.

mod close_handshake;
mod frame;
mod inspect;
mod message;
mod tunnel;

use std::sync::Arc;

use http::HeaderMap;
use http::header::SEC_WEBSOCKET_EXTENSIONS;

use crate::http::tunnel::Tunnel;
use crate::plugin::Chain;
use crate::plugin::seat::Around;
use crate::stream::cut::Cut;
use crate::stream::drain::Drain;
use crate::stream::metered::{AtEnd, Metered};
use crate::stream::pacer::{Pacer, SessionMeters};
use crate::stream::relay::{Carried, RelayOutcome, RelayTimeouts, Switched};
use crate::stream::session::{Direction, Session};

/// RFC 6455 §7.4.1: an end is going away, as a server that stops, or a limit that was reached.
const GOING_AWAY: u16 = 1001;
/// A frame the protocol does not allow.
const PROTOCOL_ERROR: u16 = 1002;
/// Text that is not UTF-8.
const NOT_TEXT: u16 = 1007;
/// A message is larger than is taken.
const TOO_BIG: u16 = 1009;
/// What the server relies on failed. 1014 would say it more exactly, but widely used clients take that for a
/// protocol error.
const FAILED: u16 = 1011;

/// How a WebSocket may go on, and when it has to end.
#[derive(Clone, Copy)]
pub(super) struct Rules<'r> {
    pub(super) timeouts: RelayTimeouts,
    /// Bytes of a message; only where plugins read them.
    pub(super) max_message: usize,
    pub(super) chain: &'r Chain,
    pub(super) around: Around<'r>,
    pub(super) drain: &'r Drain,
    pub(super) meters: &'r Arc<SessionMeters>,
    pub(super) cut: &'r Cut,
}

impl<'r> Rules<'r> {
    /// Both ends, each metered for what is read from it. A quota with nothing left ends the WebSocket by its close handshake.
    fn metered<'e>(&self, ends: Switched<'e>) -> (Metered<'r, &'e mut Tunnel>, Metered<'r, &'e mut Tunnel>) {
        let pacer = |direction| Pacer::new(self.meters.clone(), direction);
        (
            Metered::new(ends.client, pacer(Direction::Up), self.cut, AtEnd::Wait),
            Metered::new(ends.target, pacer(Direction::Down), self.cut, AtEnd::Wait),
        )
    }
}

/// What each end is told when somebody in between ends a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Codes {
    client: u16,
    target: u16,
}

impl Codes {
    /// The same to both.
    const fn both(code: u16) -> Self {
        Self { client: code, target: code }
    }
}

/// Takes out of a handshake what the gateway could not follow: extensions change what frames mean.
pub(crate) fn without_extensions(headers: &mut HeaderMap) {
    headers.remove(SEC_WEBSOCKET_EXTENSIONS);
}

/// Carries one to its end.
pub(super) async fn carry(
    ends: Switched<'_>,
    session: &Session,
    rules: Rules<'_>,
    carried: &mut Carried,
) -> RelayOutcome {
    if rules.chain.reads_messages() {
        inspect::carry(ends, session, rules, carried).await
    } else {
        tunnel::carry(ends, rules, carried).await
    }
}
