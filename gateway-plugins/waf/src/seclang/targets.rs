//! What a rule looks at: `ARGS|!ARGS:password|&REQUEST_HEADERS:Host|TX:/^x_/`.

use crate::variable::Variable;

/// Why a list of targets can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The list is empty.
    #[error("there are no targets")]
    Empty,
    /// The list from the target on whose pattern has no end.
    #[error("the pattern in `{0}` is never closed")]
    UnclosedPattern(String),
    /// A name that is no variable here.
    #[error("the variable `{0}` is not supported")]
    UnknownVariable(String),
    /// Another path of XML than those of all elements and all attributes.
    #[error("of `XML` only `/*` and `//@*` are supported, not `{0}`")]
    XmlPath(String),
    /// A member of a variable that has one value.
    #[error("`{0}` has no members")]
    NoMembers(String),
}

/// One target as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TargetSource {
    pub(crate) variable: Variable,
    pub(crate) key: KeySource,
    /// `&`: how many there are, instead of their values.
    pub(crate) counted: bool,
    /// `!`: not this one.
    pub(crate) excluded: bool,
}

/// Which members of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    All,
    Name(String),
    Pattern(String),
}

/// Reads a list of targets.
pub(crate) fn parse(text: &str) -> Result<Vec<TargetSource>, TargetError> {
    let mut found = Vec::new();
    let mut rest = text.trim().trim_start_matches(['|', ',']);
    while !rest.is_empty() {
        let (one, after) = first(rest)?;
        found.push(target(one)?);
        rest = after.trim_start_matches(['|', ',', ' ']);
    }
    if found.is_empty() {
        return Err(TargetError::Empty);
    }
    Ok(found)
}

/// The first target of a list, and what comes behind it. A pattern in slashes may have the separator in it.
fn first(text: &str) -> Result<(&str, &str), TargetError> {
    let end = text.find(['|', ',']).unwrap_or(text.len());
    let opening = text.find(":/").map(|at| (at, 2, "/")).filter(|(at, ..)| *at < end);
    let quoted = text.find(":'/").map(|at| (at, 3, "/'")).filter(|(at, ..)| *at < end);
    // `XML:/*` and `XML://@*` are paths, not patterns.
    let is_path =
        text.trim_start_matches(['!', '&']).get(..4).is_some_and(|it| it.eq_ignore_ascii_case("xml:"));
    let Some((at, width, closing)) = opening.or(quoted).filter(|_| !is_path) else {
        return Ok(text.split_at(end));
    };
    let from = at + width;
    let mut escaped = false;
    for (offset, c) in text.get(from..).unwrap_or_default().char_indices() {
        let here = from + offset;
        if !escaped && text.get(here..).is_some_and(|rest| rest.starts_with(closing)) {
            return Ok(text.split_at(here + closing.len()));
        }
        escaped = c == '\\' && !escaped;
    }
    Err(TargetError::UnclosedPattern(text.to_owned()))
}

fn target(text: &str) -> Result<TargetSource, TargetError> {
    let text = text.trim();
    let (excluded, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
    let (counted, text) = text.strip_prefix('&').map_or((false, text), |rest| (true, rest));
    let (name, key) = match text.split_once([':', '.']) {
        Some((name, key)) => (name, Some(key)),
        None => (text, None),
    };
    let mut variable = Variable::named(name).ok_or_else(|| TargetError::UnknownVariable(name.to_owned()))?;
    let key = match key {
        None => KeySource::All,
        Some(path) if variable == Variable::Xml => {
            match path {
                "/*" | "//*" => {}
                "//@*" => variable = Variable::XmlAttributes,
                _ => return Err(TargetError::XmlPath(path.to_owned())),
            }
            KeySource::All
        }
        Some(key) => {
            let key = key.strip_prefix('\'').and_then(|key| key.strip_suffix('\'')).unwrap_or(key);
            match key.strip_prefix('/').and_then(|key| key.strip_suffix('/')) {
                Some(pattern) => KeySource::Pattern(pattern.to_owned()),
                None => KeySource::Name(key.to_ascii_lowercase()),
            }
        }
    };
    if key != KeySource::All && !variable.has_members() {
        return Err(TargetError::NoMembers(name.to_owned()));
    }
    Ok(TargetSource { variable, key, counted, excluded })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        let found = parse("ARGS|!ARGS:Pass|&REQUEST_HEADERS:Host|TX:/^a|b\\/c/|XML:/*|XML://@*").unwrap();
        let name = |n: usize| found[n].variable;
        assert_eq!(name(0), Variable::Args);
        assert!(found[1].excluded && found[1].key == KeySource::Name("pass".into()));
        assert!(found[2].counted);
        assert_eq!(found[3].key, KeySource::Pattern("^a|b\\/c".into()));
        assert_eq!((name(4), name(5)), (Variable::Xml, Variable::XmlAttributes));
    }

    #[test]
    fn what_is_not_supported_is_named() {
        for (text, says) in [
            ("GEO:COUNTRY", "`GEO` is not supported"),
            ("XML:/soap:Envelope", "only `/*`"),
            ("REQUEST_METHOD:x", "no members"),
            ("TX:/a", "never closed"),
            ("", "no targets"),
        ] {
            let got = parse(text).unwrap_err().to_string();
            assert!(got.contains(says), "{text}: {got}");
        }
    }
}
