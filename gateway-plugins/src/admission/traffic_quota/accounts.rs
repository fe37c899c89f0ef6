//! The usage of each key: the quotas that sessions hold, and how periods, limits and expiry change them.

mod sharing;
mod stored;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gateway_core::limit::ByteQuota;
use gateway_core::limit::byte_quota::EXPIRED;
use serde::{Deserialize, Serialize};

use super::calendar::{Billing, DAY};
use super::history::History;
use sharing::SharedPart;
pub(super) use sharing::{SharedTotal, Unshared};
use stored::StoredPart;

/// What a plugin config says of all its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) limit: u64,
    pub(super) billing: Billing,
    /// The day from which on nothing passes, in days since 1970.
    pub(super) expires: Option<u64>,
    pub(super) max_keys: usize,
}

/// All keys of a plugin config. Outlives changes of its settings.
pub(super) struct Accounts {
    /// Tells this process from others that share its quotas.
    id: u64,
    ledger: Mutex<Ledger>,
}

struct Ledger {
    terms: Terms,
    /// Replaces the limit of the terms while the usage elsewhere is unknown.
    limit: Option<u64>,
    /// Bytes are noted for the history of a database, which is in memory as well.
    is_stored: bool,
    accounts: HashMap<u64, Account>,
    /// For the keys beyond `max_keys`, so that nobody gets around a quota by being many.
    others: Account,
    is_changed: bool,
}

/// One key.
#[derive(Debug)]
struct Account {
    label: Box<str>,
    quota: Arc<ByteQuota>,
    /// Of `quota`, when it was looked at last.
    seen: u64,
    /// When its period ends; 0 for a rolling one.
    end: u64,
    /// Of a rolling period its parts, by their beginning.
    parts: VecDeque<(u64, u64)>,
    /// Bytes that passed between the last two looks.
    latest: u64,
    history: History,
    /// What a shared store is to be told.
    sharing: SharedPart,
    /// What a database is to be told.
    stored: StoredPart,
}

/// One key, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) label: Box<str>,
    pub(super) used: u64,
    pub(super) limit: u64,
    pub(super) end: Option<u64>,
    pub(super) closed: Option<&'static str>,
    pub(super) history: History,
}

/// An account as a file has it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Saved {
    key: u64,
    label: Box<str>,
    used: u64,
    /// What may have passed since, where the gateway did not end in order.
    margin: u64,
    end: u64,
    code: u64,
    #[serde(default)]
    parts: VecDeque<(u64, u64)>,
    #[serde(default)]
    unshared: u64,
    #[serde(default)]
    pub(super) history: History,
}

impl Account {
    fn new(label: &str, terms: &Terms, now: u64) -> Self {
        let quota = Arc::new(ByteQuota::new(terms.limit, 0));
        quota.set_expired(terms.is_expired(now));
        Self {
            label: label.into(),
            quota,
            seen: 0,
            end: terms.billing.end(now).unwrap_or_default(),
            parts: VecDeque::new(),
            latest: 0,
            history: History::default(),
            sharing: SharedPart::default(),
            stored: StoredPart::default(),
        }
    }

    /// Looks at what was used since the last time, and begins a new period where one has ended. True where anything changed.
    fn advance(&mut self, terms: &Terms, now: u64) -> bool {
        let used = self.quota.used();
        let passed = used.saturating_sub(self.seen);
        // A file that says what passed in a busy interval must be told that none passed after it.
        let mut changed = passed > 0 || self.latest > 0;
        // A look at two counters that change may see less than the one before.
        (self.latest, self.seen) = (passed, used.max(self.seen));
        if passed > 0 {
            self.history.add(now, passed);
            self.stored.note(now, passed);
            self.sharing.note(passed);
        }
        match (terms.billing.end(now), terms.billing.part()) {
            (Some(end), _) if end > self.end => {
                // What sessions move right now belongs to the new period.
                self.forgive(self.seen);
                (self.end, self.sharing) = (end, SharedPart::default());
                self.stored.end_period();
                changed = true;
            }
            (None, Some(part)) => changed |= self.roll(terms.billing, part, passed, now),
            _ => {}
        }
        self.quota.set_expired(terms.is_expired(now));
        changed
    }

    fn roll(&mut self, billing: Billing, part: u64, passed: u64, now: u64) -> bool {
        let Billing::Rolling(seconds) = billing else { return false };
        let begun = now / part * part;
        if passed > 0 {
            match self.parts.back_mut() {
                Some((at, bytes)) if *at >= begun => *bytes = bytes.saturating_add(passed),
                _ => self.parts.push_back((begun, passed)),
            }
        }
        let mut forgotten = 0_u64;
        while let Some((at, bytes)) = self.parts.front().copied()
            && at + seconds <= begun
        {
            self.parts.pop_front();
            forgotten = forgotten.saturating_add(bytes);
        }
        self.forgive(forgotten);
        forgotten > 0
    }

    fn forgive(&mut self, bytes: u64) {
        self.quota.forgive(bytes);
        self.seen = self.seen.saturating_sub(bytes);
    }
}

impl Ledger {
    /// A new account; there is none of this key.
    fn open_account(&mut self, key: u64, label: &str, now: u64) -> &mut Account {
        let mut account = Account::new(label, &self.terms, now);
        account.stored.is_noted = self.is_stored;
        if let Some(limit) = self.limit {
            account.quota.set_limit(limit);
        }
        self.accounts.entry(key).insert_entry(account).into_mut()
    }
}

impl Terms {
    /// Whether the day from which on everything is closed has come.
    pub(super) fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|day| now >= day * DAY)
    }
}

impl Accounts {
    pub(super) fn new(terms: Terms, now: u64) -> Self {
        let others = Account::new("_other", &terms, now);
        let accounts = HashMap::new();
        let ledger = Ledger { terms, limit: None, is_stored: false, accounts, others, is_changed: false };
        Self { id: fastrand::u64(..), ledger: Mutex::new(ledger) }
    }

    /// Tells this process from others that share its quotas.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what holds from now on, also for sessions that run. What was used stays used, unless the kind of period changes.
    pub(super) fn set(&self, terms: Terms, now: u64) {
        let mut ledger = self.ledger();
        let Ledger { terms: known, limit, accounts, others, is_changed, .. } = &mut *ledger;
        let is_other_period = known.billing.code() != terms.billing.code();
        *known = terms;
        let limit = limit.unwrap_or(terms.limit);
        for account in accounts.values_mut().chain([others]) {
            account.quota.set_limit(limit);
            account.advance(&terms, now);
            if is_other_period {
                let seen = account.seen;
                account.forgive(seen);
                account.parts.clear();
                account.sharing = SharedPart::default();
                account.stored.end_period();
                account.end = terms.billing.end(now).unwrap_or_default();
                *is_changed = true;
            }
        }
    }

    /// The quota of a key; `label` names it for people.
    pub(super) fn quota(&self, key: u64, label: impl FnOnce() -> String, now: u64) -> Arc<ByteQuota> {
        let mut ledger = self.ledger();
        if let Some(account) = ledger.accounts.get(&key) {
            return account.quota.clone();
        }
        if ledger.accounts.len() >= ledger.terms.max_keys {
            return ledger.others.quota.clone();
        }
        ledger.open_account(key, &label(), now).quota.clone()
    }

    /// Why traffic of a key is refused now, where it is. Opens no account.
    pub(super) fn closed(&self, key: u64, now: u64) -> Option<&'static str> {
        let ledger = self.ledger();
        let is_full = ledger.accounts.len() >= ledger.terms.max_keys;
        let account = ledger.accounts.get(&key).or_else(|| is_full.then_some(&ledger.others));
        let expired = || ledger.terms.is_expired(now).then_some(EXPIRED);
        account.map_or_else(expired, |account| account.quota.closed())
    }

    /// Lets time go by; to be called every second or so.
    pub(super) fn advance(&self, now: u64) {
        let mut ledger = self.ledger();
        let Ledger { terms, accounts, others, is_changed, .. } = &mut *ledger;
        for account in accounts.values_mut().chain([others]) {
            *is_changed |= account.advance(terms, now);
        }
    }

    /// Forgives what the key with this label has used, or all of them, on all gateways; says how many keys.
    pub(super) fn reset(&self, label: Option<&str>, now: u64) -> usize {
        let mut ledger = self.ledger();
        let Ledger { terms, is_stored, accounts, is_changed, .. } = &mut *ledger;
        let wanted =
            accounts.iter_mut().filter(|(_, account)| label.is_none_or(|label| *account.label == *label));
        let mut reset = 0;
        for (_, account) in wanted {
            account.advance(terms, now);
            let seen = account.seen;
            account.forgive(seen);
            account.parts.clear();
            account.sharing.reset();
            account.stored.resets = *is_stored;
            reset += 1;
        }
        *is_changed |= reset > 0;
        reset
    }

    /// All keys, by label.
    pub(super) fn list(&self, wanted: impl Fn(&str) -> bool) -> Vec<Standing> {
        let ledger = self.ledger();
        let mut list: Vec<_> = ledger
            .accounts
            .values()
            .chain((ledger.others.seen > 0).then_some(&ledger.others))
            .filter(|account| wanted(&account.label))
            .map(|account| Standing {
                label: account.label.clone(),
                used: account.quota.used(),
                limit: account.quota.limit(),
                end: (account.end > 0).then_some(account.end),
                closed: account.quota.closed(),
                history: account.history.clone(),
            })
            .collect();
        list.sort_by(|a, b| a.label.cmp(&b.label));
        list
    }

    /// Replaces the limit of every quota: `u64::MAX` admits all bytes, 0 none, and `None` restores the configured limit.
    pub(super) fn set_limit(&self, limit: Option<u64>) {
        let mut ledger = self.ledger();
        ledger.limit = limit;
        let limit = limit.unwrap_or(ledger.terms.limit);
        ledger.accounts.values().chain([&ledger.others]).for_each(|account| account.quota.set_limit(limit));
    }

    /// What a file is to say, where that has changed since the last time or everything is wanted.
    pub(super) fn save(&self, always: bool) -> Option<Vec<Saved>> {
        let mut ledger = self.ledger();
        if !std::mem::take(&mut ledger.is_changed) && !always {
            return None;
        }
        let code = ledger.terms.billing.code();
        let saved = ledger.accounts.iter().map(|(key, account)| Saved {
            key: *key,
            label: account.label.clone(),
            used: account.seen,
            margin: account.latest.saturating_mul(2),
            end: account.end,
            code,
            parts: account.parts.clone(),
            unshared: account.sharing.unshared,
            history: account.history.clone(),
        });
        Some(saved.collect())
    }

    /// It could not be written: what changed is to be written again.
    pub(super) fn save_again(&self) {
        self.ledger().is_changed = true;
    }

    /// Takes over what a file says. After an end out of order, what may have passed since it was written counts as used.
    pub(super) fn take_over(&self, saved: Vec<Saved>, in_order: bool, now: u64) {
        let mut ledger = self.ledger();
        let Ledger { terms, accounts, .. } = &mut *ledger;
        for account in saved.into_iter().take(terms.max_keys) {
            let mut restored = Account::new(&account.label, terms, now);
            restored.history = if account.history.is_sound() { account.history } else { History::default() };
            let is_same = account.code == terms.billing.code() && restored.end == account.end;
            if is_same {
                let margin = if in_order { 0 } else { account.margin };
                let used = account.used.saturating_add(margin);
                restored.quota.add(used);
                restored.seen = used;
                let known = account.used.saturating_sub(account.unshared);
                restored.sharing = SharedPart::restored(known, account.unshared.saturating_add(margin));
                restored.parts = account.parts;
            }
            accounts.insert(account.key, restored);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::quota::period::Period;

    const HOUR: Billing = Billing::Fixed(Period::Seconds(3600));
    const NOW: u64 = 1_800_000_000 / 3600 * 3600;

    fn terms(billing: Billing) -> Terms {
        Terms { limit: 1000, billing, expires: None, max_keys: 2 }
    }

    fn use_up(accounts: &Accounts, key: u64, bytes: u64) {
        accounts.quota(key, || format!("k{key}"), NOW).add(bytes);
    }

    fn used(accounts: &Accounts) -> Vec<u64> {
        accounts.list(|_| true).iter().map(|standing| standing.used).collect()
    }

    #[test]
    fn a_period_ends_and_a_reset_forgives() {
        let accounts = Accounts::new(terms(HOUR), NOW);
        use_up(&accounts, 1, 1000);
        use_up(&accounts, 2, 300);
        accounts.advance(NOW + 5);
        let list = accounts.list(|label| label == "k1");
        assert_eq!((list[0].closed, list[0].end), (Some("quota_exceeded"), Some(NOW + 3600)));
        assert_eq!(accounts.reset(Some("k1"), NOW + 5), 1);
        assert_eq!(used(&accounts), [0, 300]);
        accounts.advance(NOW + 3599);
        assert_eq!(used(&accounts), [0, 300]);
        accounts.advance(NOW + 3600);
        assert_eq!(used(&accounts), [0, 0]);
        // Keys beyond the limit share one quota.
        use_up(&accounts, 3, 600);
        use_up(&accounts, 4, 600);
        accounts.advance(NOW + 3601);
        assert_eq!(accounts.list(|label| label == "_other")[0].used, 1200);
    }

    #[test]
    fn a_rolling_period_forgets_bit_by_bit() {
        let accounts = Accounts::new(terms(Billing::Rolling(9600)), NOW);
        for minute in 0..10 {
            use_up(&accounts, 1, 50);
            accounts.advance(NOW + minute * 600);
        }
        assert_eq!(used(&accounts), [500]);
        accounts.advance(NOW + 9700);
        assert_eq!(used(&accounts), [450]);
        accounts.advance(NOW + 9600 + 1300);
        assert_eq!(used(&accounts), [350]);
    }

    #[test]
    fn a_date_closes_and_a_change_of_terms_applies() {
        let accounts = Accounts::new(terms(HOUR), NOW);
        use_up(&accounts, 1, 400);
        let closed = |accounts: &Accounts| accounts.list(|_| true)[0].closed;
        accounts.set(Terms { limit: 300, ..terms(HOUR) }, NOW);
        assert_eq!(closed(&accounts), Some("quota_exceeded"));
        accounts.set(Terms { expires: Some(NOW / DAY), ..terms(HOUR) }, NOW);
        assert_eq!(closed(&accounts), Some("quota_expired"));
        accounts.set(Terms { expires: Some(NOW / DAY + 1), ..terms(HOUR) }, NOW);
        assert_eq!((closed(&accounts), used(&accounts)), (None, vec![400]));
        accounts.set(terms(Billing::Month { anchor: 3 }), NOW);
        assert_eq!(used(&accounts), [0]);
    }

    #[test]
    fn what_is_saved_is_restored_with_a_margin_after_a_crash() {
        let accounts = Accounts::new(terms(HOUR), NOW);
        use_up(&accounts, 1, 400);
        accounts.advance(NOW);
        use_up(&accounts, 1, 10);
        accounts.advance(NOW + 1);
        let restored = |in_order, now| {
            let text = serde_json::to_vec(&accounts.save(true)).unwrap();
            let other = Accounts::new(terms(HOUR), now);
            other.take_over(serde_json::from_slice::<Option<_>>(&text).unwrap().unwrap(), in_order, now);
            (used(&other)[0], other.list(|_| true)[0].history.clone())
        };
        let history = accounts.list(|_| true)[0].history.clone();
        assert_eq!(restored(true, NOW + 2), (410, history.clone()));
        assert_eq!(restored(false, NOW + 2), (430, history.clone()));
        assert_eq!(restored(true, NOW + 3600), (0, history));
        assert!(accounts.save(false).is_none(), "nothing has changed");
        accounts.advance(NOW + 2);
        let quiet = accounts.save(false).expect("the margin is gone");
        let other = Accounts::new(terms(HOUR), NOW + 2);
        other.take_over(quiet, false, NOW + 2);
        assert_eq!(used(&other), [410], "nothing passed in the last interval");
        accounts.advance(NOW + 3);
        assert!(accounts.save(false).is_none(), "nothing has changed since");
    }
}
