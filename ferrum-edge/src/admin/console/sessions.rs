//! The console's sessions. A session key is 256 random bits; the table contains only its hash.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::{constant_time, digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gateway_core::config::model::AdminOidc;
use tokio::time::Instant;

use crate::access::Caller;

/// Sessions at a time; the one that was idle longest ends for a new one.
const MAX_SESSIONS: usize = 1024;
/// A session that nobody uses ends after so long.
pub(super) const IDLE: Duration = Duration::from_secs(30 * 60);
/// Every session ends after so long.
pub(super) const ABSOLUTE: Duration = Duration::from_secs(12 * 60 * 60);

/// What a browser's cookie contains.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key([u8; 32]);

/// What a session was begun with; it lasts no longer than that.
#[derive(Clone)]
pub(super) enum Credential {
    /// A token of the admin API.
    Token(Arc<str>),
    /// A user as it was then. A passkey is two factors, so no other one has to be enrolled.
    User { name: Arc<str>, version: u64, is_by_passkey: bool },
    /// A login at the OpenID provider of these settings.
    Provider(Arc<AdminOidc>),
}

/// A session as requests see it.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) caller: Caller,
    /// Sent with every change, as `X-Ferrum-CSRF`.
    pub(super) csrf: Arc<str>,
    /// It ends by then, used or not.
    pub(super) ends: Instant,
    /// It is a user's, who has a password.
    pub(super) is_user: bool,
    /// The user has to choose a password before anything else.
    pub(super) must_change: bool,
    /// The user has to enrol a second factor before anything else.
    pub(super) must_enrol: bool,
}

/// All sessions.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<[u8; 32], Row>>);

struct Row {
    session: Session,
    credential: Credential,
    used: Instant,
}

impl Key {
    /// `None` when the system has no random bits.
    pub(super) fn random() -> Option<Self> {
        let mut bits = [0; 32];
        rand::fill(&mut bits).ok().map(|()| Self(bits))
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        (text.len() == 43).then(|| URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self))?
    }

    pub(super) fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    fn hash(&self) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, &self.0).as_ref());
        hash
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(***)")
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sessions({})", self.rows().len())
    }
}

impl Session {
    pub(super) fn is_confirmed_by(&self, csrf: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(self.csrf.as_bytes(), csrf).is_ok()
    }
}

impl Sessions {
    /// Begins a session; `None` when the system has no random bits.
    pub(super) fn begin(
        &self,
        caller: Caller,
        credential: Credential,
        must_change: bool,
    ) -> Option<(Key, Session)> {
        let (key, csrf) = (Key::random()?, Key::random()?);
        let now = Instant::now();
        let is_user = matches!(credential, Credential::User { .. });
        let ends = now + ABSOLUTE;
        let session =
            Session { caller, csrf: csrf.text().into(), ends, is_user, must_change, must_enrol: false };
        let mut rows = self.rows();
        rows.retain(|_, row| row.lasts(now));
        if rows.len() >= MAX_SESSIONS {
            let oldest = rows.iter().min_by_key(|(_, row)| row.used).map(|(hash, _)| *hash);
            oldest.and_then(|hash| rows.remove(&hash));
        }
        rows.insert(key.hash(), Row { session: session.clone(), credential, used: now });
        Some((key, session))
    }

    /// The session of a key and what it was begun with.
    pub(super) fn find(&self, key: &Key, purpose: Purpose) -> Option<(Session, Credential)> {
        let now = Instant::now();
        let mut rows = self.rows();
        let row = rows.get_mut(&key.hash())?;
        if !row.lasts(now) {
            rows.remove(&key.hash());
            return None;
        }
        if purpose == Purpose::Use {
            row.used = now;
        }
        Some((row.session.clone(), row.credential.clone()))
    }

    /// The session of a user goes on for this version of the user.
    pub(super) fn keep(&self, key: &Key, new: u64) {
        if let Some(Row { credential: Credential::User { version, .. }, .. }) =
            self.rows().get_mut(&key.hash())
        {
            *version = new;
        }
    }

    pub(super) fn end(&self, key: &Key) {
        self.rows().remove(&key.hash());
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<[u8; 32], Row>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a session is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A person does something: the idle time begins anew.
    Use,
    /// A page reads again by itself.
    Refresh,
}

impl Row {
    fn lasts(&self, now: Instant) -> bool {
        now < self.session.ends && now.duration_since(self.used) < IDLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Role;

    fn begin(sessions: &Sessions) -> (Key, Session) {
        sessions.begin(ann(), Credential::Token("token".into()), false).unwrap()
    }

    fn ann() -> Caller {
        Caller { name: "ann".into(), role: Role::Write, source: "console", is_person: true, grants: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_when_idle_and_when_old() {
        let sessions = Sessions::default();
        let (idle, _) = begin(&sessions);
        let (used, session) = begin(&sessions);
        assert!(session.is_confirmed_by(session.csrf.as_bytes()) && !session.is_confirmed_by(b""));
        let step = IDLE - Duration::from_secs(1);
        tokio::time::advance(step).await;
        assert!(sessions.find(&used, Purpose::Use).is_some());
        assert!(sessions.find(&idle, Purpose::Refresh).is_some(), "a page that looks again is no use");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(sessions.find(&idle, Purpose::Use).is_none() && sessions.find(&used, Purpose::Use).is_some());
        let mut age = IDLE;
        while age + step < ABSOLUTE {
            tokio::time::advance(step).await;
            age += step;
            assert!(sessions.find(&used, Purpose::Use).is_some(), "{age:?}");
        }
        tokio::time::advance(ABSOLUTE - age).await;
        assert!(sessions.find(&used, Purpose::Use).is_none());
        assert!(sessions.rows().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_session_ends_for_a_new_one() {
        let sessions = Sessions::default();
        let (first, _) = begin(&sessions);
        tokio::time::advance(Duration::from_secs(1)).await;
        let (second, _) = begin(&sessions);
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 2..MAX_SESSIONS {
            begin(&sessions);
        }
        assert!(sessions.find(&first, Purpose::Use).is_some(), "that is a use");
        tokio::time::advance(Duration::from_secs(1)).await;
        begin(&sessions);
        assert!(
            sessions.find(&first, Purpose::Use).is_some() && sessions.find(&second, Purpose::Use).is_none()
        );
        assert_eq!(sessions.rows().len(), MAX_SESSIONS);
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        let key = Key::random().unwrap();
        assert!(Key::parse(&key.text()) == Some(key.clone()) && Key::random().unwrap() != key);
        for bad in ["", "x", &"=".repeat(43), &"A".repeat(44), &"\u{e9}".repeat(43)] {
            assert!(Key::parse(bad).is_none(), "{bad}");
        }
        assert_eq!(format!("{key:?}"), "Key(***)");
    }
}
