//! Groups of the regex that an `if` asks, for what its block says: of `$host`, `$args`, `$arg_NAME` and `$request_uri`. Those of `$uri` are
//! captures of the path.

use super::Nginx;
use super::asked::{Test, words};
use super::location::Base;
use super::site::Site;
use super::variable_names::WITH_QUERY;
use crate::cond::Cond;
use crate::draft::Matcher;
use crate::text;

/// Requests that an `if` takes, and what its groups are for them.
pub(super) struct GroupCase {
    pub(super) base: Base,
    /// The same as a condition.
    pub(super) cond: Cond,
    /// Numbers or names with their texts, in nginx's variables.
    pub(super) groups: Vec<(String, String)>,
}

/// What an `if` with groups takes.
pub(super) struct GroupCases {
    pub(super) cases: Vec<GroupCase>,
    /// Requests that it may take with groups that are not known beforehand.
    pub(super) rest: Cond,
}

impl Nginx<'_> {
    /// The cases of a condition with groups; `None` where they can't be said here.
    pub(super) fn group_cases(
        &self,
        site: &Site<'_>,
        base: &Base,
        arguments: &[String],
    ) -> Option<GroupCases> {
        let words = words(arguments)?;
        let [variable, operator @ ("~" | "~*"), regex] = words.as_slice() else { return None };
        let ignores = *operator == "~*";
        if !self.vars_here.is_of_request(variable.trim_start_matches('$')) {
            return None;
        }
        let cases = match *variable {
            "$host" | "$http_host" => return of_host(site, base, regex),
            "$args" | "$query_string" => vec![parameter(regex, false)?],
            "$request_uri" => of_target(regex, ignores)?,
            _ => {
                let name = variable.strip_prefix("$arg_")?;
                let inner = whole_group(regex)?;
                let cond = self.vars_here.holds(variable, &Test::Regex(regex, ignores), 0)?;
                (!inner.is_empty() && !name.is_empty()).then_some(())?;
                vec![Case {
                    captured: None,
                    cond,
                    groups: vec![("1".to_owned(), format!("${{arg_{name}}}"))],
                }]
            }
        };
        let case = |Case { captured, cond, groups }| match captured {
            Some(regex) => {
                let base = base.captured(&regex);
                let cond = cond.and(Cond::path_is(Matcher::regex(regex)));
                GroupCase { base: base.and(cond.clone()), cond, groups }
            }
            None => GroupCase { base: base.and(cond.clone()), cond, groups },
        };
        Some(GroupCases { cases: cases.into_iter().map(case).collect(), rest: Cond::Never })
    }
}

/// Requests, and what the groups are for them.
struct Case {
    /// A regex over the path whose groups they name.
    captured: Option<String>,
    cond: Cond,
    groups: Vec<(String, String)>,
}

/// `^www\.(.+)$` over the names of a server. Other names that reach it are left over.
fn of_host(site: &Site<'_>, base: &Base, regex: &str) -> Option<GroupCases> {
    let parsed = regex::RegexBuilder::new(regex).case_insensitive(true).size_limit(1 << 20).build().ok()?;
    let mut cases = Vec::new();
    let is_plain = |name: &&String| !name.contains('*');
    for name in site.names.iter().filter(is_plain) {
        let Some(found) = parsed.captures(name) else { continue };
        let mut groups: Vec<(String, String)> = Vec::new();
        for (n, group) in parsed.capture_names().enumerate() {
            let text = found.get(n).map_or("", |it| it.as_str()).to_owned();
            groups.extend(group.map(|group| (group.to_owned(), text.clone())));
            groups.push((n.to_string(), text));
        }
        let cond = Cond::hosts([name]);
        cases.push(GroupCase { base: base.and(cond.clone()), cond, groups });
    }
    let names: Vec<&String> = site.names.iter().filter(is_plain).collect();
    let is_closed =
        site.facets.iter().all(|facet| facet.get("hosts").is_some()) && names.len() == site.names.len();
    let rest = match is_closed {
        true => Cond::Never,
        false => {
            let others = Cond::hosts(&names).negate();
            let fits = Cond::authority(Matcher::regex(text::host_regex(regex)?));
            if names.is_empty() { fits } else { fits.and(others) }
        }
    };
    Some(GroupCases { cases, rest })
}

/// `(\d+)` or `^(\d+)$`: what is in the group.
fn whole_group(regex: &str) -> Option<&str> {
    let inner = regex.strip_prefix('^')?.strip_suffix('$')?;
    let inner = inner.strip_prefix('(')?.strip_suffix(')')?;
    (!inner.contains(['(', ')', '|'])).then_some(inner)
}

/// A query that is one parameter, `^id=(\d+)$`; without its `^` where that stands before it.
fn parameter(regex: &str, is_behind: bool) -> Option<Case> {
    let regex = if is_behind { regex } else { regex.strip_prefix('^')? };
    let (name, value) = regex.split_once('=')?;
    let value = value.strip_suffix('$')?;
    let inner = value.strip_prefix('(')?.strip_suffix(')')?;
    let is_name =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    // Values that are the same decoded.
    let plain = [
        "\\d+",
        "[0-9]+",
        "\\w+",
        "[a-z]+",
        "[a-zA-Z]+",
        "[a-z0-9]+",
        "[a-zA-Z0-9]+",
        "[a-z0-9-]+",
        "[a-zA-Z0-9_-]+",
    ];
    let is_plain =
        plain.contains(&inner) || inner.strip_prefix("\\d{").is_some_and(|rest| rest.ends_with('}'));
    (is_name && is_plain).then_some(())?;
    let whole = format!("{}=(?:{inner})", text::literal(name));
    let cond = text::is_regex(&whole).then(|| Cond::query_string(Matcher::regex(whole)))?;
    Some(Case { captured: None, cond, groups: vec![("1".to_owned(), format!("${{arg_{name}}}"))] })
}

/// `^/old/(.*)$` over path and query, and `^/old\.php\?id=(\d+)$`.
fn of_target(regex: &str, ignores: bool) -> Option<Vec<Case>> {
    let flag = if ignores { "(?i)" } else { "" };
    let checked = |regex: String| text::is_regex(&regex).then_some(regex);
    if let Some((path, query)) = regex.split_once("\\?") {
        let path = path.strip_prefix('^').filter(|path| is_plain(path) && !path.contains('('))?;
        let of_query = parameter(query, true)?;
        let path = Cond::path_is(Matcher::regex(checked(format!("{flag}{path}"))?));
        return Some(vec![Case { cond: path.and(of_query.cond), ..of_query }]);
    }
    let inner = regex.strip_prefix('^')?;
    let inner = inner.strip_suffix('$').unwrap_or(inner);
    let (start, last, needs) = match (inner.strip_suffix("(.*)"), inner.strip_suffix("(.+)")) {
        (Some(start), _) => (start, "(.*)", false),
        (_, Some(start)) => (start, "(.+)", true),
        _ => return None,
    };
    is_plain(start).then_some(())?;
    let count = start.matches('(').count();
    let groups = |last: String| {
        let before = (1..=count).map(|n| (n.to_string(), format!("${{path_group_{n}}}")));
        before.chain([((count + 1).to_string(), last)]).collect::<Vec<_>>()
    };
    let with_query = format!("${{path_group_{}}}{WITH_QUERY}", count + 1);
    let whole = checked(format!("{flag}{start}{last}"))?;
    let mut cases =
        vec![Case { captured: Some(whole), cond: Cond::Always, groups: groups(with_query.clone()) }];
    if needs {
        // The group is the question mark with the query.
        let path = checked(format!("{flag}{start}()"))?;
        let cond = Cond::query_string(Matcher::present(true));
        cases.push(Case { captured: Some(path), cond, groups: groups(with_query) });
    }
    Some(cases)
}

/// Whether a regex fits no question mark, and its groups are plain.
fn is_plain(regex: &str) -> bool {
    let bare = regex
        .replace("\\.", "")
        .replace("\\/", "")
        .replace("\\-", "")
        .replace("\\d", "0")
        .replace("\\w", "a");
    !bare.contains(['.', '\\', '|', '^', '$']) && !bare.contains("(?") && !bare.contains("[^")
}
