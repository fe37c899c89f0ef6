//! Replaces texts in the bodies of responses while they pass.
//!
//! Matches are found across the pieces in which a body arrives; the gateway holds at most the bytes that may be the beginning of a
//! match. Of two texts that match at one place, the first in `replacements` counts. Requests lose `Range`, `If-Range` and
//! `Accept-Encoding`; a body that is compressed all the same is decoded, and `compression` compresses what goes out.
//!
//! A response whose media type fits loses `Content-Length`, `ETag` and `Last-Modified`, also as an answer to HEAD: they describe the
//! body before the change. Partial responses (206) and bodies in an unknown content coding pass unchanged.

mod search;

use std::sync::Arc;

use aho_corasick::AhoCorasick;
use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes;
use gateway_core::http::body::Body;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{
    Capabilities, Capability, Family, Hooks, OnRequest, OnResponse, Plugin, Seat, Step, World,
};
use gateway_core::template::{Facts, Moment, Render, Template, TextContext};
use gateway_plugin_common::coding::Decoder;
use gateway_plugin_common::response_origin::ResponseOrigin;
use gateway_plugin_common::{facts, headers, parse};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use search::{Pair, Replacing, automaton};

/// Settings of `text_replacement`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Texts with their replacements; at least one, at most 50.
    #[schemars(length(min = 1, max = 50))]
    replacements: Vec<TextPair>,
    /// Replaces only the first match of each text. Default false.
    once: bool,
    /// Ignores the case of ASCII letters in `find`. Default false.
    ignore_case: bool,
    /// Media types of the bodies to change; `*` is any. Default `text/html`.
    #[schemars(length(min = 1, max = 50))]
    content_types: Vec<String>,
    /// Keeps `Last-Modified`, and `ETag` as a weak one. Default false.
    keep_last_modified: bool,
    /// Responses to change: `all`, those of the `target`, or those of the `gateway` itself. Default `all`.
    of: ResponseOrigin,
    /// Size to which a compressed body may be decoded; a longer one is cut off. Default 64 MiB.
    #[schemars(range(min = 1))]
    max_decoded: Bytes,
}

/// A text and its replacement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TextPair {
    /// The text, as a template; at most 512 bytes.
    find: String,
    /// The replacement, as a template.
    with: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            replacements: Vec::new(),
            once: false,
            ignore_case: false,
            content_types: vec!["text/html".to_owned()],
            keep_last_modified: false,
            of: ResponseOrigin::All,
            max_decoded: Bytes(64 << 20),
        }
    }
}

/// Replacements one plugin config may have.
const MAX_REPLACEMENTS: usize = 50;
/// Bytes a text may have that is looked for; so many are held.
const MAX_FIND: usize = 512;
/// Bytes that may take a text's place.
const MAX_WITH: usize = 64 << 10;

/// The plugin.
pub(crate) struct TextReplacement {
    pairs: Vec<(Template, Template)>,
    /// What finds the texts, where no request changes them.
    automaton: Option<AhoCorasick>,
    once: bool,
    ignore_case: bool,
    types: Vec<String>,
    keeps_last_modified: bool,
    of: ResponseOrigin,
    max_decoded: u64,
}

impl Plugin for TextReplacement {
    const NAME: &'static str = "text_replacement";
    const FAMILY: Family = Family::Transformation;
    const SUMMARY: &'static str = "Replaces texts in response bodies while they are streamed.";
    const EXAMPLE: &'static str = include_str!("../../examples/text_replacement.yaml");
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if config.replacements.is_empty() {
            problems.add("config.replacements", "there is none, so nothing would change");
        }
        if config.replacements.len() > MAX_REPLACEMENTS {
            problems.add("config.replacements", format!("has more than {MAX_REPLACEMENTS} entries"));
        }
        let mut types = Vec::new();
        for (n, text) in config.content_types.iter().enumerate() {
            if !text.contains('/') && text != "*" {
                problems
                    .add(format!("config.content_types[{n}]"), format!("`{text}` is not a media type"))
                    .remedy = Some("such as `text/html`, or `*`".into());
            }
            types.push(text.to_ascii_lowercase());
        }
        if types.is_empty() {
            problems.add("config.content_types", "there is none, so nothing would change");
        }
        let mut pairs = Vec::new();
        for (n, TextPair { find, with }) in config.replacements.into_iter().enumerate() {
            let at = format!("config.replacements[{n}]");
            if find.is_empty() || find.len() > MAX_FIND {
                problems.add(format!("{at}.find"), format!("has to have 1 to {MAX_FIND} bytes"));
            }
            let mut read = |name: &str, text: &str| {
                parse::template(&format!("{at}.{name}"), text, Moment::Response, &mut problems)
            };
            if let (Some(find), Some(with)) = (read("find", &find), read("with", &with)) {
                pairs.push((find, with));
            }
        }
        let fixed: Option<Vec<&[u8]>> =
            pairs.iter().map(|(find, _)| find.literal().map(str::as_bytes)).collect();
        let automaton = fixed.and_then(|texts| automaton(texts.into_iter(), config.ignore_case));
        problems.into_result(Self {
            pairs,
            automaton,
            once: config.once,
            ignore_case: config.ignore_case,
            types,
            keeps_last_modified: config.keep_last_modified,
            of: config.of,
            max_decoded: config.max_decoded.0,
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::OnlyPrepares])
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        for (n, (find, with)) in self.pairs.iter().enumerate() {
            let all = find.captures().chain(with.captures());
            hooks.goes_by_captures(&format!("config.replacements[{n}]"), all);
        }
        hooks.on_request(self.clone());
        hooks.on_response(self);
    }
}

impl OnRequest for TextReplacement {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        exchange.ask_for_plain();
        // A part of a body may begin within a match.
        for name in [RANGE, IF_RANGE] {
            exchange.request.headers.remove(name);
        }
        Step::Next
    }
}

impl OnResponse for TextReplacement {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        exchange.accept_codings();
        let is_meant = exchange.dialect == Dialect::Plain
            && self.of.has(exchange)
            && response.status() != StatusCode::PARTIAL_CONTENT
            && self.takes(response.headers());
        let Some(decoder) = Some(()).filter(|()| is_meant).and_then(|()| self.decoder(response.headers()))
        else {
            return Step::Next;
        };
        let facts = facts::with_response(exchange, seat, response.status(), response.headers());
        let Ok(pairs) = self.rendered(&facts) else {
            return Step::reply(Reply::new(Cause::UpstreamGarbage).reason("value_not_usable"));
        };
        let Some(replacing) = Replacing::new(pairs, self.once, self.ignore_case, self.automaton.clone())
        else {
            return Step::Next;
        };
        let has_body = exchange.request.method != Method::HEAD
            && !matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            && !response.body().is_empty();
        self.describe(response.headers_mut());
        if has_body {
            let body = std::mem::take(response.body_mut());
            let body = match decoder {
                Some(decoder) => body.transform(decoder),
                None => body,
            };
            *response.body_mut() = body.transform(replacing);
        }
        Step::Next
    }
}

impl TextReplacement {
    /// Whether bodies of this media type are changed.
    fn takes(&self, headers: &HeaderMap) -> bool {
        let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let essence = kind.split(|c| *c == b';').next().unwrap_or_default().trim_ascii();
        self.types.iter().any(|own| own == "*" || essence.eq_ignore_ascii_case(own.as_bytes()))
    }

    /// What decodes the body, where it is compressed; `None` where it cannot be decoded.
    fn decoder(&self, headers: &HeaderMap) -> Option<Option<Decoder>> {
        match headers::codings(headers).as_slice() {
            [] => Some(None),
            [one] => Decoder::named(one, self.max_decoded).map(Some),
            _ => None,
        }
    }

    /// The texts of this response.
    fn rendered(&self, facts: &Facts<'_>) -> Result<Vec<Pair>, gateway_core::template::Unrenderable> {
        let render = |template: &Template, limit| {
            let mut out = Vec::new();
            template.render(facts, TextContext::Text, limit, &mut out).map(|()| out)
        };
        let pairs = self.pairs.iter().map(|(find, with)| {
            Ok(Pair { find: render(find, MAX_FIND)?, with: render(with, MAX_WITH)?.into() })
        });
        pairs.collect()
    }

    /// Removes what describes the body before the change.
    fn describe(&self, headers: &mut HeaderMap) {
        headers::forget_bytes(headers);
        headers.remove(CONTENT_ENCODING);
        if !self.keeps_last_modified {
            headers.remove(LAST_MODIFIED);
            headers.remove(ETAG);
            return;
        }
        let weak = headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
        if let Some(weak) =
            weak.and_then(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok())
        {
            headers.insert(ETAG, weak);
        }
    }
}

#[cfg(test)]
mod tests;
