//! The ports of a configuration that are in use, and the processes that have them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::{fs, io};

use gateway_core::config::model::{Model, Settings, Traffic};
use gateway_protocols::downstream::bind;

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

/// The ports of a configuration that this process can't listen on alone. Ephemeral ports (0) are not tried.
pub(super) fn unusable(model: &Model) -> Vec<UsedPort> {
    let tried =
        listen_addresses(model).into_iter().filter(|(address, ..)| address.port() != 0).take(MAX_PORTS);
    let used = tried.filter_map(|(address, is_datagram, setting)| {
        let error = bind::check_unused(address, is_datagram).err()?;
        let is_used = error.kind() == io::ErrorKind::AddrInUse;
        let owner = if is_used { owner(address.port(), is_datagram) } else { None };
        Some(UsedPort { setting, address, error, owner })
    });
    used.collect()
}

/// The addresses that the gateway would listen on, whether each is for datagrams, and the setting that names it.
fn listen_addresses(model: &Model) -> BTreeSet<(SocketAddr, bool, String)> {
    let settings: &Settings = &model.settings;
    let named = |name: &str, is_datagram: bool| {
        let name = format!("gateway.{name}");
        move |address| (address, is_datagram, name.clone())
    };
    let http = settings.http_addresses().map(named("http", false));
    let https = settings.https_addresses().map(named("https", false));
    let http3 = settings.http3_addresses().map(named("https", true));
    let admin = settings.admin.into_iter().map(named("admin", false));
    let mut tried: BTreeSet<_> = http.chain(https).chain(http3).chain(admin).collect();
    for proxy in &model.proxies {
        let Traffic::Stream(rules) = &proxy.traffic else { continue };
        let (first, last) = rules.listen_ports;
        for port in (first..=last).take(MAX_PORTS.saturating_sub(tried.len())) {
            let address = SocketAddr::new(settings.stream_address, port);
            tried.insert((address, rules.is_datagram, format!("proxies.{}", proxy.id.as_str())));
        }
    }
    tried
}

/// The process that has a port: found by the socket's inode, which `/proc` shows for processes of the same user.
fn owner(port: u16, is_datagram: bool) -> Option<(u32, String)> {
    let tables: [&str; 2] = if is_datagram { ["udp", "udp6"] } else { ["tcp", "tcp6"] };
    let inodes: BTreeSet<String> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(format!("/proc/net/{table}")).ok())
        .flat_map(|table| inodes(&table, port, is_datagram))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let id = ids.find(|id| {
        let descriptors = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
        descriptors
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|link| link.to_str().is_some_and(|link| inodes.contains(link)))
    })?;
    let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    Some((id, name.trim_end().to_owned()))
}

/// The inodes of the sockets on a port in a table of `/proc/net`, of TCP only listening ones (proc_net_tcp, state `0A`).
fn inodes(table: &str, port: u16, is_datagram: bool) -> Vec<String> {
    let port = format!(":{port:04X}");
    let of = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (local, state) = (fields.nth(1)?, fields.nth(1)?);
        let inode = fields.nth(5)?;
        (local.ends_with(&port) && (is_datagram || state == "0A")).then(|| inode.to_owned())
    };
    table.lines().skip(1).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_process_that_listens() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(owner(port, false).map(|(id, _)| id), Some(std::process::id()));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(owner(port, true).map(|(id, _)| id), Some(std::process::id()));
    }

    #[test]
    fn connections_are_not_listeners() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100 0 0 10 0\n\
            1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 78 1 0 100 0 0 10 0\n";
        assert_eq!(inodes(table, 8080, false), ["77"]);
        assert_eq!(inodes(table, 8081, false), Vec::<String>::new());
    }
}
