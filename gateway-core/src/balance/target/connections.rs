//! The connections of a target, where their number is limited: counted over all workers, without a lock.
//!
//! A connection is *open* from before it is dialled until it is closed, also while it waits in a pool, and *busy* while one
//! exchange or session has it alone. Who finds every place taken although not all of them are busy asks for one: idle and
//! shared connections, wherever they are kept, make room.

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use tokio::sync::Notify;

use super::Vitals;

/// How many connections a target has.
#[derive(Debug, Default)]
pub(super) struct Tally {
    open: AtomicU32,
    busy: AtomicU32,
    wanted: Wanted,
    /// Rung once for each connection that was closed.
    closed: Notify,
}

/// Counts two things in one number: in the upper half the callers that wait for a place, in the lower half the connections that they
/// have asked for and not got yet, never more than callers wait. A worker that finds no caller must not reset the lower half
/// while a caller arrives.
#[derive(Debug, Default)]
struct Wanted(AtomicU64);

impl Wanted {
    fn waiting(&self) -> u32 {
        parts(self.0.load(SeqCst)).0
    }

    /// One more waits, and asks for a connection.
    fn enter(&self) {
        self.change(|waiting, asked| Some((waiting + 1, asked + 1)));
    }

    /// One that waits asks once more.
    fn ask(&self) {
        self.change(|waiting, asked| Some((waiting, (asked + 1).min(waiting))));
    }

    fn leave(&self) {
        self.change(|waiting, asked| Some((waiting - 1, asked.min(waiting - 1))));
    }

    /// Takes one that was asked for, if there is one.
    fn take(&self) -> bool {
        self.change(|waiting, asked| Some((waiting, asked.checked_sub(1)?)))
    }

    /// False if there is nothing to be changed.
    fn change(&self, change: impl Fn(u32, u32) -> Option<(u32, u32)>) -> bool {
        let changed = self.0.fetch_update(SeqCst, SeqCst, |both| {
            let (waiting, asked) = parts(both);
            change(waiting, asked).map(|(waiting, asked)| u64::from(waiting) << 32 | u64::from(asked))
        });
        changed.is_ok()
    }
}

/// Those that wait, and what they have asked for.
#[expect(clippy::cast_possible_truncation, reason = "each is half of it")]
const fn parts(both: u64) -> (u32, u32) {
    ((both >> 32) as u32, both as u32)
}

impl Tally {
    pub(super) fn open(&self) -> u32 {
        self.open.load(Relaxed)
    }

    pub(super) fn busy(&self) -> u32 {
        self.busy.load(Relaxed)
    }
}

/// Adds one, unless there are `most`.
fn enter(count: &AtomicU32, most: NonZeroU32) -> bool {
    count.fetch_update(SeqCst, SeqCst, |count| (count < most.get()).then_some(count + 1)).is_ok()
}

/// The limit on a target's connections.
#[derive(Debug, Clone)]
pub struct ConnectionLimit {
    pub(super) vitals: Arc<Vitals>,
    pub(super) most: NonZeroU32,
}

/// Every connection that the target may have is in use, each by an exchange or session that has it alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllBusy;

/// What one connection takes of the limit, until dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the place back"]
pub struct ConnectionPlace {
    vitals: Arc<Vitals>,
    is_busy: bool,
}

/// The limit as those see it who keep connections.
#[derive(Debug, Clone)]
pub struct KeptConnections(Arc<Vitals>);

/// The wait for a place.
struct Waiting<'t>(&'t Tally);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.wanted.leave();
    }
}

/// A part of the count of busy connections.
struct Claim<'l>(Option<&'l ConnectionLimit>);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(limit) = self.0.take() {
            limit.vitals.rest();
        }
    }
}

impl ConnectionLimit {
    /// A place for a connection that is about to be made. One that is `alone` carries one exchange or session at a time,
    /// and begins with one.
    ///
    /// Waits while others keep connections that they can give up; `ask` is called whenever one is wanted.
    ///
    /// # Errors
    /// At once when all that there may be are busy.
    pub async fn place(&self, alone: bool, ask: impl Fn()) -> Result<ConnectionPlace, AllBusy> {
        let tally = self.vitals.connections();
        let claim = self.claim(alone)?;
        if enter(&tally.open, self.most) {
            return Ok(self.placed(claim));
        }
        tally.wanted.enter();
        let waiting = Waiting(tally);
        let mut has_asked = true;
        loop {
            let mut closed = pin!(tally.closed.notified());
            closed.as_mut().enable();
            if enter(&tally.open, self.most) {
                drop(waiting);
                return Ok(self.placed(claim));
            }
            if !std::mem::take(&mut has_asked) {
                tally.wanted.ask();
            }
            ask();
            closed.await;
        }
    }

    /// Whether there could be one more connection at this moment.
    pub fn has_place(&self) -> bool {
        self.vitals.connections().open() < self.most.get()
    }

    /// As [`Self::place`], if there is one at this moment.
    pub fn try_place(&self, alone: bool) -> Option<ConnectionPlace> {
        let claim = self.claim(alone).ok()?;
        enter(&self.vitals.connections().open, self.most).then(|| self.placed(claim))
    }

    fn claim(&self, alone: bool) -> Result<Claim<'_>, AllBusy> {
        let busy = &self.vitals.connections().busy;
        match alone {
            true if enter(busy, self.most) => Ok(Claim(Some(self))),
            false if busy.load(SeqCst) < self.most.get() => Ok(Claim(None)),
            _ => Err(AllBusy),
        }
    }

    fn placed(&self, mut claim: Claim<'_>) -> ConnectionPlace {
        ConnectionPlace { vitals: self.vitals.clone(), is_busy: claim.0.take().is_some() }
    }
}

impl ConnectionPlace {
    /// An exchange has the connection alone from now on; false when that would be one more than there may be at a time.
    #[must_use]
    pub fn occupy(&mut self, most: Option<NonZeroU32>) -> bool {
        let busy = &self.vitals.connections().busy;
        self.is_busy = self.is_busy || enter(busy, most.unwrap_or(NonZeroU32::MAX));
        self.is_busy
    }

    /// Nobody has the connection alone any more.
    pub fn rest(&mut self) {
        if std::mem::take(&mut self.is_busy) {
            self.vitals.rest();
        }
    }

    /// Whether the connection may be kept: nobody waits for its place, and there are not too many.
    pub fn may_stay(&self, most: Option<NonZeroU32>) -> bool {
        let tally = self.vitals.connections();
        tally.wanted.waiting() == 0 && most.is_none_or(|most| tally.open() <= most.get())
    }

    /// What those who keep connections of the same target go by.
    pub fn kept(&self) -> KeptConnections {
        KeptConnections(self.vitals.clone())
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.rest();
        let tally = self.vitals.connections();
        tally.open.fetch_sub(1, SeqCst);
        tally.closed.notify_one();
    }
}

impl KeptConnections {
    /// Whether somebody waits for a connection to be given up.
    pub fn is_wanted(&self) -> bool {
        self.0.connections().wanted.waiting() > 0
    }

    /// Whether a connection is to be given up; true once for each that was asked for. To be called by who has one.
    pub fn give_up(&self) -> bool {
        self.0.connections().wanted.take()
    }
}

impl Vitals {
    /// A connection is no longer busy.
    fn rest(&self) {
        self.connections().busy.fetch_sub(1, SeqCst);
        self.wake();
    }
}

#[cfg(test)]
mod tests;
