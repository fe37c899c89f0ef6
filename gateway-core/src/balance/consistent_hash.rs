//! Consistent hashing: a key keeps its target as long as the target is there, and few keys move when others change.
//!
//! A ring of points, [`POINTS`] for a target of average weight. Points depend on nothing but host and port, so that
//! several gateways with the same targets agree, also after a restart.

use std::collections::HashMap;
use std::sync::Arc;

use super::field::Field;
use super::policy::Policy;
use super::spread::{GOLDEN, mix};
use super::target::Target;

/// Points of a target of average weight.
const POINTS: u64 = 150;

/// Points on one ring; with more than a thousand targets each gets fewer. 8 bytes a point.
const MAX_POINTS: u64 = 160_000;

/// Points walked past for each target on the ring, before the walk from closed target to closed target is given up.
const MAX_WALK: usize = 4;

#[derive(Debug)]
pub(super) struct ConsistentHash {
    /// Sorted; the place on the ring in the upper half, the target's index in the lower.
    ring: Box<[u64]>,
    /// What each target's points are made of.
    seeds: Box<[u64]>,
}

impl ConsistentHash {
    pub(super) fn new(targets: &[Arc<Target>]) -> Self {
        let seeds = seeds(targets);
        let total: u64 = targets.iter().map(|target| target.weight()).sum();
        let len = targets.len() as u64;
        let points = POINTS.min(MAX_POINTS / len.max(1)).max(1) * len;
        let mut ring: Vec<u64> = Vec::new();
        for (index, (target, seed)) in targets.iter().zip(&seeds).enumerate() {
            let share = (u128::from(points) * u128::from(target.weight()) / u128::from(total.max(1))).max(1);
            let places = (0..share as u64).map(|point| mix(seed.wrapping_add(point.wrapping_mul(GOLDEN))));
            ring.extend(places.map(|place| place >> 32 << 32 | index as u64));
        }
        ring.sort_unstable();
        Self { ring: ring.into(), seeds: seeds.into() }
    }
}

impl Policy for ConsistentHash {
    fn pick(&self, field: &Field<'_>) -> Option<usize> {
        let Some(key) = field.ask.hash_key else {
            return field.from(field.next_index()).find(|index| field.is_open(*index));
        };
        let hash = hash(key);
        let start = self.ring.partition_point(|point| *point < hash >> 32 << 32);
        let (before, after) = self.ring.split_at(start);
        let mut closed = usize::MAX;
        for point in after.iter().chain(before).take(MAX_WALK * (field.len() + POINTS as usize)) {
            let index = (point & u64::from(u32::MAX)) as usize;
            if index == closed {
                continue;
            }
            if field.is_open(index) {
                return Some(index);
            }
            closed = index;
        }
        rendezvous(&self.seeds, field, hash)
    }
}

/// The open target whose seed and the key match best. As steady as a ring, but it compares every target.
pub(super) fn rendezvous(seeds: &[u64], field: &Field<'_>, hash: u64) -> Option<usize> {
    (0..field.len())
        .filter(|index| field.is_open(*index))
        .max_by_key(|index| mix(hash ^ seeds.get(*index).copied().unwrap_or_default()))
}

/// One seed a target; the same host and port listed twice gets two.
pub(super) fn seeds(targets: &[Arc<Target>]) -> Vec<u64> {
    let mut seen: HashMap<&str, u64, foldhash::fast::RandomState> = HashMap::default();
    let seed = |target: &Arc<Target>| hash(target.authority().as_bytes());
    targets
        .iter()
        .map(|target| {
            let times = seen.entry(target.authority()).or_default();
            *times += 1;
            if *times == 1 { seed(target) } else { mix(seed(target) ^ *times) }
        })
        .collect()
}

/// A hash that stays the same in every build and process, which general-purpose hashers don't promise.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mut hash = (bytes.len() as u64).wrapping_mul(GOLDEN);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    let mut word = [0; 8];
    let rest = chunks.remainder();
    word[..rest.len()].copy_from_slice(rest);
    mix(hash ^ u64::from_le_bytes(word))
}
