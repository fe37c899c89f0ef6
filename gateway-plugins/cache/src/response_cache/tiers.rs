//! The tiers below memory: a folder on disk, and Redis or Valkey.
//!
//! What is stored in memory is written to both, behind the request. What memory does not have is looked for on the disk
//! and then in Redis, and taken back into memory. An invalidation and a purge reach all of them.

use std::sync::Arc;

use tokio::time::Instant;

use super::disk::Disk;
use super::key::{Bytes, Chooser, Key};
use super::purge::Purge;
use super::remote::{Remote, Since};
use super::stored::Stored;
use super::tier::{Address, Mark, Tier, digest};
use super::wire::Label;

/// The tiers below memory that are configured.
#[derive(Default)]
pub(super) struct Tiers {
    pub(super) disk: Option<Arc<Disk>>,
    pub(super) remote: Option<Arc<Remote>>,
    /// How responses are told apart; those that were stored under other settings are not found.
    pub(super) recipe: Box<[u8]>,
}

impl Tiers {
    /// Whether there is any.
    pub(super) fn any(&self) -> bool {
        self.disk.is_some() || self.remote.is_some()
    }

    /// Whether they could know more than memory does.
    pub(super) fn is_worth_asking(&self, key: &Key) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.is_up())
            || self.disk.as_ref().is_some_and(|disk| disk.may_have(&self.address(key)))
    }

    fn address(&self, key: &Key) -> Address {
        Address { place: place_of(&key.place), parts: digest(&[&self.recipe, b"\0", &key.parts]) }
    }

    /// Looks for a response, and says since when changes of it are known in Redis.
    pub(super) async fn find(
        &self,
        key: &Key,
        chooser: &Chooser<'_>,
        now: Instant,
    ) -> (Option<(Arc<Stored>, Tier)>, Option<Since>) {
        let address = self.address(key);
        if let Some(disk) = &self.disk
            && let Some((stored, label)) = disk.find(&address, chooser, now).await
        {
            // Purges that other gateways made while this one was not there.
            let is_purged =
                self.remote.as_ref().is_some_and(|remote| remote.is_purged(&label, &stored.head.tags));
            if !is_purged {
                return (Some((stored, Tier::Disk)), None);
            }
            disk.invalidate(&address.place);
        }
        let Some(remote) = &self.remote else { return (None, None) };
        let (stored, since) = remote.find(&address, chooser, now).await;
        (stored.map(|stored| (stored, Tier::Redis)), since)
    }

    /// What is known about purges and invalidations as a request sets out.
    pub(super) fn since(&self) -> Option<Since> {
        self.remote.as_ref().map(|remote| remote.since())
    }

    /// Has a response written, behind the request.
    pub(super) fn put(&self, key: &Key, stored: &Arc<Stored>, since: Option<Since>) {
        if !self.any() {
            return;
        }
        let mark = since.as_ref().map_or_else(Mark::default, |since| since.mark);
        let label = Label { address: self.address(key), url: key.url().into(), mark };
        if let Some(disk) = &self.disk {
            disk.put(label.clone(), stored.clone());
        }
        if let Some(remote) = &self.remote {
            remote.put(label, stored.clone(), since);
        }
    }

    /// Forgets a place.
    pub(super) fn invalidate(&self, place: &Bytes, url: &str) {
        if !self.any() {
            return;
        }
        let place = place_of(place);
        if let Some(disk) = &self.disk {
            disk.invalidate(&place);
        }
        if let Some(remote) = &self.remote {
            remote.invalidate(&place, url);
        }
    }

    /// Removes what a purge covers, or marks it stale; says how many responses on the disk. Blocks.
    pub(super) fn purge(&self, purge: &Purge) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.purge(purge))
    }

    /// Tells other gateways of a purge, and Redis.
    pub(super) fn announce(&self, purge: &Purge) {
        if let Some(remote) = &self.remote {
            remote.announce(purge.clone());
        }
    }
}

fn place_of(place: &[u8]) -> [u8; 16] {
    digest(&[place])
}
