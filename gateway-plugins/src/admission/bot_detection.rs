//! Keeps automated clients out by their `User-Agent`, by lists that come with the gateway and by patterns of your own.
//!
//! A pattern is a part of the header in upper or lower case (`curl/`), or a regex after `~` (`~^my-bot/[0-9]`). What is in
//! `allow` passes whatever else matches. Anybody can send any `User-Agent`: this keeps out tools that do not pretend to be
//! browsers, and is no protection against those that do.

mod lists;

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{Family, Foreseen, Foresight, Hooks, OnRequest, Plugin, Seat, Step, World};
use gateway_core::request_values;
use http::StatusCode;
use http::header::USER_AGENT;
use regex::bytes::{RegexSet, RegexSetBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use lists::List;

/// Settings of `bot_detection`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Built-in lists to deny: `scanners` (vulnerability scanners), `tools` (command-line clients and HTTP libraries),
    /// `headless` (automated browsers), `scrapers` (crawlers of SEO and data services), `ai` (crawlers for language
    /// models), `search` (search engines). Default `scanners`: programs that call APIs are `tools`.
    lists: Vec<List>,
    /// Further patterns to deny, up to 1,000: a part of the header in any case (`curl/`), or a regex after `~`
    /// (`~^my-bot/[0-9]`). Default none.
    #[schemars(length(max = 1000))]
    deny: Vec<String>,
    /// Patterns to admit, up to 1,000; they precede the others. Default none.
    #[schemars(length(max = 1000))]
    allow: Vec<String>,
    /// What happens to requests with no `User-Agent` or an empty one: `allow` or `deny`. Default `allow`.
    on_missing: Missing,
    /// Status of rejections, 400 to 599. Default 403.
    #[schemars(range(min = 400, max = 599))]
    status_code: u16,
    /// Counts matches and logs `bot_detection.would_deny`, but rejects nothing. Default false.
    dry_run: bool,
}

/// What happens to requests without the header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Missing {
    /// They pass.
    #[default]
    Allow,
    /// They are rejected.
    Deny,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lists: vec![List::Scanners],
            deny: Vec::new(),
            allow: Vec::new(),
            on_missing: Missing::Allow,
            status_code: 403,
            dry_run: false,
        }
    }
}

/// The plugin.
pub(crate) struct BotDetection {
    allow: RegexSet,
    deny: RegexSet,
    /// From which pattern of `deny` on which list begins, and its counter.
    lists: Box<[(usize, &'static str, Counter)]>,
    missing: Option<Counter>,
    status: StatusCode,
    dry_run: bool,
}

/// Bytes that the compiled patterns of one list may take.
const MAX_COMPILED: usize = 8 << 20;
const DENIED: Metric = Metric::counter(
    "ferrum_bot_detection_denied_total",
    "Requests refused for their User-Agent, by the list it is on (would have been, in a dry run).",
);

impl Plugin for BotDetection {
    const NAME: &'static str = "bot_detection";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Rejects automated clients by their `User-Agent`.";
    const EXAMPLE: &'static str = include_str!("../../examples/bot_detection.yaml");
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if config.lists.is_empty() && config.deny.is_empty() && config.on_missing == Missing::Allow {
            problems.add("config", "nothing is denied").remedy =
                Some("give `lists`, `deny` or `on_missing: deny`".into());
        }
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let denied = |list| world.meters().counter(DENIED, &["plugin_config", "list"], &[owner, list]);
        let mut patterns = Vec::new();
        let mut lists = Vec::new();
        for (n, list) in config.lists.iter().enumerate() {
            if config.lists.iter().take(n).any(|other| other == list) {
                problems.add(format!("config.lists[{n}]"), "this list is given twice");
                continue;
            }
            lists.push((patterns.len(), list.name(), denied(list.name())));
            patterns.extend(list.patterns().iter().map(|text| regex::escape(text)));
        }
        lists.push((patterns.len(), "own", denied("own")));
        patterns.extend(own("deny", &config.deny, &mut problems));
        let deny = set("deny", &patterns, &mut problems);
        let allow = own("allow", &config.allow, &mut problems);
        let allow = set("allow", &allow, &mut problems);
        problems.into_result(())?;
        Ok(Self {
            allow: allow.unwrap_or_default(),
            deny: deny.unwrap_or_default(),
            lists: lists.into(),
            missing: (config.on_missing == Missing::Deny).then(|| denied("missing")),
            status: StatusCode::from_u16(config.status_code).unwrap_or(StatusCode::FORBIDDEN),
            dry_run: config.dry_run,
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }

    fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        Some(match self.denies(foresight.exchange) {
            None => Foreseen::Passes("no list denies this `User-Agent`".into()),
            Some((list, _)) => {
                Foreseen::refuses(self.refusal(), format!("the list `{list}` denies it"), self.dry_run)
            }
        })
    }
}

/// Patterns of the operator's own, as regexes.
fn own(name: &str, texts: &[String], problems: &mut Problems) -> Vec<String> {
    let mut patterns = Vec::with_capacity(texts.len());
    for (n, text) in texts.iter().enumerate() {
        let path = format!("config.{name}[{n}]");
        match text.strip_prefix('~') {
            None if text.trim().is_empty() => {
                problems.add(path, "an empty pattern matches every client");
            }
            None => patterns.push(regex::escape(text)),
            Some(pattern) => {
                if gateway_plugin_common::parse::regex(&path, pattern, problems).is_some() {
                    patterns.push(pattern.to_owned());
                }
            }
        }
    }
    patterns
}

fn set(name: &str, patterns: &[String], problems: &mut Problems) -> Option<RegexSet> {
    let built = RegexSetBuilder::new(patterns).case_insensitive(true).size_limit(MAX_COMPILED).build();
    built.map_err(|error| problems.add(format!("config.{name}"), error.to_string()).path.len()).ok()
}

impl OnRequest for BotDetection {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        let Some((list, counter)) = self.denies(exchange) else { return Step::Next };
        counter.add(1);
        exchange.note("bot_detection.list", list);
        if self.dry_run {
            exchange.note("bot_detection.would_deny", true);
            return Step::Next;
        }
        Step::reply(self.refusal())
    }
}

impl BotDetection {
    fn refusal(&self) -> Reply {
        let reply =
            Reply::new(Cause::Forbidden).reason("bot_denied").detail("automated clients are not allowed");
        if self.status == StatusCode::FORBIDDEN { reply } else { reply.status(self.status) }
    }

    /// The list that keeps this request out.
    fn denies(&self, exchange: &Exchange) -> Option<(&'static str, &Counter)> {
        let agent = request_values::header(&exchange.request.headers, &USER_AGENT);
        let Some(agent) = agent.as_deref().map(<[u8]>::trim_ascii).filter(|agent| !agent.is_empty()) else {
            return self.missing.as_ref().map(|counter| ("missing", counter));
        };
        // A byte that is no UTF-8 is a character like others, and does not end what `.*` stands for.
        let agent = String::from_utf8_lossy(agent);
        let agent = agent.as_bytes();
        if !self.deny.is_match(agent) || self.allow.is_match(agent) {
            return None;
        }
        let first = self.deny.matches(agent).iter().next()?;
        let after = self.lists.partition_point(|(begins, ..)| *begins <= first);
        let (_, list, counter) = self.lists.get(after.checked_sub(1)?)?;
        Some((list, counter))
    }
}

#[cfg(test)]
mod tests;
