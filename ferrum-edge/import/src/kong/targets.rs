//! Targets: hosts, and services that are found by DNS SRV records.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::Kong;
use crate::draft::target;

/// Whether a host is found by SRV records: a name as only they have it, or without a port to go to.
pub(super) fn is_srv(host: &str, port: Option<u64>) -> bool {
    (host.starts_with('_') && host.contains("._")) || (port == Some(0) && host.parse::<IpAddr>().is_err())
}

impl Kong {
    /// A target. Kong asks for SRV records first, and takes their ports: a name that only they can have, or a port of 0,
    /// is a service.
    pub(super) fn target(&mut self, place: &str, host: &str, port: Option<u16>) -> Value {
        if is_srv(host, port.map(u64::from)) {
            return target(&format!("srv:{host}"), 0);
        }
        if port.is_none() && host.parse::<IpAddr>().is_err() {
            let why = "Kong asks for SRV records of the name first; here it is a host on port 8000";
            self.out.partial(self.out.here, place, why, "write `srv:` before the name if it has them");
        }
        target(host, port.unwrap_or(8000))
    }

    /// An upstream of the servers that SRV records name; one for each name.
    pub(super) fn service_upstream(&mut self, host: &str) -> String {
        let id = self.out.id("upstream", host);
        self.out.upstreams.push(json!({ "id": id, "targets": [target(&format!("srv:{host}"), 0)] }));
        self.upstreams.insert(host.to_owned(), id.clone());
        id
    }
}
