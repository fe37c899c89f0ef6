//! Who may be recognised, and who a caller was recognised as.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::config::index::Index;
use crate::config::model::Consumer;
use crate::config::resolve::CREDENTIALS;

/// A recognised caller: a consumer of the configuration, or a name another party vouched for.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The consumer, when the caller is one.
    pub consumer: Option<Arc<Consumer>>,
    /// The name logs and upstreams see: the consumer's username, or the external subject.
    pub name: Arc<str>,
}

impl Identity {
    /// A consumer of the configuration.
    pub fn consumer(consumer: Arc<Consumer>) -> Self {
        Self { name: consumer.username.clone(), consumer: Some(consumer) }
    }
}

/// Every consumer by what identifies it. Part of the snapshot, so a request sees routes and consumers of one moment.
#[derive(Debug, Clone, Default)]
pub struct Consumers {
    by_credential: Index<Fingerprint, Arc<Identity>>,
}

/// A credential that identifies its owner by itself, digested: neither memory nor the time a look-up takes tells
/// anything about the credentials there are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Fingerprint {
    kind: &'static str,
    digest: [u8; 32],
}

impl Fingerprint {
    fn of(kind: &'static str, text: &[u8]) -> Self {
        Self { kind, digest: Sha256::digest(text).into() }
    }
}

impl Consumers {
    /// An index of these consumers.
    pub fn new<'a>(consumers: impl IntoIterator<Item = &'a Arc<Consumer>>) -> Self {
        let mut index = Self::default();
        for consumer in consumers {
            index.insert(consumer);
        }
        index
    }

    /// Adds a consumer, or replaces what its credentials led to before.
    pub fn insert(&mut self, consumer: &Arc<Consumer>) {
        let identity = Arc::new(Identity::consumer(consumer.clone()));
        for print in fingerprints(consumer) {
            self.by_credential.insert(print, identity.clone());
        }
    }

    /// Forgets a consumer's credentials.
    pub fn remove(&mut self, consumer: &Consumer) {
        for print in fingerprints(consumer) {
            self.by_credential.remove(&print);
        }
    }

    /// The owner of a credential that identifies by itself: `key_auth`'s key, `mtls_auth`'s identity.
    pub fn by_credential(&self, kind: &'static str, text: &[u8]) -> Option<&Arc<Identity>> {
        self.by_credential.get(&Fingerprint::of(kind, text))
    }
}

fn fingerprints(consumer: &Consumer) -> Vec<Fingerprint> {
    let mut prints = Vec::new();
    for kind in CREDENTIALS.iter().filter(|kind| kind.unique) {
        let credentials = consumer.credentials.get(kind.name).map_or(&[][..], Vec::as_slice);
        let texts = credentials.iter().filter_map(|secret| secret.expose().get(kind.key)?.as_str());
        prints.extend(texts.map(|text| Fingerprint::of(kind.name, text.as_bytes())));
    }
    prints
}
