//! Lets recognised callers in or keeps them out, by name and by group.
//!
//! A denial beats a permission. Who is not named by any permission is kept out, unless there are only denials.

use std::collections::HashSet;
use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::consumer::Identity;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Family, Foreseen, Foresight, Hooks, OnRequest, Plugin, Seat, Step, World};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `access_control`. At least one list must not be empty, or `allow_authenticated_identity` must be true.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Usernames to admit. Default none.
    allowed_consumers: HashSet<String>,
    /// Usernames to reject; this precedes every other list. Default none.
    disallowed_consumers: HashSet<String>,
    /// Groups (`acl_groups` of consumers) whose members are admitted. Default none.
    allowed_groups: HashSet<String>,
    /// Groups whose members are rejected; this precedes the lists that admit. Default none.
    disallowed_groups: HashSet<String>,
    /// Admits every authenticated caller that is not denied, also one that only an external party authenticated.
    /// Default false.
    allow_authenticated_identity: bool,
}

/// The plugin.
pub(crate) struct AccessControl {
    rules: Rules,
}

/// Settings in the form in which they take least room: there may be one for each of a million proxies.
struct Rules {
    allowed_consumers: SortedNames,
    disallowed_consumers: SortedNames,
    allowed_groups: SortedNames,
    disallowed_groups: SortedNames,
    allow_authenticated_identity: bool,
    /// Nobody is named who may pass: everybody may who isn't denied.
    only_denials: bool,
}

/// Names in order, to be searched.
struct SortedNames(Box<[Box<str>]>);

impl SortedNames {
    fn new(names: HashSet<String>) -> Self {
        let mut names: Vec<Box<str>> = names.into_iter().map(String::into_boxed_str).collect();
        names.sort_unstable();
        Self(names.into())
    }

    fn contains(&self, name: &str) -> bool {
        self.0.binary_search_by(|known| (**known).cmp(name)).is_ok()
    }
}

impl Plugin for AccessControl {
    const NAME: &'static str = "access_control";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Admits or rejects authenticated callers by name and by group.";
    const EXAMPLE: &'static str = include_str!("../examples/access_control.yaml");
    type Config = Config;

    fn build(rules: Config, _world: &World) -> Result<Self, Problems> {
        let permits = !rules.allowed_consumers.is_empty()
            || !rules.allowed_groups.is_empty()
            || rules.allow_authenticated_identity;
        let denies = !rules.disallowed_consumers.is_empty() || !rules.disallowed_groups.is_empty();
        if !permits && !denies {
            let mut problems = Problems::default();
            problems.add("config", "nobody is allowed and nobody is denied").remedy =
                Some("name somebody in `allowed_consumers`, `allowed_groups` or their opposites".into());
            return Err(problems);
        }
        let rules = Rules {
            allowed_consumers: SortedNames::new(rules.allowed_consumers),
            disallowed_consumers: SortedNames::new(rules.disallowed_consumers),
            allowed_groups: SortedNames::new(rules.allowed_groups),
            disallowed_groups: SortedNames::new(rules.disallowed_groups),
            allow_authenticated_identity: rules.allow_authenticated_identity,
            only_denials: !permits,
        };
        Ok(Self { rules })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }

    fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        if !foresight.is_caller_known {
            return Some(Foreseen::Unknown("it depends on who the caller is".into()));
        }
        Some(match &foresight.exchange.identity {
            None => Foreseen::refuses(unrecognised(), "no caller is recognised", false),
            Some(identity) if self.admits(identity) => {
                Foreseen::Passes(format!("`{}` is allowed", identity.name))
            }
            Some(identity) => {
                Foreseen::refuses(denied(), format!("`{}` is not allowed", identity.name), false)
            }
        })
    }
}

impl OnRequest for AccessControl {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        let Some(identity) = &exchange.identity else {
            return Step::reply(unrecognised());
        };
        if self.admits(identity) {
            return Step::Next;
        }
        Step::reply(denied())
    }
}

fn unrecognised() -> Reply {
    Reply::new(Cause::Unauthenticated).detail("nobody was recognised")
}

fn denied() -> Reply {
    Reply::new(Cause::Forbidden).detail("you may not use this")
}

impl AccessControl {
    fn admits(&self, identity: &Identity) -> bool {
        let in_any = |list: &SortedNames| identity.groups().any(|group| list.contains(group));
        let rules = &self.rules;
        if rules.disallowed_consumers.contains(&identity.name) || in_any(&rules.disallowed_groups) {
            return false;
        }
        rules.only_denials
            || rules.allow_authenticated_identity
            || rules.allowed_consumers.contains(&identity.name)
            || in_any(&rules.allowed_groups)
    }
}

#[cfg(test)]
mod tests;
