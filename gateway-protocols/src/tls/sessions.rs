//! Sessions to resume, each of them once.
//!
//! Early data is accepted only with a session that is kept here and goes from here when it is used: whoever repeats a
//! client's first octets finds no session, has to make a whole handshake, and can't. Nothing of this outlives the
//! process or is shared with another, so that neither a restart nor another gateway takes a repetition either.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use rustls::server::StoresServerSessions;

/// Sessions kept, at some 300 octets each; beyond that the oldest go.
pub(crate) const MAX_SESSIONS: usize = 32_768;

/// The sessions of one listener's clients, on all workers.
#[derive(Default)]
pub(crate) struct Sessions {
    shelves: Mutex<Shelves>,
}

/// Two halves: when the new one is full, it becomes the old one, and the old one goes. So the oldest go without anybody
/// looking for them.
#[derive(Default)]
struct Shelves {
    new: Shelf,
    old: Shelf,
}

type Shelf = HashMap<Vec<u8>, Vec<u8>>;

impl Sessions {
    fn with<T>(&self, work: impl FnOnce(&mut Shelves) -> T) -> T {
        work(&mut self.shelves.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.with(|shelves| {
            if shelves.new.len() >= MAX_SESSIONS / 2 {
                shelves.old = std::mem::take(&mut shelves.new);
            }
            shelves.new.insert(key, value);
        });
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.with(|shelves| shelves.new.get(key).or_else(|| shelves.old.get(key)).cloned())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.with(|shelves| {
            // Both are looked at: TLS 1.2 puts a session a second time under its key.
            let old = shelves.old.remove(key);
            shelves.new.remove(key).or(old)
        })
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Vec<u8> {
        n.to_be_bytes().to_vec()
    }

    #[test]
    fn a_session_is_taken_once() {
        let sessions = Sessions::default();
        sessions.put(key(1), b"one".to_vec());
        assert_eq!(sessions.get(&key(1)).as_deref(), Some(&b"one"[..]));
        assert_eq!(sessions.take(&key(1)).as_deref(), Some(&b"one"[..]));
        assert_eq!(sessions.take(&key(1)), None);
        // Also when it was put twice, once on either shelf.
        sessions.put(key(1), b"one".to_vec());
        for n in 2..2 + MAX_SESSIONS / 2 {
            sessions.put(key(n), Vec::new());
        }
        sessions.put(key(1), b"two".to_vec());
        assert_eq!(sessions.take(&key(1)).as_deref(), Some(&b"two"[..]));
        assert_eq!(sessions.take(&key(1)), None);
    }

    #[test]
    fn there_are_never_more_than_the_limit_and_the_newest_stay() {
        let sessions = Sessions::default();
        for n in 0..MAX_SESSIONS * 2 {
            sessions.put(key(n), Vec::new());
        }
        let kept = sessions.with(|shelves| shelves.new.len() + shelves.old.len());
        assert!(kept <= MAX_SESSIONS && kept > MAX_SESSIONS / 2, "{kept}");
        assert!(sessions.get(&key(MAX_SESSIONS * 2 - 1)).is_some());
        assert!(sessions.get(&key(0)).is_none());
    }
}
