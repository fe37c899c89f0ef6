//! A page: text with values of a request in it, each escaped for the page's type.

use gateway_core::config::problem::Problems;
use gateway_core::template::Render;
use gateway_core::template::{Facts, MAX_RENDERED, Moment, Template, TextContext};
use gateway_plugin_common::parse;

/// Bytes a page may have.
const MAX_PAGE: usize = 256 << 10;

/// A parsed page.
pub(super) struct Page {
    parts: Vec<PagePart>,
    escape: Escape,
}

enum PagePart {
    Text(String),
    Value(Template),
}

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Escape {
    Markup,
    Json,
    Plain,
}

impl Page {
    /// Reads a page of a media type. A page may have lines and be longer than other templates; a value is one.
    pub(super) fn read(
        at: &str,
        text: &str,
        essence: &str,
        moment: Moment,
        problems: &mut Problems,
    ) -> Option<Self> {
        if text.len() > MAX_PAGE {
            problems.add(at, format!("this has {} bytes; a page may have {MAX_PAGE}", text.len()));
            return None;
        }
        let escape = match essence {
            "text/plain" | "text/markdown" | "text/css" | "text/csv" => Escape::Plain,
            it if it == "application/json" || it.ends_with("+json") => Escape::Json,
            // What is not known is taken for something in which `<` could begin a script.
            _ => Escape::Markup,
        };
        let (mut parts, mut rest, mut literal) = (Vec::new(), text, String::new());
        while let Some((before, after)) = rest.split_once('$') {
            literal.push_str(before);
            if let Some(after) = after.strip_prefix('$') {
                literal.push('$');
                rest = after;
                continue;
            }
            let Some((inside, after)) = after.strip_prefix('{').and_then(|inside| inside.split_once('}'))
            else {
                literal.push('$');
                rest = after;
                continue;
            };
            let value = parse::template(at, &format!("${{{inside}}}"), moment, problems)?;
            parts.push(PagePart::Text(std::mem::take(&mut literal)));
            parts.push(PagePart::Value(value));
            rest = after;
        }
        literal.push_str(rest);
        parts.push(PagePart::Text(literal));
        Some(Self { parts, escape })
    }

    /// The values in it.
    pub(super) fn values(&self) -> impl Iterator<Item = &Template> {
        self.parts.iter().filter_map(|part| match part {
            PagePart::Value(value) => Some(value),
            PagePart::Text(_) => None,
        })
    }

    /// The names of the route's path that values are made of.
    pub(super) fn captures(&self) -> impl Iterator<Item = &str> {
        self.values().flat_map(Template::captures)
    }

    /// The page for a response. A value that can't be written is left out.
    pub(super) fn render(&self, facts: &Facts<'_>) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                PagePart::Text(text) => out.push_str(text),
                PagePart::Value(value) => {
                    let mut bytes = Vec::new();
                    if value.render(facts, TextContext::Text, MAX_RENDERED, &mut bytes).is_ok() {
                        self.escape.write(&String::from_utf8_lossy(&bytes), &mut out);
                    }
                }
            }
        }
        out
    }
}

impl Escape {
    fn write(self, value: &str, out: &mut String) {
        if self == Self::Json {
            // A JSON text without its quotation marks; `<` is written so that it is harmless where a page is sniffed.
            let quoted = serde_json::Value::from(value).to_string();
            let inner = quoted.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or_default();
            out.push_str(&inner.replace('<', "\\u003c"));
            return;
        }
        for c in value.chars() {
            match c {
                '&' if self == Self::Markup => out.push_str("&amp;"),
                '<' if self == Self::Markup => out.push_str("&lt;"),
                '>' if self == Self::Markup => out.push_str("&gt;"),
                '"' if self == Self::Markup => out.push_str("&quot;"),
                '\'' if self == Self::Markup => out.push_str("&#39;"),
                c => out.push(c),
            }
        }
    }
}
