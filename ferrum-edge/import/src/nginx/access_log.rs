//! `access_log` and `log_format`: places that records of a server's and a location's requests go to.

use super::Nginx;
use super::asked::Test;
use super::blocks::Directive;
use super::said;
use super::variable_names::ours;
use super::variable_names::{ValuePiece, pieces};
use crate::access_log::LogPlace;
use crate::cond::Cond;
use crate::draft::{LogFile, LogSyslog, Sink, draft};

/// What records have in the place of nginx's variables, beside those that requests have.
const OF_RECORDS: &[(&str, &str)] = &[
    ("remote_user", "${identity.name:--}"),
    ("time_local", "${time}"),
    ("time_iso8601", "${time}"),
    ("request", "${request.method} ${request.target} ${request.version}"),
    ("body_bytes_sent", "${response.bytes}"),
    ("bytes_sent", "${response.bytes}"),
    ("request_length", "${request.bytes}"),
    ("request_time", "${duration_ms}"),
    ("upstream_response_time", "${last_byte_ms}"),
    ("upstream_header_time", "${first_byte_ms}"),
    ("upstream_addr", "${target.authority:--}"),
    ("status", "${response.status}"),
    ("args", "${request.query:--}"),
];

impl Nginx<'_> {
    /// The numbers of the places that records go to in a location, whose levels go from the outermost.
    pub(super) fn log_places(&mut self, place: &str, levels: &[&Directive]) -> Vec<usize> {
        let all: Vec<&Directive> = said(levels, "access_log");
        let mut made = Vec::new();
        for directive in all {
            let what = format!("{place}: {directive}");
            match self.log_place(directive) {
                Some(Ok((log, differs))) => {
                    match differs {
                        Some(why) => self.out.partial(directive.at, what, why, "see gateway.access_log"),
                        None => self.out.converted(directive.at, what),
                    }
                    made.push(self.logs.number(log));
                }
                Some(Err(why)) => self.out.not_converted(directive.at, what, why, "see gateway.access_log"),
                None => {}
            }
        }
        made
    }

    /// `access_log PATH [FORMAT] [if=CONDITION]`, with what differs; `None` for `off`.
    #[allow(clippy::type_complexity, reason = "nothing, an error, or a place with what differs")]
    fn log_place(&self, directive: &Directive) -> Option<Result<(LogPlace, Option<String>), &'static str>> {
        let (path, rest) = directive.arguments.split_first()?;
        if path == "off" {
            return None;
        }
        let mut log = match path.strip_prefix("syslog:") {
            Some(options) => match syslog(options) {
                Some(log) => log,
                None => return Some(Err("this address can't be said here")),
            },
            None if path == "/dev/stdout" => LogPlace::stdout(),
            None if path.contains('$') => return Some(Err("a file by request can't be said here")),
            None => LogPlace::file(draft!(LogFile { path: self.folder.join(path).display().to_string() })),
        };
        let options = ["buffer=", "flush=", "gzip", "if="];
        let is_option = |word: &&String| options.iter().any(|option| word.starts_with(option));
        let format = rest.iter().find(|word| !is_option(word)).map_or("combined", String::as_str);
        let is_file = log.destination.contains_key("file");
        let mut differs =
            is_file.then(|| "the gateway writes the file: its user needs access to it".to_owned());
        if format == "combined" {
            log.rest.format("combined");
        } else {
            differs = match self.log_formats.get(format) {
                Some(format) => line(&mut log, format),
                None => return Some(Err("there is no such `log_format`")),
            };
        }
        if let Some(variable) = rest.iter().find_map(|word| word.strip_prefix("if=")) {
            match self.vars_here.holds(variable, &Test::True, 0) {
                Some(Cond::Always) => {}
                Some(Cond::Is(when)) => log.rest.when(when),
                Some(Cond::Never) => return None,
                None => return Some(Err("what it asks can't be said here")),
            }
        }
        Some(Ok((log, differs)))
    }
}

/// How records are written by a `log_format`; says what differs.
fn line(log: &mut LogPlace, format: &Directive) -> Option<String> {
    let mut parts = format.arguments.iter().skip(1).peekable();
    let escape = parts.peek().and_then(|first| first.strip_prefix("escape="));
    if escape == Some("json") {
        log.rest.format("json");
        return Some("the JSON has the gateway's own fields".to_owned());
    }
    let text: String = parts.filter(|part| !part.starts_with("escape=")).map(String::as_str).collect();
    let mut template = String::new();
    let mut unknown = Vec::new();
    for piece in pieces(&text) {
        match piece {
            ValuePiece::Text(text) => template.push_str(text),
            ValuePiece::Variable(name) => {
                let known =
                    OF_RECORDS.iter().find(|(known, _)| *known == name).map(|(_, ours)| (*ours).to_owned());
                let known = known.or_else(|| ours(name).map(|name| format!("${{{name}:--}}")));
                match known {
                    Some(known) => template.push_str(&known),
                    None => {
                        template.push('-');
                        unknown.push(format!("`${name}`"));
                    }
                }
            }
        }
    }
    log.rest.template(template.trim_end_matches('\n'));
    Some(match unknown.is_empty() {
        true => "times are in UTC by RFC 3339, durations in milliseconds".to_owned(),
        false => format!(
            "{} become `-`; times are in UTC by RFC 3339, durations in milliseconds",
            unknown.join(", ")
        ),
    })
}

/// `syslog:server=ADDRESS,facility=local7,tag=nginx`.
fn syslog(options: &str) -> Option<LogPlace> {
    let mut made = LogSyslog::default();
    for option in options.split(',') {
        match option.split_once('=').unwrap_or((option, "")) {
            ("server", address) if !address.starts_with("unix:") => {
                let address = if address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
                {
                    address.to_owned()
                } else {
                    format!("{address}:514")
                };
                made.address(format!("udp://{address}"));
            }
            ("facility", name) => {
                let names = [
                    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "clock",
                    "authpriv", "ftp", "ntp", "audit", "alert", "cron", "local0", "local1", "local2",
                    "local3", "local4", "local5", "local6", "local7",
                ];
                made.facility(names.iter().position(|known| *known == name)?);
            }
            ("tag", name) => made.app_name(name),
            ("severity" | "nohostname", _) => {}
            _ => return None,
        }
    }
    made.contains_key("address").then(|| LogPlace::new(draft!(Sink { syslog: made })))
}
