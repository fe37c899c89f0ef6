//! HTTP/1.1 on the wire (RFC 9112), the same rules in both directions: heads, body framing, chunks.
//!
//! Strict where two readers could disagree about where a message ends: a bare line feed, a folded line, a length next
//! to a transfer coding, anything but `chunked` as the coding. Such a message is refused, never repaired.

pub mod body;
pub mod chunked;
pub mod head;
mod name;
pub(crate) mod send;
pub mod write;
