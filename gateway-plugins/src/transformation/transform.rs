//! The rules that `request_transformer` and `response_transformer` share: one change to a header, a query parameter or
//! a JSON body, in the order in which they are written.

mod header;
mod json;
pub(crate) mod replace;
mod splice;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::template::Render;
use gateway_core::template::{Facts, MAX_RENDERED, Moment, Template, TextContext};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use gateway_plugin_common::coding::Decoder;
use gateway_plugin_common::flat_json::FlatJson;
use gateway_plugin_common::headers;
use gateway_plugin_common::parse;
use gateway_plugin_common::query::Query;
use header::{HeaderChange, HeaderValues};
use replace::Replacement;
use splice::Document;

/// One change.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// Operation: `set` (replaces), `add` (only if absent), `update` (only if present), `append` (adds another value;
    /// an element of a list in a body), `remove`, `rename`, `replace` (parts of header values).
    operation: Operation,
    /// What to change: `header`, `query` (requests only) or `body` (JSON bodies).
    target: Target,
    /// Name of the header or parameter; for a body, a JSON Pointer (RFC 6901) such as `/user/name`.
    key: String,
    /// New value; required by `set`, `add`, `update` and `append`. Texts are templates. In a body, any JSON value
    /// except `null`.
    value: Option<Value>,
    /// New name or JSON Pointer; required by `rename`.
    new_key: Option<String>,
    /// Replacements in each value that the header had before the first rule; required by `replace`. The first match
    /// applies. In `Refresh`, they apply to the URL. At most 100.
    #[serde(default)]
    replacements: Vec<Replacement>,
}

/// Operation.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    Set,
    Add,
    Update,
    Append,
    Remove,
    Rename,
    Replace,
}

/// What to change.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Target {
    Header,
    Query,
    Body,
}

/// Content codings, one over the other, that a body may have.
const MAX_CODINGS: usize = 2;

/// What happens to a body that cannot be changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unchangeable {
    /// The message is rejected.
    #[default]
    Refuse,
    /// It passes unchanged.
    Pass,
}

/// Settings for bodies, for both plugins. Numbers that no rule writes keep their digits.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BodyRules {
    /// Size of a body to change; the gateway buffers it. Default 1 MiB.
    #[schemars(range(min = 1))]
    max_size: Bytes,
    /// What happens to a body that cannot be changed: `refuse` (413, 400 or 415 for requests, 502 for responses) or
    /// `pass` unchanged. Such a body is larger than `max_size`, is not JSON despite its type, has a duplicate key or no
    /// place for a value (a list where a map is needed), has several `Content-Type` fields, is a partial response
    /// (206), or is compressed (in responses: with a coding other than gzip, deflate, Brotli and Zstandard). Default
    /// `refuse`.
    otherwise: Unchangeable,
}

impl Default for BodyRules {
    fn default() -> Self {
        Self { max_size: Bytes(1 << 20), otherwise: Unchangeable::Refuse }
    }
}

/// Compiled rules.
pub(crate) struct Rules {
    headers: Vec<HeaderChange>,
    query: Vec<ParameterChange>,
    body: Vec<json::DocumentChange>,
    body_rules: BodyRules,
    /// Compressed bodies are decoded: those of responses, for the client asked for it and not for the change.
    decodes: bool,
}

/// A change of a query parameter.
struct ParameterChange {
    operation: Operation,
    name: String,
    value: Option<Template>,
    new: Option<String>,
}

/// A value that can't be made of this request.
pub(crate) struct Unusable;

/// What became of a body.
pub(crate) enum Changed {
    /// It has other bytes.
    Yes,
    /// It is as it was.
    No,
    /// It can't be changed, and must be refused so.
    Refused(Box<Reply>),
}

impl Rules {
    /// Compiles rules whose templates are rendered at `moment`. There may be none.
    pub(crate) fn read(
        rules: Vec<Rule>,
        body_rules: BodyRules,
        moment: Moment,
        problems: &mut Problems,
    ) -> Self {
        let decodes = moment == Moment::Response;
        let mut this = Self { headers: Vec::new(), query: Vec::new(), body: Vec::new(), body_rules, decodes };
        for (n, rule) in rules.into_iter().enumerate() {
            let at = format!("config.rules[{n}]");
            check_parts(&at, &rule, problems);
            match rule.target {
                Target::Header => this.headers.extend(HeaderChange::read(&at, rule, moment, problems)),
                _ if rule.operation == Operation::Replace => {
                    problems.add(format!("{at}.operation"), "only header values are replaced").remedy =
                        Some("write `target: header`; the plugin `text_replacement` changes bodies".into());
                }
                Target::Query if moment == Moment::Request => {
                    this.query.extend(parameter(&at, rule, moment, problems));
                }
                Target::Query => {
                    problems.add(format!("{at}.target"), "a response has no query").remedy =
                        Some("write `header` or `body`".into());
                }
                Target::Body => this.body.extend(json::DocumentChange::read(&at, rule, moment, problems)),
            }
        }
        this
    }

    /// Whether a value is made of who the caller is.
    pub(crate) fn asks_for_caller(&self) -> bool {
        let headers = self.headers.iter().flat_map(HeaderChange::templates);
        let query = self.query.iter().filter_map(|change| change.value.as_ref());
        headers.chain(query).any(Template::asks_for_caller)
            || self.body.iter().any(json::DocumentChange::asks_for_caller)
    }

    /// The names of the route's path that values are made of.
    pub(crate) fn captures(&self) -> Vec<&str> {
        let headers = self.headers.iter().flat_map(HeaderChange::templates);
        let query = self.query.iter().filter_map(|change| change.value.as_ref());
        let body = self.body.iter().flat_map(json::DocumentChange::templates);
        headers.chain(query).chain(body).flat_map(Template::captures).collect()
    }

    pub(crate) fn changes_body(&self) -> bool {
        !self.body.is_empty()
    }

    pub(crate) fn changes_query(&self) -> bool {
        !self.query.is_empty()
    }

    /// The header rules with their values, made before anything changes.
    pub(crate) fn header_values(&self, facts: &Facts<'_>) -> Result<Vec<HeaderValues<'_>>, Unusable> {
        self.headers.iter().map(|change| change.values(facts)).collect()
    }

    /// The fields that the rules are about.
    pub(crate) fn header_names(&self) -> impl Iterator<Item = &HeaderName> {
        self.headers.iter().flat_map(HeaderChange::names)
    }

    /// Changes the header fields.
    ///
    /// # Errors
    /// When a value cannot be made.
    pub(crate) fn apply_headers(
        &self,
        headers: &mut HeaderMap,
        values: Vec<HeaderValues<'_>>,
    ) -> Result<(), Unusable> {
        let mut all = self.headers.iter().zip(values);
        all.try_for_each(|(change, values)| change.apply(headers, values))
    }

    /// Changes the query.
    pub(crate) fn apply_query(&self, query: &mut Query, facts: &Facts<'_>) -> Result<(), Unusable> {
        for change in &self.query {
            let value = match &change.value {
                None => String::new(),
                Some(value) => {
                    let mut out = Vec::new();
                    value.render(facts, TextContext::Query, MAX_RENDERED, &mut out).map_err(|_| Unusable)?;
                    String::from_utf8(out).map_err(|_| Unusable)?
                }
            };
            let name = &change.name;
            match (change.operation, &change.new) {
                (Operation::Add, _) if query.has(name) => {}
                (Operation::Update, _) if !query.has(name) => {}
                (Operation::Append, _) => query.append(name, &value),
                (Operation::Remove, _) => query.remove(name),
                (Operation::Rename, Some(new)) => query.rename(name, new),
                _ => query.set(name, &value),
            }
        }
        Ok(())
    }

    /// Body rules with their values, made of what is known of the request.
    pub(crate) fn body_values(&self, facts: &Facts<'_>) -> Result<Vec<Option<String>>, Unusable> {
        self.body.iter().map(|change| change.value(facts)).collect()
    }

    /// Changes a JSON body; other bodies stay as they are. `causes` are those of a body that is too large, not JSON, and
    /// compressed.
    pub(crate) async fn apply_body(
        &self,
        headers: &mut HeaderMap,
        body: &mut Body,
        values: Vec<Option<String>>,
        causes: [Cause; 3],
    ) -> Changed {
        if !is_json(headers) || body.is_empty() {
            return Changed::No;
        }
        let [too_large, not_json, encoded] = causes;
        if headers.get_all(CONTENT_TYPE).iter().count() > 1 {
            return self.unchangeable(not_json, "content_type_ambiguous", "there are several content types");
        }
        let codings = headers::codings(headers);
        if !codings.is_empty() && !self.decodes {
            return self.unchangeable(encoded, "body_compressed", "a compressed body can't be changed");
        }
        let (bytes, mut trailers) = match body.collect(self.body_rules.max_size.0).await {
            Ok(read) => read,
            Err(BodyError::Refused(reply)) => return Changed::Refused(reply),
            Err(BodyError::TooLarge { .. } | BodyError::NoRoom) => {
                return self.unchangeable(too_large, "body_too_large", "the body is too large to be changed");
            }
            Err(_) => return Changed::Refused(Box::new(Reply::new(not_json).reason("body_incomplete"))),
        };
        let plain = match decoded(&bytes, &codings, self.body_rules.max_size.0) {
            Ok(plain) => plain,
            Err(error) => {
                *body = whole(bytes, trailers);
                return self.undecoded(&error, [too_large, encoded]);
            }
        };
        // A rule changes one of two fields of a name, and the other reader may take the other.
        if FlatJson::read(&plain).is_none() {
            *body = whole(bytes, trailers);
            let (reason, why) = match serde_json::from_slice::<IgnoredAny>(&plain) {
                Ok(_) => ("body_ambiguous", "the body has a duplicate key"),
                Err(_) => ("body_not_json", "the body is not JSON"),
            };
            return self.unchangeable(not_json, reason, why);
        }
        let mut document = Document::new(&plain);
        for (change, value) in self.body.iter().zip(values) {
            if !change.apply(&mut document, value.as_deref()) {
                *body = whole(bytes, trailers);
                let why = "the body has no place for a value that is to be there";
                return self.unchangeable(not_json, "body_without_place", why);
            }
        }
        if document.as_bytes() == plain {
            *body = whole(bytes, trailers);
            return Changed::No;
        }
        let text = document.into_bytes();
        headers::forget_bytes(headers);
        headers.remove(CONTENT_ENCODING);
        match &mut trailers {
            Some(trailers) => headers::forget_bytes(trailers),
            // A length is not said of a body with trailers.
            None => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()))),
        }
        *body = whole(text, trailers);
        Changed::Yes
    }

    /// What becomes of a body whose coding can't be taken off. `causes` are those of one that is too large then, and of others.
    fn undecoded(&self, error: &BodyError, causes: [Cause; 2]) -> Changed {
        let [too_large, encoded] = causes;
        match error {
            BodyError::TooLarge { .. } => {
                self.unchangeable(too_large, "body_too_large", "the body is too large to be changed")
            }
            _ => self.unchangeable(encoded, "body_compressed", "the body's content coding can't be read"),
        }
    }

    /// What becomes of a response that has only a part of its body: the refusal, where it is JSON and may not pass.
    pub(crate) fn apply_to_part(&self, headers: &HeaderMap, cause: Cause) -> Option<Box<Reply>> {
        if !is_json(headers) {
            return None;
        }
        match self.unchangeable(cause, "body_partial", "a part of a body can't be changed") {
            Changed::Refused(reply) => Some(reply),
            Changed::Yes | Changed::No => None,
        }
    }

    fn unchangeable(&self, cause: Cause, reason: &'static str, detail: &'static str) -> Changed {
        match self.body_rules.otherwise {
            Unchangeable::Pass => Changed::No,
            Unchangeable::Refuse => {
                let reply = Reply::new(cause).reason(reason).detail(detail);
                let reply = if reason == "body_compressed" && cause == Cause::BadRequest {
                    reply.status(http::StatusCode::UNSUPPORTED_MEDIA_TYPE)
                } else {
                    reply
                };
                Changed::Refused(Box::new(reply))
            }
        }
    }
}

/// A body without its codings, of at most `limit` bytes.
fn decoded(bytes: &bytes::Bytes, codings: &[String], limit: u64) -> Result<bytes::Bytes, BodyError> {
    let mut plain = bytes.clone();
    for (n, name) in codings.iter().rev().enumerate() {
        let decoder = Decoder::named(name, limit).filter(|_| n < MAX_CODINGS);
        let decoder = decoder.ok_or(BodyError::Framing("the content coding is not known"))?;
        plain = decoder.whole(&plain)?.into();
    }
    Ok(plain)
}

/// A body that was read, with its trailers.
fn whole(bytes: impl Into<bytes::Bytes>, trailers: Option<HeaderMap>) -> Body {
    match trailers {
        Some(trailers) => Body::full_with_trailers(bytes, trailers),
        None => Body::full(bytes),
    }
}

/// Whether a message says that its body is JSON: `application/json` or any `+json`. One of several types is enough, for
/// readers differ in which they take.
fn is_json(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_TYPE).iter().any(|value| {
        let essence = value.as_bytes().split(|c| *c == b';').next().unwrap_or_default().trim_ascii();
        let essence = essence.to_ascii_lowercase();
        essence == b"application/json" || essence.ends_with(b"+json")
    })
}

/// A rule has the parts that its operation needs, and no others.
fn check_parts(at: &str, rule: &Rule, problems: &mut Problems) {
    let (value, new_key) = match rule.operation {
        Operation::Remove | Operation::Replace => (false, false),
        Operation::Rename => (false, true),
        _ => (true, false),
    };
    for (name, wanted, given) in
        [("value", value, rule.value.is_some()), ("new_key", new_key, rule.new_key.is_some())]
    {
        if wanted && !given {
            problems.add(format!("{at}.{name}"), "is missing, and this operation needs it");
        } else if given && !wanted {
            problems.add(format!("{at}.{name}"), "has no meaning for this operation");
        }
    }
    match (rule.operation == Operation::Replace, rule.replacements.is_empty()) {
        (true, true) => {
            problems.add(format!("{at}.replacements"), "is missing, and this operation needs it");
        }
        (false, false) => {
            problems.add(format!("{at}.replacements"), "has no meaning for this operation");
        }
        _ => {}
    }
}

fn parameter(at: &str, rule: Rule, moment: Moment, problems: &mut Problems) -> Option<ParameterChange> {
    if rule.key.is_empty() {
        problems.add(format!("{at}.key"), "is empty");
    }
    let value = text_value(at, rule.value.as_ref(), moment, problems);
    Some(ParameterChange { operation: rule.operation, name: rule.key, value, new: rule.new_key })
}

/// A template; numbers and truth values are taken as they are written.
fn text_value(at: &str, value: Option<&Value>, moment: Moment, problems: &mut Problems) -> Option<Template> {
    let text = match value? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        _ => {
            problems.add(format!("{at}.value"), "must be a text");
            return None;
        }
    };
    parse::template(&format!("{at}.value"), &text, moment, problems)
}
