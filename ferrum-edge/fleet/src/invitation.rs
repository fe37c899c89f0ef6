//! Invitations: an operator passes one to a new edge, which uses it once to enrol.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use argon2::Argon2;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How long an invitation is valid.
pub const VALIDITY: Duration = Duration::from_secs(600);
/// The scheme of its URI.
const SCHEME: &str = "ferrum-fleet://";
/// Digits of what an invitation is found by, and of its secret; five bits each.
const ID_DIGITS: usize = 10;
const SECRET_DIGITS: usize = 26;
/// Without letters that look like others.
const ALPHABET: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz023456789";

/// An invitation as an operator passes it on: `ferrum-fleet://HOST:PORT/CODE?pin=SHA256`.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation {
    /// Where a control plane listens: `HOST:PORT`.
    pub address: String,
    /// One-time code.
    pub code: String,
    /// SHA-256 of the authority's certificate in hexadecimal.
    pub pin: String,
}

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}?pin={}", self.address, self.code, self.pin)
    }
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Why a text is no invitation.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("this is not an invitation; it looks like {SCHEME}HOST:PORT/CODE?pin=SHA256")]
pub struct InvitationError;

impl FromStr for Invitation {
    type Err = InvitationError;

    fn from_str(text: &str) -> Result<Self, InvitationError> {
        let rest = text.trim().strip_prefix(SCHEME).ok_or(InvitationError)?;
        let (address, rest) = rest.split_once('/').ok_or(InvitationError)?;
        let (code, pin) = rest.split_once("?pin=").ok_or(InvitationError)?;
        let is_pin = pin.len() == 64 && pin.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_pin || !is_address(address) || id_of(code).is_none() {
            return Err(InvitationError);
        }
        Ok(Self { address: address.to_owned(), code: code.to_owned(), pin: pin.to_ascii_lowercase() })
    }
}

/// Whether this is `HOST:PORT`.
pub fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '[' | ']' | ':');
    let is_host = !host.is_empty()
        && host.chars().all(is_inner)
        && (host.starts_with('[') && host.ends_with(']') || !host.contains([':', '[', ']']));
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Why no code can be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CodeError {
    /// The machine has no randomness.
    #[error("this machine has no randomness")]
    Randomness,
    /// No memory for the hash.
    #[error("it can't be hashed: {0}")]
    Hash(argon2::Error),
}

/// What of a code is kept: nothing that leads back to it.
#[derive(Clone, Serialize, Deserialize)]
pub struct CodeHash {
    salt: String,
    /// argon2id with the parameters of OWASP: 19 MiB, 2 passes, 1 lane.
    hash: String,
}

impl fmt::Debug for CodeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CodeHash")
    }
}

/// A new code: what it is found by, the code, and what is kept of it.
///
/// # Errors
/// When there is no randomness or no memory.
pub fn new_code() -> Result<(String, String, CodeHash), CodeError> {
    let mut random = [0_u8; ID_DIGITS + SECRET_DIGITS + 16];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| CodeError::Randomness)?;
    let digit = |byte: &u8| char::from(ALPHABET[usize::from(byte % 32)]);
    let (digits, salt) = random.split_at(ID_DIGITS + SECRET_DIGITS);
    let id: String = digits.iter().take(ID_DIGITS).map(digit).collect();
    let secret: String = digits.iter().skip(ID_DIGITS).map(digit).collect();
    let code = format!("{id}-{secret}");
    let hash = argon2id(&code, salt)?;
    Ok((id, code, CodeHash { salt: hex(salt), hash: hex(&hash) }))
}

/// What an invitation's code is found by; `None` if this is no code.
pub fn id_of(code: &str) -> Option<&str> {
    let (id, secret) = code.split_once('-')?;
    let is_code = id.len() == ID_DIGITS && secret.len() == SECRET_DIGITS;
    (is_code && code.bytes().all(|digit| digit == b'-' || ALPHABET.contains(&digit))).then_some(id)
}

impl CodeHash {
    /// Whether this is the code. Takes some 20 ms and 19 MiB: not for a thread that others wait for.
    pub fn verify(&self, code: &str) -> bool {
        let (Some(salt), Some(hash)) = (unhex(&self.salt), unhex(&self.hash)) else { return false };
        argon2id(code, &salt).is_ok_and(|found| verify_slices_are_equal(&found, &hash).is_ok())
    }
}

fn argon2id(code: &str, salt: &[u8]) -> Result<[u8; 32], CodeError> {
    let mut hash = [0; 32];
    let result = Argon2::default().hash_password_into(code.as_bytes(), salt, &mut hash);
    result.map(|()| hash).map_err(CodeError::Hash)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_verified_and_nothing_else_is() {
        let (id, code, hash) = new_code().unwrap();
        let (_, other, _) = new_code().unwrap();
        assert_eq!(id_of(&code), Some(id.as_str()));
        assert!(hash.verify(&code) && !hash.verify(&other) && !hash.verify(""));
        let kept = serde_json::to_string(&hash).unwrap();
        let secret = code.split_once('-').unwrap().1;
        assert!(!kept.contains(secret) && !format!("{hash:?}").contains(secret));
    }

    #[test]
    fn invitations_are_read_as_they_are_written() {
        let code = new_code().unwrap().1;
        let pin = "ab".repeat(32);
        for address in ["fleet.example.org:9443", "10.0.0.7:1", "[2001:db8::1]:9443"] {
            let invitation = Invitation { address: address.to_owned(), code: code.clone(), pin: pin.clone() };
            assert_eq!(invitation.to_string().parse(), Ok(invitation.clone()));
            assert!(!format!("{invitation:?}").contains(&code), "a log does not contain the code");
        }
        for wrong in [
            String::new(),
            format!("https://h:1/{code}?pin={pin}"),
            format!("ferrum-fleet://h/{code}?pin={pin}"),
            format!("ferrum-fleet://h:0/{code}?pin={pin}"),
            format!("ferrum-fleet://h:1/{code}"),
            format!("ferrum-fleet://h:1/{code}?pin=12"),
            format!("ferrum-fleet://h:1/short-code?pin={pin}"),
            format!("ferrum-fleet://a b:1/{code}?pin={pin}"),
            format!("ferrum-fleet://2001:db8::1:9/{code}?pin={pin}"),
        ] {
            assert_eq!(wrong.parse::<Invitation>(), Err(InvitationError), "{wrong}");
        }
    }
}
