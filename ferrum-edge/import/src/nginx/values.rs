//! Variables: those of nginx, and those that `map`, `geo` and `set` make.

use std::collections::HashMap;
use std::rc::Rc;

use super::asked::Test;
use super::blocks::Directive;
use super::variable_names::{ValuePiece, WITH_QUERY, names, ours, pieces};
use crate::changed::What;
use crate::cond::Cond;
use crate::text;

/// Cases one variable, or one text with variables, may have.
const MAX_CASES: usize = 64;
/// Single conditions of all cases of one variable or text together, and of one condition; the gateway takes 1024.
pub(super) const MAX_PARTS: usize = 500;
/// Conditions within conditions; the gateway takes 16.
const MAX_DEEP: usize = 12;
/// Variables within variables.
const MAX_DEPTH: usize = 8;

/// What the names of parameters begin with; by itself it stands for all of them.
const PARAMETERS: &str = "arg_";

/// What a variable is, case by case: the first whose condition holds. The last one holds always.
#[derive(Debug, Clone)]
pub(super) struct Cases(pub(super) Vec<(Cond, String)>);

/// Variables that the configuration makes. `None` is one whose cases can't be said here.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables {
    made: Rc<HashMap<String, Option<Cases>>>,
    /// Named groups of regexes, with the templates that stand for them; `None` where they have none.
    groups: Rc<HashMap<String, Option<String>>>,
}

impl Variables {
    /// `set $name value`, for the requests that a condition means.
    pub(super) fn set(&mut self, name: &str, value: &str, cond: Cond) {
        // It is empty before, and may name itself.
        let empty = || Some(Cases(vec![(Cond::Always, String::new())]));
        Rc::make_mut(&mut self.made).entry(name.to_owned()).or_insert_with(empty);
        let new = self.by_cases(value);
        self.set_to(name, new, cond);
    }

    /// A text by cases, in nginx's own variables; `None` when it can't be said here.
    pub(super) fn by_cases(&self, value: &str) -> Option<Vec<(Cond, String)>> {
        self.unfolded(value, false, 0)
    }

    /// The same for a text that [`Variables::by_cases`] took apart before.
    pub(super) fn set_to(&mut self, name: &str, value: Option<Vec<(Cond, String)>>, cond: Cond) {
        let before = match self.made.get(name) {
            Some(before) => before.clone(),
            None => {
                let empty = Cases(vec![(Cond::Always, String::new())]);
                Rc::make_mut(&mut self.made).insert(name.to_owned(), Some(empty.clone()));
                Some(empty)
            }
        };
        let made = match (value, before) {
            (Some(new), Some(Cases(before))) if new.len() + before.len() <= MAX_CASES => {
                let is_whole = cond == Cond::Always;
                let new = new.into_iter().map(|(case, text)| (cond.clone().and(case), text));
                let all: Vec<_> = new.chain(before.into_iter().filter(|_| !is_whole)).collect();
                is_small(&all).then_some(Cases(all))
            }
            (Some(new), None) if cond == Cond::Always => Some(Cases(new)),
            _ => None,
        };
        Rc::make_mut(&mut self.made).insert(name.to_owned(), made);
    }

    pub(super) fn set_unknown(&mut self, name: &str) {
        Rc::make_mut(&mut self.made).insert(name.to_owned(), None);
    }

    /// Takes one of nginx's own as what it is again.
    pub(super) fn unset(&mut self, name: &str) {
        if self.made.contains_key(name) {
            Rc::make_mut(&mut self.made).remove(name);
        }
    }

    /// Notes the named groups of all regexes of a block, which are variables in all of it.
    pub(super) fn name_groups(&mut self, block: &Directive) {
        for inner in &block.block {
            if matches!(inner.name.as_str(), "location" | "rewrite" | "if" | "server_name") {
                let names = inner.arguments.iter().flat_map(|argument| text::named_groups(argument));
                names.for_each(|name| drop(Rc::make_mut(&mut self.groups).insert(name, None)));
            }
            self.name_groups(inner);
        }
    }

    fn forget_named_groups(&mut self) {
        if self.groups.values().any(Option::is_some) {
            Rc::make_mut(&mut self.groups).values_mut().for_each(|known| *known = None);
        }
    }

    /// Notes that the path of all requests fits this regex: groups are its own.
    pub(super) fn fitted(&mut self, regex: &str) {
        if self.made.keys().any(|name| is_group(name)) {
            Rc::make_mut(&mut self.made).retain(|name, _| !is_group(name));
        }
        self.forget_named_groups();
        let names = text::named_groups(regex);
        if !names.is_empty() {
            Rc::make_mut(&mut self.groups)
                .extend(names.into_iter().map(|name| (name.clone(), Some(format!("${{capture.{name}}}")))));
        }
    }

    /// Notes what the groups of a regex are; all others are empty.
    pub(super) fn set_groups(&mut self, groups: &[(String, String)]) {
        self.empty_groups();
        self.forget_named_groups();
        for (name, text) in groups {
            match is_group(name) {
                true => drop(
                    Rc::make_mut(&mut self.made)
                        .insert(name.clone(), Some(Cases(vec![(Cond::Always, text.clone())]))),
                ),
                false => drop(Rc::make_mut(&mut self.groups).insert(name.clone(), Some(text.clone()))),
            }
        }
    }

    /// Forgets what the groups of a regex stand for: another one was asked.
    pub(super) fn without_groups(&mut self) {
        (0..10).for_each(|group: u8| self.set_unknown(&group.to_string()));
    }

    /// Notes that a regex with groups was asked, and did not fit: they are empty.
    pub(super) fn empty_groups(&mut self) {
        let nothing = || Some(Cases(vec![(Cond::Always, String::new())]));
        (0..10).for_each(|group: u8| drop(Rc::make_mut(&mut self.made).insert(group.to_string(), nothing())));
    }

    /// Notes that a `rewrite` to this text made the path, and the query where it has one. What was said by the one before,
    /// or by groups of another regex, is not known any more.
    pub(super) fn rewritten(&mut self, to: &str) {
        let (path, query) = to.split_once('?').map_or((to, None), |(path, query)| (path, Some(query)));
        let is_new = |name: &str| match name {
            "uri" | "document_uri" => true,
            "args" | "query_string" | "is_args" => query.is_some(),
            name => query.is_some() && name.starts_with("arg_"),
        };
        let is_gone = |name: &str| is_new(name) || is_group(name) || self.groups.contains_key(name);
        let concerns = |cond: &Cond| {
            let Cond::Is(cond) = cond else { return false };
            What::AnyPath.concerns(cond) || query.is_some() && What::AnyQuery.concerns(cond)
        };
        for cases in Rc::make_mut(&mut self.made).values_mut() {
            let is_old = |(cond, text): &(Cond, String)| names(text, &is_gone) || concerns(cond);
            if cases.as_ref().is_some_and(|Cases(cases)| cases.iter().any(is_old)) {
                *cases = None;
            }
        }
        let fixed =
            |text: &str| (!names(text, &is_new)).then(|| Cases(vec![(Cond::Always, text.to_owned())]));
        for name in ["uri", "document_uri"] {
            Rc::make_mut(&mut self.made).insert(name.to_owned(), fixed(path));
        }
        let Some(query) = query else { return };
        // The request's own query is put behind it, unless it ends with a question mark.
        for name in ["args", "query_string"] {
            Rc::make_mut(&mut self.made).insert(name.to_owned(), query.strip_suffix('?').and_then(fixed));
        }
        self.set_unknown("is_args");
        self.set_unknown(PARAMETERS);
    }

    /// What the configuration says of a variable; nothing of nginx's own.
    fn said(&self, name: &str) -> Option<&Option<Cases>> {
        let of_query = || self.made.get(PARAMETERS).filter(|_| name.starts_with(PARAMETERS));
        self.made.get(name).or_else(of_query)
    }

    /// Whether a variable of nginx's own is what the client sent: no `set` or `rewrite` made it anew.
    pub(super) fn is_of_request(&self, name: &str) -> bool {
        self.said(name).is_none()
    }

    /// `map SOURCE $name { … }`; false when it can't be said here.
    pub(super) fn map(&mut self, map: &Directive) -> bool {
        let [source, name] = map.arguments.as_slice() else { return false };
        let name = name.trim_start_matches('$').to_owned();
        let cases = self.mapped(source, &map.block);
        let is_known = cases.is_some();
        Rc::make_mut(&mut self.made).insert(name, cases);
        is_known
    }

    fn mapped(&self, source: &str, block: &[Directive]) -> Option<Cases> {
        let mut default = String::new();
        let (mut exact, mut hosts, mut regexes) = (Vec::new(), Vec::new(), Vec::new());
        let has_hosts = block.iter().any(|entry| entry.name == "hostnames");
        if block.len() > MAX_CASES {
            return None;
        }
        for entry in block {
            let value = entry.arguments.first().cloned().unwrap_or_default();
            match entry.name.as_str() {
                "default" => default = value,
                "hostnames" | "volatile" if entry.arguments.is_empty() => {}
                "include" | super::guard_names::UNREAD => return None,
                key => {
                    let key = key.strip_prefix('\\').unwrap_or(key);
                    let is_wild =
                        has_hosts && (key.starts_with("*.") || key.starts_with('.') || key.ends_with(".*"));
                    if let Some(regex) = key.strip_prefix('~') {
                        let test = match regex.strip_prefix('*') {
                            Some(regex) => Test::Regex(regex, true),
                            None => Test::Regex(regex, false),
                        };
                        // Groups of this regex have no counterpart.
                        let named = text::named_groups(regex);
                        let is_own = |name: &str| is_group(name) || named.iter().any(|own| own == name);
                        let names_groups = text::has_groups(regex) && names(&value, &is_own);
                        regexes.push((self.holds(source, &test, 0).filter(|_| !names_groups)?, value));
                    } else if is_wild {
                        let names = match key.strip_prefix('.') {
                            Some(rest) => vec![rest.to_owned(), format!("*.{rest}")],
                            None if key.ends_with('*') => return None,
                            None => vec![key.to_owned()],
                        };
                        if !matches!(source, "$host" | "$http_host") {
                            return None;
                        }
                        hosts.push((Cond::hosts(names), value));
                    } else {
                        exact.push((self.holds(source, &Test::Same(key, true), 0)?, value));
                    }
                }
            }
        }
        // The longest name first, as nginx looks for it.
        hosts.sort_by_key(|(cond, _)| std::cmp::Reverse(format!("{cond:?}").len()));
        let mut cases = exact;
        cases.extend(hosts);
        cases.extend(regexes);
        cases.push((Cond::Always, default));
        Some(Cases(cases))
    }

    /// `geo [$address] $name { … }`; false when it can't be said here.
    pub(super) fn geo(&mut self, geo: &Directive) -> bool {
        let (source, name) = match geo.arguments.as_slice() {
            [name] => ("$remote_addr", name),
            [source, name] => (source.as_str(), name),
            _ => return false,
        };
        let name = name.trim_start_matches('$').to_owned();
        let cases = networks(source, &geo.block);
        let is_known = cases.is_some();
        Rc::make_mut(&mut self.made).insert(name, cases);
        is_known
    }

    /// When a test of a text holds; `None` when it can't be said here.
    pub(super) fn holds(&self, source: &str, test: &Test<'_>, depth: usize) -> Option<Cond> {
        if depth > MAX_DEPTH {
            return None;
        }
        let Some(name) = lone(source) else {
            // A plain text is what it is.
            return match source.contains('$') {
                true => self.joined_holds(source, test, depth),
                false => Some(if test.fits(source) { Cond::Always } else { Cond::Never }),
            };
        };
        match self.said(name) {
            _ if self.groups.contains_key(name) => None,
            Some(None) => None,
            Some(Some(Cases(cases))) => {
                let mut said = Vec::with_capacity(cases.len());
                for (cond, value) in cases {
                    said.push((cond.clone(), self.holds(value, test, depth + 1)?));
                }
                let made = said.into_iter().rev().try_fold(Cond::Never, |rest, (cond, then)| {
                    let made = match then {
                        Cond::Always => cond.or(rest),
                        Cond::Never => cond.negate().and(rest),
                        then => cond.clone().and(then).or(cond.negate().and(rest)),
                    };
                    (made.parts(MAX_PARTS) <= MAX_PARTS).then_some(made)
                })?;
                (made.depth() <= MAX_DEEP).then_some(made)
            }
            None => test.of(name),
        }
    }

    /// A text by cases, each with the template of ours that stands for it; `None` when it can't be said here.
    pub(super) fn texts(&self, text: &str) -> Option<Vec<(Cond, String)>> {
        self.unfolded(text, true, 0)
    }

    /// A text by cases, with what the configuration says of its variables. Those of nginx are written in our way, or left.
    fn unfolded(&self, text: &str, is_ours: bool, depth: usize) -> Option<Vec<(Cond, String)>> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut made = vec![(Cond::Always, String::new())];
        for piece in pieces(text) {
            let options = match piece {
                ValuePiece::Text(text) => vec![(Cond::Always, text.to_owned())],
                ValuePiece::Variable(name) if self.groups.contains_key(name) => {
                    let known = self.groups.get(name).cloned().flatten()?;
                    vec![(Cond::Always, if is_ours { known } else { format!("${{{name}}}") })]
                }
                ValuePiece::Variable(name) => match self.said(name) {
                    Some(None) => return None,
                    Some(Some(Cases(cases))) => {
                        let mut all = Vec::new();
                        let mut rest = Cond::Always;
                        for (cond, value) in cases {
                            let here = rest.clone().and(cond.clone());
                            rest = rest.and(cond.clone().negate());
                            if rest.parts(MAX_PARTS) > MAX_PARTS {
                                return None;
                            }
                            for (inner, text) in self.unfolded(value, is_ours, depth + 1)? {
                                all.push((here.clone().and(inner), text));
                            }
                        }
                        all.retain(|(cond, _)| *cond != Cond::Never);
                        is_small(&all).then_some(all)?
                    }
                    None if is_ours => vec![(Cond::Always, format!("${{{}}}", ours(name)?))],
                    None => vec![(Cond::Always, format!("${{{name}}}"))],
                },
            };
            if made.len() * options.len() > MAX_CASES {
                return None;
            }
            made = made
                .iter()
                .flat_map(|(cond, before)| {
                    options.iter().map(move |(other, text)| {
                        (cond.clone().and(other.clone()), format!("{before}{text}"))
                    })
                })
                .collect();
            if !is_small(&made) {
                return None;
            }
        }
        Some(made)
    }

    /// Whether a text with a variable that the configuration makes is the client's host, where there is one: HTTP/1.1 has one in every
    /// request.
    pub(super) fn is_client_host(&self, text: &str) -> bool {
        let is_made = lone(text).is_some_and(|name| matches!(self.made.get(name), Some(Some(_))));
        let Some(cases) = self.texts(text).filter(|_| is_made) else { return false };
        let none = Test::Same("", false).of("http_host");
        let is_hostless = |cond: &Cond| match (cond, &none) {
            (Cond::Is(cond), Some(Cond::Is(none))) => {
                cond == none || cond["all"].as_array().is_some_and(|all| all.contains(none))
            }
            _ => false,
        };
        let mut texts = cases.iter().filter(|(cond, _)| !is_hostless(cond)).map(|(_, text)| text.as_str());
        let is_host = |text: &str| matches!(text, "${request.authority}" | "${request.host}");
        texts.clone().next().is_some() && texts.all(is_host)
    }

    /// The new text of a replacement, in which `$1` and these names are groups of its own regex; `None` when it can't be said here.
    pub(super) fn replacement(&self, text: &str, groups: &[String]) -> Option<String> {
        let mut made = String::new();
        for piece in pieces(text) {
            match piece {
                ValuePiece::Text(text) => made.push_str(text),
                ValuePiece::Variable(name) if is_group(name) || groups.iter().any(|own| own == name) => {
                    made.push_str(&format!("${{match.{name}}}"));
                }
                ValuePiece::Variable(name) => match self.texts(&format!("${{{name}}}"))?.as_slice() {
                    [(Cond::Always, text)] => made.push_str(text),
                    _ => return None,
                },
            }
        }
        Some(made)
    }

    /// A text that is the same for every request, as a template; `None` when it differs or can't be said here.
    pub(super) fn template(&self, text: &str) -> Option<String> {
        match self.texts(text)?.as_slice() {
            // Before a target is picked, nothing is known of it.
            [(Cond::Always, text)] => {
                Some(text.clone()).filter(|text| !is_of_answer(text) && !text.contains(WITH_QUERY))
            }
            _ => None,
        }
    }
}

/// Whether cases are small enough to go on with: each variable that is made of another one multiplies them.
fn is_small(cases: &[(Cond, String)]) -> bool {
    let mut left = MAX_PARTS;
    cases.iter().all(|(cond, _)| {
        let parts = cond.parts(left);
        let fits = parts <= left && cond.depth() <= MAX_DEEP;
        left = left.saturating_sub(parts);
        fits
    })
}

/// Whether a template has something of the target or of its response, which requests have not.
pub(super) fn is_of_answer(template: &str) -> bool {
    template.contains("${target.") || template.contains("${response.")
}

/// Whether a variable is a group of the regex that was asked last.
fn is_group(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit())
}

/// `geo`: the longest network first.
fn networks(source: &str, block: &[Directive]) -> Option<Cases> {
    if !matches!(source, "$remote_addr" | "$binary_remote_addr") || block.len() > 10_000 {
        return None;
    }
    let mut default = String::new();
    // One case for each value and length, with all its networks.
    let mut by_length: Vec<(u8, String, Vec<String>)> = Vec::new();
    for entry in block {
        let value = entry.arguments.first().cloned().unwrap_or_default();
        match entry.name.as_str() {
            "default" => default = value,
            "ranges" | "include" | "delete" | "proxy" | "proxy_recursive" | super::guard_names::UNREAD => {
                return None;
            }
            network if text::is_network(network) => {
                let whole = if network.contains(':') { 128 } else { 32 };
                let bits = network.split_once('/').map_or(Some(whole), |(_, bits)| bits.parse().ok())?;
                match by_length.iter_mut().find(|(length, said, _)| *length == bits && *said == value) {
                    Some((.., list)) => list.push(network.to_owned()),
                    None => by_length.push((bits, value, vec![network.to_owned()])),
                }
            }
            _ => return None,
        }
    }
    if by_length.len() > MAX_CASES {
        return None;
    }
    by_length.sort_by_key(|(bits, ..)| std::cmp::Reverse(*bits));
    let mut cases: Vec<(Cond, String)> =
        by_length.into_iter().map(|(_, value, list)| (Cond::clients(list), value)).collect();
    cases.push((Cond::Always, default));
    Some(Cases(cases))
}

/// The name of the one variable a text is.
fn lone(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    (!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')).then_some(name)
}
