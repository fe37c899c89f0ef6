//! A second request to the target in the place of a response that a plugin could not use.

use std::pin::pin;

use super::Pipeline;
use super::ending::{ExchangeEnding, until};
use super::matched::Matched;
use crate::config::model::Traffic;
use crate::http::downstream::Downstream;
use crate::http::upstream::Upstream;
use crate::plugin::chain::{Panicked, Reached, guarded};
use crate::plugin::seat::Around;
use crate::snapshot::{Route, Snapshot};

impl<U: Upstream> Pipeline<U> {
    /// Asks the target again, by the request as response hooks have left it, and shows them what it says now.
    pub(super) async fn ask_again<'s, D: Downstream>(
        &'s self,
        snapshot: &'s Snapshot,
        route: &'s Route,
        end: &mut ExchangeEnding<'s>,
        reached: Reached,
        downstream: &mut D,
    ) {
        let Traffic::Http(rules) = &route.proxy.traffic else { return };
        let before = end.attempts;
        end.answer = None;
        let matched = Matched { route, rules, path_bytes: end.exchange.path_bytes, is_preflight: false };
        let answered = {
            let deadline = end.deadline();
            let asking = pin!(self.attempt(snapshot, &matched, end, downstream));
            let in_time = pin!(until(deadline, asking));
            guarded(in_time).await
        };
        match answered {
            Ok(Ok(())) => {}
            Ok(Err(reply)) => end.answer = Some(end.reply(*reply)),
            Err(Panicked) => end.answer = Some(self.panicked(end)),
        }
        end.attempts += before;
        let around = Around { state: route, consumers: &snapshot.consumers, target: end.target };
        self.attend_response(end, &route.chain, around, reached).await;
        // Once is enough: a target that contradicts itself again is left at that.
        end.exchange.takes_again();
    }
}
