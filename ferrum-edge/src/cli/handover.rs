//! Listening sockets given by a running gateway to the one that takes its place: a connection that waits to be accepted is
//! lost with its socket, and so the next gateway listens on the same ones.
//!
//! The gateway with a pid file answers on a Unix socket beside it. Each message is one byte with some descriptors
//! (`SCM_RIGHTS`, unix(7)); the last one is followed by the end of the stream.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gateway_protocols::downstream::bind::{Inherited, Sharing};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use crate::app::engine::Engine;
use crate::app::unix_socket::{self, SocketFile};

/// Who may ask for listening sockets: the gateway's own user.
const MODE: u32 = 0o600;
/// Descriptors of one message; the kernel takes 253.
const AT_ONCE: usize = 64;
/// Sockets that are taken: more than 65,535 stream ports of one worker, or 1,000 of 64.
const MAX_SOCKETS: usize = 1 << 16;
/// How long either side waits for the other.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The Unix socket that belongs to a pid file.
fn beside(pid_file: &Path) -> PathBuf {
    let mut path = pid_file.as_os_str().to_owned();
    path.push(".sock");
    path.into()
}

/// Answers whoever asks for the listening sockets, until it is dropped.
pub(super) struct Offer {
    task: JoinHandle<()>,
    _file: SocketFile,
}

impl Offer {
    /// Listens beside the pid file. Where that fails the next gateway listens on sockets of its own.
    pub(super) fn start(engine: &Arc<Engine>, pid_file: &Path) -> Option<Self> {
        let bound = unix_socket::bind(&beside(pid_file), (MODE, Sharing::Allowed))
            .and_then(|(listener, file)| Ok((UnixListener::from_std(listener)?, file)));
        match bound {
            Ok((listener, file)) => {
                Some(Self { task: tokio::spawn(answer(listener, engine.clone())), _file: file })
            }
            Err(error) => {
                tracing::warn!(%error, "the next gateway can't take over the listening sockets");
                None
            }
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(listener: UnixListener, engine: Arc<Engine>) {
    loop {
        let asked = async { listener.accept().await?.0.into_std() }.await;
        let peer = match asked.and_then(trusted) {
            Ok(peer) => peer,
            Err(error) => {
                tracing::warn!(%error, "listening sockets were asked for in vain");
                // Also where there are no descriptors to accept with.
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let sockets = engine.copy_listeners().await;
        let count = sockets.len();
        match tokio::task::spawn_blocking(move || send(&peer, &sockets)).await {
            Ok(Ok(())) => tracing::info!(sockets = count, "another gateway listens on the same sockets"),
            Ok(Err(error)) => tracing::warn!(%error, "the listening sockets could not be handed over"),
            Err(error) => tracing::error!(%error, "handing over the listening sockets panicked"),
        }
    }
}

/// The listening sockets of the gateway of a pid file. Without them this one listens beside it.
pub(super) fn inherit(pid_file: &Path) -> Inherited {
    take(pid_file).unwrap_or_else(|error| {
        tracing::warn!(%error, "the listening sockets of the gateway before this one can't be taken over");
        Inherited::default()
    })
}

/// None where the other gateway is of a version that hands over none.
///
/// # Errors
/// When it is another user's, or breaks off.
fn take(pid_file: &Path) -> io::Result<Inherited> {
    let stream = match UnixStream::connect(beside(pid_file)) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(Inherited::default());
        }
        stream => trusted(stream?)?,
    };
    let mut inherited = Inherited::default();
    while let Some(sockets) = receive(&stream)? {
        for socket in sockets {
            if inherited.len() == MAX_SOCKETS {
                return Err(io::Error::other(format!("there are more than {MAX_SOCKETS} of them")));
            }
            inherited.add(socket)?;
        }
    }
    Ok(inherited)
}

/// A peer of this user, or root, with limits on how long it is waited for.
fn trusted(stream: UnixStream) -> io::Result<UnixStream> {
    let peer = socket_peercred(&stream)?.uid;
    if !peer.is_root() && peer != rustix::process::geteuid() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the peer is another user's process"));
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

fn send(stream: &UnixStream, sockets: &[OwnedFd]) -> io::Result<()> {
    for some in sockets.chunks(AT_ONCE) {
        let some: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&some)) {
            return Err(io::Error::other("a message has no room for its descriptors"));
        }
        rustix::io::retry_on_intr(|| {
            sendmsg(stream, &[IoSlice::new(b"s")], &mut ancillary, SendFlags::NOSIGNAL)
        })?;
    }
    Ok(())
}

/// The descriptors of the next message; `None` at the end.
fn receive(stream: &UnixStream) -> io::Result<Option<Vec<OwnedFd>>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let message = rustix::io::retry_on_intr(|| {
        recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let rights = ancillary.drain().filter_map(|part| match part {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let sockets = rights.flatten().collect();
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("the limit on file descriptors is too low for the sockets"));
    }
    Ok((message.bytes > 0).then_some(sockets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_pass_in_several_messages() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let listeners: Vec<_> =
            (0..AT_ONCE + 1).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let sent: Vec<OwnedFd> =
            listeners.iter().map(|listener| listener.try_clone().unwrap().into()).collect();
        send(&ours, &sent).unwrap();
        drop(ours);
        let mut received = Vec::new();
        while let Some(some) = receive(&theirs).unwrap() {
            received.extend(some.into_iter().map(std::net::TcpListener::from));
        }
        let addresses = |of: &[std::net::TcpListener]| -> Vec<_> {
            of.iter().map(|listener| listener.local_addr().unwrap()).collect()
        };
        assert_eq!(addresses(&received), addresses(&listeners));
    }

    #[test]
    fn what_does_not_listen_for_tcp_is_refused() {
        let mut inherited = Inherited::default();
        let (unix, _) = UnixStream::pair().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        for wrong in [unix.into(), connection.into(), udp.into(), OwnedFd::from(file)] {
            assert!(inherited.add(wrong).is_err());
        }
        assert!(inherited.is_empty());
        inherited.add(listener.into()).unwrap();
        assert_eq!(inherited.len(), 1);
    }
}
