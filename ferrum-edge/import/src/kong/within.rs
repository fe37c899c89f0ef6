//! Prefixes that end within a segment: to Kong `/apix` begins with `/api`, to a proxy of ours it does not.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

use super::logs::SinkUsers;
use crate::draft::{Import, Match, Matcher, Replaced, Rewrite, draft};
use crate::text;

/// By how much a longer prefix goes before a shorter one, at most: less than what a further condition counts.
const MAX_LENGTH: usize = 499;

/// Adds proxies for the paths that go on behind a prefix within a segment, where another proxy would take them.
pub(super) fn add(out: &mut Import) {
    let prefixes: Vec<Option<String>> = out.proxies.iter().map(prefix).collect();
    let takers = Takers::new(&out.proxies, &prefixes);
    let is_taken = |at: usize, own: &str| takers.may_take(own, &hosts(&out.proxies[at]));
    let within: Vec<(usize, String)> = prefixes
        .iter()
        .enumerate()
        .filter_map(|(at, own)| Some((at, own.clone()?)))
        .filter(|(at, own)| own != "/" && !is_only_below(&out.proxies[*at], own) && is_taken(*at, own))
        .collect();
    if within.is_empty() {
        return;
    }
    for (proxy, own) in out.proxies.iter_mut().zip(&prefixes) {
        if let (Value::Object(proxy), Some(own)) = (proxy, own) {
            let length = i64::try_from(own.len().min(MAX_LENGTH)).unwrap_or(0);
            let before = proxy.get("priority").and_then(Value::as_i64).unwrap_or(0);
            proxy.insert("priority".to_owned(), (before + length).into());
        }
    }
    let belongings = Belongings::of(out);
    for (at, own) in within {
        if out.is_too_large() {
            return;
        }
        let Some(Value::Object(proxy)) = out.proxies.get(at).cloned() else { continue };
        one(out, &belongings, proxy, &own);
    }
}

/// The prefix of a proxy's paths; nothing for regexes and ports.
fn prefix(proxy: &Value) -> Option<String> {
    let path = proxy.get("listen_path")?.as_str()?;
    (!path.starts_with('~')).then(|| path.to_owned())
}

/// Whether a proxy is for what is below a path: a prefix of Kong's that ends with a slash does not go on within a segment.
fn is_only_below(proxy: &Value, own: &str) -> bool {
    let mut matches = proxy.get("matches").and_then(Value::as_array).into_iter().flatten();
    matches.any(|one| one["not"]["path"]["exact"] == own)
}

/// Proxies by what a path has to begin with to be theirs.
#[derive(Default)]
struct Takers {
    /// Those whose paths are not known by a prefix: any may be theirs.
    of_any: Hosts,
    /// By a prefix without the slashes at its end, and how many those are.
    by_prefix: HashMap<(String, usize), Hosts>,
    most_slashes: usize,
}

impl Takers {
    fn new(proxies: &[Value], prefixes: &[Option<String>]) -> Self {
        let mut made = Self::default();
        for (proxy, prefix) in proxies.iter().zip(prefixes) {
            let hosts = hosts(proxy);
            match prefix {
                Some(prefix) => {
                    let start = prefix.trim_end_matches('/');
                    let slashes = prefix.len() - start.len();
                    made.most_slashes = made.most_slashes.max(slashes);
                    made.by_prefix.entry((start.to_owned(), slashes)).or_default().add(&hosts);
                }
                None if proxy.get("listen_port").is_none() => made.of_any.add(&hosts),
                None => {}
            }
        }
        made
    }

    /// Whether a proxy with a shorter prefix, or none, may take what begins with `own` for one of these hosts.
    fn may_take(&self, own: &str, hosts: &[String]) -> bool {
        if self.of_any.may_share(hosts) {
            return true;
        }
        let starts = own.char_indices().filter_map(|(end, _)| own.get(..end));
        starts.flat_map(|start| (0..=self.most_slashes).map(move |slashes| (start, slashes))).any(
            |(start, slashes)| {
                start.len() + slashes < own.len()
                    && self
                        .by_prefix
                        .get(&(start.to_owned(), slashes))
                        .is_some_and(|others| others.may_share(hosts))
            },
        )
    }
}

/// Hosts that some proxies have.
#[derive(Default)]
struct Hosts {
    /// Whether one of them is for every host.
    has_all: bool,
    names: HashSet<String>,
    /// What comes behind the `*` of patterns.
    ends: HashSet<String>,
    /// Names and patterns, their last letter first.
    reversed: BTreeSet<String>,
}

impl Hosts {
    fn add(&mut self, hosts: &[String]) {
        self.has_all |= hosts.is_empty();
        for host in hosts {
            self.ends.extend(host.strip_prefix('*').map(str::to_owned));
            self.reversed.insert(host.chars().rev().collect());
            self.names.insert(host.clone());
        }
    }

    /// Whether one of them has one of these hosts, or a pattern of one is for a host of the other.
    fn may_share(&self, hosts: &[String]) -> bool {
        if self.names.is_empty() || hosts.is_empty() {
            return self.has_all || !self.names.is_empty();
        }
        let fits = |host: &String| {
            let is_below = |end: &str| {
                let end: String = end.chars().rev().collect();
                self.reversed.range(end.clone()..).next().is_some_and(|name| name.starts_with(&end))
            };
            self.names.contains(host)
                || !self.ends.is_empty()
                    && host
                        .char_indices()
                        .any(|(start, _)| host.get(start..).is_some_and(|end| self.ends.contains(end)))
                || self.ends.contains("")
                || host.strip_prefix('*').is_some_and(is_below)
        };
        self.has_all || hosts.iter().any(fits)
    }
}

fn hosts(proxy: &Value) -> Vec<String> {
    let all = proxy.get("hosts").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The same proxy for the paths that go on within a segment. What is left of them gets a slash, as Kong has it.
fn one(out: &mut Import, belongings: &Belongings, mut proxy: Map<String, Value>, own: &str) {
    let before = proxy["id"].as_str().unwrap_or_default().to_owned();
    let id = out.id("proxy", &format!("{before}-within"));
    proxy.insert("id".to_owned(), id.as_str().into());
    proxy.shift_remove("listen_path");
    let path = Value::from(Matcher::regex(format!("{}[^/].*", text::literal(own))));
    let matches = proxy.get("matches").and_then(Value::as_array).cloned();
    let with_path = matches.unwrap_or_else(|| vec![Match::default().into()]).into_iter().map(|mut one| {
        one["path"] = path.clone();
        one
    });
    proxy.insert("matches".to_owned(), with_path.collect());
    let strips = proxy.get("strip_listen_path").and_then(Value::as_bool) == Some(true);
    let base = proxy.get("backend_path").and_then(Value::as_str).unwrap_or_default().to_owned();
    if strips {
        proxy.insert("strip_listen_path".to_owned(), false.into());
        let to = format!("{}/${{1}}", base.trim_end_matches('/').replace('$', "$$"));
        let from = format!("^{}(.*)$", text::literal(own));
        out.plugin(&id, "rewrite", draft!(Rewrite { regex: [draft!(Replaced { from, to })] }).into());
    }
    belongings.copy(out, &before, &id);
    out.proxies.push(Value::Object(proxy));
}

/// What belongs to each proxy beside what it says itself, by the ids of proxies.
pub(super) struct Belongings {
    /// Places of the plugin configs that are one proxy's alone.
    plugins: HashMap<String, Vec<usize>>,
    sinks: SinkUsers,
}

impl Belongings {
    pub(super) fn of(out: &Import) -> Self {
        let mut plugins: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, config) in out.plugin_configs.iter().enumerate() {
            if let Some(proxy) = config.get("proxy_id").and_then(Value::as_str) {
                plugins.entry(proxy.to_owned()).or_default().push(place);
            }
        }
        Self { plugins, sinks: SinkUsers::of(out) }
    }

    /// Gives a proxy copies of the plugins that are another one's alone, and has its records go where the other one's go.
    pub(super) fn copy(&self, out: &mut Import, before: &str, id: &str) {
        self.sinks.copy(out, before, id);
        for place in self.plugins.get(before).into_iter().flatten() {
            let Some(mut copy) = out.plugin_configs.get(*place).cloned() else { continue };
            let name = copy["plugin_name"].as_str().unwrap_or_default().to_owned();
            copy["id"] = out.id("plugin", &format!("{id}-{name}")).into();
            copy["proxy_id"] = id.into();
            out.plugin_configs.push(copy);
        }
    }
}
