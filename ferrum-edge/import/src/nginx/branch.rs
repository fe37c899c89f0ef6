//! `if`: which requests it takes, and what it says for them.

use super::asked::{Test, flagged, words};
use super::blocks::{Directive, HANDLERS};
use super::condition_groups::GroupCases;
use super::item::{Item, Rewritten, place};
use super::location::{Base, LocationKind};
use super::lookahead::{only_refuses, without_lookaheads};
use super::rewrite::TODO;
use super::site::ScriptPlace;
use super::values::Variables;
use super::{Nginx, first};
use crate::cond::Cond;
use crate::draft::{Plug, RequestTermination, To, Trigger, draft};
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
        let asked = self.asked(&directive.arguments).map(|cond| (cond, false));
        let Some((cond, is_wider)) = asked.or_else(|| Some((self.wider(directive)?, true))) else {
            let why = "what it asks can't be said here";
            if sets_only {
                for set in &directive.block {
                    self.vars_here
                        .set_unknown(set.arguments.first().map_or("", |name| name.trim_start_matches('$')));
                }
                if has_groups {
                    self.vars_here.without_groups();
                }
                self.out.not_converted(directive.at, what, why, TODO);
            } else if self.out.guard_not_converted(directive.at, what, why, TODO) {
                items.push(Item::new(base, To::Closed, "if"));
            }
            return;
        };
        if is_wider {
            let why = "negative look-aheads in it are left out: more requests are refused";
            self.out.partial(directive.at, &what, why, "");
        } else {
            self.out.converted(directive.at, &what);
        }
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
            self.report_other_directives(&place, directive, &taken, items);
        }
    }

    /// An `if` whose groups are known case by case; false where they are not.
    pub(super) fn grouped(
        &mut self,
        way: ScriptPlace<'d, '_>,
        directive: &'d Directive,
        items: &mut Vec<Item>,
    ) -> bool {
        if !has_groups(&directive.arguments) {
            return false;
        }
        let ScriptPlace { site, base, levels, .. } = way;
        let what = format!("{}: {directive}", place(site, levels));
        let only = ["set", "return", "rewrite"];
        if !directive.block.iter().all(|it| only.contains(&it.name.as_str())) {
            return false;
        }
        let Some(GroupCases { cases, rest }) = self.group_cases(site, base, &directive.arguments) else {
            return false;
        };
        let inner: Vec<&Directive> = levels.iter().copied().chain([directive]).collect();
        let mut sets = Vec::new();
        let mut goes_on = false;
        for case in cases {
            let before = self.vars_here.clone();
            self.vars_here.set_groups(&case.groups);
            let way = ScriptPlace { base: &case.base, levels: &inner, ..way };
            if self.script(way, items) {
                goes_on = true;
                for set in directive.block.iter().filter(|it| it.name == "set") {
                    if let [name, value] = set.arguments.as_slice() {
                        sets.push((
                            name.trim_start_matches('$'),
                            self.vars_here.by_cases(value),
                            case.cond.clone(),
                        ));
                    }
                }
            }
            self.vars_here = before;
        }
        for (name, cases, cond) in sets {
            self.vars_here.set_to(name, cases, cond);
        }
        self.out.converted(directive.at, &what);
        if rest != Cond::Never {
            let why = "hosts that are no name of this server, and fit it, are answered 503";
            self.out.route_closed(directive.at, what, why, "name them in `server_name`");
            items.push(Item::new(&base.and(rest), To::Closed, "if"));
        }
        if goes_on {
            self.vars_here.without_groups();
        } else {
            self.vars_here.empty_groups();
        }
        true
    }

    /// `if (-f /srv/www/maintenance.on) { return 503; }`: answers while a file exists. False for others.
    pub(super) fn switched(&mut self, way: ScriptPlace<'d, '_>, directive: &Directive) -> bool {
        let ScriptPlace { site, levels, .. } = way;
        let Some(words) = words(&directive.arguments) else { return false };
        let (["-f" | "-e", path], [answer]) = (words.as_slice(), directive.block.as_slice()) else {
            return false;
        };
        let status = match (answer.name.as_str(), answer.arguments.as_slice()) {
            ("return", [status]) => status.parse::<u16>().ok().filter(|status| (400..600).contains(status)),
            _ => None,
        };
        let root = first(levels, "root").map(|root| self.folder.join(root).display().to_string());
        let path = match root {
            Some(root) => path.replace("$document_root", root.trim_end_matches('/')),
            None => (*path).to_owned(),
        };
        let (Some(status), true) = (status, path.starts_with('/') && !path.contains('$')) else {
            return false;
        };
        let why = "redirects and answers of `return` go on while the file exists";
        self.out.partial(directive.at, format_args!("{}: {directive}", place(site, levels)), why, "");
        self.switches.push(Plug::of(draft!(RequestTermination {
            status_code: status,
            content_type: "text/plain",
            body: "",
            trigger: draft!(Trigger { file: path }),
        })));
        true
    }

    /// What becomes of requests for which an `if` ends with `break`: the directives behind it don't hold for them. Says whether
    /// they need them no more.
    fn broken(&mut self, way: ScriptPlace<'d, '_>, inside: Variables, items: &mut Vec<Item>) -> bool {
        let ScriptPlace { site, base: taken, levels, .. } = way;
        let Some((branch, around)) = levels.split_last() else { return false };
        let mut behind = around.iter().flat_map(|level| level.behind(branch));
        let script = |it: &&Directive| matches!(it.name.as_str(), "set" | "rewrite" | "return" | "if");
        if behind.find(script).is_none() {
            return false;
        }
        let own = around.iter().rev().find(|level| level.name == "location");
        let location =
            own.and_then(|own| site.all_locations().into_iter().find(|it| std::ptr::eq(it.directive, *own)));
        let Some(location) = location else {
            let why =
                "which location takes what leaves the server's directives by `break` is not known beforehand";
            self.out.route_closed(branch.at, format_args!("{}: {branch}", place(site, around)), why, TODO);
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

    /// Reports directives of an `if` that are not converted within one, and closes its requests if one of them guards.
    fn report_other_directives(
        &mut self,
        place: &str,
        directive: &Directive,
        taken: &Base,
        items: &mut Vec<Item>,
    ) {
        let converted = ["set", "rewrite", "return", "break", "if"];
        for it in directive.block.iter().filter(|it| !converted.contains(&it.name.as_str())) {
            let what = format!("{place}: if: {it}");
            if !super::guard_names::is_guard(&it.name) {
                self.out.not_converted(
                    it.at,
                    what,
                    "it is not converted within `if`",
                    "use a plugin with `when`",
                );
            } else if self.out.guard_not_converted(it.at, what, "it guards only some requests", TODO) {
                items.push(Item::new(taken, To::Closed, "if"));
                return;
            }
        }
    }

    /// When an `if` that refuses its requests holds, or some more requests: without the look-aheads of its regex.
    fn wider(&self, directive: &Directive) -> Option<Cond> {
        let (operator, regex) = match words(&directive.arguments)?.as_slice() {
            [_, operator @ ("~" | "~*"), regex] => ((*operator).to_owned(), without_lookaheads(regex)?),
            _ => return None,
        };
        only_refuses(directive).then_some(())?;
        let variable = words(&directive.arguments)?.first().copied()?;
        self.vars_here.holds(variable, &Test::Regex(&regex, operator == "~*"), 0)
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
