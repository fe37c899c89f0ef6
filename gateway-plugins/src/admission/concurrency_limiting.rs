//! Limits how many requests, WebSockets and streams a caller has under way at a time.
//!
//! A place is taken when a request or session begins and comes back when it ends, however it ends: with the last byte of
//! the response, with an error, with a client that goes away, and for a WebSocket when it closes. Who finds no place is
//! refused, or waits in line (`max_waiting`, first come, first served) for up to `max_wait`. With `adaptive` the limit
//! follows the latency of the targets.
//!
//! Taking and giving back a place takes no lock unless somebody waits. Memory is fixed: 16 bytes for each of `max_keys`,
//! and what waits. It runs after the caller is known; `before: key_auth` (or another authentication plugin) on the plugin
//! config puts a limit by address in front of that.

mod adaptive;
pub(in crate::admission) mod places;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Family, Foreseen, Foresight, Gate, Hooks, Need, Needs, OnConnect, OnRequest, OnResponse, Plugin, Refusal,
    Seat, Step, Verdict, World,
};
use gateway_core::stream::session::Session;
use gateway_plugin_common::caller_key::{CountedProxy, KeyBy, Keyed};
use http::header::RETRY_AFTER;
use http::{HeaderValue, Response, StatusCode};
use tokio::time::Instant;

use adaptive::Adaptive;
use places::{Entering, LimitReached, Limiter, Permit, PermitTable, PermitWait};
use settings::Config;

/// The plugin.
pub(crate) struct ConcurrencyLimiting {
    limiter: Arc<Limiter>,
    key_by: KeyBy,
    adaptive: Option<Adaptive>,
    max_wait: Duration,
    status: StatusCode,
    retry_after: HeaderValue,
    dry_run: bool,
    counts: Counts,
}

struct Counts {
    accepted: Counter,
    waited: Counter,
    limited: Counter,
    no_room: Counter,
}

/// What an exchange keeps to its end.
struct ExchangePermit {
    /// Gives the place back when dropped.
    _permit: Permit,
    /// When the place was taken; only where the limit follows the latency.
    begun: Option<Instant>,
}

const REQUESTS: Metric = Metric::counter(
    "ferrum_concurrency_limiting_requests_total",
    "Requests and sessions by outcome: accepted, waited (accepted after waiting), limited (would_limit in a dry run), \
           no_room (more keys in use than `max_keys`).",
);
const LIMIT: Metric =
    Metric::gauge("ferrum_concurrency_limiting_limit", "Places of each key; changes with `adaptive`.");

impl Plugin for ConcurrencyLimiting {
    const NAME: &'static str = "concurrency_limiting";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Limits how many requests and sessions a caller has under way at a time.";
    const EXAMPLE: &'static str = include_str!("../../examples/concurrency_limiting.yaml");
    const NEEDS: &'static [Needs] = &[Needs::new("max_wait", Need::Given(&["max_waiting"]))];
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let checked = settings::read(&config, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count =
            |outcome| world.meters().counter(REQUESTS, &["plugin_config", "outcome"], &[owner, outcome]);
        let keys = usize::try_from(config.max_keys).unwrap_or(usize::MAX);
        let places = world.kept(&format!("places for {keys}"), || PermitTable::new(keys));
        let limit = checked.adaptive.as_ref().map_or(checked.max_concurrent, |rules| rules.initial);
        let gauge = world.meters().gauge(LIMIT, &["plugin_config"], &[owner]);
        let limiter = Limiter::new(places, limit, checked.max_waiting, gauge);
        Ok(Self {
            limiter: Arc::new(limiter),
            key_by: checked.key_by,
            adaptive: checked.adaptive.map(|rules| Adaptive::new(rules, Instant::now())),
            max_wait: config.max_wait.duration(),
            status: StatusCode::from_u16(config.status_code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
            retry_after: HeaderValue::from(config.retry_after.0),
            dry_run: config.dry_run,
            counts: Counts {
                accepted: count("accepted"),
                waited: count("waited"),
                limited: count(if config.dry_run { "would_limit" } else { "limited" }),
                no_room: count("no_room"),
            },
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        self.key_by.attend(hooks);
        hooks.on_connect(self.clone());
        hooks.on_request(self.clone());
        if self.adaptive.is_some() {
            hooks.on_response(self);
        }
    }

    fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        if let Some(unknown) = self.key_by.foresee_unknown(foresight) {
            return Some(unknown);
        }
        let hasher = self.limiter.hasher();
        let key = match self.key_by.of_exchange(foresight.exchange, foresight.seat.proxy(), hasher) {
            Keyed::Key(key) => key,
            Keyed::Nobody => return Some(Foreseen::Passes("it is not counted".into())),
            Keyed::Denied => {
                let why = "the request lacks what it is counted by";
                return Some(Foreseen::refuses(key_missing(), why, self.dry_run));
            }
        };
        let standing = self.limiter.look(key);
        let said = format!("{} of {} places are taken", standing.taken, standing.limit);
        Some(match standing.passed {
            true => Foreseen::Passes(said),
            false => Foreseen::refuses(self.refusal(), said, self.dry_run),
        })
    }
}

impl OnRequest for ConcurrencyLimiting {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let hasher = self.limiter.hasher();
        let key = match self.key_by.of_exchange(exchange, seat.proxy(), hasher) {
            Keyed::Key(key) => key,
            Keyed::Nobody => return Step::Next,
            Keyed::Denied => return self.deny(exchange),
        };
        match self.limiter.enter(key, !self.dry_run) {
            Entering::In(permit) => {
                self.counts.accepted.add(1);
                self.hold(exchange, seat, permit);
                Step::Next
            }
            Entering::Line(waiting) => Step::wait(self.wait(exchange, seat, waiting)),
            Entering::Refused(why) => match self.refuse(why) {
                Some(reply) => Step::reply(reply),
                None => {
                    exchange.note("concurrency_limiting.would_limit", true);
                    Step::Next
                }
            },
        }
    }
}

impl OnResponse for ConcurrencyLimiting {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let from_target = exchange.is_from_target();
        let held = exchange.state.of_mut::<ExchangePermit>(seat);
        let begun = held.and_then(|held| held.begun.take());
        if let (Some(begun), Some(adaptive)) = (begun, &self.adaptive) {
            let failed = !from_target && response.status().is_server_error();
            // A refusal of another plugin's says nothing about the target.
            if from_target || failed {
                let now = Instant::now();
                let peak = self.limiter.peak();
                if let Some(limit) = adaptive.observe(now - begun, failed, peak, now) {
                    self.limiter.set_limit(limit);
                }
            }
        }
        Step::Next
    }
}

impl OnConnect for ConcurrencyLimiting {
    fn on_connect<'a>(&'a self, session: &'a mut Session, seat: Seat<'a>) -> Gate<'a> {
        // A WebSocket keeps the place of the request it began with.
        if session.head.is_some() {
            return Gate::Open;
        }
        match self.connect(session, seat.proxy().into()) {
            Admission::Free => Gate::Open,
            Admission::Held(permit) => {
                session.state.put(seat, permit);
                Gate::Open
            }
            Admission::Line(waiting) => Gate::Wait(Box::pin(async move {
                let permit = self.waited(waiting).await.ok_or(LIMITED)?;
                session.state.put(seat, permit);
                Ok(())
            })),
            Admission::Refused(refusal) => Gate::Refuse(refusal),
        }
    }
}

fn key_missing() -> Reply {
    let reply = Reply::new(Cause::Forbidden).detail("the request lacks what it is counted by");
    reply.reason("concurrency_limit_key_missing")
}

const LIMITED: Refusal = Refusal { reason: "too_many_under_way", cause: Cause::TooManyRequests };

/// What becomes of a session.
#[derive(Debug)]
enum Admission {
    Free,
    Held(Permit),
    Line(PermitWait),
    Refused(Refusal),
}

impl ConcurrencyLimiting {
    fn hold(&self, exchange: &mut Exchange, seat: Seat<'_>, permit: Permit) {
        let begun = self.adaptive.is_some().then(Instant::now);
        exchange.state.put(seat, ExchangePermit { _permit: permit, begun });
    }

    async fn wait(&self, exchange: &mut Exchange, seat: Seat<'_>, waiting: PermitWait) -> Verdict {
        match self.waited(waiting).await {
            Some(permit) => {
                self.hold(exchange, seat, permit);
                Verdict::Next
            }
            None => Verdict::reply(self.refusal()),
        }
    }

    /// The place that was waited for; `None` when none came in time.
    async fn waited(&self, waiting: PermitWait) -> Option<Permit> {
        let permit = tokio::time::timeout(self.max_wait, waiting).await.ok().flatten();
        if permit.is_some() { &self.counts.waited } else { &self.counts.limited }.add(1);
        permit
    }

    /// The refusal; `None` in a dry run.
    fn refuse(&self, why: LimitReached) -> Option<Reply> {
        if why == LimitReached::NoRoom { &self.counts.no_room } else { &self.counts.limited }.add(1);
        (!self.dry_run).then(|| self.refusal())
    }

    fn refusal(&self) -> Reply {
        Reply::new(Cause::TooManyRequests)
            .status(self.status)
            .reason(LIMITED.reason)
            .detail("too many requests are under way")
            .header(RETRY_AFTER, self.retry_after.clone())
    }

    fn deny(&self, exchange: &mut Exchange) -> Step<'_> {
        self.counts.limited.add(1);
        if self.dry_run {
            exchange.note("concurrency_limiting.would_limit", true);
            return Step::Next;
        }
        Step::reply(key_missing())
    }

    fn connect(&self, session: &mut Session, proxy: CountedProxy<'_>) -> Admission {
        let key = match self.key_by.of_session(session, proxy, self.limiter.hasher()) {
            Keyed::Key(key) => key,
            Keyed::Nobody => return Admission::Free,
            Keyed::Denied => {
                self.counts.limited.add(1);
                return self.refused(session, Refusal::new("concurrency_limit_key_missing"));
            }
        };
        match self.limiter.enter(key, !self.dry_run) {
            Entering::In(permit) => {
                self.counts.accepted.add(1);
                Admission::Held(permit)
            }
            Entering::Line(waiting) => Admission::Line(waiting),
            Entering::Refused(why) => {
                if why == LimitReached::NoRoom { &self.counts.no_room } else { &self.counts.limited }.add(1);
                self.refused(session, LIMITED)
            }
        }
    }

    fn refused(&self, session: &mut Session, refusal: Refusal) -> Admission {
        if self.dry_run {
            session.note("concurrency_limiting.would_limit", true);
            return Admission::Free;
        }
        Admission::Refused(refusal)
    }
}

#[cfg(test)]
mod tests;
