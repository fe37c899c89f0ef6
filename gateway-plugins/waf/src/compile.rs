//! Rule files to a [`Ruleset`]: what can't be enforced is a problem, with file and line.

mod draft;
mod fold;
mod link;
pub(crate) mod tail;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bits;
use crate::filter::{Filter, FilterError};
use crate::operator::Operator;
use crate::pattern::literals::Needs;
use crate::problem::{Problem, Problems, RuleLocation, Severity};
use crate::rules::{
    Decision, Flow, Node, PhaseRules, Rule, RuleCondition, Ruleset, Summary, Target, Test, TxSlots,
};
use crate::seclang::IdRange;
use crate::transform::Transform;
use crate::values::Values;
use crate::variable::Variable;
use draft::Draft;

/// What begins the names of the variables that hold scores.
const SCORES: [&[u8]; 2] = [b"inbound_anomaly_score_pl", b"outbound_anomaly_score_pl"];
/// Rules that one set may have.
pub const MAX_RULES: usize = 16_384;

/// One file of rules.
#[derive(Debug, Clone)]
pub struct RuleFile {
    /// Its name, for problems.
    pub name: String,
    /// What is in it.
    pub text: String,
    /// Whether it sets up the others: [`Sources::variables`] come right behind it.
    pub setup: bool,
}

/// What a [`Ruleset`] is made of.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Rule files, in the order in which they count.
    pub files: Vec<RuleFile>,
    /// Lists of words that rules name (`@pmFromFile`), by name.
    pub data: HashMap<String, Vec<u8>>,
    /// Variables of TX that are set whatever the set-up says, such as `detection_paranoia_level`.
    pub variables: Vec<(String, String)>,
    /// Rules that are left out, by id.
    pub removed_ids: Vec<IdRange>,
    /// Rules that are left out, by tag (a regular expression).
    pub removed_tags: Vec<String>,
}

/// The rules of two phases, before what refers to other rules is known.
struct UnfinishedHalf {
    rules: Vec<Rule>,
    /// The first rule of the second of them.
    second: usize,
    /// What a value must contain to match the head of each rule.
    needs: Vec<Needs>,
}

/// What is made while rules are compiled.
pub(crate) struct Builder<'s> {
    pub(crate) data: &'s HashMap<String, Vec<u8>>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) slots: TxSlots,
    pub(crate) problems: Problems,
    /// `@pmFromFile` lists by what they were read from, with their words.
    pub(crate) words: HashMap<String, Vec<Vec<u8>>>,
}

/// Compiles rules.
///
/// # Errors
/// Everything that can't be used; notes are among them, and do not count by themselves.
pub fn compile(sources: &Sources) -> Result<(Ruleset, Vec<Problem>), Vec<Problem>> {
    let mut problems = Problems::default();
    let (drafts, written) = draft::read(sources, &mut problems);
    let folded = fold::fold(drafts);
    let mut builder = Builder {
        data: &sources.data,
        nodes: vec![Node { parent: 0, transform: Transform::Length, triggers: None }],
        slots: TxSlots::default(),
        problems,
        words: HashMap::new(),
    };
    // Groups of a match are TX.0 to TX.9.
    for n in 0..10 {
        builder.slots.of(&n.to_string());
    }
    let (request, response): (Vec<Draft>, Vec<Draft>) =
        folded.drafts.into_iter().partition(|draft| draft.phase <= 2);
    let halves = [builder.half(&request, 1), builder.half(&response, 3)];
    builder.resolve_tail(halves, [request, response], &folded.initial, written)
}

impl Builder<'_> {
    /// The node of a chain of transformations.
    pub(crate) fn node(&mut self, parent: usize, transform: Transform) -> usize {
        let same = |node: &Node| node.parent == parent && node.transform == transform;
        if let Some(at) = self.nodes.iter().skip(1).position(same) {
            return at + 1;
        }
        self.nodes.push(Node { parent, transform, triggers: transform.triggers() });
        self.nodes.len() - 1
    }

    /// The rules of two phases, without what refers to other rules.
    fn half(&mut self, drafts: &[Draft], first: u8) -> UnfinishedHalf {
        let mut ordered: Vec<&Draft> = drafts.iter().collect();
        ordered.sort_by_key(|draft| (draft.phase, draft.position));
        let second = ordered.iter().filter(|draft| draft.phase == first).count();
        let (mut rules, mut needs) = (Vec::new(), Vec::new());
        for (n, draft) in ordered.iter().enumerate() {
            let skip_to = draft.skip_to.map(|position| {
                let behind = ordered
                    .iter()
                    .skip(n)
                    .position(|other| other.phase != draft.phase || other.position > position);
                behind.map_or(ordered.len(), |distance| n + distance)
            });
            let mut links = Vec::new();
            for (level, source) in draft.links.iter().enumerate() {
                let (link, needed) = self.link(draft, source, level);
                if level == 0 {
                    needs.push(needed);
                }
                links.push(link);
            }
            rules.push(Rule {
                id: draft.id,
                place: draft.place.clone(),
                links,
                flow: Flow { decision: draft.decision, skip_to },
                meta: self.meta(draft),
            });
        }
        drop_captures(&mut rules);
        UnfinishedHalf { rules, second, needs }
    }
}

/// Leaves out captures that nobody reads: they cost more than the match itself.
fn drop_captures(rules: &mut [Rule]) {
    let (all, groups) = (0..10, 1..10);
    let by_others = |slots: &std::ops::Range<usize>| {
        // A head reads what an earlier rule has captured.
        rules.iter().any(|rule| {
            rule.links
                .first()
                .is_some_and(|head| head.reads(slots) || (!head.capture && head.writes_of(slots)))
        })
    };
    let (all_by_others, groups_by_others) = (by_others(&all), by_others(&groups));
    for rule in rules {
        let reads = |slots: &std::ops::Range<usize>| {
            let by_links = rule.links.iter().any(|link| link.reads(slots) || link.writes_of(slots));
            by_links || rule.meta.msg.as_ref().is_some_and(|msg| msg.reads(slots))
        };
        let (capture, groups) = (all_by_others || reads(&all), groups_by_others || reads(&groups));
        for link in &mut rule.links {
            link.capture &= capture;
            link.groups &= groups;
        }
    }
}

/// Whether what the head asks depends on single values alone, so that what is known of them decides.
fn asks_values(head: &RuleCondition) -> bool {
    let by_value =
        |target: &Target| matches!(target, Target::Values(member) if !member.variable.is_volatile());
    matches!(head.test, Test::Fixed(_)) && !head.targets.is_empty() && head.targets.iter().all(by_value)
}

/// Builds what finds the rules that a request could match.
fn finish_half(half: UnfinishedHalf) -> Result<PhaseRules, FilterError> {
    let UnfinishedHalf { rules, second, needs } = half;
    let width = bits::words(rules.len());
    let empty = || vec![0u64; width].into_boxed_slice();
    let (mut always, mut asked, mut filtered, mut plain) = (empty(), empty(), empty(), empty());
    let mut lookers: Vec<Box<[u64]>> = (0..Variable::COUNT).map(|_| empty()).collect();
    let mut by_node: Vec<(usize, Box<[u64]>)> = Vec::new();
    let mut needed = Vec::new();
    for (n, (rule, needs)) in rules.iter().zip(needs).enumerate() {
        let Some(head) = rule.links.first() else { continue };
        if !asks_values(head) {
            bits::set(&mut always, n);
            continue;
        }
        for target in &head.targets {
            let Target::Values(member) = target else { continue };
            let (first, second) = Values::parts(member.variable);
            for variable in std::iter::once(first).chain(second) {
                bits::set(&mut lookers[variable as usize], n);
            }
        }
        if matches!(needs, Needs::Nothing) {
            bits::set(&mut asked, n);
            continue;
        }
        bits::set(&mut filtered, n);
        needed.push((n, needs));
        for node in head.steps.iter().copied().chain([head.node]) {
            let slot = match by_node.iter().position(|(known, _)| *known == node) {
                Some(at) => at,
                None => {
                    by_node.push((node, empty()));
                    by_node.len() - 1
                }
            };
            bits::set(&mut by_node[slot].1, n);
        }
    }
    by_node.sort_by_key(|(node, _)| *node);
    by_node.retain(|(node, rules)| {
        if *node == 0 {
            plain.clone_from(rules);
        }
        *node != 0
    });
    let filter = Filter::new(&needed, width)?;
    let order = Vec::new();
    let is_looked_at = |variable: &Variable| {
        let lookers = &lookers[*variable as usize];
        Values::parts(*variable).1.is_none() && lookers.iter().any(|word| *word != 0)
    };
    let looked = Variable::ALL.iter().copied().filter(is_looked_at).collect();
    Ok(PhaseRules {
        rules,
        second,
        width,
        filter,
        always,
        asked,
        filtered,
        lookers,
        looked,
        nodes: by_node,
        order,
        plain,
    })
}

/// The transformations that lead to those that heads test; a step has a higher number than the one before it.
fn set_order(half: &mut PhaseRules, nodes: &[Node]) {
    let mut order = std::collections::BTreeSet::new();
    for (node, _) in &half.nodes {
        let mut node = *node;
        while node != 0 && order.insert(node) {
            node = nodes[node].parent;
        }
    }
    half.order = order.into_iter().collect();
}

impl Builder<'_> {
    /// Puts both halves together, and has rules refer to others.
    fn resolve_tail(
        mut self,
        halves: [UnfinishedHalf; 2],
        drafts: [Vec<Draft>; 2],
        initial: &HashMap<String, Vec<u8>>,
        written: usize,
    ) -> Result<(Ruleset, Vec<Problem>), Vec<Problem>> {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let [mut request, mut response] = halves;
        let active = request.rules.len() + response.rules.len();
        self.resolve_controls(&mut request.rules, &mut response.rules, &drafts);
        let nowhere = RuleLocation { file: Arc::from("rules"), line: 0 };
        if active > MAX_RULES {
            self.problems.error(&nowhere, format!("there are {active} rules; {MAX_RULES} are allowed"));
        }
        for (name, value) in initial {
            // Only what a rule still reads has a slot.
            if let Some(slot) = self.slots.by_name.get(name.as_bytes()) {
                self.slots.begin_with(*slot, value);
            }
        }
        let mut finish = |half| finish_half(half).map_err(|error| self.problems.error(&nowhere, error)).ok();
        let halves = (finish(request), finish(response));
        let problems = self.problems.0;
        let (Some(mut request), Some(mut response)) = halves else { return Err(problems) };
        set_order(&mut request, &self.nodes);
        set_order(&mut response, &self.nodes);
        if problems.iter().any(|problem| problem.severity == Severity::Error) {
            return Err(problems);
        }
        let automaton_bytes = request.filter.memory() + response.filter.memory();
        let ruleset = Ruleset {
            scores: score_slots(&self.slots.names),
            halves: [request, response],
            nodes: self.nodes,
            slots: self.slots,
            summary: Summary { written, active, automaton_bytes },
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
        };
        Ok((ruleset, problems))
    }
}

/// What a rule does at its end, from how it is written.
pub(crate) fn decision(disruptive: crate::seclang::actions::Disruptive, status: Option<u16>) -> Decision {
    use crate::rules::Allowed;
    use crate::seclang::actions::Disruptive;
    match disruptive {
        Disruptive::Pass | Disruptive::Block => Decision::Pass,
        Disruptive::Deny => Decision::Deny(status),
        Disruptive::Allow => Decision::Allow(Allowed::All),
        Disruptive::AllowPhase => Decision::Allow(Allowed::Phase),
        Disruptive::AllowRequest => Decision::Allow(Allowed::Request),
    }
}

/// What an operator needs, where it has a filter at all.
pub(crate) fn needs_of(operator: &Operator, pattern: Option<Needs>, words: Option<&[Vec<u8>]>) -> Needs {
    match (pattern, words) {
        (Some(needs), _) => needs,
        (_, Some(words)) => crate::pattern::literals::of_words(words.iter().cloned()),
        _ => operator.needs(),
    }
}

/// The slots that hold scores.
fn score_slots(names: &[Box<[u8]>]) -> Vec<usize> {
    let is_score = |name: &[u8]| SCORES.iter().any(|begin| name.starts_with(begin));
    names.iter().enumerate().filter(|(_, name)| is_score(name)).map(|(slot, _)| slot).collect()
}

#[cfg(test)]
mod tests;
