//! The keys of consumers, read once.

use std::collections::HashMap;
use std::sync::Arc;

use gateway_core::config::model::Consumer;
use gateway_core::plugin::world::per_worker::PerWorker;
use serde_json::Value;

use super::credential::KEY;
use crate::jose::{Key, Token};

/// Public keys that a worker keeps parsed; at so many it begins again.
const MAX_PARSED: usize = 1000;

/// Parsed public keys by their text, for each worker its own.
#[derive(Default)]
pub(super) struct Keys(PerWorker<HashMap<Box<str>, Option<Arc<Key>>>>);

impl Keys {
    /// Whether the token is signed with one of the consumer's credentials. One with a `kid` is only tried for tokens
    /// that name it; one without, for any.
    pub(super) fn verify(&self, consumer: &Consumer, token: &Token<'_>) -> bool {
        consumer.secrets(&KEY).any(|credential| {
            let field = |name| credential.expose().get(name).and_then(Value::as_str);
            if field("kid").is_some_and(|id| token.key_id.as_deref() != Some(id)) {
                return false;
            }
            match (field("secret"), field("public_key")) {
                (Some(secret), None) if token.algorithm.is_symmetric() => {
                    token.is_signed_with(&Key::shared(secret.as_bytes()))
                }
                (None, Some(pem)) if !token.algorithm.is_symmetric() => {
                    self.parsed(pem).is_some_and(|key| token.is_signed_with(&key))
                }
                _ => false,
            }
        })
    }

    fn parsed(&self, pem: &str) -> Option<Arc<Key>> {
        let Some(mut known) = self.0.get_or(HashMap::new) else { return Key::pem(pem).map(Arc::new) };
        if let Some(key) = known.get(pem) {
            return key.clone();
        }
        if known.len() >= MAX_PARSED {
            known.clear();
        }
        let key = Key::pem(pem).map(Arc::new);
        known.insert(pem.into(), key.clone());
        key
    }
}
