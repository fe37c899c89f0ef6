//! TX, and what the rule that runs has matched.

use hashbrown::HashMap;

use crate::bytes::number;
use crate::rules::{Initial, TxSlots};
use crate::texts::{TextId, Texts};
use crate::variable::Variable;

/// A variable of TX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TxValue {
    Unset,
    Number(i64),
    Text(TextId),
}

impl TxValue {
    pub(super) fn number(self, texts: &Texts) -> i64 {
        match self {
            Self::Unset => 0,
            Self::Number(number) => number,
            Self::Text(text) => number(texts.get(text)),
        }
    }

    /// As a value that can be tested; `None` where it is not set.
    pub(super) fn text(self, texts: &mut Texts) -> Option<TextId> {
        match self {
            Self::Unset => None,
            Self::Number(number) => Some(texts.keep(number.to_string().as_bytes())),
            Self::Text(text) => Some(text),
        }
    }
}

/// The variables of TX: those that rules name, and those whose names are made while they run.
#[derive(Default)]
pub(super) struct Tx {
    pub(super) slots: Vec<TxValue>,
    pub(super) made: Vec<(TextId, TxValue)>,
    by_name: HashMap<TextId, usize, foldhash::fast::FixedState>,
}

/// Where a variable is.
#[derive(Debug, Clone, Copy)]
pub(super) enum VariableSlot {
    Slot(usize),
    Made(usize),
}

impl Tx {
    pub(super) fn begin(&mut self, slots: &TxSlots, texts: &mut Texts) {
        self.made.clear();
        self.by_name.clear();
        self.slots.clear();
        self.slots.extend(slots.initial.iter().map(|initial| match initial {
            None => TxValue::Unset,
            Some(Initial::Number(number)) => TxValue::Number(*number),
            Some(Initial::Text(text)) => TxValue::Text(texts.keep(text)),
        }));
    }

    pub(super) fn get(&self, place: VariableSlot) -> TxValue {
        match place {
            VariableSlot::Slot(slot) => self.slots.get(slot).copied().unwrap_or(TxValue::Unset),
            VariableSlot::Made(at) => self.made.get(at).map_or(TxValue::Unset, |(_, value)| *value),
        }
    }

    pub(super) fn set(&mut self, place: VariableSlot, value: TxValue) {
        match place {
            VariableSlot::Slot(slot) => {
                if let Some(own) = self.slots.get_mut(slot) {
                    *own = value;
                }
            }
            VariableSlot::Made(at) => {
                if let Some((_, own)) = self.made.get_mut(at) {
                    *own = value;
                }
            }
        }
    }

    /// Where a variable is whose name was made; `None`: there are too many.
    pub(super) fn place(
        &mut self,
        name: &[u8],
        slots: &TxSlots,
        texts: &mut Texts,
        limit: usize,
    ) -> Option<VariableSlot> {
        if let Some(slot) = slots.by_name.get(name) {
            return Some(VariableSlot::Slot(*slot));
        }
        let name = texts.keep(name);
        if let Some(at) = self.by_name.get(&name) {
            return Some(VariableSlot::Made(*at));
        }
        if self.made.len() >= limit {
            return None;
        }
        self.by_name.insert(name, self.made.len());
        self.made.push((name, TxValue::Unset));
        Some(VariableSlot::Made(self.made.len() - 1))
    }
}

/// A value that a rule has matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) variable: Variable,
    pub(super) name: TextId,
    /// What was tested, after transformations.
    pub(super) text: TextId,
}

impl Hit {
    /// `ARGS:name`.
    pub(super) fn write_name(&self, texts: &Texts, out: &mut Vec<u8>) {
        out.extend_from_slice(self.variable.name().as_bytes());
        let name = texts.get(self.name);
        if !name.is_empty() {
            out.push(b':');
            out.extend_from_slice(name);
        }
    }
}
