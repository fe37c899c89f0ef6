//! DTLS by the dimpl crate's engine, either side of it, over a socket of the test's own.

mod hashes;
mod heard;
mod retry;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use dimpl::{Config, Dtls, DtlsCertificate, Output};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::UdpSocket;

use super::{soon, tls};
pub(crate) use heard::heard;

/// Which version a client offers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Offer {
    Both,
    Dtls12,
    Dtls13,
}

/// One end of a DTLS association.
pub(crate) struct Peer {
    pub(crate) socket: UdpSocket,
    engine: Dtls,
    ready: bool,
    closed: bool,
    inbox: VecDeque<Vec<u8>>,
    wake: Instant,
    /// Datagrams that came, for whomever they were.
    pub(crate) heard: Vec<Vec<u8>>,
}

fn certificate(identity: &tls::Identity) -> DtlsCertificate {
    let certificate = CertificateDer::from_pem_file(&identity.cert).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(&identity.key).expect("a key");
    DtlsCertificate { certificate: certificate.to_vec(), private_key: key.secret_der().to_vec() }
}

fn config() -> Arc<Config> {
    Arc::new(Config::builder().mtu(1200).require_client_certificate(false).build().expect("a configuration"))
}

impl Peer {
    fn new(socket: UdpSocket, engine: Dtls) -> Self {
        let wake = Instant::now();
        Self { socket, engine, ready: false, closed: false, inbox: VecDeque::new(), wake, heard: Vec::new() }
    }

    /// A client that has not begun its handshake.
    pub(crate) async fn client(to: SocketAddr, offer: Offer) -> Self {
        Self::client_showing(to, offer, tls::localhost()).await
    }

    /// As [`Peer::client`], with a certificate for servers that ask for one.
    pub(crate) async fn client_showing(to: SocketAddr, offer: Offer, identity: &tls::Identity) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        socket.connect(to).await.expect("an address");
        Self::client_on(socket, offer, identity)
    }

    /// As [`Peer::client_showing`], over a connected socket.
    pub(crate) fn client_on(socket: UdpSocket, offer: Offer, identity: &tls::Identity) -> Self {
        Self::client_with(socket, offer, config(), identity)
    }

    fn client_with(socket: UdpSocket, offer: Offer, config: Arc<Config>, identity: &tls::Identity) -> Self {
        let (shown, now) = (certificate(identity), Instant::now());
        let mut engine = match offer {
            Offer::Both => Dtls::new_auto(config, shown, now),
            Offer::Dtls12 => Dtls::new_12(config, shown, now),
            Offer::Dtls13 => Dtls::new_13(config, shown, now),
        };
        engine.set_active(true);
        Self::new(socket, engine)
    }

    /// A client after its handshake.
    pub(crate) async fn connect(to: SocketAddr, offer: Offer) -> Self {
        let mut peer = Self::client(to, offer).await;
        peer.shake().await;
        peer
    }

    /// A server for whoever comes first to this socket, before its handshake.
    pub(crate) async fn server(socket: UdpSocket) -> Self {
        let mut buffer = vec![0; 4096];
        let (length, from) = soon(socket.recv_from(&mut buffer)).await.expect("a client");
        socket.connect(from).await.expect("an address");
        let mut engine = Dtls::new_auto(config(), certificate(tls::localhost()), Instant::now());
        engine.set_active(false);
        let mut peer = Self::new(socket, engine);
        peer.take(&buffer[..length]);
        peer
    }

    /// What it says first.
    pub(crate) async fn hello(offer: Offer) -> Vec<u8> {
        let middle = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let mut client = Self::client(middle.local_addr().expect("an address"), offer).await;
        client.drain().await;
        let mut buffer = vec![0; 4096];
        let length = soon(middle.recv(&mut buffer)).await.expect("a hello");
        buffer.truncate(length);
        buffer
    }

    /// Goes on until the handshake is done.
    pub(crate) async fn shake(&mut self) {
        self.drain().await;
        while !self.ready {
            assert!(!self.closed, "closed in its handshake");
            soon(self.step()).await;
        }
    }

    /// Gives its cookie back, and says nothing more; with what it said last.
    pub(crate) async fn prove(&mut self) -> Vec<u8> {
        self.drain().await;
        let mut buffer = vec![0; 65_536];
        loop {
            // What is no cookie may be for another client at this socket.
            let length = soon(self.socket.recv(&mut buffer)).await.expect("a cookie");
            self.take(&buffer[..length]);
            if let Some(hello) = self.words().last() {
                self.socket.send(hello).await.expect("sent");
                return hello.clone();
            }
        }
    }

    /// Goes on until the handshake is done, and puts the first payload into the same datagram as its last words.
    pub(crate) async fn shake_in_one_breath(&mut self, payload: &[u8]) {
        self.drain().await;
        let mut buffer = vec![0; 65_536];
        while !self.ready {
            let length = soon(self.socket.recv(&mut buffer)).await.expect("its next words");
            self.take(&buffer[..length]);
            let mut words = self.words();
            if self.ready {
                assert_eq!(self.engine.send_application_data(payload).expect("payload"), payload.len());
                words.extend(self.words());
                words = vec![words.concat()];
            }
            for packet in words {
                self.socket.send(&packet).await.expect("sent");
            }
        }
    }

    pub(crate) async fn send(&mut self, payload: &[u8]) {
        let taken = self.engine.send_application_data(payload).expect("payload");
        assert_eq!(taken, payload.len());
        self.drain().await;
    }

    /// Goes on, and says this once it may, until it is answered or refused at the handshake; then only waits.
    pub(crate) async fn insist(&mut self, payload: &[u8]) {
        drop(self.engine.send_application_data(payload));
        self.drain().await;
        while self.inbox.is_empty() {
            match self.closed {
                true => std::future::pending().await,
                false => self.step().await,
            }
        }
    }

    /// The next payload.
    pub(crate) async fn next(&mut self) -> Vec<u8> {
        loop {
            if let Some(payload) = self.inbox.pop_front() {
                return payload;
            }
            assert!(!self.closed, "closed while payload was waited for");
            soon(self.step()).await;
        }
    }

    pub(crate) async fn ask(&mut self, payload: &[u8]) -> Vec<u8> {
        self.send(payload).await;
        self.next().await
    }

    /// Sends close_notify.
    pub(crate) async fn close(&mut self) {
        self.engine.close().expect("a close_notify");
        self.drain().await;
    }

    /// Waits for the other side's close_notify; nothing more may come before it.
    pub(crate) async fn close_notify(&mut self) {
        while !self.closed {
            soon(self.step()).await;
        }
        assert!(self.inbox.is_empty(), "payload before the close_notify");
    }

    /// Goes on until the handshake is done, or the other side is silent for a while; whether it was done.
    pub(crate) async fn is_let_in(&mut self) -> bool {
        self.drain().await;
        let until = Instant::now() + std::time::Duration::from_secs(2);
        while !self.ready && !self.closed && Instant::now() < until {
            let _elapsed = tokio::time::timeout_at(until.into(), self.step()).await;
        }
        self.ready
    }

    /// Goes on until the other side has gone or has said nothing for a while; whether payload ever came.
    pub(crate) async fn hears_payload(&mut self) -> bool {
        let until = Instant::now() + std::time::Duration::from_secs(2);
        while !self.closed && Instant::now() < until {
            let _elapsed = tokio::time::timeout_at(until.into(), self.step()).await;
        }
        !self.inbox.is_empty()
    }

    /// Takes a datagram or lets time pass, then says what there is to say.
    async fn step(&mut self) {
        let mut buffer = vec![0; 65_536];
        match tokio::time::timeout_at(self.wake.into(), self.socket.recv(&mut buffer)).await {
            Ok(Ok(length)) => {
                self.heard.push(buffer[..length].to_vec());
                self.take(&buffer[..length]);
            }
            // Its port is closed.
            Ok(Err(_)) => self.closed = true,
            Err(_) => {}
        }
        self.drain().await;
    }

    /// Takes a datagram that was read from its socket.
    pub(crate) fn take(&mut self, datagram: &[u8]) {
        self.engine.handle_timeout(Instant::now()).expect("in time");
        // What is not understood is passed over.
        drop(self.engine.handle_packet(datagram));
    }

    /// Whether the other side has said that it closes.
    pub(crate) fn is_closed(&mut self) -> bool {
        drop(self.words());
        self.closed
    }

    async fn drain(&mut self) {
        for packet in self.words() {
            drop(self.socket.send(&packet).await);
        }
    }

    /// What there is to say.
    fn words(&mut self) -> Vec<Vec<u8>> {
        self.engine.handle_timeout(Instant::now()).expect("in time");
        let (mut buffer, mut words) = (vec![0; 65_536], Vec::new());
        loop {
            match self.engine.poll_output(&mut buffer) {
                Output::Packet(packet) => words.push(packet.to_vec()),
                Output::ApplicationData(payload) => self.inbox.push_back(payload.to_vec()),
                Output::Connected => self.ready = true,
                Output::CloseNotify => self.closed = true,
                Output::Timeout(at) => {
                    self.wake = at;
                    return words;
                }
                _ => {}
            }
        }
    }
}
