//! Every item is sent, or counted as lost, however the other side behaves.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use gateway_core::plugin::world::tasks::{TaskError, TaskHandle};

use super::*;
use crate::batch::Limits;

/// Another side that does what it is told.
#[derive(Default)]
struct Other {
    asked: AtomicUsize,
    got: Mutex<Vec<u8>>,
    fail: Mutex<Option<Failed>>,
    silent: AtomicBool,
    refuses: AtomicUsize,
}

impl Deliver for Other {
    async fn deliver(&self, chunk: &Chunk) -> Result<Delivered, Failed> {
        self.asked.fetch_add(1, Relaxed);
        if self.silent.load(Relaxed) {
            std::future::pending::<()>().await;
        }
        if let Some(failed) = self.fail.lock().unwrap().clone() {
            return Err(failed);
        }
        self.got.lock().unwrap().extend_from_slice(&chunk.bytes);
        Ok(Delivered { refused: self.refuses.load(Relaxed) as u64, why: "not these".into() })
    }
}

struct Bench {
    batches: Arc<Batches>,
    other: Arc<Other>,
    counts: Counts,
    health: TaskHealth,
    handle: TaskHandle,
    task: tokio::task::JoinHandle<Result<(), TaskError>>,
}

fn bench(pace: Pace) -> Bench {
    let limits = Limits { items: 100, bytes: 1000, chunk_items: 4, chunk_bytes: 100 };
    let (batches, other) = (Arc::new(Batches::new(limits, None)), Arc::<Other>::default());
    let count = Counter::default;
    let counts = Counts { sent: count(), failed: count(), refused: count() };
    let (handle, control) = TaskControl::new();
    let health = control.health().clone();
    let task = tokio::spawn(run("t".into(), batches.clone(), other.clone(), pace, counts.clone(), control));
    Bench { batches, other, counts, health, handle, task }
}

const PACE: Pace = Pace { interval: Duration::from_secs(5), retry_for: Duration::from_secs(60) };

impl Bench {
    fn push(&self, items: usize) {
        (0..items).for_each(|_| _ = self.batches.push(|out| out.push(b'x')));
    }

    /// Waits until the task has nothing to do for so long.
    async fn after(&self, time: Duration) {
        tokio::time::advance(Duration::ZERO).await;
        drop(tokio::time::timeout(time, std::future::pending::<()>()).await);
    }

    async fn end(self) -> (u64, u64, u64) {
        drop(self.handle);
        self.task.await.unwrap().unwrap();
        (self.counts.sent.get(), self.counts.failed.get(), self.counts.refused.get())
    }
}

#[tokio::test(start_paused = true)]
async fn full_chunks_go_at_once_and_others_at_the_interval() {
    let bench = bench(PACE);
    bench.push(5);
    bench.after(Duration::from_secs(1)).await;
    assert_eq!(bench.counts.sent.get(), 4);
    bench.after(Duration::from_secs(5)).await;
    assert_eq!(bench.counts.sent.get(), 5);
    bench.push(1);
    assert_eq!(bench.end().await, (6, 0, 0), "the rest goes when the task ends");
}

#[tokio::test(start_paused = true)]
async fn failures_that_pass_are_tried_again_and_others_are_not() {
    let bench = bench(PACE);
    *bench.other.fail.lock().unwrap() = Some(Failed::passing("away"));
    bench.push(4);
    bench.after(Duration::from_secs(10)).await;
    assert!(bench.other.asked.load(Relaxed) >= 3, "with growing pauses");
    assert_eq!(bench.counts.failed.get(), 0);
    *bench.other.fail.lock().unwrap() = None;
    bench.after(Duration::from_secs(40)).await;
    assert_eq!(bench.counts.sent.get(), 4);
    *bench.other.fail.lock().unwrap() = Some(Failed::lasting("bad request"));
    let asked = bench.other.asked.load(Relaxed);
    bench.push(4);
    bench.after(Duration::from_secs(1)).await;
    assert_eq!((bench.other.asked.load(Relaxed), bench.counts.failed.get()), (asked + 1, 4));
    assert_eq!(bench.end().await, (4, 4, 0));
}

#[tokio::test(start_paused = true)]
async fn a_chunk_is_given_up_in_time_and_what_has_no_room_is_lost() {
    let bench = bench(PACE);
    *bench.other.fail.lock().unwrap() =
        Some(Failed { after: Some(Duration::from_secs(25)), ..Failed::passing("busy") });
    bench.push(120);
    assert_eq!(bench.batches.lost(), 20);
    // Three tries each, and a pause before the next one.
    bench.after(Duration::from_secs(25 * 90)).await;
    assert_eq!(bench.batches.waiting(), 0);
    assert_eq!(bench.end().await, (0, 100, 0));
}

#[tokio::test(start_paused = true)]
async fn an_end_does_not_wait_for_a_silent_side() {
    let bench = bench(PACE);
    bench.push(3);
    bench.other.silent.store(true, Relaxed);
    let began = Instant::now();
    assert_eq!(bench.end().await, (0, 3, 0));
    assert!(began.elapsed() <= LAST + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_at_the_end_is_counted_and_what_waits_has_the_same_time() {
    let bench = bench(PACE);
    bench.other.silent.store(true, Relaxed);
    bench.push(7);
    bench.after(Duration::from_secs(1)).await;
    assert_eq!((bench.other.asked.load(Relaxed), bench.batches.waiting()), (1, 3));
    let began = Instant::now();
    assert_eq!(bench.end().await, (0, 7, 0));
    assert!(began.elapsed() <= LAST + Duration::from_millis(100), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_the_other_side_wants_it() {
    let bench = bench(PACE);
    let busy =
        |seconds| Some(Failed { after: Some(Duration::from_secs(seconds)), ..Failed::passing("busy") });
    // Within the time that a chunk is tried.
    *bench.other.fail.lock().unwrap() = busy(40);
    bench.push(4);
    bench.after(Duration::from_secs(39)).await;
    assert_eq!(bench.other.asked.load(Relaxed), 1);
    // Beyond it: this chunk is given up, and the next one waits.
    *bench.other.fail.lock().unwrap() = busy(120);
    bench.after(Duration::from_secs(10)).await;
    assert_eq!((bench.other.asked.load(Relaxed), bench.counts.failed.get()), (2, 4));
    *bench.other.fail.lock().unwrap() = None;
    bench.push(4);
    bench.after(Duration::from_secs(100)).await;
    assert_eq!((bench.other.asked.load(Relaxed), bench.batches.waiting()), (2, 0), "one is on its way");
    bench.after(Duration::from_secs(60)).await;
    assert_eq!(bench.counts.sent.get(), 4);
    // A server does not silence a sink for days.
    *bench.other.fail.lock().unwrap() = busy(1_000_000);
    bench.push(4);
    bench.after(Duration::from_secs(1)).await;
    *bench.other.fail.lock().unwrap() = None;
    bench.push(4);
    bench.after(MAX_AFTER * 2).await;
    assert_eq!(bench.end().await, (8, 8, 0));
}

#[tokio::test(start_paused = true)]
async fn what_the_other_side_refuses_is_counted() {
    let bench = bench(PACE);
    bench.other.refuses.store(3, Relaxed);
    bench.push(4);
    assert_eq!(bench.end().await, (1, 0, 3));
}

/// A side that works, fails for a while, fails for good and refuses by turns: every item is in exactly one count, and what was
/// counted as sent was delivered.
#[tokio::test(start_paused = true)]
async fn a_flapping_side_costs_what_is_counted() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let bench = bench(Pace { interval: Duration::from_secs(1), retry_for: Duration::from_secs(8) });
        let mut pushed = 0_u64;
        for _ in 0..60 {
            let items = random.usize(..70);
            bench.push(items);
            pushed += items as u64;
            let fails = match random.u8(..4) {
                0 => Some(Failed::passing("away")),
                1 => Some(Failed::lasting("no")),
                _ => None,
            };
            *bench.other.fail.lock().unwrap() = fails;
            bench.other.refuses.store(usize::from(random.u8(..6) == 0), Relaxed);
            bench.after(Duration::from_millis(random.u64(1..5_000))).await;
            assert!(bench.batches.waiting() <= 100, "no more waits than may");
        }
        let (batches, other) = (bench.batches.clone(), bench.other.clone());
        let (sent, failed, refused) = bench.end().await;
        assert_eq!(batches.waiting(), 0);
        assert_eq!(sent + failed + refused + batches.lost(), pushed, "seed {seed}");
        assert_eq!(other.got.lock().unwrap().len() as u64, sent + refused, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_exporter_whose_items_are_refused_does_not_work() {
    let bench = bench(PACE);
    bench.other.refuses.store(1, Relaxed);
    bench.push(4);
    bench.after(Duration::from_secs(1)).await;
    assert_eq!((bench.counts.sent.get(), bench.counts.refused.get()), (3, 1));
    assert!(bench.health.failing().is_some_and(|(_, why)| why == "not these"));
    bench.other.refuses.store(0, Relaxed);
    bench.push(4);
    bench.after(Duration::from_secs(1)).await;
    assert!(bench.health.failing().is_none());
    assert_eq!(bench.end().await, (7, 0, 1));
}
