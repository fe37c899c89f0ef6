//! Compiled rules, as the engine reads them. Made once, shared by all threads, never changed.

use std::sync::Arc;

use hashbrown::HashMap;
use regex::bytes::Regex;

use crate::body::Processor;
use crate::bytes::ByteSet;
use crate::filter::Filter;
use crate::operator::{Comparison, Operator};
use crate::problem::RuleLocation;
use crate::seclang::actions::{EngineMode, VariableChange};
use crate::transform::Transform;
use crate::variable::Variable;

/// A rule with the rules chained to it.
pub(crate) struct Rule {
    pub(crate) id: u64,
    pub(crate) place: RuleLocation,
    pub(crate) links: Vec<RuleCondition>,
    pub(crate) flow: Flow,
    pub(crate) meta: Meta,
}

/// What follows from a rule that matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) decision: Decision,
    /// The rule to go on with.
    pub(crate) skip_to: Option<usize>,
}

/// What a rule decides about the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Pass,
    Deny(Option<u16>),
    Allow(Allowed),
}

/// What of the rest does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    All,
    Phase,
    Request,
}

/// What a rule says about itself.
pub(crate) struct Meta {
    pub(crate) msg: Option<Text>,
    pub(crate) tags: Vec<String>,
    pub(crate) severity: Option<u8>,
    pub(crate) log: bool,
}

/// One condition of a rule.
pub(crate) struct RuleCondition {
    pub(crate) targets: Vec<Target>,
    pub(crate) excluded: Vec<Member>,
    pub(crate) test: Test,
    pub(crate) negated: bool,
    /// The transformation whose result is tested.
    pub(crate) node: usize,
    /// With `multiMatch`, every step on the way there.
    pub(crate) steps: Vec<usize>,
    /// Whether TX.0 is set, and whether TX.1 to TX.9 are.
    pub(crate) capture: bool,
    pub(crate) groups: bool,
    pub(crate) sets: Vec<Set>,
    pub(crate) controls: Vec<Control>,
}

impl RuleCondition {
    /// Whether it reads one of these slots, other than by what it captures itself.
    pub(crate) fn reads(&self, slots: &std::ops::Range<usize>) -> bool {
        let by_target = self.targets.iter().any(|target| match target {
            Target::Tx(TxKey::Slot(slot), _) => slots.contains(slot),
            Target::Tx(TxKey::Pattern(pattern, _), _) => {
                slots.clone().any(|slot| pattern.is_match(slot.to_string().as_bytes()))
            }
            _ => false,
        });
        by_target || matches!(&self.test, Test::Against(_, text) if text.reads(slots))
    }

    /// Whether what it sets has one of these slots in it.
    pub(crate) fn writes_of(&self, slots: &std::ops::Range<usize>) -> bool {
        self.sets
            .iter()
            .any(|set| set.value.reads(slots) || matches!(&set.name, Name::Made(name) if name.reads(slots)))
    }
}

impl Text {
    /// Whether one of these slots is in it.
    pub(crate) fn reads(&self, slots: &std::ops::Range<usize>) -> bool {
        self.0.iter().any(|piece| matches!(piece, TextPiece::Slot(slot) if slots.contains(slot)))
    }
}

/// What is asked.
pub(crate) enum Test {
    Fixed(Operator),
    /// A comparison with what is known only then.
    Against(Comparison, Text),
}

/// What a link looks at.
pub(crate) enum Target {
    Values(Member),
    Count(Member),
    Tx(TxKey, bool),
}

/// Members of a collection.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) variable: Variable,
    pub(crate) key: Key,
}

/// Which members.
#[derive(Clone)]
pub(crate) enum Key {
    All,
    /// In lower case.
    Name(Arc<[u8]>),
    Pattern(Regex),
}

impl Key {
    pub(crate) fn takes(&self, name: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Name(key) => name.eq_ignore_ascii_case(key),
            Self::Pattern(pattern) => pattern.is_match(name),
        }
    }
}

/// Which variables of TX.
pub(crate) enum TxKey {
    Slot(usize),
    /// The slots whose names it matches, and any name made at run time that it does.
    Pattern(Regex, Vec<usize>),
}

/// A text with macros, ready to be put together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Text(pub(crate) Vec<TextPiece>);

#[derive(Debug, Clone)]
pub(crate) enum TextPiece {
    Bytes(Box<[u8]>),
    Slot(usize),
    Of(Variable, Option<Box<[u8]>>),
}

/// `setvar`.
pub(crate) struct Set {
    pub(crate) name: Name,
    pub(crate) change: VariableChange,
    pub(crate) value: Text,
    /// The number that `value` is, where it is a constant.
    pub(crate) number: Option<i64>,
}

pub(crate) enum Name {
    Slot(usize),
    Made(Text),
}

/// Rules of the request's phases and of the response's.
pub(crate) type Selected = Arc<[Box<[u64]>; 2]>;

/// `ctl`.
#[derive(Clone)]
pub(crate) enum Control {
    /// These rules do not run.
    Remove(Selected),
    /// These rules do not look at this member.
    RemoveTarget(Selected, Member),
    BodyProcessor(Option<Processor>),
    ForceBody(bool),
    Engine(EngineMode),
}

/// A step of a chain of transformations. Node 0 is the value itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) parent: usize,
    pub(crate) transform: Transform,
    pub(crate) triggers: Option<ByteSet>,
}

/// The rules of the request's phases, or of the response's.
pub(crate) struct PhaseRules {
    pub(crate) rules: Vec<Rule>,
    /// Where the second of its phases begins.
    pub(crate) second: usize,
    /// Words of its rule sets.
    pub(crate) width: usize,
    pub(crate) filter: Filter,
    /// Rules that run whatever the values are.
    pub(crate) always: Box<[u64]>,
    /// Rules without a filter whose head asks one thing of values alone: not run where all values are known not to match.
    pub(crate) asked: Box<[u64]>,
    /// Rules that the filter leads to.
    pub(crate) filtered: Box<[u64]>,
    /// For each variable, the rules whose heads look at its values.
    pub(crate) lookers: Vec<Box<[u64]>>,
    /// The variables that any looks at; of ARGS and ARGS_NAMES their parts.
    pub(crate) looked: Box<[Variable]>,
    /// The transformations that heads need, in order, each with the rules that test its result.
    pub(crate) nodes: Vec<(usize, Box<[u64]>)>,
    /// The transformations on the way to those, each behind the one before it.
    pub(crate) order: Vec<usize>,
    /// Rules that test values as they came.
    pub(crate) plain: Box<[u64]>,
}

/// The names of TX that rules mention, and what they begin with.
#[derive(Default)]
pub(crate) struct TxSlots {
    pub(crate) names: Vec<Box<[u8]>>,
    pub(crate) by_name: HashMap<Box<[u8]>, usize, foldhash::fast::FixedState>,
    pub(crate) initial: Vec<Option<Initial>>,
}

/// What a variable of TX begins with.
pub(crate) enum Initial {
    Number(i64),
    Text(Box<[u8]>),
}

impl TxSlots {
    /// Has a slot begin with this value.
    pub(crate) fn begin_with(&mut self, slot: usize, value: &[u8]) {
        let number = crate::bytes::number(value);
        let initial = match number.to_string().as_bytes() == value {
            true => Initial::Number(number),
            false => Initial::Text(value.into()),
        };
        if let Some(known) = self.initial.get_mut(slot) {
            *known = Some(initial);
        }
    }

    /// The slot of this name, a new one where it has none.
    pub(crate) fn of(&mut self, name: &str) -> usize {
        if let Some(slot) = self.by_name.get(name.as_bytes()) {
            return *slot;
        }
        let slot = self.names.len();
        self.names.push(name.as_bytes().into());
        self.by_name.insert(name.as_bytes().into(), slot);
        self.initial.push(None);
        slot
    }
}

/// Compiled rules, to be shared.
pub struct Ruleset {
    pub(crate) halves: [PhaseRules; 2],
    pub(crate) nodes: Vec<Node>,
    pub(crate) slots: TxSlots,
    /// The slots that hold anomaly scores.
    pub(crate) scores: Vec<usize>,
    pub(crate) summary: Summary,
    /// Told apart by caches.
    pub(crate) serial: u64,
}

/// What was loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Rules in the files, chained ones not counted.
    pub written: usize,
    /// Rules that can run at all.
    pub active: usize,
    /// Bytes that the automaton takes.
    pub automaton_bytes: usize,
}

impl std::fmt::Debug for Ruleset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ruleset").field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl Ruleset {
    /// What was loaded.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Whether there are rules about responses.
    pub fn inspects_responses(&self) -> bool {
        !self.halves[1].rules.is_empty()
    }

    /// The ids of the rules that can run.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.halves.iter().flat_map(|half| half.rules.iter().map(|rule| rule.id))
    }
}
