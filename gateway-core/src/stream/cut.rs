//! One end of a byte stream as plugins see it, and why one of them ended the session.

use std::sync::OnceLock;

use crate::http::tunnel::Duplex;

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
