//! Maglev hashing: one table look-up a pick, shares that follow the weights closely, and few keys that move.
//!
//! Source: Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer" (NSDI 2016), §3.4. Each target has
//! its own order of the table's slots, and targets claim slots in turns, as often as their weights say. Slots depend
//! on nothing but hosts, ports and weights, so gateways with the same targets agree, also after a restart.

use std::sync::Arc;

use super::consistent_hash::{hash, rendezvous, seeds};
use super::field::Field;
use super::policy::Policy;
use super::spread::mix;
use super::target::Target;

/// Slots of a table, a prime: 256 KiB. With up to 650 targets, shares differ by no more than one percent.
const SLOTS: u64 = 65_537;

/// Slots of a table for more targets than that, a prime: 2.5 MiB.
const MANY_SLOTS: u64 = 655_373;

/// Targets from which on the larger table is used.
const MANY: usize = 650;

/// Slots that one key tries before every target is compared.
const TRIES: u64 = 8;

#[derive(Debug)]
pub(super) struct Maglev {
    /// Indexes of targets; empty when all of them drain.
    slots: Box<[u32]>,
    seeds: Box<[u64]>,
}

/// What one target claims of the table.
struct Claim {
    index: u32,
    next: u64,
    skip: u64,
    /// Its weight by that of the heaviest, in 2^32nds.
    share: u64,
    credit: u64,
}

impl Maglev {
    pub(super) fn new(targets: &[Arc<Target>]) -> Self {
        let seeds = seeds(targets);
        let len = if targets.len() > MANY { MANY_SLOTS } else { SLOTS };
        let heaviest = targets.iter().map(|target| target.weight()).max().unwrap_or(1);
        let claims = targets.iter().zip(&seeds).enumerate().filter(|(_, (target, _))| !target.is_draining());
        let mut claims: Vec<Claim> = claims
            .map(|(index, (target, seed))| Claim {
                index: u32::try_from(index).unwrap_or(u32::MAX),
                next: mix(*seed) % len,
                skip: mix(!*seed) % (len - 1) + 1,
                share: (target.weight() << 32) / heaviest,
                credit: 0,
            })
            .collect();
        // The order of the configuration must make no difference.
        claims.sort_by_key(|claim| seeds.get(claim.index as usize).copied());
        Self { slots: fill(&mut claims, len), seeds: seeds.into() }
    }
}

/// Lets the targets claim slots in turns until none is left.
fn fill(claims: &mut [Claim], len: u64) -> Box<[u32]> {
    const FREE: u32 = u32::MAX;
    if claims.is_empty() {
        return Box::default();
    }
    let mut slots = vec![FREE; usize::try_from(len).unwrap_or(0)];
    let mut free = slots.len();
    while free > 0 {
        for claim in claims.iter_mut() {
            claim.credit += claim.share;
            if claim.credit < 1 << 32 {
                continue;
            }
            claim.credit -= 1 << 32;
            // The skip and the prime length have no common factor, so every slot is visited.
            while let Some(slot) = slots.get_mut(claim.next as usize) {
                claim.next = (claim.next + claim.skip) % len;
                if *slot == FREE {
                    *slot = claim.index;
                    free -= 1;
                    break;
                }
            }
            if free == 0 {
                break;
            }
        }
    }
    slots.into()
}

impl Policy for Maglev {
    fn pick(&self, field: &Field<'_>) -> Option<usize> {
        let Some(key) = field.ask.hash_key else {
            return field.from(field.next_index()).find(|index| field.is_open(*index));
        };
        let hash = hash(key);
        // Keys of a closed target spread over the others by weight, and come back with it; other keys stay.
        let tried = (0..TRIES).find_map(|time| {
            let slot = mix(hash.wrapping_add(time)).checked_rem(self.slots.len() as u64)?;
            let index = *self.slots.get(slot as usize)? as usize;
            field.is_open(index).then_some(index)
        });
        tried.or_else(|| rendezvous(&self.seeds, field, hash))
    }
}
