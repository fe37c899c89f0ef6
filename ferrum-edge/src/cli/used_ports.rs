//! The ports of a configuration that are in use, and the processes that have them.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;

use gateway_core::config::model::{Model, Settings, Traffic, Transport};
use gateway_protocols::downstream::bind;

use crate::engine::port_holder;

/// Maximum number of ports that are tried.
const MAX_PORTS: usize = 1000;

/// A port that is in use.
#[derive(Debug)]
pub(super) struct UsedPort {
    /// The setting that names it.
    pub(super) setting: String,
    pub(super) address: SocketAddr,
    pub(super) error: io::Error,
    /// The process id and the name of a process that has the port, if they can be found out.
    pub(super) owner: Option<(u32, String)>,
}

/// A port that another process listens on.
#[derive(Debug, thiserror::Error)]
#[error(
    "{setting}: {owner} listens on {address}, and the pid file names no gateway to replace; stop it, name its pid file, \
     or choose another port"
)]
pub(super) struct PortTaken {
    setting: String,
    owner: String,
    address: SocketAddr,
}

/// Rejects ports that another process has. Without this check, two gateways with different pid files would share them, and each
/// would get a part of the connections.
pub(super) fn refuse(model: &Model) -> Result<(), PortTaken> {
    let used = unusable(model).into_iter().find(|port| port.error.kind() == io::ErrorKind::AddrInUse);
    let Some(UsedPort { setting, address, owner, .. }) = used else { return Ok(()) };
    let owner =
        owner.map_or_else(|| "another process".to_owned(), |(id, name)| format!("process {id} ({name})"));
    Err(PortTaken { setting, owner, address })
}

/// The ports of a configuration that this process can't listen on alone. Ephemeral ports (0) are not tried.
pub(super) fn unusable(model: &Model) -> Vec<UsedPort> {
    let tried =
        listen_addresses(model).into_iter().filter(|(address, ..)| address.port() != 0).take(MAX_PORTS);
    let used = tried.filter_map(|(address, transport, setting)| {
        let error = bind::check_unused(address, transport).err()?;
        let is_used = error.kind() == io::ErrorKind::AddrInUse;
        let owner = if is_used { port_holder::find(address.port(), transport) } else { None };
        Some(UsedPort { setting, address, error, owner })
    });
    used.collect()
}

/// The addresses that the gateway would listen on, the transport of each, and the setting that names it.
fn listen_addresses(model: &Model) -> BTreeSet<(SocketAddr, Transport, String)> {
    let settings: &Settings = &model.settings;
    let named = |name: &str, transport: Transport| {
        let name = format!("gateway.{name}");
        move |address| (address, transport, name.clone())
    };
    let http = settings.http_addresses().map(named("http", Transport::Tcp));
    let https = settings.https_addresses().map(named("https", Transport::Tcp));
    let http3 = settings.http3_addresses().map(named("https", Transport::Udp));
    let admin = settings.admin.into_iter().map(named("admin", Transport::Tcp));
    let mut tried: BTreeSet<_> = http.chain(https).chain(http3).chain(admin).collect();
    for proxy in &model.proxies {
        let Traffic::Stream(rules) = &proxy.traffic else { continue };
        let (first, last) = rules.listen_ports;
        for port in (first..=last).take(MAX_PORTS.saturating_sub(tried.len())) {
            let address = SocketAddr::new(settings.stream_address, port);
            let transport = if rules.is_datagram { Transport::Udp } else { Transport::Tcp };
            tried.insert((address, transport, format!("proxies.{}", proxy.id.as_str())));
        }
    }
    tried
}
