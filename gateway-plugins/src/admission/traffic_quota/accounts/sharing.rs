//! What accounts tell a shared store, and learn from it.

use super::{Account, Accounts};

/// Of an account, what a shared store is to be told. A store may carry out what it was told and its answer be lost, so it is told
/// the sum of all bytes so far, of which it adds what is new.
#[derive(Debug, Default)]
pub(super) struct SharedPart {
    /// What others have used, as the store said last: other gateways, and this one before its restart.
    others: u64,
    /// What passed here and the store has not confirmed.
    pub(super) unshared: u64,
    /// What this process has told in this period since the last reset, and the store has confirmed.
    confirmed: u64,
    /// Resets by any gateway in this period; `None` before the first answer.
    resets: Option<u64>,
    /// A reset here that the store has not confirmed.
    is_reset: bool,
}

/// What the store is to be told of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admission::traffic_quota) struct Unshared {
    pub(in crate::admission::traffic_quota) key: u64,
    /// When its period ends.
    pub(in crate::admission::traffic_quota) end: u64,
    /// All bytes of this process since the last reset.
    pub(in crate::admission::traffic_quota) bytes: u64,
    /// Of those, bytes that the store has not confirmed.
    new: u64,
    /// The resets that are known here.
    pub(in crate::admission::traffic_quota) resets: Option<u64>,
    /// The usage of all gateways is to be set to zero first.
    pub(in crate::admission::traffic_quota) is_reset: bool,
}

/// What the store says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admission::traffic_quota) struct SharedTotal {
    /// What all gateways have used since the last reset.
    pub(in crate::admission::traffic_quota) used: u64,
    pub(in crate::admission::traffic_quota) resets: u64,
}

impl SharedPart {
    /// After a restart: the store knew of `known`, and is to be told of `unshared`.
    pub(super) fn restored(known: u64, unshared: u64) -> Self {
        Self { others: known, unshared, ..Self::default() }
    }

    pub(super) fn note(&mut self, passed: u64) {
        self.unshared = self.unshared.saturating_add(passed);
    }

    /// Has the store forget what all gateways have used.
    pub(super) fn reset(&mut self) {
        *self = Self { is_reset: true, resets: self.resets, ..Self::default() };
    }
}

impl Account {
    fn learn(&mut self, told: Unshared, answer: SharedTotal) {
        let SharedPart { others, unshared, confirmed, resets, is_reset } = &mut self.sharing;
        if *is_reset && !told.is_reset {
            // It was reset here while the store was asked: the answer is about the time before.
            return;
        }
        let is_reset_elsewhere = !told.is_reset && told.resets.is_some_and(|known| known < answer.resets);
        (*resets, *is_reset) = (Some(answer.resets), false);
        if is_reset_elsewhere {
            // The store has added nothing: what passed before it was asked is forgiven as well.
            (*others, *unshared, *confirmed) = (answer.used, 0, 0);
            self.forgive(self.seen);
            self.quota.add(answer.used);
            self.seen = self.seen.saturating_add(answer.used);
            return;
        }
        // A store that lost its data knows less at first, until all have told it again.
        let of_others = answer.used.saturating_sub(told.bytes);
        let new = of_others.saturating_sub(*others);
        *others = of_others.max(*others);
        *unshared = unshared.saturating_sub(told.new);
        *confirmed = told.bytes;
        self.quota.add(new);
        self.seen = self.seen.saturating_add(new);
    }
}

impl Accounts {
    /// What a shared store is to be told; also of keys without new bytes, which others may have used since.
    pub(in crate::admission::traffic_quota) fn unshared(&self) -> Vec<Unshared> {
        let ledger = self.ledger();
        let told = ledger.accounts.iter().map(|(key, account)| {
            let SharedPart { unshared, confirmed, resets, is_reset, .. } = account.sharing;
            let bytes = confirmed.saturating_add(unshared);
            Unshared { key: *key, end: account.end, bytes, new: unshared, resets, is_reset }
        });
        told.collect()
    }

    /// Takes over what the shared store answered.
    pub(in crate::admission::traffic_quota) fn shared(&self, told: Unshared, answer: SharedTotal) {
        let mut ledger = self.ledger();
        let account = ledger.accounts.get_mut(&told.key).filter(|account| account.end == told.end);
        if let Some(account) = account {
            account.learn(told, answer);
            ledger.is_changed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::admission::quota::period::Period;
    use crate::admission::traffic_quota::accounts::Terms;
    use crate::admission::traffic_quota::calendar::Billing;

    const NOW: u64 = 1_800_000_000 / 3600 * 3600;

    fn accounts() -> Accounts {
        let billing = Billing::Fixed(Period::Seconds(3600));
        Accounts::new(Terms { limit: 1000, billing, expires: None, max_keys: 2 }, NOW)
    }

    fn pass(accounts: &Accounts, bytes: u64) {
        accounts.quota(1, || "k".to_owned(), NOW).add(bytes);
    }

    fn used(accounts: &Accounts) -> u64 {
        accounts.list(|_| true)[0].used
    }

    /// What the script does in Redis.
    #[derive(Default)]
    struct Store {
        used: u64,
        resets: u64,
        told: HashMap<&'static str, u64>,
    }

    impl Store {
        fn add(&mut self, gateway: &'static str, told: Unshared) -> SharedTotal {
            if told.is_reset {
                (self.used, self.resets) = (0, self.resets + 1);
                self.told.clear();
            } else if let Some(known) = told.resets {
                if known < self.resets {
                    return SharedTotal { used: self.used, resets: self.resets };
                }
                self.resets = known;
            }
            let before = self.told.insert(gateway, told.bytes).unwrap_or(0);
            self.used += told.bytes.saturating_sub(before);
            SharedTotal { used: self.used, resets: self.resets }
        }
    }

    fn sync(store: &mut Store, gateway: &'static str, accounts: &Accounts, is_answered: bool) {
        accounts.advance(NOW + 1);
        let told = accounts.unshared()[0];
        let answer = store.add(gateway, told);
        if is_answered {
            accounts.shared(told, answer);
        }
    }

    #[test]
    fn gateways_learn_what_others_used() {
        let (a, b, mut store) = (accounts(), accounts(), Store::default());
        pass(&a, 300);
        pass(&b, 500);
        for (name, it) in [("a", &a), ("b", &b), ("a", &a)] {
            sync(&mut store, name, it, true);
        }
        assert_eq!((used(&a), used(&b)), (800, 800));
        pass(&a, 200);
        for (name, it) in [("a", &a), ("b", &b), ("a", &a)] {
            sync(&mut store, name, it, true);
        }
        assert_eq!((used(&a), used(&b), store.used), (1000, 1000, 1000));
    }

    #[test]
    fn bytes_count_once_however_many_answers_are_lost() {
        let (a, b, mut store) = (accounts(), accounts(), Store::default());
        for is_answered in [true, false, false, true] {
            pass(&a, 100);
            sync(&mut store, "a", &a, is_answered);
        }
        pass(&b, 1);
        sync(&mut store, "b", &b, true);
        sync(&mut store, "a", &a, true);
        assert_eq!((used(&a), used(&b), store.used), (401, 401, 401));
    }

    #[test]
    fn a_reset_reaches_all_gateways_also_when_the_store_was_away() {
        for is_away in [false, true] {
            let (a, b, mut store) = (accounts(), accounts(), Store::default());
            pass(&a, 300);
            pass(&b, 700);
            for (name, it) in [("a", &a), ("b", &b), ("a", &a)] {
                sync(&mut store, name, it, true);
            }
            assert_eq!(a.reset(None, NOW + 2), 1);
            if is_away {
                // The store is asked later, and carries it out without an answer at first.
                sync(&mut store, "a", &a, false);
            }
            pass(&a, 10);
            pass(&b, 5);
            for (name, it) in [("a", &a), ("b", &b), ("a", &a)] {
                sync(&mut store, name, it, true);
            }
            // The bytes that passed at the other gateway before it learnt of the reset are forgiven.
            assert_eq!((used(&a), used(&b), store.used), (10, 10, 10), "{is_away}");
            pass(&b, 20);
            for (name, it) in [("b", &b), ("a", &a)] {
                sync(&mut store, name, it, true);
            }
            assert_eq!((used(&a), used(&b), store.used), (30, 30, 30), "{is_away}");
        }
    }

    #[test]
    fn a_store_that_lost_its_data_learns_again_what_was_used() {
        let (a, b, mut store) = (accounts(), accounts(), Store::default());
        a.quota(1, || "k".to_owned(), NOW);
        for amount in [100, 200] {
            pass(&a, amount);
            pass(&b, amount);
            for (name, it) in [("a", &a), ("b", &b), ("a", &a)] {
                sync(&mut store, name, it, true);
            }
        }
        a.reset(None, NOW + 2);
        pass(&a, 40);
        for (name, it) in [("a", &a), ("b", &b)] {
            sync(&mut store, name, it, true);
        }
        store = Store::default();
        pass(&b, 2);
        for (name, it) in [("a", &a), ("b", &b), ("a", &a)] {
            sync(&mut store, name, it, true);
        }
        assert_eq!((used(&a), used(&b), store.used), (42, 42, 42));
    }
}
