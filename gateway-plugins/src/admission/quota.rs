//! Limits how much callers may ask for in a day, a week, a month or a fixed time, by the calendar in UTC.
//!
//! Each quota is a number of requests in a period; with the period it begins anew, for all callers at the same moment. A request
//! passes when every quota has room, and takes from all or none of them. What was used survives a restart: in Redis, together
//! with other gateways, or in a file. For how fast requests may come there is `rate_limiting`; a WebSocket counts as the request
//! it begins with.

pub(in crate::admission) mod period;
mod settings;
mod shared;
mod table;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Family, Foreseen, Foresight, Hooks, Need, Needs, OnRequest, OnResponse, Plugin, Seat, Starter, Step,
    Verdict, World,
};
use gateway_plugin_common::caller_key::{KeyBy, Keyed};
use gateway_plugin_common::redis_link::{OnError, RedisLink, Sha256};
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::admission::limit_headers::{self, LimitHeaders, Stand};
use crate::admission::usage_file::UsageFile;
use settings::{Config, Limit, Limits};
use shared::SharedQuotas;
use table::{Ask, Table};

/// The plugin.
pub(crate) struct Quota {
    limits: Box<[Limit]>,
    /// All quotas as `RateLimit-Policy` says them.
    policy: HeaderValue,
    key_by: KeyBy,
    cost: u64,
    table: Arc<Table>,
    /// Held for the next plugin of this config.
    _latest: Arc<Latest>,
    file: Option<Arc<UsageFile>>,
    shared: Option<Arc<SharedQuotas>>,
    fields: LimitHeaders,
    status: StatusCode,
    dry_run: bool,
    accepted: Counter,
    refused: Counter,
}

const REQUESTS: Metric = Metric::counter(
    "ferrum_quota_requests_total",
    "Requests by whether they were accepted or refused (would have been, in a dry run).",
);
const EVICTED: Metric = Metric::counter(
    "ferrum_quota_evicted_total",
    "Callers evicted during their quota period, because more than `max_keys` were in use.",
);
const FAILED: Metric =
    Metric::counter("ferrum_quota_file_errors_total", "Failures to write the file of quotas.");
const SHARED: Metric = Metric::counter(
    "ferrum_quota_shared_total",
    "Requests by how they were counted: shared, or during an outage of the store as local, allowed, denied.",
);

/// What became of a request.
enum QuotaOutcome {
    Counted(QuotaStanding),
    /// It could not be counted, and passes.
    Passes,
    /// It could not be counted, and does not pass.
    Unavailable,
}

/// How a caller stands.
#[derive(Debug, Clone, Copy)]
struct QuotaStanding {
    passed: bool,
    /// The quota with the least left, or the one that refused.
    tightest: usize,
    remaining: u64,
    /// Seconds until that quota begins anew.
    reset: u64,
    /// Seconds until a request could pass.
    retry_in: u64,
}

/// The table that is in use, so that one of another size takes over what it knows.
#[derive(Default)]
struct Latest(Mutex<Weak<Table>>);

impl Plugin for Quota {
    const NAME: &'static str = "quota";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Limits how much callers may ask for in a day, week, month or fixed time.";
    const EXAMPLE: &'static str = include_str!("../../examples/quota.yaml");
    const NEEDS: &'static [Needs] = &[Needs::new("save_interval", Need::Given(&["path"]))];
    type Config = Config;

    fn build(mut config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let Limits { limits, key_by, status, folder, save_interval, entries } =
            settings::read(&config, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count = |metric| world.meters().counter(metric, &["plugin_config"], &[owner]);
        let outcome = |metric, outcome| {
            world.meters().counter(metric, &["plugin_config", "outcome"], &[owner, outcome])
        };
        let file = folder.map(|folder| {
            let (world, path) = (world.clone(), folder.join(format!("{owner}.quota")));
            Arc::new(UsageFile { world, path, every: save_interval, failed: count(FAILED) })
        });
        if let Some(file) = &file {
            file.check_folder(world)?;
        }
        let latest = world.kept("latest", Latest::default);
        let table = table(world, &latest, entries, count(EVICTED), file.as_deref())?;
        let shared = config.redis.take().map(|redis| {
            Arc::new(SharedQuotas {
                link: Arc::new(RedisLink::new(&redis, world)),
                asked: outcome(SHARED, "shared"),
                local: outcome(SHARED, "local"),
                allowed: outcome(SHARED, "allowed"),
                denied: outcome(SHARED, "denied"),
            })
        });
        Ok(Self {
            policy: limit_headers::policy(limits.iter().map(|it| (&*it.name, it.most, it.period.seconds()))),
            limits,
            key_by,
            cost: config.cost,
            table,
            _latest: latest,
            file,
            shared,
            fields: config.headers,
            status,
            dry_run: config.dry_run,
            accepted: outcome(REQUESTS, "accepted"),
            refused: outcome(REQUESTS, if config.dry_run { "would_refuse" } else { "refused" }),
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        self.key_by.attend(hooks);
        hooks.on_request(self.clone());
        if self.fields != LimitHeaders::None && !self.dry_run {
            hooks.on_response(self);
        }
    }

    fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        if let Some(unknown) = self.key_by.foresee_unknown(foresight) {
            return Some(unknown);
        }
        let keyed = self.key_by.of_exchange(foresight.exchange, foresight.seat.proxy(), Sha256::default());
        let key = match keyed {
            Keyed::Key(key) => key,
            Keyed::Nobody => return Some(Foreseen::Passes("it is not counted".into())),
            Keyed::Denied => {
                let why = "the request lacks what it is counted by";
                return Some(Foreseen::refuses(key_missing(), why, self.dry_run));
            }
        };
        let now = unix_now();
        let asks = self.asks(key, now);
        let local = || asks.iter().map(|ask| self.table.used(*ask)).collect::<Vec<u64>>();
        let looked = self.shared.as_ref().map(|shared| (shared, shared.look_and_block(key, &asks)));
        let used = match looked {
            None => local(),
            Some((_, Some(Ok(used)))) if used.len() == asks.len() => used,
            Some((shared, Some(_))) => match shared.link.on_error() {
                OnError::Local => local(),
                OnError::Allow => {
                    let why = "Redis is unreachable, and `on_error: allow` lets requests pass";
                    return Some(Foreseen::Passes(why.into()));
                }
                OnError::Deny => {
                    let why = "Redis is unreachable, and `on_error: deny` refuses requests";
                    return Some(Foreseen::refuses(store_away(), why, self.dry_run));
                }
            },
            Some((_, None)) => {
                let why = "it is counted in Redis, which only a running gateway asks";
                return Some(Foreseen::Unknown(why.into()));
            }
        };
        let fits = |n: &usize| used[*n].saturating_add(self.cost) <= asks[*n].limit;
        let counted = self.counted(&asks, &used, (0..asks.len()).find(|n| !fits(n)), now);
        let name = self.limits.get(counted.tightest).map_or("", |limit| &limit.name);
        let said = format!("`{name}` has {} left and begins anew in {} s", counted.remaining, counted.reset);
        Some(match counted.passed {
            true => Foreseen::Passes(said),
            false => Foreseen::refuses(self.exhausted(counted), said, self.dry_run),
        })
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        if let Some(shared) = &self.shared {
            let link = shared.link.clone();
            starter.task("redis", move |control| link.clone().run(control));
        }
        if let Some(file) = &self.file {
            let (file, table) = (file.clone(), self.table.clone());
            starter.task("file", move |control| file.clone().keep(table.clone(), control));
        }
    }
}

/// The table of this plugin config, with what is known of earlier times.
fn table(
    world: &World,
    latest: &Latest,
    entries: usize,
    evicted: Counter,
    file: Option<&UsageFile>,
) -> Result<Arc<Table>, Problems> {
    let mut latest = latest.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut is_new = false;
    let table = world.kept(&format!("table of {entries}"), || {
        is_new = true;
        Table::new(entries, evicted)
    });
    if is_new {
        match (latest.upgrade(), file) {
            (Some(before), _) => table.take_over(&before, unix_now()),
            // A smaller table reads the file of a larger one as well.
            (None, Some(file)) => file.read_into(&*table, Table::most_bytes(entries).max(MOST_BYTES))?,
            (None, None) => {}
        }
    }
    *latest = Arc::downgrade(&table);
    Ok(table)
}

/// Bytes of the largest file that is ever written.
const MOST_BYTES: u64 = 256 << 20;

fn key_missing() -> Reply {
    let reply = Reply::new(Cause::Forbidden).detail("the request lacks what it is counted by");
    reply.reason("quota_key_missing")
}

fn store_away() -> Reply {
    Reply::new(Cause::Overloaded).reason("quota_store_away").detail("retry later")
}

/// Seconds since 1970.
fn unix_now() -> u64 {
    #[cfg(test)]
    if let Some(now) = tests::NOW.with(std::cell::Cell::get) {
        return now;
    }
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A key under a period.
fn id(key: u64, code: u64) -> u64 {
    // The finisher of SplitMix64: every bit of the input reaches every bit of the place.
    let mut mixed = key ^ code.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    mixed.max(1)
}

impl OnRequest for Quota {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        // The same on every gateway and after every restart.
        let keyed = self.key_by.of_exchange(exchange, seat.proxy(), Sha256::default());
        let key = match keyed {
            Keyed::Key(key) => key,
            Keyed::Nobody => return Step::Next,
            Keyed::Denied => return self.deny(exchange),
        };
        let now = unix_now();
        let asks = self.asks(key, now);
        match &self.shared {
            Some(shared) => Step::wait(async move {
                let outcome = self.ask(shared, key, &asks, now).await;
                self.settle(exchange, seat, outcome).map_or(Verdict::Next, Verdict::reply)
            }),
            None => {
                let counted = self.admit(&asks, now);
                self.settle(exchange, seat, QuotaOutcome::Counted(counted)).map_or(Step::Next, Step::reply)
            }
        }
    }
}

impl OnResponse for Quota {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        if let Some(counted) = exchange.state.of::<QuotaStanding>(seat) {
            self.say(*counted, response.headers_mut());
        }
        Step::Next
    }
}

impl Quota {
    fn deny(&self, exchange: &mut Exchange) -> Step<'_> {
        self.refused.add(1);
        if self.dry_run {
            exchange.note("quota.would_refuse", true);
            return Step::Next;
        }
        Step::reply(key_missing())
    }

    fn exhausted(&self, counted: QuotaStanding) -> Reply {
        let retry = HeaderValue::from(counted.retry_in.max(1));
        let reply = Reply::new(Cause::TooManyRequests).reason("quota_exhausted");
        let reply = reply.detail("the quota is used up").header(RETRY_AFTER, retry);
        if self.status == StatusCode::TOO_MANY_REQUESTS { reply } else { reply.status(self.status) }
    }

    /// What is asked of the quotas for a key.
    fn asks(&self, key: u64, now: u64) -> Vec<Ask> {
        let ask = |limit: &Limit| Ask {
            id: id(key, limit.period.code()),
            end: limit.period.end(now),
            limit: limit.most,
        };
        self.limits.iter().map(ask).collect()
    }

    /// Takes from every quota of this gateway, or from none.
    fn admit(&self, asks: &[Ask], now: u64) -> QuotaStanding {
        let mut used = Vec::with_capacity(asks.len());
        for (n, ask) in asks.iter().enumerate() {
            let (after, fitted) = self.table.take(*ask, self.cost, now);
            if !fitted {
                asks.iter().take(n).for_each(|taken| self.table.refund(*taken, self.cost));
                let used: Vec<u64> = asks.iter().map(|ask| self.table.used(*ask)).collect();
                return self.counted(asks, &used, Some(n), now);
            }
            used.push(after);
        }
        self.counted(asks, &used, None, now)
    }

    /// Takes with the other gateways, or as `on_error` says.
    async fn ask(&self, shared: &SharedQuotas, key: u64, asks: &[Ask], now: u64) -> QuotaOutcome {
        if let Ok((used, refused)) = shared.take(key, asks, self.cost, now).await {
            return QuotaOutcome::Counted(self.counted(asks, &used, refused, now));
        }
        match shared.link.on_error() {
            OnError::Local => {
                shared.local.add(1);
                QuotaOutcome::Counted(self.admit(asks, now))
            }
            OnError::Allow => {
                shared.allowed.add(1);
                QuotaOutcome::Passes
            }
            OnError::Deny => {
                shared.denied.add(1);
                QuotaOutcome::Unavailable
            }
        }
    }

    /// How a caller stands that has used this much.
    fn counted(&self, asks: &[Ask], used: &[u64], refused: Option<usize>, now: u64) -> QuotaStanding {
        let left = |n: usize| asks[n].limit.saturating_sub(used.get(n).copied().unwrap_or(0));
        let all = || 0..asks.len();
        let tightest = refused.or_else(|| all().min_by_key(|n| left(*n))).unwrap_or(0);
        let wait = |n: usize| asks[n].end.saturating_sub(now);
        let exhausted = all().filter(|n| left(*n) < self.cost);
        QuotaStanding {
            passed: refused.is_none(),
            tightest,
            remaining: left(tightest),
            reset: wait(tightest),
            retry_in: exhausted.map(wait).max().unwrap_or(0),
        }
    }

    /// The refusal, where what was counted leaves no room.
    fn settle(&self, exchange: &mut Exchange, seat: Seat<'_>, outcome: QuotaOutcome) -> Option<Reply> {
        let reply = match outcome {
            QuotaOutcome::Passes => None,
            QuotaOutcome::Unavailable => Some(store_away()),
            QuotaOutcome::Counted(counted) => {
                exchange.state.put(seat, counted);
                (!counted.passed).then(|| self.exhausted(counted))
            }
        };
        if reply.is_none() {
            self.accepted.add(1);
            return None;
        }
        self.refused.add(1);
        if self.dry_run {
            exchange.note("quota.would_refuse", true);
            return None;
        }
        reply
    }

    /// Writes headers about the quota with the least left, and about all policies.
    fn say(&self, counted: QuotaStanding, headers: &mut HeaderMap) {
        let Some(Limit { name, most, .. }) = self.limits.get(counted.tightest) else { return };
        let QuotaStanding { remaining, reset, .. } = counted;
        let stand = Stand { name, limit: *most, remaining, reset };
        limit_headers::write(self.fields, &self.policy, stand, headers);
    }
}

#[cfg(test)]
mod tests;
