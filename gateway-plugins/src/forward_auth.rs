//! Asks another server whether a request may pass, as Traefik's ForwardAuth, nginx's `auth_request` and Envoy's `ext_authz`
//! over HTTP do.
//!
//! The other server gets the request's head, and its body where `send_body` says so. When it allows the request, fields of
//! its answer may be copied to the request, and one of them may name the caller, so that the plugin takes part in
//! authentication; without `caller_header` it is one more check after it. When it refuses, the client gets its answer,
//! also a redirect to a login. Without an answer in time nothing passes.

mod answer;
mod question;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::config::units::{self, Millis};
use gateway_core::consumer::Identity;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::world::calls::Client;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Authenticate, Claim, Finding, Hooks, OnRequest, OnResponse, Plugin, Seat, Step, Verdict, World,
};
use gateway_core::record::Metric;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::shared::{self, oauth, turns::Turns};
use answer::{Answer, Shown};
use question::Question;

/// Settings of `forward_auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The URL that is asked. With the convention `envoy` the request's path and query are appended to its path.
    /// Required.
    url: String,
    /// The PEM file with the only roots that are trusted for this URL. Default: the public roots.
    ca_path: Option<PathBuf>,
    /// How the other server is asked and understood:
    ///
    /// - `traefik`: GET with `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri` and `-For`. 2xx passes; the client gets 3xx and
    ///   4xx as they are.
    /// - `nginx`: GET with `X-Original-URI`, `X-Original-URL` and `X-Original-Method`. 2xx passes; 401 and 403 refuse, without
    ///   their body.
    /// - `envoy`: the request's own method, host and path. 200 passes; the client gets everything else below 500.
    ///
    /// Other answers are failures. Default `traefik`.
    convention: Convention,
    /// How long the other server may take for its whole answer. Default 5 s.
    #[schemars(range(min = 1, max = 60_000))]
    timeout_ms: Millis,
    /// Questions at a time. Default 1000.
    #[schemars(range(min = 1, max = 100_000))]
    max_concurrent_calls: usize,
    /// Requests that wait for their turn to ask; more get 503 with `Retry-After`. Default 1000.
    #[schemars(range(max = 100_000))]
    max_waiting_calls: usize,
    /// Header fields of the request that the other server gets, besides those of the convention. Default all; with the
    /// convention `envoy`, `Authorization` and `Cookie`.
    #[schemars(length(max = 100))]
    request_headers: Option<Vec<String>>,
    /// Asks with the request's own method instead of GET. Default false.
    preserve_method: bool,
    /// Sends the body along; needs `preserve_method` or the convention `envoy`. Default false.
    send_body: bool,
    /// Bytes that such a body may have; a larger one gets 413. Default 64 KiB.
    max_body_bytes: units::Bytes,
    /// Header fields of the answer that the request gets when it passes. What a client sends under these names is removed.
    /// Default none.
    #[schemars(length(max = 100))]
    response_headers: Vec<String>,
    /// Header fields of the answer that the client's response gets as well when the request passes, such as `Set-Cookie`.
    /// Default none.
    #[schemars(length(max = 100))]
    client_headers: Vec<String>,
    /// Header fields of a refusal that the client gets, besides `WWW-Authenticate`. Default all.
    #[schemars(length(max = 100))]
    refusal_headers: Option<Vec<String>>,
    /// The header field of the answer that names the caller, a consumer's username or custom id or anything else. An answer
    /// without it refuses the request. Default none: the plugin recognises nobody.
    caller_header: Option<String>,
    /// The header field of the answer with the caller's groups, commas between them; needs `caller_header`. Default none.
    groups_header: Option<String>,
    /// The status while the other server fails or does not answer in time, 400 to 599. Default 503.
    #[schemars(range(min = 400, max = 599))]
    status_on_error: u16,
}

/// How another server is asked and understood.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Convention {
    /// Traefik's ForwardAuth.
    #[default]
    Traefik,
    /// nginx's `auth_request`.
    Nginx,
    /// Envoy's `ext_authz` over HTTP.
    Envoy,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: String::new(),
            ca_path: None,
            convention: Convention::Traefik,
            timeout_ms: Millis(5000),
            max_concurrent_calls: 1000,
            max_waiting_calls: 1000,
            request_headers: None,
            preserve_method: false,
            send_body: false,
            max_body_bytes: units::Bytes(64 << 10),
            response_headers: Vec::new(),
            client_headers: Vec::new(),
            refusal_headers: None,
            caller_header: None,
            groups_header: None,
            status_on_error: 503,
        }
    }
}

/// The plugin.
pub(crate) struct ForwardAuth {
    client: Client,
    question: Question,
    turns: Turns,
    /// Fields of the answer for the request, and for the client's response.
    copied: (Vec<HeaderName>, Vec<HeaderName>),
    refusal_headers: Shown,
    caller: Option<HeaderName>,
    groups: Option<HeaderName>,
    status_on_error: StatusCode,
    counts: Counts,
}

/// What became of requests.
struct Counts {
    passed: Counter,
    refused: Counter,
    failed: Counter,
}

const REQUESTS: Metric = Metric {
    name: "ferrum_forward_auth_requests_total",
    kind: "counter",
    help: "Requests that another server was asked about, by result: passed, refused, or failed (there was no answer).",
};

/// Bytes of an answer.
const MAX_ANSWER: u64 = 1 << 20;

impl Plugin for ForwardAuth {
    const NAME: &'static str = "forward_auth";
    const SUMMARY: &'static str = "Asks another server whether a request may pass (Traefik, nginx auth_request, Envoy ext_authz over HTTP).";
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let (ca_path, timeout) = (config.ca_path, config.timeout_ms.duration());
        let server = oauth::client(world, &config.url, |endpoint| {
            let mut endpoint = endpoint.trusting(ca_path).within(timeout);
            endpoint.max_response_bytes = MAX_ANSWER;
            endpoint
        });
        let mut names = |option: &str, written: Vec<String>| -> Vec<HeaderName> {
            let all = written.into_iter().enumerate();
            all.filter_map(|(n, name)| header(&format!("config.{option}[{n}]"), &name, &mut problems))
                .collect()
        };
        let copied = (
            names("response_headers", config.response_headers),
            names("client_headers", config.client_headers),
        );
        let request_headers = config.request_headers.map(|all| names("request_headers", all));
        let refusal_headers = config.refusal_headers.map(|all| names("refusal_headers", all));
        let caller =
            config.caller_header.and_then(|name| header("config.caller_header", &name, &mut problems));
        let groups =
            config.groups_header.and_then(|name| header("config.groups_header", &name, &mut problems));
        if groups.is_some() && caller.is_none() {
            problems.add("config.groups_header", "needs `caller_header`");
        }
        if config.send_body && !config.preserve_method && config.convention != Convention::Envoy {
            problems.add("config.send_body", "a GET has no body").remedy =
                Some("set `preserve_method: true`".into());
        }
        let (client, uri) = match server {
            Ok(server) if problems.is_empty() => server,
            Ok(_) => return Err(problems),
            Err(message) => {
                problems.add("config.url", message);
                return Err(problems);
            }
        };
        let count = |result| world.meters().counter(REQUESTS, &["result"], &[result]);
        Ok(Self {
            client,
            question: Question {
                uri,
                convention: config.convention,
                headers: request_headers,
                preserve_method: config.preserve_method,
                body: config.send_body.then_some(config.max_body_bytes.0),
            },
            turns: Turns::new(config.max_concurrent_calls, config.max_waiting_calls),
            copied,
            refusal_headers,
            caller,
            groups,
            status_on_error: StatusCode::from_u16(config.status_on_error)
                .unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
            counts: Counts { passed: count("passed"), refused: count("refused"), failed: count("failed") },
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        match self.caller {
            Some(_) => hooks.authenticate(self.clone()),
            None => hooks.on_request(self.clone()),
        }
        if !self.copied.1.is_empty() {
            hooks.on_response(self);
        }
    }
}

/// Reads the name of a field that frames no message.
fn header(path: &str, name: &str, problems: &mut Problems) -> Option<HeaderName> {
    let read = shared::header_name(path, name, problems)?;
    if shared::is_framing(&read) {
        problems.add(path, format!("`{name}` frames messages and can't be copied"));
        return None;
    }
    Some(read)
}

/// Fields for the client's response.
struct ForClient(HeaderMap);

impl Authenticate for ForwardAuth {
    fn authenticate<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Claim<'a> {
        Claim::wait(async move {
            let answer = match self.ask(exchange, seat).await {
                Ok(answer) => answer,
                Err(reply) => return Finding::Refused(reply),
            };
            match self.identity(&answer, seat) {
                Some(identity) => Finding::Caller(identity),
                None => {
                    let reply = Reply::new(Cause::Unauthenticated).reason("forward_auth_no_caller");
                    Finding::Refused(Box::new(reply.detail("the request is nobody's")))
                }
            }
        })
    }
}

impl OnRequest for ForwardAuth {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        Step::wait(async move {
            match self.ask(exchange, seat).await {
                Ok(_) => Verdict::Next,
                Err(reply) => Verdict::Reply(reply),
            }
        })
    }
}

impl OnResponse for ForwardAuth {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        // A reply that replaces a response passes here once more; its fields must not be there twice.
        if let Some(ForClient(fields)) = exchange.state.of::<ForClient>(seat) {
            for name in fields.keys() {
                let own: Vec<HeaderValue> = fields.get_all(name).iter().cloned().collect();
                let headers = response.headers_mut();
                let missing: Vec<HeaderValue> = own
                    .into_iter()
                    .filter(|value| !headers.get_all(name).iter().any(|known| known == value))
                    .collect();
                missing.into_iter().for_each(|value| _ = headers.append(name, value));
            }
        }
        Step::Next
    }
}

impl ForwardAuth {
    fn identity(&self, answer: &HeaderMap, seat: Seat<'_>) -> Option<Arc<Identity>> {
        answer::caller(answer, (self.caller.as_ref()?, self.groups.as_ref()), seat.consumers())
    }

    /// The header of an answer that lets the request pass, which has its fields then; or what the client gets.
    async fn ask(&self, exchange: &mut Exchange, seat: Seat<'_>) -> Result<HeaderMap, Box<Reply>> {
        let question = self.question.about(exchange).await?;
        // Whatever comes of it, what the client wrote there does not reach the target.
        for name in &self.copied.0 {
            exchange.request.headers.remove(name);
        }
        let response = {
            let turn = self.turns.take().await;
            let Ok(_turn) = turn else {
                let retry = HeaderValue::from_static("1");
                return Err(Box::new(self.failed("forward_auth_busy").header(RETRY_AFTER, retry)));
            };
            self.client.fetch(question).await
        };
        let Ok(response) = response else { return Err(Box::new(self.failed("forward_auth_failed"))) };
        exchange.note("forward_auth.status", u64::from(response.status().as_u16()));
        match answer::judge(self.question.convention, &response, &self.refusal_headers) {
            Answer::Failed => Err(Box::new(self.failed("forward_auth_failed"))),
            Answer::Refuse(reply) => {
                self.counts.refused.add(1);
                Err(reply)
            }
            Answer::Pass => {
                self.counts.passed.add(1);
                Ok(self.passed(exchange, seat, response))
            }
        }
    }

    fn passed(&self, exchange: &mut Exchange, seat: Seat<'_>, response: Response<Bytes>) -> HeaderMap {
        let headers = response.into_parts().0.headers;
        for name in &self.copied.0 {
            for value in headers.get_all(name) {
                exchange.request.headers.append(name, value.clone());
            }
        }
        if !self.copied.1.is_empty() {
            let mut fields = HeaderMap::new();
            for name in &self.copied.1 {
                for value in headers.get_all(name) {
                    fields.append(name, value.clone());
                }
            }
            exchange.state.put(seat, ForClient(fields));
        }
        headers
    }

    /// The refusal without an answer.
    fn failed(&self, reason: &'static str) -> Reply {
        self.counts.failed.add(1);
        let reply = Reply::new(Cause::NoTarget).reason(reason).detail("the request can't be checked now");
        if self.status_on_error == StatusCode::SERVICE_UNAVAILABLE {
            return reply;
        }
        reply.status(self.status_on_error)
    }
}

#[cfg(test)]
mod tests;
