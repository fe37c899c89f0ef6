//! The part of a chain behind one plugin, for requests that go on from there without their client.

use std::sync::Arc;

use http::Response;

use super::{Chain, Reached, verdict, walk};
use crate::config::model::PluginConfig;
use crate::http::body::Body;
use crate::http::exchange::Exchange;
use crate::http::reply::Reply;
use crate::plugin::seat::Around;

impl Chain {
    /// Whether the plugin of this very config is at this place.
    pub(crate) fn is_at(&self, place: u16, plugin: &Arc<PluginConfig>) -> bool {
        let member = usize::from(place).checked_sub(1).and_then(|at| self.members.get(at));
        member.is_some_and(|(known, _)| Arc::ptr_eq(known, plugin))
    }

    /// Runs the request hooks behind a place.
    ///
    /// # Errors
    /// The first refusal.
    pub(crate) async fn request_behind(
        &self,
        exchange: &mut Exchange,
        around: Around<'_>,
        place: u16,
    ) -> Result<(), Box<Reply>> {
        let from = self.on_request.partition_point(|seat| seat.place <= place);
        let (_, behind) = self.on_request.split_at(from);
        walk(behind, exchange, around, &mut Reached::NONE.clone()).await
    }

    /// Runs the response hooks up to a place, its own among them.
    pub(crate) async fn response_behind(
        &self,
        exchange: &mut Exchange,
        response: &mut Response<Body>,
        around: Around<'_>,
        place: u16,
    ) {
        for seat in self.on_response.iter().filter(|seat| seat.place >= place) {
            if !seat.runs(exchange) {
                continue;
            }
            let step = seat.plugin.on_response(exchange, response, around.seat(seat.place));
            if let Err(reply) = verdict(step).await {
                exchange.note_reply(&reply);
                *response = exchange.response_of(*reply);
            }
        }
    }
}
