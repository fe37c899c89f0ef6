//! Answers requests with responses written in the configuration, to try clients before there is a service.
//!
//! The first rule whose method and path fit answers. Unlike `request_termination` it has many answers.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Millis;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::path;
use gateway_core::http::reply::Reply;
use gateway_core::plugin::{
    Capabilities, Capability, Family, Hooks, OnRequest, Plugin, Seat, Step, Verdict, World,
};
use gateway_plugin_common::headers;
use gateway_plugin_common::parse;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Settings of `response_mock`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The responses; at least one. The first that matches is sent.
    rules: Vec<Rule>,
    /// Sends requests that match no rule to the target instead of answering 404. Default false.
    passthrough_on_no_match: bool,
}

/// A response, and the requests that receive it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// Method. Default: any.
    method: Option<String>,
    /// Path: exact (`/users`), by prefix (`/users/*`), or a regex over the whole path (`~/users/[0-9]+`).
    path: String,
    /// Status, 200 to 599. Default 200.
    #[serde(default = "ok")]
    #[schemars(range(min = 200, max = 599))]
    status_code: u16,
    /// Header fields with their values. Default `content-type: application/json`.
    headers: Option<BTreeMap<String, String>>,
    /// The body, unchanged. Default empty.
    #[serde(default)]
    body: String,
    /// Delay before the response, up to 60 s. Default 0.
    #[serde(default)]
    #[schemars(range(max = 60))]
    delay: Millis,
}

fn ok() -> u16 {
    200
}

/// The plugin.
pub(crate) struct ResponseMock {
    rules: Vec<Mock>,
    passes: bool,
}

struct Mock {
    method: Option<Method>,
    path: Path,
    status: StatusCode,
    headers: HeaderMap,
    body: bytes::Bytes,
    delay: Duration,
}

enum Path {
    Exact(String),
    Prefix(String),
    Regex(regex::Regex),
}

impl Path {
    /// Reads a path, or the beginning of one with `*` behind it, into the spelling of requests.
    fn read(at: &str, text: &str, problems: &mut Problems) -> Option<Self> {
        if text.contains(['?', '#']) {
            problems.add(at, format!("`{text}` can't be a path")).remedy =
                Some("a path has no query or fragment".into());
            return None;
        }
        if let Some(prefix) = text.strip_suffix('*') {
            // The beginning of a path may end anywhere in a segment.
            return parse::request_path(at, prefix, problems).map(Self::Prefix);
        }
        let spelled = parse::request_path(at, text, problems)?;
        match path::normalise(&spelled, false) {
            Ok(normal) if normal.text == spelled => Some(Self::Exact(spelled)),
            Ok(normal) => {
                problems.add(at, format!("no request has the path `{text}` when it is matched")).remedy =
                    Some(format!("write `{}`", normal.text));
                None
            }
            Err(_) => {
                problems.add(at, format!("`{text}` can't be a path"));
                None
            }
        }
    }
}

impl Plugin for ResponseMock {
    const NAME: &'static str = "response_mock";
    const FAMILY: Family = Family::Content;
    const SUMMARY: &'static str = "Answers requests with responses from the configuration.";
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if config.rules.is_empty() {
            problems.add("config.rules", "there is no rule");
        }
        let rules = config.rules.into_iter().enumerate();
        let rules = rules.filter_map(|(n, rule)| Mock::read(n, rule, &mut problems)).collect();
        problems.into_result(Self { rules, passes: config.passthrough_on_no_match })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::AnswersAnybody]).with_if(!self.passes, Capability::NeedsNoTarget)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }
}

impl Mock {
    fn read(n: usize, rule: Rule, problems: &mut Problems) -> Option<Self> {
        let at = format!("config.rules[{n}]");
        let method = rule.method.as_ref().and_then(|name| {
            let method = Method::from_bytes(name.to_ascii_uppercase().as_bytes()).ok();
            if method.is_none() {
                problems.add(format!("{at}.method"), format!("`{name}` is not a method"));
            }
            method
        });
        let path = match rule.path.strip_prefix('~') {
            Some(regex) => {
                parse::path_regex(&format!("{at}.path"), &format!("^(?:{regex})$"), problems).map(Path::Regex)
            }
            None if !rule.path.starts_with('/') => {
                problems.add(format!("{at}.path"), "a path begins with `/`, a regex with `~`");
                None
            }
            None => Path::read(&format!("{at}.path"), &rule.path, problems),
        };
        let json = || BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())]);
        let mut headers = HeaderMap::new();
        for (name, value) in rule.headers.unwrap_or_else(json) {
            let at = format!("{at}.headers.{name}");
            let Some(name) = parse::header_name(&at, &name, problems) else { continue };
            if headers::is_framing(&name) {
                problems.add(&at, format!("`{name}` is the gateway's own to write"));
            }
            match HeaderValue::from_str(&value) {
                Ok(value) => _ = headers.append(name, value),
                Err(_) => _ = problems.add(&at, "has characters that a header may not have"),
            }
        }
        let status = StatusCode::from_u16(rule.status_code).ok()?;
        let has_body = !matches!(rule.status_code, 204 | 205 | 304);
        if !has_body && !rule.body.is_empty() {
            problems.add(format!("{at}.body"), format!("a {} response has no body", rule.status_code));
        }
        let delay = rule.delay.duration();
        Some(Self { method, path: path?, status, headers, body: rule.body.into(), delay })
    }

    fn fits(&self, exchange: &Exchange) -> bool {
        let path = exchange.path();
        self.method.as_ref().is_none_or(|method| method == exchange.method())
            && match &self.path {
                Path::Exact(exact) => exact == path,
                Path::Prefix(prefix) => path.starts_with(prefix.as_str()),
                Path::Regex(regex) => regex.is_match(path),
            }
    }

    fn reply(&self) -> Reply {
        let mut reply = Reply::fixed(self.status, self.body.clone());
        reply.headers.clone_from(&self.headers);
        // What is wanted is no error.
        reply.is_error = Some(false);
        reply.reason("mock")
    }
}

impl OnRequest for ResponseMock {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        match self.rules.iter().find(|rule| rule.fits(exchange)) {
            None if self.passes => Step::Next,
            None => {
                let reply = Reply::fixed(StatusCode::NOT_FOUND, "no mock fits this request\n");
                Step::reply(reply.reason("no_mock"))
            }
            Some(mock) if mock.delay.is_zero() => Step::reply(mock.reply()),
            Some(mock) => Step::wait(async move {
                tokio::time::sleep(mock.delay).await;
                Verdict::reply(mock.reply())
            }),
        }
    }
}

#[cfg(test)]
mod tests;
