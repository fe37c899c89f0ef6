//! Changes the header fields, the query and the JSON body of requests, by rules in the order in which they are written.
//!
//! Every value is made from the request as it was before the first rule. Headers that frame a message (`Content-Length`,
//! `Transfer-Encoding`, `Host` …) can't be changed here. Whole numbers beyond 64 bits in a changed body lose digits.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::forwarding::is_settable;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Family, Hooks, OnRequest, Plugin, Seat, Step, Verdict, World};
use gateway_core::template::Moment;
use gateway_plugin_common::facts;
use gateway_plugin_common::query::{self, Query};
use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::transformation::transform::{BodyRules, Changed, Rule, Rules, Unusable};

/// Settings of `request_transformer`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The changes, in order; at least one.
    rules: Vec<Rule>,
    /// Limits for changed bodies.
    body: BodyRules,
}

/// The plugin.
pub(crate) struct RequestTransformer {
    rules: Rules,
}

impl Plugin for RequestTransformer {
    const NAME: &'static str = "request_transformer";
    const FAMILY: Family = Family::Transformation;
    const SUMMARY: &'static str = "Changes the header fields, the query and the JSON body of requests.";
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if config.rules.is_empty() {
            problems.add("config.rules", "there is no rule, so nothing would change");
        }
        let rules = Rules::read(config.rules, config.body, Moment::Request, &mut problems);
        problems.into_result(Self { rules })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.goes_by_captures("config.rules", self.rules.captures());
        if self.rules.asks_for_caller() {
            hooks.goes_by_caller("config.rules");
        }
        hooks.on_request(self);
    }
}

impl OnRequest for RequestTransformer {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let Ok(body_values) = self.head(exchange, seat) else {
            let reply = Reply::new(Cause::BadRequest).detail("the request has a value that can't be used");
            return Step::reply(reply.reason("value_not_usable"));
        };
        if !self.rules.changes_body() {
            return Step::Next;
        }
        Step::wait(async move {
            let causes = [Cause::BodyTooLarge, Cause::BadRequest, Cause::BadRequest];
            match self
                .rules
                .apply_body(&mut exchange.request.headers, &mut exchange.body, body_values, causes)
                .await
            {
                Changed::Yes | Changed::No => Verdict::Next,
                Changed::Refused(reply) => Verdict::Reply(reply),
            }
        })
    }
}

impl RequestTransformer {
    /// Changes the head, and makes the values of the body's rules from what was before.
    fn head(&self, exchange: &mut Exchange, seat: Seat<'_>) -> Result<Vec<Option<String>>, Unusable> {
        let told: Vec<HeaderName> =
            self.rules.header_names().filter(|name| is_settable(name)).cloned().collect();
        if !told.is_empty() {
            // A rule may add to what is there, or say it again, which must not be what anybody claims.
            exchange.remove_claims();
        }
        let facts = facts::of(exchange, seat);
        let headers = self.rules.header_values(&facts)?;
        let body = self.rules.body_values(&facts)?;
        let query = if self.rules.changes_query() {
            let mut query = Query::of(query::current(exchange).1.as_deref());
            self.rules.apply_query(&mut query, &facts)?;
            Some(query)
        } else {
            None
        };
        if let Some(query) = query
            && !query::replace(exchange, &query)
        {
            return Err(Unusable);
        }
        self.rules.header_names().for_each(|name| exchange.body.withhold_trailer(name));
        self.rules.apply_headers(&mut exchange.request.headers, headers)?;
        for name in told {
            let mut values = exchange.request.headers.get_all(&name).iter().map(HeaderValue::as_bytes);
            let first = values.next().map(<[u8]>::to_vec);
            let all = first.map(|first| values.fold(first, |all, one| [&all[..], b", ", one].concat()));
            let value = all.and_then(|all| HeaderValue::from_bytes(&all).ok());
            exchange.tell_way(name, value.filter(|value| !value.is_empty()));
        }
        Ok(body)
    }
}

#[cfg(test)]
mod tests;
