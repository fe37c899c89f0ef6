//! What a test's thread has asked of its database, for tests of what work grows with.

use std::cell::Cell;

use crate::store::Store;

thread_local! {
    static WORK: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

pub(super) fn statement() {
    WORK.with(|work| work.set((work.get().0 + 1, work.get().1)));
}

pub(super) fn row() {
    WORK.with(|work| work.set((work.get().0, work.get().1 + 1)));
}

impl Store {
    /// Statements that this thread has carried out, and rows that it has read, since it last asked.
    pub(crate) fn counted_work() -> (u64, u64) {
        WORK.with(Cell::take)
    }
}
