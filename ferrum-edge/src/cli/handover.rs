//! One gateway takes the place of another. It gets the listening sockets: a connection that waits to be accepted is lost with
//! its socket, and so both listen on the same ones.
//!
//! The gateway with a pid file answers on a Unix socket beside it. Each message is one byte with some descriptors
//! (`SCM_RIGHTS`, unix(7)): sockets, the link for datagrams ([`gateway_protocols::handover`]), or, before the gateway's keys and
//! counts, and where it drains already, none. Sockets without a descriptor are the last. The other gateway says one byte when it
//! serves, and receives the counts of the gateway that drains from then on. If it ends before the one that it replaced, that one
//! takes the pid file back ([`taking_back`]).

mod counts;
mod taking_back;

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gateway_protocols::downstream::bind::{Inherited, Sharing};
use gateway_protocols::handover::{self, Secrets, Successor};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use counts::SuccessorCounts;

use super::pid_file::{self, PidFileError, beside};
use super::process::{self, GatewayProcess, NotSignalled};
use crate::engine::Engine;
use crate::engine::unix_socket::{self, SocketFile};
use crate::export::inherited::CountTable;

/// Who may ask for listening sockets: the gateway's own user.
const MODE: u32 = 0o600;
/// Descriptors of one message; the kernel takes 253.
const AT_ONCE: usize = 64;
/// Sockets that are taken: more than 65,535 stream ports of one worker, or 1,000 of 64.
const MAX_SOCKETS: usize = 1 << 16;
/// A message with sockets, with the link, and those before the keys and the counts.
const SOCKETS: u8 = b's';
const LINK: u8 = b'l';
const KEYS: u8 = b'k';
const COUNTS: u8 = b'c';
/// The gateway drains already: a signal to stop would cut what it still serves.
const DRAINS: u8 = b'd';
/// What the other gateway says once it serves.
const SERVES: u8 = b'r';
/// How long either side waits for the sockets.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a gateway can't take the place of another.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandoverError {
    #[error("another gateway is just taking the place of the one of {0}")]
    Busy(String),
    #[error("{path} can't be locked: {source}")]
    Unlocked { path: String, source: io::Error },
    #[error(
        "process {pid} does not answer on {path}: {source}; it runs without `--replace` and `gateway.share_ports`, or it is \
         not the gateway of this pid file"
    )]
    Silent { pid: i32, path: String, source: io::Error },
    #[error(
        "process {0} is stopped and hands nothing over: continue it with `kill -CONT {0}`, or end it with `kill -KILL {0}`"
    )]
    Stopped(i32),
    #[error("the process that answers on {path} is not {pid}: it is not the gateway of this pid file")]
    Other { pid: i32, path: String },
}

/// Held while one gateway takes the place of another: a third one would end the first at once, and nobody would end the second.
pub(super) struct Turn {
    _lock: File,
}

impl Turn {
    /// # Errors
    /// [`HandoverError::Busy`], [`HandoverError::Unlocked`]
    pub(super) fn take(pid_file: &Path) -> Result<Self, HandoverError> {
        let path = beside(pid_file, ".lock");
        let shown = || path.display().to_string();
        let unlocked = |source| HandoverError::Unlocked { path: shown(), source };
        let lock = File::options().create(true).truncate(false).write(true).mode(MODE).open(&path);
        let lock = lock.map_err(unlocked)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(HandoverError::Busy(pid_file.display().to_string())),
            Err(TryLockError::Error(error)) => Err(unlocked(error)),
        }
    }
}

/// The gateway that is to be replaced; `None` where none runs. A process that is no gateway, or is somebody else's, was given the
/// number of one that has ended without removing its file, unless somebody still answers for that one on its socket.
///
/// # Errors
/// Those of [`pid_file::running`].
pub(super) fn running(pid_file: &Path) -> Result<Option<GatewayProcess>, PidFileError> {
    match pid_file::running(pid_file) {
        Err(PidFileError::Stranger {
            path,
            source: source @ (NotSignalled::Stranger { .. } | NotSignalled::Unknown { .. }),
        }) if UnixStream::connect(beside(pid_file, ".sock")).is_err() => {
            tracing::warn!(%source, "{path} is left over from a gateway that has ended: nobody is replaced");
            Ok(None)
        }
        found => found,
    }
}

/// The gateway that is replaced.
pub(super) struct Predecessor {
    running: GatewayProcess,
    stream: UnixStream,
    /// It was draining before it was asked.
    drains: bool,
    counts: Option<CountTable>,
}

/// What a gateway hands over.
#[derive(Default)]
struct Received {
    inherited: Inherited,
    drains: bool,
    counts: Option<CountTable>,
}

impl Predecessor {
    /// Asks the gateway of a pid file for its sockets.
    ///
    /// # Errors
    /// When it is another process that answers, or none.
    pub(super) fn ask(pid_file: &Path, running: GatewayProcess) -> Result<(Self, Inherited), HandoverError> {
        let (pid, path) = (running.pid(), beside(pid_file, ".sock"));
        let shown = || path.display().to_string();
        let silent = |source| match process::is_stopped(pid) {
            true => HandoverError::Stopped(pid),
            false => HandoverError::Silent { pid, path: shown(), source },
        };
        let stream = UnixStream::connect(&path).and_then(trusted).map_err(silent)?;
        let peer = socket_peercred(&stream).map_err(|error| silent(error.into()))?.pid;
        if peer.as_raw_nonzero().get() != pid {
            return Err(HandoverError::Other { pid, path: shown() });
        }
        let Received { inherited, drains, counts } = take(&stream).map_err(silent)?;
        Ok((Self { running, stream, drains, counts }, inherited))
    }

    /// What it has counted so far.
    pub(super) fn take_counts(&mut self) -> Option<Arc<CountTable>> {
        self.counts.take().map(Arc::new)
    }

    /// This one serves: the other one drains, and its counts are continued here. Call it within a runtime.
    pub(super) fn end(mut self, engine: &Arc<Engine>) {
        let pid = self.running.pid();
        let told = self.stream.write_all(&[SERVES]).map_err(|error| error.to_string());
        let told = told.and_then(|()| match self.drains {
            true => Ok(()),
            false => self.running.signal(Signal::TERM).map_err(|error| error.to_string()),
        });
        match told {
            Ok(()) => {
                tracing::info!(pid, "the gateway before this one drains");
                drop(tokio::spawn(counts::keep_receiving(self.stream, engine.clone())));
            }
            Err(error) => tracing::warn!(pid, error, "the gateway before this one goes on"),
        }
    }
}

/// Answers whoever asks for the listening sockets, until it is dropped.
pub(super) struct Offer {
    task: JoinHandle<()>,
    successor: Arc<SuccessorCounts>,
    replaced: Arc<AtomicBool>,
}

/// Where a gateway is asked. Dropping it removes the file, unless another gateway has put its own there.
struct OfferSocket {
    listener: UnixListener,
    _file: SocketFile,
}

/// Listens beside a pid file, in the place of whoever did.
fn listen(pid_file: &Path) -> io::Result<OfferSocket> {
    let (listener, mut file) = unix_socket::bind(&beside(pid_file, ".sock"), MODE, Sharing::Allowed)?;
    file.place()?;
    Ok(OfferSocket { listener: UnixListener::from_std(listener)?, _file: file })
}

impl Offer {
    /// Listens beside the pid file. Where that fails the next gateway listens on sockets of its own.
    pub(super) fn start(engine: &Arc<Engine>, pid_file: &Path) -> Option<Self> {
        match listen(pid_file) {
            Ok(socket) => {
                let (replaced, successor) = (Arc::<AtomicBool>::default(), Arc::<SuccessorCounts>::default());
                let answering =
                    answer(socket, engine.clone(), replaced.clone(), successor.clone(), pid_file.to_owned());
                Some(Self { task: tokio::spawn(answering), successor, replaced })
            }
            Err(error) => {
                tracing::warn!(%error, "the next gateway can't take over the listening sockets");
                None
            }
        }
    }

    /// Whether another gateway serves on the same sockets.
    pub(super) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Relaxed)
    }

    /// Sends the successor what this gateway has counted until its end.
    pub(super) async fn send_last_counts(&self, engine: &Arc<Engine>) {
        self.successor.send(engine).await;
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    mut socket: OfferSocket,
    engine: Arc<Engine>,
    replaced: Arc<AtomicBool>,
    successor_counts: Arc<SuccessorCounts>,
    pid_file: PathBuf,
) {
    let left_alone = Arc::<Notify>::default();
    loop {
        let asked = async { socket.listener.accept().await?.0.into_std() };
        let asked = tokio::select! {
            asked = asked => asked,
            () = left_alone.notified() => {
                taking_back::take_back(&pid_file, &mut socket).await;
                continue;
            }
        };
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
        let (successor, link) = match Successor::new(engine.shared.datagrams.clone()) {
            Ok((successor, link)) => (Some(successor), Some(link)),
            Err(error) => {
                tracing::warn!(%error, "connections over UDP can't be handed over");
                (None, None)
            }
        };
        let asking = socket_peercred(&peer).map_or(0, |peer| peer.pid.as_raw_nonzero().get());
        let counting = engine.clone();
        let drains = engine.is_draining();
        let sending = move || {
            if drains {
                send_some(&peer, DRAINS, &[])?;
            }
            if let Some(counts) = counts::message(&counting) {
                send_some(&peer, COUNTS, &[])?;
                (&peer).write_all(&counts)?;
            }
            send(&peer, &sockets, link.as_ref()).map(|()| peer)
        };
        match tokio::task::spawn_blocking(sending).await {
            Ok(Ok(peer)) => {
                tracing::info!(sockets = count, "another gateway takes over the listening sockets");
                if let Some(successor) = successor {
                    let (pid_file, left_alone) = (pid_file.clone(), left_alone.clone());
                    let is_alone = move || taking_back::is_alone(&pid_file, asking);
                    drop(tokio::spawn(share_datagrams(successor, engine.clone(), is_alone, left_alone)));
                }
                match serves(peer).await {
                    Some(stream) => {
                        replaced.store(true, Ordering::Relaxed);
                        successor_counts.clone().begin(stream, &engine).await;
                    }
                    // It may have put its own pid file in place before it ended.
                    None if taking_back::is_alone(&pid_file, asking) => left_alone.notify_one(),
                    None => {}
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "the listening sockets could not be handed over"),
            Err(error) => tracing::error!(%error, "handing over the listening sockets panicked"),
        }
    }
}

/// Leaves the UDP sockets to the other gateway once it serves, and takes what it forwards.
async fn share_datagrams(
    mut successor: Successor,
    engine: Arc<Engine>,
    is_alone: impl FnOnce() -> bool,
    left_alone: Arc<Notify>,
) {
    if !successor.serves().await {
        return;
    }
    // Workers that were about to take what they have read are done with it.
    for worker in engine.confirmations() {
        drop(worker.await);
    }
    if successor.hand_over(is_alone).await {
        left_alone.notify_one();
    }
}

/// Waits until the other gateway serves; `None` if it gives up. There is one at a time.
async fn serves(peer: UnixStream) -> Option<tokio::net::UnixStream> {
    peer.set_nonblocking(true).ok()?;
    let mut peer = tokio::net::UnixStream::from_std(peer).ok()?;
    (peer.read_u8().await.ok()? == SERVES).then_some(peer)
}

fn take(stream: &UnixStream) -> io::Result<Received> {
    let mut received = Received::default();
    loop {
        let (kind, descriptors) = receive(stream)?;
        match kind {
            SOCKETS if descriptors.is_empty() => return Ok(received),
            SOCKETS => {}
            LINK => {
                descriptors.into_iter().for_each(|link| received.inherited.link(link));
                continue;
            }
            KEYS => {
                let mut keys = [0; Secrets::BYTES];
                (&*stream).read_exact(&mut keys)?;
                if let Err(error) = handover::inherit(&keys) {
                    tracing::warn!(
                        error,
                        "this gateway does not know what the one before it gave to clients"
                    );
                }
                continue;
            }
            COUNTS => {
                received.counts = counts::receive_now(stream)?;
                continue;
            }
            DRAINS => {
                received.drains = true;
                continue;
            }
            _ => return Err(io::Error::other("it is a gateway of another version")),
        }
        for socket in descriptors {
            if received.inherited.len() == MAX_SOCKETS {
                return Err(io::Error::other(format!("there are more than {MAX_SOCKETS} of them")));
            }
            received.inherited.add(socket)?;
        }
    }
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

fn send(stream: &UnixStream, sockets: &[OwnedFd], link: Option<&OwnedFd>) -> io::Result<()> {
    if let Some(link) = link {
        send_some(stream, LINK, &[link.as_fd()])?;
        send_some(stream, KEYS, &[])?;
        (&*stream).write_all(&handover::secrets().to_bytes())?;
    }
    // One without any is the last.
    for some in sockets.chunks(AT_ONCE).chain([&[][..]]) {
        let some: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
        send_some(stream, SOCKETS, &some)?;
    }
    Ok(())
}

fn send_some(stream: &UnixStream, kind: u8, some: &[BorrowedFd<'_>]) -> io::Result<()> {
    {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !some.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(some)) {
            return Err(io::Error::other("a message has no room for its descriptors"));
        }
        rustix::io::retry_on_intr(|| {
            sendmsg(stream, &[IoSlice::new(&[kind])], &mut ancillary, SendFlags::NOSIGNAL)
        })?;
    }
    Ok(())
}

/// The kind of the next message, and its descriptors.
fn receive(stream: &UnixStream) -> io::Result<(u8, Vec<OwnedFd>)> {
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
    match message.bytes {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok((byte[0], sockets)),
    }
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
        send(&ours, &sent, None).unwrap();
        drop(ours);
        let taken =
            std::iter::repeat_with(|| receive(&theirs).unwrap().1).take_while(|some| !some.is_empty());
        let received: Vec<_> = taken.flatten().map(std::net::TcpListener::from).collect();
        assert!(receive(&theirs).is_err(), "who breaks off has not handed over all");
        let addresses = |of: &[std::net::TcpListener]| -> Vec<_> {
            of.iter().map(|listener| listener.local_addr().unwrap()).collect()
        };
        assert_eq!(addresses(&received), addresses(&listeners));
    }

    #[test]
    fn sockets_that_do_not_listen_are_rejected() {
        let mut inherited = Inherited::default();
        let (unix, _) = UnixStream::pair().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let talks = udp.try_clone().unwrap();
        talks.connect("127.0.0.1:9").unwrap();
        let file = File::open("/dev/null").unwrap();
        for wrong in [unix.into(), connection.into(), talks.into(), OwnedFd::from(file)] {
            assert!(inherited.add(wrong).is_err());
        }
        assert!(inherited.is_empty());
        inherited.add(listener.into()).unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        inherited.add(udp.into()).unwrap();
        assert_eq!(inherited.len(), 2);
    }
}
