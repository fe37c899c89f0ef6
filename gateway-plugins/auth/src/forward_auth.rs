//! Asks another server whether a request may pass, as Traefik's ForwardAuth, nginx's `auth_request` and Envoy's `ext_authz`
//! over HTTP and gRPC do.
//!
//! The other server gets the request's head, and its body where `send_body` says so. When it allows the request, fields of
//! its answer may be copied to the request, and one of them may name the caller, so that the plugin takes part in
//! authentication; without `caller_header` it is one more check after it. When it refuses, the client gets its answer,
//! also a redirect to a login. Without an answer in time nothing passes, unless `failure_mode_allow` is set.
//!
//! Over gRPC the answer says itself which fields and query parameters of the request are set or removed, and which fields
//! the client's response gets. Fields that frame messages are the gateway's own.

mod answer;
mod grpc;
mod login;
mod question;
mod settings;

use std::sync::Arc;

use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::consumer::Identity;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::calls::Client;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Authenticate, Claim, Family, Finding, Hooks, Need, Needs, OnRequest, OnResponse, Plugin, Seat, Step,
    Verdict, World,
};
use http::header::{LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::turns::Turns;
use answer::{AuthDecision, Shown};
use grpc::{CheckResponse, CheckResult, ForResponse, Grpc, NoAnswer};
use login::Login;
use question::Question;
use settings::Config;

/// The plugin.
pub(crate) struct ForwardAuth {
    client: Client,
    /// Host and port of the URL, for the record.
    server: Box<str>,
    question: Question,
    /// How it is asked over gRPC, in the place of `question`.
    grpc: Option<Grpc>,
    passes_failures: bool,
    turns: Turns,
    /// Fields of the answer for the request, and for the client's response.
    copied: (Vec<HeaderName>, Vec<HeaderName>),
    refusal_headers: Shown,
    /// Where refused clients are sent.
    login: Option<Login>,
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
    allowed: Counter,
}

const REQUESTS: Metric = Metric::counter(
    "ferrum_forward_auth_requests_total",
    "Authorization requests by result: passed, refused, failed (no response), allowed (no response, and the request passed).",
);

/// Bytes of an answer.
const MAX_ANSWER: u64 = 1 << 20;

impl Plugin for ForwardAuth {
    const NAME: &'static str = "forward_auth";
    const FAMILY: Family = Family::Authentication;
    const SUMMARY: &'static str =
        "Asks another server whether a request may pass (Traefik, nginx auth_request, Envoy ext_authz).";
    const EXAMPLE: &'static str = include_str!("../examples/forward_auth.yaml");
    const NEEDS: &'static [Needs] = &[
        Needs::new("ca_path", Need::Begins(&["url"], "https://")),
        Needs::new("max_body", Need::Given(&["send_body"])),
        Needs::new("status_on_error", Need::Without("failure_mode_allow")),
    ];
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        settings::build(config, world)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        let own = self.copied.0.iter().chain(&self.caller).chain(&self.groups);
        own.for_each(|name| hooks.owns_header(name));
        for (name, template) in &self.question.set {
            hooks.renders(&format!("config.set_request_headers.{name}"), Some(template));
        }
        if let Some(login) = &self.login {
            login.declare(hooks);
        }
        if self.caller.is_some() {
            hooks.authenticate(self.clone());
        }
        hooks.on_request(self.clone());
        if !self.copied.1.is_empty() || self.grpc.is_some() {
            hooks.on_response(self);
        }
    }
}

/// Fields for the client's response. There are such, if only none, wherever the other server has let a request pass.
struct ForClient(ForResponse);

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
                    // Whoever else recognises the caller, this answer is not about them.
                    exchange.state.put(seat, ());
                    let reply = Reply::new(Cause::Unauthenticated).reason("forward_auth_no_caller");
                    Finding::Refused(Box::new(reply.detail("the request is nobody's")))
                }
            }
        })
    }
}

impl OnRequest for ForwardAuth {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        if self.caller.is_some() {
            // Where another plugin has recognised the caller, nothing was asked, and the fields are still the client's.
            if exchange.state.of::<ForClient>(seat).is_none() {
                self.take_out(exchange);
            }
            return Step::Next;
        }
        Step::wait(async move {
            match self.ask(exchange, seat).await {
                Ok(_) => {
                    // No identity says for whom the response is.
                    exchange.mark_checked();
                    Verdict::Next
                }
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
            let headers = response.headers_mut();
            for name in fields.set.keys() {
                headers.remove(name);
                fields.set.get_all(name).iter().for_each(|value| _ = headers.append(name, value.clone()));
            }
            for name in fields.add.keys() {
                let own: Vec<HeaderValue> = fields.add.get_all(name).iter().cloned().collect();
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
        answer::caller(answer, self.caller.as_ref()?, self.groups.as_ref(), seat.consumers())
    }

    /// The header of an answer that lets the request pass, which has its fields then; or what the client gets.
    async fn ask(&self, exchange: &mut Exchange, seat: Seat<'_>) -> Result<HeaderMap, Box<Reply>> {
        if let Some(grpc) = &self.grpc {
            return self.ask_over_grpc(grpc, exchange, seat).await;
        }
        let question = self.question.about(exchange, seat).await?;
        self.take_out(exchange);
        let response = {
            let turn = self.turns.take().await;
            let Ok(_turn) = turn else {
                let retry = HeaderValue::from_static("1");
                return self
                    .failed("forward_auth_busy")
                    .map_err(|reply| Box::new(reply.header(RETRY_AFTER, retry)));
            };
            self.client.fetch(question).await
        };
        let response = match response {
            Ok(response) => response,
            Err(error) => return self.no_answer(exchange, &error.to_string()),
        };
        exchange.note("forward_auth.status", u64::from(response.status().as_u16()));
        if let Some(redirect) =
            self.login.as_ref().and_then(|login| login.redirect(exchange, seat, &response))
        {
            self.counts.refused.add(1);
            return Err(self.with_client_headers(redirect, response.headers()));
        }
        match answer::judge(self.question.convention, &response, &self.refusal_headers) {
            AuthDecision::Failed => self.no_answer(exchange, &format!("it answers {}", response.status())),
            AuthDecision::Refuse(reply) => {
                self.counts.refused.add(1);
                Err(reply)
            }
            AuthDecision::Pass => {
                self.counts.passed.add(1);
                Ok(self.passed(exchange, seat, response))
            }
        }
    }

    /// Whatever comes of it, what the client wrote where the answer's fields belong does not reach the target.
    fn take_out(&self, exchange: &mut Exchange) {
        for name in self.copied.0.iter().chain(&self.caller).chain(&self.groups) {
            exchange.remove_header(name);
        }
    }

    /// A redirect to the login with the fields of the answer that clients get.
    fn with_client_headers(&self, mut reply: Box<Reply>, answer: &HeaderMap) -> Box<Reply> {
        for name in self.copied.1.iter().filter(|name| *name != LOCATION) {
            for value in answer.get_all(name) {
                reply.headers.append(name, value.clone());
            }
        }
        reply
    }

    fn passed(&self, exchange: &mut Exchange, seat: Seat<'_>, response: Response<Bytes>) -> HeaderMap {
        let headers = response.into_parts().0.headers;
        for name in &self.copied.0 {
            for value in headers.get_all(name) {
                exchange.request.headers.append(name, value.clone());
            }
        }
        let mut fields = HeaderMap::new();
        for name in &self.copied.1 {
            for value in headers.get_all(name) {
                fields.append(name, value.clone());
            }
        }
        exchange.state.put(seat, ForClient(ForResponse { add: fields, set: HeaderMap::new() }));
        headers
    }

    /// As [`Self::ask`], over gRPC.
    async fn ask_over_grpc(
        &self,
        grpc: &Grpc,
        exchange: &mut Exchange,
        seat: Seat<'_>,
    ) -> Result<HeaderMap, Box<Reply>> {
        let question = grpc.about(exchange).await?;
        self.take_out(exchange);
        let answer = {
            let Ok(_turn) = self.turns.take().await else {
                let retry = HeaderValue::from_static("1");
                return self
                    .failed("forward_auth_busy")
                    .map_err(|reply| Box::new(reply.header(RETRY_AFTER, retry)));
            };
            grpc.ask(&self.client, &question).await
        };
        let done = match answer {
            Ok(CheckResponse { status, said }) => match (status.map_or(0, |status| status.code), said) {
                (0, Some(CheckResult::Denied(_))) => Err(NoAnswer("it says yes and no".into())),
                (0, Some(CheckResult::Allowed(allowed))) => allowed.apply(exchange).map(Ok),
                (0, None) => Ok(Ok(Default::default())),
                (_, Some(CheckResult::Denied(denied))) => denied.reply(exchange.dialect).map(Err),
                (..) => Ok(Err(Reply::new(Cause::Forbidden).reason("forward_auth_refused"))),
            },
            Err(none) => Err(none),
        };
        match done {
            Ok(Ok((said, response))) => {
                self.counts.passed.add(1);
                exchange.state.put(seat, ForClient(response));
                Ok(said)
            }
            Ok(Err(reply)) => {
                self.counts.refused.add(1);
                Err(Box::new(reply))
            }
            Err(NoAnswer(why)) => self.no_answer(exchange, &why),
        }
    }

    /// Notes why there is no answer, and by which server.
    fn no_answer(&self, exchange: &mut Exchange, why: &str) -> Result<HeaderMap, Box<Reply>> {
        exchange.note("forward_auth.server", &*self.server);
        exchange.note_failure(format!("{}: {why}", self.server));
        tracing::warn!(server = %self.server, %why, "the authorization server gives no answer");
        self.failed("forward_auth_failed")
    }

    /// What becomes of a request without an answer: it passes where that is allowed, without fields of any answer.
    fn failed(&self, reason: &'static str) -> Result<HeaderMap, Box<Reply>> {
        self.counts.failed.add(1);
        if self.passes_failures {
            self.counts.allowed.add(1);
            return Ok(HeaderMap::new());
        }
        let reply = Reply::new(Cause::NoTarget).reason(reason).detail("the request can't be checked now");
        Err(Box::new(match self.status_on_error {
            StatusCode::SERVICE_UNAVAILABLE => reply,
            status => reply.status(status),
        }))
    }
}

#[cfg(test)]
mod tests;
