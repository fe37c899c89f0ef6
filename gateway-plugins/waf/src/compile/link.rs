//! One condition of a rule: targets, operator, transformations and what it sets.

use std::collections::BTreeSet;
use std::sync::Arc;

use regex::bytes::Regex;

use super::draft::Draft;
use super::{Builder, needs_of};
use crate::bytes::number;
use crate::operator::{ArgumentError, Comparison, Operator};
use crate::pattern::literals::Needs;
use crate::pattern::{self, PatternError};
use crate::problem::RuleLocation;
use crate::rules::{Key, Member, Meta, Name, RuleCondition, Set, Target, Test, Text, TextPiece, TxKey};
use crate::seclang::actions::{SetSource, VariableChange};
use crate::seclang::macros::{self, MacroError, Template};
use crate::seclang::targets::{KeySource, TargetSource};
use crate::seclang::{OperatorSource, RuleSource};
use crate::variable::Variable;

/// Lines of a list of words.
const MAX_WORDS: usize = 100_000;

/// Why an operator can't be used.
#[derive(Debug, thiserror::Error)]
enum OperatorError {
    #[error("the operator is not supported")]
    Unknown,
    #[error("a rule that never matches has no effect")]
    NeverMatches,
    #[error("patterns with macros are not supported")]
    PatternWithMacros,
    #[error("`{0}` is not a number")]
    NotNumeric(String),
    #[error("there is no file `{0}`")]
    NoFile(String),
    #[error("`{file}` has {lines} lines; {MAX_WORDS} are allowed")]
    TooManyLines { file: String, lines: usize },
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    #[error(transparent)]
    Pattern(#[from] PatternError),
    #[error(transparent)]
    Macro(#[from] MacroError),
}

/// The members that a target names.
pub(super) fn member(target: &TargetSource) -> Result<Member, PatternError> {
    let key = match &target.key {
        KeySource::All => Key::All,
        KeySource::Name(name) => Key::Name(Arc::from(name.as_bytes())),
        KeySource::Pattern(text) => Key::Pattern(key_pattern(text)?),
    };
    Ok(Member { variable: target.variable, key })
}

/// Names are compared without regard to case.
fn key_pattern(text: &str) -> Result<Regex, PatternError> {
    let pattern = pattern::compile(&format!("(?i){}", text.replace("\\/", "/")))?;
    Ok(pattern.regex)
}

impl Builder<'_> {
    /// A link of a rule, and what values must contain to match it.
    pub(super) fn link(
        &mut self,
        draft: &Draft,
        source: &RuleSource,
        level: usize,
    ) -> (RuleCondition, Needs) {
        let place = &source.place;
        for action in &source.actions.unsupported {
            self.problems.error(place, action);
        }
        let (mut node, mut steps) = (0, vec![0]);
        for transform in &source.actions.transforms {
            match transform {
                None => (node, steps) = (0, vec![0]),
                Some(transform) => {
                    node = self.node(node, *transform);
                    steps.push(node);
                }
            }
        }
        if !source.actions.multi_match {
            steps.clear();
        }
        let (test, needs) = self.test(place, &source.operator);
        let needs = if source.operator.negated || level > 0 { Needs::Nothing } else { needs };
        let (targets, excluded) = self.targets(draft, source);
        let sets = source.actions.sets.iter().filter_map(|set| self.set(place, set)).collect();
        let link = RuleCondition {
            targets,
            excluded,
            test,
            negated: source.operator.negated,
            node,
            steps,
            capture: source.actions.capture,
            groups: source.actions.capture,
            sets,
            controls: Vec::new(),
        };
        (link, needs)
    }

    fn targets(&mut self, draft: &Draft, source: &RuleSource) -> (Vec<Target>, Vec<Member>) {
        let (mut targets, mut excluded) = (Vec::new(), Vec::new());
        for target in &source.targets {
            if draft.phase <= 2 && target.variable.is_response() {
                let message = format!("`{}` is not known in phase {}", target.variable.name(), draft.phase);
                self.problems.error(&source.place, message);
                continue;
            }
            if target.variable == Variable::Tx && !target.excluded {
                targets.extend(self.tx(&source.place, target));
                continue;
            }
            let Some(member) = self.member(&source.place, target) else { continue };
            if target.excluded {
                excluded.push(member);
            } else if target.counted {
                targets.push(Target::Count(member));
            } else {
                targets.push(Target::Values(member));
            }
        }
        (targets, excluded)
    }

    /// The members that a target names.
    pub(super) fn member(&mut self, place: &RuleLocation, target: &TargetSource) -> Option<Member> {
        member(target).map_err(|error| self.problems.error(place, error)).ok()
    }

    fn tx(&mut self, place: &RuleLocation, target: &TargetSource) -> Option<Target> {
        let key = match &target.key {
            KeySource::Name(name) => TxKey::Slot(self.slots.of(name)),
            // Slots are looked up once all are known.
            KeySource::Pattern(text) => {
                let pattern = key_pattern(text).map_err(|error| self.problems.error(place, error)).ok()?;
                TxKey::Pattern(pattern, Vec::new())
            }
            KeySource::All => {
                self.problems.error(place, "`TX` needs a name, as in `TX:score`");
                return None;
            }
        };
        Some(Target::Tx(key, target.counted))
    }

    fn test(&mut self, place: &RuleLocation, source: &OperatorSource) -> (Test, Needs) {
        match self.operator(place, source) {
            Ok(found) => found,
            Err(error) => {
                self.problems.error(place, format_args!("`@{}`: {error}", source.name));
                (Test::Fixed(Operator::Always), Needs::Nothing)
            }
        }
    }

    fn operator(
        &mut self,
        place: &RuleLocation,
        source: &OperatorSource,
    ) -> Result<(Test, Needs), OperatorError> {
        let argument = source.argument.as_str();
        let (mut pattern_needs, mut words) = (None, None);
        let operator = match source.name.as_str() {
            "rx" | "rxglobal" => {
                if argument.contains("%{") {
                    return Err(OperatorError::PatternWithMacros);
                }
                let pattern = pattern::compile(argument)?;
                pattern_needs = Some(pattern.needs);
                Operator::Pattern(pattern.regex)
            }
            "pm" => {
                let list: Vec<Vec<u8>> =
                    argument.split_whitespace().map(|word| word.as_bytes().to_vec()).collect();
                let operator = Operator::words(&list)?;
                words = Some(list);
                operator
            }
            "pmfromfile" | "pmf" => {
                let list = self.word_list(argument)?;
                let operator = Operator::words(&list)?;
                words = Some(list);
                operator
            }
            "detectsqli" => Operator::sqli()?,
            "detectxss" => Operator::Xss,
            "validatebyterange" => Operator::byte_range(argument)?,
            "validateutf8encoding" => Operator::Utf8,
            "validateurlencoding" => Operator::UrlEncoding,
            "unconditionalmatch" => Operator::Always,
            "nomatch" => return Err(OperatorError::NeverMatches),
            "ipmatch" => Operator::addresses(argument)?,
            "ipmatchfromfile" | "ipmatchf" => {
                let lines = self.word_list(argument)?;
                let lines: Vec<String> =
                    lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
                Operator::addresses(&lines.join(","))?
            }
            name => return self.comparison(place, name, argument),
        };
        let needs = needs_of(&operator, pattern_needs, words.as_deref());
        Ok((Test::Fixed(operator), needs))
    }

    fn comparison(
        &mut self,
        place: &RuleLocation,
        name: &str,
        argument: &str,
    ) -> Result<(Test, Needs), OperatorError> {
        let comparison = Comparison::named(name).ok_or(OperatorError::Unknown)?;
        let template = macros::parse(argument)?;
        if let Some(text) = template.constant() {
            if comparison.is_numeric()
                && !text.trim_ascii().iter().any(u8::is_ascii_digit)
                && !text.is_empty()
            {
                return Err(OperatorError::NotNumeric(argument.to_owned()));
            }
            let operator = Operator::Compare(comparison, text.to_vec());
            let needs = operator.needs();
            return Ok((Test::Fixed(operator), needs));
        }
        Ok((Test::Against(comparison, self.text(place, &template)), Needs::Nothing))
    }

    fn word_list(&mut self, argument: &str) -> Result<Vec<Vec<u8>>, OperatorError> {
        let mut all = Vec::new();
        for name in argument.split_whitespace() {
            let base = name.rsplit(['/', '\\']).next().unwrap_or(name);
            if !self.words.contains_key(base) {
                let data = self.data.get(base).ok_or_else(|| OperatorError::NoFile(name.to_owned()))?;
                let lines = data.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
                let words: Vec<Vec<u8>> = lines
                    .filter(|line| !line.is_empty() && !line.starts_with(b"#"))
                    .map(<[u8]>::to_vec)
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect();
                if words.len() > MAX_WORDS {
                    return Err(OperatorError::TooManyLines { file: name.to_owned(), lines: words.len() });
                }
                self.words.insert(base.to_owned(), words);
            }
            all.extend(self.words.get(base).into_iter().flatten().cloned());
        }
        Ok(all)
    }

    fn set(&mut self, place: &RuleLocation, source: &SetSource) -> Option<Set> {
        let name = match source.name.constant() {
            Some(b"") => {
                self.problems.error(place, "`setvar` needs a name");
                return None;
            }
            Some(name) => Name::Slot(self.slots.of(&String::from_utf8_lossy(name))),
            None => Name::Made(self.text(place, &source.name)),
        };
        let number = match (source.value.constant(), source.change) {
            (Some(text), VariableChange::Add | VariableChange::Subtract) => Some(number(text)),
            // A number stays one, if it is written as numbers are.
            (Some(text), VariableChange::Set) => {
                Some(number(text)).filter(|it| it.to_string().as_bytes() == text)
            }
            _ => None,
        };
        Some(Set { name, change: source.change, value: self.text(place, &source.value), number })
    }

    /// A text with macros, with slots in the place of names.
    fn text(&mut self, place: &RuleLocation, template: &Template) -> Text {
        let mut pieces = Vec::new();
        for piece in &template.0 {
            pieces.push(match piece {
                macros::MacroPiece::Text(text) => TextPiece::Bytes(text.as_slice().into()),
                macros::MacroPiece::Tx(name) => TextPiece::Slot(self.slots.of(name)),
                macros::MacroPiece::Of(variable, member) => {
                    if variable.has_members() && member.is_none() && !variable.is_volatile() {
                        let message = format!("`%{{{}}}` needs a name", variable.name());
                        self.problems.error(place, message);
                    }
                    TextPiece::Of(*variable, member.as_ref().map(|it| it.as_bytes().into()))
                }
            });
        }
        Text(pieces)
    }

    /// What the rule says about itself.
    pub(super) fn meta(&mut self, draft: &Draft) -> Meta {
        let (place, head) = (draft.place.clone(), draft.head().clone());
        Meta {
            msg: head.msg.as_ref().map(|msg| self.text(&place, msg)),
            tags: head.tags,
            severity: head.severity,
            log: head.log != Some(false),
        }
    }
}
