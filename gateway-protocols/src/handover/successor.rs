//! The successor of this gateway.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::ids::Owner;
use super::link::{self, ENTRIES, Message, QUEUE};
use super::{DatagramHandover, Forwarded, Handed, Ids, Opening, QuicPlaces, SessionAddress};

/// How long a worker may take to list its sessions.
const TIMEOUT: Duration = Duration::from_secs(1);

/// This gateway's end of the link to the successor.
pub struct Successor {
    handover: Arc<DatagramHandover>,
    stream: UnixStream,
    taken: Vec<SocketAddr>,
    openings: HashMap<Opening, (SocketAddr, u8)>,
    sessions: HashMap<SessionAddress, mpsc::Sender<Handed>>,
}

impl Successor {
    /// Creates the link. Returns the successor's end of it too. Call it within a runtime.
    ///
    /// # Errors
    /// The process has no free file descriptors.
    pub fn new(handover: Arc<DatagramHandover>) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        let (openings, sessions) = (HashMap::new(), HashMap::new());
        let this = Self { handover, stream: ours, taken: Vec::new(), openings, sessions };
        Ok((this, theirs.into_std()?.into()))
    }

    /// Waits until the successor serves traffic, then closes the gates of its sockets here. Returns false if the successor gives
    /// up. Workers may still process datagrams that they have read. They must confirm before [`Self::hand_over`].
    pub async fn serves(&mut self) -> bool {
        let mut room = Vec::new();
        loop {
            match link::next(&mut self.stream, &mut room).await {
                Ok(Some(Message::Took(listeners))) => {
                    let known = self.handover.listeners.lock().unwrap_or_else(PoisonError::into_inner);
                    for at in listeners {
                        if let Some(listener) = known.get(&at) {
                            listener.gate.set(false);
                            self.taken.push(at);
                        }
                    }
                    return true;
                }
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    /// Sends the tables of connections and sessions that stay here, and serves what the successor forwards for them until the
    /// successor ends. If `is_alone` then returns true, no third gateway has taken the sockets, and this gateway reads them
    /// again. Returns whether it does.
    pub async fn hand_over(mut self, is_alone: impl FnOnce() -> bool) -> bool {
        self.collect().await;
        let (bounced, packets) = mpsc::channel(QUEUE);
        *self.handover.behind.lock().unwrap_or_else(PoisonError::into_inner) = Some(bounced);
        if self.send_tables().await.is_err() {
            tracing::warn!("the successor does not take what is left here: datagrams are lost");
        }
        let Self { handover, stream, taken, openings, sessions } = self;
        let owners = Owners { handover, openings, sessions };
        link::exchange(stream, true, packets, |message| {
            if let Message::Packet(packet) = message {
                owners.take(packet);
            }
        })
        .await;
        owners.handover.behind.lock().unwrap_or_else(PoisonError::into_inner).take();
        if !is_alone() {
            tracing::warn!("the gateway behind this one has ended, and another one serves");
            return false;
        }
        tracing::warn!("the gateway behind this one has ended: this one reads its UDP sockets again");
        let listeners = owners.handover.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        for listener in taken.iter().filter_map(|at| listeners.get(at)) {
            for port in &listener.ports {
                let _sent = port.try_send(Handed::Resumed);
            }
            listener.gate.set(true);
        }
        true
    }

    async fn send_tables(&mut self) -> io::Result<()> {
        let openings: Vec<Opening> = self.openings.keys().copied().collect();
        let sessions: Vec<SessionAddress> = self.sessions.keys().copied().collect();
        let openings = openings.chunks(ENTRIES).map(|some| Message::Openings(some.to_vec()));
        let sessions = sessions.chunks(ENTRIES).map(|some| Message::Sessions(some.to_vec()));
        for message in openings.chain(sessions).chain([Message::Go]) {
            link::send(&mut self.stream, &message).await?;
        }
        Ok(())
    }

    /// Collects the handshakes and sessions of this gateway.
    async fn collect(&mut self) {
        let (answers, mut answered) = mpsc::unbounded_channel();
        let (mut ports, now) = (Vec::new(), Instant::now());
        {
            let listeners = self.handover.listeners.lock().unwrap_or_else(PoisonError::into_inner);
            for at in &self.taken {
                let Some(listener) = listeners.get(at) else { continue };
                for (place, recent) in listener.quic.iter().flat_map(|quic| quic.recent.iter()).enumerate() {
                    let recent = recent.lock().unwrap_or_else(PoisonError::into_inner);
                    let place = (*at, u8::try_from(place).unwrap_or(u8::MAX));
                    self.openings.extend(recent.under_way(now).map(|opening| (opening, place)));
                }
                ports.extend(listener.ports.iter().cloned());
            }
        }
        let mut waiting = Vec::new();
        for port in ports {
            let (answer, sessions) = mpsc::unbounded_channel();
            if port.send(Handed::Paused(answer)).await.is_ok() {
                waiting.push((port, sessions));
            }
        }
        let collecting = async {
            for (port, mut sessions) in waiting {
                for session in sessions.recv().await.unwrap_or_default() {
                    let _sent = answers.send((session, port.clone()));
                }
            }
            drop(answers);
        };
        let _in_time = tokio::time::timeout(TIMEOUT, collecting).await;
        while let Ok((session, port)) = answered.try_recv() {
            self.sessions.insert(session, port);
        }
        // Datagrams that belong to the predecessor of this gateway pass through this gateway.
        if let Some(before) = self.handover.before() {
            let theirs = before.sessions.read().unwrap_or_else(PoisonError::into_inner).clone();
            let (through, mut passing) = mpsc::channel::<Handed>(ENTRIES);
            let handover = self.handover.clone();
            drop(tokio::spawn(async move {
                while let Some(Handed::Datagram(packet)) = passing.recv().await {
                    let session = packet.session();
                    if !handover.forward_session(&session, || packet.clone()) {
                        handover.bounce(packet);
                    }
                }
            }));
            for session in theirs {
                self.sessions.entry(session).or_insert_with(|| through.clone());
            }
        }
    }
}

/// The owners of packets that the successor forwards.
struct Owners {
    handover: Arc<DatagramHandover>,
    openings: HashMap<Opening, (SocketAddr, u8)>,
    sessions: HashMap<SessionAddress, mpsc::Sender<Handed>>,
}

impl Owners {
    fn take(&self, packet: Forwarded) {
        let quic = {
            let listeners = self.handover.listeners.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.get(&packet.listener).and_then(|listener| listener.quic.clone())
        };
        match quic {
            Some(quic) => self.take_quic(&quic, packet),
            None => match self.sessions.get(&packet.session()) {
                // A full queue drops the datagram, as UDP permits.
                Some(port) => drop(port.try_send(Handed::Datagram(packet))),
                None => drop(self.handover.bounce(packet)),
            },
        }
    }

    fn take_quic(&self, quic: &QuicPlaces, packet: Forwarded) {
        let place = match Ids::new(0).owner(packet.client, &packet.bytes) {
            Owner::Place(place) => Some(place),
            Owner::Opening(opening) => self.openings.get(&opening).map(|(_, place)| *place),
            Owner::Before => {
                self.handover.forward_of_generation(|| packet);
                return;
            }
            Owner::Unknown => None,
        };
        if let Some(way) = place.and_then(|place| quic.ways.get(usize::from(place))) {
            let _sent = way.try_send(packet);
        }
    }
}
