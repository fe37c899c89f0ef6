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
        Self(fastrand::u128(1..).to_be_bytes())
    }
}

impl SpanId {
    /// A random one.
    pub fn random() -> Self {
        Self(fastrand::u64(1..).to_be_bytes())
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

/// Every traced request writes ids several times: this takes a fraction of what the formatting of numbers does.
fn write_hex(bytes: &[u8], digits: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
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
