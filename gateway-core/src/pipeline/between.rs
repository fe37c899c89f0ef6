//! What watches over the bytes of a stream: the plugins between client and target, and the meters of both directions.

use std::sync::Arc;

use crate::plugin::Chain;
use crate::plugin::seat::Around;
use crate::stream::cut::{Cut, Stream};
use crate::stream::metered::{AtEnd, Metered};
use crate::stream::pacer::{Pacer, SessionMeters};
use crate::stream::session::{Direction, Session};

/// What a session's bytes pass.
pub struct Monitor<'r> {
    pub(super) chain: &'r Chain,
    pub(super) around: Around<'r>,
    pub(super) session: &'r Session,
    pub(super) cut: &'r Cut,
    pub(super) meters: &'r Arc<SessionMeters>,
}

impl<'r> Monitor<'r> {
    /// Whether plugins see the bytes.
    pub fn sees_bytes(&self) -> bool {
        self.chain.has_byte_seats()
    }

    /// The client's end with the plugins in front of it: what is read from the result has passed all of them.
    pub fn put<'s>(&'s self, client: Stream<'s>) -> Stream<'s> {
        self.chain.bytes(client, self.session, self.cut, self.around)
    }

    /// Both ends, each metered for what is read from it.
    pub fn metered<C, T>(&self, client: C, target: T) -> (Metered<'r, C>, Metered<'r, T>) {
        let pacer = |direction| Pacer::new(self.meters.clone(), direction);
        (
            Metered::new(client, pacer(Direction::Up), self.cut, AtEnd::Fail),
            Metered::new(target, pacer(Direction::Down), self.cut, AtEnd::Fail),
        )
    }
}
