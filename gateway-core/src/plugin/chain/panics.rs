//! Hooks that panic while records are handed out, which happens while other code unwinds.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Hooks that panicked while a record was handed out.
#[must_use]
pub(crate) struct Panics(pub(crate) u32);

impl Panics {
    /// A panic here would meet another one on its way and end the process: records are handed out while unwinding.
    pub(in crate::plugin) fn guard(&mut self, hook: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(hook)).is_err() {
            self.0 += 1;
        }
    }
}
