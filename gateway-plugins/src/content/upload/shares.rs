//! Limits the uploads that run at a time, in all and per client.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts running uploads. It has one entry for each client with a running upload.
#[derive(Debug)]
pub(super) struct Shares {
    all: usize,
    each: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct UploadPermit {
    shares: Arc<Shares>,
    client: IpAddr,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// All are taken.
    Full,
    /// The client has its share.
    Share,
}

impl Shares {
    pub(super) fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { all, each, taken: Mutex::default() })
    }

    /// A place for this client.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn take(self: &Arc<Self>, client: IpAddr) -> Result<UploadPermit, NoPlace> {
        let client = household(client);
        let mut taken = self.lock();
        if taken.by_client.get(&client).is_some_and(|count| *count >= self.each) {
            return Err(NoPlace::Share);
        }
        if taken.all >= self.all {
            return Err(NoPlace::Full);
        }
        taken.all += 1;
        *taken.by_client.entry(client).or_default() += 1;
        Ok(UploadPermit { shares: self.clone(), client })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UploadPermit {
    fn drop(&mut self) {
        let mut taken = self.shares.lock();
        taken.all = taken.all.saturating_sub(1);
        if let Some(count) = taken.by_client.get_mut(&self.client) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                taken.by_client.remove(&self.client);
            }
        }
    }
}

/// The address that a client is counted by: of IPv6 the first 64 bits, which one customer usually has.
fn household(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_leaves_places_for_others() {
        let shares = Shares::new(3, 2);
        let client = |text: &str| text.parse::<IpAddr>().unwrap();
        let (ann, bob) = (client("192.0.2.1"), client("2001:db8::1"));
        let held = [shares.take(ann).unwrap(), shares.take(ann).unwrap()];
        assert_eq!(shares.take(ann).unwrap_err(), NoPlace::Share);
        assert_eq!(shares.take(client("::ffff:192.0.2.1")).unwrap_err(), NoPlace::Share, "the same address");
        let other = shares.take(bob).unwrap();
        assert_eq!(shares.take(client("2001:db8::2")).unwrap_err(), NoPlace::Full);
        drop((held, other));
        assert!(shares.lock().by_client.is_empty());
        assert!(shares.take(ann).is_ok());
    }
}
