//! Tokens by which clients that come back prove their address with their first packets (RFC 9000 §8.1.3), each good for
//! one use.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use quinn::{TokenLog, TokenReuseError};

/// How long a token is good. An address that changes hands within that time gives its next holder nothing: the token is
/// still with the one before.
pub(super) const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Tokens given to each client, as many as sessions to resume.
pub(super) const SENT: u32 = 2;
/// Used tokens kept in mind; beyond that the oldest are forgotten, and none is taken that is as old as they are.
const MAX_USED: usize = 65_536;

/// The tokens used so far.
#[derive(Default)]
pub(super) struct Tokens {
    used: Mutex<Used>,
}

/// Two halves: when the new one is full, it becomes the old one, and the old one is forgotten.
#[derive(Default)]
struct Used {
    new: HashSet<u128>,
    old: HashSet<u128>,
    /// When the old half was full: what it holds was made before.
    closed: Option<SystemTime>,
    /// What was made until then may have been used and forgotten.
    forgotten: Option<SystemTime>,
}

impl TokenLog for Tokens {
    fn check_and_insert(&self, nonce: u128, made: SystemTime, _: Duration) -> Result<(), TokenReuseError> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let is_used = used.old.contains(&nonce) || used.new.contains(&nonce);
        if is_used || used.forgotten.is_some_and(|until| made <= until) {
            return Err(TokenReuseError);
        }
        if used.new.len() >= MAX_USED / 2 {
            used.forgotten = used.closed.replace(SystemTime::now());
            used.old = std::mem::take(&mut used.new);
        }
        used.new.insert(nonce);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_once_however_many_there_are() {
        let tokens = Tokens::default();
        let made = SystemTime::now();
        let take = |nonce, made| tokens.check_and_insert(nonce, made, LIFETIME).is_ok();
        assert!(take(1, made) && !take(1, made));
        for nonce in 2..=MAX_USED as u128 {
            assert!(take(nonce, made), "{nonce}");
        }
        assert!(!take(1, made) && !take(MAX_USED as u128, made));
        // From here on the first ones are forgotten, and so is whatever was made as early.
        assert!(take(u128::MAX, made) && !take(1, made) && !take(u128::MAX - 1, made));
        assert!(take(u128::MAX - 1, SystemTime::now() + LIFETIME));
    }
}
