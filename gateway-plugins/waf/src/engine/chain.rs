//! One rule with what is chained to it.

use super::state::{Hit, TxValue, VariableSlot};
use super::verdict::KeptMatch;
use super::{Buffers, Transaction};
use crate::bits;
use crate::operator::{Captured, Operator};
use crate::rules::{
    Key, Member, Name, PhaseRules, RuleCondition, Ruleset, Set, Target, Test, Text, TextPiece, TxKey,
};
use crate::seclang::actions::VariableChange;
use crate::texts::{Fact, TextId};
use crate::variable::Variable;

/// Values that `MATCHED_VARS` can hold.
const MAX_HITS: usize = 1024;

/// Which rule runs.
#[derive(Clone, Copy)]
pub(super) struct Spot<'r> {
    pub(super) ruleset: &'r Ruleset,
    pub(super) half: &'r PhaseRules,
    pub(super) rule: usize,
    pub(super) is_head: bool,
}

impl Transaction {
    /// Runs a rule; whether the whole chain matched.
    pub(super) fn rule(&mut self, ruleset: &Ruleset, half: &PhaseRules, n: usize) -> bool {
        let rule = &half.rules[n];
        self.buffers.hits.clear();
        let before = self.score();
        for (level, link) in rule.links.iter().enumerate() {
            let spot = Spot { ruleset, half, rule: n, is_head: level == 0 };
            if !self.link(spot, link) {
                return false;
            }
        }
        if rule.meta.log {
            self.outcome.matched_rules += 1;
            if self.outcome.matches.len() < self.limits.matches {
                let found = self.found(n, before, rule);
                self.outcome.matches.push(found);
            }
        }
        true
    }

    fn found(&self, n: usize, before: i64, rule: &crate::rules::Rule) -> KeptMatch {
        let message = rule.meta.msg.as_ref().map(|msg| self.expand(msg)).unwrap_or_default();
        let hit = self.buffers.hits.last().copied();
        KeptMatch { half: self.half, rule: n, hit, message, score: self.score() - before }
    }

    /// Runs one condition; whether it matched any value.
    fn link(&mut self, spot: Spot<'_>, link: &RuleCondition) -> bool {
        if link.targets.is_empty() {
            self.act(spot, link, None);
            return true;
        }
        let mut matched = false;
        for target in &link.targets {
            matched |= match target {
                Target::Values(member) if member.variable.is_volatile() => self.matched(spot, link, member),
                Target::Values(member) => self.values_of(spot, link, member),
                Target::Count(member) => {
                    let count = self.count(spot, link, member);
                    let text = self.buffers.texts.keep(count.to_string().as_bytes());
                    self.test(spot, link, Hit { variable: member.variable, name: 0, text })
                }
                Target::Tx(key, counted) => self.tx(spot, link, key, *counted),
            };
        }
        matched
    }

    fn values_of(&mut self, spot: Spot<'_>, link: &RuleCondition, member: &Member) -> bool {
        let (width, rule) = (spot.half.width, spot.rule);
        let is_known = spot.is_head && matches!(link.test, Test::Fixed(_));
        let is_filtered = is_known && bits::has(&spot.half.filtered, rule);
        let variable = member.variable;
        let (mut matched, mut n) = (false, 0);
        while let Some(value) = self.buffers.values.nth(variable, n) {
            n += 1;
            if is_known {
                let texts = &self.buffers.texts;
                let candidate = !is_filtered || texts.is(value.text, Fact::Candidate, rule, width);
                let asked = texts.is(value.text, Fact::Asked, rule, width);
                if !candidate || (asked && !texts.is(value.text, Fact::Matched, rule, width)) {
                    continue;
                }
            }
            let is_named =
                matches!(member.key, Key::All) || member.key.takes(self.buffers.texts.get(value.name));
            if !is_named || self.is_excluded(spot, link, variable, value.name) {
                continue;
            }
            let hit = self.test(spot, link, Hit { variable, name: value.name, text: value.text });
            if is_known {
                self.buffers.texts.note(value.text, rule, hit, width);
            }
            matched |= hit;
            if self.is_over_budget() {
                return matched;
            }
        }
        matched
    }

    fn is_excluded(&self, spot: Spot<'_>, link: &RuleCondition, variable: Variable, name: TextId) -> bool {
        if link.excluded.is_empty() && self.excluded.is_empty() {
            return false;
        }
        let name = self.buffers.texts.get(name);
        let covers = |member: &Member| {
            let same = member.variable == variable
                || matches!(
                    (member.variable, variable),
                    (Variable::Args, Variable::ArgsGet | Variable::ArgsPost)
                        | (Variable::ArgsNames, Variable::ArgsGetNames | Variable::ArgsPostNames)
                );
            same && member.key.takes(name)
        };
        link.excluded.iter().any(covers)
            || self
                .excluded
                .iter()
                .any(|(rules, member)| bits::has(&rules[self.half], spot.rule) && covers(member))
    }

    fn count(&self, spot: Spot<'_>, link: &RuleCondition, member: &Member) -> usize {
        let texts = &self.buffers.texts;
        match member.variable {
            Variable::MatchedVars | Variable::MatchedVarsNames => self.buffers.hits.len(),
            variable => (self.buffers.values.of(variable))
                .filter(|value| {
                    member.key.takes(texts.get(value.name))
                        && !self.is_excluded(spot, link, variable, value.name)
                })
                .count(),
        }
    }

    /// Tests what earlier links have matched.
    fn matched(&mut self, spot: Spot<'_>, link: &RuleCondition, member: &Member) -> bool {
        let names = matches!(member.variable, Variable::MatchedVarName | Variable::MatchedVarsNames);
        let all = matches!(member.variable, Variable::MatchedVars | Variable::MatchedVarsNames);
        let count = self.buffers.hits.len();
        let from = if all { 0 } else { count.saturating_sub(1) };
        let mut matched = false;
        for n in from..count {
            let Some(mut hit) = self.buffers.hits.get(n).copied() else { break };
            if names {
                let mut name = Vec::new();
                hit.write_name(&self.buffers.texts, &mut name);
                hit.text = self.buffers.texts.keep(&name);
            }
            matched |= self.test(spot, link, hit);
        }
        matched
    }

    fn tx(&mut self, spot: Spot<'_>, link: &RuleCondition, key: &TxKey, counted: bool) -> bool {
        let places: Vec<VariableSlot> = match key {
            TxKey::Slot(slot) => vec![VariableSlot::Slot(*slot)],
            TxKey::Pattern(pattern, slots) => {
                let made = self.buffers.tx.made.iter().enumerate();
                let texts = &self.buffers.texts;
                let made = made.filter(|(_, (name, _))| pattern.is_match(texts.get(*name)));
                slots
                    .iter()
                    .map(|slot| VariableSlot::Slot(*slot))
                    .chain(made.map(|(at, _)| VariableSlot::Made(at)))
                    .collect()
            }
        };
        let (mut matched, mut set) = (false, 0);
        for place in places {
            let Buffers { tx, texts, .. } = &mut self.buffers;
            let Some(text) = tx.get(place).text(texts) else { continue };
            set += 1;
            if counted {
                continue;
            }
            let name = match place {
                VariableSlot::Slot(slot) => texts.keep(&spot.ruleset.slots.names[slot]),
                VariableSlot::Made(at) => tx.made.get(at).map_or(0, |(name, _)| *name),
            };
            matched |= self.test(spot, link, Hit { variable: Variable::Tx, name, text });
        }
        if counted {
            let text = self.buffers.texts.keep(set.to_string().as_bytes());
            return self.test(spot, link, Hit { variable: Variable::Tx, name: 0, text });
        }
        matched
    }

    /// Tests one value, and acts on each match.
    fn test(&mut self, spot: Spot<'_>, link: &RuleCondition, hit: Hit) -> bool {
        let nodes = &spot.ruleset.nodes;
        if link.steps.is_empty() {
            let text = self.buffers.texts.variant(hit.text, link.node, nodes);
            return self.test_text(spot, link, Hit { text, ..hit });
        }
        // With `multiMatch` the value is tested whenever a step has changed it.
        let (mut matched, mut before) = (false, None);
        for step in &link.steps {
            let text = self.buffers.texts.variant(hit.text, *step, nodes);
            if before.replace(text) != Some(text) {
                matched |= self.test_text(spot, link, Hit { text, ..hit });
            }
        }
        matched
    }

    fn test_text(&mut self, spot: Spot<'_>, link: &RuleCondition, hit: Hit) -> bool {
        let mut captured = Captured { groups: link.groups, spans: Vec::new() };
        let holds = match &link.test {
            Test::Fixed(operator) => {
                let texts = &mut self.buffers.texts;
                if operator.reads_all() {
                    texts.read += texts.get(hit.text).len() as u64;
                }
                // Bytes are needed by one operator alone.
                let bytes = match operator {
                    Operator::Bytes(_) => texts.bytes(hit.text),
                    _ => Default::default(),
                };
                let wanted = (link.capture && !link.negated).then_some(&mut captured);
                operator.holds(texts.get(hit.text), &bytes, wanted, self.limits.injection_bytes)
            }
            Test::Against(comparison, text) => {
                let argument = self.expand(text);
                comparison.holds(self.buffers.texts.get(hit.text), &argument)
            }
        };
        if holds == link.negated {
            return false;
        }
        if link.capture {
            self.capture(hit.text, &captured);
        }
        self.act(spot, link, Some(hit));
        true
    }

    /// Puts what a pattern's groups matched into TX.
    fn capture(&mut self, text: TextId, captured: &Captured) {
        for slot in 0..10 {
            let span = captured.spans.get(slot).copied().flatten();
            let Buffers { texts, tx, scratch, .. } = &mut self.buffers;
            let value = match span.and_then(|(from, to)| texts.get(text).get(from..to)) {
                Some(group) => {
                    scratch.clear();
                    scratch.extend_from_slice(group);
                    TxValue::Text(texts.keep(scratch))
                }
                None => TxValue::Unset,
            };
            tx.set(VariableSlot::Slot(slot), value);
        }
    }

    /// What a match sets and controls.
    fn act(&mut self, spot: Spot<'_>, link: &RuleCondition, hit: Option<Hit>) {
        let hits = &mut self.buffers.hits;
        if let Some(hit) = hit.filter(|hit| hits.len() < MAX_HITS && !hits.contains(hit)) {
            hits.push(hit);
        }
        for set in &link.sets {
            self.set(spot.ruleset, set);
        }
        for control in &link.controls {
            self.control(control);
        }
    }

    fn set(&mut self, ruleset: &Ruleset, set: &Set) {
        let place = match &set.name {
            Name::Slot(slot) => Some(VariableSlot::Slot(*slot)),
            Name::Made(name) => {
                let mut name = self.expand(name);
                name.make_ascii_lowercase();
                let Buffers { tx, texts, .. } = &mut self.buffers;
                tx.place(&name, &ruleset.slots, texts, self.limits.variables)
            }
        };
        // Beyond the limit there is no way to go on as the rules want it.
        let Some(place) = place else {
            self.outcome.over_budget = true;
            return;
        };
        let value = match (set.change, set.number, set.value.0.as_slice()) {
            (VariableChange::Unset, ..) => TxValue::Unset,
            (VariableChange::Set, Some(number), _) => TxValue::Number(number),
            (VariableChange::Set, None, [TextPiece::Slot(slot)]) => {
                self.buffers.tx.get(VariableSlot::Slot(*slot))
            }
            (VariableChange::Set, None, _) => {
                let text = self.expand(&set.value);
                TxValue::Text(self.buffers.texts.keep(&text))
            }
            (VariableChange::Add | VariableChange::Subtract, number, _) => {
                let change = match number {
                    Some(number) => number,
                    None => crate::bytes::number(&self.expand(&set.value)),
                };
                let before = self.buffers.tx.get(place).number(&self.buffers.texts);
                TxValue::Number(match set.change {
                    VariableChange::Add => before.saturating_add(change),
                    _ => before.saturating_sub(change),
                })
            }
        };
        self.buffers.tx.set(place, value);
    }

    /// Puts a text together.
    pub(super) fn expand(&self, text: &Text) -> Vec<u8> {
        let mut out = Vec::new();
        let texts = &self.buffers.texts;
        for piece in &text.0 {
            match piece {
                TextPiece::Bytes(bytes) => out.extend_from_slice(bytes),
                TextPiece::Slot(slot) => match self.buffers.tx.get(VariableSlot::Slot(*slot)) {
                    TxValue::Unset => {}
                    TxValue::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
                    TxValue::Text(text) => out.extend_from_slice(texts.get(text)),
                },
                TextPiece::Of(Variable::MatchedVar | Variable::MatchedVars, _) => {
                    out.extend_from_slice(self.buffers.hits.last().map_or(&[], |hit| texts.get(hit.text)));
                }
                TextPiece::Of(Variable::MatchedVarName | Variable::MatchedVarsNames, _) => {
                    if let Some(hit) = self.buffers.hits.last() {
                        hit.write_name(texts, &mut out);
                    }
                }
                TextPiece::Of(variable, name) => {
                    let mut values = self.buffers.values.of(*variable);
                    let named = |it: &crate::values::Value| {
                        name.as_ref().is_none_or(|name| texts.get(it.name).eq_ignore_ascii_case(name))
                    };
                    out.extend_from_slice(values.find(named).map_or(&[], |it| texts.get(it.text)));
                }
            }
        }
        out
    }
}
