//! Limits how many bytes pass in a month, a week, a day or any other period, and until which date.
//!
//! Bytes of TCP, TLS, UDP, DTLS and WebSockets count, as do bodies of HTTP requests and responses, in one direction or both. With the last
//! byte of a quota, every session of its key ends (`quota_exceeded`), whatever its protocol. The gateway reads no further byte, and every
//! byte that it read has counted. It rejects new sessions until the period ends. Gateways that share a quota through Redis learn each
//! other's usage within a second.
//!
//! A file or the database of the configuration keeps the usage across restarts. After a crash, the bytes since the last write are
//! estimated as twice those of the interval before. In the database, the usage is that of all gateways on it, rollbacks of the
//! configuration leave it, and the history of each minute and hour is kept with it. The action `usage` shows the usage, `reset` resets it.

mod accounts;
mod calendar;
mod database;
mod history;
mod settings;
mod shared;
mod state_file;

use std::cmp::Reverse;
use std::hash::Hasher;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::limit::{ByteQuota, Meter, Meters};
use gateway_core::metrics::Metric;
use gateway_core::plugin::{
    Family, Foreseen, Foresight, Gate, Hooks, Need, Needs, OnConnect, OnRequest, OnResponse, OnTransfer,
    Plugin, Refusal, Seat, Starter, Step, World,
};
use gateway_core::stream::session::{Direction, Session};
use gateway_plugin_common::caller_key::{KeyBy, Keyed};
use gateway_plugin_common::redis_link::{RedisLink, Sha256};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::admission::usage_file::UsageFile;
use accounts::{Accounts, Terms};
use database::StoredAccounts;
use history::Step as HistoryStep;
use settings::{Config, Count, Reset, Usage};
use shared::SharedAccounts;
use state_file::MOST_BYTES;

/// The plugin.
pub(crate) struct TrafficQuota {
    terms: Terms,
    count: Count,
    key_by: KeyBy,
    accounts: Arc<Accounts>,
    file: Option<Arc<UsageFile>>,
    shared: Option<Arc<SharedAccounts>>,
    stored: Option<Arc<StoredAccounts>>,
}

const FAILED: Metric = Metric::counter(
    "ferrum_traffic_quota_file_errors_total",
    "Failures to write the file of traffic quotas.",
);
const KEY_MISSING: &str = "traffic_quota_key_missing";
/// How often time goes by where nothing else looks.
const TURN: Duration = Duration::from_secs(1);

impl Plugin for TrafficQuota {
    const NAME: &'static str = "traffic_quota";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Limits how many bytes pass in a month or any other time.";
    const EXAMPLE: &'static str = include_str!("../../examples/traffic_quota.yaml");
    const ACTIONS: &'static [(&'static str, &'static str)] = &[
        ("usage", "Shows what each key has used, and when."),
        ("reset", "Forgives what a key has used, or all of them."),
    ];
    const NEEDS: &'static [Needs] = &[Needs::new("save_interval", Need::Given(&["path"]))];
    type Config = Config;

    fn build(mut config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let (terms, key_by) = settings::read(&config, &mut problems);
        let (Some(terms), true) = (terms, problems.is_empty()) else { return Err(problems) };
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let file = config.path.as_ref().map(|folder| {
            let path = folder.join(format!("{owner}.traffic"));
            let failed = world.meters().counter(FAILED, &["plugin_config"], &[owner]);
            Arc::new(UsageFile { world: world.clone(), path, every: config.save_interval.duration(), failed })
        });
        if let Some(file) = &file {
            file.check_folder(world)?;
        }
        let mut is_new = false;
        let accounts = world.kept("accounts", || {
            is_new = true;
            Accounts::new(terms, unix_now())
        });
        if let (true, Some(file)) = (is_new, &file) {
            file.read_into(&*accounts, MOST_BYTES)?;
        }
        let stored = if config.database {
            let stored = stored(world, owner)?;
            // Accounts in use go on as they are if this build is only a check.
            if is_new {
                stored.begin(&accounts);
            }
            Some(stored)
        } else {
            None
        };
        let shared = config
            .redis
            .take()
            .map(|redis| Arc::new(SharedAccounts::new(Arc::new(RedisLink::new(&redis, world)))));
        Ok(Self { terms, count: config.count, key_by, accounts, file, shared, stored })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        self.key_by.attend(hooks);
        hooks.on_connect(self.clone());
        hooks.on_transfer(self.clone());
        hooks.on_request(self.clone());
        if self.count != Count::Upload {
            hooks.on_response(self);
        }
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        self.accounts.set(self.terms, unix_now());
        if self.terms.is_expired(unix_now()) {
            tracing::warn!("`expires` of a traffic_quota is over: it closes everything that it counts");
        }
        if let Some(shared) = &self.shared {
            let link = shared.link.clone();
            starter.task("redis", move |control| link.clone().run(control));
            let (shared, accounts) = (shared.clone(), self.accounts.clone());
            starter.task("share", move |control| shared.clone().keep(accounts.clone(), control));
        }
        let accounts = self.accounts.clone();
        if let Some(stored) = self.stored.clone() {
            stored.begin(&accounts);
            return starter.task("database", move |control| stored.clone().keep(accounts.clone(), control));
        }
        if let Some(file) = self.file.clone() {
            return starter.task("file", move |control| file.clone().keep(accounts.clone(), control));
        }
        starter.task("turn", move |mut control| {
            let accounts = accounts.clone();
            async move {
                while !control.is_ended() {
                    tokio::select! {
                        () = control.ended() => {}
                        () = tokio::time::sleep(TURN) => accounts.advance(unix_now()),
                    }
                }
                Ok(())
            }
        });
    }

    fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        if let Some(unknown) = self.key_by.foresee_unknown(foresight) {
            return Some(unknown);
        }
        let keyed = self.key_by.of_exchange(foresight.exchange, foresight.seat.proxy(), Sha256::default());
        let closed = match keyed {
            Keyed::Key(key) => self.accounts.closed(key, unix_now()),
            Keyed::Nobody => return Some(Foreseen::Passes("it is not counted".into())),
            Keyed::Denied => {
                let why = "the request lacks what it is counted by";
                return Some(Foreseen::refuses(key_missing(KEY_MISSING), why, false));
            }
        };
        Some(match closed {
            None => Foreseen::Passes("the quota is not used up".into()),
            Some(reason) => {
                Foreseen::refuses(exhausted(reason), "the quota is used up or has expired", false)
            }
        })
    }

    fn act(&self, action: &str, input: &Value) -> Result<Value, Problems> {
        match action {
            "usage" => self.usage(&settings::input::<Usage>(input)?),
            _ => self.reset(&settings::input::<Reset>(input)?),
        }
    }
}

impl TrafficQuota {
    fn usage(&self, asked: &Usage) -> Result<Value, Problems> {
        self.accounts.advance(unix_now());
        let step = asked.history.map(|step| match step {
            settings::HistoryOf::Minute => HistoryStep::Minute,
            settings::HistoryOf::Hour => HistoryStep::Hour,
        });
        let mut list = self.accounts.list(|label| asked.key.as_deref().is_none_or(|key| key == label));
        if let Some(top) = asked.top {
            list.sort_by_key(|standing| Reverse(standing.used));
            list.truncate(top);
        }
        let keys: Vec<Value> = list
            .iter()
            .map(|standing| {
                let mut shown = json!({
                    "key": standing.label,
                    "used": standing.used,
                    "limit": standing.limit,
                    "period_ends": standing.end,
                    "closed": standing.closed,
                });
                if let Some(step) = step {
                    let history = standing.history.list(step, asked.since.unwrap_or_default());
                    shown["history"] =
                        history.map(|(at, bytes)| json!({ "at": at, "bytes": bytes })).collect();
                }
                shown
            })
            .collect();
        Ok(json!({ "expires": self.terms.expires.map(|day| day * calendar::DAY), "keys": keys }))
    }

    fn reset(&self, asked: &Reset) -> Result<Value, Problems> {
        // Other quotas may know a key that this one does not.
        let reset = self.accounts.reset(asked.key.as_deref(), unix_now());
        if let Some(shared) = &self.shared {
            shared.wake();
        }
        if let Some(stored) = &self.stored {
            stored.wake();
        }
        Ok(json!({ "reset": reset }))
    }

    fn of_session(&self, session: &Session, seat: Seat<'_>) -> Result<Option<Arc<ByteQuota>>, &'static str> {
        let proxy = seat.proxy();
        let keyed = self.key_by.of_session(session, proxy, Sha256::default());
        self.of(keyed, |label| _ = self.key_by.of_session(session, proxy, label))
    }

    fn of_exchange(
        &self,
        exchange: &Exchange,
        seat: Seat<'_>,
    ) -> Result<Option<Arc<ByteQuota>>, &'static str> {
        let proxy = seat.proxy();
        let keyed = self.key_by.of_exchange(exchange, proxy, Sha256::default());
        self.of(keyed, |label| _ = self.key_by.of_exchange(exchange, proxy, label))
    }

    /// The quota of a key; `None` where nothing is counted.
    fn of(&self, keyed: Keyed, write: impl Fn(&mut Label)) -> Result<Option<Arc<ByteQuota>>, &'static str> {
        match keyed {
            Keyed::Denied => Err(KEY_MISSING),
            Keyed::Nobody => Ok(None),
            Keyed::Key(key) => {
                let label = || {
                    let mut label = Label::default();
                    write(&mut label);
                    label.text()
                };
                Ok(Some(self.accounts.quota(key, label, unix_now())))
            }
        }
    }

    fn add(&self, quota: &Arc<ByteQuota>, meters: &mut Meters) {
        if self.count != Count::Download {
            meters.up.push(Meter::Quota(quota.clone()));
        }
        if self.count != Count::Upload {
            meters.down.push(Meter::Quota(quota.clone()));
        }
    }
}

/// What is kept in the database for a plugin config.
fn stored(world: &World, config: &str) -> Result<Arc<StoredAccounts>, Problems> {
    let Some(store) = world.usage_store() else {
        let mut problems = Problems::default();
        // An edge and a gateway with a file have no database; a control plane carries no traffic.
        let why = "only gateways in database mode store usage in their database";
        problems.add("config.database", why).remedy =
            Some("name a folder with `path`, or servers with `redis`, instead".into());
        return Err(problems);
    };
    Ok(world.kept("database", || StoredAccounts::new(store, config)))
}

/// Reads a key as it is hashed, for people.
#[derive(Debug, Default)]
struct Label(Vec<String>);

impl Label {
    fn text(self) -> String {
        if self.0.is_empty() { "all".into() } else { self.0.join("/") }
    }
}

impl Hasher for Label {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.push(String::from_utf8_lossy(bytes).into_owned());
    }

    fn write_u8(&mut self, _mark: u8) {}

    fn write_u16(&mut self, port: u16) {
        self.0.push(port.to_string());
    }

    fn write_u32(&mut self, address: u32) {
        self.0.push(Ipv4Addr::from(address).to_string());
    }

    fn write_u128(&mut self, address: u128) {
        self.0.push(Ipv6Addr::from(address).to_string());
    }

    fn write_usize(&mut self, _length: usize) {}
}

impl OnConnect for TrafficQuota {
    fn on_connect<'a>(&'a self, session: &'a mut Session, seat: Seat<'a>) -> Gate<'a> {
        match self.of_session(session, seat) {
            Ok(None) => Gate::Open,
            Ok(Some(quota)) => quota
                .closed()
                .map_or(Gate::Open, |reason| Gate::Refuse(Refusal { reason, cause: Cause::TooManyRequests })),
            Err(reason) => Gate::refuse(reason),
        }
    }
}

impl OnTransfer for TrafficQuota {
    fn meters(&self, session: &Session, seat: Seat<'_>, meters: &mut Meters) {
        if let Ok(Some(quota)) = self.of_session(session, seat) {
            self.add(&quota, meters);
        }
    }
}

impl OnRequest for TrafficQuota {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let quota = match self.of_exchange(exchange, seat) {
            Ok(None) => return Step::Next,
            Ok(Some(quota)) => quota,
            Err(reason) => return Step::reply(key_missing(reason)),
        };
        if let Some(reason) = quota.closed() {
            return Step::reply(exhausted(reason));
        }
        let mut meters = Meters::default();
        self.add(&quota, &mut meters);
        exchange.body = std::mem::take(&mut exchange.body).metered(meters, Direction::Up);
        exchange.state.put(seat, quota);
        Step::Next
    }
}

impl OnResponse for TrafficQuota {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        if response.status() != StatusCode::SWITCHING_PROTOCOLS
            && let Some(quota) = exchange.state.of::<Arc<ByteQuota>>(seat)
        {
            let mut meters = Meters::default();
            self.add(quota, &mut meters);
            *response.body_mut() = std::mem::take(response.body_mut()).metered(meters, Direction::Down);
        }
        Step::Next
    }
}

fn key_missing(reason: &'static str) -> Reply {
    Reply::new(Cause::Forbidden).detail("the request lacks what it is counted by").reason(reason)
}

fn exhausted(reason: &'static str) -> Reply {
    Reply::new(Cause::TooManyRequests).reason(reason).detail("the traffic quota is used up or has expired")
}

/// Seconds since 1970.
fn unix_now() -> u64 {
    #[cfg(test)]
    if let Some(now) = tests::NOW.with(std::cell::Cell::get) {
        return now;
    }
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
