//! Places that access records go to: entries of `gateway.access_log.sinks`.

use std::collections::HashMap;

use serde_json::Value;

use crate::draft::{AccessLog, Import, LogFile, LogStdout, Sink, draft};

/// Proxies that one entry may name.
const MAX_PROXIES: usize = 10_000;

/// A place for records.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogPlace {
    /// The file, the program's output or the syslog server.
    pub(crate) destination: Sink,
    /// `format`, `template`, `when` and others of the entry.
    pub(crate) rest: Sink,
}

/// Places, each with the ids of the proxies whose records go there.
#[derive(Debug, Default)]
pub(crate) struct LogPlaces {
    all: Vec<(LogPlace, Vec<String>)>,
    /// The number of each place, by what it says.
    numbers: HashMap<String, usize>,
}

impl LogPlace {
    pub(crate) fn new(destination: Sink) -> Self {
        Self { destination, rest: Sink::default() }
    }

    pub(crate) fn stdout() -> Self {
        Self::new(draft!(Sink { stdout: LogStdout::default() }))
    }

    pub(crate) fn file(file: LogFile) -> Self {
        Self::new(draft!(Sink { file }))
    }
}

impl LogPlaces {
    /// The number of a place, which is the same for the same place.
    pub(crate) fn number(&mut self, place: LogPlace) -> usize {
        let text = |sink: &Sink| Value::from(sink.clone()).to_string();
        let said = format!("{} {}", text(&place.destination), text(&place.rest));
        *self.numbers.entry(said).or_insert_with(|| {
            self.all.push((place, Vec::new()));
            self.all.len() - 1
        })
    }

    /// Has the records of a proxy go to a place.
    pub(crate) fn add(&mut self, number: usize, id: &str) {
        if let Some((_, proxies)) = self.all.get_mut(number) {
            proxies.push(id.to_owned());
        }
    }

    /// Writes the entries. One that all proxies have, or too many, is for all records.
    pub(crate) fn finish(self, out: &mut Import) {
        let mut sinks = Vec::new();
        for (mut place, proxies) in self.all {
            if proxies.is_empty() {
                continue;
            }
            let name = out.id("sink", "access-log");
            let mut made = draft!(Sink { name });
            made.append(&mut place.destination);
            made.append(&mut place.rest);
            if proxies.len() < out.proxies.len() && proxies.len() <= MAX_PROXIES {
                made.proxies(proxies);
            }
            sinks.push(made);
        }
        if !sinks.is_empty() {
            out.gateway.access_log(draft!(AccessLog { sinks }));
        }
    }
}
