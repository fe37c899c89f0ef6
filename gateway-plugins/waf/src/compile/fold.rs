//! Runs at load what does not depend on the request: the set-up, paranoia gates and the settings that rules read. What can
//! never run is dropped.

use std::collections::{HashMap, HashSet};

use super::draft::Draft;
use crate::bytes::number;
use crate::operator::Comparison;
use crate::rules::Decision;
use crate::seclang::actions::{Ctl, VariableChange};
use crate::seclang::macros::{MacroPiece, Template};
use crate::seclang::targets::KeySource;
use crate::seclang::{IdRange, OperatorSource, RuleSource};
use crate::variable::Variable;

/// What is left.
pub(super) struct Folded {
    pub(super) drafts: Vec<Draft>,
    /// What TX holds before the first rule that is left.
    pub(super) initial: HashMap<String, Vec<u8>>,
}

/// Names of TX that a request can change.
#[derive(Default)]
struct Dynamic {
    names: HashSet<String>,
    /// What names made at run time begin with.
    prefixes: HashSet<String>,
}

impl Dynamic {
    fn has(&self, name: &str) -> bool {
        let is_group = name.len() == 1 && name.as_bytes()[0].is_ascii_digit();
        is_group || self.names.contains(name) || self.prefixes.iter().any(|it| name.starts_with(it.as_str()))
    }

    fn template(&self, template: &Template) -> bool {
        template.0.iter().any(|piece| match piece {
            MacroPiece::Text(_) => false,
            MacroPiece::Tx(name) => self.has(name),
            MacroPiece::Of(..) => true,
        })
    }

    /// Whether the link asks something that the request can change.
    fn link(&self, link: &RuleSource) -> bool {
        if link.targets.is_empty() {
            return false;
        }
        let by_name = link.targets.iter().all(|target| {
            target.variable == Variable::Tx
                && !target.excluded
                && matches!(&target.key, KeySource::Name(name) if !self.has(name))
        });
        let asks = Comparison::named(&link.operator.name).is_some();
        let argument = crate::seclang::macros::parse(&link.operator.argument);
        let plain = link.actions.transforms.iter().flatten().count() == 0 && !link.actions.capture;
        !(by_name && asks && plain && argument.is_ok_and(|it| !self.template(&it)))
    }

    fn rule(&self, draft: &Draft) -> bool {
        draft.links.iter().any(|link| self.link(link))
    }

    /// Adds what the rule sets; whether that is news.
    fn add_sets(&mut self, draft: &Draft, all: bool) -> bool {
        let mut news = false;
        for set in draft.links.iter().flat_map(|link| &link.actions.sets) {
            match set.name.constant() {
                Some(name) => {
                    let name = String::from_utf8_lossy(name).into_owned();
                    if all || self.template(&set.value) {
                        news |= self.names.insert(name);
                    }
                }
                None => {
                    let prefix = match set.name.0.first() {
                        Some(MacroPiece::Text(text)) => String::from_utf8_lossy(text).into_owned(),
                        _ => String::new(),
                    };
                    news |= self.prefixes.insert(prefix);
                }
            }
        }
        news
    }
}

/// What a request can skip or remove among the rules.
fn unsteady(drafts: &[Draft], dynamic: &Dynamic) -> Vec<bool> {
    let mut unsteady = vec![false; drafts.len()];
    for draft in drafts.iter().filter(|draft| dynamic.rule(draft)) {
        let end = match (draft.skip_to, draft.decision) {
            (_, Decision::Allow(_)) => usize::MAX,
            (Some(end), _) => end,
            (None, _) => draft.position,
        };
        let removed: Vec<IdRange> = (draft.links.iter().flat_map(|link| &link.actions.ctls))
            .filter_map(|ctl| match ctl {
                Ctl::RemoveById(ids) => Some(*ids),
                _ => None,
            })
            .collect();
        for (other, flag) in drafts.iter().zip(&mut unsteady) {
            let skipped = other.phase == draft.phase && (draft.position + 1..=end).contains(&other.position);
            // A gate that leads no further than where this one leads anyway.
            let is_gate = other.skip_to.is_some_and(|it| it <= end)
                && other.links.iter().all(|link| link.actions.sets.is_empty());
            let skipped = skipped && !is_gate;
            *flag |= skipped || other.is_in(&removed);
        }
    }
    unsteady
}

/// Folds the rules, which are in the order in which they run.
pub(super) fn fold(drafts: Vec<Draft>) -> Folded {
    let mut dynamic = Dynamic::default();
    let mut flags;
    loop {
        flags = unsteady(&drafts, &dynamic);
        let mut news = false;
        for (draft, unsteady) in drafts.iter().zip(&flags) {
            let all = *unsteady || dynamic.rule(draft);
            news |= dynamic.add_sets(draft, all);
        }
        if !news {
            break;
        }
    }
    let mut folder = Folder { dynamic, state: HashMap::new(), touched: Dynamic::default(), kept: Vec::new() };
    let mut skip: Option<(u8, usize)> = None;
    for (draft, unsteady) in drafts.into_iter().zip(flags) {
        if skip.is_some_and(|(phase, end)| draft.phase == phase && draft.position <= end) {
            continue;
        }
        if let Some(end) = folder.take(draft, unsteady) {
            skip = Some(end);
        }
    }
    Folded { drafts: folder.kept, initial: folder.state }
}

struct Folder {
    dynamic: Dynamic,
    /// What TX holds.
    state: HashMap<String, Vec<u8>>,
    /// Names that a kept rule has read or set.
    touched: Dynamic,
    kept: Vec<Draft>,
}

impl Folder {
    /// Takes the next rule; the phase and position up to which all others are dropped, where it skips them.
    fn take(&mut self, mut draft: Draft, unsteady: bool) -> Option<(u8, usize)> {
        self.substitute(&mut draft);
        let leading = draft.links.iter().take_while(|link| !self.dynamic.link(link)).count();
        let failed = draft.links.iter().take(leading).position(|link| !self.holds(link));
        // What comes before a link that fails may set something nevertheless.
        if failed.is_some_and(|at| draft.links.iter().take(at).all(|link| link.actions.sets.is_empty())) {
            return None;
        }
        if leading < draft.links.len() || unsteady {
            self.keep(draft);
            return None;
        }
        // Each link that holds, up to the first that does not, does what it does.
        let count = draft.links.iter().take_while(|link| self.holds(link)).count();
        let complete = count == draft.links.len();
        draft.links.truncate(count.max(1));
        for link in &mut draft.links {
            self.hoist(link, count > 0);
        }
        if count == 0 {
            return None;
        }
        let skip = draft.skip_to.filter(|_| complete).map(|end| (draft.phase, end));
        draft.skip_to = None;
        if !complete {
            draft.decision = Decision::Pass;
        }
        let acts = draft.links.iter().any(|link| {
            !link.actions.sets.is_empty()
                || !link.actions.ctls.is_empty()
                || !link.actions.unsupported.is_empty()
        });
        let logs = draft.head().msg.is_some() && draft.head().log != Some(false);
        if acts || (complete && (logs || draft.decision != Decision::Pass)) {
            for link in &mut draft.links {
                link.targets.clear();
                link.operator = OperatorSource {
                    negated: false,
                    name: "unconditionalmatch".into(),
                    argument: String::new(),
                };
            }
            self.keep(draft);
        }
        skip
    }

    fn keep(&mut self, draft: Draft) {
        self.touched.add_sets(&draft, true);
        for link in &draft.links {
            for target in link.targets.iter().filter(|target| target.variable == Variable::Tx) {
                match &target.key {
                    KeySource::Name(name) => drop(self.touched.names.insert(name.clone())),
                    _ => drop(self.touched.prefixes.insert(String::new())),
                }
            }
            let argument = crate::seclang::macros::parse(&link.operator.argument).unwrap_or_default();
            let values = link.actions.sets.iter().map(|set| &set.value);
            for piece in values.chain([&argument]).flat_map(|template| &template.0) {
                if let MacroPiece::Tx(name) = piece {
                    self.touched.names.insert(name.clone());
                }
            }
        }
        self.kept.push(draft);
    }

    /// Does what a rule that always holds sets, as far as nothing before it could see the difference.
    fn hoist(&mut self, link: &mut RuleSource, runs: bool) {
        if !runs {
            return;
        }
        let sets = std::mem::take(&mut link.actions.sets);
        for set in sets {
            let name = set.name.constant().map(|name| String::from_utf8_lossy(name).into_owned());
            let value = self.text(&set.value);
            match (name, value) {
                (Some(name), Some(value)) if !self.touched.has(&name) => {
                    self.change(name, set.change, value);
                }
                _ => {
                    link.actions.sets.push(set);
                }
            }
        }
    }

    fn change(&mut self, name: String, change: VariableChange, value: Vec<u8>) {
        let before = self.state.get(&name).map_or(0, |before| number(before));
        match change {
            VariableChange::Set => drop(self.state.insert(name, value)),
            VariableChange::Unset => drop(self.state.remove(&name)),
            VariableChange::Add => {
                let sum = before.saturating_add(number(&value));
                drop(self.state.insert(name, sum.to_string().into_bytes()));
            }
            VariableChange::Subtract => {
                let rest = before.saturating_sub(number(&value));
                drop(self.state.insert(name, rest.to_string().into_bytes()));
            }
        }
    }

    /// What a text comes to, where no request can change that.
    fn text(&self, template: &Template) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        for piece in &template.0 {
            match piece {
                MacroPiece::Text(text) => out.extend_from_slice(text),
                MacroPiece::Tx(name) if !self.dynamic.has(name) => {
                    out.extend_from_slice(self.state.get(name).map_or(&[], Vec::as_slice));
                }
                _ => return None,
            }
        }
        Some(out)
    }

    /// Puts what is known in the place of macros.
    fn substitute(&self, draft: &mut Draft) {
        for link in &mut draft.links {
            for set in &mut link.actions.sets {
                self.fill(&mut set.value);
            }
            if let Ok(mut argument) = crate::seclang::macros::parse(&link.operator.argument)
                && Comparison::named(&link.operator.name).is_some()
            {
                self.fill(&mut argument);
                if let Some(text) = argument.constant() {
                    link.operator.argument = String::from_utf8_lossy(text).into_owned();
                }
            }
        }
    }

    fn fill(&self, template: &mut Template) {
        let mut pieces: Vec<MacroPiece> = Vec::new();
        for piece in template.0.drain(..) {
            let piece = match &piece {
                MacroPiece::Tx(name) if !self.dynamic.has(name) => {
                    MacroPiece::Text(self.state.get(name).cloned().unwrap_or_default())
                }
                _ => piece,
            };
            match (pieces.last_mut(), &piece) {
                (Some(MacroPiece::Text(before)), MacroPiece::Text(more)) => before.extend_from_slice(more),
                _ => pieces.push(piece),
            }
        }
        template.0 = pieces;
    }

    /// Whether a link holds that no request can change.
    fn holds(&self, link: &RuleSource) -> bool {
        let argument = crate::seclang::macros::parse(&link.operator.argument).unwrap_or_default();
        let argument = self.text(&argument).unwrap_or_default();
        let Some(comparison) = Comparison::named(&link.operator.name) else { return true };
        link.targets.iter().any(|target| {
            let KeySource::Name(name) = &target.key else { return false };
            let value = self.state.get(name);
            let value = match (target.counted, value) {
                (true, value) => if value.is_some() { b"1" } else { b"0" }.to_vec(),
                (false, Some(value)) => value.clone(),
                (false, None) => return false,
            };
            comparison.holds(&value, &argument) != link.operator.negated
        })
    }
}
