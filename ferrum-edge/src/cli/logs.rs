//! Where the program's own log goes, and how much of it.

use std::io::{self, IsTerminal};
use std::panic::PanicHookInfo;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;

use super::Verbosity;
use crate::export::program_log::ProgramLog;
use gateway_telemetry::json::Rfc3339;

/// What the names of our crates have behind `gateway_`.
const CRATES: &[&str] = &["core", "import", "plugins", "protocols", "scripting", "telemetry", "waf"];
/// Other modules that log.
const MODULES: &[&str] = &[
    "ferrum_edge",
    "h2",
    "hickory_net",
    "hickory_proto",
    "hickory_resolver",
    "hyper",
    "quinn",
    "quinn_proto",
    "quinn_udp",
    "rustls",
    "sqlx",
    "sqlx_core",
];

/// Times as in the access log.
struct Utc;

impl FormatTime for Utc {
    fn format_time(&self, w: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
        write!(w, "{}", Rfc3339(std::time::SystemTime::now()))
    }
}

/// Logs to standard error from here on: for people on a terminal, JSON lines otherwise. Panics are logged, too.
///
/// The level is `-v`'s, else `FERRUM_LOG_LEVEL`'s, else `RUST_LOG`'s, else `info`; the variables may also give
/// levels by module, as in `warn,gateway_protocols=debug`; other modules have the level by itself, else `info`.
pub(super) fn init(verbosity: Verbosity) {
    let targets = targets(verbosity);
    let log = match ProgramLog::install() {
        Ok(log) => log,
        Err(error) => {
            return super::print::error(format_args!("no log: its thread could not be started: {error}"));
        }
    };
    let repeats = log.repeats();
    let builder = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(log)
        .log_internal_errors(false)
        .with_timer(Utc);
    let installed = if io::stderr().is_terminal() {
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let pretty = builder.with_target(false).with_ansi(colours).finish();
        tracing::subscriber::set_global_default(pretty.with(targets).with(repeats))
    } else {
        // The fields of an event stand beside the log's own, and some events have a target of requests.
        let json = builder.json().flatten_event(true).with_target(false).with_ansi(false).finish();
        tracing::subscriber::set_global_default(json.with(targets).with(repeats))
    };
    // A host program's own subscriber stays.
    if installed.is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
}

/// The hook that comes with Rust writes to standard error itself, and waits for its reader.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let location = panic.location().map(ToString::to_string);
    tracing::error!(
        thread = thread.name().unwrap_or_default(),
        location,
        message = panic.payload_as_str().unwrap_or("panicked")
    );
}

/// What is logged. Not an `EnvFilter`: one word needs no language of patterns.
fn targets(verbosity: Verbosity) -> Targets {
    let flag = match verbosity.verbose {
        0 => None,
        1 => Some("info".to_owned()),
        2 => Some("debug".to_owned()),
        _ => Some("trace".to_owned()),
    };
    // What is not UTF-8 is not understood below.
    let variable = |name| {
        let text = std::env::var_os(name)?.to_string_lossy().into_owned();
        Some(text).filter(|text| !text.is_empty())
    };
    let words = flag.or_else(|| variable("FERRUM_LOG_LEVEL")).or_else(|| variable("RUST_LOG"));
    let words = words.unwrap_or_else(|| "info".to_owned());
    for module in unknown(&words) {
        super::print::error(format_args!(
            "the log level `{words}` is for a module `{module}`, and none of this name is known; there are {}",
            names().collect::<Vec<_>>().join(", ")
        ));
    }
    read(&words).unwrap_or_else(|error| {
        super::print::error(format_args!("the log level `{words}` is not understood ({error}); using info"));
        Targets::new().with_default(LevelFilter::INFO)
    })
}

/// The modules that log.
fn names() -> impl Iterator<Item = String> {
    let ours = CRATES.iter().map(|name| format!("gateway_{name}"));
    ours.chain(MODULES.iter().map(|name| (*name).to_owned()))
}

fn is_known(module: &str) -> bool {
    names().any(|name| name == module)
}

/// Modules that levels are given for and that log nothing, as far as is known: programs may add plugins of their own.
fn unknown(words: &str) -> Vec<&str> {
    let modules = words.split(',').filter_map(|part| part.split_once('=')).map(|(module, _)| module.trim());
    let first = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
    modules.filter(|module| !is_known(&first(module))).collect()
}

/// Why levels can't be read.
#[derive(Debug, thiserror::Error)]
enum LevelsError {
    #[error("`{0}` is not one of off, error, warn, info, debug and trace")]
    Level(String),
    #[error(transparent)]
    Targets(#[from] tracing_subscriber::filter::ParseError),
}

/// Reads levels, as `warn,gateway_protocols=debug`. A word by itself has to be a level: it would be taken for a module
/// otherwise, and nothing else would be logged. Without one it is `info`: who wants more of a module wants no less of others.
fn read(words: &str) -> Result<Targets, LevelsError> {
    let level = |word: &str| match word.to_ascii_lowercase().as_str() {
        "warning" => Ok("warn".to_owned()),
        lower if lower.parse::<LevelFilter>().is_ok() => Ok(lower.to_owned()),
        _ => Err(LevelsError::Level(word.to_owned())),
    };
    let part = |part: &str| match part.trim().split_once('=') {
        Some((module, word)) => Ok(format!("{module}={}", level(word.trim())?)),
        None => level(part.trim()),
    };
    let parts = words.split(',').filter(|part| !part.trim().is_empty()).map(part);
    let mut parts: Vec<String> = parts.collect::<Result<_, LevelsError>>()?;
    if parts.iter().all(|part| part.contains('=')) {
        parts.push("info".to_owned());
    }
    Ok(parts.join(",").parse()?)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_word_by_itself_is_a_level() {
        let at = |words: &str, target: &str| {
            let targets = read(words).unwrap();
            let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
            levels.into_iter().filter(|level| targets.would_enable(target, level)).count()
        };
        for (words, expected) in [
            ("off", (0, 0)),
            ("error", (1, 1)),
            ("warn", (2, 2)),
            ("Warning", (2, 2)),
            ("WARN", (2, 2)),
            ("info", (3, 3)),
            ("4", (4, 4)),
            ("trace", (5, 5)),
            ("warn,b=debug", (2, 4)),
            ("warning, b=warning", (2, 2)),
            ("b=trace", (3, 5)),
            ("b=error", (3, 1)),
            ("b=off,", (3, 0)),
            ("off,b=debug", (0, 4)),
            ("b=debug,error", (1, 4)),
            (",", (3, 3)),
        ] {
            assert_eq!((at(words, "a"), at(words, "b")), expected, "{words}");
        }
        for wrong in ["warnings", "ferrum_edge", "loud,b=debug", "b=loud", "info,a b"] {
            assert!(read(wrong).unwrap_err().to_string().contains("is not one of off"), "{wrong}");
        }
    }

    #[test]
    fn modules_that_log_nothing_are_named() {
        for known in ["info", "gateway_core=debug", "warn, gateway_protocols::h2=trace,quinn=off"] {
            assert_eq!(unknown(known), [""; 0], "{known}");
        }
        assert_eq!(unknown("gateway_cor=info,warn,gateway_core=debug,a::b=off"), ["gateway_cor", "a::b"]);
    }
}
