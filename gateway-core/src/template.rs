//! Templates filled in: what [`Template`]s of the configuration become for a request, an attempt, a response or a log line.
//!
//! What a template makes never has a line break or NUL in it, so that no value of a request can forge a header or a log
//! line.

mod position;
mod shown;
mod value;
mod write;

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::balance::Target;
use crate::config::template::TemplatePart;
pub use crate::config::template::{BadTemplate, MAX_TEMPLATE, Moment, Template};
use crate::http::exchange::Exchange;
use crate::record::ExchangeRecord;
use write::Sink;

/// Bytes one header, key or path made from a template may have.
pub const MAX_RENDERED: usize = 8192;

/// What is known when a template is rendered. What isn't there is empty, and takes the default.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The request.
    pub exchange: &'a Exchange,
    /// The id of the proxy that took it.
    pub proxy: Option<&'a str>,
    /// Where it goes.
    pub target: Option<&'a Target>,
    /// The response's status and headers.
    pub response: Option<(StatusCode, &'a HeaderMap)>,
    /// How it ended.
    pub record: Option<&'a ExchangeRecord<'a>>,
    /// When it began, as a text: no clock is read here.
    pub begun: Option<&'a str>,
}

impl<'a> Facts<'a> {
    /// What is known from a request alone.
    pub fn of(exchange: &'a Exchange) -> Self {
        Self { exchange, proxy: None, target: None, response: None, record: None, begun: None }
    }

    /// What is known when an exchange has ended that began then.
    pub fn ended(record: &'a ExchangeRecord<'a>, begun: &'a str) -> Self {
        let proxy = record.route.map(|route| route.proxy.id.as_str());
        let response = record.exchange.answered();
        Self {
            exchange: record.exchange,
            proxy,
            target: record.target,
            response,
            record: Some(record),
            begun: Some(begun),
        }
    }
}

/// What the text is going to be part of, which says how values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextContext {
    /// A header's value or a key: values stand as they are.
    Text,
    /// A line of a log: quotes, backslashes, control characters and what is not UTF-8 are escaped with a backslash, as nginx does,
    /// and long values are cut off, so that no client can forge a field or keep its line out.
    Log,
    /// A path, and whatever follows a `?` of the template's own: what can't stand in one is percent-encoded; in the path slashes and
    /// what is encoded already stay. Behind the `?` a value can't add another parameter, but `${request.query}` where one begins.
    Path,
    /// A value in a query: as a path, and also `&`, `;`, `=`, `+` and `#` are encoded, those of the template's own text included.
    Query,
    /// A whole URL: as a path behind its host. In the host only letters, digits, `-`, `.`, `_` and `~` stay, and no value at its
    /// beginning becomes a scheme.
    Url,
    /// A host with or without a port; a value that can't be part of one is refused.
    Host,
    /// A cookie's value: what can't stand in one is percent-encoded, so that no value adds an attribute or another cookie.
    Cookie,
}

/// Why a template can't be rendered for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unrenderable {
    /// It would be longer than the limit.
    #[error("the text would have more than {0} bytes")]
    TooLong(usize),
    /// A value has a line break or another control character in it.
    #[error("a value has control characters")]
    Control,
    /// A value has characters that a host may not have.
    #[error("a value can't be part of a host")]
    Host,
}

/// Fills a template in.
pub trait Render {
    /// Appends the text to `out`, which is left as it was when it can't be made; at most `limit` bytes are added.
    ///
    /// # Errors
    /// Why it can't be made.
    fn render(
        &self,
        facts: &Facts<'_>,
        place: TextContext,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Unrenderable>;

    /// The text as a header's value, made in `buffer`, which is cleared before.
    ///
    /// # Errors
    /// Why it can't be made.
    fn header(&self, facts: &Facts<'_>, buffer: &mut Vec<u8>) -> Result<HeaderValue, Unrenderable>;

    /// The text as the value of this field: in cookies, no value of a request adds an attribute or another cookie.
    ///
    /// # Errors
    /// Why it can't be made.
    fn field(
        &self,
        name: &HeaderName,
        facts: &Facts<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<HeaderValue, Unrenderable>;
}

impl Render for Template {
    fn render(
        &self,
        facts: &Facts<'_>,
        place: TextContext,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Unrenderable> {
        let start = out.len();
        let mut sink = Sink::new(out, place, limit);
        let done = self.parts.iter().try_for_each(|part| match part {
            TemplatePart::Text(text) => sink.literal(text.as_bytes()),
            TemplatePart::Value { variable, default } => {
                let before = sink.len();
                match sink.is_log() && shown::is_redacted(variable) {
                    true => shown::write(variable, facts, &mut sink)?,
                    false => value::write(variable, facts, &mut sink)?,
                }
                match default {
                    Some(default) if sink.len() == before => sink.literal(default.as_bytes()),
                    _ => Ok(()),
                }
            }
        });
        if done.is_err() {
            out.truncate(start);
        }
        done
    }

    fn header(&self, facts: &Facts<'_>, buffer: &mut Vec<u8>) -> Result<HeaderValue, Unrenderable> {
        buffer.clear();
        self.render(facts, TextContext::Text, MAX_RENDERED, buffer)?;
        HeaderValue::from_bytes(buffer.trim_ascii()).map_err(|_| Unrenderable::Control)
    }

    fn field(
        &self,
        name: &HeaderName,
        facts: &Facts<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<HeaderValue, Unrenderable> {
        // One value alone is the whole field, as it came.
        if (*name != COOKIE && *name != SET_COOKIE) || self.parts.len() < 2 {
            return self.header(facts, buffer);
        }
        buffer.clear();
        self.render(facts, TextContext::Cookie, MAX_RENDERED, buffer)?;
        HeaderValue::from_bytes(buffer.trim_ascii()).map_err(|_| Unrenderable::Control)
    }
}

#[cfg(test)]
mod tests;
