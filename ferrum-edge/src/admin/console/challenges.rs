//! Challenges for passkeys. A challenge proves by itself that this process has made it, what for, and when, so nothing has to be kept
//! for those that never come back. Used ones are remembered until they expire, so each is used once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::{hmac, rand};
use tokio::time::Instant;

/// How long a challenge is valid.
pub(super) const VALIDITY: Duration = Duration::from_secs(300);
/// Used challenges that are remembered; each costs a good signature.
const MAX_USED: usize = 10_000;
/// Milliseconds since the start, random bytes, tag.
const BYTES: usize = 8 + 16 + 32;

/// What a challenge is for.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Purpose<'p> {
    /// A login with any known passkey.
    Login,
    /// A new passkey of this user.
    Enrolment(&'p str),
}

/// Makes challenges, and knows its own.
pub(super) struct Challenges {
    key: Option<hmac::Key>,
    begun: Instant,
    used: Mutex<HashMap<Vec<u8>, Instant>>,
}

impl std::fmt::Debug for Challenges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Challenges")
    }
}

impl Default for Challenges {
    fn default() -> Self {
        let mut bits = [0; 32];
        let key = rand::fill(&mut bits).ok().map(|()| hmac::Key::new(hmac::HMAC_SHA256, &bits));
        Self { key, begun: Instant::now(), used: Mutex::default() }
    }
}

impl Challenges {
    /// A new challenge; `None` when the system has no random bits.
    pub(super) fn issue(&self, purpose: Purpose<'_>) -> Option<Vec<u8>> {
        let mut bits = [0; 16];
        rand::fill(&mut bits).ok()?;
        let now = u64::try_from(self.begun.elapsed().as_millis()).ok()?;
        let mut challenge = [&now.to_be_bytes()[..], &bits].concat();
        let tag = self.tag(purpose, &challenge)?;
        challenge.extend_from_slice(tag.as_ref());
        Some(challenge)
    }

    /// Whether the challenge was made here for this purpose, and is still valid.
    pub(super) fn is_issued(&self, purpose: Purpose<'_>, challenge: &[u8]) -> bool {
        let Some((begin, tag)) = challenge.split_at_checked(24).filter(|_| challenge.len() == BYTES) else {
            return false;
        };
        let Some(key) = &self.key else { return false };
        let Some(at) = begin.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes)) else { return false };
        let age = self.begun.elapsed().checked_sub(Duration::from_millis(at));
        hmac::verify(key, &signed(purpose, begin), tag).is_ok() && age.is_some_and(|age| age < VALIDITY)
    }

    /// Uses a challenge up; `false` if it was used before.
    pub(super) fn spend(&self, challenge: &[u8]) -> bool {
        let now = Instant::now();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, at| now.duration_since(*at) < VALIDITY);
        used.len() < MAX_USED && used.insert(challenge.to_vec(), now).is_none()
    }

    fn tag(&self, purpose: Purpose<'_>, begin: &[u8]) -> Option<hmac::Tag> {
        Some(hmac::sign(self.key.as_ref()?, &signed(purpose, begin)))
    }
}

fn signed(purpose: Purpose<'_>, begin: &[u8]) -> Vec<u8> {
    let what = match purpose {
        Purpose::Login => String::new(),
        Purpose::Enrolment(user) => format!("enrol {user}"),
    };
    [begin, what.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_challenge_is_for_one_purpose_and_used_once_within_its_time() {
        let challenges = Challenges::default();
        let login = challenges.issue(Purpose::Login).unwrap();
        let enrolment = challenges.issue(Purpose::Enrolment("ann")).unwrap();
        assert_ne!(login, challenges.issue(Purpose::Login).unwrap());
        assert!(challenges.is_issued(Purpose::Login, &login));
        assert!(!challenges.is_issued(Purpose::Enrolment("ann"), &login));
        assert!(challenges.is_issued(Purpose::Enrolment("ann"), &enrolment));
        assert!(!challenges.is_issued(Purpose::Enrolment("bob"), &enrolment));
        assert!(!challenges.is_issued(Purpose::Login, &enrolment));
        assert!(!Challenges::default().is_issued(Purpose::Login, &login), "another process has another key");
        for at in 0..login.len() {
            let mut forged = login.clone();
            forged[at] ^= 1;
            assert!(!challenges.is_issued(Purpose::Login, &forged), "{at}");
        }
        assert!(!challenges.is_issued(Purpose::Login, &login[1..]));
        assert!(challenges.spend(&login) && !challenges.spend(&login));
        tokio::time::advance(VALIDITY).await;
        assert!(!challenges.is_issued(Purpose::Login, &login));
    }
}
