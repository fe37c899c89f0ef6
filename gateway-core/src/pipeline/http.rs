//! The way of every exchange: guard, route, chain, balance, send, and back. Read this file first.
//!
//! Nothing here knows which HTTP version the client or the target speaks: the client's side comes in as a
//! [`Downstream`], the target's as an [`Upstream`]. Whatever happens, also when the client goes away and the future
//! is dropped half-way, an exchange ends in exactly one record: [`ExchangeEnding`] sees to that.

mod admission;
mod again;
mod call_end;
mod close;
mod deciding;
mod delivery;
mod destination;
mod detached;
mod ending;
mod forwarding;
mod hedged;
mod matched;
mod race;
mod settings;
mod spelling;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{EXPECT, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::balance::AttemptOutcome;
use crate::http::body::{Body, BodyError};
use crate::http::challenge::Challenges;
use crate::http::dialect::Dialect;
use crate::http::downstream::{Delivery, Downstream};
use crate::http::early;
use crate::http::exchange::Exchange;
use crate::http::headers::{self, MessageSource};
use crate::http::reply::{Cause, Origin, Reply};
use crate::http::retry::MAX_HELD;
use crate::http::tunnel::Tunnel;
use crate::http::upstream::Upstream;
use crate::limit::overload::Overload;
use crate::pipeline::revocation::Current;
use crate::pipeline::stream;
use crate::plugin::Chain;
use crate::plugin::chain::{Panicked, Reached, guarded};
use crate::plugin::seat::{Around, Attempt};
use crate::record::Recorder;
use crate::snapshot::Snapshot;
use crate::stream::drain::Drain;
use crate::stream::relay::Switched;
use crate::stream::session::Session;
use admission::admit;
pub use close::Close;
use delivery::Sending;
use destination::Destination;
pub use detached::Aside;
use ending::{ExchangeEnding, answered, failed, judged, until};
use matched::Matched;

/// When to come back to a gateway or target at its limits.
const A_SECOND: HeaderValue = HeaderValue::from_static("1");

/// The pipeline of one worker.
pub struct Pipeline<U> {
    upstream: U,
    recorder: Arc<dyn Recorder>,
    overload: Overload,
    drain: Drain,
    aside: Option<Aside>,
    current: Option<Arc<dyn Current>>,
    challenges: Challenges,
}

/// A target's agreement to switch protocols, and the target's end of what follows.
struct Switching {
    response: Response<()>,
    target: Tunnel,
}

impl<U: Upstream> Pipeline<U> {
    /// A pipeline that sends through `upstream`, as much at a time as `overload` allows.
    pub fn new(upstream: U, recorder: Arc<dyn Recorder>, overload: Overload) -> Self {
        let challenges = Challenges::default();
        Self { upstream, recorder, overload, drain: Drain::default(), aside: None, current: None, challenges }
    }

    /// Asks what was switched to other protocols to end; exchanges end by themselves.
    pub fn drain(&self) {
        self.drain.begin();
    }

    /// Whatever is still under way is ended now.
    pub fn end(&self) {
        self.drain.end();
    }

    /// The way out, for a test to change.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn upstream_mut(&mut self) -> &mut U {
        &mut self.upstream
    }

    /// The way out, for the stream pipeline.
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// Serves one exchange from its head to its record.
    pub async fn serve<D: Downstream>(
        &self,
        snapshot: &Snapshot,
        exchange: Box<Exchange>,
        downstream: &mut D,
    ) -> Delivery {
        let mut end = ExchangeEnding::new(self.recorder.as_ref(), &self.drain, exchange, Some(snapshot));
        let mut reached = Reached::NONE;
        let answered = {
            let answering = pin!(self.answer(snapshot, &mut end, &mut reached, downstream));
            guarded(answering).await
        };
        if let Some(fork) = end.exchange.take_detached() {
            self.hand_aside(fork);
        }
        match answered {
            Ok(Ok(())) => {}
            Ok(Err(reply)) => end.answer = Some(end.reply(*reply)),
            Err(Panicked) => end.answer = Some(self.panicked(&mut end)),
        }
        if let Some(route) = end.route.filter(|route| route.chain.has_response_seats()) {
            let around = Around { state: route, consumers: &snapshot.consumers, target: end.target };
            self.attend_response(&mut end, &route.chain, around, reached).await;
            if end.exchange.takes_again() {
                Box::pin(self.ask_again(snapshot, route, &mut end, reached, downstream)).await;
            }
        }
        end.keep_client();
        if let Some(switching) = switching(&mut end, &snapshot.settings.logged_headers) {
            return Box::pin(self.switch(snapshot, end, switching, downstream)).await;
        }
        // Nothing is awaited while the response is at hand, so that no future has to hold it.
        let (until, sending) = {
            let mut response = match end.answer.take() {
                Some(response) => response,
                None => self.panicked(&mut end),
            };
            end.answered(&response, &snapshot.settings.logged_headers);
            (Sending::of(&end, &mut response, self.current.as_ref()), downstream.respond(response))
        };
        let delivery = delivery::respond(until, pin!(sending)).await;
        end.delivered(delivery)
    }

    /// Answers a request the adapter could not make an exchange of, so that it is recorded like any other.
    pub async fn refuse<D: Downstream>(
        &self,
        snapshot: &Snapshot,
        exchange: Box<Exchange>,
        reply: Reply,
        downstream: &mut D,
    ) -> Delivery {
        let mut end = ExchangeEnding::new(self.recorder.as_ref(), &self.drain, exchange, Some(snapshot));
        let response = end.reply(reply);
        end.status = Some(response.status());
        end.delivered(downstream.respond(response).await)
    }

    /// Records a request nobody waits for any more.
    pub fn abandon(&self, exchange: Box<Exchange>, cause: Cause) {
        let mut end = ExchangeEnding::new(self.recorder.as_ref(), &self.drain, exchange, None);
        end.cause = Some(cause);
    }

    /// A hook or an engine panicked: that costs this exchange only.
    fn panicked(&self, end: &mut ExchangeEnding<'_>) -> Response<Body> {
        self.recorder.panicked();
        end.reply(Reply::new(Cause::Internal))
    }

    /// Runs the response hooks, within the exchange's time. What they answer instead is what ended the exchange.
    #[inline(never)]
    async fn attend_response(
        &self,
        end: &mut ExchangeEnding<'_>,
        chain: &Chain,
        around: Around<'_>,
        reached: Reached,
    ) {
        let deadline = end.deadline();
        let mut replaced = None;
        let attended = {
            // Where it is: a response is large to move.
            let ExchangeEnding { exchange, answer: Some(response), .. } = &mut *end else { return };
            let mut attending = pin!(chain.response(exchange, response, around, reached, &mut replaced));
            match deadline {
                None => guarded(attending).await.map(|()| true),
                Some(deadline) => {
                    let in_time = tokio::time::timeout_at(deadline, guarded(attending.as_mut())).await;
                    in_time.map_or(Ok(false), |attended| attended.map(|()| true))
                }
            }
        };
        let instead = match attended {
            Ok(true) => return end.cause = replaced.or(end.cause),
            Ok(false) => end.reply(Reply::new(Cause::TotalTimeout)),
            Err(Panicked) => self.panicked(end),
        };
        end.answer = Some(instead);
    }

    /// Hands both ends of an exchange that switched protocols to the stream side, and carries them to the end.
    async fn switch<D: Downstream>(
        &self,
        snapshot: &Snapshot,
        mut end: ExchangeEnding<'_>,
        Switching { response, mut target }: Switching,
        downstream: &mut D,
    ) -> Delivery {
        let (mut parts, ()) = response.into_parts();
        let (Some(route), Some(picked)) = (end.route, end.target) else {
            return Delivery { bytes: 0, cut: Some(Cause::Internal), ..Delivery::default() };
        };
        stream::make_readable(route, &mut parts.headers);
        let around = Around { state: route, consumers: &snapshot.consumers, target: Some(picked) };
        // The session has what the exchange knew; the exchange ends with its head handed on.
        route.chain.decide_session(&mut end.exchange);
        let mut session = Session::of_exchange(&mut end.exchange, route.chain.has_session_seats());
        let admitted = guarded(pin!(route.chain.connect(&mut session, around))).await;
        let refusal = match admitted {
            Ok(Ok(())) => None,
            Ok(Err(refusal)) => Some(Reply::new(refusal.cause).reason(refusal.reason)),
            Err(Panicked) => {
                self.recorder.panicked();
                Some(Reply::new(Cause::Internal))
            }
        };
        session.give_back(&mut end.exchange);
        if let Some(reply) = refusal {
            drop(target);
            let response = end.reply(reply);
            end.status = Some(response.status());
            return end.delivered(downstream.respond(response).await);
        }
        let Some(mut client) = downstream.upgrade(Response::from_parts(parts, ())).await else {
            return Delivery { bytes: 0, cut: Some(Cause::ClientGone), ..Delivery::default() };
        };
        let (flight, place) = (std::mem::take(&mut end.flight), end.place.take());
        end.finished = true;
        end.hand_over(&mut session);
        drop(end);
        let tunnelled = stream::Tunnelled {
            recorder: self.recorder.as_ref(),
            drain: &self.drain,
            current: self.current.clone(),
            chain: &route.chain,
            around,
            flight,
        };
        let ends = Switched { client: &mut client, target: &mut target };
        stream::tunnel(tunnelled, session, ends).await;
        drop(place);
        Delivery { bytes: 0, cut: None, ..Delivery::default() }
    }

    async fn answer<'s, D: Downstream>(
        &'s self,
        snapshot: &'s Snapshot,
        end: &mut ExchangeEnding<'s>,
        reached: &mut Reached,
        downstream: &mut D,
    ) -> Result<(), Box<Reply>> {
        let exchange = &mut end.exchange;
        // Known before anything is refused, so that a gRPC caller gets a gRPC status.
        exchange.dialect =
            Dialect::of(&exchange.request.method, &exchange.request.headers, exchange.upgrade.is_some());
        let Some(place) = self.overload.exchange() else {
            return Err(Box::new(Reply::new(Cause::Overloaded).header(RETRY_AFTER, A_SECOND)));
        };
        end.place = Some(place);
        self.challenged(&end.exchange)?;
        let matched = admit(snapshot, end)?;
        if !self.overload.admits(matched.route.proxy.load_priority) {
            return Err(Box::new(Reply::new(Cause::Overloaded).header(RETRY_AFTER, A_SECOND)));
        }
        if !end.exchange.body.is_at_hand() {
            let Some(expected) = self.overload.body(matched.route.proxy.load_priority) else {
                return Err(Box::new(Reply::new(Cause::Overloaded).header(RETRY_AFTER, A_SECOND)));
            };
            end.expected = Some(expected);
        }
        let deadline = end.deadline();
        until(deadline, pin!(self.through(snapshot, &matched, end, reached, downstream))).await
    }

    /// The chain, then the target.
    async fn through<'s, D: Downstream>(
        &'s self,
        snapshot: &'s Snapshot,
        matched: &Matched<'s>,
        end: &mut ExchangeEnding<'s>,
        reached: &mut Reached,
        downstream: &mut D,
    ) -> Result<(), Box<Reply>> {
        let route = matched.route;
        if end.exchange.client.is_early() {
            Box::pin(early::attend(&mut end.exchange, matched.rules.early_data)).await;
        }
        let around = Around { state: route, consumers: &snapshot.consumers, target: None };
        let before = end.exchange.deadline;
        let admitted = route.chain.request(&mut end.exchange, around, reached).await;
        if admitted.is_err() {
            end.exchange.note_decider(reached.place());
        }
        admitted?;
        if matched.is_preflight {
            // The plugin that answers preflights was kept from this one; its target takes no such method.
            return Err(Box::new(Reply::new(Cause::NoRoute)));
        }
        // A plugin may have made it shorter.
        let sooner = end.exchange.deadline.filter(|_| end.exchange.deadline != before);
        forwarding::forward(&mut end.exchange, &snapshot.settings, route)?;
        if let Some(hedger) = route.hedger.as_deref() {
            let hedged = Box::pin(self.attempt_hedged(snapshot, matched, hedger, end, downstream));
            return until(sooner, pin!(hedged)).await;
        }
        // On the heap of its own, and gone from there while the answer goes out: a slow download, a stream of events or
        // an exchange that switched protocols may last for hours.
        until(sooner, Box::pin(self.attempt(snapshot, matched, end, downstream)).as_mut()).await
    }

    /// Tries targets until one answers or nothing more may be tried. The answer is in `end`.
    async fn attempt<'s, D: Downstream>(
        &'s self,
        snapshot: &'s Snapshot,
        matched: &Matched<'s>,
        end: &mut ExchangeEnding<'s>,
        downstream: &mut D,
    ) -> Result<(), Box<Reply>> {
        let route = matched.route;
        let destination = Destination::of(route, snapshot, &end.exchange)?;
        let around = Around { state: route, consumers: &snapshot.consumers, target: None };
        let mut body = std::mem::take(&mut end.exchange.body);
        let method = end.exchange.request.method.clone();
        let mut attempts = matched.attempts(&end.exchange, &method);
        if attempts.holds(&body) {
            Box::pin(hold(&mut body, &mut end.exchange)).await?;
        }
        let mut tried: SmallVec<[usize; 4]> = SmallVec::new();
        loop {
            let pick = match destination.pick(&end.exchange, &tried) {
                Some(pick) => pick,
                None => Box::pin(destination.queued(&mut end.exchange, &tried)).await?,
            };
            let begun = Instant::now();
            attempts.begin();
            end.attempts = attempts.made();
            end.target = Some(pick.target);
            let index = pick.index;
            let attempt = Attempt { target: pick.target, number: attempts.made(), begun };
            let around = around.with_target(Some(pick.target));
            if route.chain.has_attempt_seats() {
                // On the heap, because few chains have one, and every exchange would pay for its size.
                Box::pin(route.chain.attempt(&mut end.exchange, attempt, around)).await?;
            }
            let replay = body.replay().filter(|_| !end.exchange.is_sent_once());
            let sent = matched.request_for(&end.exchange, pick.target)?;
            let pool_key = destination.pool_key(&pick);
            let call = matched.call(&end.exchange, &method, &sent, pick.target, begun, pool_key);
            downstream.asking();
            let pause = match self.upstream.send(&call, &mut body, downstream).await {
                Ok(mut answer) => {
                    let (status, first_byte) = (judged(&end.exchange, &answer), answer.first_byte);
                    route.chain.attempted(&mut end.exchange, attempt, answered(&answer), around);
                    let outcome = AttemptOutcome::Response { status, first_byte };
                    let now = end.exchange.answered_at(begun, &mut answer);
                    end.settle(pick.report(outcome, now));
                    end.first_byte = Some(first_byte);
                    end.tunnel = answer.tunnel;
                    let Some(pause) = attempts.after_status(status, replay.is_some()) else {
                        end.exchange.origin = Origin::Target;
                        from_target(end.take_answer(answer.response, begun));
                        end.cookie = destination.cookie(&end.exchange, index);
                        return Ok(());
                    };
                    body = replay.unwrap_or_default();
                    tried.push(index);
                    pause
                }
                Err(mut failure) => {
                    route.chain.attempted(&mut end.exchange, attempt, failed(&failure), around);
                    let again = failure.body.take().or(replay);
                    let elsewhere = || destination.has_untried(end.exchange.started, &tried, index);
                    let pause = attempts.after_failure(&failure, again.is_some(), elsewhere);
                    if !failure.stale || pause.is_none() {
                        tried.push(index);
                        end.settle_failure(pick, &failure);
                    }
                    end.failure = failure.source.take();
                    let Some(pause) = pause else { return Err(failure.into_reply()) };
                    body = again.unwrap_or_default();
                    pause
                }
            };
            if pause > Duration::ZERO {
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Waits for a body that a retry may need again. Its client was told to go on then, which no target has to do.
async fn hold(body: &mut Body, exchange: &mut Exchange) -> Result<(), Box<Reply>> {
    body.settle(MAX_HELD).await.map_err(BodyError::into_reply)?;
    exchange.request.headers.remove(EXPECT);
    Ok(())
}

/// The switch to another protocol, where the target agreed to one. One without the target's connection is refused.
fn switching(end: &mut ExchangeEnding<'_>, logged: &[HeaderName]) -> Option<Switching> {
    let status = end.answer.as_ref()?.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        if status.is_success() && end.exchange.is_switched_by_success() {
            end.answer = Some(end.reply(Reply::new(Cause::UpgradeRefused)));
        }
        return None;
    }
    match end.tunnel.take().zip(end.answer.take()) {
        Some((target, response)) => {
            end.answered(&response, logged);
            Some(Switching { response: response.map(drop), target })
        }
        None => {
            end.answer = Some(end.reply(Reply::new(Cause::UpgradeRefused)));
            None
        }
    }
}

/// Takes from a target's response what belonged to its hop.
fn from_target(response: &mut Response<Body>) {
    headers::strip(response.headers_mut(), MessageSource::Response);
    if response.status() == StatusCode::NO_CONTENT || response.status().is_informational() {
        // RFC 9110 §8.6: a length here would have some clients wait for a body, and others take the next answer for it; over HTTP/2 and
        // HTTP/3, a WebSocket's bytes would be counted against it.
        response.headers_mut().remove(http::header::CONTENT_LENGTH);
    }
}

#[cfg(test)]
mod tests;
