//! Where the program's own log goes, and how much of it.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;

use super::Verbosity;
use crate::export::Rfc3339;

/// Times as in the access log.
struct Utc;

impl FormatTime for Utc {
    fn format_time(&self, w: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
        write!(w, "{}", Rfc3339(std::time::SystemTime::now()))
    }
}

/// Logs to standard error from here on: for people on a terminal, JSON lines otherwise.
///
/// The level is `-v`'s, else `FERRUM_LOG_LEVEL`'s, else `RUST_LOG`'s, else warnings; the variables may also give
/// levels by module, as in `warn,gateway_protocols=debug`.
pub(super) fn init(verbosity: Verbosity) {
    let targets = targets(verbosity);
    let builder =
        tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(io::stderr).with_timer(Utc);
    let installed = if io::stderr().is_terminal() {
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let pretty = builder.with_target(false).with_ansi(colours).finish();
        tracing::subscriber::set_global_default(pretty.with(targets))
    } else {
        let json = builder.json().flatten_event(true).with_ansi(false).finish();
        tracing::subscriber::set_global_default(json.with(targets))
    };
    // A host program's own subscriber stays.
    drop(installed);
}

/// What is logged. Not an `EnvFilter`: one word needs no language of patterns.
fn targets(verbosity: Verbosity) -> Targets {
    let flag = match verbosity.verbose {
        0 => None,
        1 => Some("info".to_owned()),
        2 => Some("debug".to_owned()),
        _ => Some("trace".to_owned()),
    };
    let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    let words = flag.or_else(|| variable("FERRUM_LOG_LEVEL")).or_else(|| variable("RUST_LOG"));
    let words = words.unwrap_or_else(|| "warn".to_owned());
    words.parse().unwrap_or_else(|error| {
        super::print::error(format_args!("the log level `{words}` is not understood ({error}); using warn"));
        Targets::new().with_default(LevelFilter::WARN)
    })
}
