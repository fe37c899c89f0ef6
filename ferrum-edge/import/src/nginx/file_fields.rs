//! Fields of the file that `index` or the last word of `try_files` leads to: nginx takes them from the file's own location.

use super::blocks::Directive;
use super::expires::cache_control;
use super::location::{Location, LocationKind};
use super::said;
use super::site::Site;
use crate::draft::{CacheRule, StaticFiles, draft};

/// What the location of a file says of its fields.
#[derive(Debug, PartialEq)]
pub(super) enum FileFields {
    /// Nothing besides what the location says that leads to it.
    Same,
    /// `Cache-Control`, in the order of the configuration.
    Cache(String),
    /// Something that can't be said of single files here.
    Others,
}

impl FileFields {
    /// Those of a file, for requests of another location, whose levels these are.
    pub(super) fn of(levels: &[&Directive], file: &Location<'_>) -> Self {
        let is_same = levels
            .last()
            .is_some_and(|own| own.at == file.directive.at && own.arguments == file.directive.arguments);
        if is_same {
            return Self::Same;
        }
        let mut values = Vec::new();
        for directive in &file.directive.block {
            let value = match (directive.name.as_str(), directive.arguments.as_slice()) {
                ("expires", [time]) if time == "off" => continue,
                ("expires", [time]) => cache_control(time),
                ("add_header", [name, value, ..]) if is_cache_control(name) && !value.contains('$') => {
                    Some(value.clone())
                }
                ("add_header" | "expires" | "types" | "default_type", _) => None,
                _ => continue,
            };
            let Some(value) = value else { return Self::Others };
            values.push(value);
        }
        // What the other location says would take its place.
        let is_said = !said(levels, "expires").is_empty()
            || said(levels, "add_header")
                .iter()
                .any(|it| it.arguments.first().is_some_and(|name| is_cache_control(name)));
        match values.is_empty() {
            true => Self::Same,
            false if is_said => Self::Others,
            false => Self::Cache(values.join(", ")),
        }
    }
}

fn is_cache_control(name: &str) -> bool {
    name.eq_ignore_ascii_case("cache-control")
}

impl<'d> Site<'d> {
    /// The location that has this `try_files`, with those around it.
    pub(super) fn levels_of_tried(&self, tried: &Directive) -> Option<Vec<&'d Directive>> {
        let has =
            |it: &&Directive| it.name == tried.name && it.at == tried.at && it.arguments == tried.arguments;
        let own = self.all_locations().into_iter().find(|it| it.directive.block.iter().any(|it| has(&it)))?;
        Some(vec![self.http, self.directive, own.directive])
    }

    /// `Cache-Control` of the files that a location leads to: those of `index` in its folders, and the last one of `try_files`. Says also
    /// whether all that their locations say of their fields is in it.
    pub(super) fn cache_rules(
        &self,
        levels: &[&Directive],
        way: &LocationKind,
        indexes: &[String],
        tried: Option<&Directive>,
    ) -> (Vec<CacheRule>, bool) {
        let folder = match way {
            LocationKind::Prefix(own) => Some(own.trim_end_matches('/')),
            LocationKind::Exact(own) => own.strip_suffix('/'),
            LocationKind::Regex(..) | LocationKind::Named(_) => None,
        };
        let (mut rules, mut is_whole) = (Vec::new(), true);
        for (folder, name) in indexes.iter().filter_map(|name| Some((folder?, name))) {
            let Some(picked) = self.picked(&format!("{folder}/{name}")) else { continue };
            match FileFields::of(levels, picked) {
                FileFields::Same => {}
                FileFields::Cache(value) => {
                    let path = match &picked.way {
                        LocationKind::Exact(path) => path.trim_start_matches('/').to_owned(),
                        _ => format!("*{name}"),
                    };
                    rules.push(draft!(CacheRule { path, value }));
                }
                FileFields::Others => is_whole = false,
            }
        }
        let last = tried.and_then(|tried| tried.arguments.last()).filter(|last| last.starts_with('/'));
        let last = last.and_then(|last| last.split('?').next()).filter(|last| !last.contains('$'));
        if let Some(last) = last
            && let Some(FileFields::Cache(value)) =
                self.picked(last).map(|picked| FileFields::of(levels, picked))
        {
            rules.push(draft!(CacheRule { path: last.trim_start_matches('/'), value }));
        }
        (rules, is_whole)
    }
}

/// Sets rules where there are any.
pub(super) fn set_cache_rules(config: &mut StaticFiles, rules: Vec<CacheRule>) {
    config.cache_control((!rules.is_empty()).then_some(rules));
}
