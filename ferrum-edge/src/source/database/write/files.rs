//! Files that written objects name are read before the write is accepted.

use std::collections::HashMap;

use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::changes::Changes;
use gateway_core::config::model::Proxy;
use gateway_core::config::problem::Problems;

use super::{ObjectOutcome, Plan};
use crate::control::certificate_files;

impl Plan {
    /// What is wrong with the files for TLS towards targets that the proxies and upstreams put here name.
    pub(super) fn unusable(&self, changes: &Changes) -> Problems {
        let put = self.done.iter().zip(&self.places).filter(|((done, _), _)| *done != ObjectOutcome::Deleted);
        let key = |kind: ObjectKind, id: &str| (kind, id.to_owned());
        let places: HashMap<_, _> = put.map(|((_, op), at)| (key(op.key().0, op.key().1), at)).collect();
        let place = |proxy: &Proxy| {
            let upstream = places.get(&key(ObjectKind::Upstreams, proxy.backend.upstream.id.as_str()));
            let upstream = upstream.filter(|_| proxy.backend.is_named);
            upstream.or_else(|| places.get(&key(ObjectKind::Proxies, proxy.id.as_str())))
        };
        let concerned = changes.proxies.put.iter().map(|proxy| &**proxy).filter(|it| place(it).is_some());
        let mut problems = Problems::default();
        for (proxy, error) in certificate_files::unusable(concerned) {
            problems.add(place(proxy).map_or("", |at| at.as_str()), error);
        }
        problems
    }
}
