//! Results on standard output.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use super::FAILED;
use crate::export::program_log;

/// Prints a line. A reader that went away (`| head`) is no failure of ours.
pub(super) fn line(text: impl fmt::Display) {
    raw(format_args!("{text}\n"));
}

/// Prints text as it is. When it can't be printed whole, the program ends: what follows would be no result.
pub(super) fn raw(text: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    let Err(failed) = out.write_fmt(text).and_then(|()| out.flush()) else { return };
    if failed.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    error(format_args!("the result can't be printed: {failed}"));
    std::process::exit(FAILED.into());
}

/// A number of things: `1 error`, `2 errors`.
pub(super) fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Says that a file had nothing to check, and returns the exit code: a check of nothing is no success.
pub(super) fn nothing_checked(file: &Path, what: &str) -> u8 {
    error(format_args!("{}: there is no {what} in it, so nothing was checked", file.display()));
    FAILED
}

/// Prints a line that is no result; it does not matter whether anybody reads it.
pub(super) fn notice(text: impl fmt::Display) {
    drop(writeln!(io::stdout().lock(), "{text}"));
}

/// Prints a line for people on standard error, after what was logged before.
pub(super) fn error(text: impl fmt::Display) {
    program_log::flush();
    let written = writeln!(io::stderr().lock(), "{text}");
    // There is nowhere left to complain to.
    drop(written);
}
