//! The global plugins that see exchanges which no proxy's chain runs for.

use std::sync::Arc;

use super::chain::{Member, Panics, order};
use super::entry::Registry;
use super::hooks::{Hooks, OnUnrouted, Seated};
use super::seat::SeatNumber;
use crate::config::model::Scope;
use crate::http::exchange::Exchange;
use crate::http::reply::Reply;
use crate::record::ExchangeRecord;

/// Their seats, in the order of a chain.
#[derive(Clone, Default)]
pub struct Unrouted(Arc<[Seated<dyn OnUnrouted>]>);

impl Unrouted {
    /// The seats that global plugins take among `members`.
    pub(crate) fn build<'m>(registry: &Registry, members: impl Iterator<Item = &'m Member>) -> Self {
        let members: Vec<Member> =
            members.filter(|(config, _)| config.scope == Scope::Global).cloned().collect();
        // A circle among them closes the proxies; here their order is the table's then.
        let members = order::ordered(registry, &members).unwrap_or(members);
        let mut hooks = Hooks::default();
        for (place, (config, plugin)) in members.iter().enumerate() {
            hooks.place = u16::try_from(place + 1).unwrap_or(u16::MAX - 1);
            hooks.when.clone_from(&config.when);
            plugin.attend(&mut hooks);
        }
        Self(hooks.on_unrouted.into())
    }

    /// Shows them the exchange and the gateway's reply to it.
    pub(crate) fn reply(&self, exchange: &mut Exchange, reply: &mut Reply) -> Panics {
        let mut panics = Panics(0);
        for seat in &*self.0 {
            panics.guard(|| {
                if seat.runs(exchange) {
                    seat.plugin.on_unrouted(exchange, reply, SeatNumber(seat.place));
                }
            });
        }
        panics
    }

    /// Hands the record to them.
    pub(crate) fn end(&self, record: &ExchangeRecord<'_>) -> Panics {
        let mut panics = Panics(0);
        for Seated { place, when, plugin, .. } in &*self.0 {
            if when.as_ref().is_some_and(|when| !record.exchange.decided(*place, when)) {
                continue;
            }
            panics.guard(|| plugin.on_unrouted_end(record, SeatNumber(*place)));
        }
        panics
    }
}
