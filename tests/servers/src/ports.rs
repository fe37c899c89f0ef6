//! Ports for tests that have to name one before it is bound.

use std::collections::HashSet;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the kernel gives away by itself, so that no client's socket takes one in between.
const FIRST: u16 = 10_240;
/// Each process has a window of its own, while there are not more processes than windows. It has room for all ports of a run: one given
/// twice would be taken from a server that a test has stopped to start it again.
const WINDOW: u16 = 3_100;
const WINDOWS: u16 = 7;
/// The longest range that a test asks for.
const LONGEST: u16 = 40;

/// A port on which nobody listens; no other test of this process gets it soon.
pub fn free_port() -> u16 {
    free_ports(1)
}

/// The first of so many ports side by side, as [`free_port`].
///
/// # Panics
/// When there are none, or `count` is beyond what a window can have at its end.
pub fn free_ports(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    assert!(count <= LONGEST, "a range of {count} ports would reach into another window");
    let window = window();
    for _ in 0..WINDOW {
        let first = FIRST + window * WINDOW + NEXT.fetch_add(count, Ordering::Relaxed) % (WINDOW - LONGEST);
        let used = used_ports();
        if (first..first + count).all(|port| !used.contains(&port)) {
            return first;
        }
    }
    panic!("no port is free")
}

/// The window of this process. Its name is a socket that ends with the process: numbers of processes come round to the same window.
fn window() -> u16 {
    static CLAIMED: OnceLock<(u16, Option<UnixListener>)> = OnceLock::new();
    let claim = || {
        let first = u16::try_from(std::process::id() % u32::from(WINDOWS)).unwrap_or(0);
        let all = (first..WINDOWS).chain(0..first);
        let claimed = all.map(|window| {
            let name = SocketAddr::from_abstract_name(format!("ferrum-edge-test-ports-{window}"))?;
            Ok::<_, io::Error>((window, Some(UnixListener::bind_addr(&name)?)))
        });
        claimed.flatten().next().unwrap_or((first, None))
    };
    CLAIMED.get_or_init(claim).0
}

/// The ports on which somebody listens or takes datagrams. They are read, not tried: a process that another test starts at this moment has
/// copies of this one's sockets until its program runs, and would keep a port that was tried from whoever is to have it.
fn used_ports() -> HashSet<u16> {
    const LISTENS: &str = "0A";
    let mut used = HashSet::new();
    for (table, is_tcp) in [("tcp", true), ("tcp6", true), ("udp", false), ("udp6", false)] {
        let text = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let mut words = line.split_whitespace().skip(1);
            let (Some(local), Some(state)) = (words.next(), words.nth(1)) else { continue };
            let port = local.rsplit(':').next().and_then(|port| u16::from_str_radix(port, 16).ok());
            used.extend(port.filter(|_| !is_tcp || state == LISTENS));
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn ports_in_use_are_seen() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("[::1]:0").unwrap();
        let used = used_ports();
        assert!(used.contains(&tcp.local_addr().unwrap().port()));
        assert!(used.contains(&udp.local_addr().unwrap().port()));
    }

    #[test]
    fn ranges_do_not_overlap() {
        let (three, one) = (free_ports(3), free_port());
        assert!(!(three..three + 3).contains(&one), "{one} in the range from {three}");
    }
}
