//! Path templates of `google.api.http`, and the table that finds the one a path fits.
//!
//! ```text
//! Template = "/" Segments [ ":" LITERAL ]
//! Segments = Segment { "/" Segment }
//! Segment  = "*" | "**" | LITERAL | "{" FieldPath [ "=" Segments ] "}"
//! ```

use std::collections::HashMap;

use gateway_core::http::path::in_request_spelling;
use percent_encoding::percent_decode_str;

/// Segments that a path may have; templates have no more, and longer paths fit `**` alone.
const MAX_SEGMENTS: usize = 64;

/// A template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    segments: Vec<Segment>,
    verb: Option<Box<str>>,
    pub(super) variables: Vec<Variable>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    One,
    /// All that is left.
    Rest,
}

/// A field that is taken from the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variable {
    /// Its path in the request message: `book.id`.
    pub(super) field: Box<str>,
    from: usize,
    /// Behind its last segment; `None` goes to the end.
    to: Option<usize>,
}

/// A text that is not a path template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a path template: {fault}")]
pub(super) struct TemplateError {
    text: String,
    #[source]
    fault: TemplateFault,
}

/// What is wrong with a path template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum TemplateFault {
    #[error("it does not begin with `/`")]
    NoSlash,
    #[error("a brace is not closed")]
    OpenBrace,
    #[error("a variable has no name")]
    NoName,
    #[error("something is behind a brace")]
    BehindBrace,
    #[error("`**` is not the last segment")]
    RestNotLast,
    #[error("it has too many segments")]
    TooManySegments,
    #[error("a segment is empty")]
    EmptySegment,
    #[error("a segment can't be read")]
    Unreadable,
    #[error("a segment can't be a path's")]
    NoPathSegment,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(text: &str) -> Result<Self, TemplateError> {
        Self::parse(text).map_err(|fault| TemplateError { text: text.to_owned(), fault })
    }

    fn parse(text: &str) -> Result<Self, TemplateFault> {
        let path = text.strip_prefix('/').ok_or(TemplateFault::NoSlash)?;
        // A verb is behind the last segment; a colon within braces is none.
        let (path, verb) = match path.rsplit_once(':') {
            Some((path, verb)) if !verb.contains(['/', '}']) => (path, Some(Box::from(verb))),
            _ => (path, None),
        };
        let mut template = Self { segments: Vec::new(), verb, variables: Vec::new() };
        let mut rest = path;
        loop {
            if let Some(inner) = rest.strip_prefix('{') {
                let (inner, after) = inner.split_once('}').ok_or(TemplateFault::OpenBrace)?;
                let (field, segments) = inner.split_once('=').unwrap_or((inner, "*"));
                if field.is_empty() {
                    return Err(TemplateFault::NoName);
                }
                let from = template.segments.len();
                for segment in segments.split('/') {
                    template.add(segment)?;
                }
                let is_rest = template.segments.last() == Some(&Segment::Rest);
                let to = (!is_rest).then_some(template.segments.len());
                template.variables.push(Variable { field: field.into(), from, to });
                rest = after;
            } else {
                let (segment, _) = rest.split_once('/').unwrap_or((rest, ""));
                template.add(segment)?;
                rest = rest.strip_prefix(segment).unwrap_or_default();
            }
            match rest.strip_prefix('/') {
                Some(after) => rest = after,
                None if rest.is_empty() => break,
                None => return Err(TemplateFault::BehindBrace),
            }
        }
        let rest = template.segments.iter().position(|segment| *segment == Segment::Rest);
        if rest.is_some_and(|at| at + 1 < template.segments.len()) {
            return Err(TemplateFault::RestNotLast);
        }
        if template.segments.len() > MAX_SEGMENTS {
            return Err(TemplateFault::TooManySegments);
        }
        Ok(template)
    }

    fn add(&mut self, segment: &str) -> Result<(), TemplateFault> {
        self.segments.push(match segment {
            "" => return Err(TemplateFault::EmptySegment),
            "*" => Segment::One,
            "**" => Segment::Rest,
            literal if literal.contains(['*', '{', '}', '=']) => return Err(TemplateFault::Unreadable),
            literal => {
                let spelled = in_request_spelling(literal).map_err(|_| TemplateFault::NoPathSegment)?;
                // Requests have none of these: their paths are resolved before.
                if matches!(spelled.as_ref(), "." | "..") {
                    return Err(TemplateFault::NoPathSegment);
                }
                Segment::Literal(spelled.into())
            }
        });
        Ok(())
    }

    /// The values of the variables in a path that fits. `None` where one is not UTF-8.
    pub(super) fn values(&self, path: &str) -> Option<Vec<String>> {
        let path = path.strip_prefix('/')?;
        let path = match &self.verb {
            Some(verb) => path.strip_suffix(&**verb)?.strip_suffix(':')?,
            None => path,
        };
        let segments: Vec<&str> = path.split('/').collect();
        let value = |variable: &Variable| {
            let to = variable.to.unwrap_or(segments.len());
            let is_one = variable.to.is_some_and(|to| to - variable.from == 1);
            let parts = segments.get(variable.from..to)?;
            // A slash that was written otherwise is none between segments.
            let parts = parts.iter().map(|part| match is_one {
                true => decoded(part),
                false => kept_slashes(part),
            });
            parts.collect::<Option<Vec<_>>>().map(|parts| parts.join("/"))
        };
        self.variables.iter().map(value).collect()
    }
}

fn decoded(part: &str) -> Option<String> {
    percent_decode_str(part).decode_utf8().ok().map(Into::into)
}

fn kept_slashes(part: &str) -> Option<String> {
    let lower =
        |part: &str| part.split("%2f").map(decoded).collect::<Option<Vec<_>>>().map(|it| it.join("%2f"));
    part.split("%2F").map(lower).collect::<Option<Vec<_>>>().map(|it| it.join("%2F"))
}

/// The templates of one method: a literal segment goes before `*`, and that before `**`.
#[derive(Debug, Default)]
pub(super) struct Table {
    literals: HashMap<Box<str>, Self>,
    one: Option<Box<Self>>,
    /// What ends here, by verb.
    ends: HashMap<Box<str>, usize>,
    /// What takes all that is left, by verb.
    rest: HashMap<Box<str>, usize>,
}

impl Table {
    /// Adds a template, found as this number. The number that has its place already is an error.
    pub(super) fn add(&mut self, template: &Template, number: usize) -> Result<(), usize> {
        let mut table = self;
        let verb = template.verb.clone().unwrap_or_default();
        for segment in &template.segments {
            match segment {
                Segment::Literal(text) => table = table.literals.entry(text.clone()).or_default(),
                Segment::One => table = table.one.get_or_insert_default(),
                Segment::Rest => return taken(&mut table.rest, verb, number),
            }
        }
        taken(&mut table.ends, verb, number)
    }

    /// The number of the template that a path fits.
    pub(super) fn find(&self, path: &str) -> Option<usize> {
        let path = path.strip_prefix('/')?;
        let segments: Vec<&str> = path.split('/').take(MAX_SEGMENTS + 1).collect();
        if segments.len() > MAX_SEGMENTS {
            return None;
        }
        let (last, before) = segments.split_last()?;
        let verb = last.rsplit_once(':').filter(|(segment, _)| !segment.is_empty());
        let with_verb = verb.and_then(|(segment, verb)| {
            let mut segments = before.to_vec();
            segments.push(segment);
            self.walk(&segments, verb)
        });
        // Where there is no such verb, the colon is part of the segment.
        with_verb.or_else(|| self.walk(&segments, ""))
    }

    /// Few segments and two ways at each: a path costs at most what the table has.
    fn walk(&self, segments: &[&str], verb: &str) -> Option<usize> {
        let Some((first, others)) = segments.split_first() else {
            return self.ends.get(verb).copied();
        };
        let by_literal = self.literals.get(*first).and_then(|table| table.walk(others, verb));
        let by_one = || self.one.as_ref().filter(|_| !first.is_empty())?.walk(others, verb);
        by_literal.or_else(by_one).or_else(|| self.rest.get(verb).copied())
    }
}

fn taken(places: &mut HashMap<Box<str>, usize>, verb: Box<str>, number: usize) -> Result<(), usize> {
    match places.insert(verb, number) {
        Some(known) => Err(known),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_their_templates() {
        let templates = [
            "/v1/shelves",
            "/v1/shelves/{shelf}",
            "/v1/{name=shelves/*/books/*}",
            "/v1/shelves/{shelf}:clear",
            "/v1/files/{path=**}",
            "/v1/files/{path=**}:stat",
            "/v1/*/any/{a.b}",
            "/v1/shelves/fixed",
        ];
        let read: Vec<Template> = templates.iter().map(|text| Template::read(text).unwrap()).collect();
        let mut table = Table::default();
        read.iter().enumerate().for_each(|(n, template)| table.add(template, n).unwrap());
        for (path, expected) in [
            ("/v1/shelves", Some((0, vec![]))),
            ("/v1/shelves/7", Some((1, vec!["7"]))),
            ("/v1/shelves/a%2Fb%20c", Some((1, vec!["a/b c"]))),
            ("/v1/shelves/fixed", Some((7, vec![]))),
            ("/v1/shelves/7/books/9", Some((2, vec!["shelves/7/books/9"]))),
            ("/v1/shelves/7/books/a%2fb", Some((2, vec!["shelves/7/books/a%2fb"]))),
            ("/v1/shelves/7:clear", Some((3, vec!["7"]))),
            ("/v1/shelves/7:other", Some((1, vec!["7:other"]))),
            ("/v1/files/a/b/c", Some((4, vec!["a/b/c"]))),
            ("/v1/files/a/b:stat", Some((5, vec!["a/b"]))),
            ("/v1/x/any/y", Some((6, vec!["y"]))),
            ("/v1/shelves/", None),
            ("/v1", None),
            ("/v1/shelves/7/books", None),
            ("/v1/shelves/%FF", None),
        ] {
            let found = table.find(path).and_then(|n| Some((n, read[n].values(path)?)));
            let expected =
                expected.map(|(n, values)| (n, values.into_iter().map(str::to_owned).collect::<Vec<_>>()));
            assert_eq!(found, expected, "{path}");
        }
        assert_eq!(table.add(&Template::read("/v1/shelves/{other}").unwrap(), 9), Err(1));
        assert_eq!(table.find(&"/a".repeat(100)), None);
    }

    #[test]
    fn what_is_no_template() {
        for (text, fault) in [
            ("v1", TemplateFault::NoSlash),
            ("/", TemplateFault::EmptySegment),
            ("/a//b", TemplateFault::EmptySegment),
            ("/a/{b", TemplateFault::OpenBrace),
            ("/a/{=x}", TemplateFault::NoName),
            ("/{a=**}/b", TemplateFault::RestNotLast),
            ("/a/{b}c", TemplateFault::BehindBrace),
            ("/a*b", TemplateFault::Unreadable),
            ("/{a={b}}", TemplateFault::Unreadable),
            ("/a/..", TemplateFault::NoPathSegment),
            ("/%2e/a", TemplateFault::NoPathSegment),
            (&"/a".repeat(MAX_SEGMENTS + 1), TemplateFault::TooManySegments),
        ] {
            assert_eq!(Template::read(text).unwrap_err().fault, fault, "{text}");
        }
    }
}
