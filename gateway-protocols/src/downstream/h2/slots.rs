//! The exchanges of one connection, side by side in its one task.
//!
//! A slot is a future that serves one exchange after the other, so that neither the heap nor the scheduler is asked
//! for each. It runs when something woke it, in the order in which they were woken.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use atomic_refcell::AtomicRefCell;
use futures_util::task::AtomicWaker;
use slab::Slab;

/// Slots kept though they have nothing to do, for the next exchanges; all go when the connection rests.
const MAX_FREE: usize = 32;

/// Futures that serve jobs of the kind `J`.
pub(crate) struct Slots<'w, J> {
    slots: Slab<Slot<'w, J>>,
    free: Vec<usize>,
    ready: Arc<Ready>,
    batch: Vec<usize>,
}

struct Slot<'w, J> {
    work: Pin<Box<dyn Future<Output = ()> + Send + 'w>>,
    job_slot: Arc<JobSlot<J>>,
    woken: Arc<SlotWaker>,
    waker: Waker,
}

/// Where a slot finds its next job.
pub(crate) struct JobSlot<J> {
    job: AtomicRefCell<Option<J>>,
    done: AtomicBool,
}

impl<J> JobSlot<J> {
    /// The next job, once there is one.
    pub(crate) async fn job(&self) -> J {
        poll_fn(|_| match self.job.try_borrow_mut().ok().and_then(|mut job| job.take()) {
            Some(job) => Poll::Ready(job),
            None => Poll::Pending,
        })
        .await
    }

    /// The job is done.
    pub(crate) fn done(&self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

/// Slots that were woken, in order.
#[derive(Default)]
struct Ready {
    woken: Mutex<Vec<usize>>,
    /// Whether the task is at work already, and will look itself.
    attended: AtomicBool,
    task: AtomicWaker,
}

impl Ready {
    fn push(&self, index: usize) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(index);
        if !self.attended.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }

    fn is_empty(&self) -> bool {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// Wakes one slot.
struct SlotWaker {
    index: usize,
    flag: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.flag.swap(true, Ordering::AcqRel) {
            self.ready.push(self.index);
        }
    }
}

impl<'w, J> Slots<'w, J> {
    pub(crate) fn new() -> Self {
        Self { slots: Slab::new(), free: Vec::new(), ready: Arc::default(), batch: Vec::new() }
    }

    /// Gives a job to a free slot, or to a new one made by `work`.
    pub(crate) fn start<F>(&mut self, job: J, work: impl FnOnce(Arc<JobSlot<J>>) -> F)
    where
        F: Future<Output = ()> + Send + 'w,
    {
        let index = self.free.pop().unwrap_or_else(|| {
            let job_slot = Arc::new(JobSlot { job: AtomicRefCell::new(None), done: AtomicBool::new(false) });
            let entry = self.slots.vacant_entry();
            let woken = Arc::new(SlotWaker {
                index: entry.key(),
                flag: AtomicBool::new(false),
                ready: self.ready.clone(),
            });
            let waker = Waker::from(woken.clone());
            let index = entry.key();
            entry.insert(Slot { work: Box::pin(work(job_slot.clone())), job_slot, woken, waker });
            index
        });
        let Some(slot) = self.slots.get(index) else { return };
        if let Ok(mut place) = slot.job_slot.job.try_borrow_mut() {
            *place = Some(job);
        }
        slot.waker.wake_by_ref();
    }

    /// Runs every slot that was woken so far, once; false when there was none.
    pub(crate) fn run(&mut self, mut panicked: impl FnMut()) -> bool {
        std::mem::swap(
            &mut *self.ready.woken.lock().unwrap_or_else(PoisonError::into_inner),
            &mut self.batch,
        );
        let mut batch = std::mem::take(&mut self.batch);
        let any = !batch.is_empty();
        for index in batch.drain(..) {
            let Some(slot) = self.slots.get_mut(index) else { continue };
            slot.woken.flag.store(false, Ordering::Release);
            let mut cx = Context::from_waker(&slot.waker);
            let polled = catch_unwind(AssertUnwindSafe(|| slot.work.as_mut().poll(&mut cx)));
            if polled.is_err() {
                panicked();
            }
            if !matches!(polled, Ok(Poll::Pending)) {
                drop(self.slots.remove(index));
            } else if slot.job_slot.done.swap(false, Ordering::Relaxed) {
                if self.free.len() < MAX_FREE {
                    self.free.push(index);
                } else {
                    drop(self.slots.remove(index));
                }
            }
        }
        self.batch = batch;
        any
    }

    /// The task is at work: wakes from now on are looked at before it goes.
    pub(crate) fn attend(&self) {
        self.ready.attended.store(true, Ordering::SeqCst);
    }

    /// The task goes, and is woken when a slot is; false when one was in the meantime.
    pub(crate) fn watch(&self, cx: &Context<'_>) -> bool {
        self.ready.task.register(cx.waker());
        self.ready.attended.store(false, Ordering::SeqCst);
        self.ready.is_empty()
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.busy() == 0
    }

    /// How many exchanges are under way.
    pub(crate) fn busy(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Gives memory back while nothing happens.
    pub(crate) fn rest(&mut self) {
        for index in self.free.drain(..) {
            drop(self.slots.remove(index));
        }
        if self.slots.is_empty() {
            self.slots = Slab::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn serve(job_slot: Arc<JobSlot<u32>>, seen: Arc<Mutex<Vec<u32>>>, held: Arc<AtomicBool>) {
        loop {
            let job = job_slot.job().await;
            assert_ne!(job, 13, "the job of bad luck");
            seen.lock().unwrap().push(job);
            poll_fn(|_| if held.load(Ordering::Relaxed) { Poll::Pending } else { Poll::Ready(()) }).await;
            job_slot.done();
        }
    }

    #[test]
    fn slots_are_used_again_and_a_panic_ends_one() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let held = Arc::new(AtomicBool::new(false));
        let mut slots = Slots::new();
        let mut panics = 0;
        for job in [1, 2, 13, 3] {
            slots.start(job, |job_slot| serve(job_slot, seen.clone(), held.clone()));
            assert!(slots.run(|| panics += 1));
            assert!(slots.is_idle());
        }
        assert_eq!(*seen.lock().unwrap(), [1, 2, 3]);
        assert_eq!((panics, slots.slots.len()), (1, 1));
        held.store(true, Ordering::Relaxed);
        for job in 4..7 {
            slots.start(job, |job_slot| serve(job_slot, seen.clone(), held.clone()));
        }
        assert!(slots.run(|| panics += 1));
        assert!(!slots.is_idle());
        assert!(!slots.run(|| panics += 1), "nobody was woken");
        slots.rest();
        assert_eq!(slots.slots.len(), 3);
    }
}
