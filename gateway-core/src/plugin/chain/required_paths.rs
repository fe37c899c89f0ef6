//! Paths at which plugins have to be reached.

use super::Member;
use crate::config::model::{Scope, Traffic};
use crate::config::problem::Problem;
use crate::plugin::hooks::Hooks;

/// Paths at which a plugin has to be reached and that its proxy does not match.
pub(super) fn unreachable(hooks: &Hooks, members: &[Member], traffic: &Traffic) -> Vec<Problem> {
    let Traffic::Http(rules) = traffic else { return Vec::new() };
    let is_matched = |path: &str| rules.matches.iter().any(|matched| matched.path.covers(path));
    let unmatched = hooks.needed_paths.iter().filter(|(_, _, path)| !is_matched(path));
    let problem = |(place, setting, path): &(u16, &str, String)| {
        let (config, _) = members.get(usize::from(*place).checked_sub(1)?)?;
        let Scope::Proxy(_) = config.scope else { return None };
        let listens: Vec<String> =
            rules.matches.iter().filter_map(|matched| matched.path.written()).collect();
        let message = format!("the proxy does not match `{path}`, so requests for it never reach the plugin");
        let problem = Problem::new(format!("plugin_configs.{}.{setting}", config.id), message);
        Some(problem.remedy(format!("write a path that the proxy matches: {}", listens.join(", "))))
    };
    unmatched.filter_map(problem).collect()
}
