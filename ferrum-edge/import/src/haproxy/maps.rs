//! `use_backend %[…,map(FILE)]`: the backend that a map names for the host or path.

use std::path::Path;

use super::fetch::{cuts_port, split};
use crate::cond::Cond;
use crate::files::IncludeReader;

/// Single conditions of what asks a map; the gateway takes 1024.
const MAX_PARTS: usize = 500;
/// Conditions within conditions; the gateway takes 16.
const MAX_DEPTH: usize = 12;
/// Entries of one map.
const MAX_ENTRIES: usize = 10_000;

/// Backends by the requests that go to them, in the order in which they are looked at.
#[derive(Debug, PartialEq)]
pub(super) struct Mapped {
    pub(super) entries: Vec<(Cond, String)>,
    /// Where everything else goes that has what is looked at; `None` leads on to the rules that follow.
    pub(super) default: Option<String>,
    /// Requests that have it: for others no map is asked, and no default taken.
    pub(super) there: Cond,
    /// The entries as paths with their values, where whole paths are compared as they are.
    pub(super) paths: Option<Vec<(String, String)>>,
}

/// When a sample compares so with a value: value, way of comparing, whether case does not matter, whether its port is cut off, name and
/// argument of the sample. `None` where that can't be said here.
pub(super) type Compare = fn(&str, &str, bool, bool, &str, &str) -> Option<Cond>;

/// Reads an expression and its map; says why where that is not possible.
pub(super) fn mapped(
    expression: &str,
    reader: &mut IncludeReader<'_>,
    compare: Compare,
) -> Result<Mapped, String> {
    let inner = expression.strip_prefix("%[").and_then(|it| it.strip_suffix(']'));
    let inner = inner.ok_or_else(|| "only `%[FETCH,map(FILE)]` is known".to_owned())?;
    let parts = split(inner);
    let (Some(fetch), Some(last)) = (parts.first(), parts.last().filter(|_| parts.len() > 1)) else {
        return Err("only a fetch with a map behind it is known".to_owned());
    };
    let (mut ignores_case, mut is_cut) = (false, false);
    for converter in parts.get(1..parts.len() - 1).unwrap_or_default() {
        match converter.as_str() {
            "lower" | "upper" => ignores_case = true,
            converter if cuts_port(converter) => is_cut = true,
            other => return Err(format!("the converter `{other}` is not known")),
        }
    }
    let (name, arguments) = called(last);
    let how = match name {
        "map" | "map_str" => "str",
        "map_beg" => "beg",
        "map_end" => "end",
        "map_sub" => "sub",
        "map_dir" => "dir",
        "map_dom" => "dom",
        "map_reg" => "reg",
        _ => return Err(format!("`{name}` is not known")),
    };
    let (file, default) = match arguments.split_once(',') {
        Some((file, default)) => (file, Some(default.to_owned())),
        None => (arguments, None),
    };
    let text = reader.read(Path::new(file)).map_err(|why| format!("{file}: {why}"))?;
    let (own, argument) = called(fetch);
    let there = compare("", "found", false, false, own, argument);
    let there = match own {
        "path" | "url" | "pathq" | "base" | "method" | "src" => Cond::Always,
        "hdr" | "req.hdr" | "req.fhdr" if argument.eq_ignore_ascii_case("host") => Cond::Always,
        _ => there.ok_or_else(|| format!("whether `{fetch}` is there is not known"))?,
    };
    let mut made = Mapped { entries: Vec::new(), default, there, paths: None };
    let mut rows: Vec<(&str, &str)> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split_once(char::is_whitespace))
        .map(|(key, value)| (key, value.trim()))
        .collect();
    if rows.len() > MAX_ENTRIES {
        return Err(format!("{file} has more than {MAX_ENTRIES} entries"));
    }
    if how == "beg" {
        // The longest one counts.
        rows.sort_by_key(|(key, _)| std::cmp::Reverse(key.len()));
    }
    let is_whole_path = fetch == "path" && how == "str" && !ignores_case && !is_cut;
    made.paths = is_whole_path
        .then(|| rows.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect());
    let (fetch, argument) = called(fetch);
    for (key, backend) in rows {
        let cond = match fetch {
            "base" => base_compared(key, how, ignores_case, compare).filter(|_| !is_cut),
            _ => compare(key, how, ignores_case, is_cut, fetch, argument),
        };
        let cond = cond.ok_or_else(|| format!("`{fetch}` with `{key}` in {file} can't be converted"))?;
        made.entries.push((cond, backend.to_owned()));
    }
    Ok(made)
}

/// When host and path together compare so with a key, such as `a.test/old`; `None` where that can't be said here.
fn base_compared(key: &str, how: &str, ignores_case: bool, compare: Compare) -> Option<Cond> {
    let (host, path) = key.split_once('/').filter(|_| matches!(how, "str" | "beg"))?;
    let host = compare(host, "str", ignores_case, false, "hdr", "host")?;
    Some(host.and(compare(&format!("/{path}"), how, ignores_case, false, "path", "")?))
}

/// When a map has an entry, `FETCH,map(FILE) -m found`, or one of these values; `None` where that can't be said here.
pub(super) fn asks(
    expression: &str,
    words: &[&str],
    reader: &mut IncludeReader<'_>,
    compare: Compare,
) -> Option<Cond> {
    let mapped = mapped(&format!("%[{expression}]"), reader, compare).ok()?;
    let wanted = match words {
        ["-m", "found"] => None,
        ["-m", "str", values @ ..] | values if values.iter().all(|it| !it.starts_with('-')) => Some(values),
        _ => return None,
    };
    let fits = |value: &str| wanted.is_none_or(|wanted| wanted.contains(&value));
    let default = mapped.default.as_deref().is_some_and(fits);
    let entries = mapped.entries.into_iter().map(|(cond, value)| (cond, fits(&value)));
    let cond = match (wanted, default) {
        // Whichever entry it is.
        (None, false) => Cond::any(entries.map(|(cond, _)| cond)),
        (_, default) => Cond::first(entries, default),
    };
    let cond = cond.and(mapped.there);
    (cond.parts(MAX_PARTS) <= MAX_PARTS && cond.depth() <= MAX_DEPTH).then_some(cond)
}

/// A name and what is in its parentheses.
fn called(text: &str) -> (&str, &str) {
    match text.split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')').unwrap_or(rest)),
        None => (text, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_split_outside_of_parentheses() {
        assert_eq!(split("req.hdr(host),field(1,:),map(a,b)"), ["req.hdr(host)", "field(1,:)", "map(a,b)"]);
        assert_eq!(called("map(a,b)"), ("map", "a,b"));
        assert_eq!(called("path"), ("path", ""));
    }
}
