//! What HAProxy's rules change about a request, for the conditions behind them.

use super::acl::Acls;
use super::sections::HaproxyLine;
use crate::changed::What;
use crate::cond::Cond;
use crate::draft::Matcher;
use crate::text;

/// How a path begins in which a regex is replaced.
pub(super) const SUBSTITUTED: &str = "%[path,regsub(";

impl Acls {
    /// Notes what a rule changes about the request's line, for the requests that a condition means, where it is known.
    pub(super) fn change_target(
        &mut self,
        line: &HaproxyLine,
        action: &str,
        words: &[&str],
        known: Option<&Cond>,
    ) {
        let replaced = replaced_start(action, words).filter(|_| !self.changes.are_in("${request.path}"));
        if let (Some((from, to)), Some(known)) = (replaced, known) {
            let begins = Cond::path_is(Matcher::regex(format!("{}.*", text::literal(from))));
            let what = What::Replace { from: from.to_owned(), to: to.to_owned() };
            return self.change(line, Some(&known.clone().and(begins)), what);
        }
        for what in changed_target(action, words) {
            self.change(line, known, what);
        }
    }
}

/// The text that paths begin with and the one that takes its place, where a rule changes nothing else of the path.
fn replaced_start<'w>(action: &str, words: &[&'w str]) -> Option<(&'w str, &'w str)> {
    let (from, to) = match (action, words) {
        ("replace-path", [regex, to]) => {
            let start = regex.strip_suffix('$').unwrap_or(regex).strip_suffix("(.*)")?;
            (start.strip_prefix('^')?, to.strip_suffix("\\1")?)
        }
        ("set-path", [to]) => {
            let (from, to) = to.strip_prefix(SUBSTITUTED)?.strip_suffix(")]")?.split_once(',')?;
            (from.strip_prefix('^')?, to)
        }
        _ => return None,
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_".contains(c);
    let is_path = |text: &str| text.starts_with('/') && text.chars().all(is_plain);
    (is_path(from) && is_path(to) && from.ends_with('/') == to.ends_with('/')).then_some((from, to))
}

/// What a rule changes about the request's line.
fn changed_target(action: &str, words: &[&str]) -> Vec<What> {
    let fixed = words.first().filter(|to| to.starts_with('/') && !to.contains('%'));
    match (action, fixed) {
        ("set-method", _) => words.first().map(|to| What::Method((*to).to_owned())).into_iter().collect(),
        ("set-query", _) => vec![What::AnyQuery],
        ("set-path", Some(path)) => vec![What::Path((*path).to_owned())],
        ("set-pathq" | "set-uri", Some(to)) => {
            vec![What::Path(to.split('?').next().unwrap_or_default().to_owned()), What::AnyQuery]
        }
        ("set-path", None) => {
            let before = words.first().and_then(|to| put_before(to));
            vec![before.map_or(What::AnyPath, |before| What::Prepend(before.to_owned()))]
        }
        ("replace-path", _) => vec![What::AnyPath],
        _ => vec![What::AnyPath, What::AnyQuery, What::AnyHeader("host".to_owned())],
    }
}

/// The words of a rule about a header: `replace-header Host (.*) NAME` is `set-header Host NAME`, for all requests have the field.
pub(super) fn whole_host<'w>(action: &'w str, words: &[&'w str]) -> (&'w str, Vec<&'w str>) {
    match (action, words) {
        ("replace-header", [name, "(.*)" | ".*" | "^.*$" | "^(.*)$", with])
            if name.eq_ignore_ascii_case("host") && !with.contains('\\') =>
        {
            ("set-header", vec![*name, *with])
        }
        _ => (action, words.to_vec()),
    }
}

/// What a rule changes about the request's headers.
pub(super) fn changed_header(action: &str, words: &[&str]) -> Option<What> {
    let name = words.first()?.to_ascii_lowercase();
    Some(match (action, words) {
        ("del-header", [_]) => What::NoHeader(name),
        ("del-header", [_, "-m", "beg"]) => What::AnyHeader(format!("{name}*")),
        ("del-header", [_, "-m", "str"]) => What::NoHeader(name),
        ("del-header", _) => What::AnyHeader("*".to_owned()),
        ("set-header", [_, value]) if !value.contains('%') => What::Header(name, (*value).to_owned()),
        _ => What::AnyHeader(name),
    })
}

/// What a new path puts before the path as it is by then.
pub(super) fn put_before(to: &str) -> Option<&str> {
    to.strip_suffix("%[path]").filter(|before| before.starts_with('/') && !before.contains('%'))
}
