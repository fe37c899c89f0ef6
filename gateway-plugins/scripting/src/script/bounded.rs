//! Rhai's functions that can make much out of little, written so that they hold the limits before they begin.
//!
//! Rhai looks at the size of a value once a function has returned it. A function that multiplies (`replace` of every
//! character by a long text) would take the machine's memory, and time beyond `timeout`, before that look.

use std::cell::Cell;
use std::sync::LazyLock;

use rhai::{
    Array, Blob, Dynamic, Engine, EvalAltResult, FnPtr, FuncRegistration, ImmutableString, Map, Module,
    NativeCallContext, Position, Shared,
};

use super::failure::{ScriptResult, error};

/// Values within values that are written as text.
const MAX_DEPTH: usize = 64;
/// Bytes and values of what is shown in a log.
const MAX_SHOWN_TEXT: usize = 64 << 10;
const MAX_SHOWN_VALUES: usize = 1000;
const STRING: &str = "Length of string";
const ARRAY: &str = "Size of array/BLOB";

thread_local! {
    /// Whether a value was too large to be written. Rhai writes a value whose `to_string` fails in its own way, without a
    /// bound; so ours does not fail but empties the value and leaves a mark, at which the script ends.
    static IS_OVER: Cell<bool> = const { Cell::new(false) };
}

/// Whether a value was too large to be written since this was asked the last time.
pub(super) fn was_over() -> bool {
    IS_OVER.take()
}

/// Whether one was, without forgetting it.
pub(super) fn is_over() -> bool {
    IS_OVER.get()
}

/// The error of a string that would be too long.
pub(super) fn too_long() -> Box<EvalAltResult> {
    too_large(STRING)
}

fn too_large(what: &str) -> Box<EvalAltResult> {
    EvalAltResult::ErrorDataTooLarge(what.to_owned(), Position::NONE).into()
}

/// The same for every script; it comes before Rhai's own.
pub(super) static BOUNDED: LazyLock<Shared<Module>> = LazyLock::new(|| {
    let mut module = Module::new();
    replacing(&mut module);
    padding(&mut module);
    splitting(&mut module);
    writing(&mut module);
    module.build_index();
    Shared::new(module)
});

macro_rules! bounded {
    ($module:expr, $name:literal, $function:expr) => {
        FuncRegistration::new($name).in_global_namespace().set_into_module($module, $function);
    };
}

fn replacing(module: &mut Module) {
    type Context<'a> = NativeCallContext<'a>;
    bounded!(module, "replace", |ctx: Context<'_>, it: &mut ImmutableString, a: &str, b: &str| {
        replace(ctx.engine(), it, a, b)
    });
    bounded!(module, "replace", |ctx: Context<'_>, it: &mut ImmutableString, a: &str, b: char| {
        replace(ctx.engine(), it, a, b.encode_utf8(&mut [0; 4]))
    });
    bounded!(module, "replace", |ctx: Context<'_>, it: &mut ImmutableString, a: char, b: &str| {
        replace(ctx.engine(), it, a.encode_utf8(&mut [0; 4]), b)
    });
    bounded!(module, "replace", |ctx: Context<'_>, it: &mut ImmutableString, a: char, b: char| {
        replace(ctx.engine(), it, a.encode_utf8(&mut [0; 4]), b.encode_utf8(&mut [0; 4]))
    });
}

fn replace(engine: &Engine, text: &mut ImmutableString, find: &str, with: &str) -> ScriptResult<()> {
    if text.is_empty() {
        return Ok(());
    }
    let found = text.matches(find).count();
    let length =
        with.len().checked_mul(found).and_then(|more| more.checked_add(text.len() - found * find.len()));
    if length.is_none_or(|length| length > engine.max_string_size()) {
        return Err(too_long());
    }
    *text = text.replace(find, with).into();
    Ok(())
}

fn padding(module: &mut Module) {
    bounded!(module, "pad", |ctx: NativeCallContext<'_>, it: &mut ImmutableString, to: i64, with: &str| {
        pad(ctx.engine(), it, to, with)
    });
    bounded!(module, "pad", |ctx: NativeCallContext<'_>, it: &mut ImmutableString, to: i64, with: char| {
        pad(ctx.engine(), it, to, with.encode_utf8(&mut [0; 4]))
    });
}

/// Appends characters of `with` until there are `to`. Rhai's own would never come to an end with an empty text.
fn pad(engine: &Engine, text: &mut ImmutableString, to: i64, with: &str) -> ScriptResult<()> {
    let missing = usize::try_from(to).unwrap_or(0).saturating_sub(text.chars().count());
    if missing == 0 {
        return Ok(());
    }
    if with.is_empty() {
        return error("nothing can't be padded with an empty text");
    }
    let each = with.chars().count();
    let rest: usize = with.chars().take(missing % each).map(char::len_utf8).sum();
    let length =
        (missing / each).checked_mul(with.len()).and_then(|more| more.checked_add(rest + text.len()));
    if length.is_none_or(|length| length > engine.max_string_size()) {
        return Err(too_long());
    }
    let mut padded = text.to_string();
    padded.extend(with.chars().cycle().take(missing));
    *text = padded.into();
    Ok(())
}

fn splitting(module: &mut Module) {
    type Context<'a> = NativeCallContext<'a>;
    bounded!(module, "split", |ctx: Context<'_>, it: &mut ImmutableString| match it.is_empty() {
        true => Ok(vec![it.clone().into()]),
        false => list(ctx.engine(), it.split_whitespace()),
    });
    bounded!(module, "split", |ctx: Context<'_>, it: &mut ImmutableString, at: &str| {
        split(ctx.engine(), it, at, i64::MAX, false)
    });
    bounded!(module, "split", |ctx: Context<'_>, it: &mut ImmutableString, at: char| {
        split(ctx.engine(), it, at.encode_utf8(&mut [0; 4]), i64::MAX, false)
    });
    bounded!(module, "split", |ctx: Context<'_>, it: &mut ImmutableString, at: &str, most: i64| {
        split(ctx.engine(), it, at, most, false)
    });
    bounded!(module, "split", |ctx: Context<'_>, it: &mut ImmutableString, at: char, most: i64| {
        split(ctx.engine(), it, at.encode_utf8(&mut [0; 4]), most, false)
    });
    bounded!(module, "split_rev", |ctx: Context<'_>, it: &mut ImmutableString, at: &str| {
        split(ctx.engine(), it, at, i64::MAX, true)
    });
    bounded!(module, "split_rev", |ctx: Context<'_>, it: &mut ImmutableString, at: char| {
        split(ctx.engine(), it, at.encode_utf8(&mut [0; 4]), i64::MAX, true)
    });
    bounded!(module, "split_rev", |ctx: Context<'_>, it: &mut ImmutableString, at: &str, most: i64| {
        split(ctx.engine(), it, at, most, true)
    });
    bounded!(module, "split_rev", |ctx: Context<'_>, it: &mut ImmutableString, at: char, most: i64| {
        split(ctx.engine(), it, at.encode_utf8(&mut [0; 4]), most, true)
    });
    bounded!(module, "to_chars", |ctx: Context<'_>, it: &str| list(ctx.engine(), it.chars()));
    bounded!(module, "to_array", |ctx: Context<'_>, it: &mut Blob| {
        list(ctx.engine(), it.iter().map(|byte| i64::from(*byte)))
    });
}

fn split(
    engine: &Engine,
    text: &ImmutableString,
    at: &str,
    most: i64,
    from_end: bool,
) -> ScriptResult<Array> {
    if most <= 1 || text.is_empty() {
        return Ok(vec![text.clone().into()]);
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if from_end { list(engine, text.rsplitn(most, at)) } else { list(engine, text.splitn(most, at)) }
}

/// An array of these, if they are not too many.
fn list<T: Into<Dynamic>>(engine: &Engine, all: impl Iterator<Item = T>) -> ScriptResult<Array> {
    let most = engine.max_array_size();
    let found: Array = all.take(most.saturating_add(1)).map(Into::into).collect();
    if found.len() > most { Err(too_large(ARRAY)) } else { Ok(found) }
}

fn writing(module: &mut Module) {
    macro_rules! written {
        ($($name:literal),*) => {$(
            bounded!(module, $name, |ctx: NativeCallContext<'_>, it: &mut Array| -> String {
                let is_good = check(ctx.engine(), it.iter()).is_ok();
                // Rhai looks at the value again, and would write one that is too large in its own way.
                written(is_good, || format!("{it:?}")).unwrap_or_else(|| { it.clear(); String::new() })
            });
            bounded!(module, $name, |ctx: NativeCallContext<'_>, it: &mut Map| -> String {
                let is_good = check(ctx.engine(), it.values()).is_ok();
                written(is_good, || format!("#{it:?}")).unwrap_or_else(|| { it.clear(); String::new() })
            });
            // Rhai's own would write what it has captured, and what that has captured.
            bounded!(module, $name, |it: &mut FnPtr| -> String { it.to_string() });
        )*};
    }
    written!("print", "debug", "to_string", "to_debug");
    bounded!(module, "to_json", |ctx: NativeCallContext<'_>, it: &mut Map| -> ScriptResult<String> {
        check(ctx.engine(), it.values())?;
        Ok(rhai::format_map_as_json(it))
    });
    bounded!(module, "sleep", |_: i64| -> ScriptResult<()> { error("a script can't sleep") });
    bounded!(module, "sleep", |_: f64| -> ScriptResult<()> { error("a script can't sleep") });
}

fn written(is_good: bool, write: impl FnOnce() -> String) -> Option<String> {
    if !is_good {
        IS_OVER.set(true);
    }
    is_good.then(write)
}

/// Whether values may be written as a text: the strings that an assignment puts into an array or a map are shared, and
/// nothing has counted them yet.
///
/// # Errors
/// They are too large for the engine's limits, or too deep.
pub(super) fn check<'a>(engine: &Engine, within: impl Iterator<Item = &'a Dynamic>) -> ScriptResult<()> {
    let mut left = Left {
        text: engine.max_string_size(),
        values: engine.max_array_size().saturating_add(engine.max_map_size()),
    };
    let mut within = within;
    within.try_for_each(|value| left.take(value, 0))
}

/// Whether a value may be shown in a log: what is thrown may be anything.
pub(super) fn is_short(value: &Dynamic) -> bool {
    let is_one = value.is_fnptr() && !value.is_shared();
    is_one || Left { text: MAX_SHOWN_TEXT, values: MAX_SHOWN_VALUES }.take(value, 0).is_ok()
}

/// What may still be written.
struct Left {
    text: usize,
    values: usize,
}

impl Left {
    fn take(&mut self, value: &Dynamic, depth: usize) -> ScriptResult<()> {
        if depth > MAX_DEPTH {
            return error("there are too many values within values");
        }
        self.values = self.values.checked_sub(1).ok_or_else(|| too_large(ARRAY))?;
        if let Ok(text) = value.as_immutable_string_ref() {
            return self.text(text.len());
        }
        if value.read_lock::<FnPtr>().is_some_and(|closure| closure.is_curried()) {
            return error("a closure with what it has captured can't be written");
        }
        if let Ok(blob) = value.as_blob_ref() {
            return self.text(blob.len());
        }
        if let Ok(list) = value.as_array_ref() {
            return list.iter().try_for_each(|value| self.take(value, depth + 1));
        }
        if let Ok(map) = value.as_map_ref() {
            return map.iter().try_for_each(|(name, value)| {
                self.text(name.len())?;
                self.take(value, depth + 1)
            });
        }
        Ok(())
    }

    fn text(&mut self, length: usize) -> ScriptResult<()> {
        self.text = self.text.checked_sub(length).ok_or_else(too_long)?;
        Ok(())
    }
}
