//! Which session is whose, by the client's address. A session knows its address itself, so that the table of very many has none.

use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;
use slab::Slab;

use super::questions::slot_of;
use super::session::Session;
use super::stray::AddressPair;

/// Keys of sessions by the addresses that these have.
#[derive(Default)]
pub(crate) struct ClientTable {
    hasher: RandomState,
    known: HashTable<KnownSession>,
}

struct KnownSession {
    /// Of the session's addresses, so that a growing table asks no session.
    hash: u64,
    key: u64,
}

/// Tells the addresses of the session with a key.
pub(crate) fn addresses(sessions: &Slab<Session>) -> impl Fn(u64) -> Option<AddressPair> {
    |key| sessions.get(slot_of(key)).map(|session| session.pair)
}

impl ClientTable {
    /// The session of these addresses.
    pub(crate) fn get(&self, pair: AddressPair, of: impl Fn(u64) -> Option<AddressPair>) -> Option<u64> {
        let hash = self.hasher.hash_one(pair);
        self.known.find(hash, |known| known.is(hash, pair, &of)).map(|known| known.key)
    }

    /// Registers a session; the one that had its addresses is returned.
    pub(crate) fn insert(
        &mut self,
        pair: AddressPair,
        key: u64,
        of: impl Fn(u64) -> Option<AddressPair>,
    ) -> Option<u64> {
        let hash = self.hasher.hash_one(pair);
        if let Some(known) = self.known.find_mut(hash, |known| known.is(hash, pair, &of)) {
            return Some(std::mem::replace(&mut known.key, key));
        }
        self.known.insert_unique(hash, KnownSession { hash, key }, |known| known.hash);
        None
    }

    /// Forgets a session that was registered with these addresses; whether it was there.
    pub(crate) fn remove(&mut self, pair: AddressPair, key: u64) -> bool {
        let hash = self.hasher.hash_one(pair);
        self.known.find_entry(hash, |known| known.key == key).map(|entry| entry.remove()).is_ok()
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.known.shrink_to_fit(|known| known.hash);
    }
}

impl KnownSession {
    fn is(&self, hash: u64, pair: AddressPair, of: impl Fn(u64) -> Option<AddressPair>) -> bool {
        self.hash == hash && of(self.key) == Some(pair)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::SocketAddr;

    use super::*;

    fn pair(number: u16) -> AddressPair {
        AddressPair { client: SocketAddr::from(([192, 0, 2, 1], number)), local: None }
    }

    /// What a map with the addresses as keys would say, while sessions come, move and go.
    #[test]
    fn it_answers_as_a_map_by_address() {
        let mut table = ClientTable::default();
        let mut map = HashMap::new();
        // The addresses of the session with each key.
        let mut held: Vec<Option<AddressPair>> = Vec::new();
        let mut number = 12_345_u32;
        for _ in 0..20_000 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let pair = pair((number >> 16) as u16 % 500);
            if number & 0x800 == 0 {
                let key = held.len() as u64;
                held.push(Some(pair));
                let before = table.insert(pair, key, |key| held[key as usize]);
                assert_eq!(before, map.insert(pair, key));
            } else {
                if let Some(key) = map.remove(&pair) {
                    held[key as usize] = None;
                    assert!(table.remove(pair, key));
                }
                assert!(!table.remove(pair, u64::MAX));
            }
            assert_eq!(table.get(pair, |key| held[key as usize]), map.get(&pair).copied());
        }
        table.shrink_to_fit();
        for number in 0..500 {
            let pair = pair(number);
            assert_eq!(table.get(pair, |key| held[key as usize]), map.get(&pair).copied());
        }
    }
}
