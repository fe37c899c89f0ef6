//! A web application firewall: runs requests, and responses where wanted, through rules in SecLang.
//!
//! The rules are our own, or a folder that the operator brings, such as the OWASP Core Rule Set 4 with its own files. They are
//! compiled when the configuration is checked; what can't be enforced is an error with file and line. Bodies are read into
//! memory up to a limit, and what is larger or malformed is refused unless settings say otherwise. Requests with many values
//! are inspected on other threads; when those are busy, requests are refused rather than passed on. The answer never says
//! which rule refused a request: the access record does (`waf.outcome`, `waf.score`, `waf.rules`, `waf.matches`).
//! Compressed bodies are refused: `request_decompression` with `before: waf` opens them. Of gRPC calls each message is inspected
//! before it goes on; gzip and deflate are opened.

mod audit;
mod explain;
mod foreseen;
mod grpc;
mod inspect;
mod media;
mod message;
mod policy;
mod response;
mod settings;

use std::sync::Arc;

use gateway_core::condition::Condition;
use gateway_core::config::problem::Problems;
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::per_worker::PerWorker;
use gateway_core::plugin::{
    Attempt, Capabilities, Capability, Family, Foreseen, Foresight, Hooks, OnAttempt, OnMessage, OnRequest,
    OnResponse, Passage, Plugin, Seat, Step, World,
};
use gateway_core::stream::session::{Message, Session};
use gateway_waf::{Buffers, Ruleset, Transaction};
use http::Response;
use serde_json::Value;

use audit::Audit;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use policy::Policy;
use settings::{Config, Mode};

/// The plugin.
pub(crate) struct Waf(Arc<Firewall>);

/// What the plugin is made of; bodies of gRPC calls hold it as well.
struct Firewall {
    policy: Arc<Policy>,
    /// Rules that are only counted, beside those that decide.
    shadow: Option<Arc<Ruleset>>,
    buffers: PerWorker<Vec<Buffers>>,
    shadow_buffers: PerWorker<Vec<Buffers>>,
    audit: Audit,
    outcomes: Outcomes,
    world: World,
}

/// Counters of what became of requests.
struct Outcomes {
    passed: Counter,
    refused: Counter,
    would_refuse: Counter,
    partial: Counter,
}

const REQUESTS: Metric = Metric::counter(
    "ferrum_waf_requests_total",
    "Requests, responses and messages inspected, by outcome: passed, refused, would_refuse, partial (counted besides).",
);
/// Buffers that one worker keeps.
const MAX_BUFFERS: usize = 4;

impl Plugin for Waf {
    const NAME: &'static str = "waf";
    const FAMILY: Family = Family::Security;
    const SUMMARY: &'static str = "Rejects attacks by rules such as the OWASP Core Rule Set.";
    const ACTIONS: &'static [(&'static str, &'static str)] =
        &[("explain", "Runs a request through the rules and reports which of them match, and their scores.")];
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let built = policy::read(config, world, &mut problems);
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count =
            |outcome| world.meters().counter(REQUESTS, &["plugin_config", "outcome"], &[owner, outcome]);
        let outcomes = Outcomes {
            passed: count("passed"),
            refused: count("refused"),
            would_refuse: count("would_refuse"),
            partial: count("partial"),
        };
        let Some(built) = built else { return Err(problems) };
        problems.into_result(Self(Arc::new(Firewall {
            policy: Arc::new(built.policy),
            shadow: built.shadow,
            buffers: PerWorker::new(),
            shadow_buffers: PerWorker::new(),
            audit: Audit::new(world, built.sample),
            outcomes,
            world: world.clone(),
        })))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_if(self.0.policy.response.is_some(), Capability::InspectsResponses)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        for (n, (when, _)) in self.0.policy.exclusions.iter().enumerate() {
            if when.as_ref().is_some_and(Condition::asks_for_caller) {
                hooks.goes_by_caller(format!("config.exclusions[{n}].when"));
            }
        }
        hooks.on_request(self.clone());
        if self.0.policy.response.is_some() {
            hooks.on_attempt(self.clone());
            hooks.on_response(self.clone());
        }
        if self.0.policy.messages {
            hooks.on_message(self);
        }
    }

    fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        self.0.foresee(foresight)
    }

    fn act(&self, _action: &str, input: &Value) -> Result<Value, Problems> {
        explain::explain(&self.0.policy, input)
    }
}

impl OnRequest for Waf {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        match self.0.policy.mode {
            Mode::Off => Step::Next,
            Mode::Detect | Mode::Block => self.0.inspect(exchange, seat),
        }
    }
}

impl OnResponse for Waf {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        self.0.inspect_response(exchange, response, seat)
    }
}

impl OnAttempt for Waf {
    fn on_attempt<'a>(&'a self, exchange: &'a mut Exchange, _: Attempt<'a>, seat: Seat<'a>) -> Step<'a> {
        self.0.ask_for_plain(exchange, seat);
        Step::Next
    }
}

impl OnMessage for Waf {
    fn on_message<'a>(&'a self, session: &'a Session, message: Message<'_>, _seat: Seat<'a>) -> Passage<'a> {
        match self.0.policy.mode {
            Mode::Off => Passage::Forward,
            Mode::Detect | Mode::Block => self.0.inspect_message(session, message),
        }
    }
}

impl Firewall {
    fn transaction(&self) -> Transaction {
        let buffers = take(&self.buffers);
        self.policy.transaction(buffers)
    }

    fn done(&self, transaction: Transaction) {
        give(&self.buffers, transaction.finish());
    }
}

fn take(pool: &PerWorker<Vec<Buffers>>) -> Buffers {
    pool.get_or(Vec::new).and_then(|mut kept| kept.pop()).unwrap_or_default()
}

fn give(pool: &PerWorker<Vec<Buffers>>, buffers: Buffers) {
    if let Some(mut kept) = pool.get_or(Vec::new)
        && kept.len() < MAX_BUFFERS
    {
        kept.push(buffers);
    }
}

#[cfg(test)]
mod tests;
