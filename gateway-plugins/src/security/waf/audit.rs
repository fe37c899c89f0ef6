//! What is said about matches: fields of the access record, and counters by rule.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{PoisonError, RwLock};

use gateway_core::http::exchange::Exchange;
use gateway_core::metrics::Metric;
use gateway_core::plugin::World;
use gateway_core::plugin::world::meters::Counter;
use gateway_waf::{Report, Transaction};

use super::settings::Mode;

const MATCHES: Metric = Metric::counter(
    "ferrum_waf_rule_matches_total",
    "Requests, responses and messages that a rule matched, by rule id; `shadow` rules do not decide.",
);
/// Matches that are written out.
const WRITTEN: usize = 8;
/// Rule ids that are listed.
const LISTED: usize = 32;

/// Notes and counts matches.
pub(super) struct Audit {
    world: World,
    owner: String,
    sample: f64,
    rules: RwLock<HashMap<(u64, bool), Counter>>,
}

impl Audit {
    pub(super) fn new(world: &World, sample: f64) -> Self {
        let owner = world.owner().map_or_else(String::new, |owner| owner.config.as_str().to_owned());
        Self { world: world.clone(), owner, sample, rules: RwLock::default() }
    }

    /// Counts the rules that matched, each once.
    pub(super) fn count(&self, transaction: &Transaction, shadow: bool) {
        let mut ids: Vec<u64> = transaction.matched_ids().collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let known = self.rules.read().unwrap_or_else(PoisonError::into_inner).get(&(id, shadow)).cloned();
            let counter = known.unwrap_or_else(|| {
                let (text, kind) = (id.to_string(), if shadow { "shadow" } else { "active" });
                let labels = &["plugin_config", "rule", "kind"];
                let counter = self.world.meters().counter(MATCHES, labels, &[&self.owner, &text, kind]);
                let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
                rules.insert((id, shadow), counter.clone());
                counter
            });
            counter.add(1);
        }
    }

    fn is_sampled(&self) -> bool {
        self.sample >= 1.0 || fastrand::f64() < self.sample
    }

    /// Writes what matched into the access record.
    pub(super) fn note(
        &self,
        exchange: &mut Exchange,
        transaction: &Transaction,
        why: Option<&'static str>,
        mode: Mode,
    ) {
        self.count(transaction, false);
        if let Some(why) = why {
            exchange.note("waf.outcome", if mode == Mode::Block { "refused" } else { "would_refuse" });
            exchange.note("waf.reason", why);
        }
        if transaction.matched_rules() == 0 && transaction.body_error().is_none() {
            return;
        }
        let report = transaction.report();
        exchange.note("waf.score", u64::try_from(report.score).unwrap_or(0));
        exchange.note("waf.rules", ids(&report).as_str());
        if let Some(error) = report.body_error {
            exchange.note("waf.body_error", error);
        }
        if self.is_sampled() {
            exchange.note("waf.matches", matches_text(&report).as_str());
        }
    }

    /// The same for rules that do not decide.
    pub(super) fn note_shadow(&self, exchange: &mut Exchange, transaction: &Transaction) {
        self.count(transaction, true);
        if transaction.matched_rules() > 0 {
            let report = transaction.report();
            exchange.note("waf.shadow.rules", ids(&report).as_str());
            exchange.note("waf.shadow.would_refuse", report.denied.is_some());
        }
    }
}

/// The rules that matched, each once.
fn ids(report: &Report) -> String {
    let mut ids: Vec<u64> = report.matches.iter().map(|found| found.rule).collect();
    ids.dedup();
    ids.truncate(LISTED);
    ids.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// The rules that matched, each with its message and what it matched.
pub(super) fn matches_text(report: &Report) -> String {
    let mut out = String::new();
    for found in report.matches.iter().take(WRITTEN) {
        let between = if out.is_empty() { "" } else { "; " };
        // Writing to a string can't fail.
        let _written = write!(out, "{between}{} {}", found.rule, found.message);
        if !found.variable.is_empty() {
            let _written = write!(out, " ({}: {})", found.variable, found.excerpt);
        }
    }
    out
}
