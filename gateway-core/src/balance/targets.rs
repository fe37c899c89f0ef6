//! A group of targets and the picking among them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use super::field::{Cursor, Field, Round};
use super::pick::{Counted, Pick};
use super::policy::{self, Policy};
use super::target::{Health, Target};
use crate::config::model::{Algorithm, HashOn, TargetRules, Upstream};
use crate::health::Breakers;
use crate::health::breaker::Permit;
use crate::limit::epoch::Epoch;

/// How often a round asks its algorithm again when a half-open slot was taken by somebody else meanwhile.
const ADMIT_TRIES: usize = 3;

/// The rounds of one pick: first whom nothing speaks against, in the end anybody whose breaker lets through.
const ROUNDS: [Round; 4] = [
    Round { healthy: true, untried: true },
    Round { healthy: true, untried: false },
    Round { healthy: false, untried: true },
    Round { healthy: false, untried: false },
];

/// The runtime form of an upstream.
#[derive(Debug)]
pub struct Targets {
    list: Box<[Arc<Target>]>,
    policy: Box<dyn Policy>,
    hash_on: Option<HashOn>,
    /// Only where there are several to choose from.
    cursor: Option<Box<Cursor>>,
    epoch: Epoch,
    watched: bool,
    counts: bool,
    measures_latency: bool,
}

/// What one pick is to consider.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'t, 'a> {
    /// The bytes [`Targets::hash_on`] names; without them consistent hashing takes each in turn.
    pub hash_key: Option<&'a [u8]>,
    /// Indexes this exchange tried already; avoided as long as another healthy target is left.
    pub tried: &'a [usize],
    /// The proxy's breakers, built for these targets.
    pub breakers: Option<&'t Breakers>,
    /// This moment.
    pub now: Instant,
}

impl Targets {
    /// The targets of an upstream. Those that were in `previous`, by host and port, keep what is known about them.
    pub fn build(upstream: &Upstream, previous: Option<&Self>, now: Instant) -> Self {
        let epoch = previous.map_or_else(|| Epoch::starting(now), |old| old.epoch);
        let health =
            Health { active: upstream.active_health.as_deref(), passive: upstream.passive_health.as_deref() };
        let mut known = Known::of(previous);
        let list: Box<[_]> = upstream
            .targets
            .iter()
            .map(|rules| match known.take(rules) {
                Some(old) if old.is_current(rules, health) => old.clone(),
                old => Arc::new(Target::new(rules, health, old.map(|old| &**old), epoch)),
            })
            .collect();
        let several = list.len() > 1;
        let algorithm = upstream.algorithm;
        Self {
            // A group of one is never asked for an order.
            policy: policy::prepare(if several { algorithm } else { Algorithm::RoundRobin }, &list),
            hash_on: (several && algorithm == Algorithm::ConsistentHashing).then(|| upstream.hash_on.clone()),
            cursor: several.then(|| {
                let before = previous.and_then(|old| old.cursor.as_ref());
                Box::new(Cursor::at(before.map_or(0, |cursor| cursor.position())))
            }),
            epoch,
            watched: health.active.is_some() || health.passive.is_some(),
            counts: several && counts(algorithm),
            measures_latency: several && algorithm == Algorithm::LeastLatency,
            list,
        }
    }

    /// The targets in the order of the configuration.
    pub fn list(&self) -> &[Arc<Target>] {
        &self.list
    }

    /// What [`Ask::hash_key`] is to hold; `None` when nothing is hashed.
    pub fn hash_on(&self) -> Option<&HashOn> {
        self.hash_on.as_ref()
    }

    /// Picks a target, or `None` when every breaker refuses (or there is no target at all).
    ///
    /// Healthy targets come first, and among them those not tried yet; when none is healthy any target is better
    /// than none ([`Pick::degraded`]). Breakers are always obeyed.
    pub fn pick<'t>(&'t self, ask: &Ask<'t, '_>) -> Option<Pick<'t>> {
        if self.list.len() == 1 {
            let permit = admit(ask, 0)?;
            let degraded = self.watched && !self.list.first()?.is_healthy(ask.now);
            return self.picked(0, degraded, (ask, permit));
        }
        let cursor = self.cursor.as_deref()?;
        let turn = Cell::new(None);
        for round in ROUNDS {
            // Rounds that let in nobody the one before didn't are left out.
            let changes_nothing = !round.untried && ask.tried.is_empty() || !round.healthy && !self.watched;
            if changes_nothing {
                continue;
            }
            let field = Field { targets: &self.list, ask, epoch: self.epoch, cursor, turn: &turn, round };
            if let Some((index, permit)) = self.play(ask, &field) {
                return self.picked(index, !round.healthy, (ask, permit));
            }
        }
        None
    }

    fn play<'t>(&'t self, ask: &Ask<'t, '_>, field: &Field<'_>) -> Option<(usize, Option<Permit<'t>>)> {
        for _ in 0..ADMIT_TRIES {
            let index = self.policy.pick(field)?;
            if let Some(permit) = admit(ask, index) {
                return Some((index, permit));
            }
        }
        (0..self.list.len())
            .filter(|index| field.is_open(*index))
            .find_map(|index| Some((index, admit(ask, index)?)))
    }

    fn picked<'t>(
        &'t self,
        index: usize,
        degraded: bool,
        (ask, permit): (&Ask<'t, '_>, Option<Permit<'t>>),
    ) -> Option<Pick<'t>> {
        let target = self.list.get(index)?;
        Some(Pick {
            target,
            index,
            degraded,
            breakers: ask.breakers,
            permit,
            measures_latency: self.measures_latency,
            flight: Counted::begin(target, self.counts),
        })
    }
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
struct Known<'t>(foldhash::HashMap<(&'t str, u16), VecDeque<&'t Arc<Target>>>);

impl<'t> Known<'t> {
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
