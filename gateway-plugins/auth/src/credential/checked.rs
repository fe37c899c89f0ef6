//! Credentials that were checked a short while ago.

use aws_lc_rs::{digest, hmac, rand};
use gateway_core::plugin::world::per_worker::PerWorker;
use gateway_plugin_common::generations::Generations;

/// What a credential is kept under: a hash of it, never itself.
pub(crate) type Print = [u8; 32];

/// What checks came to, for each worker its own, in bounded room and without a sweep: when one half is full, the older
/// half is dropped.
pub(crate) struct CheckCache<T: Send> {
    workers: PerWorker<Checked<T>>,
    half: usize,
}

/// The same for secrets that could be guessed, such as passwords: under a digest whose key is this process's and random, so that
/// what is kept is worth nothing elsewhere, and the secret can't be had from it.
pub(crate) struct Secrets<T: Send> {
    key: hmac::Key,
    pub(crate) checked: CheckCache<T>,
}

impl<T: Send + Clone> Secrets<T> {
    /// Room for so many on each worker; 0 keeps nothing.
    pub(crate) fn new(size: u32) -> Self {
        let mut random = [0; 32];
        // Without randomness nothing is remembered: a key that could be known is none.
        let size = if rand::fill(&mut random).is_ok() { size } else { 0 };
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &random), checked: CheckCache::new(size) }
    }

    /// What the check of these parts is kept under.
    pub(crate) fn print(&self, parts: &[&[u8]]) -> Print {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.sign().as_ref().try_into().unwrap_or_default()
    }
}

/// By print: until when a check holds, and what it came to.
type Checked<T> = Generations<Print, (u64, T)>;

impl<T: Send + Clone> CheckCache<T> {
    /// Room for so many on each worker; 0 keeps nothing.
    pub(crate) fn new(size: u32) -> Self {
        Self { workers: PerWorker::new(), half: usize::try_from(size.div_ceil(2)).unwrap_or(usize::MAX) }
    }

    /// What a token is kept under. Where nothing is kept, nothing is hashed either: that takes as long as a signature by HMAC.
    pub(crate) fn print(&self, token: &[u8]) -> Print {
        if self.half == 0 {
            return Print::default();
        }
        digest::digest(&digest::SHA256, token).as_ref().try_into().unwrap_or_default()
    }

    fn with<R>(&self, work: impl FnOnce(&mut Checked<T>) -> R) -> Option<R> {
        if self.half == 0 {
            return None;
        }
        let mut checked = self.workers.get_or(Generations::default)?;
        Some(work(&mut checked))
    }

    /// What was kept under this print, if its time is not over at this second.
    pub(crate) fn get(&self, print: &Print, now: u64) -> Option<T> {
        self.with(|checked| current(checked, self.half, print, now)).flatten()
    }

    /// Keeps a value until this second.
    pub(crate) fn put(&self, print: Print, value: T, until: u64) {
        self.with(|checked| checked.insert_within(self.half, print, (until, value)));
    }
}

/// What holds at this second. What is used stays when its generation goes.
fn current<T: Clone>(checked: &mut Checked<T>, half: usize, print: &Print, now: u64) -> Option<T> {
    if let Some((until, value)) = checked.newer(print) {
        return (now < *until).then(|| value.clone());
    }
    let (until, value) = checked.remove_older(print)?;
    if now >= until {
        return None;
    }
    checked.insert_within(half, *print, (until, value.clone()));
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_longer_than_its_time() {
        let checked = CheckCache::new(10);
        checked.put([1; 32], "a", 100);
        assert_eq!(checked.get(&[1; 32], 99), Some("a"));
        assert_eq!(checked.get(&[1; 32], 100), None);
        assert_eq!(checked.get(&[2; 32], 0), None);
    }

    #[test]
    fn the_room_is_bounded_and_what_is_used_stays() {
        let checked = CheckCache::new(10);
        for n in 0..100 {
            checked.put([n; 32], n, 1000);
            assert_eq!(checked.get(&[0; 32], 1), Some(0), "after {n}");
        }
        let kept = (0..100).filter(|n| checked.get(&[*n; 32], 1).is_some()).count();
        assert!((5..=10).contains(&kept), "{kept}");
    }

    #[test]
    fn no_room_keeps_nothing() {
        let checked = CheckCache::new(0);
        checked.put([1; 32], "a", 100);
        assert_eq!(checked.get(&[1; 32], 1), None);
    }
}
