//! What came of an inspection, and what may be said about it.

use super::state::{Hit, TxValue, VariableSlot};
use super::{Buffers, KEPT_BYTES, Transaction};
use crate::seclang::actions::EngineMode;

/// A rule refused the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denial {
    /// The rule's id.
    pub rule: u64,
    /// The status that the rule names.
    pub status: Option<u16>,
}

/// A match that is kept.
pub(super) struct KeptMatch {
    pub(super) half: usize,
    pub(super) rule: usize,
    pub(super) hit: Option<Hit>,
    pub(super) message: Vec<u8>,
    pub(super) score: i64,
}

/// A rule that matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The rule's id.
    pub rule: u64,
    /// Where the rule is written.
    pub place: String,
    /// What it says, for people.
    pub message: String,
    /// From 0 (emergency) to 7 (debug).
    pub severity: Option<u8>,
    /// Its tags.
    pub tags: Vec<String>,
    /// What it matched, such as `ARGS:q`.
    pub variable: String,
    /// A piece of the value, without what may be secret.
    pub excerpt: String,
    /// What it added to the anomaly score.
    pub score: i64,
}

/// What came of an inspection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The rule that refused it.
    pub denied: Option<Denial>,
    /// Rules that matched, up to a limit.
    pub matches: Vec<Match>,
    /// How many matched in all.
    pub matched_rules: u32,
    /// The sum of the anomaly scores.
    pub score: i64,
    /// Why the body could not be read.
    pub body_error: Option<&'static str>,
    /// Values that were cut off or left out.
    pub not_inspected: u32,
    /// Whether the rules stopped at a limit.
    pub over_budget: bool,
}

/// Characters of an excerpt.
const EXCERPT: usize = 80;
/// Characters of a variable's name.
const NAME: usize = 100;
/// Names whose values are never shown.
const SECRET: &[&str] = &[
    "password",
    "passwd",
    "pwd",
    "secret",
    "token",
    "authorization",
    "cookie",
    "session",
    "sid",
    "api_key",
    "apikey",
    "api-key",
    "auth",
    "credential",
    "card",
    "cvv",
    "ssn",
    "private",
    "signature",
    "bearer",
];

impl Transaction {
    /// The sum of the anomaly scores so far.
    pub fn score(&self) -> i64 {
        let slots = self.ruleset.scores.iter();
        slots.map(|slot| self.buffers.tx.get(VariableSlot::Slot(*slot)).number(&self.buffers.texts)).sum()
    }

    /// The rule that refused the request, if one has.
    pub fn denied(&self) -> Option<Denial> {
        self.outcome.denied
    }

    /// Whether the request goes no further: a rule has refused it, and it is not only looked at.
    pub fn is_refused(&self) -> bool {
        self.outcome.denied.is_some() && self.mode == EngineMode::On
    }

    /// Whether something was not looked at, because a limit was reached.
    pub fn is_partial(&self) -> bool {
        self.outcome.over_budget || self.buffers.values.not_inspected > 0
    }

    /// Bytes that automata and operators have read so far: what the request has cost, whatever the machine.
    pub fn bytes_read(&self) -> u64 {
        self.buffers.texts.read
    }

    /// Why the body could not be read.
    pub fn body_error(&self) -> Option<&'static str> {
        self.outcome.body_error
    }

    /// How many rules matched so far.
    pub fn matched_rules(&self) -> u32 {
        self.outcome.matched_rules
    }

    /// The number that a variable of TX holds.
    pub fn variable(&self, name: &str) -> Option<i64> {
        let slot = self.ruleset.slots.by_name.get(name.as_bytes())?;
        match self.buffers.tx.get(VariableSlot::Slot(*slot)) {
            TxValue::Unset => None,
            value => Some(value.number(&self.buffers.texts)),
        }
    }

    /// Everything that came of it.
    pub fn report(&self) -> Report {
        Report {
            denied: self.outcome.denied,
            matches: self.outcome.matches.iter().map(|found| self.describe(found)).collect(),
            matched_rules: self.outcome.matched_rules,
            score: self.score(),
            body_error: self.outcome.body_error,
            not_inspected: self.buffers.values.not_inspected,
            over_budget: self.outcome.over_budget,
        }
    }

    /// The ids of the rules that matched, up to a limit.
    pub fn matched_ids(&self) -> impl Iterator<Item = u64> {
        self.outcome.matches.iter().map(|found| self.ruleset.halves[found.half].rules[found.rule].id)
    }

    fn describe(&self, found: &KeptMatch) -> Match {
        let rule = &self.ruleset.halves[found.half].rules[found.rule];
        let texts = &self.buffers.texts;
        let mut name = Vec::new();
        if let Some(hit) = &found.hit {
            hit.write_name(texts, &mut name);
        }
        let variable = printable(&name, NAME);
        let excerpt = match &found.hit {
            Some(_) if is_secret(&variable) => "***".to_owned(),
            Some(hit) => printable(texts.get(hit.text), EXCERPT),
            None => String::new(),
        };
        Match {
            rule: rule.id,
            place: rule.place.to_string(),
            message: printable(&found.message, EXCERPT * 3),
            severity: rule.meta.severity,
            tags: rule.meta.tags.clone(),
            variable,
            excerpt,
            score: found.score,
        }
    }

    /// Ends it, and gives back the buffers.
    pub fn finish(mut self) -> Buffers {
        self.remember();
        self.buffers.texts.shrink(KEPT_BYTES);
        self.buffers
    }
}

fn is_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    // `ARGS:x` and its like are names; the collection's own name says nothing but for cookies.
    let own = lower.split_once(':').map_or("", |(_, own)| own);
    lower.starts_with("request_cookies:") || SECRET.iter().any(|word| own.contains(word))
}

/// Text that can't forge a line of a log: other characters than printable ASCII are escaped, and it is cut off.
fn printable(bytes: &[u8], limit: usize) -> String {
    let mut out = String::new();
    for byte in bytes {
        if out.len() >= limit {
            out.push('…');
            break;
        }
        match byte {
            b' '..=b'~' => out.push(char::from(*byte)),
            byte => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_forges_nothing_and_gives_nothing_away() {
        assert_eq!(printable(b"a\n\x1b\xffb", 80), "a\\x0a\\x1b\\xffb");
        assert_eq!(printable(&[b'a'; 100], 10), "aaaaaaaaaa…");
        for name in
            ["ARGS:Password", "ARGS:json.user.token", "REQUEST_HEADERS:Authorization", "REQUEST_COOKIES:x"]
        {
            assert!(is_secret(name), "{name}");
        }
        assert!(!is_secret("ARGS:q") && !is_secret("REQUEST_URI"));
    }
}
