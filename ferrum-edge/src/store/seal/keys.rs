//! The operator's keys.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use super::{SealError, hex};

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Keys there may be: the one in use, and those that what was written before needs.
pub const MAX_KEYS: usize = 16;
/// Bytes of a key's name.
const NAME_BYTES: usize = 4;

/// Keys for credentials: the first encrypts, each may decrypt. To change the key, add the new one behind the others on every
/// gateway, so that all can read it, then put it first, write the objects again (`dump` and `apply` do), and take the old one away.
#[derive(Clone, Default)]
pub struct Keys(Vec<Key>);

#[derive(Clone)]
struct Key {
    /// By which what it sealed names it; tells nothing about it.
    name: String,
    cipher: std::sync::Arc<LessSafeKey>,
    nonces: hmac::Key,
    #[cfg(feature = "fleet")]
    groups: hmac::Key,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.name)).finish()
    }
}

impl Keys {
    /// Keys as an operator writes them: 64 hexadecimal digits or base64 each, with commas or white space between them.
    ///
    /// # Errors
    /// [`SealError::Key`] and [`SealError::Keys`].
    pub fn parse(text: &str) -> Result<Self, SealError> {
        let words = text.split([',', ' ', '\t', '\r', '\n']).filter(|word| !word.is_empty());
        let keys: Vec<_> = (1..)
            .zip(words)
            .map(|(number, word)| bytes(word).as_ref().and_then(Key::new).ok_or(SealError::Key { number }))
            .collect::<Result<_, _>>()?;
        if keys.is_empty() || keys.len() > MAX_KEYS {
            return Err(SealError::Keys(keys.len()));
        }
        Ok(Self(keys))
    }

    /// The keys of `FERRUM_DB_ENCRYPTION_KEY`, else of the file that `FERRUM_DB_ENCRYPTION_KEY_FILE` names; none where
    /// neither is set. `variable` looks one up.
    ///
    /// # Errors
    /// As [`Self::parse`], and [`SealError::File`].
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, SealError> {
        let set = |name| variable(name).filter(|value| !value.trim().is_empty());
        match (set("FERRUM_DB_ENCRYPTION_KEY"), set("FERRUM_DB_ENCRYPTION_KEY_FILE")) {
            (Some(text), _) => Self::parse(&text),
            (None, Some(path)) => {
                Self::parse(&std::fs::read_to_string(path.trim()).map_err(SealError::File)?)
            }
            (None, None) => Ok(Self::default()),
        }
    }

    /// Whether there is none, so that nothing can be encrypted.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys of a group of edges, as [`Self::parse`] reads them. They open nothing of another group or of the database.
    #[cfg(feature = "fleet")]
    pub(crate) fn of_group(&self, group: &str) -> String {
        let keys: Vec<_> =
            self.0.iter().map(|key| hex(hmac::sign(&key.groups, group.as_bytes()).as_ref())).collect();
        keys.join(",")
    }

    /// The name of the key it took, and the nonce with what is encrypted; `None` without a key.
    pub(super) fn seal(&self, plain: &[u8], place: &[u8]) -> Option<(&str, Vec<u8>)> {
        let key = self.0.first()?;
        // The length keeps place and text apart.
        let length = (place.len() as u64).to_be_bytes();
        let tag = hmac::sign(&key.nonces, &[&length, place, plain].concat());
        let nonce: [u8; NONCE_LEN] = tag.as_ref().get(..NONCE_LEN)?.try_into().ok()?;
        let mut bytes = plain.to_vec();
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        key.cipher.seal_in_place_append_tag(nonce_used, Aad::from(place), &mut bytes).ok()?;
        Some((&key.name, [nonce.as_slice(), &bytes].concat()))
    }

    /// What was sealed by the key of this name, at this place.
    pub(super) fn open(&self, name: &str, sealed: Vec<u8>, place: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut keys = self.0.iter().filter(|key| key.name == name).peekable();
        if keys.peek().is_none() {
            return Err("its key is not among those that are set");
        }
        let changed = "it was changed, or belongs to another consumer or type";
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(changed)?;
        keys.find_map(|key| {
            let mut bytes = sealed.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let plain = key.cipher.open_in_place(nonce, Aad::from(place), &mut bytes).ok()?;
            Some(plain.to_vec())
        })
        .ok_or(changed)
    }
}

impl Key {
    /// One key of the operator's is never used for two things, so several are derived from it.
    fn new(bytes: &[u8; KEY_BYTES]) -> Option<Self> {
        let given = hmac::Key::new(hmac::HMAC_SHA256, bytes);
        let derived =
            |purpose: &str| hmac::sign(&given, format!("ferrum-edge credentials v1 {purpose}").as_bytes());
        let cipher = UnboundKey::new(&AES_256_GCM, derived("cipher").as_ref()).ok()?;
        Some(Self {
            name: hex(derived("name").as_ref().get(..NAME_BYTES)?),
            cipher: std::sync::Arc::new(LessSafeKey::new(cipher)),
            nonces: hmac::Key::new(hmac::HMAC_SHA256, derived("nonce").as_ref()),
            #[cfg(feature = "fleet")]
            groups: hmac::Key::new(hmac::HMAC_SHA256, derived("group").as_ref()),
        })
    }
}

fn bytes(word: &str) -> Option<[u8; KEY_BYTES]> {
    if word.len() == 2 * KEY_BYTES && word.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        let digits: Vec<u8> =
            word.chars().filter_map(|digit| digit.to_digit(16)).map(|it| it as u8).collect();
        let bytes: Vec<u8> =
            digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
        return bytes.try_into().ok();
    }
    let engines = [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD];
    engines.iter().find_map(|engine| engine.decode(word).ok()?.try_into().ok())
}
