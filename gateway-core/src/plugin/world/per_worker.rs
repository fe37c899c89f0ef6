//! One value for each worker, for what can't be shared: script engines, WASM instances, caches without a lock.

use atomic_refcell::{AtomicRefCell, AtomicRefMut};
use thread_local::ThreadLocal;

/// One `T` for each thread that asks for it, made when it first asks.
pub struct PerWorker<T: Send>(ThreadLocal<AtomicRefCell<T>>);

impl<T: Send> PerWorker<T> {
    /// No thread has one yet.
    pub fn new() -> Self {
        Self(ThreadLocal::new())
    }

    /// This thread's value, made where there is none yet. `None` while it is borrowed further up this thread's stack.
    ///
    /// Never hold it over an `.await`: another exchange of this worker may ask for it.
    pub fn get_or(&self, make: impl FnOnce() -> T) -> Option<AtomicRefMut<'_, T>> {
        self.0.get_or(|| AtomicRefCell::new(make())).try_borrow_mut().ok()
    }

    /// Every thread's value that is not in use, to sum them up.
    pub fn each(&mut self, mut see: impl FnMut(&mut T)) {
        self.0.iter_mut().for_each(|cell| see(cell.get_mut()));
    }
}

impl<T: Send> Default for PerWorker<T> {
    fn default() -> Self {
        Self::new()
    }
}
