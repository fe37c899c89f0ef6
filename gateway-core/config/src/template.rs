//! The gateway's one template language: text with values of the request in it, as `/v2/${capture.rest}`.
//!
//! Headers, rewrites, redirects, keys and log formats all use it. `${name}` is a value, `${name:-text}` has a text for
//! when the value is missing or empty, `$$` is a dollar sign. An unknown name is refused when the template is parsed, as
//! is one that can't be known where the template is used. `${env:X}` and `${file:X}` are answered before, when the
//! configuration is read, so that their values become part of the template's text.
//!
//! What a template makes never has a line break or NUL in it, so that no value of a request can forge a header or a log
//! line.

mod parse;
mod variable;

use http::HeaderName;

pub use parse::BadTemplate;
pub use variable::Moment;
pub use variable::{NamedVariable, Variable};

/// Bytes of a template's own text.
pub const MAX_TEMPLATE: usize = 8192;

/// A parsed template.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// What it is made of, in order.
    pub parts: Box<[TemplatePart]>,
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
pub enum TemplatePart {
    /// Text of its own.
    Text(Box<str>),
    /// A value.
    Value {
        /// Which.
        variable: Variable,
        /// What stands for it where it is empty.
        default: Option<Box<str>>,
    },
}

impl Template {
    /// Reads a template that is rendered at `moment`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, moment: Moment) -> Result<Self, BadTemplate> {
        parse::parse(text, moment)
    }

    /// The names of all values; of those that end with a dot, whoever writes the template says the rest.
    pub fn names() -> impl Iterator<Item = &'static str> {
        variable::KNOWN.iter().map(|(name, ..)| *name).chain(variable::FAMILIES.iter().map(|(name, _)| *name))
    }

    /// The text itself, when there are no values in it.
    pub fn literal(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [TemplatePart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The template's own text, piece by piece, defaults included.
    pub fn literals(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Text(text) => Some(&**text),
            TemplatePart::Value { default, .. } => default.as_deref(),
        })
    }

    /// Whether the template decides which host a URL made of it names, or leaves it to the `Host` that was routed by. A value may begin
    /// a host whose end is the template's, as in `https://${capture.team}.example/`.
    pub fn fixes_host(&self) -> bool {
        let mut parts = self.parts.iter();
        let begins = match parts.next() {
            Some(TemplatePart::Text(text)) => match text.split_once("://") {
                Some(("http" | "https", rest)) => rest,
                _ => return text.starts_with('/') && !text.starts_with("//"),
            },
            Some(TemplatePart::Value { variable: Variable::Known(NamedVariable::Scheme), .. }) => {
                let Some(TemplatePart::Text(text)) = parts.next() else { return false };
                let Some(rest) = text.strip_prefix("://") else { return false };
                rest
            }
            _ => return false,
        };
        let first = TemplatePart::Text(begins.into());
        let mut is_open = false;
        for part in std::iter::once(&first).chain(parts) {
            match part {
                TemplatePart::Text(text) => {
                    let end = text.find(['/', '?', '#']);
                    let host = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
                    is_open &= !(host.starts_with('.') && host.len() > 1);
                    if end.is_some() {
                        return !is_open;
                    }
                }
                TemplatePart::Value { variable, .. } => {
                    let is_own =
                        matches!(variable, Variable::Known(NamedVariable::Host | NamedVariable::Authority));
                    is_open |= !is_own;
                }
            }
        }
        !is_open
    }

    /// The names of the route's captures it asks for.
    pub fn captures(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Value { variable: Variable::Capture(name), .. } => Some(&**name),
            _ => None,
        })
    }

    /// Whether it asks who the caller is, which is not known before authentication.
    pub fn asks_for_caller(&self) -> bool {
        self.parts.iter().any(|part| match part {
            TemplatePart::Value { variable, .. } => variable.is_of_caller(),
            TemplatePart::Text(_) => false,
        })
    }

    /// The headers of the response that it asks for.
    pub fn response_headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Value { variable: Variable::ResponseHeader(name), .. } => Some(name),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_fixed_where_no_value_ends_it() {
        for (text, is_fixed) in [
            ("/login?next=${request.target}", true),
            ("/${request.header.x}", true),
            ("https://login.example/${request.header.x}", true),
            ("https://login.example?next=${request.header.x}", true),
            ("${request.scheme}://${request.authority}/login", true),
            ("https://${request.host}", true),
            ("https://${capture.team}.example/${request.path}", true),
            ("https://${request.header.x}.a.${request.query.y}.example", true),
            ("//evil.test/", false),
            ("login", false),
            ("${request.header.x}", false),
            ("${request.scheme}", false),
            ("${request.scheme}${request.header.x}", false),
            ("javascript://x", false),
            ("https://${request.header.x}/", false),
            ("https://${request.header.x}", false),
            ("https://login.example${request.header.x}/", false),
            ("https://login.example:${request.query.port}/", false),
            ("https://${request.header.x}./", false),
            ("https://${request.header.x}${request.host}/", false),
            ("https://a@${request.header.x}?b", false),
        ] {
            let template = Template::parse(text, Moment::Response).unwrap();
            assert_eq!(template.fixes_host(), is_fixed, "{text}");
        }
    }
}
