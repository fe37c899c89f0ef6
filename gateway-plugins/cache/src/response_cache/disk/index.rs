//! What is on the disk, kept in memory: found by place, weighed in bytes, evicted by second chance.

use std::collections::{HashMap, HashSet, VecDeque};

use smallvec::SmallVec;

use super::super::key::{Chooser, Variant};
use super::super::purge::Purge;
use super::super::tier::Address;

/// Bytes that a file takes on the disk are counted in blocks of this size.
const BLOCK: u64 = 4096;
/// Invalidations and purges that are remembered while the folder is read; with more, what is not read yet is dropped.
const MAX_EARLY: (usize, usize) = (65_536, 256);

/// A file's number, which is its name.
pub(super) type Number = u64;

/// What is known of a file.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) address: Address,
    pub(super) variant: Variant,
    pub(super) url: Box<str>,
    pub(super) tags: Box<[Box<str>]>,
    /// Bytes of the file.
    pub(super) size: u64,
    /// When the response was received, in milliseconds since 1970.
    pub(super) received: u64,
    /// When a purge marked it stale, in milliseconds since 1970; 0 is not at all.
    pub(super) stale_since: u64,
    /// Whether the file is there; until then it waits to be written.
    pub(super) is_written: bool,
    /// Whether it was read since it was last passed over.
    pub(super) was_used: bool,
}

/// The files of one folder.
#[derive(Debug, Default)]
pub(super) struct Index {
    places: HashMap<[u8; 16], SmallVec<[Number; 1]>>,
    records: HashMap<Number, Record>,
    order: VecDeque<Number>,
    bytes: u64,
    /// Files that are to be removed.
    doomed: Vec<Number>,
    early: Option<Early>,
}

/// What happened while the folder was not read yet.
#[derive(Debug, Default)]
struct Early {
    places: HashSet<[u8; 16]>,
    purges: Vec<(Purge, u64)>,
    is_too_much: bool,
}

fn on_disk(size: u64) -> u64 {
    size.div_ceil(BLOCK).saturating_mul(BLOCK)
}

impl Index {
    /// For a folder that is not read yet.
    pub(super) fn unread() -> Self {
        Self { early: Some(Early::default()), ..Self::default() }
    }

    /// The folder has been read.
    pub(super) fn is_read(&mut self) {
        self.early = None;
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn has(&self, address: &Address) -> bool {
        self.at(address).next().is_some()
    }

    fn at<'a>(&'a self, address: &'a Address) -> impl Iterator<Item = (Number, &'a Record)> {
        let numbers = self.places.get(&address.place).into_iter().flatten();
        let records = numbers.filter_map(|number| Some((*number, self.records.get(number)?)));
        records.filter(|(_, record)| record.address == *address)
    }

    /// The file with the response for a request.
    pub(super) fn find(&mut self, address: &Address, chooser: &Chooser<'_>) -> Option<(Number, u64)> {
        let fits = |(_, record): &(Number, &Record)| record.is_written && chooser.fits(&record.variant);
        let (number, _) = self.at(address).find(fits)?;
        let record = self.records.get_mut(&number)?;
        record.was_used = true;
        Some((number, record.size))
    }

    pub(super) fn get(&self, number: Number) -> Option<&Record> {
        self.records.get(&number)
    }

    /// A file that is to be written, or was found. What it replaces goes, and as much as is needed for it to fit into
    /// `most` bytes; says how many were evicted. `false` where there is a later one already.
    pub(super) fn add(&mut self, number: Number, record: Record, most: u64) -> Result<u64, ()> {
        let known = self.at(&record.address).filter(|(_, known)| known.variant == record.variant);
        let known: SmallVec<[(Number, u64); 2]> = known.map(|(number, it)| (number, it.received)).collect();
        if known.iter().any(|(_, received)| *received > record.received) {
            return Err(());
        }
        for (number, _) in known {
            self.remove(number);
        }
        let size = on_disk(record.size);
        let mut evicted = 0;
        while self.bytes + size > most {
            let Some(oldest) = self.order.pop_front() else { return Err(()) };
            match self.records.get_mut(&oldest) {
                Some(used) if used.was_used => {
                    used.was_used = false;
                    self.order.push_back(oldest);
                }
                Some(_) => {
                    self.remove(oldest);
                    evicted += 1;
                }
                None => {}
            }
        }
        self.bytes += size;
        self.places.entry(record.address.place).or_default().push(number);
        self.records.insert(number, record);
        self.order.push_back(number);
        // What was removed by other ways than eviction still has its number in here.
        if self.order.len() > 64 + 2 * self.records.len() {
            self.order.retain(|number| self.records.contains_key(number));
        }
        Ok(evicted)
    }

    /// The file is there; says since when it is stale. `None` where it is not wanted any more.
    pub(super) fn was_written(&mut self, number: Number) -> Option<u64> {
        let record = self.records.get_mut(&number)?;
        record.is_written = true;
        Some(record.stale_since)
    }

    /// Forgets a file, which is to be removed.
    pub(super) fn remove(&mut self, number: Number) {
        let Some(record) = self.records.remove(&number) else { return };
        self.bytes -= on_disk(record.size);
        if let Some(numbers) = self.places.get_mut(&record.address.place) {
            numbers.retain(|known| *known != number);
            if numbers.is_empty() {
                self.places.remove(&record.address.place);
            }
        }
        self.doomed.push(number);
    }

    /// Forgets what is stored for such requests.
    pub(super) fn forget(&mut self, address: &Address, variant: &Variant) {
        let known = self.at(address).filter(|(_, known)| known.variant == *variant);
        let known: SmallVec<[Number; 2]> = known.map(|(number, _)| number).collect();
        known.iter().for_each(|number| self.remove(*number));
    }

    /// Forgets a place; says whether anything is to be removed.
    pub(super) fn invalidate(&mut self, place: &[u8; 16]) -> bool {
        if let Some(early) = &mut self.early {
            early.is_too_much |= early.places.len() >= MAX_EARLY.0;
            early.places.insert(*place);
        }
        let numbers = self.places.get(place).cloned().unwrap_or_default();
        numbers.iter().for_each(|number| self.remove(*number));
        !numbers.is_empty()
    }

    /// Notes a purge for files that are not read yet, and says which there are to look at.
    pub(super) fn note(&mut self, purge: &Purge, now: u64) -> Vec<Number> {
        if let Some(early) = &mut self.early {
            early.is_too_much |= early.purges.len() >= MAX_EARLY.1;
            if !early.is_too_much {
                early.purges.push((purge.clone(), now));
            }
        }
        self.records.keys().copied().collect()
    }

    /// Carries a purge out on some of the files: how many it covers, and those that are to be marked on the disk.
    pub(super) fn purge(&mut self, purge: &Purge, now: u64, numbers: &[Number]) -> (u64, Vec<Number>) {
        let (mut count, mut marked) = (0, Vec::new());
        for number in numbers {
            let Some(record) = self.records.get_mut(number) else { continue };
            if !purge.covers(&record.url, &record.tags) {
                continue;
            }
            count += 1;
            if !purge.soft {
                self.remove(*number);
            } else if record.stale_since == 0 {
                record.stale_since = now;
                if record.is_written {
                    marked.push(*number);
                }
            }
        }
        (count, marked)
    }

    /// What became of a file since the gateway started: `None` where it is not to be used, else since when it is stale.
    pub(super) fn missed(&self, record: &Record) -> Option<u64> {
        let Some(early) = &self.early else { return Some(record.stale_since) };
        if early.is_too_much || early.places.contains(&record.address.place) {
            return None;
        }
        let mut stale_since = record.stale_since;
        for (purge, at) in &early.purges {
            // What was received later is not in a file that was there before.
            if purge.covers(&record.url, &record.tags) {
                if !purge.soft {
                    return None;
                }
                stale_since = if stale_since == 0 { *at } else { stale_since };
            }
        }
        Some(stale_since)
    }

    /// These are still to be removed.
    pub(super) fn put_back(&mut self, doomed: Vec<Number>) {
        self.doomed.extend(doomed);
    }

    /// The files that are to be removed.
    pub(super) fn take_doomed(&mut self) -> Vec<Number> {
        std::mem::take(&mut self.doomed)
    }
}
