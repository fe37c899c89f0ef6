//! Limits how often callers may come: by address, consumer, group, header, cookie, claim, route or a template of these.
//!
//! Each limit is a rate with a burst, counted by GCRA: what is used comes back evenly, and there is no moment at which a
//! whole window is free again. A request passes when every limit has room, and takes from all or none of them. It runs
//! after the caller is known; `before: key_auth` (or another authentication plugin) on the plugin config puts a limit by
//! address in front of that. WebSockets count as the request they begin with, TCP and UDP sessions count when they begin.
//!
//! Memory is fixed: 32 bytes for each of `max_keys` under each limit. More keys than that take the places of those whose
//! allowance is whole first. What was counted survives a change of other settings.

mod answer;
mod foreseen;
mod leases;
mod settings;
mod together;

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Family, Foreseen, Foresight, Gate, Hooks, Need, Needs, OnConnect, OnRequest, OnResponse, Plugin, Refusal,
    Seat, Starter, Step, Verdict, World,
};
use gateway_core::stream::session::Session;
use gateway_plugin_common::caller_key::{CountedProxy, KeyBy, Keyed};
use gateway_plugin_common::statuses::Statuses;
use http::{HeaderValue, Response, StatusCode};
use tokio::time::Instant;

use crate::admission::limit_headers::LimitHeaders;
use crate::admission::rate_table::{Standing, Table};
use answer::CountedExchange;
use settings::{Config, Costs, Count, Limit, Limits};
use together::FirstDecision;

/// The plugin.
pub(crate) struct RateLimiting {
    limits: Box<[Limit]>,
    key_by: KeyBy,
    table: Arc<Table>,
    count: Count,
    failures: Statuses,
    costs: Costs,
    fields: LimitHeaders,
    policy: HeaderValue,
    status: StatusCode,
    dry_run: bool,
    accepted: Counter,
    limited: Counter,
    shared: Option<together::Together>,
}

const REQUESTS: Metric = Metric::counter(
    "ferrum_rate_limiting_requests_total",
    "Requests and sessions by whether they were accepted or limited (would have been, in a dry run).",
);
const EVICTED: Metric = Metric::counter(
    "ferrum_rate_limiting_evicted_total",
    "Keys evicted while they still counted, because more than `max_keys` were in use.",
);

impl Plugin for RateLimiting {
    const NAME: &'static str = "rate_limiting";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Limits how often callers may come, under several limits at a time.";
    const EXAMPLE: &'static str = include_str!("../../examples/rate_limiting.yaml");
    const NEEDS: &'static [Needs] = &[Needs::new("failure_statuses", Need::Is("count", "failures"))];
    type Config = Config;

    fn build(mut config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let Limits { limits, key_by, failures, status, costs, lease } =
            settings::read(&mut config, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let requests =
            |outcome| world.meters().counter(REQUESTS, &["plugin_config", "outcome"], &[owner, outcome]);
        let evicted = world.meters().counter(EVICTED, &["plugin_config"], &[owner]);
        let entries = usize::try_from(config.max_keys).unwrap_or(usize::MAX).saturating_mul(limits.len());
        // A table of another size begins anew.
        let make = || Table::new(entries, Instant::now(), evicted);
        let table = world.kept(&format!("table of {entries}"), make);
        let shared = config.redis.take().map(|redis| {
            let leases = lease.map(|lease| (usize::try_from(config.max_keys).unwrap_or(usize::MAX), lease));
            together::Together::new(&redis, world, &limits, leases)
        });
        Ok(Self {
            shared,
            policy: answer::policy(&limits),
            limits,
            key_by,
            table,
            count: config.count,
            failures,
            costs,
            fields: config.headers,
            status,
            dry_run: config.dry_run,
            accepted: requests("accepted"),
            limited: requests(if config.dry_run { "would_limit" } else { "limited" }),
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        self.key_by.attend(hooks);
        self.costs.attend(hooks);
        // What nothing of a stream would ever count for does nothing there, and is refused.
        if self.count == Count::All && self.key_by.counts_sessions() {
            hooks.on_connect(self.clone());
        }
        hooks.on_request(self.clone());
        if self.sees_responses() {
            hooks.on_response(self);
        }
    }

    fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        Some(foreseen::foresee(self, foresight))
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        if let Some(shared) = &self.shared {
            let limits = shared.limits.clone();
            starter.task("redis", move |control| limits.clone().run(control));
        }
    }
}

impl OnRequest for RateLimiting {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let proxy = seat.proxy();
        let keyed = match &self.shared {
            Some(shared) => self.key_by.of_exchange(exchange, proxy, shared.limits.hasher()),
            None => self.key_by.of_exchange(exchange, proxy, self.table.hasher()),
        };
        let key = match keyed {
            Keyed::Key(key) => key,
            Keyed::Nobody => return Step::Next,
            Keyed::Denied => return self.deny(exchange),
        };
        let cost = self.costs.of(exchange);
        let Some(shared) = &self.shared else {
            let counted = self.admit(key, cost, exchange.started);
            return self
                .settle(exchange, seat, LimitOutcome::Counted(counted))
                .map_or(Step::Next, Step::reply);
        };
        match shared.at_once(self, key, cost, exchange.started) {
            FirstDecision::Outcome(outcome) => {
                self.settle(exchange, seat, outcome).map_or(Step::Next, Step::reply)
            }
            FirstDecision::Ask(most) => Step::wait(async move {
                let counted = shared.ask(self, key, cost, most, exchange.started).await;
                self.settle(exchange, seat, counted).map_or(Verdict::Next, Verdict::reply)
            }),
        }
    }
}

/// What came of counting.
enum LimitOutcome {
    /// It was counted.
    Counted(CountedExchange),
    /// It could not be counted, and passes.
    Passes,
    /// It could not be counted, and does not pass.
    Unavailable,
}

impl OnResponse for RateLimiting {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        // What a reply of the gateway's own says is no target's.
        let said = self.costs.said(response.headers_mut()).filter(|_| exchange.is_from_target());
        let Some(counted) = exchange.state.of_mut::<CountedExchange>(seat) else { return Step::Next };
        // A refusal of this plugin's own is no failure, or a caller that keeps asking would stay out for ever.
        if self.count == Count::Failures && counted.passed && !counted.charged && self.is_failure(response) {
            counted.charged = true;
            self.charge(counted, said.unwrap_or(0).max(counted.cost));
        } else if let Some(said) = said.filter(|said| *said > counted.cost)
            && self.count == Count::All
            && counted.passed
        {
            self.charge(counted, said - counted.cost);
        }
        if !self.dry_run {
            let (tightest, standing) = counted.tightest;
            answer::write(
                self.fields,
                &self.policy,
                &self.limits,
                tightest,
                standing,
                response.headers_mut(),
            );
        }
        Step::Next
    }
}

impl OnConnect for RateLimiting {
    fn on_connect<'a>(&'a self, session: &'a mut Session, seat: Seat<'a>) -> Gate<'a> {
        let proxy = seat.proxy();
        let Some(shared) = self.shared.as_ref().filter(|_| self.counts(session)) else {
            return self.connect(session, proxy.into()).map_or(Gate::Open, Gate::Refuse);
        };
        let key = match self.key_by.of_session(session, proxy, shared.limits.hasher()) {
            Keyed::Key(key) => key,
            other => return self.keyed(session, other).map_or(Gate::Open, Gate::Refuse),
        };
        Gate::Wait(Box::pin(async move {
            let cost = self.costs.of_session();
            let outcome = match shared.at_once(self, key, cost, session.started) {
                FirstDecision::Outcome(outcome) => outcome,
                FirstDecision::Ask(most) => shared.ask(self, key, cost, most, session.started).await,
            };
            let passed = match outcome {
                LimitOutcome::Counted(counted) => counted.passed,
                LimitOutcome::Passes => true,
                LimitOutcome::Unavailable => false,
            };
            self.connected(session, (!passed).then_some("rate_limited")).map_or(Ok(()), Err)
        }))
    }
}

impl RateLimiting {
    fn sees_responses(&self) -> bool {
        self.count == Count::Failures
            || self.costs.header.is_some()
            || (self.fields != LimitHeaders::None && !self.dry_run)
    }

    fn is_failure(&self, response: &Response<Body>) -> bool {
        let grpc = response.headers().get("grpc-status").is_some_and(|status| status.as_bytes() != b"0");
        grpc || self.failures.has(response.status().as_u16())
    }

    fn deny(&self, exchange: &mut Exchange) -> Step<'_> {
        self.limited.add(1);
        if self.dry_run {
            exchange.note("rate_limiting.would_limit", true);
            return Step::Next;
        }
        Step::reply(answer::key_missing())
    }

    /// A WebSocket was counted as its request; a session has no status by which it could fail.
    fn counts(&self, session: &Session) -> bool {
        session.head.is_none() && self.count == Count::All
    }

    fn connect(&self, session: &mut Session, proxy: CountedProxy<'_>) -> Option<Refusal> {
        if !self.counts(session) {
            return None;
        }
        let keyed = self.key_by.of_session(session, proxy, self.table.hasher());
        self.keyed(session, keyed)
    }

    fn keyed(&self, session: &mut Session, keyed: Keyed) -> Option<Refusal> {
        let refused = match keyed {
            Keyed::Key(key) => {
                let counted = self.admit(key, self.costs.of_session(), session.started);
                (!counted.passed).then_some("rate_limited")
            }
            Keyed::Nobody => return None,
            Keyed::Denied => Some("rate_limit_key_missing"),
        };
        self.connected(session, refused)
    }

    fn connected(&self, session: &mut Session, refused: Option<&'static str>) -> Option<Refusal> {
        let Some(reason) = refused else {
            self.accepted.add(1);
            return None;
        };
        self.limited.add(1);
        if self.dry_run {
            session.note("rate_limiting.would_limit", true);
            return None;
        }
        Some(Refusal { reason, cause: Cause::TooManyRequests })
    }

    /// The refusal, where what was counted leaves no room.
    fn settle(&self, exchange: &mut Exchange, seat: Seat<'_>, outcome: LimitOutcome) -> Option<Reply> {
        let reply = match outcome {
            LimitOutcome::Passes => {
                self.accepted.add(1);
                return None;
            }
            LimitOutcome::Unavailable => {
                Reply::new(Cause::Overloaded).reason("rate_limit_store_away").detail("retry later")
            }
            LimitOutcome::Counted(counted) => {
                let (passed, retry_in) = (counted.passed, counted.retry_in);
                if self.sees_responses() {
                    exchange.state.put(seat, counted);
                }
                if passed {
                    self.accepted.add(1);
                    return None;
                }
                answer::refusal(self.status, retry_in)
            }
        };
        self.limited.add(1);
        if self.dry_run {
            exchange.note("rate_limiting.would_limit", true);
            return None;
        }
        Some(reply)
    }

    /// Takes so many from every limit, whatever is left.
    fn charge(&self, counted: &mut CountedExchange, many: u64) {
        let now = Instant::now();
        if !self.shared.as_ref().is_some_and(|shared| shared.charge(counted.key, many)) {
            self.limits.iter().for_each(|limit| self.table.charge(counted.key, limit.rule, many, now));
            counted.tightest = self.tightest(counted.key, now);
        }
    }

    /// Takes from every limit, or from none.
    fn admit(&self, key: u64, cost: u64, now: Instant) -> CountedExchange {
        let mut tightest: Option<(usize, Standing)> = None;
        for (n, limit) in self.limits.iter().enumerate() {
            let standing = match self.count {
                Count::All => self.table.take(key, limit.rule, cost, now),
                Count::Failures => self.table.look(key, limit.rule, cost, now),
            };
            if !standing.passed {
                if self.count == Count::All {
                    self.limits
                        .iter()
                        .take(n)
                        .for_each(|taken| self.table.refund(key, taken.rule, cost, now));
                }
                let retry_in = self.longest_wait(key, cost, now).max(standing.retry_in);
                return CountedExchange {
                    key,
                    cost,
                    passed: false,
                    charged: false,
                    tightest: (n, standing),
                    retry_in,
                };
            }
            if tightest.is_none_or(|(_, other)| standing.remaining < other.remaining) {
                tightest = Some((n, standing));
            }
        }
        let tightest = tightest.unwrap_or_else(|| self.tightest(key, now));
        CountedExchange { key, cost, passed: true, charged: false, tightest, retry_in: tightest.1.retry_in }
    }

    /// Until every limit has room.
    fn longest_wait(&self, key: u64, cost: u64, now: Instant) -> std::time::Duration {
        let waits = self.limits.iter().map(|limit| self.table.look(key, limit.rule, cost, now).retry_in);
        waits.max().unwrap_or_default()
    }

    /// The limit with the least left.
    fn tightest(&self, key: u64, now: Instant) -> (usize, Standing) {
        let all = self.limits.iter().map(|limit| self.table.look(key, limit.rule, 1, now)).enumerate();
        all.min_by_key(|(_, standing)| standing.remaining).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
