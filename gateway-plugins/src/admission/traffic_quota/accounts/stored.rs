//! What accounts tell a database, and learn from it.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use gateway_core::plugin::world::usage::{HistoryEntry, HistoryStep, KeyUsage, UsageChange};

use super::{Account, Accounts, Ledger};
use crate::admission::traffic_quota::history::History;

/// Changes of one exchange; the keys with fewer bytes wait for the next.
const MAX_CHANGES: usize = 5000;
/// Minutes that wait to be stored while the database is unreachable; the oldest are forgotten.
const MAX_MINUTES: usize = 24 * 60;

/// Of an account, what a database is to be told.
#[derive(Debug, Default)]
pub(super) struct StoredPart {
    /// Whether bytes are noted for the database's history.
    pub(super) is_noted: bool,
    /// The usage of all gateways is to be set to zero.
    pub(super) resets: bool,
    /// Bytes that the database counts as used if this gateway dies.
    claim: u64,
    /// Bytes by minute that are not in the history yet, the oldest first.
    minutes: VecDeque<(u64, u64)>,
}

impl StoredPart {
    pub(super) fn note(&mut self, now: u64, bytes: u64) {
        if !self.is_noted {
            return;
        }
        let minute = now / HistoryStep::Minute.seconds();
        match self.minutes.back_mut() {
            Some((at, sum)) if *at >= minute => *sum = sum.saturating_add(bytes),
            _ => self.minutes.push_back((minute, bytes)),
        }
        if self.minutes.len() > MAX_MINUTES {
            self.minutes.pop_front();
        }
    }

    pub(super) fn end_period(&mut self) {
        (self.resets, self.claim) = (false, 0);
    }
}

impl Accounts {
    /// Takes over what a database knows. From now on, bytes are noted for it.
    pub(in super::super) fn begin_storing(&self, usage: Vec<KeyUsage>, now: u64) {
        let mut ledger = self.ledger();
        ledger.is_stored = true;
        ledger.accounts.values_mut().for_each(|account| account.stored.is_noted = true);
        for row in usage {
            ledger.learn(&row, false, now);
        }
    }

    /// What the database is to be told, and to claim: nothing with `is_last`.
    pub(in super::super) fn changes(&self, is_last: bool) -> Vec<UsageChange> {
        let mut ledger = self.ledger();
        let mut changes: Vec<_> = ledger
            .accounts
            .iter()
            .filter(|(_, account)| {
                account.sharing.unshared > 0 || account.stored.claim > 0 || account.stored.resets
            })
            .map(|(key, account)| UsageChange {
                added: KeyUsage {
                    key: *key,
                    period_end: account.end,
                    label: account.label.clone(),
                    used: account.sharing.unshared,
                },
                // As a file does: twice what passed in the last interval.
                claim: if is_last { 0 } else { account.sharing.unshared.saturating_mul(2) },
                resets: account.stored.resets,
            })
            .collect();
        changes.sort_unstable_by_key(|change| Reverse((change.resets, change.added.used)));
        changes.truncate(MAX_CHANGES);
        for change in changes.iter().filter(|change| change.resets) {
            if let Some(account) = ledger.accounts.get_mut(&change.added.key) {
                account.stored.resets = false;
            }
        }
        changes
    }

    /// The changes were made, and this is the usage of all gateways since. With `is_first`, what others used before is no part of
    /// this minute's history.
    pub(in super::super) fn settle(
        &self,
        changes: &[UsageChange],
        usage: &[KeyUsage],
        is_first: bool,
        now: u64,
    ) {
        let mut ledger = self.ledger();
        for UsageChange { added, claim, .. } in changes {
            if let Some(account) = ledger.current(added) {
                account.sharing.unshared = account.sharing.unshared.saturating_sub(added.used);
                account.stored.claim = *claim;
            }
        }
        for row in usage {
            ledger.learn(row, !is_first, now);
        }
    }

    /// The changes were not made.
    pub(in super::super) fn keep_changes(&self, changes: &[UsageChange]) {
        let mut ledger = self.ledger();
        for change in changes.iter().filter(|change| change.resets) {
            if let Some(account) = ledger.current(&change.added) {
                account.stored.resets = true;
            }
        }
    }

    /// Takes what is to be added to the database's history: of minutes that are over, or of all with `is_last`.
    pub(in super::super) fn take_history(&self, is_last: bool, now: u64) -> Vec<HistoryEntry> {
        let minute = now / HistoryStep::Minute.seconds();
        let mut entries = Vec::new();
        for (key, account) in &mut self.ledger().accounts {
            let minutes = &mut account.stored.minutes;
            let mut hours: Vec<(u64, u64)> = Vec::new();
            let entry =
                |step, (at, bytes)| HistoryEntry { key: *key, label: account.label.clone(), step, at, bytes };
            while let Some((at, bytes)) = minutes.pop_front_if(|(at, _)| is_last || *at < minute) {
                entries.push(entry(HistoryStep::Minute, (at, bytes)));
                match hours.last_mut() {
                    Some((hour, sum)) if *hour == at / 60 => *sum = sum.saturating_add(bytes),
                    _ => hours.push((at / 60, bytes)),
                }
            }
            entries.extend(hours.into_iter().map(|hour| entry(HistoryStep::Hour, hour)));
        }
        entries
    }

    /// The history could not be stored.
    pub(in super::super) fn keep_history(&self, entries: Vec<HistoryEntry>) {
        let mut ledger = self.ledger();
        for entry in entries.into_iter().rev().filter(|entry| entry.step == HistoryStep::Minute) {
            if let Some(account) = ledger.accounts.get_mut(&entry.key) {
                let minutes = &mut account.stored.minutes;
                let has_room = minutes.len() < MAX_MINUTES;
                match minutes.front_mut() {
                    Some((at, bytes)) if *at == entry.at => *bytes = bytes.saturating_add(entry.bytes),
                    _ if has_room => minutes.push_front((entry.at, entry.bytes)),
                    _ => {}
                }
            }
        }
    }

    /// Takes over a database's history, the newest entries first.
    pub(in super::super) fn learn_history(&self, entries: Vec<HistoryEntry>, now: u64) {
        let mut stored: HashMap<u64, (Box<str>, History)> = HashMap::new();
        for entry in entries.into_iter().rev() {
            let (_, history) = stored.entry(entry.key).or_insert_with(|| (entry.label, History::default()));
            history.add_step(entry.step, entry.at, entry.bytes);
        }
        let mut ledger = self.ledger();
        for (key, (label, mut history)) in stored {
            if let Some(account) = ledger.find_or_open(key, &label, now) {
                history.append(&account.history);
                account.history = history;
            }
        }
    }
}

impl Ledger {
    /// The account of a key, where its period is still this one.
    fn current(&mut self, usage: &KeyUsage) -> Option<&mut Account> {
        self.accounts.get_mut(&usage.key).filter(|account| account.end == usage.period_end)
    }

    fn find_or_open(&mut self, key: u64, label: &str, now: u64) -> Option<&mut Account> {
        if !self.accounts.contains_key(&key) {
            if self.accounts.len() >= self.terms.max_keys {
                return None;
            }
            self.open_account(key, label, now);
        }
        self.accounts.get_mut(&key)
    }

    /// All gateways together have told the database of so many bytes.
    fn learn(&mut self, usage: &KeyUsage, is_now: bool, now: u64) {
        let Some(account) = self.find_or_open(usage.key, &usage.label, now) else { return };
        if account.end != usage.period_end || account.stored.resets {
            return;
        }
        let used = usage.used.saturating_add(account.sharing.unshared);
        if used >= account.seen {
            let of_others = used - account.seen;
            account.quota.add(of_others);
            if is_now && of_others > 0 {
                account.history.add(now, of_others);
            }
        } else {
            // Another gateway has reset the key.
            account.quota.forgive(account.seen - used);
        }
        account.seen = used;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::quota::period::Period;
    use crate::admission::traffic_quota::accounts::Terms;
    use crate::admission::traffic_quota::calendar::Billing;

    const NOW: u64 = 1_800_000_000 / 3600 * 3600;

    fn accounts() -> Accounts {
        let billing = Billing::Fixed(Period::Seconds(3600));
        let accounts = Accounts::new(Terms { limit: 1000, billing, expires: None, max_keys: 3 }, NOW);
        accounts.begin_storing(Vec::new(), NOW);
        accounts
    }

    fn use_up(accounts: &Accounts, bytes: u64, now: u64) {
        accounts.quota(1, || "k".to_owned(), now).add(bytes);
        accounts.advance(now);
    }

    fn used(accounts: &Accounts) -> u64 {
        accounts.list(|_| true).iter().map(|standing| standing.used).sum()
    }

    /// A database of one key, without claims.
    #[derive(Default)]
    struct Database(u64);

    impl Database {
        fn exchange(&mut self, accounts: &Accounts) {
            let changes = accounts.changes(false);
            for change in &changes {
                self.0 = if change.resets { 0 } else { self.0 } + change.added.used;
            }
            let row = KeyUsage { key: 1, period_end: NOW + 3600, label: "k".into(), used: self.0 };
            accounts.settle(&changes, &[row], false, NOW);
        }
    }

    #[test]
    fn gateways_learn_of_bytes_and_of_resets() {
        let (a, b, mut database) = (accounts(), accounts(), Database::default());
        use_up(&a, 300, NOW);
        use_up(&b, 500, NOW);
        [&a, &b, &a].into_iter().for_each(|accounts| database.exchange(accounts));
        assert_eq!((used(&a), used(&b)), (800, 800));
        // Bytes that pass beside a reset elsewhere stay counted.
        assert_eq!(a.reset(Some("k"), NOW), 1);
        use_up(&b, 40, NOW);
        database.exchange(&a);
        database.exchange(&b);
        database.exchange(&a);
        assert_eq!((used(&a), used(&b)), (40, 40));
        use_up(&a, 960, NOW);
        [&a, &b].into_iter().for_each(|accounts| database.exchange(accounts));
        assert_eq!(b.list(|_| true)[0].closed, Some("quota_exceeded"));
    }

    #[test]
    fn claims_cover_what_may_pass_until_the_next_change() {
        let accounts = accounts();
        assert!(accounts.changes(false).is_empty());
        use_up(&accounts, 70, NOW);
        let first = accounts.changes(false);
        assert_eq!((first[0].added.used, first[0].claim), (70, 140));
        accounts.keep_changes(&first);
        use_up(&accounts, 30, NOW);
        let second = accounts.changes(false);
        assert_eq!((second[0].added.used, second[0].claim), (100, 200), "nothing was told before");
        accounts.settle(&second, &[], false, NOW);
        let idle = accounts.changes(false);
        assert_eq!((idle[0].added.used, idle[0].claim), (0, 0), "an idle key releases its claim");
        accounts.settle(&idle, &[], false, NOW);
        assert!(accounts.changes(false).is_empty());
        use_up(&accounts, 5, NOW);
        assert_eq!(accounts.changes(true)[0].claim, 0, "a gateway that ends in order claims nothing");
    }

    #[test]
    fn the_history_is_stored_by_minute_and_hour_and_learnt_again() {
        let first = accounts();
        for minute in 58..62 {
            use_up(&first, 10, NOW + minute * 60);
        }
        let entries = first.take_history(false, NOW + 61 * 60);
        let listed = |step| {
            let of_step = entries.iter().filter(|entry| entry.step == step);
            of_step.map(|entry| (entry.at * step.seconds() - NOW, entry.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(listed(HistoryStep::Minute), [(58 * 60, 10), (59 * 60, 10), (60 * 60, 10)]);
        assert_eq!(listed(HistoryStep::Hour), [(0, 20), (3600, 10)]);
        first.keep_history(entries);
        let entries = first.take_history(true, NOW + 61 * 60);
        assert_eq!(entries.len(), 6, "kept, and the last minute with them");
        let second = accounts();
        use_up(&second, 7, NOW + 61 * 60);
        let newest_first: Vec<_> = entries.into_iter().rev().collect();
        second.learn_history(newest_first, NOW + 61 * 60);
        let standing = &second.list(|_| true)[0];
        let hours: Vec<_> = standing.history.list(HistoryStep::Hour, 0).collect();
        assert_eq!(hours, [(NOW, 20), (NOW + 3600, 27)]);
        assert_eq!(standing.used, 7, "the history is no usage");
    }
}
