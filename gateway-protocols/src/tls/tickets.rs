//! Keys of TLS session tickets (RFC 8446 §4.6.1, RFC 5077). All servers of this process that ask for no client certificate share
//! them, so that sessions resume after a reload; the successor of the process inherits them.
//!
//! The key of a period follows from that of the period before and not the other way round: once a key is dropped, nobody can decrypt
//! the tickets of its period.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use rustls::server::ProducesTickets;

/// How long a key encrypts; for as long again it decrypts.
const PERIOD: Duration = Duration::from_secs(6 * 3600);
/// How long a client may use a ticket, in seconds.
const LIFETIME: u32 = 12 * 3600;
/// Periods that keys are derived over; after more, as after a jump of the clock, they are new.
const MAX_STEPS: u64 = 10_000;
const KEY: usize = 32;
/// The number of the period, before the nonce.
const NUMBER: usize = 4;

static KEYS: OnceLock<TicketKeys> = OnceLock::new();

/// The keys of this process, inherited or new.
pub(crate) fn keys() -> &'static TicketKeys {
    KEYS.get_or_init(|| TicketKeys::new(PeriodKeys::fresh(period())))
}

/// Inherits the keys of the predecessor. Call it before the first handshake.
///
/// # Errors
/// This process already has keys.
pub(crate) fn inherit(bytes: [u8; TicketKeys::BYTES]) -> Result<(), &'static str> {
    KEYS.set(TicketKeys::new(PeriodKeys::of(&bytes))).map_err(|_| "this process has keys of its own already")
}

/// The keys of the current period and the one before. None if the system has no random numbers: then there are no tickets.
pub(crate) struct TicketKeys(ArcSwapOption<PeriodKeys>);

struct PeriodKeys {
    period: u64,
    /// From it follow the key of this period and all later ones.
    chain: [u8; KEY],
    current: LessSafeKey,
    /// The key of the period before, as bytes as well, for a successor.
    previous: Option<([u8; KEY], LessSafeKey)>,
}

struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        KEY
    }
}

fn derived(chain: &[u8; KEY], purpose: &[u8]) -> [u8; KEY] {
    let mut key = [0; KEY];
    let filled =
        Prk::new_less_safe(HKDF_SHA256, chain).expand(&[purpose], Length).map(|okm| okm.fill(&mut key));
    debug_assert!(matches!(filled, Ok(Ok(()))), "the length is one that HKDF has");
    key
}

fn aead(key: &[u8; KEY]) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new)
}

fn period() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / PERIOD.as_secs()
}

fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    crate::tls::provider().secure_random.fill(&mut bytes).ok().map(|()| bytes)
}

impl PeriodKeys {
    fn fresh(period: u64) -> Option<Self> {
        Self::from_chain(period, random()?, None)
    }

    fn from_chain(period: u64, chain: [u8; KEY], previous: Option<[u8; KEY]>) -> Option<Self> {
        let current = aead(&derived(&chain, b"ticket key"))?;
        let previous = previous.and_then(|bytes| Some((bytes, aead(&bytes)?)));
        Some(Self { period, chain, current, previous })
    }

    /// Keys of [`PeriodKeys::bytes`]; none of a process that had none.
    fn of(bytes: &[u8; TicketKeys::BYTES]) -> Option<Self> {
        if *bytes == [0; TicketKeys::BYTES] {
            return None;
        }
        let (number, keys) = bytes.split_first_chunk::<8>()?;
        let (chain, keys) = keys.split_first_chunk::<KEY>()?;
        let (previous, _) = keys.split_first_chunk::<KEY>()?;
        let previous = (*previous != [0; KEY]).then_some(*previous);
        Self::from_chain(u64::from_be_bytes(*number), *chain, previous)
    }

    fn bytes(&self) -> [u8; TicketKeys::BYTES] {
        let mut bytes = [0; TicketKeys::BYTES];
        bytes[..8].copy_from_slice(&self.period.to_be_bytes());
        bytes[8..8 + KEY].copy_from_slice(&self.chain);
        if let Some((previous, _)) = &self.previous {
            bytes[8 + KEY..].copy_from_slice(previous);
        }
        bytes
    }

    /// The keys of a later period.
    fn later(&self, period: u64) -> Option<Self> {
        if period - self.period > MAX_STEPS {
            return Self::fresh(period);
        }
        let (mut chain, mut last) = (self.chain, self.chain);
        for _ in self.period..period {
            last = chain;
            chain = derived(&chain, b"next chain");
        }
        Self::from_chain(period, chain, Some(derived(&last, b"ticket key")))
    }

    fn key(&self, number: [u8; NUMBER]) -> Option<&LessSafeKey> {
        if number == number_of(self.period) {
            return Some(&self.current);
        }
        let (_, previous) = self.previous.as_ref()?;
        (number == number_of(self.period.wrapping_sub(1))).then_some(previous)
    }
}

fn number_of(period: u64) -> [u8; NUMBER] {
    (period as u32).to_be_bytes()
}

impl TicketKeys {
    /// Length of [`Self::to_bytes`].
    pub(crate) const BYTES: usize = 8 + 2 * KEY;

    fn new(state: Option<PeriodKeys>) -> Self {
        Self(ArcSwapOption::from_pointee(state))
    }

    /// The keys for the successor.
    pub(crate) fn to_bytes(&self) -> [u8; Self::BYTES] {
        self.at(period()).map_or([0; Self::BYTES], |state| state.bytes())
    }

    /// The keys of this period. A clock that goes back changes nothing.
    fn at(&self, period: u64) -> Option<Arc<PeriodKeys>> {
        let state = self.0.load_full()?;
        if period <= state.period {
            return Some(state);
        }
        // Several threads may do so at once: the first counts.
        let later = Some(Arc::new(state.later(period)?));
        self.0.compare_and_swap(&Some(state), later);
        self.0.load_full()
    }

    fn encrypt(&self, period: u64, context: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        let state = self.at(period)?;
        let (number, nonce) = (number_of(state.period), random::<NONCE_LEN>()?);
        let mut ticket = [&number[..], &nonce].concat();
        let mut sealed = plain.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        state.current.seal_in_place_append_tag(nonce, Aad::from(context), &mut sealed).ok()?;
        ticket.append(&mut sealed);
        Some(ticket)
    }

    fn decrypt(&self, period: u64, context: &[u8], ticket: &[u8]) -> Option<Vec<u8>> {
        let (number, rest) = ticket.split_first_chunk::<NUMBER>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let state = self.at(period)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = state.key(*number)?.open_in_place(nonce, Aad::from(context), &mut sealed).ok()?.len();
        sealed.truncate(plain);
        Some(sealed)
    }
}

/// The tickets of one kind of server. Another kind does not accept them.
pub(super) struct Ticketer {
    context: Vec<u8>,
}

impl Ticketer {
    /// For a server that offers these protocols.
    pub(super) fn new(alpn: &[Vec<u8>]) -> Self {
        let mut context = Vec::new();
        for protocol in alpn {
            context.push(u8::try_from(protocol.len()).unwrap_or(u8::MAX));
            context.extend_from_slice(protocol);
        }
        Self { context }
    }
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticketer").finish_non_exhaustive()
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        keys().encrypt(period(), &self.context, plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        keys().decrypt(period(), &self.context, cipher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(period: u64) -> TicketKeys {
        TicketKeys::new(PeriodKeys::fresh(period))
    }

    #[test]
    fn a_ticket_is_good_for_two_periods() {
        let keys = keys(100);
        let ticket = keys.encrypt(100, b"", b"session").unwrap();
        for (period, opens) in [(100, true), (101, true), (102, false)] {
            assert_eq!(keys.decrypt(period, b"", &ticket).is_some(), opens, "{period}");
        }
        let ticket = keys.encrypt(103, b"", b"session").unwrap();
        assert_eq!(
            keys.decrypt(99, b"", &ticket).as_deref(),
            Some(&b"session"[..]),
            "a clock that went back"
        );
    }

    #[test]
    fn a_successor_reads_the_tickets_of_both_periods_and_goes_on_alike() {
        let first = keys(100);
        let old = first.encrypt(100, b"", b"old").unwrap();
        let new = first.encrypt(101, b"", b"new").unwrap();
        let second = TicketKeys::new(PeriodKeys::of(&first.0.load_full().unwrap().bytes()));
        assert_eq!(second.decrypt(101, b"", &old).as_deref(), Some(&b"old"[..]));
        assert_eq!(second.decrypt(101, b"", &new).as_deref(), Some(&b"new"[..]));
        let later = second.encrypt(105, b"", b"later").unwrap();
        assert_eq!(first.decrypt(105, b"", &later).as_deref(), Some(&b"later"[..]));
    }

    #[test]
    fn tickets_of_others_are_not_opened() {
        let mine = keys(100);
        let ticket = mine.encrypt(100, b"h2", b"session").unwrap();
        assert_eq!(mine.decrypt(100, b"http/1.1", &ticket), None, "another kind of server");
        assert_eq!(keys(100).decrypt(100, b"h2", &ticket), None, "another gateway");
        for end in 0..ticket.len() {
            assert_eq!(mine.decrypt(100, b"h2", &ticket[..end]), None, "{end} bytes of it");
        }
        let mut changed = ticket;
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(mine.decrypt(100, b"h2", &changed), None);
    }

    #[test]
    fn a_clock_that_jumps_far_makes_new_keys() {
        let keys = keys(100);
        let chain = || keys.0.load_full().unwrap().chain;
        let before = chain();
        let ticket = keys.encrypt(100 + MAX_STEPS + 1, b"", b"x").unwrap();
        assert_ne!(chain(), before);
        assert!(keys.decrypt(100 + MAX_STEPS + 1, b"", &ticket).is_some());
    }
}
