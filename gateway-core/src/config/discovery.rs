//! Targets that are found by DNS SRV records (RFC 2782): what was found, and what an upstream is with it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::model::{TargetRules, Upstream, service_name};

/// Servers that one name may have; more are left out.
pub const MAX_SERVICES: usize = 1000;

/// One server of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service {
    /// Lower ones are asked first.
    pub priority: u16,
    /// The server's name.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
    /// Its share among those of its priority.
    pub weight: u16,
}

/// What names of services stand for now, each in the order of priorities.
pub type Services = HashMap<Arc<str>, Arc<[Service]>>;

/// The names that an upstream's targets are found by.
pub fn names(upstream: &Upstream) -> impl Iterator<Item = &str> {
    upstream.targets.iter().filter_map(|target| service_name(&target.host))
}

/// The upstream with servers in the place of the names that they are found by; `None` where it has no such name.
///
/// Priorities of records become those of targets in their order, from the configured target's on. A name of which nothing
/// is known yet stands for no target.
pub fn expanded(upstream: &Upstream, known: &Services) -> Option<Upstream> {
    names(upstream).next()?;
    let mut targets: Vec<Arc<TargetRules>> = Vec::new();
    let mut seen: HashSet<(Arc<str>, u16)> = HashSet::new();
    // A target that is configured by itself goes before the same one found.
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

/// Where some weights are 0 and others not, the latter count so many times as much: those of 0 are to be chosen very
/// seldom (RFC 2782), and no target's weight is less than 1.
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
    fn a_target_of_its_own_goes_before_the_same_one_found() {
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
