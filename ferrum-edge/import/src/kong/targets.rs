//! Targets: hosts, and services that are found by DNS SRV records.

use std::net::IpAddr;

use super::Kong;
use crate::draft::{Target, Upstream, draft};

/// Whether a host is found by SRV records: a name as only they have it, or without a port to go to.
pub(super) fn is_srv(host: &str, port: Option<u64>) -> bool {
    (host.starts_with('_') && host.contains("._")) || (port == Some(0) && host.parse::<IpAddr>().is_err())
}

impl Kong {
    /// A target. Kong asks for SRV records first, and takes their ports: a name that only they can have, or a port of 0,
    /// is a service.
    pub(super) fn target(&mut self, place: &str, host: &str, port: Option<u16>) -> Target {
        if is_srv(host, port.map(u64::from)) {
            return Target::new(&format!("srv:{host}"), 0);
        }
        if port.is_none() && host.parse::<IpAddr>().is_err() {
            let why = "Kong asks for SRV records of the name first; here it is a host on port 8000";
            self.out.partial(self.out.here, place, why, "write `srv:` before the name if it has them");
        }
        Target::new(host, port.unwrap_or(8000))
    }

    /// An upstream of the servers that SRV records name; one for each name.
    pub(super) fn service_upstream(&mut self, host: &str) -> String {
        let id = self.out.id("upstream", host);
        let targets = [Target::new(&format!("srv:{host}"), 0)];
        self.out.upstreams.push(draft!(Upstream { id: &id, targets }).into());
        self.upstreams.insert(host.to_owned(), id.clone());
        id
    }
}
