//! The order of a chain: the table's, changed by `before` and `after`.

use std::sync::Arc;

use super::Member;
use crate::config::capabilities::Capability;
use crate::config::hook_set::HookSet;
use crate::config::model::Order;
use crate::config::problem::{Problem, Problems};
use crate::plugin::Registry;

/// Table order first (stable, so that two of a name keep the file's order). Then each config that says `before` or
/// `after` moves directly next to the plugins it names; those that name each other in a circle are refused. A name that
/// runs on no plugin of this proxy moves nothing.
pub(in crate::plugin) fn ordered(registry: &Registry, plugins: &[Member]) -> Result<Vec<Member>, Problems> {
    let mut list: Vec<Member> = plugins.to_vec();
    list.sort_by_key(|(config, _)| registry.place(&config.plugin_name).unwrap_or(usize::MAX));
    if list.iter().all(|(config, _)| config.order.is_none()) {
        return Ok(list);
    }
    let mut waiting: Vec<Member> =
        list.iter().filter(|(config, _)| config.order.is_some()).cloned().collect();
    // A config is placed once what it names is placed, so that it stands next to where that ends up.
    while !waiting.is_empty() {
        let ready = waiting.iter().position(|(config, _)| {
            config.order.as_deref().is_none_or(|order| {
                !waiting.iter().any(|(other, _)| other.id != config.id && other.plugin_name == *named(order))
            })
        });
        let Some(ready) = ready else { return Err(cycle(&waiting)) };
        let member = waiting.remove(ready);
        place(&mut list, member);
    }
    Ok(list)
}

fn named(order: &Order) -> &Arc<str> {
    match order {
        Order::Before(name) | Order::After(name) => name,
    }
}

fn place(list: &mut Vec<Member>, member: Member) {
    let Some(order) = member.0.order.as_deref() else { return };
    let Some(from) = list.iter().position(|(config, _)| config.id == member.0.id) else { return };
    list.remove(from);
    let is_named = |(config, _): &Member| config.plugin_name == *named(order);
    let to = match order {
        Order::Before(_) => list.iter().position(is_named),
        Order::After(_) => list.iter().rposition(is_named).map(|at| at + 1),
    };
    list.insert(to.unwrap_or(from), member);
}

fn cycle(waiting: &[Member]) -> Problems {
    let names: Vec<String> = waiting.iter().map(|(config, _)| format!("`{}`", config.id)).collect();
    let first = waiting.first().map_or("", |(config, _)| config.id.as_str());
    let message = format!("`before` and `after` form a cycle: {}", names.join(", "));
    Problems(vec![Problem::new(format!("plugin_configs.{first}"), message).remedy("remove one of them")])
}

/// Plugins that guard, moved behind one that answers with what was made for others, and code that may refuse, wherever it stands behind
/// one: it would let anybody past them.
pub(super) fn bypassed(registry: &Registry, members: &[Member]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let answers =
        |(_, (_, plugin)): &(usize, &Member)| plugin.capabilities().has(Capability::AnswersForTarget);
    for (at, (config, _)) in members.iter().enumerate().filter(answers) {
        let own = registry.place(&config.plugin_name);
        for (other, plugin) in members.iter().skip(at + 1) {
            let (taken, declared) = (plugin.hooks(), plugin.capabilities());
            let was_moved = registry.place(&other.plugin_name) < own;
            let identifies = taken.meets(HookSet::AUTHENTICATE);
            let refuses = taken.meets(HookSet::ON_REQUEST) && !declared.has(Capability::OnlyPrepares);
            let decides = refuses && declared.has(Capability::Decides);
            if decides || was_moved && (identifies || plugin.guards() && refuses) {
                let message = format!(
                    "`{}` runs before `{}` and would answer without asking it",
                    config.plugin_name, other.plugin_name
                );
                let problem = Problem::new(format!("plugin_configs.{}", config.id), message);
                problems.push(match was_moved {
                    true => problem,
                    false => problem
                        .remedy(format!("give `{}` the order `before: {}`", other.id, config.plugin_name)),
                });
            }
        }
    }
    problems
}
