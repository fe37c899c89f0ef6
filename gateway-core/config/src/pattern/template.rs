//! Paths with names in them: `/users/{id}/files/{rest...}`.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::spelling::in_request_spelling;

/// A path in segments, some of which have a name instead of a text.
///
/// `{name}` is any one segment that is not empty; `{name...}` may stand at the end only and is all that is left, also
/// nothing, after the slash before it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathTemplate {
    text: Arc<str>,
    segments: Box<[Segment]>,
    names: Arc<[Box<str>]>,
}

/// One segment of a template, in the order in which one goes before another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// This text.
    Literal(Box<str>),
    /// Anything.
    Name,
    /// All that is left.
    Rest,
}

/// A captured part of a path: first byte and the one after its last.
type Span = (u32, u32);

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    /// It doesn't begin with a slash.
    #[error("a path begins with `/`")]
    NoSlash,
    /// A brace where none may be.
    #[error("a name takes a whole segment: `/{{name}}/`; write a regex for parts of segments")]
    Braces,
    /// A name that can't be one.
    #[error("`{0}` can't be a name: letters, digits and `_`")]
    Name(String),
    /// The same name again.
    #[error("the name `{0}` is used twice")]
    Twice(String),
    /// A rest before the end.
    #[error("`{{{0}...}}` may only stand at the end")]
    RestInside(String),
    /// An empty segment, `.` or `..`.
    #[error("this has an empty, `.` or `..` segment, which no request has when it is matched")]
    Segment,
    /// A segment that no request has.
    #[error("no request's path has the segment `{0}`; write `%25` for a percent sign")]
    Spelling(String),
    /// Too many segments.
    #[error("this has more than {most} segments", most = super::MAX_SEGMENTS)]
    TooDeep,
    /// No name at all.
    #[error("there is no name in it; write it as `exact` or `prefix`")]
    NoName,
}

impl PathTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, BadTemplate> {
        let rest = text.strip_prefix('/').ok_or(BadTemplate::NoSlash)?;
        let parts: Vec<&str> = rest.split('/').collect();
        if parts.len() > super::MAX_SEGMENTS {
            return Err(BadTemplate::TooDeep);
        }
        let (mut segments, mut names) = (Vec::with_capacity(parts.len()), Vec::<Box<str>>::new());
        for (n, part) in parts.iter().enumerate() {
            let is_last = n + 1 == parts.len();
            let Some(name) = part.strip_prefix('{').and_then(|name| name.strip_suffix('}')) else {
                segments.push(literal(part, is_last)?);
                continue;
            };
            let (name, segment) = match name.strip_suffix("...") {
                Some(name) if is_last => (name, Segment::Rest),
                Some(name) => return Err(BadTemplate::RestInside(name.to_owned())),
                None => (name, Segment::Name),
            };
            let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.is_empty();
            if !is_name {
                return Err(BadTemplate::Name(name.to_owned()));
            }
            if names.iter().any(|known| **known == *name) {
                return Err(BadTemplate::Twice(name.to_owned()));
            }
            names.push(name.into());
            segments.push(segment);
        }
        if names.is_empty() {
            return Err(BadTemplate::NoName);
        }
        Ok(Self { text: text.into(), segments: segments.into(), names: names.into() })
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its text without the names, by which two that cover the same paths are the same.
    pub(crate) fn without_names(&self) -> String {
        let mut text = String::with_capacity(self.text.len());
        for segment in &self.segments {
            text.push('/');
            match segment {
                Segment::Literal(literal) => text.push_str(literal),
                Segment::Name => text.push_str("{}"),
                Segment::Rest => text.push_str("{...}"),
            }
        }
        text
    }

    /// The names, in the order of their spans.
    pub fn names(&self) -> &Arc<[Box<str>]> {
        &self.names
    }

    /// Its segments, in order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether it covers a path.
    pub fn covers(&self, path: &str) -> bool {
        self.walk(path, |_| {})
    }

    /// Where in a path the names are; `None` when it doesn't cover the path.
    pub fn spans(&self, path: &str) -> Option<SmallVec<[(u32, u32); 4]>> {
        let mut spans = SmallVec::new();
        self.walk(path, |span| spans.push(span)).then_some(spans)
    }

    fn walk(&self, path: &str, mut note: impl FnMut(Span)) -> bool {
        let bytes = path.as_bytes();
        let short = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let mut at = 0;
        for segment in &self.segments {
            if bytes.get(at) != Some(&b'/') {
                return false;
            }
            let start = at + 1;
            let rest = bytes.get(start..).unwrap_or_default();
            let end = start + memchr::memchr(b'/', rest).unwrap_or(rest.len());
            match segment {
                Segment::Literal(text) if bytes.get(start..end) != Some(text.as_bytes()) => return false,
                Segment::Literal(_) => {}
                Segment::Name if start == end => return false,
                Segment::Name => note((short(start), short(end))),
                Segment::Rest => {
                    note((short(start), short(bytes.len())));
                    return true;
                }
            }
            at = end;
        }
        at == bytes.len()
    }
}

/// A segment without a name; only the last one may be empty, which is a slash at the end.
fn literal(part: &str, is_last: bool) -> Result<Segment, BadTemplate> {
    if part.contains(['{', '}']) {
        return Err(BadTemplate::Braces);
    }
    if matches!(part, "." | "..") || part.is_empty() && !is_last {
        return Err(BadTemplate::Segment);
    }
    let spelled = in_request_spelling(part).map_err(|_| BadTemplate::Spelling(part.to_owned()))?;
    Ok(Segment::Literal(spelled.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_they_cover() {
        let cases: [(&str, &str, Option<&[&str]>); 15] = [
            ("/users/{id}", "/users/7", Some(&["7"])),
            ("/users/{id}", "/users/", None),
            ("/users/{id}", "/users", None),
            ("/users/{id}", "/users/7/", None),
            ("/users/{id}/", "/users/7/", Some(&["7"])),
            ("/users/{id}", "/users/7/posts", None),
            ("/users/{id}/posts/{post}", "/users/7/posts/x%2Fy", Some(&["7", "x%2Fy"])),
            ("/users/{id}/posts", "/users/7/files", None),
            ("/f/{rest...}", "/f/a/b/c", Some(&["a/b/c"])),
            ("/f/{rest...}", "/f/", Some(&[""])),
            ("/f/{rest...}", "/f", None),
            ("/{a}/{rest...}", "/x/y/z", Some(&["x", "y/z"])),
            ("/{a}", "/", None),
            ("/{all...}", "/", Some(&[""])),
            ("/{a}", "*", None),
        ];
        for (template, path, expected) in cases {
            let template = PathTemplate::parse(template).expect("is good");
            let spans = template.spans(path);
            let found = spans.map(|spans| {
                let cut =
                    |(start, end): &Span| path.get(*start as usize..*end as usize).expect("lies within");
                spans.iter().map(cut).collect::<Vec<_>>()
            });
            assert_eq!(found.as_deref(), expected, "{} {path}", template.as_str());
            assert_eq!(template.covers(path), expected.is_some());
        }
    }

    #[test]
    fn what_is_refused() {
        let cases = [
            ("users/{id}", BadTemplate::NoSlash),
            ("/users/{id}.json", BadTemplate::Braces),
            ("/users/{", BadTemplate::Braces),
            ("/users/{i-d}", BadTemplate::Name("i-d".into())),
            ("/users/{}", BadTemplate::Name(String::new())),
            ("/{a}/{a}", BadTemplate::Twice("a".into())),
            ("/{a...}/b", BadTemplate::RestInside("a".into())),
            ("/a//{b}", BadTemplate::Segment),
            ("/a/../{b}", BadTemplate::Segment),
            ("/a/b", BadTemplate::NoName),
        ];
        for (text, expected) in cases {
            assert_eq!(PathTemplate::parse(text), Err(expected), "{text}");
        }
        assert_eq!(PathTemplate::parse(&"/{a}".repeat(65)), Err(BadTemplate::TooDeep));
    }
}
