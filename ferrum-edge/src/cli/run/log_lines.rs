//! What `run` logs about the gateway as a whole.

use std::net::SocketAddr;

use crate::app::{Addresses, Gateway};
use crate::source::file::Source;

/// The addresses, once the gateway serves.
pub(super) fn say_started(gateway: &Gateway, source: &Source, admin: Option<SocketAddr>) {
    let Addresses { all_http, all_https, .. } = gateway.addresses();
    let shown = |addresses: &[SocketAddr]| match addresses {
        [] => "off".to_owned(),
        all => all.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", "),
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        spec = %source.spec,
        database = gateway.reconciler().map(|reconciler| reconciler.store().location().to_string()),
        http = shown(&all_http),
        https = shown(&all_https),
        admin = shown(admin.as_slice()),
        proxies = gateway.snapshot().by_id.len(),
        "serving"
    );
    say_quarantined(gateway);
}

/// Each closed proxy, with what closed it.
pub(super) fn say_quarantined(gateway: &Gateway) {
    for (id, route) in &gateway.snapshot().quarantined {
        if let Some(problems) = &route.quarantine {
            for problem in &problems.0 {
                tracing::error!(proxy = %id, %problem, "this proxy is closed and answers 503");
            }
        }
    }
}

/// One line a problem, so that every one can be found.
pub(super) fn say_refused(problems: &str) {
    for problem in problems.lines() {
        tracing::error!(problem, "the new configuration is refused");
    }
    tracing::error!("the previous configuration stays in use");
}
