//! Where a request goes: the proxy's targets, or those of the upstream that a plugin chose.

use http::HeaderValue;
use http::header::RETRY_AFTER;

use super::A_SECOND;
use crate::balance::{Ask, Pick, Targets};
use crate::config::model::HashOn;
use crate::config::snapshot::{Route, Snapshot};
use crate::health::Breakers;
use crate::http::exchange::Exchange;
use crate::http::reply::{Cause, Reply};

/// The targets of one exchange.
pub(super) struct Destination<'s> {
    targets: &'s Targets,
    /// Breakers belong to the proxy's own targets.
    breakers: Option<&'s Breakers>,
    route: &'s Route,
    is_chosen: bool,
}

impl<'s> Destination<'s> {
    /// The proxy's own targets, unless a plugin chose an upstream.
    pub(super) fn of(
        route: &'s Route,
        snapshot: &'s Snapshot,
        exchange: &Exchange,
    ) -> Result<Self, Box<Reply>> {
        let breakers = route.breakers.as_deref();
        let own = Self { targets: &route.targets, breakers, route, is_chosen: false };
        let Some(chosen) = exchange.upstream() else { return Ok(own) };
        // One that was not declared has nothing checked about it: it may be gone, or never have been.
        let declared = route.chain.chooses().contains(chosen);
        match snapshot.upstreams.get(&**chosen) {
            Some(targets) if declared => Ok(Self { targets, breakers: None, route, is_chosen: true }),
            _ => Err(Box::new(Reply::new(Cause::NoTarget).reason("upstream_unknown"))),
        }
    }

    /// Picks a target not yet tried.
    pub(super) fn pick(&self, exchange: &Exchange, tried: &[usize]) -> Result<Pick<'s>, Box<Reply>> {
        let address;
        let hash_key = match self.targets.hash_on() {
            None => None,
            Some(on) => {
                address = exchange.client_address.to_string();
                Some(hash_key(on, &exchange.request.headers).unwrap_or(address.as_bytes()))
            }
        };
        let ask = Ask { hash_key, tried, breakers: self.breakers, now: exchange.started };
        self.targets.pick(&ask).ok_or_else(|| {
            let cause = if self.breakers.is_some() { Cause::CircuitOpen } else { Cause::NoTarget };
            Box::new(Reply::new(cause).header(RETRY_AFTER, A_SECOND))
        })
    }

    /// The trust domain of connections to a picked target.
    pub(super) fn pool_key(&self, pick: &Pick<'_>) -> u64 {
        match self.is_chosen {
            false => self.route.pool_keys.get(pick.index).map_or(0, |key| key.number()),
            true => self.route.chosen_keys.number(&pick.target.rules.host, pick.target.rules.port),
        }
    }
}

/// What consistent hashing hashes of a request; `None` falls back to the client's address.
fn hash_key<'e>(on: &HashOn, headers: &'e http::HeaderMap) -> Option<&'e [u8]> {
    match on {
        HashOn::Ip => None,
        HashOn::Header(name) => headers.get(name).map(HeaderValue::as_bytes),
        HashOn::Cookie(name) => headers.get_all(http::header::COOKIE).iter().find_map(|field| {
            field.as_bytes().split(|c| *c == b';').find_map(|pair| {
                let value = pair.trim_ascii_start().strip_prefix(name.as_bytes())?;
                value.strip_prefix(b"=").map(<[u8]>::trim_ascii_end)
            })
        }),
    }
}
