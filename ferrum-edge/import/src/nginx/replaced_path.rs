//! `rewrite … last` whose new path is a text before what is left of the old one: which locations it leads to.

use super::Nginx;
use super::item::{Item, Rewritten};
use super::location::{LocationKind, Turn};
use super::site::ScriptPlace;
use crate::changed::{RequestChange, What, before_changes};
use crate::cond::Cond;
use crate::draft::To;
use crate::text;

/// What `rewrite REGEX TO` makes of paths: one path, or another text in the place of the one that they begin with. `None` for other
/// rewrites.
pub(super) fn replaced(regex: &str, to: &str) -> Option<What> {
    let path = to.split('?').next()?;
    if !path.contains('$') {
        return path.starts_with('/').then(|| What::Path(path.to_owned()));
    }
    let (to, names_group) =
        match (path.strip_suffix("$uri"), path.strip_suffix("$1").or_else(|| path.strip_suffix("${1}"))) {
            (Some(to), _) => (to, false),
            (None, Some(to)) => (to, true),
            (None, None) => return None,
        };
    let is_plain = |text: &str| text.starts_with('/') && !text.contains(['$', '{', '(', '*']);
    // With `$uri`, any path may fit the regex.
    let (from, has_slash) = if names_group { beginning(regex)? } else { Default::default() };
    let to = if has_slash && !to.ends_with('/') { format!("{to}/") } else { to.to_owned() };
    let is_whole = to.is_empty() && from.is_empty();
    // A path begins with one slash.
    let is_path = is_plain(&to)
        && (from.is_empty() || from.starts_with('/'))
        && (to.ends_with('/') == from.ends_with('/'));
    (is_whole || is_path).then_some(What::Replace { from, to })
}

/// The text before the only group of a regex that fits whole paths, and whether its last slash is the first of the group.
fn beginning(regex: &str) -> Option<(String, bool)> {
    let mut rest = regex.strip_prefix('^')?;
    let mut made = String::new();
    loop {
        let mut chars = rest.chars();
        match chars.next()? {
            '(' => break,
            '\\' => made.push(chars.next().filter(char::is_ascii_punctuation)?),
            c if "*+?.[]{}|^$)".contains(c) => return None,
            c => made.push(c),
        }
        rest = chars.as_str();
        if rest.starts_with(['?', '*', '+', '{']) {
            return None;
        }
    }
    let group = rest.strip_prefix('(')?;
    // The slash may be the first of what the group takes.
    let inner = group.strip_prefix('/').filter(|_| !made.is_empty() && !made.ends_with('/'));
    let has_slash = inner.is_some();
    made.push_str(if has_slash { "/" } else { "" });
    let group = inner.unwrap_or(group);
    let (group, is_whole) = match group.strip_suffix(")$") {
        Some(group) => (group, true),
        None => (group.strip_suffix(')')?, false),
    };
    let is_one = !group.starts_with('?') && !group.contains(['(', ')', '|']);
    // Without an end, only what takes everything takes the whole rest.
    (is_one && (is_whole || matches!(group, ".*" | ".+"))).then_some((made, has_slash))
}

impl<'d> Nginx<'_> {
    /// Leads requests whose path is replaced to the locations of their new one, each by a condition on the old one.
    pub(super) fn lead_replaced(
        &mut self,
        way: ScriptPlace<'d, '_>,
        what: &What,
        rewritten: &Rewritten,
        items: &mut Vec<Item>,
    ) -> Led {
        let change = [RequestChange::new(Cond::Always, what.clone())];
        let before = items.len();
        let start = match what {
            What::Path(path) => path.as_str(),
            What::Replace { to, .. } => to.as_str(),
            _ => "",
        };
        for turn in way.site.turns.of_start(start).into_iter().filter_map(|at| way.site.order.get(at)) {
            let Some(cond) = before_changes(turn.base.cond_of_all(), &change) else {
                items.push(Item::new(way.base, To::Closed, "rewrite"));
                return Led::Partly;
            };
            if cond == Cond::Never {
                continue;
            }
            let base = way.base.and(cond.clone());
            if !self.lead_to(way, turn, &base, rewritten, items) {
                items.push(Item::new(&base, To::Closed, "rewrite"));
            }
            if cond == Cond::Always {
                return if items.len() == before { Led::Nowhere } else { Led::Everywhere };
            }
        }
        items.push(Item::new(way.base, To::Closed, "rewrite"));
        Led::Partly
    }

    /// Serves requests by a location that their new path leads to; false where it looks at that path itself.
    fn lead_to(
        &mut self,
        way: ScriptPlace<'d, '_>,
        turn: &Turn<'d>,
        base: &super::location::Base,
        rewritten: &Rewritten,
        items: &mut Vec<Item>,
    ) -> bool {
        let looks = |name: &str| matches!(name, "rewrite" | "if" | "try_files");
        let has_groups = matches!(&turn.way, LocationKind::Regex(regex, _) if text::has_groups(regex));
        let is_known = !turn.levels.is_empty()
            && !has_groups
            && !turn.levels.iter().any(|level| level.block.iter().any(|it| looks(&it.name)));
        if !is_known {
            return false;
        }
        let mut levels = vec![way.site.http, way.site.directive];
        levels.extend(turn.levels.iter().copied());
        let start = items.len();
        let inner = ScriptPlace { levels: &levels, base, jumps: way.jumps + 1, ..way };
        if self.scripted(inner, items) {
            self.serve(way.site, base, &levels, &turn.way, rewritten, items);
        }
        for item in items.iter_mut().skip(start) {
            item.label = format!("rewrite-{}", item.label);
        }
        true
    }
}

/// How many of the requests of a rewrite have a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Led {
    Everywhere,
    Partly,
    Nowhere,
}

#[cfg(test)]
mod tests {
    use super::{What, replaced};

    #[test]
    fn texts_in_the_place_of_others() {
        let made = |from: &str, to: &str| Some(What::Replace { from: from.to_owned(), to: to.to_owned() });
        for (regex, to, expected) in [
            ("^/old/(.*)$", "/new/$1", made("/old/", "/new/")),
            ("^/old/(.*)", "/new/${1}?a=$1", made("/old/", "/new/")),
            (r"^/a\.b/([0-9]+)$", "/c/$1", made("/a.b/", "/c/")),
            ("^(.*)$", "/v2$1", made("", "/v2")),
            ("^", "/v2$uri", made("", "/v2")),
            ("^/a/(.*)$", "/b?c=$1", Some(What::Path("/b".to_owned()))),
            ("^/old(/.*)$", "/new$1", made("/old/", "/new/")),
            ("^/old(/.*)$", "$1", made("/old/", "/")),
            ("^/old(/.*)$", "/new/$1", made("/old/", "/new/")),
            ("^/old/([0-9]+)", "/new/$1", None),
            ("^/old/(.*)/x$", "/new/$1", None),
            ("/old/(.*)$", "/new/$1", None),
            ("^/old/(a|b)$", "/new/$1", None),
            ("^/old/(.*)$", "/new/$1.php", None),
            ("^/old(.*)$", "/new/$1", None),
            ("^/ol?d/(.*)$", "/new/$1", None),
        ] {
            assert_eq!(replaced(regex, to), expected, "{regex} {to}");
        }
    }
}
