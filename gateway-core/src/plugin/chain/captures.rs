//! Settings that go by a name of the route's path that no path of the proxy has: their values would always be empty.

use super::Member;
use crate::config::file::nearest;
use crate::config::model::{Scope, Traffic};
use crate::config::pattern::PathPattern;
use crate::config::problem::Problem;
use crate::plugin::hooks::Hooks;

/// What is wrong. A config for every proxy meets paths with other names, and is not looked at.
pub(super) fn unknown(hooks: &Hooks, members: &[Member], traffic: &Traffic) -> Vec<Problem> {
    let Traffic::Http(rules) = traffic else { return Vec::new() };
    if hooks.captures.is_empty() {
        return Vec::new();
    }
    let known: Vec<String> = rules.matches.iter().flat_map(|matched| names(&matched.path)).collect();
    let missing = hooks.captures.iter().filter(|(.., name)| !known.iter().any(|it| **it == **name));
    missing
        .filter_map(|(place, setting, name)| {
            let (config, _) = members.get(usize::from(*place).checked_sub(1)?)?;
            (config.scope != Scope::Global).then_some(())?;
            let remedy = match nearest(name, known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `${{capture.{near}}}`?"),
                None => format!("name a part of the path so, such as `/users/{{{name}}}`"),
            };
            // In the message: of a proxy that is closed for it nothing else is shown.
            let message =
                format!("no path of the proxy has the name `{name}` of `${{capture.{name}}}`: {remedy}");
            let problem = Problem::new(format!("plugin_configs.{}.{setting}", config.id), message);
            Some(Problem { rejects: true, ..problem })
        })
        .collect()
}

/// The names of a path; groups of a regex without a name have their number.
fn names(path: &PathPattern) -> Vec<String> {
    match path {
        PathPattern::Template(template) => template.names().iter().map(ToString::to_string).collect(),
        PathPattern::Regex(regex) => {
            let groups = regex.capture_names().enumerate().skip(1);
            groups.map(|(n, name)| name.map_or_else(|| n.to_string(), str::to_owned)).collect()
        }
        PathPattern::HostOnly | PathPattern::Exact(_) | PathPattern::Prefix(_) => Vec::new(),
    }
}
