//! What plugins put between the client and the target of a byte stream.

use super::cut::{Cut, Stream};
use super::session::Session;
use crate::plugin::Chain;
use crate::plugin::seat::Around;

/// The plugins of a session that see its bytes.
pub struct Between<'r> {
    pub(super) chain: &'r Chain,
    pub(super) around: Around<'r>,
    pub(super) session: &'r Session,
    pub(super) cut: &'r Cut,
}

impl Between<'_> {
    /// The client's end with the plugins in front of it: what is read from the result has passed all of them.
    pub fn put<'s>(&'s self, client: Stream<'s>) -> Stream<'s> {
        self.chain.bytes(client, self.session, self.cut, self.around)
    }
}
