//! What rules change about a request, and what conditions behind them look at.
//!
//! Caddy and HAProxy ask their conditions of the request as the rules before left it; the gateway chooses a proxy, and asks who
//! calls, by what the client sent. [`before_changes`] says a condition on the changed request as one on the client's.

mod changes_by_subject;
mod quotient;

use regex::RegexBuilder;
use serde_json::{Map, Value, json};

use crate::cond::Cond;
use crate::text;
pub(crate) use changes_by_subject::Changes;

/// Changes that one condition is followed through, in all ways in which they may have been made.
const MAX_STEPS: usize = 1000;
/// Conditions within a condition that is still converted: the gateway takes 16.
const MAX_DEPTH: usize = 12;
/// Bytes of a condition, written down, that is still converted.
const MAX_BYTES: usize = 16 << 10;

/// What a rule changes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    /// The path becomes this one.
    Path(String),
    /// A prefix is taken away, whatever its case. `sure`: all requests that get here have it.
    Strip { prefix: String, sure: bool },
    /// A text is put before the path.
    Prepend(String),
    /// The text that all paths that get here begin with becomes another one.
    Replace { from: String, to: String },
    /// The path becomes one of these where there is no file of its own name.
    Fallback(Vec<String>),
    /// The path changes in a way that is not known.
    AnyPath,
    /// The query changes in a way that is not known.
    AnyQuery,
    /// The method becomes this one.
    Method(String),
    /// The method changes in a way that is not known.
    AnyMethod,
    /// A header is taken away.
    NoHeader(String),
    /// A header gets this value.
    Header(String, String),
    /// A header, or with `*` at its end all that begin so, changes in a way that is not known.
    AnyHeader(String),
    /// The client's address changes in a way that is not known.
    AnyClient,
}

/// A change, and for which requests it is made, by what the client sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RequestChange {
    pub(crate) when: Cond,
    pub(crate) what: What,
    /// The rule that makes it, where its importer says so.
    pub(crate) by: String,
}

impl RequestChange {
    /// A change of the requests that a condition means; one that is not known means any.
    pub(crate) fn new(when: Cond, what: What) -> Self {
        Self { when, what, by: String::new() }
    }

    /// The same with the rule that makes it.
    pub(crate) fn by(self, by: String) -> Self {
        Self { by, ..self }
    }

    /// Whether a condition looks at what is changed.
    pub(crate) fn concerns(&self, cond: &Cond) -> bool {
        if let Cond::Is(cond) = cond { self.what.concerns(cond) } else { false }
    }
}

impl What {
    /// What a rule of `request_transformer` changes.
    pub(crate) fn of_rule(rule: &Value) -> Option<Self> {
        let name = rule["key"].as_str()?.to_ascii_lowercase();
        if rule["target"] != "header" {
            return Some(Self::AnyQuery);
        }
        let value = rule["value"].as_str().filter(|value| !value.contains("${"));
        Some(match (rule["operation"].as_str(), value) {
            (Some("remove"), _) => Self::NoHeader(name),
            (Some("set"), Some(value)) => Self::Header(name, value.to_owned()),
            _ => Self::AnyHeader(name),
        })
    }

    /// The same where it is not known whether it is made.
    pub(crate) fn unknown(self) -> Self {
        match self {
            Self::Path(_)
            | Self::Strip { .. }
            | Self::Prepend(_)
            | Self::Replace { .. }
            | Self::Fallback(_) => Self::AnyPath,
            Self::NoHeader(name) | Self::Header(name, _) => Self::AnyHeader(name),
            Self::Method(_) => Self::AnyMethod,
            other => other,
        }
    }

    /// Whether a template has something that is changed by this.
    pub(crate) fn is_in(&self, template: &str) -> bool {
        let has = |name: &str| template.contains(&format!("${{request.{name}}}"));
        match self {
            Self::AnyQuery => has("query") || has("target") || template.contains("${request.query."),
            Self::Method(_) | Self::AnyMethod => has("method"),
            Self::AnyClient => template.contains("${client."),
            Self::NoHeader(_) | Self::Header(..) | Self::AnyHeader(_) => {
                let mut names = template.split("${request.header.").skip(1);
                let host = self.is_of("host") && (has("host") || has("authority"));
                let cookie = self.is_of("cookie") && template.contains("${request.cookie.");
                host || cookie || names.any(|rest| self.is_of(rest.split('}').next().unwrap_or_default()))
            }
            _ => has("path") || has("target"),
        }
    }

    /// Whether a header is changed by this.
    fn is_of(&self, name: &str) -> bool {
        match self {
            Self::NoHeader(own) | Self::Header(own, _) => own.eq_ignore_ascii_case(name),
            Self::AnyHeader(own) => match own.strip_suffix('*') {
                Some(start) => name.get(..start.len()).is_some_and(|it| it.eq_ignore_ascii_case(start)),
                None => own.eq_ignore_ascii_case(name),
            },
            _ => false,
        }
    }

    /// Whether the path is changed by this.
    pub(crate) fn is_of_path(&self) -> bool {
        matches!(
            self,
            Self::Path(_)
                | Self::Strip { .. }
                | Self::Prepend(_)
                | Self::Replace { .. }
                | Self::Fallback(_)
                | Self::AnyPath
        )
    }

    /// Whether `static_files` can be told of this change of the path.
    pub(crate) fn is_known_to_files(&self) -> bool {
        matches!(self, Self::Strip { sure: true, .. } | Self::Fallback(_))
    }

    /// Whether a part of a condition looks at what is changed by this.
    pub(crate) fn concerns(&self, cond: &Value) -> bool {
        let Some(cond) = cond.as_object() else { return false };
        cond.iter().any(|(key, value)| match (key.as_str(), value) {
            ("all" | "any", Value::Array(list)) => list.iter().any(|one| self.concerns(one)),
            ("not", one) => self.concerns(one),
            ("path", _) => self.is_of_path(),
            ("headers", Value::Object(named)) => named.keys().any(|name| self.is_of(name)),
            ("hosts" | "authority", _) => self.is_of("host"),
            ("cookies", _) => self.is_of("cookie"),
            ("content_types", _) => self.is_of("content-type"),
            ("query" | "query_string", _) => *self == Self::AnyQuery,
            ("methods", _) => matches!(self, Self::Method(_) | Self::AnyMethod),
            ("clients", _) => *self == Self::AnyClient,
            ("grpc", _) => self.is_of_path() || self.is_of("content-type"),
            _ => false,
        })
    }
}

/// A condition on what is left of a request after these changes, as one on what the client sent; `None` where that is not
/// known.
pub(crate) fn before_changes<'c>(
    cond: Cond,
    changes: impl IntoIterator<Item = &'c RequestChange, IntoIter: DoubleEndedIterator + Clone>,
) -> Option<Cond> {
    before_changes_within(cond, changes.into_iter(), &mut 0)
}

fn before_changes_within<'c>(
    cond: Cond,
    mut changes: impl DoubleEndedIterator<Item = &'c RequestChange> + Clone,
    steps: &mut usize,
) -> Option<Cond> {
    let Cond::Is(value) = &cond else { return Some(cond) };
    if cond.size() > MAX_BYTES {
        return None;
    }
    let is_met = |change: &&RequestChange| change.what.concerns(value) && change.when != Cond::Never;
    let Some(last) = changes.rfind(is_met) else { return Some(cond) };
    *steps += 1;
    if *steps > MAX_STEPS {
        return None;
    }
    let changed = before_changes_within(last.what.before(value, false)?, changes.clone(), steps)?;
    let made = if last.when == Cond::Always {
        changed
    } else {
        let same = before_changes_within(cond.clone(), changes, steps)?;
        last.when.clone().and(changed).or(last.when.clone().negate().and(same))
    };
    (made.depth() <= MAX_DEPTH && made.size() <= MAX_BYTES).then_some(made)
}

impl What {
    /// When a condition holds after this change, by what was before it.
    fn before(&self, cond: &Value, is_denied: bool) -> Option<Cond> {
        if !self.concerns(cond) {
            return Some(Cond::is(cond.clone()));
        }
        let mut made = Cond::Always;
        for (key, value) in cond.as_object()? {
            let each = || -> Option<Vec<Cond>> {
                value.as_array()?.iter().map(|one| self.before(one, is_denied)).collect()
            };
            let part = match key.as_str() {
                "all" => Cond::all(each()?),
                "any" => Cond::any(each()?),
                "not" => self.before(value, !is_denied)?.negate(),
                _ if !self.concerns(&json!({ key: value })) => Cond::is(json!({ key: value })),
                "path" => self.path(value, is_denied)?,
                "headers" => self.headers(value.as_object()?)?,
                "hosts" => self.host(value.as_array()?)?,
                "authority" => match self {
                    Self::NoHeader(_) => holds(fits(value, None)?),
                    Self::Header(_, host) => holds(fits(value, Some(host))?),
                    _ => return None,
                },
                "methods" => match self {
                    Self::Method(method) => holds(value.as_array()?.iter().any(|one| one == method)),
                    _ => return None,
                },
                "cookies" | "content_types" => match self {
                    Self::NoHeader(_) if key == "content_types" => Cond::Never,
                    Self::NoHeader(_) => Cond::all(
                        value
                            .as_object()?
                            .values()
                            .map(|how| fits(how, None).map(holds))
                            .collect::<Option<Vec<_>>>()?,
                    ),
                    _ => return None,
                },
                _ => return None,
            };
            made = made.and(part);
        }
        Some(made)
    }

    fn path(&self, asked: &Value, is_denied: bool) -> Option<Cond> {
        let regex = path_regex(asked)?;
        let fits = |path: &str| whole(&regex).map(|regex| regex.is_match(path));
        match self {
            Self::Path(path) => Some(holds(fits(path)?)),
            Self::Prepend(before) => {
                let rests = quotient::rests(inner(&regex)?, before)?;
                let each = rests.into_iter().map(|rest| Some(Cond::path("regex", &checked(rest)?)));
                Some(Cond::any(each.collect::<Option<Vec<_>>>()?))
            }
            Self::Replace { from, to } => {
                let from = text::literal(from);
                let mut each = Vec::new();
                for regex in path_regexes(asked)? {
                    each.extend(quotient::rests(inner(&regex)?, to)?);
                }
                let each = each.into_iter().map(|rest| {
                    let made = match rest.strip_prefix("(?i)") {
                        Some(rest) => format!("{from}(?i:{rest})"),
                        None => format!("{from}{rest}"),
                    };
                    Some(if rest == ".*" && from.is_empty() {
                        Cond::Always
                    } else {
                        Cond::path("regex", &checked(made)?)
                    })
                });
                Some(Cond::any(each.collect::<Option<Vec<_>>>()?))
            }
            // Whether there is a file is not known: what is asked for by its own name is told in both cases.
            Self::Fallback(others) => {
                if others.iter().any(|other| !other.starts_with('/') || other.contains(['{', '?', '*'])) {
                    return None;
                }
                let none = others.iter().map(|other| fits(other)).collect::<Option<Vec<_>>>()?;
                let is_known = !is_denied && !none.contains(&true);
                is_known.then(|| Cond::is(json!({ "path": asked })))
            }
            Self::Strip { prefix, sure } => {
                let start = format!("(?i:{})", text::literal(prefix));
                let inner = inner(&regex)?;
                // Nothing is left of the prefix itself, which to Caddy's matchers is no slash.
                let stripped = Cond::path("regex", &checked(format!("{start}(?:{inner})"))?);
                if *sure {
                    return Some(stripped);
                }
                let other = Cond::path("regex", &format!("{start}.*")).negate();
                Some(stripped.or(other.and(Cond::is(json!({ "path": asked })))))
            }
            _ => None,
        }
    }

    fn headers(&self, asked: &Map<String, Value>) -> Option<Cond> {
        let mut made = Cond::Always;
        for (name, how) in asked {
            made = made.and(match self {
                _ if !self.is_of(name) => Cond::is(json!({ "headers": { name: how } })),
                Self::NoHeader(_) => holds(fits(how, None)?),
                Self::Header(_, value) => holds(fits(how, Some(value))?),
                _ => return None,
            });
        }
        Some(made)
    }

    fn host(&self, asked: &[Value]) -> Option<Cond> {
        let Self::Header(_, host) = self else { return None };
        let (host, _) = text::host_port(host)?;
        let host = host.to_ascii_lowercase();
        let fits = |pattern: &str| match pattern.strip_prefix("*.") {
            Some(rest) => {
                host.strip_suffix(rest).is_some_and(|before| before.len() > 1 && before.ends_with('.'))
            }
            None => host == pattern,
        };
        Some(holds(asked.iter().filter_map(Value::as_str).any(fits)))
    }
}

fn holds(it: bool) -> Cond {
    if it { Cond::Always } else { Cond::Never }
}

fn checked(regex: String) -> Option<String> {
    text::is_regex(&regex).then_some(regex)
}

fn whole(regex: &str) -> Option<regex::Regex> {
    let regex = format!("^(?:{})$", inner(regex)?);
    RegexBuilder::new(&regex).dot_matches_new_line(true).size_limit(1 << 20).build().ok()
}

/// A regex without the anchors at its ends; `None` where it has others, which mean something else within another regex.
fn inner(regex: &str) -> Option<&str> {
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    let cut = regex.strip_suffix('$').filter(|cut| !cut.ends_with('\\')).unwrap_or(regex);
    let (mut before, mut in_class) = (' ', false);
    for c in cut.chars() {
        match (before, c) {
            ('\\', 'A' | 'z' | 'b' | 'B') => return None,
            ('\\', _) => {
                before = ' ';
                continue;
            }
            (_, '[') => in_class = true,
            (_, ']') => in_class = false,
            (_, '^' | '$') if !in_class => return None,
            _ => {}
        }
        before = c;
    }
    Some(cut)
}

/// What is asked of a path as a regex over the whole of it.
fn path_regex(asked: &Value) -> Option<String> {
    let prefix = |text: &str| match text.trim_end_matches('/') {
        "" => ".*".to_owned(),
        text => format!("{}(?:/.*)?", text::literal(text)),
    };
    if let Some(text) = asked.as_str() {
        return (!text.starts_with('~') && !text.contains('{')).then(|| prefix(text));
    }
    let named = |key: &str| asked.get(key).and_then(Value::as_str);
    named("regex")
        .map(str::to_owned)
        .or_else(|| named("exact").map(text::literal))
        .or_else(|| named("prefix").map(prefix))
}

/// What is asked of a path as regexes over the whole of it, of which any is meant, without groups where there need be none.
fn path_regexes(asked: &Value) -> Option<Vec<String>> {
    let prefix = asked.as_str().or_else(|| asked.get("prefix").and_then(Value::as_str));
    let Some(prefix) = prefix.filter(|text| !text.starts_with('~') && !text.contains('{')) else {
        return path_regex(asked).map(|regex| vec![regex]);
    };
    Some(match prefix.trim_end_matches('/') {
        "" => vec![".*".to_owned()],
        text => vec![text::literal(text), format!("{}/.*", text::literal(text))],
    })
}

/// Whether a value, or the lack of one, is one that is asked for.
fn fits(how: &Value, value: Option<&str>) -> Option<bool> {
    let named = |key: &str| how.get(key).and_then(Value::as_str);
    if let Some(present) = how.get("present") {
        return Some(present.as_bool()? == value.is_some());
    }
    let Some(value) = value else { return Some(false) };
    let ignores = how.get("ignore_case").and_then(Value::as_bool) == Some(true);
    let cased = |text: &str| if ignores { text.to_ascii_lowercase() } else { text.to_owned() };
    let value = cased(value);
    if let Some(list) = how.get("one_of").and_then(Value::as_array) {
        return Some(list.iter().filter_map(Value::as_str).any(|one| cased(one) == value));
    }
    if let Some(text) = how.as_str().or_else(|| named("exact")) {
        return Some(cased(text) == value);
    }
    if let Some(text) = named("prefix") {
        return Some(value.starts_with(&cased(text)));
    }
    if let Some(text) = named("suffix") {
        return Some(value.ends_with(&cased(text)));
    }
    if let Some(text) = named("contains") {
        return Some(value.contains(&cased(text)));
    }
    let flag = if ignores { "(?i)" } else { "" };
    whole(&format!("{flag}{}", named("regex")?)).map(|regex| regex.is_match(&value))
}

#[cfg(test)]
mod tests;
