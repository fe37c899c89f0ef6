//! Requests that go on without their client.

use http::Response;

use super::Pipeline;
use super::ending::ExchangeEnding;
use super::forwarding;
use super::matched::Matched;
use crate::config::model::Traffic;
use crate::http::body::Body;
use crate::http::downstream::{Delivery, Downstream};
use crate::http::exchange::Fork;
use crate::http::reply::Reply;
use crate::http::tunnel::Tunnel;
use crate::http::upstream::Upstream;
use crate::plugin::seat::Around;
use crate::snapshot::{Route, Snapshot};

/// Takes requests that go on without their client, to hand them to [`Pipeline::carry_on`] in a task of their own.
pub type Aside = Box<dyn Fn(Box<Fork>) + Send + Sync>;

impl<U: Upstream> Pipeline<U> {
    /// The same pipeline, with somebody who takes requests that go on without their client. Without that they are dropped.
    #[must_use]
    pub fn with_aside(self, aside: Aside) -> Self {
        Self { aside: Some(aside), ..self }
    }

    /// Hands over what a plugin has detached.
    pub(super) fn hand_aside(&self, fork: Box<Fork>) {
        if let Some(aside) = &self.aside {
            aside(fork);
        }
    }

    /// Carries such a request through what is left of the chain, to the target, and its response back to the plugin that
    /// made it. It is recorded like any other. Where the configuration has changed meanwhile, nothing is done.
    pub async fn carry_on(&self, snapshot: &Snapshot, fork: Box<Fork>) {
        let Fork { exchange, proxy, plugin, place } = *fork;
        let Some(route): Option<&Route> = snapshot.by_id.get(proxy.id.as_str()).map(|route| &**route) else {
            return;
        };
        let is_same = std::sync::Arc::ptr_eq(&route.proxy, &proxy) && route.chain.is_at(place, &plugin);
        let Some(permit) = self.overload.exchange().filter(|_| is_same && route.quarantine.is_none()) else {
            return;
        };
        let mut end = ExchangeEnding::new(self.recorder.as_ref(), &self.drain, exchange, Some(snapshot));
        (end.place, end.route) = (Some(permit), Some(route));
        let answering = self.answer_behind(snapshot, route, &mut end, place);
        let answered = match proxy.timeouts.total {
            total if total.is_zero() => answering.await,
            total => match tokio::time::timeout(total, answering).await {
                Ok(answered) => answered,
                Err(_) => Err(Box::new(Reply::new(super::Cause::TotalTimeout))),
            },
        };
        let mut response = match (answered, end.answer.take()) {
            (Ok(()), Some(response)) => response,
            (Ok(()), None) => end.reply(Reply::new(super::Cause::Internal)),
            (Err(reply), _) => end.reply(*reply),
        };
        let around = Around { state: route, consumers: &snapshot.consumers, target: end.target };
        route.chain.response_behind(&mut end.exchange, &mut response, around, place).await;
        end.status = Some(response.status());
        let delivery = Nobody.respond(response).await;
        end.delivered(delivery);
    }

    async fn answer_behind<'s>(
        &'s self,
        snapshot: &'s Snapshot,
        route: &'s Route,
        end: &mut ExchangeEnding<'s>,
        place: u16,
    ) -> Result<(), Box<Reply>> {
        let Traffic::Http(rules) = &route.proxy.traffic else {
            return Err(Box::new(Reply::new(super::Cause::NoRoute)));
        };
        let around = Around { state: route, consumers: &snapshot.consumers, target: None };
        route.chain.request_behind(&mut end.exchange, around, place).await?;
        forwarding::forward(&mut end.exchange, &snapshot.settings, route)?;
        let path_bytes = end.exchange.path_bytes;
        let matched = Matched { route, rules, path_bytes, is_preflight: false };
        Box::pin(self.attempt(snapshot, &matched, end, &mut Nobody)).await
    }
}

/// The client that is not there: it takes everything.
pub(super) struct Nobody;

impl Downstream for Nobody {
    async fn interim(&mut self, _status: http::StatusCode, _headers: &http::HeaderMap) {}

    async fn upgrade(&mut self, _response: Response<()>) -> Option<Tunnel> {
        None
    }

    async fn respond(&mut self, response: Response<Body>) -> Delivery {
        let mut body = response.into_body();
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Delivery { bytes, cut: None, ..Delivery::default() }
    }
}
