//! Adds the redirects by which nginx completes a path that lacks the slash at its end.

use std::collections::HashSet;

use serde_json::Value;

use super::Nginx;
use super::blocks::Directive;
use super::item::{Item, Passed, place};
use super::location::{Base, Location, LocationKind, Turn, label};
use super::site::Site;
use crate::cond::Cond;
use crate::draft::{Matcher, Redirect, To, draft};

/// Whole paths that have items of a server already.
#[derive(Default)]
pub(super) struct ExactPaths {
    paths: HashSet<String>,
    /// How many items were looked at.
    seen: usize,
}

impl ExactPaths {
    /// Whether an item is for this path; `items` are those that were there the last time, and further ones.
    fn has(&mut self, path: &str, items: &[Item]) -> bool {
        let exact = |path: &Matcher| path.get("exact")?.as_str().map(str::to_owned);
        let new = items.get(self.seen..).unwrap_or_default();
        self.paths.extend(new.iter().flat_map(|item| &item.base.paths).filter_map(exact));
        self.seen = items.len();
        self.paths.contains(path)
    }
}

impl<'d> Nginx<'_> {
    /// Adds the redirect from `/a` to `/a/` for a location `/a/` that passes to a server.
    pub(super) fn without_slash(
        &mut self,
        site: &Site<'d>,
        turn: &Turn<'d>,
        levels: &[&Directive],
        to: To,
        items: &[Item],
    ) {
        let (LocationKind::Exact(path) | LocationKind::Prefix(path)) = &turn.way else { return };
        let Some(trimmed) = path.strip_suffix('/').filter(|path| !path.is_empty()) else { return };
        let passes =
            levels.last().is_some_and(|level| level.block.iter().any(|it| it.name.ends_with("_pass")));
        let is_around =
            |location: &Location<'_>| levels.iter().any(|level| std::ptr::eq(*level, location.directive));
        let is_taken = site.index.of_path(trimmed).iter().any(|other| match &other.way {
            LocationKind::Exact(_) => true,
            _ => !is_around(other),
        });
        if passes && !is_taken && !self.exact_paths.has(trimmed, items) {
            let base = Base { paths: vec![Matcher::exact(trimmed)], cond: Cond::Always };
            let mut item = Item::new(&base, to, &format!("{}-slash", label(&turn.way)));
            let status = if matches!(item.to, To::Redirect(_)) { 301 } else { 404 };
            self.response_headers(&place(site, levels), levels, Some(status), &mut item.plugins);
            self.exact_paths.paths.insert(trimmed.to_owned());
            // It goes before all other locations, also before those by regex.
            self.slashes.push(item);
        }
    }

    /// Returns the redirect from `/a` to `/a/` for `location /a { alias FOLDER; }`.
    pub(super) fn folder_itself(&self, base: &Base, passed: &Passed, way: &LocationKind) -> Option<Item> {
        let LocationKind::Prefix(own) = way else { return None };
        let is_folder = is_own_folder(passed) && !own.ends_with('/');
        if !is_folder || !base.paths.contains(&Matcher::prefix(own)) {
            return None;
        }
        let cond = base.cond.clone().and(passed.cond.clone());
        let base = Base { paths: vec![Matcher::exact(own)], cond };
        let to = To::Redirect(draft!(Redirect { status_code: 301, location: format!("{own}/") }));
        Some(Item::new(&base, to, &format!("{}-slash", label(way))))
    }
}

/// Whether files are looked for without the path of the location.
fn is_own_folder(passed: &Passed) -> bool {
    let strips = passed.settings.get("strip_listen_path").and_then(Value::as_bool);
    matches!(passed.to, To::Files(_)) && strips == Some(true)
}

/// The requests of `location /a { alias FOLDER; }` that are for the folder, and the paths that only begin with the same letters.
pub(super) fn beside_folder(
    base: &Base,
    passed: &Passed,
    way: &LocationKind,
) -> (Base, Option<Vec<Matcher>>) {
    let mut base = base.clone();
    let LocationKind::Prefix(own) = way else { return (base, None) };
    if !is_own_folder(passed) || own.ends_with('/') || !base.paths.contains(&Matcher::prefix(own)) {
        return (base, None);
    }
    let (own, beside) = base.paths.into_iter().partition(|path| path.get("prefix").is_some());
    base.paths = own;
    (base, Some(beside))
}
