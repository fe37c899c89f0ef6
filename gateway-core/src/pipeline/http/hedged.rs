//! The attempts of an exchange whose proxy hedges.

use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::destination::Destination;
use super::ending::{ExchangeEnding, answered, failed, judged};
use super::matched::Matched;
use super::race::{Begun, Course, RaceState, Raced};
use super::{Pipeline, from_target};
use crate::balance::AttemptOutcome;
use crate::config::model::Hedging;
use crate::http::body::{Body, BodyError};
use crate::http::dialect::Dialect;
use crate::http::downstream::Downstream;
use crate::http::exchange::Exchange;
use crate::http::reply::{Origin, Reply};
use crate::http::upstream::Upstream;
use crate::limit::hedging::Hedger;
use crate::plugin::seat::{Around, Attempt};
use crate::snapshot::Snapshot;

impl<U: Upstream> Pipeline<U> {
    /// As [`Pipeline::attempt`] for a proxy that hedges: attempts may run beside each other where the request may be sent
    /// twice and there are several targets.
    pub(super) async fn attempt_hedged<'s, D: Downstream>(
        &'s self,
        snapshot: &'s Snapshot,
        matched: &Matched<'s>,
        hedger: &'s Hedger,
        end: &mut ExchangeEnding<'s>,
        downstream: &mut D,
    ) -> Result<(), Box<Reply>> {
        let route = matched.route;
        let destination = Destination::of(route, snapshot, &end.exchange)?;
        let mut body = std::mem::take(&mut end.exchange.body);
        let takes = !destination.is_alone()
            && takes(hedger.rules(), &end.exchange, &matched.path(&end.exchange, None), &body);
        let bytes = match takes {
            true => at_hand(&mut body, hedger.rules().max_body).await.map_err(BodyError::into_reply)?,
            false => None,
        };
        let Some(bytes) = bytes else {
            end.exchange.body = body;
            return Box::pin(self.attempt(snapshot, matched, end, downstream)).await;
        };
        let around = Around { state: route, consumers: &snapshot.consumers, target: None };
        let method = end.exchange.request.method.clone();
        let mut attempts = matched.attempts(&end.exchange, &method);
        let mut tried: SmallVec<[usize; 4]> = SmallVec::new();
        loop {
            let pick = match destination.pick(&end.exchange, &tried) {
                Some(pick) => pick,
                None => destination.queued(&mut end.exchange, &tried).await?,
            };
            attempts.begin();
            end.attempts = attempts.made();
            end.target = Some(pick.target);
            let at = Instant::now();
            if route.chain.has_attempt_seats() {
                let attempt = Attempt { target: pick.target, number: attempts.made(), begun: at };
                let around = around.with_target(Some(pick.target));
                route.chain.attempt(&mut end.exchange, attempt, around).await?;
            }
            let first = Begun { pick, number: attempts.made(), at };
            downstream.asking();
            let course = Course { hedger, destination: &destination, matched, around, body: &bytes };
            let mut state = RaceState { end: &mut *end, attempts: &mut attempts, tried: &mut tried };
            let raced = self.race(course, first, &mut state, downstream).await;
            match take(course, &mut state, raced)? {
                None => return Ok(()),
                Some(pause) if pause > Duration::ZERO => tokio::time::sleep(pause).await,
                Some(_) => {}
            }
        }
    }
}

/// Takes what a race brought; says how long to wait before another one, `None` where the answer is passed on.
fn take<'s>(
    course: Course<'_, 's>,
    state: &mut RaceState<'_, 's, '_>,
    Raced { begun, sent }: Raced<'s>,
) -> Result<Option<Duration>, Box<Reply>> {
    let Begun { pick, number, at } = begun;
    let RaceState { end, attempts, tried } = state;
    let chain = &course.matched.route.chain;
    let (index, attempt) = (pick.index, Attempt { target: pick.target, number, begun: at });
    let around = course.around.with_target(Some(pick.target));
    end.target = Some(pick.target);
    let may_repeat = !end.exchange.is_sent_once();
    match sent {
        Ok(mut answer) => {
            let (status, first_byte) = (judged(&end.exchange, &answer), answer.first_byte);
            chain.attempted(&mut end.exchange, attempt, answered(&answer), around);
            let now = end.exchange.answered_at(at, &mut answer);
            end.settle(pick.report(AttemptOutcome::Response { status, first_byte }, now));
            end.first_byte = Some(first_byte);
            let Some(pause) = attempts.after_status(status, may_repeat) else {
                end.exchange.origin = Origin::Target;
                from_target(end.take_answer(answer.response, at));
                end.cookie = course.destination.cookie(&end.exchange, index);
                return Ok(None);
            };
            tried.push(index);
            Ok(Some(pause))
        }
        Err(mut failure) => {
            chain.attempted(&mut end.exchange, attempt, failed(&failure), around);
            let elsewhere = || course.destination.has_untried(end.exchange.started, tried.as_slice(), index);
            let pause = attempts.after_failure(&failure, may_repeat || !failure.reached_wire, elsewhere);
            if !failure.stale || pause.is_none() {
                tried.push(index);
                end.settle_failure(pick, &failure);
            }
            end.failure = failure.source.take();
            pause.map(Some).ok_or_else(|| failure.into_reply())
        }
    }
}

/// Whether a request may be sent twice, once its body is at hand. `path` is what targets get.
fn takes(rules: &Hedging, exchange: &Exchange, path: &str, body: &Body) -> bool {
    if exchange.upgrade.is_some() || exchange.is_sent_once() {
        return false;
    }
    let length = body.exact_length();
    let is_wanted = if exchange.dialect == Dialect::Grpc {
        let path = path.split('?').next().unwrap_or(path);
        rules.grpc_methods.iter().any(|known| **known == *path)
    } else {
        rules.methods.contains(exchange.method()) && length.is_some()
    };
    is_wanted && length.is_none_or(|length| length <= rules.max_body)
}

/// The whole body, to be sent as often as wanted; `None` leaves it where it is larger than allowed.
async fn at_hand(body: &mut Body, limit: u64) -> Result<Option<Bytes>, BodyError> {
    body.settle(limit).await?;
    Ok(body.take_full().or_else(|| body.is_empty().then(Bytes::new)))
}
