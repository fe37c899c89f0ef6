//! What the limits would say of a request that is not sent; takes nothing from any of them.

use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Foreseen, Foresight};
use gateway_plugin_common::caller_key::Keyed;
use gateway_plugin_common::redis_link::OnError;
use tokio::time::Instant;

use super::settings::Limit;
use super::together::Together;
use super::{RateLimiting, answer};
use crate::admission::rate_table::Standing;

pub(super) fn foresee(plugin: &RateLimiting, foresight: &Foresight<'_>) -> Foreseen {
    if let Some(unknown) = plugin.key_by.foresee_unknown(foresight) {
        return unknown;
    }
    let (exchange, proxy) = (foresight.exchange, foresight.seat.proxy());
    let keyed = match &plugin.shared {
        Some(shared) => plugin.key_by.of_exchange(exchange, proxy, shared.limits.hasher()),
        None => plugin.key_by.of_exchange(exchange, proxy, plugin.table.hasher()),
    };
    let key = match keyed {
        Keyed::Key(key) => key,
        Keyed::Nobody => return Foreseen::Passes("it is not counted".into()),
        Keyed::Denied => {
            let why = "the request lacks what it is counted by";
            return Foreseen::refuses(answer::key_missing(), why, plugin.dry_run);
        }
    };
    let cost = plugin.costs.of(exchange);
    match &plugin.shared {
        Some(shared) => foresee_shared(plugin, shared, key, cost),
        None => verdict(plugin, &local(plugin, key, cost), ""),
    }
}

/// What the counters in Redis say, which are looked at and not changed; or what becomes of requests while Redis can't be asked.
fn foresee_shared(plugin: &RateLimiting, shared: &Together, key: u64, cost: u64) -> Foreseen {
    let looked = match shared.limits.is_up() {
        true => shared.limits.look_and_block(key, shared.rules(), cost),
        false => Some(Err(gateway_plugin_common::redis_link::Away)),
    };
    match (looked, shared.limits.on_error()) {
        (None, _) => Foreseen::Unknown("it is counted in Redis, which only a running gateway asks".into()),
        (Some(Ok(outcome)), _) => {
            let standing = |(n, owed): (usize, &std::time::Duration)| {
                let limit = plugin.limits.get(n)?;
                Some((limit, limit.rule.standing(outcome.refused != Some(n), *owed, cost)))
            };
            let standings: Vec<_> = outcome.owed.iter().enumerate().filter_map(standing).collect();
            verdict(plugin, &standings, " in Redis")
        }
        (Some(Err(_)), OnError::Local) => {
            verdict(plugin, &local(plugin, key, cost), " in this gateway, since Redis is unreachable")
        }
        (Some(Err(_)), OnError::Allow) => {
            Foreseen::Passes("Redis is unreachable, and `on_error: allow` lets requests pass".into())
        }
        (Some(Err(_)), OnError::Deny) => {
            let reply = Reply::new(Cause::Overloaded).reason("rate_limit_store_away").detail("retry later");
            let why = "Redis is unreachable, and `on_error: deny` refuses requests";
            Foreseen::refuses(reply, why, plugin.dry_run)
        }
    }
}

/// How a key stands in this gateway.
fn local(plugin: &RateLimiting, key: u64, cost: u64) -> Vec<(&Limit, Standing)> {
    let now = Instant::now();
    plugin.limits.iter().map(|limit| (limit, plugin.table.look(key, limit.rule, cost, now))).collect()
}

/// The verdict of limits that stand so; `place` says where they are counted.
fn verdict(plugin: &RateLimiting, standings: &[(&Limit, Standing)], place: &str) -> Foreseen {
    if let Some((limit, _)) = standings.iter().find(|(_, standing)| !standing.passed) {
        let wait = standings.iter().map(|(_, standing)| standing.retry_in).max().unwrap_or_default();
        let why = format!(
            "the limit `{}` of {} has no room{place}; the next request passes in {} s",
            limit.name,
            limit.burst,
            wait.as_secs_f64().ceil()
        );
        return Foreseen::refuses(answer::refusal(plugin.status, wait), why, plugin.dry_run);
    }
    let left = standings.iter().map(|(limit, standing)| {
        format!("`{}` has {} of {} left{place}", limit.name, standing.remaining, limit.burst)
    });
    Foreseen::Passes(left.collect::<Vec<_>>().join(", "))
}
