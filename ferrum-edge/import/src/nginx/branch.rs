//! `if`: which requests it takes, and what it says for them.

use super::Nginx;
use super::asked::{Test, flagged};
use super::blocks::{Directive, HANDLERS};
use super::item::{Item, Rewritten, place};
use super::location::{Base, LocationKind};
use super::rewrite::TODO;
use super::site::ScriptPlace;
use super::values::Variables;
use crate::cond::Cond;
use crate::draft::To;
use crate::text;

impl<'d> Nginx<'_> {
    /// `if (CONDITION) { … }`.
    pub(super) fn branch(
        &mut self,
        way: ScriptPlace<'d, '_>,
        directive: &'d Directive,
        items: &mut Vec<Item>,
    ) {
        let ScriptPlace { site, base, levels, .. } = way;
        let place = place(site, levels);
        let what = format!("{place}: {directive}");
        let has_groups = has_groups(&directive.arguments);
        let sets_only = directive.block.iter().all(|it| it.name == "set");
        let Some(cond) = self.asked(&directive.arguments) else {
            if sets_only {
                for set in &directive.block {
                    self.vars_here
                        .unknown(set.arguments.first().map_or("", |name| name.trim_start_matches('$')));
                }
                if has_groups {
                    self.vars_here.without_groups();
                }
                self.out.lost(directive.at, what, "what it asks can't be said here", TODO);
            } else if self.out.guard(directive.at, what, "what it asks can't be said here", TODO) {
                items.push(Item::new(base, To::Closed, "if"));
            }
            return;
        };
        self.out.done(directive.at, &what);
        if cond == Cond::Never {
            return;
        }
        let before = self.vars_here.clone();
        let taken = match own_groups(&directive.arguments).filter(|_| has_groups) {
            // They are those of this regex.
            Some(regex) => base.captured(&regex),
            None => base.and(cond.clone()),
        };
        match own_groups(&directive.arguments).filter(|_| has_groups) {
            Some(regex) => self.vars_here.fitted(&regex),
            None if has_groups => self.vars_here.without_groups(),
            None => {}
        }
        let mut inner = levels.to_vec();
        inner.push(directive);
        let way = ScriptPlace { base: &taken, levels: &inner, ..way };
        let goes_on = self.script(way, items);
        let inside = std::mem::replace(&mut self.vars_here, before);
        if !goes_on {
            if has_groups {
                self.vars_here.empty_groups();
            }
            return;
        }
        let has = |is: &dyn Fn(&Directive) -> bool| directive.block.iter().any(is);
        if has(&|it| it.name == "break") && self.broken(way, inside, items) {
            return;
        }
        if has_groups {
            self.vars_here.without_groups();
        }
        for set in directive.block.iter().filter(|it| it.name == "set") {
            if let [name, value] = set.arguments.as_slice() {
                self.vars_here.set(name.trim_start_matches('$'), value, cond.clone());
            }
        }
        if has(&|it| HANDLERS.contains(&it.name.as_str())) {
            self.serve(site, &taken, &inner, &LocationKind::Prefix("/".to_owned()), &Rewritten::No, items);
        } else if has(&|it| !matches!(it.name.as_str(), "set" | "rewrite" | "return" | "break" | "if")) {
            self.left_out(&place, directive, &taken, items);
        }
    }

    /// What becomes of requests for which an `if` ends with `break`: the directives behind it don't hold for them. Says whether
    /// they need them no more.
    fn broken(&mut self, way: ScriptPlace<'d, '_>, inside: Variables, items: &mut Vec<Item>) -> bool {
        let ScriptPlace { site, base: taken, levels, .. } = way;
        let Some((branch, around)) = levels.split_last() else { return false };
        let behind =
            around.iter().flat_map(|level| level.block.iter().skip_while(|it| !std::ptr::eq(*it, *branch)));
        let script = |it: &&Directive| matches!(it.name.as_str(), "set" | "rewrite" | "return" | "if");
        if behind.skip(1).find(script).is_none() {
            return false;
        }
        let own = around.iter().rev().find(|level| level.name == "location");
        let location =
            own.and_then(|own| site.all_locations().into_iter().find(|it| std::ptr::eq(it.directive, *own)));
        let Some(location) = location else {
            let why =
                "which location takes what leaves the server's directives by `break` is not known beforehand";
            self.out.closed(branch.at, format_args!("{}: {branch}", place(site, around)), why, TODO);
            items.push(Item::new(taken, To::Closed, "break"));
            return true;
        };
        let kind = location.way.clone();
        let only_breaks = branch.block.iter().all(|it| matches!(it.name.as_str(), "set" | "break"));
        let before = std::mem::replace(&mut self.vars_here, inside);
        self.serve(site, taken, if only_breaks { around } else { levels }, &kind, &Rewritten::No, items);
        self.vars_here = before;
        true
    }

    /// What an `if` says besides, which holds for its requests only.
    fn left_out(&mut self, place: &str, directive: &Directive, taken: &Base, items: &mut Vec<Item>) {
        let done = ["set", "rewrite", "return", "break", "if"];
        for it in directive.block.iter().filter(|it| !done.contains(&it.name.as_str())) {
            let what = format!("{place}: if: {it}");
            if !super::guards::NAMES.contains(&it.name.as_str()) {
                self.out.lost(it.at, what, "it is not translated within `if`", "use a plugin with `when`");
            } else if self.out.guard(it.at, what, "it guards only some requests", TODO) {
                items.push(Item::new(taken, To::Closed, "if"));
                return;
            }
        }
    }

    /// When the condition of an `if` holds; `None` when it can't be said here.
    pub(super) fn asked(&self, arguments: &[String]) -> Option<Cond> {
        match words(arguments)?.as_slice() {
            [variable] => match variable.strip_prefix("!$") {
                Some(_) => None,
                None if *variable == "$invalid_referer" => self.invalid_referer.clone(),
                None => self.vars_here.holds(variable, &Test::True, 0),
            },
            [variable, operator, value] => {
                let (negated, operator) = match operator.strip_prefix('!') {
                    Some(rest) => (true, rest),
                    None => (false, *operator),
                };
                let test = match operator {
                    "=" => Test::Same(value, false),
                    "~" => Test::Regex(value, false),
                    "~*" => Test::Regex(value, true),
                    _ => return None,
                };
                if value.contains('$') && operator == "=" {
                    return None;
                }
                let cond = self.vars_here.holds(variable, &test, 0)?;
                Some(if negated { cond.negate() } else { cond })
            }
            _ => None,
        }
    }
}

/// Whether the condition of an `if` has a regex with groups, which other directives then name.
fn has_groups(arguments: &[String]) -> bool {
    matches!(words(arguments).as_deref(), Some([_, "~" | "~*", regex]) if text::has_groups(regex))
}

/// The regex over the path that an `if` asks.
fn own_groups(arguments: &[String]) -> Option<String> {
    match words(arguments)?.as_slice() {
        ["$uri" | "$document_uri", operator @ ("~" | "~*"), regex] => flagged(regex, *operator == "~*"),
        _ => None,
    }
}

/// The words of the condition of an `if`, without its parentheses.
fn words(arguments: &[String]) -> Option<Vec<&str>> {
    let (first, last) = (arguments.first()?.strip_prefix('(')?, arguments.last()?.strip_suffix(')')?);
    let mut made: Vec<&str> = match arguments {
        [_] => vec![first.strip_suffix(')')?],
        [_, inner @ .., _] => {
            std::iter::once(first).chain(inner.iter().map(String::as_str)).chain([last]).collect()
        }
        [] => Vec::new(),
    };
    made.retain(|word| !word.is_empty());
    Some(made)
}
