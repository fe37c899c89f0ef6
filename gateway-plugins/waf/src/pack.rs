//! Our own rules, for gateways whose operators bring none; and rule files as they lie in a folder.

use std::collections::HashMap;

use crate::compile::{RuleFile, Sources};

/// How much honest traffic may look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// Refuses what hardly any honest request has in it.
    #[default]
    Balanced,
    /// Refuses also what only looks suspicious.
    Aggressive,
}

/// Score at which a request is refused, unless settings say otherwise.
pub const THRESHOLD: u32 = 5;

/// The variable that holds the threshold, in our rules and in the Core Rule Set.
pub const THRESHOLD_VARIABLE: &str = "inbound_anomaly_score_threshold";

/// Our own rules.
pub fn own_rules(profile: Profile) -> Sources {
    let file = |name: &str, text: &str| RuleFile { name: name.into(), text: text.into(), setup: false };
    let mut files = vec![file("balanced.conf", include_str!("pack/balanced.conf"))];
    if profile == Profile::Aggressive {
        files.push(file("aggressive.conf", include_str!("pack/aggressive.conf")));
    }
    // The decision is in the last file.
    files.push(file("balanced2.conf", include_str!("pack/balanced2.conf")));
    Sources {
        files,
        variables: vec![(THRESHOLD_VARIABLE.into(), THRESHOLD.to_string())],
        ..Sources::default()
    }
}

/// Whether a file of this name is part of a set of rules.
pub fn is_rule_file(name: &str) -> bool {
    name.ends_with(".conf") || name.ends_with(".data") || name.ends_with("crs-setup.conf.example")
}

/// Puts the files of a folder in order: set-up first, then configuration of plug-ins, what runs before the rules, the rules by
/// name, and what runs after them. Files that hold no rules are lists of words.
pub fn from_files(files: Vec<(String, Vec<u8>)>) -> Sources {
    let mut rules: Vec<(u8, RuleFile)> = Vec::new();
    let mut data = HashMap::new();
    let has_setup = files.iter().any(|(name, _)| name.ends_with("crs-setup.conf"));
    for (name, content) in files {
        let base = name.rsplit('/').next().unwrap_or(&name).to_owned();
        let is_setup =
            base.ends_with("crs-setup.conf") || (!has_setup && base.ends_with("crs-setup.conf.example"));
        if base.ends_with(".data") {
            data.insert(base, content);
        } else if is_setup || base.ends_with(".conf") {
            let order = match base.as_str() {
                _ if is_setup => 0,
                base if base.ends_with("-config.conf") => 1,
                base if base.ends_with("-before.conf") => 2,
                base if base.ends_with("-after.conf") => 4,
                _ => 3,
            };
            let text = String::from_utf8_lossy(&content).into_owned();
            rules.push((order, RuleFile { name, text, setup: is_setup }));
        }
    }
    rules.sort_by(|(a, first), (b, second)| a.cmp(b).then_with(|| first.name.cmp(&second.name)));
    let files: Vec<RuleFile> = rules.into_iter().map(|(_, file)| file).collect();
    // The rules ask whether a set-up was loaded.
    let variables = match files.iter().any(|file| file.setup) {
        true => Vec::new(),
        false => vec![("crs_setup_version".into(), "4000".into())],
    };
    Sources { files, data, variables, ..Sources::default() }
}

#[cfg(test)]
mod tests;
