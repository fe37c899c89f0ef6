//! Redirects of refused clients to a login.

use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Hooks, Seat};
use gateway_core::template::{MAX_RENDERED, Moment, Render, Template, TextContext};
use gateway_plugin_common::{facts, parse};
use http::header::LOCATION;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

/// Where clients log in if the other server rejects their request: `location`, `location_header` or both.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LoginConfig {
    /// Status of the other server's responses that lead to the login: 400 to 499. Default 401.
    #[schemars(length(min = 1, max = 100))]
    statuses: Vec<u16>,
    /// URL of the login, as a template. `${response.header.NAME}` is a field of the other server's response. Values
    /// after a `?` are percent-encoded, so `?rd=${request.scheme}://${request.authority}${request.target}` brings
    /// clients back. The URL begins with `/`, or with `http://`, `https://` or `${request.scheme}://` and a host. The
    /// host may contain only the values `${request.host}` and `${request.authority}`. Default: the client receives the
    /// rejection, if `location_header` is missing too.
    location: Option<String>,
    /// Field of the response that contains the URL, such as `Location`; it precedes `location`. Default none.
    location_header: Option<String>,
    /// Status of the redirect: 302, 303 or 307. Default 302.
    status_code: u16,
}

impl Default for LoginConfig {
    fn default() -> Self {
        Self { statuses: vec![401], location: None, location_header: None, status_code: 302 }
    }
}

/// A compiled [`LoginConfig`].
pub(super) struct Login {
    statuses: Vec<u16>,
    location: Option<Template>,
    location_header: Option<HeaderName>,
    status: StatusCode,
}

impl Login {
    pub(super) fn compile(config: &LoginConfig, problems: &mut Problems) -> Option<Self> {
        for (n, status) in config.statuses.iter().enumerate().filter(|(_, it)| !(400..500).contains(*it)) {
            let path = format!("config.login.statuses[{n}]");
            problems.add(path, format!("{status} is out of range (400 to 499)"));
        }
        if config.statuses.is_empty() {
            problems.add("config.login.statuses", "at least one status is required");
        }
        let status = match config.status_code {
            302 | 303 | 307 => StatusCode::from_u16(config.status_code).ok(),
            other => {
                let problem =
                    problems.add("config.login.status_code", format!("{other} is not a temporary redirect"));
                problem.remedy = Some("write 302, 303 or 307".into());
                None
            }
        };
        if config.location.is_none() && config.location_header.is_none() {
            problems.add("config.login", "needs `location` or `location_header`");
        }
        let path = "config.login.location";
        let location =
            config.location.as_ref().and_then(|text| parse::template(path, text, Moment::Response, problems));
        if location.as_ref().is_some_and(|location| !location.fixes_host()) {
            problems.add(path, "a value of the request could decide where clients go").remedy = Some(
                "begin with `/`, or with `http://`, `https://` or `${request.scheme}://` and a host of your own".into(),
            );
        }
        let location_header = config
            .location_header
            .as_ref()
            .and_then(|name| parse::header_name("config.login.location_header", name, problems));
        Some(Self { statuses: config.statuses.clone(), location, location_header, status: status? })
    }

    pub(super) fn declare(&self, hooks: &mut Hooks) {
        hooks.renders("config.login.location", self.location.as_ref());
    }

    /// The redirect for this answer of the other server; `None` where the answer does not lead to the login, or the URL can't
    /// be made: then the client gets the refusal.
    pub(super) fn redirect(
        &self,
        exchange: &Exchange,
        seat: Seat<'_>,
        answer: &Response<Bytes>,
    ) -> Option<Box<Reply>> {
        if !self.statuses.contains(&answer.status().as_u16()) {
            return None;
        }
        let named = self.location_header.as_ref().and_then(|name| answer.headers().get(name));
        let location = match named.filter(|value| !value.is_empty()) {
            Some(value) => value.clone(),
            None => self.made(exchange, seat, answer)?,
        };
        let mut reply = Reply::new(Cause::Unauthenticated).status(self.status).reason("forward_auth_refused");
        reply.body = Some(Body::full(Bytes::new()));
        Some(Box::new(reply.header(LOCATION, location)))
    }

    fn made(&self, exchange: &Exchange, seat: Seat<'_>, answer: &Response<Bytes>) -> Option<HeaderValue> {
        let facts = facts::with_response(exchange, seat, answer.status(), answer.headers());
        let mut text = Vec::new();
        self.location.as_ref()?.render(&facts, TextContext::Url, MAX_RENDERED, &mut text).ok()?;
        HeaderValue::from_bytes(&text).ok()
    }
}
