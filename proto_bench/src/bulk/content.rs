//! The bytes that are sent: a long random text over and over, so that each place in a stream has a byte of its own.

use std::sync::LazyLock;

/// A prime, so that no buffer of a round size begins at the same place twice in a row.
pub const PERIOD: usize = 1_048_573;
/// What may be taken in one piece from any place.
pub const PIECE: usize = 256 << 10;

/// The text, with its beginning repeated behind its end.
static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = fastrand::Rng::with_seed(0xb01d);
    let mut text: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(PERIOD).collect();
    text.extend_from_within(..PIECE);
    text
});

/// So many bytes from a place of the stream on; at most [`PIECE`].
#[must_use]
pub fn at(place: u64, bytes: usize) -> &'static [u8] {
    let start = usize::try_from(place % PERIOD as u64).unwrap_or(0);
    &TEXT[start..start + bytes.min(PIECE)]
}
