//! Variables that closures have captured. They are held until the values of the function may be freed.
//!
//! A closure can capture a variable that contains a closure, and so on. Such a chain is as long as `max_operations` permits. Rust
//! frees the chain recursively, with one stack frame per link, and it never frees a cycle of cells. This module holds one more
//! reference to each captured variable, so freeing a closure frees no other closure. At the end, each variable is emptied
//! separately: there is no deep recursion, and no cycle remains.

use std::cell::RefCell;
use std::collections::HashSet;

use rhai::{Dynamic, EvalContext};

use super::failure::{ScriptResult, error};

/// Maximum number of variables that the closures of one exchange may capture.
const MAX_CAPTURED: usize = 10_000;

thread_local! {
    /// The captured variables of the function that runs on this thread.
    static CAPTURED: RefCell<Captured> = RefCell::default();
}

/// Captured variables; dropping this value empties them.
#[derive(Debug, Default)]
pub(super) struct Captured {
    cells: Vec<Dynamic>,
    /// Their addresses in memory.
    known: HashSet<usize>,
}

impl Captured {
    /// While `run` runs, functions on this thread add their captured variables to this value.
    pub(super) fn collect<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let outer = CAPTURED.replace(std::mem::take(self));
        let result = run();
        *self = CAPTURED.replace(outer);
        result
    }

    /// The addresses of the variables, for [`note`].
    pub(super) fn places(&self) -> HashSet<usize> {
        self.known.clone()
    }

    fn add(&mut self, place: usize, cell: &Dynamic) -> ScriptResult<()> {
        if self.known.len() >= MAX_CAPTURED && !self.known.contains(&place) {
            return error(format_args!("closures may capture {MAX_CAPTURED} variables"));
        }
        if self.known.insert(place) {
            self.cells.push(cell.clone());
        }
        Ok(())
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        for cell in &mut self.cells {
            // The lock is released before its former content is dropped.
            let content = cell.write_lock::<Dynamic>().map(|mut content| content.take());
            drop(content);
        }
    }
}

/// Holds a variable that a script reads, if a closure has captured it. `elsewhere` contains the addresses of variables that the
/// script itself already holds.
///
/// # Errors
/// The closures have captured too many variables.
pub(super) fn note(
    name: &str,
    from_end: usize,
    context: &EvalContext<'_, '_, '_, '_, '_, '_>,
    elsewhere: &HashSet<usize>,
) -> ScriptResult<()> {
    let scope = context.scope();
    // `from_end` counts from the last variable; without it, the variable is found by name.
    let value = match from_end.checked_sub(1) {
        Some(before) => scope.iter_raw().nth(before).map(|(_, _, value)| value),
        None => scope.get(name),
    };
    let Some(value) = value.filter(|value| value.is_shared()) else { return Ok(()) };
    let Some(place) = value.read_lock::<Dynamic>().map(|content| std::ptr::from_ref(&*content).addr()) else {
        return Ok(());
    };
    match elsewhere.contains(&place) {
        true => Ok(()),
        false => CAPTURED.with_borrow_mut(|captured| captured.add(place, value)),
    }
}
