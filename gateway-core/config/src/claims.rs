//! Whether nothing says which of two proxies a request goes to.

use std::hash::Hash;
use std::sync::Arc;

use super::condition::Condition;
use super::index::Index;
use super::model::Match;
use super::pattern::{HostPattern, PathPattern};

/// Who asks for which requests: finds the proxy that a new one would tie with, without comparing it with every other.
///
/// Two rules tie when they have the same path and a host pattern in common, and nothing says which of them goes first:
/// the same priority, as many conditions, and conditions that may hold at once.
///
/// A clone is cheap and shares everything, so that a change can be tried on one and thrown away.
#[derive(Debug, Clone)]
pub struct Claims<O> {
    paths: Index<PathKey, Hosts<O>>,
}

impl<O> Default for Claims<O> {
    fn default() -> Self {
        Self { paths: Index::new() }
    }
}

/// Another rule that a new one ties with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tie<O> {
    /// Who has it.
    pub owner: O,
    /// Which of the new rules it is, counted from 0.
    pub rule: usize,
}

impl<O: Clone + Eq + Hash> Claims<O> {
    /// Records that `owner` asks for these requests.
    ///
    /// # Errors
    /// The first tie; nothing is recorded then. An owner never ties with itself.
    pub fn claim(&mut self, rules: &[Match], priority: i32, owner: &O) -> Result<(), Tie<O>> {
        for (n, rule) in rules.iter().enumerate() {
            let claimed = self.paths.get(&PathKey::from(&rule.path));
            if let Some(other) = claimed.and_then(|claimed| claimed.tie(rule, priority, owner)) {
                return Err(Tie { owner: other, rule: n });
            }
        }
        for rule in rules {
            let key = PathKey::from(&rule.path);
            let claim = Claim { owner: owner.clone(), priority, condition: rule.condition.clone() };
            match self.paths.get_mut(&key) {
                Some(claimed) => claimed.add(&rule.hosts, &claim),
                None => {
                    let mut claimed = Hosts::default();
                    claimed.add(&rule.hosts, &claim);
                    self.paths.insert(key, claimed);
                }
            }
        }
        Ok(())
    }

    /// Takes an owner's claims back.
    pub fn release(&mut self, rules: &[Match], owner: &O) {
        for rule in rules {
            let key = PathKey::from(&rule.path);
            if let Some(claimed) = self.paths.get_mut(&key) {
                claimed.take(&rule.hosts, owner);
                if claimed.any.is_none() && claimed.named.is_none() {
                    self.paths.remove(&key);
                }
            }
        }
    }
}

/// Whether nothing says which of two rules of one host and path goes before the other, where both hold.
/// Both have the same priority.
pub fn ties(a: Option<&Condition>, b: Option<&Condition>) -> bool {
    let apart = || a.zip(b).is_some_and(|(a, b)| a.excludes(b));
    let weight = |condition: Option<&Condition>| condition.map_or(0, Condition::weight);
    weight(a) == weight(b) && !apart()
}

/// A path pattern as a key. The names in a template make no difference.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum PathKey {
    HostOnly,
    Exact(Arc<str>),
    Template(Box<str>),
    Prefix(Arc<str>),
    Regex(Box<str>),
}

impl From<&PathPattern> for PathKey {
    fn from(path: &PathPattern) -> Self {
        match path {
            PathPattern::HostOnly => Self::HostOnly,
            PathPattern::Exact(path) => Self::Exact(path.clone()),
            PathPattern::Template(template) => Self::Template(template.without_names().into()),
            PathPattern::Prefix(prefix) => Self::Prefix(prefix.clone()),
            PathPattern::Regex(regex) => Self::Regex(regex.as_str().into()),
        }
    }
}

/// One rule's claim on one path.
#[derive(Debug, Clone)]
struct Claim<O> {
    owner: O,
    priority: i32,
    condition: Option<Arc<Condition>>,
}

/// The claims on one path at one host.
#[derive(Debug, Clone)]
enum PathClaims<O> {
    /// One without conditions and priority, which is the rule.
    One(O),
    Many(Arc<[Claim<O>]>),
}

/// The claims on one path.
#[derive(Debug, Clone)]
struct Hosts<O> {
    any: Option<PathClaims<O>>,
    /// Absent while nobody claims the path at a host of its own, as with most of a million paths.
    named: Option<Arc<Index<HostPattern, PathClaims<O>>>>,
}

impl<O> Default for Hosts<O> {
    fn default() -> Self {
        Self { any: None, named: None }
    }
}

impl<O: Clone + Eq> PathClaims<O> {
    fn tie(&self, rule: &Match, priority: i32, owner: &O) -> Option<O> {
        let new = rule.condition.as_deref();
        match self {
            Self::One(other) => (other != owner && priority == 0 && ties(new, None)).then(|| other.clone()),
            Self::Many(all) => {
                let mut others =
                    all.iter().filter(|claim| claim.owner != *owner && claim.priority == priority);
                let tied = others.find(|claim| ties(new, claim.condition.as_deref()));
                tied.map(|claim| claim.owner.clone())
            }
        }
    }

    fn claims(&self) -> Vec<Claim<O>> {
        match self {
            Self::One(owner) => vec![Claim { owner: owner.clone(), priority: 0, condition: None }],
            Self::Many(all) => all.to_vec(),
        }
    }

    fn of(claims: Vec<Claim<O>>) -> Option<Self> {
        match claims.as_slice() {
            [] => None,
            [Claim { owner, priority: 0, condition: None }] => Some(Self::One(owner.clone())),
            _ => Some(Self::Many(claims.into())),
        }
    }

    fn with(held: Option<&Self>, claim: &Claim<O>) -> Option<Self> {
        let mut all = held.map_or_else(Vec::new, Self::claims);
        all.push(claim.clone());
        Self::of(all)
    }

    fn without(&self, owner: &O) -> Option<Self> {
        let mut all = self.claims();
        all.retain(|claim| claim.owner != *owner);
        Self::of(all)
    }
}

impl<O: Clone + Eq> Hosts<O> {
    fn tie(&self, rule: &Match, priority: i32, owner: &O) -> Option<O> {
        if rule.hosts.is_empty() {
            return self.any.as_ref()?.tie(rule, priority, owner);
        }
        let named = self.named.as_ref()?;
        rule.hosts.iter().find_map(|host| named.get(host)?.tie(rule, priority, owner))
    }

    fn add(&mut self, hosts: &[HostPattern], claim: &Claim<O>) {
        if hosts.is_empty() {
            self.any = PathClaims::with(self.any.as_ref(), claim);
            return;
        }
        let named = Arc::make_mut(self.named.get_or_insert_default());
        for host in hosts {
            if let Some(held) = PathClaims::with(named.get(host), claim) {
                named.insert(host.clone(), held);
            }
        }
    }

    fn take(&mut self, hosts: &[HostPattern], owner: &O) {
        if hosts.is_empty() {
            self.any = self.any.take().and_then(|held| held.without(owner));
            return;
        }
        let Some(named) = &mut self.named else { return };
        let named = Arc::make_mut(named);
        for host in hosts {
            match named.get(host).map(|held| held.without(owner)) {
                Some(Some(held)) => drop(named.insert(host.clone(), held)),
                Some(None) => drop(named.remove(host)),
                None => {}
            }
        }
        if named.is_empty() {
            self.named = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::condition::{Use, compile};

    fn pattern(text: &str) -> HostPattern {
        match text.strip_prefix('*') {
            Some(suffix) => HostPattern::Suffix(suffix.into()),
            None => HostPattern::Exact(text.into()),
        }
    }

    #[test]
    fn coverage() {
        let cases = [
            ("a.example.com", "a.example.com", true),
            ("a.example.com", "b.example.com", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "b.a.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "*.a.example.com", true),
            ("*.example.com", "*.example.org", false),
            ("*.example.com", "*.badexample.com", false),
        ];
        for (a, b, expected) in cases {
            assert_eq!(pattern(a).overlaps(&pattern(b)), expected, "{a} {b}");
            assert_eq!(pattern(b).overlaps(&pattern(a)), expected, "{b} {a}");
        }
    }

    fn hosts() -> impl Strategy<Value = Vec<HostPattern>> {
        proptest::collection::btree_set("(\\*\\.)?([ab]\\.){0,1}[ab]", 0..3)
            .prop_map(|texts| texts.iter().map(|text| pattern(text)).collect())
    }

    fn condition() -> impl Strategy<Value = Option<Arc<Condition>>> {
        proptest::sample::select(vec!["", "GET", "POST", "h"]).prop_map(|text| {
            let written = match text {
                "" => return None,
                "h" => serde_json::json!({"headers": {"h": "1"}}),
                method => serde_json::json!({"methods": [method]}),
            };
            let written = serde_json::from_value(written).expect("can be read");
            Some(Arc::new(compile(&written, "", Use::Route).expect("is good")))
        })
    }

    proptest! {
        #[test]
        fn claims_agree_with_comparing_all(
            wishes in proptest::collection::vec(
                (hosts(), any::<bool>(), condition(), 0i32..2, any::<bool>()), 1..20,
            ),
        ) {
            let mut claims = Claims::default();
            let mut held: Vec<(Match, i32, usize)> = Vec::new();
            let meets = |a: &Match, b: &Match| {
                a.path == b.path
                    && (a.hosts.is_empty() && b.hosts.is_empty() || a.hosts.iter().any(|host| b.hosts.contains(host)))
            };
            for (n, (hosts, root, condition, priority, release)) in wishes.into_iter().enumerate() {
                let path = if root { PathPattern::HostOnly } else { PathPattern::Prefix("/".into()) };
                let rule = Match { hosts, path, condition };
                let tied: Vec<usize> = held
                    .iter()
                    .filter(|(other, p, _)| {
                        let (a, b) = (rule.condition.as_deref(), other.condition.as_deref());
                        meets(&rule, other) && priority == *p && ties(a, b)
                    })
                    .map(|(_, _, owner)| *owner)
                    .collect();
                match claims.claim(std::slice::from_ref(&rule), priority, &n) {
                    Ok(()) => {
                        prop_assert!(tied.is_empty());
                        held.push((rule, priority, n));
                    }
                    Err(tie) => prop_assert!(tied.contains(&tie.owner)),
                }
                if release && !held.is_empty() {
                    let (rule, _, owner) = held.swap_remove(0);
                    claims.release(std::slice::from_ref(&rule), &owner);
                }
            }
            for (rule, _, owner) in held {
                claims.release(std::slice::from_ref(&rule), &owner);
            }
            prop_assert!(claims.paths.is_empty());
        }
    }
}
