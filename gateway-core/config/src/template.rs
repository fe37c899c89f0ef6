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
