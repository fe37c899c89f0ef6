//! Which process has a port.

use std::collections::BTreeSet;
use std::fs;

use gateway_core::config::model::Transport;

/// The id and the name of a process that has a port: found by the socket's inode, which `/proc` shows for processes of the same
/// user.
pub(crate) fn find(port: u16, transport: Transport) -> Option<(u32, String)> {
    let tables: [&str; 2] = match transport {
        Transport::Tcp => ["tcp", "tcp6"],
        Transport::Udp => ["udp", "udp6"],
    };
    let inodes: BTreeSet<String> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(format!("/proc/net/{table}")).ok())
        .flat_map(|table| inodes(&table, port, transport))
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
fn inodes(table: &str, port: u16, transport: Transport) -> Vec<String> {
    let port = format!(":{port:04X}");
    let of = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (local, state) = (fields.nth(1)?, fields.nth(1)?);
        let inode = fields.nth(5)?;
        (local.ends_with(&port) && (transport == Transport::Udp || state == "0A")).then(|| inode.to_owned())
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
        assert_eq!(find(port, Transport::Tcp).map(|(id, _)| id), Some(std::process::id()));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(find(port, Transport::Udp).map(|(id, _)| id), Some(std::process::id()));
    }

    #[test]
    fn connections_are_not_listeners() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100 0 0 10 0\n\
            1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 78 1 0 100 0 0 10 0\n";
        assert_eq!(inodes(table, 8080, Transport::Tcp), ["77"]);
        assert_eq!(inodes(table, 8081, Transport::Tcp), Vec::<String>::new());
    }
}
