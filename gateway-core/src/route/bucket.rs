//! Routes that share a host and a path, told apart by their conditions.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::config::claims::ties;
use crate::config::condition::Condition;
use crate::config::model::Match;
use crate::config::pattern::PathPattern;
use crate::config::pattern::PathTemplate;

/// The routes of one host and path.
#[derive(Clone)]
pub(super) enum Bucket<R> {
    /// One without conditions and priority, which is the rule.
    One(R),
    /// The first whose condition holds is taken: by priority, then by the number of conditions.
    Many(Arc<[ConditionalRoute<R>]>),
}

/// One route among several, or one with conditions.
#[derive(Clone)]
pub(super) struct ConditionalRoute<R> {
    pub(super) route: R,
    pub(super) priority: i32,
    pub(super) condition: Option<Arc<Condition>>,
    /// For its names, which may differ where all else is the same.
    pub(super) template: Option<Arc<PathTemplate>>,
}

/// A route that covers a path, before its condition is looked at.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'t, R> {
    pub(super) route: &'t R,
    pub(super) priority: i32,
    pub(super) condition: Option<&'t Condition>,
    pub(super) template: Option<&'t PathTemplate>,
}

impl<R> ConditionalRoute<R> {
    fn rank(&self) -> (Reverse<i32>, Reverse<usize>) {
        (Reverse(self.priority), Reverse(weight(self.condition.as_deref())))
    }

    fn is(&self, rule: &Match, priority: i32) -> bool {
        self.priority == priority && self.condition == rule.condition
    }
}

/// How many conditions there are.
pub(super) fn weight(condition: Option<&Condition>) -> usize {
    condition.map_or(0, Condition::weight)
}

impl<R: Clone> Bucket<R> {
    pub(super) fn new(rule: &Match, priority: i32, route: R) -> Self {
        match (&rule.path, &rule.condition, priority) {
            (PathPattern::Template(_), ..) => Self::Many([entry(rule, priority, route)].into()),
            (_, None, 0) => Self::One(route),
            _ => Self::Many([entry(rule, priority, route)].into()),
        }
    }

    /// Whether a rule ties with one that is here.
    pub(super) fn is_taken(&self, rule: &Match, priority: i32) -> bool {
        let new = rule.condition.as_deref();
        match self {
            Self::One(_) => priority == 0 && ties(new, None),
            Self::Many(all) => {
                all.iter().any(|old| old.priority == priority && ties(new, old.condition.as_deref()))
            }
        }
    }

    pub(super) fn add(&mut self, rule: &Match, priority: i32, route: R) {
        let mut all = self.entries();
        all.push(entry(rule, priority, route));
        all.sort_by_key(ConditionalRoute::rank);
        *self = Self::Many(all.into());
    }

    /// Takes a rule's route out; `None` when it isn't here. The second is whether nothing is left.
    pub(super) fn take(&mut self, rule: &Match, priority: i32) -> Option<(R, bool)> {
        let mut all = self.entries();
        let at = all.iter().position(|entry| entry.is(rule, priority))?;
        let taken = all.remove(at).route;
        let is_empty = all.is_empty();
        *self = match all.as_slice() {
            [ConditionalRoute { route, priority: 0, condition: None, template: None }] => {
                Self::One(route.clone())
            }
            _ => Self::Many(all.into()),
        };
        Some((taken, is_empty))
    }

    fn entries(&self) -> Vec<ConditionalRoute<R>> {
        match self {
            Self::One(route) => {
                vec![ConditionalRoute { route: route.clone(), priority: 0, condition: None, template: None }]
            }
            Self::Many(all) => all.to_vec(),
        }
    }
}

impl<R> Bucket<R> {
    /// Shows the routes in their order, until one is chosen.
    #[inline]
    pub(super) fn each<'t, T>(&'t self, mut choose: impl FnMut(Candidate<'t, R>) -> Option<T>) -> Option<T> {
        match self {
            Self::One(route) => choose(Candidate { route, priority: 0, condition: None, template: None }),
            Self::Many(all) => all.iter().find_map(|entry| {
                choose(Candidate {
                    route: &entry.route,
                    priority: entry.priority,
                    condition: entry.condition.as_deref(),
                    template: entry.template.as_deref(),
                })
            }),
        }
    }
}

fn entry<R>(rule: &Match, priority: i32, route: R) -> ConditionalRoute<R> {
    let template = match &rule.path {
        PathPattern::Template(template) => Some(template.clone()),
        _ => None,
    };
    ConditionalRoute { route, priority, condition: rule.condition.clone(), template }
}
