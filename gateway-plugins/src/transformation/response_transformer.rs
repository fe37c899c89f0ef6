//! Changes the header fields, the cookies and the JSON body of responses, by rules in the order in which they are written.
//!
//! Runs over the gateway's own answers as well; `when` narrows it to some requests. Values are made from the response as it
//! was before the first rule. A body that changes loses its `ETag` where that is a strong one, for the bytes are others.
//! Where there are rules for bodies, requests lose `Range` and `If-Range`: a part of a body can't be changed. They lose
//! `Accept-Encoding` as well, and a body that comes compressed all the same is decoded; `compression` compresses what goes out.
//!
//! `Location`, `Refresh` and cookies that name the target's own host or path are rewritten by `replace` and by `cookies`.

mod cookies;

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{
    Capabilities, Capability, Family, Hooks, OnRequest, OnResponse, Plugin, Seat, Step, Verdict, World,
};
use gateway_core::template::Moment;
use gateway_plugin_common::facts;
use gateway_plugin_common::response_origin::ResponseOrigin;
use gateway_plugin_common::statuses::Statuses;
use http::header::{CONTENT_LENGTH, ETAG, IF_RANGE, RANGE};
use http::{HeaderMap, Method, Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::transformation::transform::{BodyRules, Changed, Rule, Rules, Unusable};
use cookies::{CookieRule, CookieRules};

/// Settings of `response_transformer`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The changes, in order; at least one, here or in `cookies`.
    rules: Vec<Rule>,
    /// Changes to cookies that responses set, after `rules`. The first matching rule applies to each cookie. At most
    /// 100. Default none.
    cookies: Vec<CookieRule>,
    /// Responses to change: `all`, those of the `target`, or those of the `gateway` itself. Default `all`.
    of: ResponseOrigin,
    /// Statuses of the responses to change, such as `200` or `3xx`. Default: all, also errors.
    #[schemars(length(max = 50))]
    statuses: Vec<String>,
    /// Limits for changed bodies.
    body: BodyRules,
}

/// The plugin.
pub(crate) struct ResponseTransformer {
    rules: Rules,
    cookies: CookieRules,
    of: ResponseOrigin,
    /// Empty means all.
    statuses: Statuses,
}

impl Plugin for ResponseTransformer {
    const NAME: &'static str = "response_transformer";
    const FAMILY: Family = Family::Transformation;
    const SUMMARY: &'static str = "Changes the header fields, the cookies and the JSON body of responses.";
    const EXAMPLE: &'static str = include_str!("../../examples/response_transformer.yaml");
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if config.rules.is_empty() && config.cookies.is_empty() {
            problems.add("config.rules", "there is no rule, so nothing would change");
        }
        let rules = Rules::read(config.rules, config.body, Moment::Response, &mut problems);
        let statuses = Statuses::read("statuses", &config.statuses, &mut problems);
        let cookies = CookieRules::read(config.cookies, &mut problems);
        problems.into_result(Self { rules, cookies, of: config.of, statuses })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_if(self.rules.changes_body(), Capability::OnlyPrepares)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.goes_by_captures("config.rules", self.rules.captures());
        hooks.goes_by_captures("config.cookies", self.cookies.captures());
        if self.rules.changes_body() {
            hooks.on_request(self.clone());
        }
        hooks.on_response(self);
    }
}

impl OnRequest for ResponseTransformer {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        exchange.ask_for_plain();
        // By ranges a client could read what a rule removes from the whole.
        for name in [RANGE, IF_RANGE] {
            exchange.request.headers.remove(name);
        }
        Step::Next
    }
}

impl OnResponse for ResponseTransformer {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        exchange.accept_codings();
        let is_meant = self.statuses.is_empty() || self.statuses.has(response.status().as_u16());
        if !is_meant || !self.of.has(exchange) {
            return Step::Next;
        }
        let Ok(body) = self.change_head(exchange, response, seat) else {
            return Step::reply(Reply::new(Cause::UpstreamGarbage).reason("value_not_usable"));
        };
        if !self.rules.changes_body() {
            return Step::Next;
        }
        if exchange.request.method == Method::HEAD {
            // They are those of the target's body, and what GET would get has others.
            response.headers_mut().remove(CONTENT_LENGTH);
            remove_strong_tag(response.headers_mut());
            return Step::Next;
        }
        if response.status() == StatusCode::PARTIAL_CONTENT {
            return match self.rules.apply_to_part(response.headers(), Cause::UpstreamGarbage) {
                Some(reply) => Step::Reply(reply),
                None => Step::Next,
            };
        }
        Step::wait(async move {
            let mut taken = std::mem::take(response.body_mut());
            let causes = [Cause::UpstreamGarbage; 3];
            let changed = self.rules.apply_body(response.headers_mut(), &mut taken, body, causes).await;
            *response.body_mut() = taken;
            match changed {
                Changed::No => Verdict::Next,
                Changed::Refused(reply) => Verdict::Reply(reply),
                Changed::Yes => {
                    remove_strong_tag(response.headers_mut());
                    Verdict::Next
                }
            }
        })
    }
}

/// A strong validator names the bytes of the target's body.
fn remove_strong_tag(headers: &mut HeaderMap) {
    if headers.get(ETAG).is_some_and(|tag| !tag.as_bytes().starts_with(b"W/")) {
        headers.remove(ETAG);
    }
}

impl ResponseTransformer {
    /// Changes the head, and makes the values of the body's rules from what was before.
    fn change_head(
        &self,
        exchange: &Exchange,
        response: &mut Response<Body>,
        seat: Seat<'_>,
    ) -> Result<Vec<Option<String>>, Unusable> {
        let facts = facts::with_response(exchange, seat, response.status(), response.headers());
        let headers = self.rules.header_values(&facts)?;
        let body = self.rules.body_values(&facts)?;
        let cookies = self.cookies.render(&facts)?;
        self.rules.apply_headers(response.headers_mut(), headers)?;
        cookies.apply(response.headers_mut())?;
        Ok(body)
    }
}

#[cfg(test)]
mod tests;
