//! Numbers spread evenly over all there are.

/// The fractional part of the golden ratio, as a fraction of 2^64: its multiples spread most evenly.
pub(super) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Spreads every bit over all others and loses none: SplitMix64's finaliser.
pub(super) fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(GOLDEN);
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}
