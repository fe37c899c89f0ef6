//! What a gateway keeps to itself and its successors: the keys by which it recognises what it once gave to clients.

use std::sync::OnceLock;

/// Bytes of the keys: connection ids, stateless resets, tokens, cookies.
const KEYS: [usize; 4] = [8, 64, 64, 32];
const BYTES: usize = 1 + KEYS[0] + KEYS[1] + KEYS[2] + KEYS[3];

static SECRETS: OnceLock<Secrets> = OnceLock::new();

/// Keys that outlive a process, and how many processes had them before.
#[derive(Clone)]
pub struct Secrets {
    generation: u8,
    bytes: [u8; BYTES],
}

/// Those of this process: inherited, or new ones.
pub fn secrets() -> &'static Secrets {
    SECRETS.get_or_init(Secrets::fresh)
}

/// Takes those of the process before this one; to be called before anything is served.
///
/// # Errors
/// When they are not what [`Secrets::to_bytes`] makes, or this process has some already.
pub fn inherit(bytes: &[u8]) -> Result<(), &'static str> {
    let bytes: [u8; BYTES] = bytes.try_into().map_err(|_| "the keys are of another version")?;
    let secrets = Secrets { generation: bytes[0].wrapping_add(1), bytes };
    SECRETS.set(secrets).map_err(|_| "this process has keys of its own already")
}

impl Secrets {
    /// Bytes that [`Self::to_bytes`] makes.
    pub const BYTES: usize = BYTES;

    fn fresh() -> Self {
        let mut bytes = [0; BYTES];
        if crate::tls::provider().secure_random.fill(&mut bytes).is_err() {
            // Without the system's random numbers there is no TLS either; these are not guessed from outside.
            fastrand::fill(&mut bytes);
        }
        Self { generation: 0, bytes }
    }

    /// For the process behind this one.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = self.bytes;
        bytes[0] = self.generation;
        bytes
    }

    /// Which process of a row this is; two bits of it are in connection ids.
    pub(crate) fn generation(&self) -> u8 {
        self.generation & 0b11
    }

    fn key<const N: usize>(&self, number: usize) -> [u8; N] {
        let from = 1 + KEYS[..number].iter().sum::<usize>();
        let mut key = [0; N];
        key.copy_from_slice(&self.bytes[from..from + N]);
        key
    }

    /// What connection ids are checked by.
    pub(crate) fn ids(&self) -> u64 {
        u64::from_be_bytes(self.key(0))
    }

    /// What stateless resets are made of (RFC 9000 §10.3).
    pub(crate) fn resets(&self) -> [u8; 64] {
        self.key(1)
    }

    /// What Retry and NEW_TOKEN are sealed by (RFC 9000 §8.1).
    pub(crate) fn tokens(&self) -> [u8; 64] {
        self.key(2)
    }

    /// What cookies of DTLS are made of.
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
        let next = Secrets { generation: bytes[0].wrapping_add(1), bytes };
        assert_eq!((next.generation(), next.ids()), (3, ids));
        assert_eq!((next.resets(), next.tokens()), (resets, tokens));
    }
}
