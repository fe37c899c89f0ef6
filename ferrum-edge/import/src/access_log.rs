//! Places that access records go to: entries of `gateway.access_log.sinks`.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::draft::{Import, set};

/// Proxies that one entry may name.
const MAX_PROXIES: usize = 10_000;

/// A place for records.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogPlace {
    /// `file`, `stdout` or `syslog`.
    pub(crate) kind: &'static str,
    /// Its settings.
    pub(crate) settings: Map<String, Value>,
    /// `format`, `template`, `when` and others of the entry.
    pub(crate) rest: Map<String, Value>,
}

/// Places, each with the ids of the proxies whose records go there.
#[derive(Debug, Default)]
pub(crate) struct LogPlaces {
    all: Vec<(LogPlace, Vec<String>)>,
    /// The number of each place, by what it says.
    numbers: HashMap<String, usize>,
}

impl LogPlace {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self { kind, settings: Map::new(), rest: Map::new() }
    }

    pub(crate) fn file(path: &str) -> Self {
        let mut made = Self::new("file");
        set(&mut made.settings, "path", path);
        made
    }
}

impl LogPlaces {
    /// The number of a place, which is the same for the same place.
    pub(crate) fn number(&mut self, place: LogPlace) -> usize {
        let said = json!([place.kind, place.settings, place.rest]).to_string();
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
        for (place, proxies) in self.all {
            if proxies.is_empty() {
                continue;
            }
            let name = out.id("sink", "access-log");
            let mut made = Map::from_iter([("name".to_owned(), json!(name))]);
            made.insert(place.kind.to_owned(), Value::Object(place.settings));
            made.extend(place.rest);
            if proxies.len() < out.proxies.len() && proxies.len() <= MAX_PROXIES {
                set(&mut made, "proxies", proxies);
            }
            sinks.push(Value::Object(made));
        }
        if !sinks.is_empty() {
            set(&mut out.gateway, "access_log", json!({ "sinks": sinks }));
        }
    }
}
