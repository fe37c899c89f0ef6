//! Keys that a gateway shares only with its successors. With them, it recognises IDs, tokens and cookies that it issued.

use std::sync::OnceLock;

use crate::tls::tickets::{self, TicketKeys};

/// Bytes of each key: connection IDs, stateless resets, tokens, cookies.
const KEYS: [usize; 4] = [8, 64, 64, 32];
const BYTES: usize = 1 + KEYS[0] + KEYS[1] + KEYS[2] + KEYS[3];

static SECRETS: OnceLock<Secrets> = OnceLock::new();

/// Keys that outlive a process, and the number of processes that used them before.
#[derive(Clone)]
pub struct Secrets {
    generation: u8,
    bytes: [u8; BYTES],
}

/// The keys of this process, inherited or new.
pub fn secrets() -> &'static Secrets {
    SECRETS.get_or_init(Secrets::fresh)
}

/// Inherits the keys of the predecessor. Call it before the gateway serves traffic.
///
/// # Errors
/// `bytes` is not a value of [`Secrets::to_bytes`], or this process already has keys.
pub fn inherit(bytes: &[u8]) -> Result<(), &'static str> {
    let version = "the keys are of another version";
    let (bytes, tickets) = bytes.split_first_chunk::<BYTES>().ok_or(version)?;
    tickets::inherit(tickets.try_into().map_err(|_| version)?)?;
    let bytes = *bytes;
    let secrets = Secrets { generation: bytes[0].wrapping_add(1), bytes };
    SECRETS.set(secrets).map_err(|_| "this process has keys of its own already")
}

impl Secrets {
    /// Length of [`Self::to_bytes`].
    pub const BYTES: usize = BYTES + TicketKeys::BYTES;

    fn fresh() -> Self {
        let mut bytes = [0; BYTES];
        if crate::tls::provider().secure_random.fill(&mut bytes).is_err() {
            // If the system has no random numbers, TLS does not work either. Clients cannot guess these.
            fastrand::fill(&mut bytes);
        }
        Self { generation: 0, bytes }
    }

    /// The keys for the successor, with those of TLS tickets.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..BYTES].copy_from_slice(&self.bytes);
        bytes[0] = self.generation;
        bytes[BYTES..].copy_from_slice(&tickets::keys().to_bytes());
        bytes
    }

    /// The number of this process in the chain of successors. Connection IDs contain two bits of it.
    pub(crate) fn generation(&self) -> u8 {
        self.generation & 0b11
    }

    fn key<const N: usize>(&self, number: usize) -> [u8; N] {
        let from = 1 + KEYS[..number].iter().sum::<usize>();
        let mut key = [0; N];
        key.copy_from_slice(&self.bytes[from..from + N]);
        key
    }

    /// The key of the check value in connection IDs.
    pub(crate) fn ids(&self) -> u64 {
        u64::from_be_bytes(self.key(0))
    }

    /// The key of stateless resets (RFC 9000 §10.3).
    pub(crate) fn resets(&self) -> [u8; 64] {
        self.key(1)
    }

    /// The key that seals Retry and NEW_TOKEN tokens (RFC 9000 §8.1).
    pub(crate) fn tokens(&self) -> [u8; 64] {
        self.key(2)
    }

    /// The key of DTLS cookies.
    pub(crate) fn cookies(&self) -> [u8; 32] {
        self.key(3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_apart_and_last() {
        let one = Secrets::fresh();
        assert_ne!(one.resets(), one.tokens());
        assert_ne!(one.cookies(), Secrets::fresh().cookies());
        let (ids, resets, tokens) = (one.ids(), one.resets(), one.tokens());
        let bytes = Secrets { generation: 6, ..one }.to_bytes();
        let bytes: &[u8; BYTES] = bytes.first_chunk().unwrap();
        let next = Secrets { generation: bytes[0].wrapping_add(1), bytes: *bytes };
        assert_eq!((next.generation(), next.ids()), (3, ids));
        assert_eq!((next.resets(), next.tokens()), (resets, tokens));
    }
}
