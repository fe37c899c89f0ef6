//! What two connections must have in common before one may stand in for the other.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use crate::config::model::{BackendHttp, BackendTls, Congestion, Scheme, SocketRules};

/// The identity and the trust of a connection. Policy, such as timeouts and pool sizes, is no part of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// How the target is spoken to.
    pub scheme: Scheme,
    /// Which HTTP version is wished for.
    pub http: BackendHttp,
    /// The target's name or address; also what its certificate must say, unless `tls` names something else.
    pub host: Arc<str>,
    /// The target's port.
    pub port: u16,
    /// Used instead of looking the name up.
    pub dns_override: Option<IpAddr>,
    /// Verification, roots, client certificate and server name.
    pub tls: Option<Arc<BackendTls>>,
    /// How the kernel sends.
    pub congestion: Option<Congestion>,
    /// From where, and how, the kernel connects.
    pub sockets: Option<Arc<SocketRules>>,
    /// The target whose connections are counted; they are nobody else's.
    pub counted_as: Option<u64>,
}

/// An identity with its number. Numbers are never used again within a process.
#[derive(Debug)]
pub struct Key {
    number: u64,
    identity: Identity,
}

impl Key {
    /// What pools go by.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What to dial.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Gives equal identities the same key. Held by whoever compiles configurations, from one reload to the next.
///
/// Identities are compared in full: two that merely hash alike get two keys.
#[derive(Debug, Default)]
pub struct Interner {
    keys: HashMap<Identity, Arc<Key>, foldhash::fast::RandomState>,
}

/// A number no key had before.
fn next_number() -> u64 {
    static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
    NEXT_NUMBER.fetch_add(1, Relaxed)
}

/// Pool numbers of targets that are only known once an exchange or a call goes there, for one way of speaking to them
/// (scheme, TLS, version). Read without a lock. Takes no room until it is first asked.
#[derive(Debug, Default)]
pub struct KeyCache(OnceLock<Box<ArcSwap<Numbers>>>);

/// Pool numbers by host, port and the target whose connections are counted.
type Numbers = HashMap<(Arc<str>, u16, Option<u64>), u64, foldhash::fast::RandomState>;

/// Targets a cache knows; beyond it they get new numbers, and their kept connections idle out.
const MAX_CACHED: usize = 10_000;

impl KeyCache {
    /// The number of this target.
    pub fn number(&self, host: &Arc<str>, port: u16, counted_as: Option<u64>) -> u64 {
        let numbers = self.0.get_or_init(Box::default);
        let key = (host.clone(), port, counted_as);
        if let Some(number) = numbers.load().get(&key) {
            return *number;
        }
        let fresh = next_number();
        numbers.rcu(|known| {
            let mut next = if known.len() < MAX_CACHED { Numbers::clone(known) } else { Numbers::default() };
            next.entry(key.clone()).or_insert(fresh);
            next
        });
        numbers.load().get(&key).copied().unwrap_or(fresh)
    }
}

impl Interner {
    /// The key of this identity.
    pub fn intern(&mut self, identity: Identity) -> Arc<Key> {
        if let Some(key) = self.keys.get(&identity) {
            return key.clone();
        }
        let key = Arc::new(Key { number: next_number(), identity: identity.clone() });
        self.keys.insert(identity, key.clone());
        key
    }

    /// Forgets the keys nobody else holds any more and returns them, so that pools can close what they kept.
    ///
    /// Call it after a reload, once the old configuration is gone. Walks over all keys.
    pub fn sweep(&mut self) -> Vec<Arc<Key>> {
        let unused = self.keys.extract_if(|_, key| Arc::strong_count(key) == 1).map(|(_, key)| key).collect();
        if self.keys.capacity() > 4 * self.keys.len() {
            self.keys.shrink_to_fit();
        }
        unused
    }

    /// Keys known.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is known.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::path::PathBuf;

    use super::*;

    fn plain(host: &str) -> Identity {
        Identity {
            scheme: Scheme::Https,
            http: BackendHttp::Auto,
            host: Arc::from(host),
            port: 443,
            dns_override: None,
            tls: Some(Arc::new(tls())),
            congestion: None,
            sockets: None,
            counted_as: None,
        }
    }

    fn tls() -> BackendTls {
        BackendTls { verify: true, ca_path: None, client_cert: None, server_name: None }
    }

    #[test]
    fn equal_identities_share_a_key() {
        let mut interner = Interner::default();
        let first = interner.intern(plain("a"));
        assert_eq!(first.number(), interner.intern(plain("a")).number());
        assert_eq!(&*first.identity().host, "a");
        assert_eq!(interner.len(), 1);
    }

    #[test]
    fn any_difference_in_trust_makes_another_key() {
        let with_tls = |tls| Identity { tls: Some(Arc::new(tls)), ..plain("a") };
        let different = [
            plain("a"),
            plain("b"),
            Identity { scheme: Scheme::Http, ..plain("a") },
            Identity { http: BackendHttp::Http2, ..plain("a") },
            Identity { port: 444, ..plain("a") },
            Identity { counted_as: Some(1), ..plain("a") },
            Identity { dns_override: Some(Ipv4Addr::LOCALHOST.into()), ..plain("a") },
            Identity {
                sockets: Some(Arc::new(SocketRules { mptcp: true, ..SocketRules::default() })),
                ..plain("a")
            },
            Identity { tls: None, ..plain("a") },
            with_tls(BackendTls { verify: false, ..tls() }),
            with_tls(BackendTls { ca_path: Some(PathBuf::from("ca")), ..tls() }),
            with_tls(BackendTls { client_cert: Some((PathBuf::from("c"), PathBuf::from("k"))), ..tls() }),
            with_tls(BackendTls { server_name: Some(Arc::from("b")), ..tls() }),
        ];
        let mut interner = Interner::default();
        let keys = different.clone().map(|identity| interner.intern(identity));
        assert_eq!(interner.len(), different.len());
        drop(keys);
    }

    #[test]
    fn forgets_what_nobody_holds_and_never_reuses_a_number() {
        let mut interner = Interner::default();
        let kept = interner.intern(plain("kept"));
        let gone = interner.intern(plain("gone")).number();
        let swept: Vec<_> = interner.sweep().iter().map(|key| key.number()).collect();
        assert_eq!((swept, interner.len()), (vec![gone], 1));
        assert_eq!(interner.intern(plain("kept")).number(), kept.number());
        assert_ne!(interner.intern(plain("gone")).number(), gone);
    }
}
