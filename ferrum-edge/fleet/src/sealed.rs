//! A configuration in a file, compressed and encrypted with a key of the edge that keeps it.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;

use crate::documents::{DocumentSet, Hash};
use crate::edge::Configuration;
use crate::message::{Transfer, WireError};
use crate::wire::{Assembler, Piece, proto};

use prost::Message as _;
use thiserror::Error;

/// The beginning of such a file.
const MAGIC: &[u8] = b"ferrum-edge last good 1\n";

/// Why a configuration can't be encrypted for a file, or read from one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SealError {
    /// Not one of AES-256.
    #[error("the key can't be used")]
    Key,
    /// The machine has no randomness, or there is more than one nonce allows.
    #[error("it can't be encrypted")]
    Encryption,
    /// The file begins otherwise.
    #[error("it is not a configuration of this version")]
    OtherVersion,
    /// The key does not fit what is there.
    #[error("it was changed, cut off, or is another edge's")]
    Changed,
    /// It is larger than configurations may be, or its messages are not those of a transfer.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A message can't be written.
    #[error(transparent)]
    Encode(#[from] prost::EncodeError),
    /// A message can't be read.
    #[error(transparent)]
    Decode(#[from] prost::DecodeError),
    /// It is not what was sealed.
    #[error("its hash is {found}, not {expected}")]
    Hash {
        /// Of what was read.
        found: Hash,
        /// What its header says.
        expected: Hash,
    },
}

fn cipher(key: &[u8; 32]) -> Result<LessSafeKey, SealError> {
    UnboundKey::new(&AES_256_GCM, key).map(LessSafeKey::new).map_err(|_| SealError::Key)
}

/// A configuration with the keys for its secrets, encrypted.
///
/// # Errors
/// When it is too large, or there is no randomness.
pub fn seal_configuration(
    configuration: &Configuration,
    keys: &str,
    key: &[u8; 32],
) -> Result<Vec<u8>, SealError> {
    let documents = configuration.documents.iter().map(|(key, text)| (key.clone(), text.clone()));
    let transfer = Transfer::new(None, configuration.position.clone(), documents.collect(), Vec::new());
    let encoded = transfer.encode()?;
    let mut plain = Vec::new();
    let welcome = proto::Welcome { keys: keys.to_owned(), ..proto::Welcome::default() };
    welcome.encode_length_delimited(&mut plain)?;
    for number in 0.. {
        let Some(message) = transfer.chunk(&encoded, number) else { break };
        message.encode_length_delimited(&mut plain)?;
    }
    let mut nonce = [0; NONCE_LEN];
    rand::fill(&mut nonce).map_err(|_| SealError::Encryption)?;
    let used = Nonce::assume_unique_for_key(nonce);
    let sealed = cipher(key)?.seal_in_place_append_tag(used, Aad::from(MAGIC), &mut plain);
    sealed.map_err(|_| SealError::Encryption)?;
    Ok([MAGIC, &nonce, &plain].concat())
}

/// The configuration that was sealed, and the keys for its secrets.
///
/// # Errors
/// When it was changed, cut off, or sealed by another key.
pub fn open_configuration(file: &[u8], key: &[u8; 32]) -> Result<(Configuration, String), SealError> {
    let rest = file.strip_prefix(MAGIC).ok_or(SealError::OtherVersion)?;
    let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>().ok_or(SealError::OtherVersion)?;
    let mut bytes = sealed.to_vec();
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let plain = cipher(key)?.open_in_place(nonce, Aad::from(MAGIC), &mut bytes);
    let mut plain: &[u8] = plain.map_err(|_| SealError::Changed)?;
    let keys = proto::Welcome::decode_length_delimited(&mut plain)?.keys;
    let mut assembler = Assembler::default();
    loop {
        let message = proto::ControlMessage::decode_length_delimited(&mut plain)?;
        if let Piece::Whole(whole) = assembler.take(message)? {
            return Ok((checked(whole.transfer()?)?, keys));
        }
    }
}

fn checked(transfer: Transfer) -> Result<Configuration, SealError> {
    let mut documents = DocumentSet::default();
    documents.apply(transfer.changed.into_iter().map(|(key, text)| (key, Some(text))));
    let (found, expected) = (documents.hash(), transfer.to.hash);
    if found != expected {
        return Err(SealError::Hash { found, expected });
    }
    Ok(Configuration { position: transfer.to, documents })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::{DocumentKey, Position};

    #[test]
    fn a_sealed_configuration_opens_by_its_key_alone() {
        let mut documents = DocumentSet::default();
        let text = |n: u32| format!("{{\"token\":\"hidden-{n}\"}}");
        documents.apply((0..1000).map(|n| (DocumentKey::new("proxies", n.to_string()), Some(text(n)))));
        let position = Position { epoch: "e".into(), revision: 4, hash: documents.hash() };
        let configuration = Configuration { position: position.clone(), documents };
        let sealed = seal_configuration(&configuration, "keys", &[7; 32]).unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"hidden"));
        let (opened, keys) = open_configuration(&sealed, &[7; 32]).unwrap();
        assert_eq!(
            (opened.position, opened.documents.hash(), keys.as_str()),
            (position.clone(), position.hash, "keys")
        );
        assert!(open_configuration(&sealed, &[8; 32]).is_err());
        for at in [0, MAGIC.len(), MAGIC.len() + NONCE_LEN, sealed.len() - 1] {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open_configuration(&changed, &[7; 32]).is_err(), "byte {at}");
        }
        assert!(open_configuration(&sealed[..sealed.len() / 2], &[7; 32]).is_err());
        let wrong = Configuration { position: Position::default(), ..configuration };
        let sealed = seal_configuration(&wrong, "", &[7; 32]).unwrap();
        let error = open_configuration(&sealed, &[7; 32]).unwrap_err();
        assert!(matches!(error, SealError::Hash { .. }), "{error}");
    }
}
