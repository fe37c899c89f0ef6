//! What is known of somebody who has logged in.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use gateway_core::consumer::{Consumers, Standing};
use gateway_core::plugin::world::per_worker::PerWorker;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::Instant;

use super::provider_failure::NoAnswer;
use crate::credential::now;
use crate::jose::Token;

/// A session as the browser keeps it, encrypted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Session {
    /// The ID token, verified when it came.
    #[serde(rename = "i")]
    pub(super) id_token: String,
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    pub(super) access_token: Option<String>,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
    /// The second since 1970 at which the access token expires; 0 where nobody said.
    #[serde(rename = "e")]
    pub(super) expires: u64,
    /// The second of the login.
    #[serde(rename = "b")]
    pub(super) began: u64,
    /// Made at the login, and the same however often it is refreshed: by it a session is known that has been ended.
    #[serde(rename = "d")]
    pub(super) id: String,
    /// The `sid` that the provider knows it by, where the ID token has none: that of a refresh need not repeat it.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub(super) sid: Option<String>,
}

impl Session {
    /// Whether its access token has expired at this second.
    pub(super) fn is_expired(&self, second: u64) -> bool {
        self.expires != 0 && second >= self.expires
    }
}

/// A session with what its ID token says.
#[derive(Debug)]
pub(super) struct OpenSession {
    pub(super) session: Session,
    pub(super) claims: Map<String, Value>,
}

impl OpenSession {
    pub(super) fn new(session: Session) -> Option<Arc<Self>> {
        let claims = Token::read(session.id_token.as_bytes()).ok()?.claims;
        Some(Arc::new(Self { session, claims }))
    }

    /// What is greater for a newer session, and for one that was refreshed.
    pub(super) fn age_key(&self) -> (u64, u64) {
        (self.session.began, self.session.expires)
    }

    /// The `sid` that the provider knows the session by.
    pub(super) fn sid(&self) -> Option<&str> {
        self.claims.get("sid").and_then(Value::as_str).or(self.session.sid.as_deref())
    }
}

/// For how long what was opened with a session may go on: until its end, whoever brings that about.
pub(super) struct SessionStanding {
    pub(super) open: Arc<OpenSession>,
    pub(super) ended: Arc<Ended>,
    /// The second since 1970 at which it is over in any case.
    pub(super) until: u64,
}

/// Without the tokens.
impl fmt::Debug for SessionStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionStanding").field("until", &self.until).finish_non_exhaustive()
    }
}

impl Standing for SessionStanding {
    fn holds(&self, _consumers: &Consumers) -> bool {
        now() < self.until && !self.ended.has(&self.open)
    }
}

pub(super) type Print = [u8; 32];

pub(super) fn print(bytes: &[u8]) -> Print {
    digest(&SHA256, bytes).as_ref().try_into().unwrap_or_default()
}

/// Sessions and subjects that have been logged out, by the user or by the provider, for as long as their cookies would be accepted.
#[derive(Debug, Default)]
pub(super) struct Ended {
    any: AtomicBool,
    /// Seconds that a session lasts where it lasts longest.
    longest: AtomicU64,
    /// When it was ended, and until when that has to be known.
    all: Mutex<HashMap<Print, (u64, u64)>>,
}

/// Logouts that are kept in mind.
const MAX_ENDED: usize = 100_000;

impl Ended {
    /// Notes how many seconds sessions last in one of the plugin configs that share this.
    pub(super) fn lasting(&self, seconds: u64) {
        self.longest.fetch_max(seconds, Relaxed);
    }

    /// Until when what ends at this second has to be known.
    pub(super) fn until(&self, second: u64) -> u64 {
        second.saturating_add(self.longest.load(Relaxed))
    }

    /// Notes that sessions that began before this second are over: the one with this `id`, those with this
    /// `sid`, or all of this `sub`. False
    /// when there is no room.
    pub(super) fn note(&self, name: &str, id: &str, second: u64, until: u64) -> bool {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let key = print(format!("{name} {id}").as_bytes());
        let is_new = !all.contains_key(&key);
        if is_new && all.len() >= MAX_ENDED {
            all.retain(|_, (_, until)| *until > second);
        }
        if is_new && all.len() >= MAX_ENDED {
            return false;
        }
        let known = all.entry(key).or_insert((second, until));
        *known = (known.0.max(second), known.1.max(until));
        self.any.store(true, Relaxed);
        true
    }

    /// Whether this was noted, and has to be known at this second.
    pub(super) fn is_noted(&self, name: &str, id: &str, second: u64) -> bool {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&print(format!("{name} {id}").as_bytes())).is_some_and(|(_, until)| *until > second)
    }

    pub(super) fn has(&self, open: &OpenSession) -> bool {
        if !self.any.load(Relaxed) {
            return false;
        }
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let claim = |name| (name, open.claims.get(name).and_then(Value::as_str));
        [("id", Some(open.session.id.as_str())), ("sid", open.sid()), claim("sub")].into_iter().any(
            |(name, id)| {
                let known = id.and_then(|id| all.get(&print(format!("{name} {id}").as_bytes())));
                known.is_some_and(|(second, _)| open.session.began <= *second)
            },
        )
    }
}

/// What refreshing a session came to: `None` when the provider refuses; an error, when it gives no answer, says why.
pub(super) type Refreshed = Result<Option<Arc<OpenSession>>, RefreshError>;

/// Why a refresh has no answer. All that wait for it are told.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum RefreshError {
    #[error("{0}")]
    Provider(Arc<NoAnswer>),
    #[error("the refresh was broken off")]
    BrokenOff,
    #[error("no refresh within {0:?}, which is what `timeout` allows")]
    Late(Duration),
    #[error("too many sessions are being refreshed")]
    TooMany,
    #[error("the session was refreshed too often")]
    TooOften,
}

/// When a refresh came to its end, and with what.
type RefreshEnd = (Instant, Refreshed);

/// Waits for a refresh, which goes on whether anybody waits or not.
pub(super) struct RefreshWait(watch::Receiver<Option<RefreshEnd>>);

impl RefreshWait {
    /// When it ended and what it came to, or why that is not known within this time.
    pub(super) async fn within(
        mut self,
        timeout: Duration,
    ) -> Result<(Instant, Option<Arc<OpenSession>>), RefreshError> {
        let ended = async { self.0.wait_for(Option::is_some).await.ok()?.clone() };
        match tokio::time::timeout(timeout, ended).await {
            Ok(Some((ended, refreshed))) => Ok((ended, refreshed?)),
            Ok(None) => Err(RefreshError::BrokenOff),
            Err(_) => Err(RefreshError::Late(timeout)),
        }
    }

    /// Whether it gave tokens that have expired, and the refresh token that it began with: a provider that repeats that takes it again.
    fn is_outdated(&self, token: &str) -> bool {
        let ended = self.0.borrow();
        let open = ended.as_ref().and_then(|(_, refreshed)| refreshed.as_ref().ok()?.as_deref());
        open.is_some_and(|open| {
            open.session.is_expired(now()) && open.session.refresh_token.as_deref() == Some(token)
        })
    }

    /// Whether those who come now are to have the same.
    fn is_kept(&self) -> bool {
        match &*self.0.borrow() {
            Some((ended, refreshed)) => {
                ended.elapsed() < if refreshed.is_ok() { REFRESH_KEPT } else { REFRESH_PAUSE }
            }
            None => self.0.has_changed().is_ok(),
        }
    }
}

/// Refreshes under way, and those of the last minute: a refresh token is often good once, and a browser sends several
/// requests at a time.
#[derive(Default)]
pub(super) struct Refreshes(Mutex<HashMap<Print, RefreshWait>>);

/// Refreshes that are kept in mind, and for how long.
const MAX_REFRESHES: usize = 10_000;
const REFRESH_KEPT: Duration = Duration::from_secs(60);
/// For how long one without an answer is not repeated. The provider may have taken the refresh token, and to send it again looks
/// like theft: the fewer try, the better.
const REFRESH_PAUSE: Duration = Duration::from_secs(5);

impl Refreshes {
    /// The one refresh of this token, which is begun where there is none; `None` when there are too many.
    pub(super) fn join<F>(&self, token: &str, begin: impl FnOnce() -> F) -> Option<RefreshWait>
    where
        F: Future<Output = Refreshed> + Send + 'static,
    {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = print(token.as_bytes());
        if let Some(known) = all.get(&key).filter(|known| known.is_kept() && !known.is_outdated(token)) {
            return Some(RefreshWait(known.0.clone()));
        }
        if all.len() >= MAX_REFRESHES {
            all.retain(|_, known| known.is_kept());
        }
        if all.len() >= MAX_REFRESHES {
            return None;
        }
        let (ended, wait) = watch::channel(None);
        let refresh = begin();
        // It goes on when the browser leaves, or does not wait for so long: the provider has taken the refresh token then.
        tokio::spawn(async move {
            let refreshed = refresh.await;
            ended.send_replace(Some((Instant::now(), refreshed)));
        });
        all.insert(key, RefreshWait(wait.clone()));
        Some(RefreshWait(wait))
    }
}

/// Sessions that each worker keeps decrypted.
#[derive(Default)]
pub(super) struct SessionCache(PerWorker<HashMap<Print, Arc<OpenSession>>>);

/// At so many it begins again.
const MAX_KNOWN: usize = 1000;

impl SessionCache {
    pub(super) fn get(&self, print: &Print) -> Option<Arc<OpenSession>> {
        self.0.get_or(HashMap::new)?.get(print).cloned()
    }

    pub(super) fn put(&self, print: Print, open: Arc<OpenSession>) {
        if let Some(mut known) = self.0.get_or(HashMap::new) {
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(print, open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refresh_is_kept_for_a_minute() {
        let refreshes = Refreshes::default();
        let begun = AtomicU64::new(0);
        let joined = |token: &str, end: Refreshed| {
            refreshes.join(token, || {
                begun.fetch_add(1, Relaxed);
                std::future::ready(end)
            })
        };
        let time = Duration::from_secs;
        assert!(joined("rt-1", Ok(None)).expect("room").within(time(1)).await.is_ok());
        tokio::time::advance(time(59)).await;
        assert!(joined("rt-1", Ok(None)).is_some());
        assert_eq!(begun.load(Relaxed), 1);
        assert!(joined("rt-2", Err(RefreshError::BrokenOff)).expect("room").within(time(1)).await.is_err());
        assert!(joined("rt-2", Ok(None)).expect("room").within(time(1)).await.is_err(), "the same failure");
        tokio::time::advance(time(5)).await;
        assert!(joined("rt-1", Ok(None)).is_some() && joined("rt-2", Ok(None)).is_some());
        assert_eq!(begun.load(Relaxed), 4);
        for n in 0..MAX_REFRESHES {
            if let Some(wait) = joined(&format!("other {n}"), Ok(None)) {
                assert!(wait.within(time(1)).await.is_ok());
            }
        }
        assert!(joined("one more", Ok(None)).is_none());
        tokio::time::advance(time(61)).await;
        assert!(joined("one more", Ok(None)).is_some());
    }

    #[test]
    fn logouts_are_bounded_and_forgotten_when_their_sessions_are_over() {
        let ended = Ended::default();
        for n in 0..MAX_ENDED {
            assert!(ended.note("sid", &n.to_string(), 100, 200));
        }
        assert!(!ended.note("sid", "x", 199, 300));
        assert!(ended.note("sid", "7", 199, 200), "one that is known already");
        assert!(ended.note("sid", "x", 200, 300));
    }
}
