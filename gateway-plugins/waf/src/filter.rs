//! One automaton over what all rules' patterns need: says, for a value, which rules could match it at all.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind, Input, MatchKind};

use crate::bits;
use crate::bytes::ByteSet;
use crate::pattern::literals::Needs;

/// Which rules a value could match.
pub(crate) struct Filter {
    literals: Option<AhoCorasick>,
    /// For each literal, the rules that need it.
    owners: Vec<Box<[u16]>>,
    /// For each byte that a rule needs, those rules.
    bytes: Vec<Option<Box<[u64]>>>,
    needed: ByteSet,
}

/// Why there is no filter for rules.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    #[error("there are too many rules")]
    TooManyRules,
    #[error("the rules' literals can't be used: {0}")]
    Literals(#[source] aho_corasick::BuildError),
}

impl Filter {
    /// A filter for these rules: for each, its bit and what it needs.
    pub(crate) fn new(rules: &[(usize, Needs)], width: usize) -> Result<Self, FilterError> {
        let mut owners: HashMap<Vec<u8>, Vec<u16>> = HashMap::new();
        let mut bytes: Vec<Option<Box<[u64]>>> = (0..256).map(|_| None).collect();
        let mut needed = ByteSet::default();
        for (rule, needs) in rules {
            let Needs::OneOf(literals, one_of) = needs else { continue };
            let bit = u16::try_from(*rule).map_err(|_| FilterError::TooManyRules)?;
            for literal in literals {
                owners.entry(literal.clone()).or_default().push(bit);
            }
            for byte in one_of.iter() {
                needed.insert(byte);
                let slot = bytes[usize::from(byte)].get_or_insert_with(|| vec![0; width].into());
                bits::set(slot, *rule);
            }
        }
        let (literals, owners): (Vec<Vec<u8>>, Vec<Box<[u16]>>) =
            owners.into_iter().map(|(literal, owners)| (literal, owners.into())).unzip();
        let automaton = match literals.is_empty() {
            true => None,
            false => Some(
                AhoCorasickBuilder::new()
                    .ascii_case_insensitive(true)
                    .match_kind(MatchKind::Standard)
                    .kind(Some(AhoCorasickKind::ContiguousNFA))
                    .build(&literals)
                    .map_err(FilterError::Literals)?,
            ),
        };
        Ok(Self { literals: automaton, owners, bytes, needed })
    }

    /// Adds the rules that this value, which has these bytes, could match.
    pub(crate) fn scan(&self, value: &[u8], present: &ByteSet, found: &mut [u64]) {
        for byte in present.common(self.needed).iter() {
            if let Some(rules) = &self.bytes[usize::from(byte)] {
                bits::or(found, rules);
            }
        }
        let Some(literals) = self.literals.as_ref().filter(|_| value.len() > 1) else { return };
        let Ok(matches) = literals.try_find_overlapping_iter(Input::new(value)) else { return };
        for found_literal in matches {
            for rule in &self.owners[found_literal.pattern().as_usize()] {
                bits::set(found, usize::from(*rule));
            }
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        self.literals.as_ref().map_or(0, AhoCorasick::memory_usage) + self.owners.len() * 24
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::literals::{needs, of_words};

    #[test]
    fn a_value_leads_to_the_rules_it_could_match() {
        let rules = [
            (0, needs(r"(?i)union\s+select")),
            (1, needs("<")),
            (65, of_words([b"nikto".to_vec()].into_iter())),
        ];
        let filter = Filter::new(&rules, 2).unwrap();
        let scan = |value: &[u8]| {
            let mut found = [0; 2];
            filter.scan(value, &ByteSet::of(value), &mut found);
            found
        };
        assert_eq!(scan(b"UNION ALL SELECT"), [1, 0]);
        assert_eq!(scan(b"a<b NIKTO"), [2, 2]);
        assert_eq!(scan(b"plain"), [0, 0]);
    }
}
