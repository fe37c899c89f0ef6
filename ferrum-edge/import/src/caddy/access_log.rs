//! `log`: where records of a site's requests go.

use super::Caddy;
use super::sites::Scope;
use super::tokens::CaddyLine;
use crate::access_log::LogPlace;
use crate::draft::{LogFile, draft};
use crate::text;

impl Caddy<'_> {
    /// `log [NAME] { output …; format … }`, and `log_skip`.
    pub(super) fn log(&mut self, line: &CaddyLine, scope: &mut Scope) {
        if line.name() != "log" {
            let why = "all requests have records";
            return self.out.not_converted(line.at, line.text(), why, "see gateway.access_log");
        }
        let inner = |name: &str| line.inner().iter().find(|it| it.name() == name);
        let Some(mut log) = place(inner("output")) else {
            let why = "this output can't be said here";
            return self.out.not_converted(line.at, line.text(), why, "see gateway.access_log");
        };
        let format = inner("format").map_or("json", |format| format.word(1));
        if !matches!(format, "json" | "console") {
            let why = "this format can't be said here; it is JSON";
            self.out.partial(line.at, line.text(), why, "see gateway.access_log");
        }
        log.rest.format(if format == "console" { "logfmt" } else { "json" });
        for other in line.inner().iter().filter(|it| matches!(it.name(), "level" | "hostnames" | "sampling"))
        {
            self.out.not_converted(
                other.at,
                other.text(),
                "the gateway does not support this",
                "see gateway.access_log",
            );
        }
        scope.logs.push(self.logs.number(log));
        let why = "records have the gateway's own fields";
        self.out.partial(line.at, line.text(), why, "see gateway.access_log");
    }
}

/// `output stdout|stderr|file PATH { roll_size …; roll_keep … }`.
fn place(output: Option<&CaddyLine>) -> Option<LogPlace> {
    let Some(output) = output else { return Some(LogPlace::stdout()) };
    match output.arguments() {
        [kind] if matches!(kind.as_str(), "stdout" | "stderr") => Some(LogPlace::stdout()),
        [kind, path] if kind == "file" && path.starts_with('/') => {
            let mut file = draft!(LogFile { path });
            // Caddy begins a new file after 100 MB, and keeps ten.
            let size = output.inner().iter().find(|it| it.name() == "roll_size");
            let size = size.and_then(|it| text::bytes(it.word(1), 1000)).unwrap_or(100 << 20);
            let keep = output.inner().iter().find(|it| it.name() == "roll_keep");
            let keep = keep.and_then(|it| it.word(1).parse::<u32>().ok()).unwrap_or(10);
            if !output.inner().iter().any(|it| it.name() == "roll_disabled") {
                file.max_size(size.max(4096));
                file.keep(keep.min(1000));
            }
            Some(LogPlace::file(file))
        }
        _ => None,
    }
}
