//! Holds the bytes of one direction back until its meters let them pass.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::{Instant, Sleep};

use super::live_bytes::LiveBytes;
use super::session::Direction;
use crate::limit::meter::{self, Meter, Meters, Reservation};

/// How long at most until a reservation that is waited for learns that a rate has changed.
const RECHECK: Duration = Duration::from_millis(200);
/// How long whoever finds the rest of a quota reserved waits until it looks again.
const RESERVED: Duration = Duration::from_millis(5);

/// What a session counts against now, and what it has carried. Both of its directions look here, and whoever changes the
/// configuration writes here.
#[derive(Debug, Default)]
pub struct SessionMeters {
    /// What it has carried.
    pub live: LiveBytes,
    version: AtomicU32,
    meters: ArcSwapOption<Meters>,
}

impl SessionMeters {
    /// These.
    pub fn new(meters: Meters) -> Self {
        let shared = Self::default();
        shared.replace(meters);
        shared
    }

    /// From now on these count.
    pub fn replace(&self, meters: Meters) {
        let none = meters.is_empty();
        if none && self.meters.load().is_none() {
            return;
        }
        self.meters.store((!none).then(|| Arc::new(meters)));
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// One direction's hold on its meters. What it reserved and did not use goes back when it is dropped.
#[derive(Debug)]
pub struct Pacer {
    shared: Arc<SessionMeters>,
    direction: Direction,
    seen: u32,
    meters: Option<Arc<Meters>>,
    /// Bytes that may be moved.
    credit: u64,
    parked: Option<Box<Parked>>,
}

/// A reservation whose time has not come.
#[derive(Debug)]
struct Parked {
    bytes: u64,
    until: Instant,
    /// Of the rates when they were asked.
    version: u64,
    sleep: Pin<Box<Sleep>>,
}

impl Pacer {
    /// For one direction of a session.
    pub fn new(shared: Arc<SessionMeters>, direction: Direction) -> Self {
        Self { shared, direction, seen: 0, meters: None, credit: 0, parked: None }
    }

    /// So many bytes of the other direction were written to this end.
    #[inline]
    pub(crate) fn wrote(&self, bytes: u64) {
        let direction = match self.direction {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        };
        self.shared.live.add(direction, bytes);
    }

    /// Whether nothing is counted; costs one load.
    #[inline]
    pub(crate) fn is_free(&mut self) -> bool {
        if self.seen != self.shared.version.load(Ordering::Acquire) {
            self.refresh();
        }
        self.meters.is_none()
    }

    fn refresh(&mut self) {
        self.release();
        self.seen = self.shared.version.load(Ordering::Acquire);
        self.meters = self.shared.meters.load_full();
        if self.list().is_empty() {
            self.meters = None;
        }
    }

    fn list(&self) -> &[Meter] {
        let Some(meters) = &self.meters else { return &[] };
        match self.direction {
            Direction::Up => &meters.up,
            Direction::Down => &meters.down,
        }
    }

    /// Bytes that may be moved now, of at most `most` that are wanted; never none.
    ///
    /// # Errors
    /// The word for the record, when a quota has nothing left.
    pub(crate) fn poll_allow(&mut self, cx: &mut Context<'_>, most: u64) -> Poll<Result<u64, &'static str>> {
        loop {
            if self.is_free() {
                return Poll::Ready(Ok(most));
            }
            if self.credit > 0 {
                return Poll::Ready(Ok(self.credit.min(most)));
            }
            if self.parked.is_some() {
                ready!(self.poll_parked(cx));
                continue;
            }
            let now = Instant::now();
            let version = meter::version(self.list());
            let reserved = meter::reserve(self.list(), u64::MAX, now)?;
            let reserved = reserved.unwrap_or(Reservation { bytes: 0, wait: RESERVED });
            if reserved.wait.is_zero() {
                self.credit = reserved.bytes;
                continue;
            }
            let until = now + reserved.wait;
            let sleep = Box::pin(tokio::time::sleep_until(until.min(now + RECHECK)));
            meter::waits(self.list(), true);
            self.parked = Some(Box::new(Parked { bytes: reserved.bytes, until, version, sleep }));
        }
    }

    /// Ready once the reservation may be used, or has been given up because the rates have changed.
    fn poll_parked(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let version = meter::version(self.list());
        let Some(parked) = &mut self.parked else { return Poll::Ready(()) };
        loop {
            if parked.version != version {
                self.release();
                return Poll::Ready(());
            }
            ready!(parked.sleep.as_mut().poll(cx));
            let now = Instant::now();
            if now >= parked.until {
                self.credit = parked.bytes;
                self.parked = None;
                meter::waits(self.list(), false);
                return Poll::Ready(());
            }
            parked.sleep.as_mut().reset(parked.until.min(now + RECHECK));
        }
    }

    /// So many bytes were moved.
    #[inline]
    pub(crate) fn spend(&mut self, bytes: u64) {
        if self.meters.is_some() {
            // Never more than was allowed.
            let bytes = bytes.min(self.credit);
            self.credit -= bytes;
            meter::spend(self.list(), bytes);
        }
    }

    /// Gives back what was reserved: there is nothing to move.
    pub(crate) fn release(&mut self) {
        let parked = self.parked.take();
        if parked.is_some() {
            meter::waits(self.list(), false);
        }
        let unused = std::mem::take(&mut self.credit) + parked.map_or(0, |parked| parked.bytes);
        if unused > 0 {
            meter::refund(self.list(), unused);
        }
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use smallvec::smallvec;

    use super::*;
    use crate::limit::{ByteQuota, ByteRate, Epoch};

    fn pacer(meters: Meters) -> (Arc<SessionMeters>, Pacer) {
        let shared = Arc::new(SessionMeters::new(meters));
        (shared.clone(), Pacer::new(shared, Direction::Up))
    }

    async fn moved(pacer: &mut Pacer, until: Instant) -> u64 {
        let mut moved = 0;
        loop {
            let allowed = tokio::time::timeout_at(until, poll_fn(|cx| pacer.poll_allow(cx, 16 << 10)));
            let Ok(Ok(bytes)) = allowed.await else { return moved };
            pacer.spend(bytes);
            moved += bytes;
        }
    }

    fn rate(per_second: u64) -> Arc<ByteRate> {
        let burst = ByteRate::default_burst(per_second);
        Arc::new(ByteRate::new(per_second, burst, Epoch::starting(Instant::now())))
    }

    fn up(meter: Meter) -> Meters {
        Meters { up: smallvec![meter], ..Meters::default() }
    }

    /// Within 1 % over 10 s, also with a change in the middle.
    #[tokio::test(start_paused = true)]
    async fn rates_are_kept_over_ten_seconds() {
        for per_second in [10_000, 1_000_000, 10_000_000, 125_000_000, 1_250_000_000] {
            let rate = rate(per_second);
            let (_shared, mut pacer) = pacer(up(Meter::Rate(rate.clone())));
            let burst = rate.burst();
            let first = moved(&mut pacer, Instant::now() + 10 * Duration::from_secs(1)).await;
            let (least, most) = (per_second * 10, per_second * 10 + burst + (per_second / 100).max(1448));
            assert!((least - per_second / 10..=most).contains(&first), "{per_second}: {first}");
            rate.set(per_second / 2, ByteRate::default_burst(per_second / 2), Instant::now());
            let second = moved(&mut pacer, Instant::now() + 10 * Duration::from_secs(1)).await;
            let off = second.abs_diff(per_second * 5);
            assert!(off <= per_second / 20 + burst, "{per_second}: {second}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_share_a_rate_get_the_same() {
        let rate = rate(1_000_000);
        let until = Instant::now() + Duration::from_secs(10);
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let (_shared, mut pacer) = pacer(up(Meter::Rate(rate.clone())));
                tokio::spawn(async move { moved(&mut pacer, until).await })
            })
            .collect();
        let mut shares = Vec::new();
        for task in tasks {
            shares.push(task.await.unwrap());
        }
        let all: u64 = shares.iter().sum();
        assert!(all.abs_diff(10_000_000) <= 100_000, "{all}");
        assert!(shares.iter().all(|share| share.abs_diff(all / 10) < all / 100), "{shares:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_higher_rate_wakes_those_who_wait() {
        let rate = rate(1);
        let (_shared, mut pacer) = pacer(up(Meter::Rate(rate.clone())));
        let begun = Instant::now();
        // The burst, and then a reservation for half an hour.
        let first = tokio::time::timeout(Duration::from_secs(1), async {
            loop {
                let bytes = poll_fn(|cx| pacer.poll_allow(cx, u64::MAX)).await.unwrap();
                pacer.spend(bytes);
            }
        });
        assert!(first.await.is_err());
        rate.set(1_000_000, 4096, Instant::now());
        poll_fn(|cx| pacer.poll_allow(cx, u64::MAX)).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_used_goes_back() {
        let quota = Arc::new(ByteQuota::new(1000, 0));
        let (shared, mut pacer) = pacer(up(Meter::Quota(quota.clone())));
        assert_eq!(poll_fn(|cx| pacer.poll_allow(cx, 10)).await, Ok(10));
        assert_eq!(quota.used(), 0, "reserved, and not used");
        pacer.spend(10);
        pacer.release();
        assert_eq!(quota.used(), 10);
        assert_eq!(poll_fn(|cx| pacer.poll_allow(cx, 10)).await, Ok(10));
        shared.replace(Meters::default());
        assert_eq!(poll_fn(|cx| pacer.poll_allow(cx, 77)).await, Ok(77), "nothing is counted any more");
        assert_eq!(quota.used(), 10);
        shared.replace(up(Meter::Quota(Arc::new(ByteQuota::new(5, 5)))));
        assert_eq!(poll_fn(|cx| pacer.poll_allow(cx, 77)).await, Err("quota_exceeded"));
    }
}
