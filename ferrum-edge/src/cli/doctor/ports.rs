//! Ports that the gateway is to listen on.

use std::io;

use gateway_core::config::model::Model;

use super::Findings;
use crate::cli::used_ports::{self, UsedPort};

/// Checks that the ports of a configuration are free, or that a gateway has them.
pub(super) fn examine(findings: &mut Findings, model: &Model) {
    let used = used_ports::unusable(model);
    if used.is_empty() {
        findings.ok("port", "", "all ports of the configuration are free");
    }
    for UsedPort { setting, address, error, owner } in used {
        let about = format!("{setting} {address}");
        match owner {
            Some((id, name)) if name == "ferrum-edge" => {
                findings.ok("port", about, format!("a gateway listens there, process {id}"));
            }
            Some((id, name)) => {
                let remedy = "stop that process, or choose another port";
                findings.error("port", about, format!("process {id} ({name}) has it"), remedy);
            }
            None if error.kind() == io::ErrorKind::AddrInUse => {
                let message = "another process has it, which this user can't see";
                findings.warning("port", about, message, "find it with `ss -tulpn` as root");
            }
            None if error.kind() == io::ErrorKind::PermissionDenied => {
                let remedy =
                    "run the gateway as a service with CAP_NET_BIND_SERVICE, or choose a port above 1023";
                findings.warning("port", about, error.to_string(), remedy);
            }
            None => {
                findings.error("port", about, error.to_string(), "choose an address of this machine");
            }
        }
    }
}
