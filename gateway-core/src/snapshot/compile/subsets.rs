//! Which targets a proxy and its plugins choose by tags.

use crate::balance::{Subset, Targets};
use crate::config::model::{Proxy, TargetRules};
use crate::config::problem::{Problem, Problems};
use crate::plugin::Chain;
use crate::snapshot::Snapshot;

/// What is wrong with the subsets that plugins choose: no target has their tags.
pub(super) fn problems(proxy: &Proxy, chain: &Chain, next: &Snapshot) -> Vec<Problem> {
    let mut problems = Problems::default();
    for (upstream, subset) in chain.subsets() {
        let id = match upstream {
            Some(id) => &**id,
            None => proxy.backend.upstream.id.as_str(),
        };
        let has_one = |subset: &Subset| {
            let has_tags = |target: &TargetRules| target.has_tags(subset.tags());
            // What the servers of a service have in common is written at the service, found or not.
            match (next.discovered.get(id), next.upstreams.get(id)) {
                _ if upstream.is_none() && !proxy.backend.is_named => {
                    proxy.backend.upstream.targets.iter().any(|target| has_tags(target))
                }
                (Some(written), _) => written.targets.iter().any(|target| has_tags(target)),
                (None, Some(targets)) => targets.list().iter().any(|target| has_tags(&target.rules)),
                // Said already.
                (None, None) => true,
            }
        };
        let mut of = Some(subset);
        while let Some(subset) = of {
            if !has_one(subset) {
                let tags: Vec<_> =
                    subset.tags().iter().map(|(name, value)| format!("{name}: {value}")).collect();
                let what =
                    format!("a plugin chooses `{{{}}}`, tags that no target of `{id}` has", tags.join(", "));
                problems.add(format!("proxies.{}", proxy.id), what).remedy =
                    Some("write them under `tags` of a target".to_owned());
            }
            of = subset.stand_in();
        }
    }
    problems.0
}

/// Which of the targets have the proxy's tags.
pub(super) fn used(proxy: &Proxy, targets: &Targets) -> Option<Box<[bool]>> {
    let tags = &proxy.backend.tags;
    if tags.is_empty() {
        return None;
    }
    Some(targets.list().iter().map(|target| target.rules.has_tags(tags)).collect())
}
