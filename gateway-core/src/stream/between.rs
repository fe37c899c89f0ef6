//! What plugins put between the client and the target of a byte stream.

use std::sync::OnceLock;

use super::relay::Duplex;
use super::session::Session;
use crate::plugin::Chain;
use crate::plugin::seat::Around;

/// One end of a byte stream, for as long as somebody holds it.
pub type Stream<'s> = Box<dyn Duplex + 's>;

/// Why a plugin ended a session; the first reason stands.
#[derive(Debug, Default)]
pub struct Cut(OnceLock<&'static str>);

impl Cut {
    /// Notes the word for the record. Whoever calls it makes reads and writes fail from now on.
    pub fn note(&self, reason: &'static str) {
        self.0.get_or_init(|| reason);
    }

    /// The reason, where there is one.
    pub fn reason(&self) -> Option<&'static str> {
        self.0.get().copied()
    }
}

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
        self.chain.bytes(client, (self.session, self.cut), self.around)
    }
}
