//! Whether this machine can make sockets to targets as proxies specify.
//!
//! Machines differ: an address, an interface or a capability is there on one gateway and not on the next. Whoever writes a setting to
//! the gateway that has to apply it learns that it can't. A gateway that follows others' changes keeps following them: only
//! connections of such a proxy fail, with the setting in their record, and they succeed once the machine has what it lacks.

use std::sync::Arc;

use gateway_core::snapshot::{Route, Snapshot};
use gateway_protocols::outgoing;

use super::error::StartError;
use super::listeners::{self, Ports};

/// Rejects proxies whose socket settings this machine can't apply, but for those that have the same settings in `previous`.
///
/// # Errors
/// The first such proxy, with its setting and the kernel's error.
pub(crate) fn check(routes: &[Arc<Route>], previous: Option<&Snapshot>) -> Result<(), StartError> {
    new_settings(routes, previous).try_for_each(applicable)
}

/// Logs what [`check`] would reject.
pub(super) fn report(routes: &[Arc<Route>], previous: Option<&Snapshot>) {
    for error in new_settings(routes, previous).filter_map(|route| applicable(route).err()) {
        tracing::error!(%error, "connections to targets fail until this machine can apply the setting");
    }
}

/// The same of a gateway that starts; one that opens no ports makes no sockets.
pub(crate) fn report_at_start(routes: &[Arc<Route>], ports: Ports) {
    if ports != Ports::Closed {
        report(routes, None);
    }
}

/// The routes whose sockets to targets are made otherwise than before.
fn new_settings<'r>(
    routes: &'r [Arc<Route>],
    previous: Option<&'r Snapshot>,
) -> impl Iterator<Item = &'r Route> {
    let is_new = move |route: &&Route| {
        let before = previous.and_then(|previous| previous.by_id.get(&route.proxy.id));
        before.is_none_or(|before| {
            let (old, new) = (&before.proxy.backend, &route.proxy.backend);
            old.sockets() != new.sockets() || old.pool.congestion != new.pool.congestion
        })
    };
    routes.iter().map(|route| &**route).filter(is_new)
}

fn applicable(route: &Route) -> Result<(), StartError> {
    let proxy = &route.proxy;
    if let Some(congestion) = &proxy.backend.pool.congestion {
        listeners::known(congestion, &format!("proxy `{}`: backend_congestion_control", proxy.id))?;
    }
    match proxy.backend.sockets() {
        Some(sockets) => outgoing::supports(sockets).map_err(|(setting, source)| StartError::Sockets {
            proxy: proxy.id.to_string(),
            setting,
            source,
        }),
        None => Ok(()),
    }
}
