//! Results on standard output.

use std::fmt;
use std::io::{self, Write};

/// Prints a line. A reader that went away (`| head`) is no failure of ours.
pub(super) fn line(text: impl fmt::Display) {
    raw(format_args!("{text}\n"));
}

/// Prints text as it is.
pub(super) fn raw(text: fmt::Arguments<'_>) {
    let written = io::stdout().lock().write_fmt(text);
    if written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        std::process::exit(0);
    }
}

/// Prints a line for people on standard error, where no log is.
pub(super) fn error(text: impl fmt::Display) {
    let written = writeln!(io::stderr().lock(), "{text}");
    // There is nowhere left to complain to.
    drop(written);
}
