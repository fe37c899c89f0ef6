//! A group of targets and the picking among them.

mod choose;
pub(super) mod pick;
mod wait;

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use super::affinity::Affinity;
use super::algorithm;
use super::ask::Ask;
use super::field::{Cursor, Field, Round};
use super::policy::Policy;
use super::queue::QueueLimits;
use super::subset::KnownSubsets;
use super::target::{Health, Target};
use crate::config::model::{Algorithm, HashOn, Sharing, TargetRules, Upstream};
use crate::health::breaker::Permit;
use crate::health::passive::FailureKind;
use crate::health::{Breakers, HealthChange};
use crate::limit::epoch::Epoch;
use pick::{BorrowedFlight, Pick};

/// How often a round asks its algorithm again when a half-open slot was taken by somebody else meanwhile.
const ADMIT_TRIES: usize = 3;

/// The runtime form of an upstream.
#[derive(Debug)]
pub struct Targets {
    list: Box<[Arc<Target>]>,
    policy: Box<dyn Policy>,
    hash_on: Option<Box<HashOn>>,
    /// Only where there are several to choose from.
    cursor: Option<Box<Cursor>>,
    epoch: Epoch,
    /// The priorities there are, the first to be asked first; one `None` where all have the same.
    priorities: Box<[Option<u8>]>,
    /// Milliseconds until a cold target is warm.
    slow_start: Option<u64>,
    panic_threshold_percent: usize,
    waiting: Option<Box<QueueLimits>>,
    affinity: Option<Box<Affinity>>,
    subsets: KnownSubsets,
    watched: bool,
    counts: bool,
    measures_latency: bool,
}

impl Targets {
    /// The targets of an upstream. Those that were in `previous`, by host and port, keep what is known about them.
    pub fn build(upstream: &Upstream, previous: Option<&Self>, now: Instant) -> Self {
        let epoch = previous.map_or_else(|| Epoch::starting(now), |old| old.epoch);
        let health =
            Health { active: upstream.active_health.as_deref(), passive: upstream.passive_health.as_deref() };
        let mut known = PreviousTargets::of(previous);
        let list: Box<[_]> = upstream
            .targets
            .iter()
            .map(|rules| match known.take(rules) {
                Some(old) if old.is_current(rules, health) => old.clone(),
                old => {
                    let target = Target::new(rules, health, old.map(|old| &**old), epoch);
                    // A target that gets traffic again after a drain is as cold as a new one.
                    let was_draining = old.is_some_and(|old| old.is_draining());
                    if previous.is_some() && (old.is_none() || was_draining) {
                        target.added(now);
                    }
                    Arc::new(target)
                }
            })
            .collect();
        let sharing = upstream.sharing.as_deref().copied().unwrap_or_default();
        let waiting = waiting(sharing, &list);
        let several = list.len() > 1;
        let algorithm = upstream.algorithm;
        Self {
            // A group of one is never asked for an order.
            policy: algorithm::prepare(if several { algorithm } else { Algorithm::RoundRobin }, &list),
            hash_on: (several && algorithm.hashes()).then(|| Box::new(upstream.hash_on.clone())),
            cursor: several.then(|| {
                let before = previous.and_then(|old| old.cursor.as_ref());
                Box::new(Cursor::at(before.map_or(0, |cursor| cursor.position())))
            }),
            epoch,
            priorities: priorities(&list),
            slow_start: u64::try_from(sharing.slow_start.as_millis()).ok().filter(|time| *time > 0),
            panic_threshold_percent: sharing.panic_threshold_percent.into(),
            waiting,
            affinity: Affinity::build(upstream, &list),
            subsets: KnownSubsets::default(),
            watched: health.active.is_some() || health.passive.is_some(),
            counts: several && counts(algorithm)
                || list.iter().any(|target| target.rules.max_requests.is_some()),
            measures_latency: several && algorithm == Algorithm::LeastLatency,
            list,
        }
    }

    /// The targets in the order of the configuration.
    pub fn list(&self) -> &[Arc<Target>] {
        &self.list
    }

    /// Their keys, in the same order.
    pub fn keys(&self) -> impl Iterator<Item = u64> {
        self.list.iter().map(|target| target.key())
    }

    /// What [`Ask::hash_key`] is to hold; `None` when nothing is hashed.
    pub fn hash_on(&self) -> Option<&HashOn> {
        self.hash_on.as_deref()
    }

    /// The cookie that keeps a client at its target.
    pub fn affinity(&self) -> Option<&Affinity> {
        self.affinity.as_deref()
    }

    /// Exchanges that wait for a target with room.
    pub fn waiting_now(&self) -> u32 {
        self.waiting.as_ref().map_or(0, |waiting| waiting.queue.waiting())
    }

    pub(super) fn waiting(&self) -> Option<&QueueLimits> {
        self.waiting.as_deref()
    }

    /// Whether a target would be picked if it had room.
    pub fn is_full(&self, ask: &Ask<'_, '_>) -> bool {
        self.full(ask).next().is_some()
    }

    /// Notes, for operators, an exchange that no target had room for.
    pub fn note_full(&self, ask: &Ask<'_, '_>) {
        self.full(ask).for_each(|target| target.note_full(ask.now));
    }

    /// The targets that would be picked if they had room.
    fn full<'s>(&'s self, ask: &'s Ask<'_, '_>) -> impl Iterator<Item = &'s Arc<Target>> {
        let is_wanted = move |index| {
            ask.takes(index) && ask.breakers.is_none_or(|breakers: &Breakers| breakers.admits(index, ask.now))
        };
        let is_full =
            move |index, target: &Target| !target.has_room() && !target.is_draining() && is_wanted(index);
        self.list.iter().enumerate().filter(move |(index, target)| is_full(*index, target)).map(|(_, it)| it)
    }

    /// Whether there is a healthy target that this exchange has not tried.
    pub fn has_untried(&self, ask: &Ask<'_, '_>) -> bool {
        let is_open = |index| ask.breakers.is_none_or(|breakers: &Breakers| breakers.admits(index, ask.now));
        self.list.iter().enumerate().any(|(index, target)| {
            !ask.tried.contains(&index)
                && !target.is_draining()
                && ask.takes(index)
                && target.is_healthy(ask.now)
                && is_open(index)
        })
    }

    /// Takes a failure of a target. Says when the target changed sides.
    pub fn failed(&self, target: &Target, kind: FailureKind, now: Instant) -> Option<HealthChange> {
        let is_out = |target: &&Arc<Target>| target.observer().is_some_and(|observer| observer.is_down(now));
        target.observer()?.failed(kind, now, || (self.list.iter().filter(is_out).count(), self.list.len()))
    }

    /// Whether so few targets are healthy that all get traffic.
    fn is_panic(&self, now: Instant) -> bool {
        if self.panic_threshold_percent == 0 {
            return false;
        }
        let healthy = self.list.iter().filter(|target| target.is_healthy(now)).count();
        healthy * 100 < self.panic_threshold_percent * self.list.len()
    }

    /// The rounds of one pick: first whom nothing speaks against, in the end anybody whose breaker lets through. Rounds
    /// that let in nobody the one before didn't are left out.
    fn rounds(&self, ask: &Ask<'_, '_>) -> impl Iterator<Item = Round> {
        let priorities = self.priorities.iter().copied();
        let healthy = if self.is_panic(ask.now) { 0 } else { usize::MAX };
        let tried = if ask.tried.is_empty() { 0 } else { usize::MAX };
        let degraded = if self.watched || self.priorities.len() > 1 { usize::MAX } else { 0 };
        let slow_start = self.slow_start;
        let round =
            |healthy, untried, slow_start| move |priority| Round { healthy, untried, slow_start, priority };
        // Those that are warming up come after the others of their priority, and before all of the next one.
        let first = priorities.clone().flat_map(move |priority| {
            let cold = slow_start.map(|_| round(true, true, None)(priority));
            [round(true, true, slow_start)(priority)].into_iter().chain(cold)
        });
        let again = priorities.map(round(true, false, None)).take(tried);
        let last = [true, false].into_iter().filter(move |untried| *untried || tried > 0);
        let last = last.map(move |untried| round(false, untried, None)(None)).take(degraded);
        first.chain(again).take(healthy).chain(last)
    }

    /// Picks a target, or `None` when every breaker refuses (or there is no target at all).
    ///
    /// Healthy targets come first, and among them those not tried yet; when none is healthy any target is better
    /// than none ([`Pick::degraded`]). Breakers are always obeyed.
    pub fn pick<'t>(&'t self, ask: &Ask<'t, '_>) -> Option<Pick<'t>> {
        if self.list.len() == 1 {
            let target = self.list.first()?;
            if !ask.takes(0) || target.is_draining() && ask.preferred != Some(0) {
                return None;
            }
            let degraded = self.watched && !target.is_healthy(ask.now);
            return self.take(0, degraded, ask);
        }
        let cursor = self.cursor.as_deref()?;
        let turn = Cell::new(None);
        self.rounds(ask).find_map(|round| {
            let field = Field { targets: &self.list, ask, epoch: self.epoch, cursor, turn: &turn, round };
            self.play(ask, &field)
        })
    }

    fn play<'t>(&'t self, ask: &Ask<'t, '_>, field: &Field<'_>) -> Option<Pick<'t>> {
        let degraded = !field.round.healthy;
        if let Some(index) = ask.preferred.filter(|index| field.admits(*index))
            && let Some(pick) = self.take(index, degraded, ask)
        {
            return Some(pick);
        }
        for _ in 0..ADMIT_TRIES {
            let index = self.policy.pick(field)?;
            if let Some(pick) = self.take(index, degraded, ask) {
                return Some(pick);
            }
        }
        (0..self.list.len())
            .filter(|index| field.is_open(*index))
            .find_map(|index| self.take(index, degraded, ask))
    }

    /// Takes a place at the target, unless its breaker refuses or somebody else took the last one.
    fn take<'t>(&'t self, index: usize, degraded: bool, ask: &Ask<'t, '_>) -> Option<Pick<'t>> {
        let target = self.list.get(index)?;
        let flight = BorrowedFlight::begin(target, self.counts)?;
        let permit = admit(ask, index)?;
        Some(Pick {
            target,
            index,
            degraded,
            group: self,
            breakers: ask.breakers,
            permit,
            measures_latency: self.measures_latency,
            flight,
        })
    }
}

fn priorities(list: &[Arc<Target>]) -> Box<[Option<u8>]> {
    let mut priorities: Vec<u8> = list.iter().map(|target| target.rules.priority).collect();
    priorities.sort_unstable();
    priorities.dedup();
    if priorities.len() > 1 { priorities.into_iter().map(Some).collect() } else { Box::new([None]) }
}

/// The queue stays across reloads, with those who wait in it.
fn waiting(sharing: Sharing, list: &[Arc<Target>]) -> Option<Box<QueueLimits>> {
    if sharing.max_waiting == 0 {
        return None;
    }
    let queue = list.iter().find_map(|target| target.queue().cloned()).unwrap_or_default();
    list.iter().for_each(|target| target.wakes(&queue));
    Some(Box::new(QueueLimits { queue, most: sharing.max_waiting, time: sharing.wait }))
}

/// Asks the target's breaker: `None` is a refusal, `Some(None)` no breaker at all.
fn admit<'t>(ask: &Ask<'t, '_>, index: usize) -> Option<Option<Permit<'t>>> {
    match ask.breakers {
        None => Some(None),
        Some(breakers) => breakers.admit(index, ask.now).map(Some),
    }
}

/// Whether an algorithm looks at exchanges in flight. Others spare the workers a counter they would fight over.
fn counts(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::LeastConnections | Algorithm::LeastLatency | Algorithm::PowerOfTwo)
}

/// The targets before a reload, by host and port. One listed twice is handed out twice, in order.
struct PreviousTargets<'t>(foldhash::HashMap<(&'t str, u16), VecDeque<&'t Arc<Target>>>);

impl<'t> PreviousTargets<'t> {
    fn of(previous: Option<&'t Targets>) -> Self {
        let mut known = foldhash::HashMap::<_, VecDeque<_>>::default();
        for target in previous.into_iter().flat_map(Targets::list) {
            known.entry((&*target.rules.host, target.rules.port)).or_default().push_back(target);
        }
        Self(known)
    }

    fn take(&mut self, rules: &'t TargetRules) -> Option<&'t Arc<Target>> {
        self.0.get_mut(&(&*rules.host, rules.port))?.pop_front()
    }
}
