//! Passkeys: what an authenticator answers when a passkey is made or used (W3C Web Authentication, Level 2).
//!
//! Attestation is not asked for: which make an authenticator is does not matter. User verification is, so a passkey is two factors:
//! the device, and what opens it.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rsa::PublicKeyComponents;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use thiserror::Error;

/// COSE algorithms in order of preference: ES256, and RS256, which is all that some devices with Windows have.
pub(crate) const ALGORITHMS: [i64; 2] = [ES256, RS256];
const ES256: i64 = -7;
const RS256: i64 = -257;

/// Flags of authenticator data (§6.1).
const USER_PRESENT: u8 = 1;
const USER_VERIFIED: u8 = 1 << 2;
const HAS_CREDENTIAL: u8 = 1 << 6;
/// Hash, flags and counter.
const FIXED_BYTES: usize = 37;
/// Bytes of a credential's id at most (§5.8.3).
const MAX_ID: usize = 1023;

/// What an answer has to be about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'e> {
    /// What the gateway sent, once.
    pub(crate) challenge: &'e [u8],
    /// The host that the console is opened by, without a port.
    pub(crate) rp_id: &'e str,
    /// Host and port of the console, as the browser names them.
    pub(crate) authority: &'e str,
}

/// A passkey that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewPasskey {
    pub(crate) id: Vec<u8>,
    /// The public key as COSE has it.
    pub(crate) key: Vec<u8>,
    pub(crate) counter: u32,
}

/// Why an answer is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum PasskeyError {
    #[error("the answer of the browser can't be read")]
    ClientData,
    #[error("it was asked for something else")]
    Type,
    #[error("it answers another challenge")]
    Challenge,
    #[error("it was made for a page of another site")]
    Origin,
    #[error("it was made for another host")]
    Host,
    #[error("the authenticator's answer can't be read")]
    AuthenticatorData,
    #[error("the authenticator did not verify its user: set up a PIN, a fingerprint or the like")]
    UserVerification,
    #[error("its key has a type that is not supported; ES256 and RS256 are")]
    Key,
    #[error("its signature is wrong")]
    Signature,
    #[error("its counter went back: the passkey may have been copied")]
    Counter,
}

#[derive(Deserialize)]
struct ClientData {
    #[serde(rename = "type")]
    kind: String,
    challenge: String,
    origin: String,
    #[serde(default, rename = "crossOrigin")]
    is_cross_origin: bool,
}

/// Authenticator data without what follows the counter.
struct Head<'d> {
    flags: u8,
    counter: u32,
    rest: &'d [u8],
}

/// Whether browsers make passkeys for a console that is opened by this host: an address has none.
pub(crate) fn is_host(host: &str) -> bool {
    !host.is_empty() && !host.starts_with('[') && host.parse::<std::net::IpAddr>().is_err()
}

/// Checks what an authenticator answers to the making of a passkey (§7.1).
///
/// # Errors
/// Why it is not accepted.
pub(crate) fn verify_new(
    expected: Expected<'_>,
    client_data: &[u8],
    authenticator_data: &[u8],
) -> Result<NewPasskey, PasskeyError> {
    check_client_data(expected, client_data, "webauthn.create")?;
    let Head { flags, counter, rest } = head(expected, authenticator_data)?;
    if flags & HAS_CREDENTIAL == 0 {
        return Err(PasskeyError::AuthenticatorData);
    }
    let unreadable = PasskeyError::AuthenticatorData;
    let (_model, rest) = rest.split_at_checked(16).ok_or(unreadable)?;
    let (length, rest) = rest.split_first_chunk::<2>().ok_or(unreadable)?;
    let length = usize::from(u16::from_be_bytes(*length));
    let (id, key) = rest.split_at_checked(length).ok_or(unreadable)?;
    if id.is_empty() || id.len() > MAX_ID {
        return Err(unreadable);
    }
    let mut reader = CborReader(key);
    public_key(&mut reader).ok_or(PasskeyError::Key)?;
    let used = key.len() - reader.0.len();
    Ok(NewPasskey { id: id.to_vec(), key: key[..used].to_vec(), counter })
}

/// Checks what an authenticator answers to a login (§7.2), by the public key and the counter of the passkey; returns the counter.
///
/// # Errors
/// Why it is not accepted.
pub(crate) fn verify_login(
    expected: Expected<'_>,
    client_data: &[u8],
    authenticator_data: &[u8],
    signature: &[u8],
    key: &[u8],
    counter: u32,
) -> Result<u32, PasskeyError> {
    check_client_data(expected, client_data, "webauthn.get")?;
    let head = head(expected, authenticator_data)?;
    let signed = [authenticator_data, digest(&SHA256, client_data).as_ref()].concat();
    let key = public_key(&mut CborReader(key)).ok_or(PasskeyError::Key)?;
    if !key.has_signed(&signed, signature) {
        return Err(PasskeyError::Signature);
    }
    // An authenticator without a counter always answers 0.
    if (head.counter != 0 || counter != 0) && head.counter <= counter {
        return Err(PasskeyError::Counter);
    }
    Ok(head.counter)
}

fn check_client_data(expected: Expected<'_>, text: &[u8], kind: &str) -> Result<(), PasskeyError> {
    let data: ClientData = serde_json::from_slice(text).map_err(|_| PasskeyError::ClientData)?;
    if data.kind != kind {
        return Err(PasskeyError::Type);
    }
    if URL_SAFE_NO_PAD.decode(&data.challenge).ok().as_deref() != Some(expected.challenge) {
        return Err(PasskeyError::Challenge);
    }
    let (scheme, authority) = data.origin.split_once("://").ok_or(PasskeyError::Origin)?;
    // Browsers make passkeys on encrypted pages and on localhost only, so a proxy that ends TLS in front is no obstacle.
    let is_secure = scheme == "https" || scheme == "http" && expected.rp_id == "localhost";
    if !is_secure || data.is_cross_origin || !authority.eq_ignore_ascii_case(expected.authority) {
        return Err(PasskeyError::Origin);
    }
    Ok(())
}

fn head<'d>(expected: Expected<'_>, data: &'d [u8]) -> Result<Head<'d>, PasskeyError> {
    let (fixed, rest) = data.split_at_checked(FIXED_BYTES).ok_or(PasskeyError::AuthenticatorData)?;
    let (hash, fixed) = fixed.split_at(32);
    if digest(&SHA256, expected.rp_id.as_bytes()).as_ref() != hash {
        return Err(PasskeyError::Host);
    }
    let [flags, a, b, c, d] = *fixed else { return Err(PasskeyError::AuthenticatorData) };
    if flags & (USER_PRESENT | USER_VERIFIED) != USER_PRESENT | USER_VERIFIED {
        return Err(PasskeyError::UserVerification);
    }
    Ok(Head { flags, counter: u32::from_be_bytes([a, b, c, d]), rest })
}

/// The public key of a passkey.
enum PublicKey<'k> {
    /// A point of P-256, uncompressed.
    Es256([u8; 65]),
    Rs256 {
        modulus: &'k [u8],
        exponent: &'k [u8],
    },
}

impl PublicKey<'_> {
    fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Es256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(message, signature).is_ok()
            }
            Self::Rs256 { modulus, exponent } => PublicKeyComponents { n: *modulus, e: *exponent }
                .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
                .is_ok(),
        }
    }
}

/// A COSE key (RFC 9053 §2.1, §7.1; RFC 8230 §4) of a supported type.
fn public_key<'k>(reader: &mut CborReader<'k>) -> Option<PublicKey<'k>> {
    let (mut kind, mut algorithm, mut curve) = (None, None, None);
    let [mut first, mut second, mut third] = [None; 3];
    for _ in 0..reader.map()? {
        match (reader.integer()?, reader.item()?) {
            (1, CborItem::Integer(value)) => kind = Some(value),
            (3, CborItem::Integer(value)) => algorithm = Some(value),
            (-1, CborItem::Integer(value)) => curve = Some(value),
            (-1, CborItem::Bytes(value)) => first = Some(value),
            (-2, CborItem::Bytes(value)) => second = Some(value),
            (-3, CborItem::Bytes(value)) => third = Some(value),
            _ => {}
        }
    }
    match (kind?, algorithm?) {
        (2, ES256) if curve == Some(1) => {
            let mut point = [4; 65];
            point.get_mut(1..33)?.copy_from_slice(second.filter(|x| x.len() == 32)?);
            point.get_mut(33..)?.copy_from_slice(third.filter(|y| y.len() == 32)?);
            Some(PublicKey::Es256(point))
        }
        (3, RS256) => Some(PublicKey::Rs256 { modulus: first?, exponent: second? }),
        _ => None,
    }
}

/// Reads the part of CBOR (RFC 8949) that keys consist of: integers, byte strings, and maps of them.
struct CborReader<'d>(&'d [u8]);

enum CborItem<'d> {
    Integer(i64),
    Bytes(&'d [u8]),
}

impl<'d> CborReader<'d> {
    fn take(&mut self, count: usize) -> Option<&'d [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// The type of the next item, and its number.
    fn head(&mut self) -> Option<(u8, u64)> {
        let first = *self.take(1)?.first()?;
        let bytes = match first & 0x1f {
            direct @ 0..24 => return Some((first >> 5, u64::from(direct))),
            24 => self.take(1)?,
            25 => self.take(2)?,
            26 => self.take(4)?,
            27 => self.take(8)?,
            _ => return None,
        };
        Some((first >> 5, bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))))
    }

    fn map(&mut self) -> Option<u64> {
        let (kind, entries) = self.head()?;
        (kind == 5 && entries <= 16).then_some(entries)
    }

    fn integer(&mut self) -> Option<i64> {
        match self.item()? {
            CborItem::Integer(value) => Some(value),
            CborItem::Bytes(_) => None,
        }
    }

    fn item(&mut self) -> Option<CborItem<'d>> {
        match self.head()? {
            (0, number) => i64::try_from(number).ok().map(CborItem::Integer),
            (1, number) => i64::try_from(number).ok().map(|number| CborItem::Integer(-1 - number)),
            (2, length) => self.take(usize::try_from(length).ok()?).map(CborItem::Bytes),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
