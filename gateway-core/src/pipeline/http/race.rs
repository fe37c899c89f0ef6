//! Attempts of one request that run beside each other: the first answer is taken, the others are given up.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use smallvec::SmallVec;
use tokio::time::{Instant, sleep_until};

use super::Pipeline;
use super::destination::Destination;
use super::detached::Nobody;
use super::ending::{ExchangeEnding, answered, failed, judged, note_failure};
use super::matched::{Matched, SentAs};
use crate::balance::{AttemptOutcome, Pick, Target};
use crate::http::body::Body;
use crate::http::dialect::Dialect;
use crate::http::downstream::Downstream;
use crate::http::exchange::Exchange;
use crate::http::forwarding::Forwarding;
use crate::http::retry::Attempts;
use crate::http::upstream::{Call, Failure, TargetResponse, Upstream};
use crate::limit::hedging::Hedger;
use crate::plugin::seat::{Around, Attempt, AttemptEnd};

/// An attempt that has begun.
pub(super) struct Begun<'s> {
    pub(super) pick: Pick<'s>,
    pub(super) number: u32,
    pub(super) at: Instant,
}

impl<'s> Begun<'s> {
    /// What plugins are told of it.
    fn attempt(&self) -> Attempt<'s> {
        Attempt { target: self.pick.target, number: self.number, begun: self.at }
    }
}

/// An attempt that is under way.
struct Runner<'s, 'f> {
    begun: Begun<'s>,
    sending: Pin<Box<dyn Future<Output = Result<TargetResponse, Failure>> + Send + 'f>>,
}

/// An attempt that has ended.
pub(super) struct Raced<'s> {
    pub(super) begun: Begun<'s>,
    pub(super) sent: Result<TargetResponse, Failure>,
}

/// What all attempts of an exchange have in common.
#[derive(Clone, Copy)]
pub(super) struct Course<'c, 's> {
    pub(super) hedger: &'s Hedger,
    pub(super) destination: &'c Destination<'s>,
    pub(super) matched: &'c Matched<'s>,
    pub(super) around: Around<'s>,
    /// The request's body.
    pub(super) body: &'c Bytes,
}

/// What changes from attempt to attempt.
pub(super) struct RaceState<'c, 's, 'a> {
    pub(super) end: &'c mut ExchangeEnding<'s>,
    pub(super) attempts: &'c mut Attempts<'a>,
    pub(super) tried: &'c mut SmallVec<[usize; 4]>,
}

/// What happens next in a race.
enum Event<T> {
    /// The attempt at this place has ended.
    Ended(usize, Box<Result<TargetResponse, Failure>>),
    /// What was waited for beside them is there.
    Beside(T),
}

/// A request as one target gets it, for itself: plugins may change the exchange for the next one meanwhile.
struct Copied<'s> {
    method: Method,
    path: String,
    host: HeaderValue,
    headers: HeaderMap,
    forwarding: Forwarding,
    matched: Matched<'s>,
    begun: Instant,
    chosen: Option<Arc<str>>,
    pool_key: u64,
    dialect: Dialect,
    trailers: bool,
    version: http::Version,
}

impl<'s> Copied<'s> {
    fn of(exchange: &Exchange, matched: &Matched<'s>, begun: &Begun<'s>, pool_key: u64) -> Self {
        let target = begun.pick.target;
        let path = matched.path(exchange, target.rules.path.as_deref());
        // Only HTTP is hedged.
        let sent = SentAs { path, cgi: None };
        let call = matched.call(exchange, exchange.method(), &sent, target, begun.at, pool_key);
        Self {
            method: call.method.clone(),
            host: call.host.clone(),
            headers: call.headers.clone(),
            forwarding: call.forwarding.clone(),
            matched: *matched,
            begun: begun.at,
            chosen: call.chosen.cloned(),
            pool_key,
            dialect: call.dialect,
            trailers: call.trailers,
            version: call.client_version,
            path: sent.path.into_owned(),
        }
    }
}

impl<U: Upstream> Pipeline<U> {
    /// Waits for an answer, and sends the request to further targets while there is none, as often as the rules and the
    /// budget allow. Says which attempt it was; what became of the others is reported.
    pub(super) async fn race<'s, D: Downstream>(
        &'s self,
        course: Course<'_, 's>,
        first: Begun<'s>,
        state: &mut RaceState<'_, 's, '_>,
        downstream: &mut D,
    ) -> Raced<'s> {
        let began = (first.number, first.at);
        course.hedger.begin(first.at);
        let mut at = Some(first.at + course.hedger.delay(first.at));
        let sending = self.run(course, &state.end.exchange, &first, downstream);
        let mut runners = vec![Runner { begun: first, sending }];
        let mut spare = None;
        let raced = loop {
            let event = match at {
                Some(at) => next(&mut runners, pin!(sleep_until(at))).await,
                None => next(&mut runners, pin!(pending())).await,
            };
            let event = match event {
                Event::Ended(place, sent) => Event::Ended(place, sent),
                Event::Beside(()) => {
                    at = None;
                    self.hedge(course, state, &mut runners).await
                }
            };
            match event {
                Event::Ended(place, sent) => {
                    let raced = Raced { begun: runners.swap_remove(place).begun, sent: *sent };
                    if let Some(last) = self.ended(course, state, raced, &runners, &mut spare) {
                        break last;
                    }
                }
                Event::Beside(None) => {}
                Event::Beside(Some(begun)) => {
                    state.end.exchange.note_hedges(|hedged| hedged.sent += 1);
                    let sending = self.run_aside(course, &state.end.exchange, &begun);
                    runners.push(Runner { begun, sending });
                    let now = Instant::now();
                    at = Some(now + course.hedger.delay(now));
                }
            }
        };
        self.settle_losers(course, state.end, runners, spare);
        if raced.sent.is_ok() {
            let now = Instant::now();
            course.hedger.took(now.saturating_duration_since(began.1), now);
            if raced.begun.number != began.0 {
                state.end.exchange.note_hedges(|hedged| hedged.won = Some(raced.begun.number));
            }
        }
        raced
    }

    /// Takes the end of an attempt; it is the last word where it is an answer that is passed on, or nobody else is left.
    fn ended<'s>(
        &self,
        course: Course<'_, 's>,
        state: &mut RaceState<'_, 's, '_>,
        raced: Raced<'s>,
        runners: &[Runner<'s, '_>],
        spare: &mut Option<Raced<'s>>,
    ) -> Option<Raced<'s>> {
        let status = raced.sent.as_ref().ok().map(|answer| judged(&state.end.exchange, answer));
        let is_good = status.is_some_and(|status| !state.attempts.wants_again(status));
        match (is_good || runners.is_empty(), spare.take()) {
            // An answer that would rather be tried again is better than none.
            (true, Some(answer)) if raced.sent.is_err() => {
                self.lost(course, state, raced);
                Some(answer)
            }
            (true, other) => {
                *spare = other;
                Some(raced)
            }
            (false, other) => {
                match status {
                    Some(_) => {
                        if let Some(other) = other {
                            self.lost(course, state, other);
                        }
                        state.tried.push(raced.begun.pick.index);
                        *spare = Some(raced);
                    }
                    None => {
                        *spare = other;
                        self.lost(course, state, raced);
                    }
                }
                None
            }
        }
    }

    /// Reports an attempt that ended and isn't taken.
    fn lost<'s>(&self, course: Course<'_, 's>, state: &mut RaceState<'_, 's, '_>, raced: Raced<'s>) {
        let Raced { begun: Begun { pick, number, at }, sent } = raced;
        let attempt = Attempt { target: pick.target, number, begun: at };
        let around = course.around.with_target(Some(pick.target));
        state.tried.push(pick.index);
        let chain = &course.matched.route.chain;
        let outcome = match &sent {
            Ok(answer) => {
                chain.attempted(&mut state.end.exchange, attempt, answered(answer), around);
                let status = judged(&state.end.exchange, answer);
                AttemptOutcome::Response { status, first_byte: answer.first_byte }
            }
            Err(failure) => {
                chain.attempted(&mut state.end.exchange, attempt, failed(failure), around);
                // A kept connection that had died says nothing about the target.
                if failure.stale {
                    AttemptOutcome::Cancelled
                } else {
                    note_failure(pick.target, failure, Instant::now())
                }
            }
        };
        self.report(pick, outcome);
    }

    /// Gives up what is still under way, and reports what ended and isn't taken.
    fn settle_losers<'s>(
        &self,
        course: Course<'_, 's>,
        end: &mut ExchangeEnding<'s>,
        runners: Vec<Runner<'s, '_>>,
        spare: Option<Raced<'s>>,
    ) {
        let chain = &course.matched.route.chain;
        if let Some(Raced { begun, sent: Ok(answer) }) = spare {
            let attempt = begun.attempt();
            let around = course.around.with_target(Some(begun.pick.target));
            chain.attempted(&mut end.exchange, attempt, answered(&answer), around);
            let status = judged(&end.exchange, &answer);
            self.report(begun.pick, AttemptOutcome::Response { status, first_byte: answer.first_byte });
        }
        for Runner { begun, sending } in runners {
            drop(sending);
            let attempt = begun.attempt();
            let around = course.around.with_target(Some(begun.pick.target));
            chain.attempted(&mut end.exchange, attempt, AttemptEnd::Cancelled, around);
            self.report(begun.pick, AttemptOutcome::Outrun { waited: begun.at.elapsed() });
        }
    }

    fn report(&self, pick: Pick<'_>, outcome: AttemptOutcome) {
        let target = pick.target;
        if let Some(change) = pick.report(outcome, Instant::now()).health {
            self.recorder.health(target, change);
        }
    }

    /// Begins another attempt, where there is a target for it and the budget has room. Those under way go on meanwhile; one
    /// of them may end before.
    async fn hedge<'s>(
        &'s self,
        course: Course<'_, 's>,
        state: &mut RaceState<'_, 's, '_>,
        runners: &mut [Runner<'s, '_>],
    ) -> Event<Option<Begun<'s>>> {
        let exchange = &mut state.end.exchange;
        if exchange.is_sent_once() || exchange.hedged().sent >= course.hedger.rules().max_hedges {
            return Event::Beside(None);
        }
        let running: SmallVec<[&Pick<'s>; 4]> = runners.iter().map(|runner| &runner.begun.pick).collect();
        let Some(pick) = course.destination.pick_beside(exchange, state.tried, &running) else {
            return Event::Beside(None);
        };
        drop(running);
        if !course.hedger.spend(Instant::now()) {
            exchange.note_hedges(|hedged| hedged.withheld = true);
            return Event::Beside(None);
        }
        state.attempts.begin_hedge();
        state.end.attempts = state.attempts.made();
        let begun = Begun { number: state.attempts.made(), at: Instant::now(), pick };
        let chain = &course.matched.route.chain;
        if !chain.has_attempt_seats() {
            return Event::Beside(Some(begun));
        }
        let attempt = begun.attempt();
        let around = course.around.with_target(Some(begun.pick.target));
        let admitted = {
            let attending = pin!(chain.attempt(&mut state.end.exchange, attempt, around));
            next(runners, attending).await
        };
        match admitted {
            Event::Ended(place, sent) => Event::Ended(place, sent),
            Event::Beside(Ok(())) => Event::Beside(Some(begun)),
            // A plugin refuses this attempt; those under way may still be answered.
            Event::Beside(Err(_)) => Event::Beside(None),
        }
    }

    fn run<'f, 's: 'f, D: Downstream>(
        &'s self,
        course: Course<'_, 's>,
        exchange: &Exchange,
        begun: &Begun<'s>,
        downstream: &'f mut D,
    ) -> Pin<Box<dyn Future<Output = Result<TargetResponse, Failure>> + Send + 'f>> {
        let pool_key = course.destination.pool_key(&begun.pick);
        let copied = Copied::of(exchange, course.matched, begun, pool_key);
        let target: &'s Target = begun.pick.target;
        let body = Body::full(course.body.clone());
        Box::pin(async move { self.send_copy(copied, target, body, downstream).await })
    }

    /// The same for a hedge, whose informational responses nobody gets.
    fn run_aside<'s>(
        &'s self,
        course: Course<'_, 's>,
        exchange: &Exchange,
        begun: &Begun<'s>,
    ) -> Pin<Box<dyn Future<Output = Result<TargetResponse, Failure>> + Send + 's>> {
        let pool_key = course.destination.pool_key(&begun.pick);
        let copied = Copied::of(exchange, course.matched, begun, pool_key);
        let target: &'s Target = begun.pick.target;
        let body = Body::full(course.body.clone());
        Box::pin(async move { self.send_copy(copied, target, body, &mut Nobody).await })
    }

    async fn send_copy<'s, D: Downstream>(
        &'s self,
        copied: Copied<'s>,
        target: &'s Target,
        mut body: Body,
        downstream: &mut D,
    ) -> Result<TargetResponse, Failure> {
        let proxy = &copied.matched.route.proxy;
        let call = Call {
            backend: &proxy.backend,
            timeouts: &proxy.timeouts,
            target,
            chosen: copied.chosen.as_ref(),
            pool_key: copied.pool_key,
            method: &copied.method,
            path: &copied.path,
            host: &copied.host,
            headers: &copied.headers,
            forwarding: &copied.forwarding,
            begun: copied.begun,
            dialect: copied.dialect,
            trailers: copied.trailers,
            upgrade: None,
            client_version: copied.version,
            cgi: None,
        };
        self.upstream.send(&call, &mut body, downstream).await
    }
}

/// Waits for the first of the attempts to end, or for something beside them.
async fn next<T>(runners: &mut [Runner<'_, '_>], mut beside: Pin<&mut impl Future<Output = T>>) -> Event<T> {
    poll_fn(|cx| {
        for (place, runner) in runners.iter_mut().enumerate() {
            if let Poll::Ready(sent) = runner.sending.as_mut().poll(cx) {
                return Poll::Ready(Event::Ended(place, Box::new(sent)));
            }
        }
        beside.as_mut().poll(cx).map(Event::Beside)
    })
    .await
}
