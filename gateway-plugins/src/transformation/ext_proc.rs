//! Has another server look at requests and responses and change them, over Envoy's external processing protocol
//! (`ext_proc`, gRPC).
//!
//! Each exchange has a stream of its own to the processor, which is told of heads, bodies and trailers, one after the other, and
//! answers each: with changes, with an immediate response, or with other wishes about what it gets. A processor that ends its
//! stream in good order is not asked any further; one that fails, or does not answer in time, closes the exchange unless
//! `failure_mode_allow` is set. Headers that frame messages are the gateway's own; `append_action` 0 overwrites, as Envoy does.
//! Attributes, metadata, observability mode and the body mode FULL_DUPLEX_STREAMED are not offered.

mod body;
mod change;
mod protocol;
mod replace;
mod session;
mod settings;
mod stream_counts;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway_core::config::model::BackendHttp;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::world::calls::Client;
use gateway_core::plugin::{
    Capabilities, Capability, Family, Hooks, OnRequest, OnResponse, Plugin, Seat, Step, Verdict, World,
};
use gateway_plugin_common::envoy;
use gateway_plugin_common::headers;
use gateway_plugin_common::server_url;
use http::{HeaderMap, Method, Response, StatusCode};
use tokio::sync::Semaphore;

use body::{Replaced, Streamed};
use protocol::{Changes, CommonResponse, HeaderMutation, HttpBody, NewBody, ProcessorInput, ProcessorReply};
use replace::{describe, forget_tag, replace};
use session::{Failure, Session};
use settings::{BodyMode, BodyModes, Config, Rules};
use stream_counts::StreamCounts;

/// The plugin.
pub(crate) struct ExtProc {
    core: Arc<Core>,
}

/// What streams need of it.
struct Core {
    client: Client,
    rules: Arc<Rules>,
    turns: Arc<Semaphore>,
    counts: StreamCounts,
}

/// How long one stream may last; exchanges have their own timeouts.
const MAX_STREAM: Duration = Duration::from_secs(24 * 60 * 60);

/// The two ways of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Response,
}

/// One exchange's visit to the processor.
struct ProcessorExchange {
    session: Session,
}

impl ProcessorExchange {
    fn is_over(&self) -> bool {
        self.session.is_over()
    }
}

/// What an exchange keeps.
struct Visiting(Arc<ProcessorExchange>);

impl Plugin for ExtProc {
    const NAME: &'static str = "ext_proc";
    const FAMILY: Family = Family::Transformation;
    const SUMMARY: &'static str =
        "Lets an external processor inspect and change requests and responses (Envoy's ext_proc over gRPC).";
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let rules = Rules::of(&config);
        let nothing = !rules.mode.request_headers
            && !rules.mode.response_headers
            && rules.mode.request.is_nothing()
            && rules.mode.response.is_nothing();
        if nothing {
            problems.add("config", "the processor gets nothing of any exchange").remedy = Some(
                "set one of `request_headers`, `response_headers`, `request_body`, `response_body`".into(),
            );
        }
        let ca_path = config.ca_path;
        let server = server_url::client(world, &config.url, |endpoint| {
            let mut endpoint = endpoint.trusting(ca_path).within(MAX_STREAM);
            endpoint.http = BackendHttp::Http2;
            endpoint.max_response = u64::MAX;
            endpoint
        });
        let client = match server {
            Ok((_, uri)) if uri.path_and_query().is_some_and(|path| path.as_str() != "/") => {
                problems.add("config.url", "must not have a path; the protocol says which");
                None
            }
            Ok((client, _)) => Some(client),
            Err(message) => {
                problems.add("config.url", message);
                None
            }
        };
        problems.into_result(())?;
        let Some(client) = client else { return Err(Problems::one("config.url", "is required")) };
        let counts = StreamCounts::new(world);
        let turns = Arc::new(Semaphore::new(config.max_concurrent_streams));
        Ok(Self { core: Arc::new(Core { client, rules: Arc::new(rules), turns, counts }) })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::Decides])
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self.clone());
        hooks.on_response(self);
    }
}

impl OnRequest for ExtProc {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let Ok(turn) = self.core.turns.clone().try_acquire_owned() else {
            let busy = Failure::Broken("`max_concurrent_streams` exchanges are processed already".to_owned());
            return match self.core.failed(&busy) {
                Ok(()) => Step::Next,
                Err(reply) => Step::Reply(reply),
            };
        };
        let session = Session::new(&self.core.client, &self.core.rules, turn);
        let visit = Arc::new(ProcessorExchange { session });
        exchange.state.put(seat, Visiting(visit.clone()));
        Step::wait(async move {
            let done = self.core.request(exchange, &visit).await;
            if done.is_err() {
                // The refusal is ours: the processor is not asked about it.
                visit.session.close();
            }
            if self.core.rules.mode.response.body != BodyMode::None {
                exchange.ask_for_plain();
            }
            verdict(done)
        })
    }
}

impl OnResponse for ExtProc {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        exchange.accept_codings();
        let visit = exchange.state.of::<Visiting>(seat).map(|Visiting(visit)| visit.clone());
        let Some(visit) = visit.filter(|visit| !visit.is_over()) else { return Step::Next };
        Step::wait(async move { verdict(self.core.response(exchange.method(), response, &visit).await) })
    }
}

fn verdict(done: Result<(), Box<Reply>>) -> Verdict {
    done.map_or_else(Verdict::Reply, |()| Verdict::Next)
}

impl Core {
    /// What becomes of an exchange whose processor fails.
    fn failed(&self, failure: &Failure) -> Result<(), Box<Reply>> {
        self.counts.failed.add(1);
        tracing::warn!("external processing failed: {failure}");
        if self.rules.passes_failures {
            return Ok(());
        }
        let status = match failure {
            Failure::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Failure::Broken(_) => self.rules.status,
        };
        Err(Box::new(Reply::new(Cause::Internal).status(status).reason("ext_proc_failed")))
    }

    /// Tells the processor something; what it says, where the exchange continues with it.
    async fn ask(
        &self,
        visit: &ProcessorExchange,
        told: ProcessorInput,
    ) -> Result<Option<ProcessorReply>, Box<Reply>> {
        let said = match visit.session.ask(told).await {
            Ok(None) => return Ok(None),
            Ok(Some(said)) => said.said,
            Err(failure) => return self.failed(&failure).map(|()| None),
        };
        let Some(ProcessorReply::ImmediateResponse(reply)) = &said else { return Ok(said) };
        visit.session.close();
        let reply = match self.rules.replies {
            true => change::reply(reply),
            false => {
                Err(Failure::Broken("the processor sends an immediate response, which is refused".to_owned()))
            }
        };
        match reply {
            Ok(reply) => {
                self.counts.replied.add(1);
                Err(Box::new(reply))
            }
            Err(failure) => self.failed(&failure).map(|()| None),
        }
    }

    /// The same, for what is changed alike.
    async fn changes(
        &self,
        visit: &ProcessorExchange,
        told: ProcessorInput,
    ) -> Result<Option<CommonResponse>, Box<Reply>> {
        let is_fitting = |said: &ProcessorReply| {
            matches!(
                (&told, said),
                (ProcessorInput::RequestHeaders(_), ProcessorReply::RequestHeaders(_))
                    | (ProcessorInput::ResponseHeaders(_), ProcessorReply::ResponseHeaders(_))
                    | (ProcessorInput::RequestBody(_), ProcessorReply::RequestBody(_))
                    | (ProcessorInput::ResponseBody(_), ProcessorReply::ResponseBody(_))
            )
        };
        match self.ask(visit, told.clone()).await? {
            None if visit.is_over() => Ok(None),
            Some(said) if is_fitting(&said) => match said {
                ProcessorReply::RequestHeaders(Changes { response })
                | ProcessorReply::ResponseHeaders(Changes { response })
                | ProcessorReply::RequestBody(Changes { response })
                | ProcessorReply::ResponseBody(Changes { response }) => {
                    Ok(Some(response.unwrap_or_default()))
                }
                _ => Ok(None),
            },
            _ => self.out_of_turn(visit).map(|()| None),
        }
    }

    /// An answer to something else than what was told.
    fn out_of_turn(&self, visit: &ProcessorExchange) -> Result<(), Box<Reply>> {
        visit.session.close();
        self.failed(&Failure::Broken("the processor answers something that was not told".to_owned()))
    }

    /// Changes header fields.
    fn apply(
        &self,
        visit: &ProcessorExchange,
        mutation: Option<&HeaderMutation>,
        headers: &mut HeaderMap,
    ) -> Result<change::RequestLine, Box<Reply>> {
        let Some(mutation) = mutation else { return Ok(change::RequestLine::default()) };
        change::apply(mutation, headers).or_else(|failure| {
            visit.session.close();
            self.failed(&failure).map(|()| change::RequestLine::default())
        })
    }

    async fn request(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        visit: &Arc<ProcessorExchange>,
    ) -> Result<(), Box<Reply>> {
        if visit.session.mode().request_headers {
            let told =
                ProcessorInput::RequestHeaders(change::request_head(exchange, exchange.body.is_empty()));
            let Some(said) = self.changes(visit, told).await? else { return Ok(()) };
            if let Some(mutation) = &said.header_mutation {
                envoy::withhold_trailers(mutation, &mut exchange.body);
            }
            let line = self.apply(visit, said.header_mutation.as_ref(), &mut exchange.request.headers)?;
            if line.path.is_some() {
                exchange.forward_path = line.path;
            }
            if said.status == REPLACE {
                replace(&mut exchange.request.headers, &mut exchange.body, said);
                return Ok(());
            }
        }
        let rest = visit.session.mode().request;
        let mut line = change::RequestLine::default();
        self.rest(
            visit,
            Direction::Request,
            rest,
            &mut exchange.request.headers,
            &mut exchange.body,
            &mut line,
        )
        .await?;
        if line.path.is_some() {
            exchange.forward_path = line.path;
        }
        Ok(())
    }

    async fn response(
        self: &Arc<Self>,
        method: &Method,
        response: &mut Response<Body>,
        visit: &Arc<ProcessorExchange>,
    ) -> Result<(), Box<Reply>> {
        let has_body = method != Method::HEAD && !response.body().is_empty();
        if visit.session.mode().response_headers {
            let head = change::response_head(response.status(), response.headers(), !has_body);
            let Some(said) = self.changes(visit, ProcessorInput::ResponseHeaders(head)).await? else {
                return Ok(());
            };
            let line = self.apply(visit, said.header_mutation.as_ref(), response.headers_mut())?;
            if let Some(status) = line.status {
                *response.status_mut() = status;
            }
            if said.status == REPLACE && method != Method::HEAD {
                let mut body = std::mem::take(response.body_mut());
                replace(response.headers_mut(), &mut body, said);
                *response.body_mut() = body;
                visit.session.close();
                self.counts.passed.add(1);
                return Ok(());
            }
        }
        let mut body = std::mem::take(response.body_mut());
        let mut line = change::RequestLine::default();
        let rest = visit.session.mode().response;
        let done =
            self.rest(visit, Direction::Response, rest, response.headers_mut(), &mut body, &mut line).await;
        *response.body_mut() = body;
        done?;
        if let Some(status) = line.status {
            *response.status_mut() = status;
        }
        self.counts.passed.add(1);
        Ok(())
    }

    /// Body and trailers of a message.
    async fn rest(
        self: &Arc<Self>,
        visit: &Arc<ProcessorExchange>,
        way: Direction,
        rest: BodyModes,
        headers: &mut HeaderMap,
        body: &mut Body,
        line: &mut change::RequestLine,
    ) -> Result<(), Box<Reply>> {
        if body.is_empty() || rest.is_nothing() || visit.is_over() {
            return Ok(());
        }
        let is_streamed = rest.body == BodyMode::Streamed;
        if is_streamed || rest.body == BodyMode::None {
            if is_streamed {
                headers::forget_bytes(headers);
                forget_tag(headers);
            }
            let inner = std::mem::take(body);
            let streamed = Streamed::new(inner, self.clone(), visit.clone(), way, is_streamed, rest.trailers);
            *body = Body::stream(streamed);
            return Ok(());
        }
        let (bytes, trailers) = match body.collect(self.rules.max_body).await {
            Ok(read) => read,
            Err(BodyError::Refused(reply)) => return Err(reply),
            Err(BodyError::TooLarge { .. }) if rest.body == BodyMode::BufferedPartial => {
                return self.partly(visit, way, headers, body, line).await;
            }
            Err(error) => return Err(unread(&error, way)),
        };
        let before = bytes.clone();
        let changed = self.body(visit, way, bytes, trailers.is_none(), Some((&mut *headers, line))).await?;
        if changed != before {
            describe(headers, &changed);
        }
        let trailers = match trailers {
            Some(trailers) if rest.trailers && !visit.is_over() => {
                Some(self.trailers(visit, way, trailers).await?)
            }
            trailers => trailers,
        };
        *body = match trailers {
            Some(trailers) => Body::full_with_trailers(changed, trailers),
            None => Body::full(changed),
        };
        Ok(())
    }

    /// As much of a large body as is buffered.
    async fn partly(
        &self,
        visit: &ProcessorExchange,
        way: Direction,
        headers: &mut HeaderMap,
        body: &mut Body,
        line: &mut change::RequestLine,
    ) -> Result<(), Box<Reply>> {
        let first = body.peek(self.rules.max_body).await.map_err(|error| unread(&error, way))?;
        let changed = self.body(visit, way, first.clone(), false, Some((&mut *headers, line))).await?;
        if changed != first {
            headers::forget_bytes(headers);
            forget_tag(headers);
            let replaced = Replaced { skip: first.len(), first: Some(changed) };
            *body = std::mem::take(body).transform(replaced);
        }
        Ok(())
    }

    /// Tells the processor of a body, or a piece of one; the bytes that go on. The head can still be changed where it is given.
    async fn body(
        &self,
        visit: &ProcessorExchange,
        way: Direction,
        bytes: Bytes,
        end_of_stream: bool,
        head: Option<(&mut HeaderMap, &mut change::RequestLine)>,
    ) -> Result<Bytes, Box<Reply>> {
        let message = HttpBody { body: bytes.clone(), end_of_stream };
        let told = match way {
            Direction::Request => ProcessorInput::RequestBody(message),
            Direction::Response => ProcessorInput::ResponseBody(message),
        };
        let Some(said) = self.changes(visit, told).await? else { return Ok(bytes) };
        if let Some((headers, line)) = head {
            *line = self.apply(visit, said.header_mutation.as_ref(), headers)?;
        }
        match said.body_mutation.and_then(|mutation| mutation.mutation) {
            None | Some(NewBody::Clear(false)) => Ok(bytes),
            Some(NewBody::Clear(true)) => Ok(Bytes::new()),
            Some(NewBody::Body(new)) => Ok(new),
            Some(NewBody::Streamed(_)) => {
                visit.session.close();
                let why = "the processor answers as in the mode FULL_DUPLEX_STREAMED, which is not offered";
                self.failed(&Failure::Broken(why.to_owned())).map(|()| bytes)
            }
        }
    }

    /// Tells the processor of trailers; those that go on.
    async fn trailers(
        &self,
        visit: &ProcessorExchange,
        way: Direction,
        mut trailers: HeaderMap,
    ) -> Result<HeaderMap, Box<Reply>> {
        let message = change::trailers(&trailers);
        let told = match way {
            Direction::Request => ProcessorInput::RequestTrailers(message),
            Direction::Response => ProcessorInput::ResponseTrailers(message),
        };
        let mutation = match (self.ask(visit, told).await?, way) {
            (None, _) if visit.is_over() => return Ok(trailers),
            (Some(ProcessorReply::RequestTrailers(said)), Direction::Request)
            | (Some(ProcessorReply::ResponseTrailers(said)), Direction::Response) => said.header_mutation,
            _ => return self.out_of_turn(visit).map(|()| trailers),
        };
        self.apply(visit, mutation.as_ref(), &mut trailers)?;
        Ok(trailers)
    }
}

/// `CONTINUE_AND_REPLACE`.
const REPLACE: i32 = 1;

/// The answer where a body can't be read.
fn unread(error: &BodyError, way: Direction) -> Box<Reply> {
    let (cause, reason) = match (error, way) {
        (BodyError::TooLarge { .. }, Direction::Request) => (Cause::BodyTooLarge, "ext_proc_body_too_large"),
        (BodyError::TooLarge { .. }, Direction::Response) => {
            (Cause::UpstreamGarbage, "ext_proc_body_too_large")
        }
        (BodyError::NoRoom, _) => (Cause::Overloaded, "overloaded"),
        (_, Direction::Request) => (Cause::BadRequest, "body_incomplete"),
        (_, Direction::Response) => (Cause::UpstreamClosed, "body_incomplete"),
    };
    Box::new(Reply::new(cause).reason(reason))
}

#[cfg(test)]
mod tests;
