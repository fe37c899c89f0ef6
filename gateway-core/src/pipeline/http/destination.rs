//! Where a request goes: the proxy's targets, or those of the upstream that a plugin chose.

use std::sync::Arc;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::A_SECOND;
use crate::balance::{Ask, NoSubset, Pick, Target, Targets};
use crate::config::model::HashOn;
use crate::health::Breakers;
use crate::health::breaker::BreakerStatus;
use crate::http::exchange::Exchange;
use crate::http::reply::{Cause, Reply};
use crate::request_values;
use crate::snapshot::{Route, Snapshot};

/// The targets of one exchange.
pub(super) struct Destination<'s> {
    targets: &'s Targets,
    /// Breakers belong to the proxy's own targets, and so does the choice among them.
    breakers: Option<&'s Breakers>,
    subset: Option<&'s [bool]>,
    /// The targets of the subset that a plugin chose.
    members: Option<Arc<[bool]>>,
    route: &'s Route,
    is_chosen: bool,
    /// The target that the client's cookie names.
    preferred: Option<usize>,
    /// What is hashed of a client that is given a cookie with it.
    new_key: Option<String>,
}

impl<'s> Destination<'s> {
    /// The proxy's own targets, unless a plugin chose an upstream.
    pub(super) fn of(
        route: &'s Route,
        snapshot: &'s Snapshot,
        exchange: &Exchange,
    ) -> Result<Self, Box<Reply>> {
        let (targets, is_chosen) = match exchange.upstream() {
            None => (&*route.targets, false),
            // One that was not declared has nothing checked about it: it may be gone, or never have been.
            Some(chosen) if route.chain.chooses().contains(chosen) => match snapshot.upstreams.get(&**chosen)
            {
                Some(targets) => (&**targets, true),
                None => return Err(Box::new(Reply::new(Cause::NoTarget).reason("upstream_unknown"))),
            },
            Some(_) => return Err(Box::new(Reply::new(Cause::NoTarget).reason("upstream_unknown"))),
        };
        let headers = &exchange.request.headers;
        let affinity = targets.affinity();
        let breakers = route.breakers.as_deref().filter(|_| !is_chosen);
        let subset = route.subset.as_deref().filter(|_| !is_chosen);
        let members = match exchange.subset() {
            None => None,
            Some(chosen) => targets.choose(chosen, subset, breakers, exchange.started).map_err(no_subset)?,
        };
        Ok(Self {
            targets,
            breakers,
            subset,
            members,
            route,
            is_chosen,
            preferred: affinity.and_then(|affinity| affinity.target(headers)),
            new_key: affinity.and_then(|affinity| affinity.new_key(headers)),
        })
    }

    /// Picks a target not yet tried; `None` when there is none at this moment.
    pub(super) fn pick(&self, exchange: &Exchange, tried: &[usize]) -> Option<Pick<'s>> {
        self.pick_at(exchange, tried, exchange.started)
    }

    /// Whether there is no target but one to ask, be it that the client is kept at it.
    pub(super) fn is_alone(&self) -> bool {
        self.preferred.is_some() || self.targets.list().len() < 2
    }

    /// Picks one more target beside those that are being asked: a healthy one that was not tried and is no backup of them.
    /// Exchanges that wait for a target go first.
    pub(super) fn pick_beside(
        &self,
        exchange: &Exchange,
        tried: &[usize],
        running: &[&Pick<'s>],
    ) -> Option<Pick<'s>> {
        if self.targets.waiting_now() > 0 {
            return None;
        }
        let indexes = running.iter().map(|pick| pick.index);
        let avoided: SmallVec<[usize; 8]> = tried.iter().copied().chain(indexes).collect();
        let now = Instant::now();
        if !self.targets.has_untried(&self.ask(now, &avoided)) {
            return None;
        }
        let last = running.iter().map(|pick| pick.target.rules.priority).max()?;
        let pick = self.pick_at(exchange, &avoided, now)?;
        // A half-open breaker's few probes are not for requests that are answered otherwise.
        let is_good = !avoided.contains(&pick.index)
            && !pick.degraded
            && !pick.is_probe()
            && pick.target.rules.priority <= last;
        is_good.then_some(pick)
    }

    fn pick_at(&self, exchange: &Exchange, tried: &[usize], now: Instant) -> Option<Pick<'s>> {
        let address;
        let hash_key = match self.targets.hash_on() {
            None => None,
            Some(on) => {
                address = exchange.client_address.to_string();
                Some(self.hash_key(on, exchange, &address))
            }
        };
        self.targets.pick(&Ask { hash_key, ..self.ask(now, tried) })
    }

    /// What decides which target a request goes to where that is by hash.
    fn hash_key<'e>(&'e self, on: &HashOn, exchange: &'e Exchange, address: &'e str) -> &'e [u8] {
        let new = self.new_key.as_ref().map(String::as_bytes);
        new.or_else(|| hash_key(on, &exchange.request.headers)).unwrap_or(address.as_bytes())
    }

    /// What decides which target a request goes to where that is by hash, to be kept while it waits.
    fn key(&self, exchange: &Exchange) -> Option<Vec<u8>> {
        let address = exchange.client_address.to_string();
        self.targets.hash_on().map(|on| self.hash_key(on, exchange, &address).to_vec())
    }

    /// As [`Self::wait`]; notes how long that took.
    pub(super) async fn queued(
        &self,
        exchange: &mut Exchange,
        tried: &[usize],
    ) -> Result<Pick<'s>, Box<Reply>> {
        let (key, since) = (self.key(exchange), Instant::now());
        let pick = self.wait(exchange.started, key, tried).await?;
        exchange.note_queued(since);
        Ok(pick)
    }

    /// Waits for a target with room, where the upstream has a queue. The reply says why there is none.
    /// `key` is what [`Self::key`] says.
    async fn wait(
        &self,
        started: Instant,
        key: Option<Vec<u8>>,
        tried: &[usize],
    ) -> Result<Pick<'s>, Box<Reply>> {
        let ask = Ask { hash_key: key.as_deref(), ..self.ask(started, tried) };
        if let Some(pick) = self.targets.wait(&ask).await {
            return Ok(pick);
        }
        let reply = if self.targets.is_full(&ask) {
            self.targets.note_full(&ask);
            Reply::new(Cause::NoTarget).reason("targets_full")
        } else {
            let is_open = self.breakers.is_some() && !self.targets.list().is_empty();
            Reply::new(if is_open { Cause::CircuitOpen } else { Cause::NoTarget })
        };
        Err(Box::new(reply.header(RETRY_AFTER, self.retry_after())))
    }

    /// When the first of the open breakers lets a probe through, in whole seconds; at least one.
    fn retry_after(&self) -> HeaderValue {
        let now = Instant::now();
        let open = |breakers: &Breakers, index| match breakers.status(index, now) {
            Some(BreakerStatus::Open { remaining }) => Some(remaining),
            _ => None,
        };
        let targets = 0..self.targets.list().len();
        let left = self.breakers.and_then(|breakers| targets.filter_map(|n| open(breakers, n)).min());
        let seconds = left.map_or(0, |left| left.as_millis().div_ceil(1000));
        if seconds > 1 { HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX)) } else { A_SECOND }
    }

    /// Whether a healthy target is left that is neither `last` nor one of `tried`.
    pub(super) fn has_untried(&self, started: Instant, tried: &[usize], last: usize) -> bool {
        let tried: SmallVec<[usize; 8]> = tried.iter().copied().chain([last]).collect();
        self.targets.has_untried(&self.ask(started, &tried))
    }

    fn ask<'a>(&'a self, started: Instant, tried: &'a [usize]) -> Ask<'s, 'a> {
        Ask {
            hash_key: None,
            tried,
            preferred: self.preferred,
            subset: self.members.as_deref().or(self.subset),
            breakers: self.breakers,
            now: started,
        }
    }

    /// The cookie that brings the client back to this target, where it needs one.
    pub(super) fn cookie(&self, exchange: &Exchange, index: usize) -> Option<HeaderValue> {
        let (affinity, is_https) = (self.targets.affinity()?, exchange.scheme() == "https");
        affinity.set_cookie(&exchange.request.headers, index, self.new_key.as_deref(), is_https)
    }

    /// The trust domain of connections to a picked target.
    pub(super) fn pool_key(&self, pick: &Pick<'_>) -> u64 {
        match self.is_chosen {
            false => self.route.pool_keys.get(pick.index).map_or(0, |key| key.number()),
            true => {
                let Target { rules, .. } = &**pick.target;
                self.route.chosen_keys.number(&rules.host, rules.port, pick.target.counted_as())
            }
        }
    }
}

/// A plugin chose targets of which none can be asked.
fn no_subset(why: NoSubset) -> Box<Reply> {
    let reason = match why {
        NoSubset::Empty => "subset_empty",
        NoSubset::Unhealthy => "subset_unhealthy",
    };
    Box::new(Reply::new(Cause::NoTarget).reason(reason).header(RETRY_AFTER, A_SECOND))
}

/// What consistent hashing hashes of a request; `None` falls back to the client's address.
fn hash_key<'e>(on: &HashOn, headers: &'e HeaderMap) -> Option<&'e [u8]> {
    match on {
        HashOn::Ip => None,
        HashOn::Header(name) => headers.get(name).map(HeaderValue::as_bytes),
        HashOn::Cookie(name) => request_values::cookie(headers, name),
    }
}
