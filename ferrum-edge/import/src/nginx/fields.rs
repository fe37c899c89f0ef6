//! What is asked of headers, parameters and cookies, as nginx reads them.

use super::asked::{Test, flagged};
use super::parts::alternatives;
use crate::cond::Cond;
use crate::draft::Matcher;
use crate::text;

/// `$http_NAME`.
pub(super) fn header(test: &Test<'_>, name: &str) -> Option<Cond> {
    // The host may come otherwise than as a header field.
    let field = |how: Matcher| match name {
        "host" => Cond::authority(how),
        _ => Cond::header(name, how),
    };
    Some(match test {
        Test::Same("", _) => field(Matcher::present(false)).or(field(Matcher::exact(""))),
        Test::Same(value, true) => field(Matcher::exact(*value).ignore_case(true)),
        Test::Same(value, false) => field(Matcher::exact(*value)),
        Test::Regex(regex, ignores) => {
            let flag = if *ignores { "(?i)" } else { "" };
            let how = match Matcher::contained(&format!("{flag}{regex}")) {
                Some(how) => how,
                None => Matcher::regex(flagged(regex, *ignores)?),
            };
            // An empty value is what is not there.
            if test.fits("") { field(how).or(field(Matcher::present(false))) } else { field(how) }
        }
        Test::True => field(Matcher::regex(".+")).and(field(Matcher::exact("0")).negate()),
    })
}

/// `$arg_NAME`: the first parameter of the name in any case, the value as it was sent.
pub(super) fn parameter(test: &Test<'_>, name: &str) -> Option<Cond> {
    let unlike = unlike(name, "&", "(?:[^&=][^&]*)?")?;
    let start = format!("(?:{unlike}&)*(?i:{name})=");
    let whole = |regex: String| Cond::query_string(Matcher::regex(regex));
    pair(test, &whole, &Pair { start: &start, other: "[^&]", banned: &['&'], end: "(?:&.*)?" })
}

/// `$cookie_NAME`: the first one of the name in any case. Several fields are joined by commas.
pub(super) fn cookie(test: &Test<'_>, name: &str) -> Option<Cond> {
    let unlike = unlike(name, ";,", " *(?:[^;,= ][^;,]*)?")?;
    let start = format!("(?: *{unlike}[;,])* *(?i:{name}) *= *");
    let whole = |regex: String| Cond::header("cookie", Matcher::regex(regex));
    pair(test, &whole, &Pair { start: &start, other: "[^;,]", banned: &[';', ','], end: "(?:[;,].*)?" })
}

/// A regex for what does not begin with this name and an equals sign; `last` is for what is behind the name, and `ends` what no
/// character of it is.
fn unlike(name: &str, ends: &str, last: &str) -> Option<String> {
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    Some(name.char_indices().rev().fold(last.to_owned(), |rest, (at, c)| {
        let both = format!("{}{}", c.to_ascii_lowercase(), c.to_ascii_uppercase());
        // Spaces in front are no part of it.
        let space = if at == 0 && ends.contains(';') { " " } else { "" };
        format!("(?:[^{ends}{both}{space}][^{ends}]*|[{both}]{rest})?")
    }))
}

/// Where a pair with its name is in a field of several.
struct Pair<'p> {
    /// All before its value.
    start: &'p str,
    /// A character of its value.
    other: &'p str,
    /// Those that its value has not.
    banned: &'p [char],
    /// All behind it.
    end: &'p str,
}

fn pair(test: &Test<'_>, cond: &dyn Fn(String) -> Cond, place: &Pair<'_>) -> Option<Cond> {
    let Pair { start, other, banned, end } = place;
    let whole = |value: &str| {
        let regex = format!("{start}{value}{end}");
        text::is_regex(&regex).then(|| cond(regex))
    };
    // What is not there is empty.
    let there = whole(&format!("{other}+"))?;
    Some(match test {
        Test::Same("", _) => there.negate(),
        Test::Same(value, _) if value.contains(banned[0]) => Cond::Never,
        Test::Same(value, true) => whole(&format!("(?i:{})", text::literal(value)))?,
        Test::Same(value, false) => whole(&text::literal(value))?,
        Test::Regex(regex, ignores) => {
            let all = alternatives(regex, *ignores, None)?;
            let all: Vec<String> = all.iter().map(|one| one.over(banned, other)).collect();
            let found = whole(&format!("(?:{})", all.join("|")))?;
            if test.fits("") { found.or(there.negate()) } else { found }
        }
        Test::True => there.and(whole("0")?.negate()),
    })
}

/// `$args`: the query as it was sent.
pub(super) fn query(test: &Test<'_>) -> Option<Cond> {
    // What is not there is empty.
    let there = Cond::query_string(Matcher::regex(".+"));
    Some(match test {
        Test::Same("", _) => there.negate(),
        Test::Same(value, true) => Cond::query_string(Matcher::exact(*value).ignore_case(true)),
        Test::Same(value, false) => Cond::query_string(Matcher::exact(*value)),
        Test::Regex(regex, ignores) => {
            let found = Cond::query_string(Matcher::regex(flagged(regex, *ignores)?));
            if test.fits("") { found.or(there.negate()) } else { found }
        }
        Test::True => there.and(Cond::query_string(Matcher::exact("0")).negate()),
    })
}

/// `$request_uri` that is this text.
fn same_target(wanted: &str, ignores: bool) -> Option<Cond> {
    let (path, query) = wanted.split_once('?').map_or((wanted, None), |(path, query)| (path, Some(query)));
    if !path.starts_with('/') {
        return Some(Cond::Never);
    }
    // What is decoded or resolved here, nginx compares as the client sent it.
    if path.contains('%') || path.contains("//") || path.contains("/.") {
        return None;
    }
    let path = match ignores {
        true => Matcher::regex(format!("(?i){}", text::literal(path))),
        false => Matcher::exact(path),
    };
    let query = match query {
        None => Matcher::present(false),
        Some(query) => Matcher::exact(query).ignore_case(ignores),
    };
    Some(Cond::path_is(path).and(Cond::query_string(query)))
}

/// `$request_uri`: the path and, behind a question mark, the query.
pub(super) fn target(test: &Test<'_>) -> Option<Cond> {
    let (regex, ignores) = match test {
        Test::Regex(regex, ignores) => (regex, ignores),
        Test::Same(wanted, ignores) => return same_target(wanted, *ignores),
        Test::True => return Some(Cond::Always),
    };
    let query = |regex: &str| text::is_regex(regex).then(|| Cond::query_string(Matcher::regex(regex)));
    let path = |regex: &str| text::is_regex(regex).then(|| Cond::path_is(Matcher::regex(regex)));
    let no_query = || Cond::query_string(Matcher::present(false));
    let mut made = Cond::Never;
    for one in alternatives(regex, *ignores, Some('?'))? {
        let within = path(&one.over(&['?'], "."))?;
        made = made.or(if one.ends() { within.and(no_query()) } else { within });
        if !one.starts() {
            made = made.or(query(&one.over(&[], "."))?);
        }
        for halves in one.around('?')? {
            made = made.or(path(&halves.left)?.and(query(&halves.right)?));
        }
    }
    Some(made)
}
