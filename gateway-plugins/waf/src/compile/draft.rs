//! Directives to rules: chains, defaults, removals and updates, where `skip` leads to.

use std::collections::{HashMap, HashSet};

use regex::Regex;

use super::{RuleFile, Sources, decision};
use crate::problem::{Problems, RuleLocation};
use crate::rules::Decision;
use crate::seclang::actions::{Actions, Disruptive};
use crate::seclang::{self, Directive, IdRange, RuleSource};
use crate::transform::Transform;

/// A rule with the rules chained to it, as it is written.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) position: usize,
    pub(super) id: u64,
    pub(super) phase: u8,
    pub(super) place: RuleLocation,
    pub(super) links: Vec<RuleSource>,
    pub(super) decision: Decision,
    /// Rules of the phase up to this position are skipped when it matches.
    pub(super) skip_to: Option<usize>,
}

impl Draft {
    pub(super) fn head(&self) -> &Actions {
        static NONE: std::sync::LazyLock<Actions> = std::sync::LazyLock::new(Actions::default);
        self.links.first().map_or(&NONE, |link| &link.actions)
    }

    pub(super) fn has_tag(&self, tag: &Regex) -> bool {
        self.head().tags.iter().any(|own| tag.is_match(own))
    }

    pub(super) fn is_in(&self, ids: &[IdRange]) -> bool {
        ids.iter().any(|range| range.has(self.id))
    }
}

/// Where each marker stands.
type Markers = HashMap<String, usize>;

#[derive(Default)]
struct DraftReader {
    drafts: Vec<Draft>,
    markers: Markers,
    defaults: HashMap<u8, Actions>,
    removed_ids: Vec<IdRange>,
    removed_tags: Vec<Regex>,
    removed_msgs: Vec<Regex>,
    updates: Vec<Directive>,
    /// The rule whose chain goes on.
    open: Option<Draft>,
    position: usize,
    written: usize,
}

/// Reads every file. Says also how many rules are written.
pub(super) fn read(sources: &Sources, problems: &mut Problems) -> (Vec<Draft>, usize) {
    let mut reader = DraftReader { removed_ids: sources.removed_ids.clone(), ..DraftReader::default() };
    for tag in &sources.removed_tags {
        let place = RuleLocation { file: "settings".into(), line: 0 };
        reader.removed_tags.extend(pattern(&place, tag, problems));
    }
    let setup_end = sources.files.iter().rposition(|file| file.setup).map_or(0, |at| at + 1);
    let (before, after) = sources.files.split_at(setup_end);
    let settings = variables_file(&sources.variables);
    for file in before.iter().chain(settings.as_ref()).chain(after) {
        for directive in seclang::parse(&file.name, &file.text, problems) {
            reader.position += 1;
            reader.take(directive, problems);
        }
    }
    if let Some(open) = &reader.open {
        problems.error(&open.place, "the chain has no end: a rule must follow");
    }
    reader.finish(problems)
}

/// The variables of the settings, as a rule.
fn variables_file(variables: &[(String, String)]) -> Option<RuleFile> {
    if variables.is_empty() {
        return None;
    }
    let sets: Vec<String> =
        variables.iter().map(|(name, value)| format!("setvar:'tx.{name}={value}'")).collect();
    let text = format!("SecAction \"id:899999,phase:1,pass,nolog,t:none,{}\"", sets.join(","));
    Some(RuleFile { name: "settings".into(), text, setup: true })
}

fn pattern(place: &RuleLocation, text: &str, problems: &mut Problems) -> Option<Regex> {
    match Regex::new(text) {
        Ok(pattern) => Some(pattern),
        Err(_) => {
            problems.error(place, format!("`{text}` is not a pattern for tags or messages"));
            None
        }
    }
}

impl DraftReader {
    fn take(&mut self, directive: Directive, problems: &mut Problems) {
        let nowhere = RuleLocation { file: "rules".into(), line: 0 };
        match directive {
            Directive::Rule(rule) => self.rule(rule, problems),
            Directive::Marker(name) => drop(self.markers.insert(name, self.position)),
            Directive::DefaultAction(place, actions) => match actions.phase {
                Some(phase) => drop(self.defaults.insert(phase, actions)),
                None => problems.error(&place, "`SecDefaultAction` needs a phase"),
            },
            Directive::RemoveById(ids) => self.removed_ids.extend(ids),
            Directive::RemoveByTag(tag) => self.removed_tags.extend(pattern(&nowhere, &tag, problems)),
            Directive::RemoveByMsg(msg) => self.removed_msgs.extend(pattern(&nowhere, &msg, problems)),
            update => self.updates.push(update),
        }
    }

    fn rule(&mut self, mut rule: RuleSource, problems: &mut Problems) {
        let goes_on = rule.actions.chain;
        if let Some(open) = &mut self.open {
            apply_defaults(&mut rule.actions, self.defaults.get(&open.phase));
            if rule.actions.id.is_some() || rule.actions.disruptive.is_some_and(|it| it != Disruptive::Pass) {
                problems.error(&rule.place, "only the first rule of a chain may have an id or decide");
            }
            open.links.push(rule);
            if !goes_on {
                self.drafts.extend(self.open.take());
            }
            return;
        }
        // The rule that settings become is nobody's.
        self.written += usize::from(&*rule.place.file != "settings");
        let Some(id) = rule.actions.id else {
            problems.error(&rule.place, "the rule has no id");
            return;
        };
        let phase = rule.actions.phase.unwrap_or(2);
        apply_defaults(&mut rule.actions, self.defaults.get(&phase));
        let draft = Draft {
            position: self.position,
            id,
            phase,
            place: rule.place.clone(),
            decision: Decision::Pass,
            skip_to: None,
            links: vec![rule],
        };
        if goes_on {
            self.open = Some(draft);
        } else {
            self.drafts.push(draft);
        }
    }

    fn finish(mut self, problems: &mut Problems) -> (Vec<Draft>, usize) {
        let (ids, tags, msgs) = (&self.removed_ids, &self.removed_tags, &self.removed_msgs);
        self.drafts.retain(|draft| {
            let msg = draft.head().msg.as_ref().and_then(|msg| msg.constant().map(<[u8]>::to_vec));
            let msg = msg.map(|msg| String::from_utf8_lossy(&msg).into_owned()).unwrap_or_default();
            !draft.is_in(ids)
                && !tags.iter().any(|tag| draft.has_tag(tag))
                && !msgs.iter().any(|pattern| !msg.is_empty() && pattern.is_match(&msg))
        });
        let mut seen = HashSet::new();
        for draft in &self.drafts {
            if !seen.insert(draft.id) {
                problems.error(&draft.place, format!("the id {} is taken by another rule", draft.id));
            }
        }
        for update in &self.updates {
            apply_update(update, &mut self.drafts, problems);
        }
        let places: Vec<(u8, usize)> =
            self.drafts.iter().map(|draft| (draft.phase, draft.position)).collect();
        for draft in &mut self.drafts {
            let actions = draft.head().clone();
            draft.decision = decision(actions.disruptive.unwrap_or(Disruptive::Pass), actions.status);
            draft.skip_to = match &actions.skip_after {
                Some(marker) => match self.markers.get(marker) {
                    Some(position) if *position > draft.position => Some(*position),
                    Some(_) => {
                        problems.error(&draft.place, format!("the marker `{marker}` stands before the rule"));
                        None
                    }
                    None => {
                        problems.error(&draft.place, format!("there is no marker `{marker}`"));
                        None
                    }
                },
                None if actions.skip > 0 => {
                    let later =
                        places.iter().filter(|(phase, at)| *phase == draft.phase && *at > draft.position);
                    let mut later: Vec<usize> = later.map(|(_, at)| *at).collect();
                    later.sort_unstable();
                    later.get(actions.skip as usize - 1).or_else(|| later.last()).copied()
                }
                None => None,
            };
        }
        self.drafts.retain(|draft| draft.phase <= 4);
        self.drafts.sort_by_key(|draft| (draft.phase, draft.position));
        (self.drafts, self.written)
    }
}

/// What `SecDefaultAction` says, where the rule says nothing of its own.
fn apply_defaults(actions: &mut Actions, defaults: Option<&Actions>) {
    let Some(defaults) = defaults else { return };
    if actions.disruptive.is_none() || actions.disruptive == Some(Disruptive::Block) {
        actions.disruptive = defaults.disruptive;
        actions.status = actions.status.or(defaults.status);
    }
    actions.log = actions.log.or(defaults.log);
    let mut transforms: Vec<Option<Transform>> = defaults.transforms.clone();
    transforms.append(&mut actions.transforms);
    actions.transforms = transforms;
}

fn apply_update(update: &Directive, drafts: &mut [Draft], problems: &mut Problems) {
    match update {
        Directive::UpdateTargetById(ids, targets) => {
            for draft in drafts.iter_mut().filter(|draft| draft.is_in(ids)) {
                if let Some(head) = draft.links.first_mut() {
                    head.targets.extend(targets.iter().cloned());
                }
            }
        }
        Directive::UpdateTargetByTag(place, tag, targets) => {
            let Some(tag) = pattern(place, tag, problems) else { return };
            for draft in drafts.iter_mut().filter(|draft| draft.has_tag(&tag)) {
                if let Some(head) = draft.links.first_mut() {
                    head.targets.extend(targets.iter().cloned());
                }
            }
        }
        Directive::UpdateActionById(place, ids, actions) => {
            if actions.id.is_some() || actions.phase.is_some() || actions.chain {
                problems.error(place, "id, phase and chain of a rule can't be changed");
                return;
            }
            for draft in drafts.iter_mut().filter(|draft| draft.is_in(ids)) {
                if let Some(head) = draft.links.first_mut() {
                    update_actions(&mut head.actions, actions);
                }
            }
        }
        _ => {}
    }
}

fn update_actions(own: &mut Actions, new: &Actions) {
    own.disruptive = new.disruptive.or(own.disruptive);
    own.status = new.status.or(own.status);
    own.log = new.log.or(own.log);
    own.severity = new.severity.or(own.severity);
    own.skip_after = new.skip_after.clone().or_else(|| own.skip_after.take());
    own.msg = new.msg.clone().or_else(|| own.msg.take());
    own.tags.extend(new.tags.iter().cloned());
    own.sets.extend(new.sets.iter().cloned());
    own.ctls.extend(new.ctls.iter().cloned());
    own.capture |= new.capture;
    own.multi_match |= new.multi_match;
    if !new.transforms.is_empty() {
        own.transforms.clone_from(&new.transforms);
    }
    own.unsupported.extend(new.unsupported.iter().cloned());
}
