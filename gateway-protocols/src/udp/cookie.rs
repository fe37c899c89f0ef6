//! The cookies of DTLS (RFC 6347 §4.2.1, RFC 9147 §5.1), made so that nothing is kept before one comes back.
//!
//! The engine asks for a cookie by itself, but only an engine that has seen the first hello knows the cookie it gave.
//! So it is given cookies of ours, which can be checked by their look alone; the engine that made the client come back
//! is dropped at once, and one that has heard the first hello again, put together from the second, takes its place.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use dimpl::CryptoError;
use dimpl::crypto::{CryptoProvider, HashAlgorithm, HmacProvider, aws_lc_rs};

use super::cipher_suites;
use super::hello::Hello;
use super::transcript::{TranscriptHashes, TranscriptKeys, TranscriptSignatures};
use crate::handover::secrets;

/// Bytes of a cookie, which the engine decides.
const COOKIE: usize = 32;
/// Bytes of it that say how much padding the first hello had.
const NOTE: usize = 2;
/// How long a cookie is good: for two of these at most.
const PERIOD: Duration = Duration::from_secs(60);
/// What the note says of a hello without padding.
const NO_PADDING: u16 = u16::MAX;
/// What it says of a cookie with the first hello's hash, whose client was asked for another key share or kept its own; no hello has so
/// much padding.
const OTHER_SHARE: u16 = u16::MAX - 1;
const OWN_SHARE: u16 = u16::MAX - 2;
/// The longest hash of a suite: SHA-384.
const MAX_HASH: usize = 48;

thread_local! {
    /// The cookie for a client with this random, while an engine reads its hello.
    static CURRENT: Cell<Option<([u8; 32], [u8; COOKIE])>> = const { Cell::new(None) };
}

/// The first hello's hash, from a cookie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstHello<'d> {
    pub(crate) hash: &'d [u8],
    /// Its client was asked for another key share.
    pub(crate) is_other_share: bool,
}

/// An address that has not been proved, with what its cookie is bound to beside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'h, 'd> {
    pub(crate) hello: &'h Hello<'d>,
    pub(crate) client: SocketAddr,
}

/// What a cookie proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) cookie: [u8; COOKIE],
    /// Padding of the hello it was given for.
    pub(crate) padding: Option<u16>,
}

/// Bytes of what proves an address in a cookie that carries the first hello's hash behind it.
const SHORT_PROOF: usize = 16;

impl Claim<'_, '_> {
    /// A cookie for this client.
    pub(crate) fn fresh(&self) -> Option<Proof> {
        let padding = self.hello.padding();
        let cookie = self.made(padding.unwrap_or(NO_PADDING), period(), &[])?;
        Some(Proof { cookie, padding })
    }

    /// What the cookie in the hello proves, if it is one of ours for this client and not too old.
    pub(crate) fn proof(&self) -> Option<Proof> {
        let cookie: [u8; COOKIE] = self.hello.cookie()?.try_into().ok()?;
        let note = u16::from_be_bytes(*cookie.first_chunk::<NOTE>()?);
        periods()
            .any(|period| self.made(note, period, &[]).is_some_and(|ours| same(&ours, &cookie)))
            .then_some(Proof { cookie, padding: (note != NO_PADDING).then_some(note) })
    }

    /// A cookie for this client that carries the hash of its hello (RFC 8446 §4.2.2).
    pub(crate) fn with_hash(&self, first: FirstHello<'_>) -> Option<Vec<u8>> {
        let note = if first.is_other_share { OTHER_SHARE } else { OWN_SHARE };
        let proof = self.made(note, period(), first.hash)?;
        Some([proof.first_chunk::<SHORT_PROOF>()?, first.hash].concat())
    }

    /// The hash in the hello's cookie, if it is one of ours for this client and not too old.
    pub(crate) fn proven_hash(&self) -> Option<FirstHello<'_>> {
        let (proof, hash) = self.hello.cookie()?.split_first_chunk::<SHORT_PROOF>()?;
        let is_other_share = match u16::from_be_bytes(*proof.first_chunk::<NOTE>()?) {
            OTHER_SHARE => true,
            OWN_SHARE => false,
            _ => return None,
        };
        let note = if is_other_share { OTHER_SHARE } else { OWN_SHARE };
        let fits =
            |ours: [u8; COOKIE]| ours.first_chunk::<SHORT_PROOF>().is_some_and(|ours| same(ours, proof));
        let is_ours = periods().any(|period| self.made(note, period, hash).is_some_and(fits));
        is_ours.then_some(FirstHello { hash, is_other_share })
    }

    /// What only this gateway can make for this client, hello and hash.
    fn made(&self, note: u16, period: u64, hash: &[u8]) -> Option<[u8; COOKIE]> {
        let mut data = [0; NOTE + 8 + 18 + 32 + MAX_HASH];
        let mut room = data.as_mut_slice();
        let ip = match self.client.ip() {
            std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            std::net::IpAddr::V6(ip) => ip,
        };
        let port = self.client.port().to_be_bytes();
        let (note, period) = (note.to_be_bytes(), period.to_be_bytes());
        for piece in [&note[..], &period, &ip.octets(), &port, self.hello.random, hash] {
            let (head, rest) = room.split_at_mut_checked(piece.len())?;
            head.copy_from_slice(piece);
            room = rest;
        }
        let secret = secrets().cookies();
        let mut cookie = aws_lc_rs::default_provider().hmac_provider.hmac_sha256(&secret, &data).ok()?;
        cookie.first_chunk_mut::<NOTE>()?.copy_from_slice(&note);
        Some(cookie)
    }
}

/// In constant time.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other)) == 0
}

fn period() -> u64 {
    // The same in every process that has the keys.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_secs() / PERIOD.as_secs()
}

/// Those whose cookies are good now.
fn periods() -> impl Iterator<Item = u64> {
    let now = period();
    [Some(now), now.checked_sub(1)].into_iter().flatten()
}

impl Proof {
    /// Has engines that read this hello take this cookie for their own.
    pub(crate) fn during<T>(&self, hello: &Hello<'_>, work: impl FnOnce() -> T) -> T {
        /// Also where the work panics.
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                CURRENT.set(None);
            }
        }
        CURRENT.set(Some((*hello.random, self.cookie)));
        let _reset = Reset;
        work()
    }
}

/// aws-lc-rs, with cookies of ours: of all keyed hashes an engine computes, only that of a cookie is over the client's
/// random alone. Transcripts and certificate messages may be others than the engine believes.
pub(crate) fn provider() -> CryptoProvider {
    CryptoProvider {
        hmac_provider: &OurCookies,
        hash_provider: &TranscriptHashes,
        signature_verification: &TranscriptSignatures,
        key_provider: &TranscriptKeys,
        dtls13_cipher_suites: cipher_suites::cipher_suites(),
        ..aws_lc_rs::default_provider()
    }
}

#[derive(Debug)]
struct OurCookies;

impl HmacProvider for OurCookies {
    fn hmac_sha256(&self, key: &[u8], data: &[u8]) -> Result<[u8; 32], CryptoError> {
        match CURRENT.get() {
            Some((random, cookie)) if random == data => Ok(cookie),
            _ => aws_lc_rs::default_provider().hmac_provider.hmac_sha256(key, data),
        }
    }

    fn hmac(
        &self,
        hash: HashAlgorithm,
        key: &[u8],
        data: &[u8],
        out: &mut [u8],
    ) -> Result<usize, CryptoError> {
        aws_lc_rs::default_provider().hmac_provider.hmac(hash, key, data, out)
    }
}
