//! ACLs and the conditions made of them.

use std::collections::HashMap;
use std::path::Path;

use super::fetch::{cuts_port, ending, split};
use super::fields::{self, Field};
use super::maps;
use super::rates::{Rate, Tracked};
use super::sections::HaproxyLine;
use super::why::Why;
use crate::changed::{Changes, RequestChange, What};
use crate::cond::Cond;
use crate::draft::Matcher;
use crate::files::IncludeReader;
use crate::text;

/// Values one ACL may have, with those of its files.
const MAX_VALUES: usize = 10_000;
/// Ways in which one condition may hold.
const MAX_WAYS: usize = 64;

/// What one ACL asks.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Term {
    /// Something about the request.
    Asks(Cond),
    /// Who it is: a user list, and a group of it.
    Auth(String, Option<String>),
    /// More requests than these in a stick-table's time.
    Rate(Rate),
    /// Something that is not converted.
    NotConverted(Why),
}

impl Term {
    /// How many requests of whom are too many.
    pub(super) fn rate(&self) -> Option<&Rate> {
        if let Self::Rate(rate) = self { Some(rate) } else { None }
    }
}

const NOT_CONVERTED: Term = Term::NotConverted(Why::NotConverted);

/// A condition: the ways in which it holds, each with all that has to hold then, or (false) not to.
pub(super) type Ways = Vec<Vec<(bool, Term)>>;

/// ACLs by name. Several of one name are alternatives.
#[derive(Debug, Clone, Default)]
pub(super) struct Acls {
    named: HashMap<String, Vec<Term>>,
    /// What rules before changed about the request.
    pub(super) changes: Changes,
    /// What rules before count.
    pub(super) tracked: Vec<Tracked>,
}

impl Acls {
    /// `acl NAME FETCH [FLAGS] VALUES`.
    pub(super) fn add(&mut self, line: &HaproxyLine, reader: &mut IncludeReader<'_>) {
        let words: Vec<&str> = line.arguments().iter().map(String::as_str).collect();
        let Some((name, rest)) = words.split_first() else { return };
        let term = line.lacks().map_or_else(|| self.asked(rest, reader), Term::NotConverted);
        self.named.entry((*name).to_owned()).or_default().push(term);
    }

    /// Notes what a rule changes for the requests that its condition means; one that is not known may mean any.
    pub(super) fn change(&mut self, line: &HaproxyLine, cond: Option<&Cond>, what: What) {
        let change = match cond {
            Some(cond) => RequestChange::new(cond.clone(), what),
            None => RequestChange::new(Cond::Always, what.unknown()),
        };
        self.changes.push(change.by(format!("{} {}", line.name(), line.word(1))));
    }

    /// What a condition asks of the request as rules before left it, by what the client sent.
    fn before(&self, cond: Cond) -> Term {
        if self.changes.is_empty() {
            return self.changes.before(cond).map_or(NOT_CONVERTED, Term::Asks);
        }
        if let Some(cond) = self.changes.before(cond.clone()) {
            return Term::Asks(cond);
        }
        let rule = self.changes.iter().rev().find(|change| change.concerns(&cond));
        Term::NotConverted(rule.map_or(Why::NotConverted, |change| Why::Changed(change.by.clone())))
    }

    /// The ways in which `if …` or `unless …` hold, by what the client sent.
    pub(super) fn condition(&self, words: &[String], reader: &mut IncludeReader<'_>) -> Ways {
        let Some((first, rest)) = words.split_first() else { return vec![Vec::new()] };
        let mut ways = self.ways(rest, reader);
        for (_, term) in ways.iter_mut().flatten() {
            if let Term::Asks(cond) = term {
                *term = self.before(std::mem::replace(cond, Cond::Always));
            }
        }
        match first.as_str() {
            "if" => ways,
            "unless" => negate(&ways),
            _ => vec![vec![(true, NOT_CONVERTED)]],
        }
    }

    fn ways(&self, words: &[String], reader: &mut IncludeReader<'_>) -> Ways {
        let mut ways: Ways = vec![Vec::new()];
        let mut at = 0;
        let mut alternatives: Ways = Vec::new();
        while let Some(word) = words.get(at) {
            at += 1;
            match word.as_str() {
                "or" | "||" => {
                    alternatives.append(&mut ways);
                    ways = vec![Vec::new()];
                    continue;
                }
                "and" | "&&" => continue,
                _ => {}
            }
            let (mut holds, mut name) = match word.strip_prefix('!') {
                Some(rest) => (false, rest),
                None => (true, word.as_str()),
            };
            if name.is_empty() {
                // `! name`, with a space between.
                name = words.get(at).map_or("", String::as_str);
                at += 1;
                holds = false;
            }
            let terms = if name == "{" {
                let end = words.iter().skip(at).position(|word| word == "}").map_or(words.len(), |n| at + n);
                let inner: Vec<&str> =
                    words.get(at..end).unwrap_or_default().iter().map(String::as_str).collect();
                at = end + 1;
                vec![self.asked(&inner, reader)]
            } else {
                self.called(name)
            };
            // All alternatives of a name fail, or any of them holds.
            let mut next: Ways = Vec::new();
            if let ([way], [term]) = (ways.as_mut_slice(), terms.as_slice()) {
                way.push((holds, term.clone()));
                next.append(&mut ways);
            }
            for way in &ways {
                if holds {
                    next.extend(
                        terms.iter().map(|term| way.iter().cloned().chain([(true, term.clone())]).collect()),
                    );
                } else {
                    next.push(
                        way.iter().cloned().chain(terms.iter().map(|term| (false, term.clone()))).collect(),
                    );
                }
            }
            ways = next;
            if ways.len() + alternatives.len() > MAX_WAYS {
                return vec![vec![(true, NOT_CONVERTED)]];
            }
        }
        alternatives.extend(ways);
        alternatives
    }

    fn called(&self, name: &str) -> Vec<Term> {
        if let Some(terms) = self.named.get(name) {
            return terms.clone();
        }
        let methods = |list: &[&str]| vec![Term::Asks(Cond::methods(list))];
        match name {
            "TRUE" | "HTTP" => vec![Term::Asks(Cond::Always)],
            "FALSE" => vec![Term::Asks(Cond::Never)],
            "LOCALHOST" => vec![Term::Asks(Cond::clients(["127.0.0.0/8", "::1"]))],
            "METH_GET" => methods(&["GET", "HEAD"]),
            "METH_POST" => methods(&["POST"]),
            "METH_HEAD" => methods(&["HEAD"]),
            "METH_PUT" => methods(&["PUT"]),
            "METH_DELETE" => methods(&["DELETE"]),
            "METH_OPTIONS" => methods(&["OPTIONS"]),
            "METH_CONNECT" => methods(&["CONNECT"]),
            "METH_TRACE" => methods(&["TRACE"]),
            _ => vec![NOT_CONVERTED],
        }
    }

    /// `FETCH [FLAGS] VALUES`.
    fn asked(&self, words: &[&str], reader: &mut IncludeReader<'_>) -> Term {
        let Some((fetch, rest)) = words.split_first() else { return NOT_CONVERTED };
        let parts = split(fetch);
        if parts.last().is_some_and(|last| last.starts_with("map")) {
            return maps::asks(fetch, rest, reader, compared).map_or(NOT_CONVERTED, Term::Asks);
        }
        let Some(mut test) = Test::read(rest, reader) else { return NOT_CONVERTED };
        let mut converters = parts.iter().map(String::as_str);
        let fetch = converters.next().unwrap_or_default();
        // What is made of a sample is a text like any other: `path_beg,lower` compares the whole of it.
        let is_made = parts.len() > 1 && ending(fetch.split('(').next().unwrap_or_default()).is_some();
        if is_made && test.how.is_none() {
            test.how = Some("str".to_owned());
        }
        for converter in converters {
            match converter {
                // Lower case of it is looked at.
                "lower" | "upper" => test.ignores_case = true,
                converter if cuts_port(converter) => test.cuts_port = true,
                _ => return NOT_CONVERTED,
            }
        }
        let (name, argument) = match fetch.split_once('(') {
            Some((name, rest)) => (name, rest.trim_end_matches(')')),
            None => (fetch, ""),
        };
        match name {
            "http_auth" => return Term::Auth(argument.to_owned(), None),
            "http_auth_group" => return Term::Auth(argument.to_owned(), test.values.first().cloned()),
            name if name.ends_with("http_req_rate") || name.ends_with("conn_cur") => {
                return Rate::read(name, argument, &test.values).map_or(NOT_CONVERTED, Term::Rate);
            }
            _ => {}
        }
        test.of(name, argument).map_or(NOT_CONVERTED, Term::Asks)
    }
}

/// The ways in which none of these holds.
fn negate(ways: &Ways) -> Ways {
    let mut made: Ways = vec![Vec::new()];
    for way in ways {
        let mut next = Vec::new();
        for before in &made {
            for (holds, term) in way {
                let mut one = before.clone();
                one.push((!holds, term.clone()));
                next.push(one);
            }
        }
        made = next;
        if made.len() > MAX_WAYS {
            return vec![vec![(true, NOT_CONVERTED)]];
        }
    }
    made
}

/// When a sample compares so with a value; `None` where that can't be said here.
pub(super) fn compared(
    value: &str,
    how: &str,
    ignores_case: bool,
    cuts_port: bool,
    name: &str,
    argument: &str,
) -> Option<Cond> {
    Test::one(value, how, ignores_case, cuts_port).of(name, argument)
}

/// How values are compared, and with which.
pub(super) struct Test {
    pub(super) values: Vec<String>,
    ignores_case: bool,
    /// What `-m` says.
    how: Option<String>,
    /// What is compared is a host without its port.
    cuts_port: bool,
}

impl Test {
    /// One value, compared so.
    pub(super) fn one(value: &str, how: &str, ignores_case: bool, cuts_port: bool) -> Self {
        Self { values: vec![value.to_owned()], ignores_case, how: Some(how.to_owned()), cuts_port }
    }

    fn read(words: &[&str], reader: &mut IncludeReader<'_>) -> Option<Self> {
        let mut made = Self { values: Vec::new(), ignores_case: false, how: None, cuts_port: false };
        let mut rest = words.iter();
        let mut flags = true;
        while let Some(word) = rest.next() {
            match *word {
                "-i" if flags => made.ignores_case = true,
                "-n" | "-u" if flags => {}
                "--" if flags => flags = false,
                "-m" if flags => made.how = Some((*rest.next()?).to_owned()),
                "-f" if flags => {
                    let text = reader.read(Path::new(rest.next()?)).ok()?;
                    let lines =
                        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
                    made.values.extend(lines.map(str::to_owned));
                }
                "-M" if flags => return None,
                value => {
                    flags = false;
                    made.values.push(value.to_owned());
                }
            }
            if made.values.len() > MAX_VALUES {
                return None;
            }
        }
        // Lists of values are compared as strings, unless -m says otherwise.
        made.values.iter().all(|value| !value.contains("%[")).then_some(made)
    }

    /// When a fetch has one of the values; `None` when it is not known here.
    pub(super) fn of(&self, name: &str, argument: &str) -> Option<Cond> {
        let (base, suffix) = ending(name).unwrap_or((name, ""));
        let how = self.how.as_deref().unwrap_or(suffix);
        match base {
            "path" | "url" | "pathq" | "query" => self.path_or_query(base, how),
            "hdr" | "req.hdr" | "req.fhdr" | "fhdr" | "shdr"
                if argument.split(',').next().is_some_and(|it| it.eq_ignore_ascii_case("host")) =>
            {
                if self.cuts_port { self.host(how) } else { self.authority(how) }
            }
            // Of a host alone the port is known.
            _ if self.cuts_port => None,
            "req.hdr" | "hdr" | "req.fhdr" | "fhdr" => {
                let (field, which) = argument.split_once(',').unwrap_or((argument, ""));
                let is_line = matches!(base, "req.fhdr" | "fhdr");
                // Of which value more than the whole of it is asked can't be said of the first or last one.
                let is_exact = matches!(how, "" | "str") && !self.values.is_empty();
                let kind = match which.trim() {
                    "" if is_line => Field::Lines,
                    "" => Field::Values,
                    "1" if is_exact && !is_line => Field::First,
                    "-1" if is_exact && !is_line => Field::Last,
                    _ => return None,
                };
                self.field(kind, &field.trim().to_ascii_lowercase(), how)
            }
            "req.hdr_cnt" | "hdr_cnt" | "req.fhdr_cnt" | "fhdr_cnt" => {
                fields::counted(argument, &self.values)
            }
            "cook" | "req.cook" => self.field(Field::Cookies, argument, how),
            "url_param" | "urlp" => {
                // A delimiter of its own, or names in any case.
                let is_plain = !argument.contains(',');
                is_plain.then(|| self.field(Field::Parameters, argument, how))?
            }
            "method" if how.is_empty() || how == "str" => self.methods(),
            "src" | "req.src" if how.is_empty() || how == "ip" => {
                let good = !self.values.is_empty() && self.values.iter().all(|value| text::is_network(value));
                good.then(|| Cond::clients(&self.values))
            }
            "ssl_fc" | "dst_ssl" => self.flag(Cond::scheme("https")),
            "ssl_c_used" | "ssl_fc_has_crt" => self.flag(Cond::client_certificate()),
            "ssl_fc_sni" | "req.ssl_sni" => {
                let name = |value: &String| match (how, value.strip_prefix('.')) {
                    ("" | "str", _) => Some(value.clone()),
                    ("end", Some(rest)) => Some(format!("*.{rest}")),
                    _ => None,
                };
                let names: Option<Vec<String>> = self.values.iter().map(name).collect();
                let names = names.filter(|names| !names.is_empty())?;
                Some(Cond::server_names(names))
            }
            "always_true" => Some(Cond::Always),
            "always_false" => Some(Cond::Never),
            _ => None,
        }
    }

    fn methods(&self) -> Option<Cond> {
        // Those that HAProxy knows have upper case, whatever `-i` says; `post` is another method than POST.
        const KNOWN: [&str; 9] =
            ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PATCH"];
        let is_none =
            |value: &&str| KNOWN.iter().any(|known| known.eq_ignore_ascii_case(value) && known != value);
        let list: Vec<&str> =
            self.values.iter().map(String::as_str).filter(|value| !is_none(value)).collect();
        match (self.values.is_empty(), list.is_empty()) {
            (true, _) => None,
            (false, true) => Some(Cond::Never),
            (false, false) => Some(Cond::methods(&list)),
        }
    }

    fn flag(&self, cond: Cond) -> Option<Cond> {
        match self.values.first().map(String::as_str) {
            None => Some(cond),
            Some("1" | "true" | "yes") => Some(cond),
            Some("0" | "false" | "no") => Some(cond.negate()),
            Some(_) => None,
        }
    }

    /// The values as regexes over the whole.
    pub(super) fn regexes(&self, how: &str) -> Option<Vec<String>> {
        let flag = if self.ignores_case { "(?i)" } else { "" };
        let one = |value: &String| {
            let plain = text::literal(value);
            let trimmed = text::literal(value.trim_matches('/'));
            let made = match how {
                "" | "str" => plain,
                "beg" => format!("{plain}.*"),
                "end" => format!(".*{plain}"),
                "sub" => format!(".*{plain}.*"),
                "reg" => text::anywhere(value),
                "dir" => format!("(?:.*/)?{trimmed}(?:/.*)?"),
                "dom" => format!("(?:.*[./?:])?{trimmed}(?:[./?:].*)?"),
                "found" => ".*".to_owned(),
                _ => return None,
            };
            let made = format!("{flag}{made}");
            text::is_regex(&made).then_some(made)
        };
        if how == "found" {
            return Some(vec![".*".to_owned()]);
        }
        (!self.values.is_empty()).then(|| self.values.iter().map(one).collect())?
    }

    /// The header `Host`, with its port.
    fn authority(&self, how: &str) -> Option<Cond> {
        let one_of = || Matcher::one_of(&self.values);
        match how {
            _ if how == "found" || self.values.is_empty() => Some(Cond::authority(Matcher::present(true))),
            "" | "str" if self.ignores_case => Some(Cond::authority(one_of().ignore_case(true))),
            "" | "str" => Some(Cond::authority(one_of())),
            _ => Some(Cond::any(
                self.regexes(how)?.into_iter().map(|regex| Cond::authority(Matcher::regex(regex))),
            )),
        }
    }

    fn host(&self, how: &str) -> Option<Cond> {
        let good = |name: &str| {
            !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
        };
        match how {
            "" | "str" | "dom" | "beg" => {
                let names: Vec<String> = self
                    .values
                    .iter()
                    .map(|value| {
                        value.rsplit_once(':').map_or(value.as_str(), |(host, _)| host).to_ascii_lowercase()
                    })
                    .collect();
                if names.is_empty() || !names.iter().all(|name| good(name)) {
                    return None;
                }
                match how {
                    "dom" => {
                        let wild: Vec<String> =
                            names.iter().flat_map(|name| [name.clone(), format!("*.{name}")]).collect();
                        Some(Cond::hosts(wild))
                    }
                    "beg" => None,
                    _ => Some(Cond::hosts(names)),
                }
            }
            "end" => {
                let names: Option<Vec<String>> = self
                    .values
                    .iter()
                    .map(|value| {
                        value
                            .strip_prefix('.')
                            .filter(|rest| good(rest))
                            .map(|rest| format!("*.{}", rest.to_ascii_lowercase()))
                    })
                    .collect();
                names.filter(|names| !names.is_empty()).map(Cond::hosts)
            }
            _ => None,
        }
    }

    /// A header, cookie or query parameter, of which any of several values may be meant.
    fn field(&self, kind: Field, name: &str, how: &str) -> Option<Cond> {
        if name.is_empty() {
            return None;
        }
        if how == "found" || self.values.is_empty() {
            return Some(kind.there(name));
        }
        if how == "sub" && matches!(kind, Field::Values | Field::Lines) {
            let one = |value: &String| match self.ignores_case {
                true => Matcher::contains(value).ignore_case(true),
                false => Matcher::contains(value),
            };
            let all = self.values.iter().filter(|value| !value.is_empty());
            return Some(Cond::any(all.map(|value| Cond::header(name, one(value)))));
        }
        let all = self.regexes(how)?.into_iter().map(|regex| {
            let (flag, rest) = regex.strip_prefix("(?i)").map_or(("", regex.as_str()), |rest| ("(?i)", rest));
            kind.with(name, flag, rest)
        });
        Some(Cond::any(all.collect::<Option<Vec<_>>>()?))
    }
}
