//! Encrypts what browsers keep for the gateway (AES-256-GCM).

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::{hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of a nonce.
const NONCE: usize = 12;

/// Keys for cookies: the first encrypts, all of them decrypt.
pub(super) struct Seal {
    keys: Vec<RandomizedNonceKey>,
    /// Whose cookies they are. One secret may serve several plugin configs, and a session of one provider, or of one client,
    /// must be worth nothing at another.
    owner: String,
}

impl Seal {
    /// Keys from these secrets, for cookies of logins at this issuer as this client; `None` where there is none.
    pub(super) fn new(secrets: &[String], issuer: &str, client: &str) -> Option<Self> {
        let key = |secret: &String| {
            // Its own key for this use: the secret may serve for something else as well.
            let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
            let bytes = hmac::sign(&key, b"ferrum-edge oidc cookie key 1");
            RandomizedNonceKey::new(&AES_256_GCM, bytes.as_ref()).ok()
        };
        let keys: Option<Vec<_>> = secrets.iter().map(key).collect();
        // The length keeps two pairs apart that are the same when they are written after each other.
        let owner = format!("{} {issuer} {client}", issuer.len());
        keys.filter(|keys| !keys.is_empty()).map(|keys| Self { keys, owner })
    }

    /// What a text is encrypted along with.
    fn bound(&self, purpose: &str) -> Aad<Vec<u8>> {
        Aad::from(format!("{purpose} {}", self.owner).into_bytes())
    }

    /// Encrypts a value for a purpose; it can't be used for another.
    pub(super) fn close<T: Serialize>(&self, purpose: &str, value: &T) -> Option<String> {
        let mut bytes = serde_json::to_vec(value).ok()?;
        let nonce = self.keys.first()?.seal_in_place_append_tag(self.bound(purpose), &mut bytes).ok()?;
        Some(URL_SAFE_NO_PAD.encode([nonce.as_ref(), &bytes[..]].concat()))
    }

    /// What was encrypted for this purpose; `None` for anything else.
    pub(super) fn open<T: DeserializeOwned>(&self, purpose: &str, text: &[u8]) -> Option<T> {
        let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, bytes) = sealed.split_at_checked(NONCE)?;
        self.keys.iter().find_map(|key| {
            let mut bytes = bytes.to_vec();
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let plain = key.open_in_place(nonce, self.bound(purpose), &mut bytes).ok()?;
            serde_json::from_slice(plain).ok()
        })
    }
}

/// 32 random bytes as text; `None` when the system has none.
pub(super) fn random() -> Option<String> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_and_purpose_open_it() {
        let seal = |all: &[&str], issuer, client| {
            let all: Vec<_> = all.iter().map(|text| (*text).to_owned()).collect();
            Seal::new(&all, issuer, client).expect("keys")
        };
        let (old, new) = (seal(&["old"], "i", "c"), seal(&["new", "old"], "i", "c"));
        let text = old.close("a", &7).expect("a text");
        assert_eq!(new.open::<u32>("a", text.as_bytes()), Some(7), "a secret that was replaced");
        assert_eq!(new.open::<u32>("b", text.as_bytes()), None);
        for (issuer, client) in [("j", "c"), ("i", "d"), ("i c", ""), ("", "i c")] {
            assert_eq!(
                seal(&["old"], issuer, client).open::<u32>("a", text.as_bytes()),
                None,
                "{issuer} {client}"
            );
        }
        assert_eq!(old.open::<u32>("a", new.close("a", &7).expect("a text").as_bytes()), None);
        assert_ne!(text, old.close("a", &7).expect("a text"), "each time another nonce");
        for at in 0..text.len() {
            let mut bent = text.clone().into_bytes();
            bent[at] = if bent[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(old.open::<u32>("a", &bent), None, "{at}");
        }
        for short in ["", "abc", "*"] {
            assert_eq!(old.open::<u32>("a", short.as_bytes()), None);
        }
    }
}
