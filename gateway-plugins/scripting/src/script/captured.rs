//! The variables that closures have captured, held until a function's values may be freed.
//!
//! A closure that captures a variable that holds a closure, and so on, makes a chain as long as `max_operations` lets it become.
//! Rust frees such a chain from within itself, one stack frame a link, and a chain of cells that refer to each other in a circle
//! never. Here every captured variable is held once more, so that freeing a closure frees no other. At the end each one is
//! emptied by itself: no chain is deep, and no circle stays.

use std::cell::RefCell;
use std::collections::HashSet;

use rhai::{Dynamic, EvalContext};

use super::failure::{ScriptResult, error};

/// Variables that the closures of one exchange may capture.
const MAX_CAPTURED: usize = 10_000;

thread_local! {
    /// Of the function that this thread runs.
    static CAPTURED: RefCell<Captured> = RefCell::default();
}

/// Captured variables, which are emptied when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Captured {
    cells: Vec<Dynamic>,
    /// Where they are in memory.
    known: HashSet<usize>,
}

impl Captured {
    /// Has this thread's functions add to it while `run` runs.
    pub(super) fn collect<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let outer = CAPTURED.replace(std::mem::take(self));
        let result = run();
        *self = CAPTURED.replace(outer);
        result
    }

    /// Where the variables are, for [`note`].
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
            // The lock is given back before what was in it is dropped.
            let content = cell.write_lock::<Dynamic>().map(|mut content| content.take());
            drop(content);
        }
    }
}

/// Holds a variable that a script looks at, if a closure has captured it. `elsewhere` are places of those that are held already,
/// by the script itself.
///
/// # Errors
/// There are too many.
pub(super) fn note(
    name: &str,
    from_end: usize,
    context: &EvalContext<'_, '_, '_, '_, '_, '_>,
    elsewhere: &HashSet<usize>,
) -> ScriptResult<()> {
    let scope = context.scope();
    // The last one comes first; without a place it is found by its name.
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
