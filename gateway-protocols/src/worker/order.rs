//! What a worker is told from outside.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use gateway_core::plugin::world::tasks::WorkerTask;
use tokio::sync::oneshot;

use crate::entrance::Entrance;
use crate::quic::{ServerRules, WorkerPort};
use crate::udp::Question;
use crate::udp::dtls::DtlsRules;

/// What a worker is told from outside.
#[derive(Debug)]
pub enum Order {
    /// Listen on this socket.
    Listen(std::net::TcpListener, Entrance),
    /// Serve plain HTTP on this Unix socket, which other workers listen on as well.
    ListenUnix(std::os::unix::net::UnixListener),
    /// Serve HTTP/3 on this socket.
    Quic(std::net::UdpSocket, ServerRules, WorkerPort),
    /// Serve datagrams on this socket.
    Datagrams(std::net::UdpSocket, u16, Arc<DtlsRules>),
    /// Take no more datagrams on this port; its sessions end.
    EndDatagrams(u16),
    /// Accept nothing more on this stream port; its sessions go on.
    Unlisten(u16),
    /// Ask the UDP ports about their sessions.
    Ask(Question),
    /// Copy the listening TCP sockets and the UDP sockets, for another process to use them as well.
    Copy(std::sync::mpsc::Sender<OwnedFd>),
    /// Do something for a plugin.
    Run(WorkerTask),
    /// Say that every order before this one was carried out. What begins after it sees the configuration published
    /// before it.
    Confirm(oneshot::Sender<()>),
    /// End idle connections: memory or descriptors are short.
    ShedIdle,
    /// Accept nothing more, end idle connections, let the others finish.
    Drain,
    /// End the exchanges that are left of a drain; TCP streams and WebSockets go on.
    EndExchanges,
    /// End everything.
    Stop,
}
