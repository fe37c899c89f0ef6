//! The trace that an exchange or session belongs to. Set by a tracing plugin; records, error bodies and templates show it.

use std::fmt;

use tokio::time::Instant;

/// Where something is in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span of the exchange or session in it.
    pub span: SpanId,
    /// Whether those that follow are asked to record it.
    pub sampled: bool,
}

/// Sixteen bytes, not all zero; written as 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// Eight bytes, not all zero; written as 16 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl TraceId {
    /// A random one.
    pub fn random() -> Self {
        // A range costs a multiplication of 256 bits.
        loop {
            let number = fastrand::u128(..);
            if number != 0 {
                return Self(number.to_be_bytes());
            }
        }
    }
}

impl SpanId {
    /// A random one.
    pub fn random() -> Self {
        loop {
            let number = fastrand::u64(..);
            if number != 0 {
                return Self(number.to_be_bytes());
            }
        }
    }
}

impl TraceId {
    /// Its digits.
    pub fn hex(self) -> [u8; 32] {
        let mut digits = [0; 32];
        write_hex(&self.0, &mut digits);
        digits
    }
}

impl SpanId {
    /// Its digits.
    pub fn hex(self) -> [u8; 16] {
        let mut digits = [0; 16];
        write_hex(&self.0, &mut digits);
        digits
    }
}

/// The two digits of each byte.
static PAIRS: [[u8; 2]; 256] = pairs();

const fn pairs() -> [[u8; 2]; 256] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    pairs
}

/// Every traced request writes ids several times: this takes a fraction of what the formatting of numbers does.
fn write_hex(bytes: &[u8], digits: &mut [u8]) {
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&PAIRS[usize::from(*byte)]);
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

/// Waits of plugins that one exchange remembers; further ones are left out.
pub const MAX_WAITS: usize = 32;

/// A plugin's hook that waited. Only noted for exchanges that are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    /// The plugin's place in the chain.
    pub place: u16,
    /// The hook: `request`, `authenticate`, `attempt` or `response`.
    pub hook: &'static str,
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_with_all_their_digits() {
        let mut trace = [0; 16];
        trace[15] = 0xab;
        assert_eq!(TraceId(trace).to_string(), "000000000000000000000000000000ab");
        assert_eq!(SpanId([0, 1, 2, 3, 4, 5, 6, 0xff]).to_string(), "00010203040506ff");
    }
}
