//! What an algorithm sees: the targets, and which of them are open to this exchange.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::ask::Ask;
use super::spread::{GOLDEN, mix};
use super::target::{Target, WARM};
use crate::limit::epoch::Epoch;

/// A counter on a cache line of its own, so that turning it disturbs no reader of its neighbours.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Cursor(AtomicU64);

impl Cursor {
    pub(super) fn at(turn: u64) -> Self {
        Self(AtomicU64::new(turn))
    }

    /// How far it was turned.
    pub(super) fn position(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// The next number.
    pub(super) fn turn(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
    }
}

/// Which targets may be picked in one round of [`super::Targets::pick`].
#[derive(Debug)]
pub(super) struct Field<'a> {
    pub(super) targets: &'a [Arc<Target>],
    pub(super) ask: &'a Ask<'a, 'a>,
    /// What the targets count their time from.
    pub(super) epoch: Epoch,
    pub(super) cursor: &'a Cursor,
    /// The number of this pick once somebody asked for it, the same in all its rounds: taking one for each round
    /// would keep picks and targets in step.
    pub(super) turn: &'a Cell<Option<u64>>,
    pub(super) round: Round,
}

/// Which targets a round lets in, beside those that are full or whose breaker refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Round {
    /// Only those of this priority.
    pub(super) priority: Option<u8>,
    /// Cold ones only as often as their share says: milliseconds they take to warm up.
    pub(super) slow_start: Option<u64>,
    /// Only healthy ones.
    pub(super) healthy: bool,
    /// Only those not tried yet.
    pub(super) untried: bool,
}

impl Field<'_> {
    pub(super) fn len(&self) -> usize {
        self.targets.len()
    }

    /// This moment, in milliseconds since the epoch of the targets.
    pub(super) fn millis(&self) -> u64 {
        self.epoch.millis(self.ask.now)
    }

    /// The one place that decides whether a target may be picked for a client that no target is kept for.
    pub(super) fn is_open(&self, index: usize) -> bool {
        self.targets.get(index).is_some_and(|target| !target.is_draining()) && self.admits(index)
    }

    /// Whether a target may be picked for a client that it is kept for, which it may be while it drains.
    pub(super) fn admits(&self, index: usize) -> bool {
        let Some(target) = self.targets.get(index) else { return false };
        !(self.round.untried && self.ask.tried.contains(&index))
            && self.round.priority.is_none_or(|priority| target.rules.priority == priority)
            && (!self.round.healthy || target.is_healthy(self.ask.now))
            && self.ask.takes(index)
            && target.has_room()
            && self.round.slow_start.is_none_or(|time| self.is_warm_enough(target, index, time))
            && self.ask.breakers.is_none_or(|breakers| breakers.admits(index, self.ask.now))
    }

    /// Lets a cold target have as many of the picks as its share says. The same answer for all questions of one pick.
    fn is_warm_enough(&self, target: &Target, index: usize, slow_start: u64) -> bool {
        let share = target.warmth(self.millis(), slow_start);
        share >= WARM || mix(self.turn().wrapping_add((index as u64).wrapping_mul(GOLDEN))) % WARM < share
    }

    /// The number of this pick.
    pub(super) fn turn(&self) -> u64 {
        self.turn.get().unwrap_or_else(|| {
            let turn = self.cursor.turn();
            self.turn.set(Some(turn));
            turn
        })
    }

    /// The number of this pick as the index of a target: each in turn.
    pub(super) fn next_index(&self) -> usize {
        (self.turn() % self.len().max(1) as u64) as usize
    }

    /// Lets the next picks begin so many targets later.
    pub(super) fn skip(&self, targets: u64) {
        self.cursor.0.fetch_add(targets, Relaxed);
    }

    /// All indexes once, beginning with `start`, which is an index.
    pub(super) fn from(&self, start: usize) -> impl Iterator<Item = usize> + use<> {
        let len = self.len();
        (start..len).chain(0..start.min(len))
    }

    pub(super) fn in_flight(&self, index: usize) -> u64 {
        self.targets.get(index).map_or(0, |target| u64::from(target.vitals().in_flight.load(Relaxed)))
    }

    pub(super) fn weight(&self, index: usize) -> u64 {
        self.targets.get(index).map_or(1, |target| target.weight())
    }

    /// Whether `left` carries less for its weight than `right`.
    pub(super) fn is_less_busy(&self, left: usize, right: usize) -> bool {
        self.in_flight(left) * self.weight(right) < self.in_flight(right) * self.weight(left)
    }
}
