//! What the limits would say of a request that is not sent; takes nothing from any of them.

use gateway_core::plugin::{Foreseen, Foresight};
use gateway_plugin_common::caller_key::Keyed;
use tokio::time::Instant;

use super::{RateLimiting, answer};

pub(super) fn foresee(plugin: &RateLimiting, foresight: &Foresight<'_>) -> Foreseen {
    if let Some(unknown) = plugin.key_by.foresee_unknown(foresight) {
        return unknown;
    }
    let (exchange, proxy) = (foresight.exchange, foresight.seat.proxy());
    let key = match plugin.key_by.of_exchange(exchange, proxy, plugin.table.hasher()) {
        Keyed::Key(key) => key,
        Keyed::Nobody => return Foreseen::Passes("it is not counted".into()),
        Keyed::Denied => {
            let why = "the request lacks what it is counted by";
            return Foreseen::refuses(answer::key_missing(), why, plugin.dry_run);
        }
    };
    if plugin.shared.is_some() {
        return Foreseen::Unknown("it is counted in Redis, which is not asked".into());
    }
    let (cost, now) = (plugin.costs.of(exchange), Instant::now());
    let standings: Vec<_> =
        plugin.limits.iter().map(|limit| (limit, plugin.table.look(key, limit.rule, cost, now))).collect();
    if let Some((limit, _)) = standings.iter().find(|(_, standing)| !standing.passed) {
        let wait = standings.iter().map(|(_, standing)| standing.retry_in).max().unwrap_or_default();
        let why = format!(
            "the limit `{}` of {} has no room; the next request passes in {} s",
            limit.name,
            limit.burst,
            wait.as_secs_f64().ceil()
        );
        return Foreseen::refuses(answer::refusal(plugin.status, wait), why, plugin.dry_run);
    }
    let left = standings.iter().map(|(limit, standing)| {
        format!("`{}` has {} of {} left", limit.name, standing.remaining, limit.burst)
    });
    Foreseen::Passes(left.collect::<Vec<_>>().join(", "))
}
