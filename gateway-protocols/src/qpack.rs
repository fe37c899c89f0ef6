//! QPACK (RFC 9204): field compression of HTTP/3, with the static table alone.
//!
//! We announce a dynamic table of no octets, so no block we read waits for another stream, and nothing a peer sends
//! takes room here. What we write names only the static table as well. Huffman code and numbers are HPACK's.

mod decoder;
mod encoder;
mod table;

pub(crate) use decoder::{Listed, decode};
pub(crate) use encoder::{begin, field, method, path, scheme, status};

/// Why a field section can't be read (RFC 9204 §2.2); the connection is lost then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QpackError {
    /// A number or a string is broken.
    #[error("{0}")]
    Coding(#[from] crate::hpack::HpackError),
    /// It names an entry of the dynamic table, which has none.
    #[error("a field section names a dynamic entry, and there is none")]
    Dynamic,
    /// No such entry in the static table.
    #[error("a field section names a static entry that does not exist")]
    Index,
    /// Its base would be negative.
    #[error("a field section has a base below zero")]
    Base,
}

#[cfg(test)]
mod tests;
