//! The keys of consumers, read once.

use std::collections::HashMap;
use std::sync::Arc;

use gateway_core::config::model::Consumer;
use gateway_core::plugin::world::per_worker::PerWorker;
use serde_json::Value;

use super::credential::KEY;
use crate::jose::{Key, Token};

/// Keys that a worker keeps ready; at so many it begins again.
const MAX_READY: usize = 1000;

/// Keys made from secrets and public keys by their text, for each worker its own: making one costs more than a signature.
#[derive(Default)]
pub(super) struct Keys(PerWorker<Ready>);

#[derive(Default)]
struct Ready {
    shared: HashMap<Box<str>, Option<Arc<Key>>>,
    public: HashMap<Box<str>, Option<Arc<Key>>>,
}

impl Keys {
    /// Whether the token is signed with one of the consumer's credentials. One with a `kid` is only tried for tokens
    /// that name it; one without, for any.
    pub(super) fn verify(&self, consumer: &Consumer, token: &Token<'_>) -> bool {
        consumer.secrets(&KEY).any(|credential| {
            let field = |name| credential.expose().get(name).and_then(Value::as_str);
            if field("kid").is_some_and(|id| token.key_id.as_deref() != Some(id)) {
                return false;
            }
            let key = match (field("secret"), field("public_key")) {
                (Some(secret), None) if token.algorithm.is_symmetric() => self.ready(secret, true),
                (None, Some(pem)) if !token.algorithm.is_symmetric() => self.ready(pem, false),
                _ => None,
            };
            key.is_some_and(|key| token.is_signed_with(&key))
        })
    }

    /// The key of this text, made once.
    fn ready(&self, text: &str, is_secret: bool) -> Option<Arc<Key>> {
        let make = || {
            let key = if is_secret { Some(Key::shared(text.as_bytes())) } else { Key::pem(text) };
            key.map(Arc::new)
        };
        let Some(mut ready) = self.0.get_or(Ready::default) else { return make() };
        // A secret is never taken for a public key, nor the other way round.
        let known = if is_secret { &mut ready.shared } else { &mut ready.public };
        if let Some(key) = known.get(text) {
            return key.clone();
        }
        if known.len() >= MAX_READY {
            known.clear();
        }
        let key = make();
        known.insert(text.into(), key.clone());
        key
    }
}
