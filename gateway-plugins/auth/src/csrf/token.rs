//! Signed tokens that expire: 16 random bytes, when it ends, and an HMAC-SHA256 over both and what it is bound to.

use aws_lc_rs::hmac;
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const NONCE: usize = 16;
const EXPIRY: usize = 8;
const TAG: usize = 32;

/// Makes tokens and judges them.
pub(super) struct Tokens {
    /// The first signs; all are accepted.
    keys: Vec<hmac::Key>,
    /// Seconds a token is good for.
    ttl: u64,
}

/// How long a good token stays good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// For at least half its time, under the present key.
    Fresh,
    /// Not long.
    Old,
}

impl Tokens {
    pub(super) fn new(secret: &[u8], previous: Option<&[u8]>, ttl: u64) -> Self {
        let secrets = std::iter::once(secret).chain(previous);
        Self { keys: secrets.map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret)).collect(), ttl }
    }

    /// A new token; `None` when the system has no random numbers.
    pub(super) fn make(&self, bound: &[u8], now: u64) -> Option<String> {
        let mut token = [0; NONCE + EXPIRY + TAG];
        let (signed, tag) = token.split_at_mut(NONCE + EXPIRY);
        let (nonce, expiry) = signed.split_at_mut(NONCE);
        rand::fill(nonce).ok()?;
        expiry.copy_from_slice(&now.saturating_add(self.ttl).to_be_bytes());
        tag.copy_from_slice(hmac::sign(self.keys.first()?, &message(signed, bound)).as_ref());
        Some(URL_SAFE_NO_PAD.encode(token))
    }

    /// How old a good token is; `None` for one that is not good.
    pub(super) fn age(&self, text: &[u8], bound: &[u8], now: u64) -> Option<Age> {
        let mut token = [0; NONCE + EXPIRY + TAG];
        let length = URL_SAFE_NO_PAD.decode_slice(text, &mut token).ok()?;
        let (signed, tag) = (length == token.len()).then(|| token.split_at(NONCE + EXPIRY))?;
        let message = message(signed, bound);
        let key = self.keys.iter().position(|key| hmac::verify(key, &message, tag).is_ok())?;
        let left = u64::from_be_bytes(*signed.last_chunk()?).checked_sub(now).filter(|left| *left > 0)?;
        // A lifetime that was made shorter holds for tokens that are out already.
        (left <= self.ttl).then_some(if key == 0 && left >= self.ttl / 2 { Age::Fresh } else { Age::Old })
    }
}

fn message(signed: &[u8], bound: &[u8]) -> Vec<u8> {
    [signed, bound].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = &[7; 32];

    #[test]
    fn tokens_are_good_until_they_expire_and_for_whom_they_were_made() {
        let tokens = Tokens::new(SECRET, None, 100);
        let token = tokens.make(b"alice", 1000).unwrap();
        let age = |bound: &[u8], now| tokens.age(token.as_bytes(), bound, now);
        assert_eq!(age(b"alice", 1000), Some(Age::Fresh));
        assert_eq!(age(b"alice", 1051), Some(Age::Old));
        assert_eq!(age(b"alice", 1100), None);
        assert_eq!(age(b"alice", 900), None, "it is not good for longer than tokens are");
        assert_eq!(age(b"bob", 1000), None);
        assert_ne!(tokens.make(b"", 1), tokens.make(b"", 1));
    }

    #[test]
    fn secrets_are_rotated() {
        let old = Tokens::new(SECRET, None, 100);
        let token = old.make(b"", 0).unwrap();
        let new = Tokens::new(&[8; 32], Some(SECRET), 100);
        assert_eq!(new.age(token.as_bytes(), b"", 1), Some(Age::Old), "good, and renewed");
        assert_eq!(Tokens::new(&[8; 32], None, 100).age(token.as_bytes(), b"", 1), None);
    }

    #[test]
    fn whatever_was_changed_is_not_good() {
        let tokens = Tokens::new(SECRET, None, 100);
        let token = tokens.make(b"", 0).unwrap().into_bytes();
        for n in 0..token.len() {
            let mut changed = token.clone();
            changed[n] = if changed[n] == b'A' { b'B' } else { b'A' };
            assert_eq!(tokens.age(&changed, b"", 1), None, "{n}");
        }
        for text in [&b""[..], b"=", b"AAAA", &token[1..], &[token.clone(), vec![b'A']].concat(), &[0xff; 75]]
        {
            assert_eq!(tokens.age(text, b"", 1), None);
        }
    }
}
