//! What of rules refers to other rules: `ctl`, exclusions, and variables by pattern.

use std::sync::Arc;

use regex::Regex;

use super::Builder;
use super::draft::Draft;
use super::link::member;
use crate::bits;
use crate::body::Processor;
use crate::pattern::PatternError;
use crate::problem::RuleLocation;
use crate::rules::{Control, Member, Rule, Ruleset, Target, TxKey};
use crate::seclang::IdRange;
use crate::seclang::actions::Ctl;
use crate::seclang::targets::{self, TargetError};

/// Rules by what selects them.
enum Which<'a> {
    Ids(IdRange),
    Tag(&'a Regex),
    Msg(&'a Regex),
}

impl Which<'_> {
    fn takes(&self, rule: &Rule) -> bool {
        match self {
            Self::Ids(ids) => ids.has(rule.id),
            Self::Tag(tag) => rule.meta.tags.iter().any(|own| tag.is_match(own)),
            Self::Msg(msg) => rule.meta.msg.as_ref().is_some_and(|own| match own.0.as_slice() {
                [crate::rules::TextPiece::Bytes(text)] => msg.is_match(&String::from_utf8_lossy(text)),
                _ => false,
            }),
        }
    }

    fn select(&self, halves: [&[Rule]; 2]) -> [Box<[u64]>; 2] {
        halves.map(|rules| {
            let mut found = vec![0; bits::words(rules.len())];
            for (n, _) in rules.iter().enumerate().filter(|(_, rule)| self.takes(rule)) {
                bits::set(&mut found, n);
            }
            found.into()
        })
    }
}

impl Builder<'_> {
    /// Fills in `ctl` and variables by pattern. Rules and drafts are in the same order.
    pub(super) fn resolve_controls(
        &mut self,
        request: &mut [Rule],
        response: &mut [Rule],
        drafts: &[Vec<Draft>; 2],
    ) {
        let mut found: Vec<(usize, usize, usize, Vec<Control>)> = Vec::new();
        for (half, drafts) in drafts.iter().enumerate() {
            for (n, draft) in drafts.iter().enumerate() {
                for (level, link) in
                    draft.links.iter().enumerate().filter(|(_, it)| !it.actions.ctls.is_empty())
                {
                    let halves = [&*request, &*response];
                    let controls = link.actions.ctls.iter();
                    let controls =
                        controls.filter_map(|ctl| self.control(&link.place, ctl, halves)).collect();
                    found.push((half, n, level, controls));
                }
            }
        }
        for (half, n, level, controls) in found {
            let rules = if half == 0 { &mut *request } else { &mut *response };
            if let Some(link) = rules.get_mut(n).and_then(|rule| rule.links.get_mut(level)) {
                link.controls = controls;
            }
        }
        let links = request.iter_mut().chain(response).flat_map(|rule| &mut rule.links);
        for target in links.flat_map(|link| &mut link.targets) {
            let Target::Tx(TxKey::Pattern(pattern, slots), _) = target else { continue };
            let names = self.slots.names.iter().enumerate();
            *slots = names.filter(|(_, name)| pattern.is_match(name)).map(|(slot, _)| slot).collect();
        }
    }

    fn control(&mut self, place: &RuleLocation, ctl: &Ctl, halves: [&[Rule]; 2]) -> Option<Control> {
        Some(match ctl {
            Ctl::RemoveById(ids) => Control::Remove(Arc::new(Which::Ids(*ids).select(halves))),
            Ctl::RemoveByTag(tag) => {
                let tag = self.tag(place, tag)?;
                Control::Remove(Arc::new(Which::Tag(&tag).select(halves)))
            }
            Ctl::RemoveByMsg(msg) => {
                let msg = self.tag(place, msg)?;
                Control::Remove(Arc::new(Which::Msg(&msg).select(halves)))
            }
            Ctl::RemoveTargetById(ids, target) => {
                let member = self.member(place, target)?;
                Control::RemoveTarget(Arc::new(Which::Ids(*ids).select(halves)), member)
            }
            Ctl::RemoveTargetByTag(tag, target) => {
                let (tag, member) = (self.tag(place, tag)?, self.member(place, target)?);
                Control::RemoveTarget(Arc::new(Which::Tag(&tag).select(halves)), member)
            }
            Ctl::BodyProcessor(name) => {
                let processor = Processor::named(name);
                if processor.is_none() && !name.is_empty() {
                    self.problems.error(place, format!("`{name}` is not a body processor"));
                }
                Control::BodyProcessor(processor)
            }
            Ctl::ForceBody(on) => Control::ForceBody(*on),
            Ctl::Engine(mode) => Control::Engine(*mode),
        })
    }

    fn tag(&mut self, place: &RuleLocation, text: &str) -> Option<Regex> {
        let found = Regex::new(text).ok();
        if found.is_none() {
            self.problems.error(place, format!("`{text}` is not a pattern for tags or messages"));
        }
        found
    }
}

/// Rules, or targets of rules, that are left out for some requests.
#[derive(Clone)]
pub struct Exclusion(pub(crate) Vec<Control>);

/// What to leave out.
#[derive(Debug, Clone, Default)]
pub struct ExclusionSpec {
    /// Rule ids and ranges of ids, such as `942100-942199`.
    pub ids: Vec<String>,
    /// Patterns for rules' tags.
    pub tags: Vec<String>,
    /// Targets such as `ARGS:comment`; without any, the rules do not run at all.
    pub targets: Vec<String>,
}

/// Why an exclusion can't be used. Ids, tags and targets are as they are written.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ExclusionError {
    /// It selects no rules.
    #[error("it needs `rules` or `tags`")]
    Empty,
    /// Neither an id nor a range of ids.
    #[error("`{0}` is not a rule id or range of ids")]
    Ids(String),
    /// Not a regular expression.
    #[error("`{0}` is not a pattern for tags")]
    Tag(String),
    /// No rule of the set has this id or tag.
    #[error("no active rule has `{0}`")]
    NoActiveRule(String),
    /// A target with `&` or `!`.
    #[error("`{0}` must be a plain target such as `ARGS:name`")]
    NotPlain(String),
    /// A target that rules can't have either.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The pattern of a target's members.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

impl Exclusion {
    /// Compiles what to leave out of these rules.
    ///
    /// # Errors
    /// What is wrong with it; also that it excludes nothing.
    pub fn new(ruleset: &Ruleset, spec: &ExclusionSpec) -> Result<Self, ExclusionError> {
        let halves = [&*ruleset.halves[0].rules, &*ruleset.halves[1].rules];
        let mut selected = Vec::new();
        for text in &spec.ids {
            let ids = IdRange::read(text).ok_or_else(|| ExclusionError::Ids(text.clone()))?;
            selected.push((text, Which::Ids(ids).select(halves)));
        }
        for text in &spec.tags {
            let tag = Regex::new(text).map_err(|_| ExclusionError::Tag(text.clone()))?;
            selected.push((text, Which::Tag(&tag).select(halves)));
        }
        if let Some((text, _)) = selected.iter().find(|(_, found)| found.iter().flatten().all(|it| *it == 0))
        {
            return Err(ExclusionError::NoActiveRule((*text).clone()));
        }
        if selected.is_empty() {
            return Err(ExclusionError::Empty);
        }
        let mut controls = Vec::new();
        let members = members(&spec.targets)?;
        for (_, found) in selected {
            let found = Arc::new(found);
            if members.is_empty() {
                controls.push(Control::Remove(found));
            } else {
                let each = members.iter().map(|it| Control::RemoveTarget(found.clone(), it.clone()));
                controls.extend(each);
            }
        }
        Ok(Self(controls))
    }
}

fn members(texts: &[String]) -> Result<Vec<Member>, ExclusionError> {
    let mut found = Vec::new();
    for text in texts {
        for target in targets::parse(text)? {
            if target.counted || target.excluded {
                return Err(ExclusionError::NotPlain(text.clone()));
            }
            found.push(member(&target)?);
        }
    }
    Ok(found)
}
