//! Checks requests against JSON Schemas, or against a whole OpenAPI document (3.0 or 3.1), before targets see them.
//!
//! Schemas are compiled when the configuration is checked. References lead nowhere but into the same document: nothing is
//! fetched and no file is read but the one that is named. Bodies are read into memory, up to `max_body`; JSON with the
//! same key twice is refused, since two readers take different things from it. The answer says where a request is wrong and by
//! which keyword, never the value that was sent.

mod content;
mod dialect;
mod instance;
mod locate;
mod openapi;
mod parameter;
mod schema;
mod settings;
mod values;

use std::sync::Arc;

use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{Family, Hooks, Need, Needs, OnRequest, Plugin, Seat, Step, Verdict, World};
use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};

use content::BodyRule;
use settings::{Config, Rules};

/// The plugin.
pub(crate) struct RequestValidation {
    rules: Arc<Rules>,
    world: World,
    passed: Counter,
    refused: Counter,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ValidationRefusal {
    status: Option<StatusCode>,
    reason: &'static str,
    detail: String,
    /// The methods that the path has, where the request's is another one.
    allow: Option<HeaderValue>,
}

impl ValidationRefusal {
    /// The request is not as it should be, in these places.
    fn invalid(places: &[String]) -> Self {
        Self { status: None, reason: "request_invalid", detail: places.join("; "), allow: None }
    }

    fn with(status: StatusCode, reason: &'static str, detail: impl Into<String>) -> Self {
        Self { status: Some(status), reason, detail: detail.into(), allow: None }
    }
}

/// Bodies that are larger than this are checked on another thread.
const LARGE: usize = 16 << 10;
const REQUESTS: Metric = Metric::counter(
    "ferrum_request_validation_requests_total",
    "Requests by outcome: passed, refused (would_refuse in a dry run).",
);

impl Plugin for RequestValidation {
    const NAME: &'static str = "request_validation";
    const FAMILY: Family = Family::Security;
    const SUMMARY: &'static str = "Checks requests against JSON Schemas or an OpenAPI document.";
    const EXAMPLE: &'static str = include_str!("../../examples/request_validation.yaml");
    const NEEDS: &'static [Needs] = &[Needs::new("max_body", Need::Given(&["body_schema", "openapi"]))];
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let rules = settings::read(config, world, &mut problems);
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count =
            |outcome| world.meters().counter(REQUESTS, &["plugin_config", "outcome"], &[owner, outcome]);
        problems.into_result(Self {
            passed: count("passed"),
            refused: count(if rules.dry_run { "would_refuse" } else { "refused" }),
            rules: Arc::new(rules),
            world: world.clone(),
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }
}

impl OnRequest for RequestValidation {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        let body = match self.rules.check_head(exchange) {
            Ok(body) => body,
            Err(fault) => return self.outcome(exchange, Err(fault)).map_or(Step::Next, Step::reply),
        };
        // A WebSocket has no body, and what follows is no request.
        if body.is_nothing() || exchange.dialect == Dialect::Upgrade {
            return self.outcome(exchange, Ok(())).map_or(Step::Next, Step::reply);
        }
        Step::wait(self.check_body(exchange, body))
    }
}

/// The media type of a request, in lower case and without parameters.
fn media_type(exchange: &Exchange) -> Result<Option<String>, ValidationRefusal> {
    let unclear = |detail| {
        ValidationRefusal::with(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type_unsupported", detail)
    };
    let mut types = exchange.request.headers.get_all(CONTENT_TYPE).iter();
    let (first, second) = (types.next(), types.next());
    if second.is_some() {
        return Err(unclear("the request has several content types"));
    }
    let Some(first) = first else { return Ok(None) };
    let text = first.to_str().map_err(|_| unclear("the content type is malformed"))?;
    let (kind, parameters) = text.split_once(';').unwrap_or((text, ""));
    let parameters = parameters.to_ascii_lowercase();
    if parameters.contains("charset") && !parameters.contains("utf-8") && !parameters.contains("us-ascii") {
        return Err(unclear("bodies are read as UTF-8 only"));
    }
    Ok(Some(kind.trim().to_ascii_lowercase()))
}

impl RequestValidation {
    async fn check_body(&self, exchange: &mut Exchange, rule: BodyRule) -> Verdict {
        let coded = exchange.request.headers.get_all(CONTENT_ENCODING).iter();
        if coded.into_iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            let detail = "compressed bodies are not read";
            let fault = ValidationRefusal::with(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "content_encoding_unsupported",
                detail,
            );
            return self.verdict(exchange, Err(fault));
        }
        let (bytes, trailers) = match exchange.body.collect(self.rules.max_body).await {
            Ok(read) => read,
            Err(BodyError::TooLarge { limit }) => {
                let detail = format!("bodies of at most {limit} bytes can be checked");
                let fault = ValidationRefusal::with(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail);
                return self.verdict(exchange, Err(fault));
            }
            Err(error) => return Verdict::Reply(error.into_reply()),
        };
        let found = self.judge(rule, bytes.clone()).await;
        exchange.body = match trailers {
            Some(trailers) => Body::full_with_trailers(bytes, trailers),
            None => Body::full(bytes),
        };
        match found {
            Ok(found) => self.verdict(exchange, found),
            Err(reply) => Verdict::reply(reply),
        }
    }

    async fn judge(&self, rule: BodyRule, bytes: Bytes) -> Result<Result<(), ValidationRefusal>, Reply> {
        if bytes.len() <= LARGE {
            return Ok(rule.check(&bytes));
        }
        let checked = self.world.run_blocking(move || rule.check(&bytes)).await;
        checked.map_err(|_| Reply::new(Cause::Overloaded))
    }

    fn verdict(&self, exchange: &mut Exchange, found: Result<(), ValidationRefusal>) -> Verdict {
        self.outcome(exchange, found).map_or(Verdict::Next, Verdict::reply)
    }

    /// The refusal, where there is one.
    fn outcome(&self, exchange: &mut Exchange, found: Result<(), ValidationRefusal>) -> Option<Reply> {
        let Err(fault) = found else {
            self.passed.add(1);
            return None;
        };
        self.refused.add(1);
        if self.rules.dry_run {
            exchange.note("request_validation.would_refuse", fault.reason);
            return None;
        }
        let status = fault.status.unwrap_or(self.rules.status);
        let reply = Reply::new(Cause::BadRequest).status(status).reason(fault.reason).detail(fault.detail);
        Some(match fault.allow {
            Some(methods) => reply.header(ALLOW, methods),
            None => reply,
        })
    }
}

/// For the fuzzer: where a value does not fit is found for each value that does not fit, and for no other.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(data: &[u8]) {
    schema::fuzz(data);
}

#[cfg(test)]
mod tests;
