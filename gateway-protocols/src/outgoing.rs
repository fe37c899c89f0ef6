//! Sockets to targets: from which address, through which interface, and by which kind of TCP.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use gateway_core::config::model::SocketRules;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};

/// Connects to a target by TCP. `client` is where a transparent connection comes from.
///
/// # Errors
/// When the kernel refuses, or source and target are of different address families.
pub(crate) async fn connect(
    address: SocketAddr,
    rules: Option<&SocketRules>,
    client: Option<IpAddr>,
) -> io::Result<TcpStream> {
    let Some(rules) = rules else { return TcpStream::connect(address).await };
    let protocol = if rules.mptcp { Protocol::MPTCP } else { Protocol::TCP };
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(protocol));
    let socket = if rules.mptcp { socket.map_err(with_setting("backend_mptcp"))? } else { socket? };
    bind(&socket, address, rules, client)?;
    if rules.user_timeout.is_some() {
        let set = socket.set_tcp_user_timeout(rules.user_timeout);
        set.map_err(with_setting("backend_tcp_user_timeout"))?;
    }
    let socket = TcpSocket::from_std_stream(std::net::TcpStream::from(OwnedFd::from(socket)));
    socket.connect(address).await
}

/// A socket that sends datagrams to a target and receives only its answers.
///
/// # Errors
/// When the kernel refuses, or source and target are of different address families.
pub(crate) fn datagrams(
    address: SocketAddr,
    rules: Option<&SocketRules>,
    client: IpAddr,
) -> io::Result<UdpSocket> {
    let kind = Type::DGRAM.nonblocking();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))?;
    if let Some(rules) = rules {
        bind(&socket, address, rules, Some(client))?;
    }
    socket.connect(&SockAddr::from(address))?;
    Ok(socket.into())
}

fn bind(socket: &Socket, target: SocketAddr, rules: &SocketRules, client: Option<IpAddr>) -> io::Result<()> {
    if let Some(interface) = &rules.interface {
        socket.bind_device(Some(interface.as_bytes())).map_err(with_setting("backend_interface"))?;
    }
    let client = client.filter(|_| rules.transparent).map(|client| client.to_canonical());
    let Some(source) = client.or(rules.source) else { return Ok(()) };
    if source.is_ipv4() != target.is_ipv4() {
        let message = format!("{source} is of another address family than {target}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let setting = if client.is_some() { "backend_transparent" } else { "backend_source_address" };
    if rules.transparent {
        set_transparent(socket, source.is_ipv4()).map_err(with_setting("backend_transparent"))?;
    }
    socket.bind(&SockAddr::from(SocketAddr::new(source, 0))).map_err(with_setting(setting))
}

/// The kernel's error with the setting that it is about: a machine may lose an address or an interface at any time.
fn with_setting(setting: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{setting}: {error}"))
}

fn set_transparent(socket: &Socket, is_v4: bool) -> io::Result<()> {
    if is_v4 { socket.set_ip_transparent_v4(true) } else { socket.set_ip_transparent_v6(true) }
}

/// Whether this machine can do what the rules specify.
///
/// # Errors
/// The first setting that it can't do, and the kernel's error.
pub fn supports(rules: &SocketRules) -> Result<(), (&'static str, io::Error)> {
    let of = |setting| move |source| (setting, source);
    let is_v4 = rules.source.is_none_or(|source| source.is_ipv4());
    let domain = if is_v4 { Domain::IPV4 } else { Domain::IPV6 };
    if rules.mptcp {
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP)).map_err(of("backend_mptcp"))?;
        // Not every kernel has it for Multipath TCP.
        if rules.user_timeout.is_some() {
            socket.set_tcp_user_timeout(rules.user_timeout).map_err(of("backend_tcp_user_timeout"))?;
        }
    }
    let scratch = || Socket::new(domain, Type::DGRAM, Some(Protocol::UDP));
    if let Some(interface) = &rules.interface {
        let bound = scratch().and_then(|socket| socket.bind_device(Some(interface.as_bytes())));
        bound.map_err(of("backend_interface"))?;
    }
    if rules.transparent {
        let set = scratch().and_then(|socket| set_transparent(&socket, is_v4));
        set.map_err(of("backend_transparent"))?;
    }
    if let Some(source) = rules.source {
        let address = SockAddr::from(SocketAddr::new(source, 0));
        let bound = scratch().and_then(|socket| socket.bind(&address));
        bound.map_err(of("backend_source_address"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use socket2::SockRef;

    use super::*;

    #[tokio::test]
    async fn sockets_are_made_as_the_rules_specify() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let rules = SocketRules {
            source: Some([127, 0, 0, 5].into()),
            interface: Some("lo".into()),
            user_timeout: Some(Duration::from_millis(4500)),
            ..SocketRules::default()
        };
        supports(&rules).unwrap();
        let stream = connect(address, Some(&rules), None).await.unwrap();
        let socket = SockRef::from(&stream);
        assert_eq!(stream.local_addr().unwrap().ip(), IpAddr::from([127, 0, 0, 5]));
        assert_eq!(socket.device().unwrap().unwrap(), b"lo");
        assert_eq!(socket.tcp_user_timeout().unwrap(), rules.user_timeout);
        assert_eq!(socket.protocol().unwrap(), Some(Protocol::TCP));
    }

    #[tokio::test]
    async fn multipath_tcp_is_asked_for() {
        let rules = SocketRules { mptcp: true, ..SocketRules::default() };
        if supports(&rules).is_err() {
            return;
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = connect(listener.local_addr().unwrap(), Some(&rules), None).await.unwrap();
        assert_eq!(SockRef::from(&stream).protocol().unwrap(), Some(Protocol::MPTCP));
    }

    #[tokio::test]
    async fn another_address_family_is_an_error() {
        let rules = SocketRules { source: Some([127, 0, 0, 5].into()), ..SocketRules::default() };
        let target: SocketAddr = "[::1]:9".parse().unwrap();
        let failed = connect(target, Some(&rules), None).await.unwrap_err();
        assert_eq!(failed.to_string(), "127.0.0.5 is of another address family than [::1]:9");
        assert!(datagrams(target, Some(&rules), target.ip()).is_err());
    }

    #[test]
    fn names_the_setting_that_this_machine_can_not_apply() {
        let nowhere = SocketRules { interface: Some("nope0".into()), ..SocketRules::default() };
        assert_eq!(supports(&nowhere).unwrap_err().0, "backend_interface");
        // RFC 5737: no machine has it.
        let nobody = SocketRules { source: Some([192, 0, 2, 1].into()), ..SocketRules::default() };
        assert_eq!(supports(&nobody).unwrap_err().0, "backend_source_address");
    }
}
