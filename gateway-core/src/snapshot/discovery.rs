//! Service discovery by DNS SRV records (RFC 2782): the resolved records, and the targets that they become.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::config::model::{TargetRules, Upstream, service_name};

/// Records of one name that are used; further ones are ignored.
pub const MAX_SERVICES: usize = 1000;

/// An SRV record: one server of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service {
    /// Servers with a lower one are preferred.
    pub priority: u16,
    /// The server's host name.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
    /// Its share of the traffic among servers of the same priority.
    pub weight: u16,
}

/// The latest answer for each service name, sorted by priority.
pub type Services = HashMap<Arc<str>, Arc<[Service]>>;

/// The service names among an upstream's targets.
pub fn names(upstream: &Upstream) -> impl Iterator<Item = &str> {
    upstream.targets.iter().filter_map(|target| service_name(&target.host))
}

/// The upstream with each service name replaced by its servers; `None` if it has no service name.
///
/// The priorities of the records are mapped, in their order, to target priorities from the configured target's on. A name
/// that is not resolved yet adds no target.
pub fn expanded(upstream: &Upstream, known: &Services) -> Option<Upstream> {
    names(upstream).next()?;
    let mut targets: Vec<Arc<TargetRules>> = Vec::new();
    let mut seen: HashSet<(Arc<str>, u16)> = HashSet::new();
    // A configured target takes precedence over the same server in a record.
    let own = upstream.targets.iter().filter(|target| service_name(&target.host).is_none());
    seen.extend(own.map(|target| (target.host.clone(), target.port)));
    for target in &upstream.targets {
        let Some(name) = service_name(&target.host) else {
            targets.push(target.clone());
            continue;
        };
        let services = known.get(name).map(|services| &services[..]).unwrap_or_default();
        for (rank, tier) in services.chunk_by(|one, next| one.priority == next.priority).enumerate() {
            let rank = u8::try_from(rank).unwrap_or(u8::MAX);
            let scale = scale(tier);
            for service in tier {
                if !seen.insert((service.host.clone(), service.port)) {
                    continue;
                }
                targets.push(Arc::new(TargetRules {
                    host: service.host.clone(),
                    port: service.port,
                    weight: service.weight.saturating_mul(scale).max(1).saturating_mul(target.weight),
                    priority: target.priority.saturating_add(rank),
                    ..TargetRules::clone(target)
                }));
            }
        }
    }
    Some(Upstream { targets, ..upstream.clone() })
}

/// A factor for weights above 0 where other records have weight 0: those should rarely be chosen (RFC 2782), and the weight of a
/// target is at least 1.
fn scale(tier: &[Service]) -> u16 {
    const SELDOM: u16 = 100;
    let most = tier.iter().map(|service| service.weight).max().unwrap_or(0);
    let is_mixed = most > 0 && tier.iter().any(|service| service.weight == 0);
    if is_mixed { SELDOM.min(u16::MAX / most) } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(priority: u16, host: &str, weight: u16) -> Service {
        Service { priority, host: host.into(), port: 80, weight }
    }

    #[test]
    fn records_become_targets() {
        let mut rules = TargetRules::new("srv:_http._tcp.shop.test".into(), 0);
        rules.priority = 3;
        rules.weight = 2;
        let fixed = Arc::new(TargetRules::new("fixed.test".into(), 1));
        let upstream = Upstream::new("u".parse().unwrap(), vec![Arc::new(rules), fixed]);
        assert_eq!(names(&upstream).collect::<Vec<_>>(), ["_http._tcp.shop.test"]);
        let found = |known: &Services| {
            let targets = expanded(&upstream, known).unwrap().targets;
            targets
                .iter()
                .map(|it| (it.host.to_string(), it.port, it.weight, it.priority))
                .collect::<Vec<_>>()
        };
        let fixed = ("fixed.test".to_owned(), 1, 1, 0);
        assert_eq!(found(&Services::new()), std::slice::from_ref(&fixed));
        let services = [service(10, "a", 0), service(10, "b", 5), service(40, "a", 1), service(40, "c", 1)];
        let known = Services::from([("_http._tcp.shop.test".into(), services.into())]);
        assert_eq!(
            found(&known),
            [("a".into(), 80, 2, 3), ("b".into(), 80, 1000, 3), ("c".into(), 80, 2, 4), fixed]
        );
        let plain = Upstream::new("u".parse().unwrap(), vec![Arc::new(TargetRules::new("x".into(), 1))]);
        assert!(expanded(&plain, &known).is_none());
    }

    #[test]
    fn configured_targets_take_precedence_over_records() {
        let named = Arc::new(TargetRules::new("srv:_http._tcp.shop.test".into(), 0));
        let mut own = TargetRules::new("a".into(), 80);
        own.priority = 7;
        let upstream = Upstream::new("u".parse().unwrap(), vec![named, Arc::new(own)]);
        let services = [service(1, "a", 1), service(1, "b", 1)];
        let known = Services::from([("_http._tcp.shop.test".into(), services.into())]);
        let found = expanded(&upstream, &known).unwrap().targets;
        let shown: Vec<_> = found.iter().map(|it| (&*it.host, it.priority)).collect();
        assert_eq!(shown, [("b", 0), ("a", 7)]);
    }
}
