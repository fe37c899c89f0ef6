//! How texts of requests are compared.

use serde_json::{Map, Value};

use super::settings::{Any, Declared, Setting, Texts};
use crate::text;

/// How a text is compared: a path, a header, a query parameter, a cookie.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Matcher {
    kind: &'static str,
    value: Value,
    ignores_case: Option<bool>,
}

/// What [`Matcher`] compares paths by, and other texts.
pub(super) const COMPARED: &[Declared] = &[
    ("proxies/matches/path", &["exact", "prefix", "template", "regex"]),
    (
        "proxies/matches/headers",
        &["exact", "one_of", "prefix", "suffix", "contains", "regex", "present", "ignore_case"],
    ),
];

impl Matcher {
    fn of(kind: &'static str, value: impl Into<Value>) -> Self {
        Self { kind, value: value.into(), ignores_case: None }
    }

    pub(crate) fn exact(text: impl Into<String>) -> Self {
        Self::of("exact", text.into())
    }

    pub(crate) fn one_of(texts: impl Texts) -> Self {
        Self::of("one_of", texts.setting())
    }

    pub(crate) fn prefix(text: impl Into<String>) -> Self {
        Self::of("prefix", text.into())
    }

    pub(crate) fn suffix(text: impl Into<String>) -> Self {
        Self::of("suffix", text.into())
    }

    pub(crate) fn contains(text: impl Into<String>) -> Self {
        Self::of("contains", text.into())
    }

    /// A path with names for single segments: `/users/{id}`.
    pub(crate) fn template(text: impl Into<String>) -> Self {
        Self::of("template", text.into())
    }

    /// The whole text.
    pub(crate) fn regex(text: impl Into<String>) -> Self {
        Self::of("regex", text.into())
    }

    /// Whether there is one.
    pub(crate) fn present(is_present: bool) -> Self {
        Self::of("present", is_present)
    }

    /// Says also whether the case of letters counts.
    pub(crate) fn ignore_case(self, ignores: bool) -> Self {
        Self { ignores_case: Some(ignores), ..self }
    }

    /// A regex that is looked for anywhere, as what a value contains; `None` where it is more than a plain text.
    pub(crate) fn contained(regex: &str) -> Option<Self> {
        let (ignores_case, rest) = regex.strip_prefix("(?i)").map_or((false, regex), |rest| (true, rest));
        let mut made = String::new();
        let mut chars = rest.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => made.push(chars.next().filter(char::is_ascii_punctuation)?),
                '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' => return None,
                c => made.push(c),
            }
        }
        // Letters beyond ASCII count as one case only with a regex.
        if made.is_empty() || ignores_case && !made.is_ascii() {
            return None;
        }
        let contained = Self::contains(made);
        Some(if ignores_case { contained.ignore_case(true) } else { contained })
    }

    /// What is asked of a header of which one of several fields fits a regex, which is looked for anywhere. They are joined by a
    /// comma and a space.
    pub(crate) fn one_field(regex: &str) -> Option<Self> {
        if let Some(contained) = Self::contained(regex) {
            return Some(contained);
        }
        let (flag, rest) = regex.strip_prefix("(?i)").map_or(("", regex), |rest| ("(?i)", rest));
        let whole = format!("{flag}(?:.*, )?(?:{})(?:, .*)?", text::anywhere(rest));
        text::is_regex(&whole).then(|| Self::regex(whole))
    }

    /// Whether the case of letters does not count.
    pub(crate) fn ignores_case(&self) -> bool {
        self.ignores_case == Some(true)
    }

    /// In which way it is compared, and with what.
    pub(crate) fn kind(&self) -> (&str, &Value) {
        (self.kind, &self.value)
    }

    /// What it is compared with, where it is compared in this way.
    pub(crate) fn get(&self, kind: &str) -> Option<&Value> {
        (self.kind == kind).then_some(&self.value)
    }
}

impl Setting for Matcher {
    fn setting(self) -> Option<Value> {
        Some(self.into())
    }
}

impl Setting for &Matcher {
    fn setting(self) -> Option<Value> {
        Some(self.into())
    }
}

impl Any for Matcher {}

impl From<Matcher> for Value {
    fn from(how: Matcher) -> Self {
        let mut made = Map::with_capacity(1 + usize::from(how.ignores_case.is_some()));
        made.insert(how.kind.to_owned(), how.value);
        if let Some(ignores) = how.ignores_case {
            made.insert("ignore_case".to_owned(), ignores.into());
        }
        Self::Object(made)
    }
}

impl From<&Matcher> for Value {
    fn from(how: &Matcher) -> Self {
        how.clone().into()
    }
}

#[cfg(test)]
mod tests {
    use super::Matcher;

    #[test]
    fn plain_texts_are_contained() {
        for (regex, expected) in [
            ("evil", Some(Matcher::contains("evil"))),
            (r"(?i)a\.b\\", Some(Matcher::contains(r"a.b\").ignore_case(true))),
            ("^evil", None),
            (r"\d", None),
            ("a|b", None),
            ("", None),
            ("(?i)\u{e9}", None),
        ] {
            assert_eq!(Matcher::contained(regex), expected, "{regex}");
        }
    }
}
