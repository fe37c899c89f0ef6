//! HPACK (RFC 7541): header compression of HTTP/2. Huffman and integer coding serve QPACK (RFC 9204) as well.

pub(crate) mod decoder;
pub(crate) mod encoder;
pub(crate) mod huffman;
pub(crate) mod integer;
mod name;

pub(crate) use decoder::{Decoder, Listed};
pub(crate) use encoder::Encoder;
pub(crate) use name::{Field, Name, SLOTS, Value, slot};

/// Bytes of the dynamic table either side starts with (RFC 9113 §6.5.2), and the most we use in either direction.
pub(crate) const TABLE_BYTES: usize = 4096;
/// What an entry costs beyond its name and value (RFC 7541 §4.1).
pub(crate) const ENTRY_OVERHEAD: usize = 32;

/// Why a header block can't be read. The two tables are out of step then, so the connection is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HpackError {
    /// The block ends within a field.
    #[error("a header block is cut off")]
    Truncated,
    /// A number of more than 32 bits.
    #[error("a number in a header block is too large")]
    Integer,
    /// No such entry.
    #[error("a header block names an entry that does not exist")]
    Index,
    /// Wrong padding, or the end-of-string symbol.
    #[error("a Huffman string in a header block is broken")]
    Huffman,
    /// A table size above what was allowed, or not at the start of a block.
    #[error("a header block changes the table's size where it may not")]
    TableSize,
}
