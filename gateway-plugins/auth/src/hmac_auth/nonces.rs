//! Signatures that were used, for as long as they would be accepted again.

use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use gateway_plugin_common::generations::Generations;

/// Signatures that are remembered at a time; with more of them, requests are refused.
pub(super) const MAX_NONCES: usize = 1_000_000;

/// What was used, in two generations of which the older is dropped when its time is over.
#[derive(Debug)]
pub(super) struct Nonces {
    used: Mutex<UsedNonces>,
    room: usize,
}

#[derive(Debug, Default)]
struct UsedNonces {
    prints: Generations<[u8; 16], ()>,
    /// The second since 1970 in which the newer generation began.
    since: u64,
}

/// What became of a signature.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Use {
    First,
    Again,
    /// There is no room to remember it.
    Full,
}

impl Nonces {
    /// Room for so many.
    pub(super) fn new(room: usize) -> Self {
        Self { used: Mutex::default(), room }
    }

    /// Notes that somebody used something, which nobody else may use for at least `window` seconds.
    pub(super) fn note(&self, who: &str, what: &[u8], window: u64, now: u64) -> Use {
        let mut print = [0; 16];
        let hash = digest(&SHA256, &[&(who.len() as u64).to_be_bytes(), who.as_bytes(), what].concat());
        print.copy_from_slice(hash.as_ref().get(..16).unwrap_or(&[0; 16]));
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= used.since.saturating_add(window) {
            if now >= used.since.saturating_add(window.saturating_mul(2)) {
                used.prints = Generations::default();
            }
            used.prints.rotate();
            used.since = now;
        }
        if used.prints.get(&print).is_some() {
            return Use::Again;
        }
        if used.prints.len() >= self.room {
            return Use::Full;
        }
        used.prints.insert(print, ());
        Use::First
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_can_not_be_used_again_within_its_window() {
        let nonces = Nonces::new(100);
        for start in [0_u8, 100, 199].map(u64::from) {
            assert_eq!(nonces.note("a", &start.to_be_bytes(), 100, start), Use::First);
            for later in [0, 50, 99, 100] {
                assert_eq!(
                    nonces.note("a", &start.to_be_bytes(), 100, start + later),
                    Use::Again,
                    "{start} {later}"
                );
            }
        }
        let small = Nonces::new(1);
        assert_eq!(small.note("a", b"1", 100, 0), Use::First);
        assert_eq!(small.note("a", b"2", 100, 0), Use::Full);
        assert_eq!(small.note("a", b"2", 100, 500), Use::First);
        assert_eq!(nonces.note("b", &0_u64.to_be_bytes(), 100, 199), Use::First, "somebody else's");
        assert_eq!(
            nonces.note("a", &0_u64.to_be_bytes(), 100, 5000),
            Use::First,
            "when it is too old anyway"
        );
    }
}
