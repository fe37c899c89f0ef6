//! Whether a write stays within the caller's grants: by what it names, and by what it has an effect on.
//!
//! The effects are those of the compiled change, so that nothing depends on how an object is written: who changes an upstream that
//! the proxy of somebody else uses, or a plugin for all proxies, changes that proxy.

use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::changes::Changes;
use gateway_core::config::problem::{Problem, Problems};
use serde_json::Value;

use super::plan::Plan;
use super::{Request, WriteError};
use crate::access::grants::Grants;

/// Refuses objects that the grants do not cover by their ids, and consumers, before anything is said of what there is.
pub(super) fn names(request: &Request) -> Result<(), WriteError> {
    let Some(grants) = &request.grants else { return Ok(()) };
    if request.rollback.is_some() || !request.prune.is_empty() {
        return refused(
            "A rollback or an import is about more than the objects that your grants cover".to_owned(),
        );
    }
    for (_, step) in &request.steps {
        let (kind, id) = step.key();
        if kind == ObjectKind::Consumers {
            return refused(
                "Your grants cover no consumers: their credentials are for everything".to_owned(),
            );
        }
        if !grants.may_change(id.as_str()) {
            return refused(format!("Your grants do not cover changes of the {} `{id}`", kind.singular()));
        }
    }
    Ok(())
}

/// Refuses plugins of all proxies, also of those that come later.
pub(super) fn plugins(request: &Request, plan: &Plan) -> Result<(), WriteError> {
    if request.grants.is_none() {
        return Ok(());
    }
    for ((_, op), sent) in plan.done.iter().zip(&plan.sent) {
        let (kind, id) = op.key();
        let document = sent.as_deref().filter(|_| kind == ObjectKind::PluginConfigs);
        let document = document.and_then(|document| serde_json::from_str::<Value>(document).ok());
        if document.is_some_and(|document| document["scope"] == "global") {
            return refused(format!(
                "The plugin config `{id}` would run for all proxies, which no grant covers"
            ));
        }
    }
    Ok(())
}

/// Refuses a change that has an effect on a proxy which the grants do not cover as it is then.
pub(super) fn effects(request: &Request, changes: &Changes) -> Result<(), WriteError> {
    let Some(grants) = &request.grants else { return Ok(()) };
    if !changes.consumers.is_empty() || changes.settings.is_some() {
        return refused("This changes more than the objects that your grants cover".to_owned());
    }
    let closed = changes.closed.iter().map(|(proxy, _)| proxy);
    match changes.proxies.put.iter().chain(closed).find(|proxy| !grants.may_have(proxy)) {
        None => Ok(()),
        Some(proxy) => refused(uncovered(grants, proxy.id.as_str())),
    }
}

/// What is wrong with a change, as far as the caller may know. A conflict with an object that the grants do not cover is refused
/// in the words for a proxy that they do not cover: the caller does not learn what there is, nor which hosts are taken.
pub(super) fn problems(request: &Request, problems: Problems) -> WriteError {
    let Some(grants) = &request.grants else { return WriteError::Invalid(problems) };
    let is_own =
        |id: &str| grants.may_see(id) || request.steps.iter().any(|(_, step)| step.key().1.as_str() == id);
    let names_others = |problem: &Problem| {
        let texts = [Some(&problem.message), problem.remedy.as_ref()];
        texts.into_iter().flatten().any(|text| !named_ids(text).all(is_own))
    };
    if !problems.0.iter().any(names_others) {
        return WriteError::Invalid(problems);
    }
    let mut keys = request.steps.iter().map(|(_, step)| step.key());
    let proxy = keys.find(|(kind, _)| *kind == ObjectKind::Proxies);
    WriteError::OutOfScope(uncovered(grants, proxy.map_or("", |(_, id)| id.as_str())))
}

/// The ids in a text such as "the proxy `b-shop` takes this path already".
fn named_ids(text: &str) -> impl Iterator<Item = &str> {
    ObjectKind::ALL.into_iter().flat_map(move |kind| {
        let parts = text.split(kind.singular()).skip(1);
        parts.filter_map(|rest| rest.strip_prefix(" `")?.split_once('`').map(|(id, _)| id))
    })
}

fn uncovered(grants: &Grants, proxy: &str) -> String {
    let proxy = if grants.may_see(proxy) { format!("the proxy `{proxy}`") } else { "a proxy".to_owned() };
    format!(
        "Your grants do not cover {proxy} with its hosts, paths or ports, or it conflicts with an object that they do not cover"
    )
}

fn refused(detail: String) -> Result<(), WriteError> {
    Err(WriteError::OutOfScope(detail))
}
