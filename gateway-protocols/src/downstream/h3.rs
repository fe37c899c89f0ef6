//! HTTP/3 with clients: a QUIC connection and all its exchanges are one task.

mod aside;
mod exchange;
mod respond;
mod tunnel;

use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use gateway_core::config::model::Settings as Global;
use gateway_core::http::exchange::{Client, ClientTls};
use gateway_core::http::handshake::Handshake;
use gateway_core::pipeline::stream;
use gateway_core::stream::session::Session;
use quinn::ConnectionError;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::coop::has_budget_remaining;

use super::accept::before_and_after;
use super::h2::slots::Slots;
use super::proxied::Addresses;
use crate::h2::Role;
use crate::h3::frame::MAX_VARINT;
use crate::h3::link::H3Link;
use crate::h3::settings::Settings;
use crate::h3::{Code, peer};
use crate::quic::{self, FIRST_STREAMS, ServerRules, WorkerPort};
use crate::registry::ConnectionControl;
use crate::timer::{Timer, deadline};
use crate::tls::trust::{Generation, while_trusted};
use crate::worker::Worker;
use aside::Aside;
use exchange::{NewStream, work};

/// With more connections than this, a new client proves its address by a round trip first.
const VALIDATE_BEYOND: usize = 1000;
/// How long a client that was sent GOAWAY may take to close. QUIC forgets what is not yet delivered when a
/// connection is closed, so that is left to the client; one that does not do it must not hold up a drain.
const LINGER: Duration = Duration::from_secs(1);
/// Turns in a row before other connections have theirs.
const MAX_TURNS: usize = 32;
/// Round trips from the announcement that we go to saying which requests are the last: those that were under way when
/// the client heard of it are still taken (RFC 9114 §5.2).
const GOAWAY_ROUND_TRIPS: u32 = 2;

/// Serves QUIC clients on a socket until it is drained, and refuses new ones from then on, until the last connection is over.
pub(crate) async fn serve(
    worker: Arc<Worker>,
    socket: UdpSocket,
    rules: ServerRules,
    place: WorkerPort,
    mut drained: watch::Receiver<bool>,
) {
    let local = socket.local_addr();
    let gate = place.gate();
    let endpoint = match quic::listen(socket, &rules, place) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            let failed = || async { Err(format!("HTTP/3 on {local:?}: {error}")) };
            return worker.shared().tasks.clone().supervise("http3_accept", failed).await;
        }
    };
    let start = || accept_all(&worker, &endpoint, &rules);
    let drained = async { drop(drained.wait_for(|is_drained| *is_drained).await) };
    tokio::select! {
        biased;
        () = drained => {}
        () = worker.shared().tasks.clone().supervise("http3_accept", start) => {}
    }
    if gate.is_open() {
        return refuse_all(&endpoint).await;
    }
    // Another process reads the socket: who comes here has begun here. The endpoint is idle when these are over.
    let rest = async {
        while !gate.is_open() {
            tokio::select! {
                _ = accept_all(&worker, &endpoint, &rules) => return,
                () = gate.opens() => {}
            }
        }
        refuse_all(&endpoint).await;
    };
    rest.await;
}

/// Refuses whoever comes. The socket stays open for the connections there are, and the kernel gives it new ones for as long: whoever
/// is told so tries again, and may reach the gateway that took our place, or goes over TCP.
async fn refuse_all(endpoint: &quinn::Endpoint) {
    let refusing = async {
        while let Some(incoming) = endpoint.accept().await {
            incoming.refuse();
        }
    };
    tokio::select! {
        () = endpoint.wait_idle() => {}
        () = refusing => {}
    }
}

/// Nothing more comes from an endpoint, though its socket was not drained.
#[derive(Debug, Error)]
#[error("the endpoint ended")]
struct EndpointEnded;

/// Accepts connections. Ends with the endpoint: connections are told, and none outlives the listener.
async fn accept_all(
    worker: &Arc<Worker>,
    endpoint: &quinn::Endpoint,
    rules: &ServerRules,
) -> Result<(), EndpointEnded> {
    let port = endpoint.local_addr().map_or(0, |local| local.port());
    while let Some(incoming) = endpoint.accept().await {
        let Some(permit) = worker.shared().overload.connection() else {
            incoming.refuse();
            worker.connection_refused();
            continue;
        };
        // An address is believed only once it has answered, when many connections are being made.
        if endpoint.open_connections() > VALIDATE_BEYOND && !incoming.remote_address_validated() {
            drop(incoming.retry());
            continue;
        }
        let since = worker.shared().client_trust.generation();
        let rules = rules.load_full();
        let arrival = NewConnection { incoming, rules, since, port };
        let its_worker = worker.clone();
        worker.spawn_counted(permit, move |entry| connection(its_worker, arrival, entry));
    }
    Err(EndpointEnded)
}

/// A connection that asks to be accepted.
struct NewConnection {
    incoming: quinn::Incoming,
    rules: Arc<quinn::ServerConfig>,
    since: Generation,
    /// The port that it came to.
    port: u16,
}

async fn connection(worker: Arc<Worker>, arrival: NewConnection, entry: Arc<ConnectionControl>) {
    let NewConnection { incoming, rules, since, port } = arrival;
    let settings = worker.snapshot().settings.clone();
    let deadline = deadline(settings.client_timeouts.handshake);
    // Whoever is let in by address is let in by a proven one: without a token, that is only once the handshake is over.
    let early = settings.tls.early_data && incoming.remote_address_validated();
    let began = ends(incoming.remote_address(), incoming.local_ip(), port, &settings);
    let accepting = accept(incoming, rules, early);
    let (quic, shaking) = match tokio::time::timeout_at(deadline, accepting).await {
        Ok(Ok(accepted)) => accepted,
        Ok(Err(error)) => return failed(&worker, &began, &error),
        // Whoever says no more may never have been there.
        Err(_) => return,
    };
    let Addresses { peer, local, trusted, .. } =
        ends(quic.remote_address(), quic.local_ip(), port, &settings);
    let mut facts = facts(&quic);
    // Whether the session was resumed can't be seen here.
    let judged = match worker.shared().client_trust.enter(&mut facts, false, since) {
        Ok(judged) => judged,
        Err(error) => return refused(&worker, &quic, &began, &error),
    };
    let mut client = Client::new(peer, local, trusted, Some(facts));
    client.handshake = shaking.as_ref().map(|shaking| shaking.handshake.clone());
    let handshake = client.handshake.clone();
    let client = Arc::new(client);
    let most = settings.limits.max_header_size;
    let told = Settings { max_field_section: Some(most as u64), connect_protocol: true };
    let link = H3Link::new(quic, Role::Server, most);
    let timeout = settings.client_timeouts.keep_alive;
    let most_streams = settings.limits.max_concurrent_streams;
    drop(settings);
    let server = Server {
        worker: &worker,
        entry: &entry,
        client,
        link: link.clone(),
        end: IdleEnd::new(timeout),
        next: 0,
        more_streams: (most_streams > FIRST_STREAMS).then_some(most_streams),
        shaking,
    };
    let serving = pin!(async {
        let mut others = Aside::new(peer::attend(link.clone(), told));
        if server.run(&mut others).await {
            // The client's control stream must not be stopped before the connection is closed (RFC 9114 §6.2.1).
            let closed = poll_fn(|cx| others.poll(cx));
            let closed = async { tokio::join!(closed, link.quic.closed()) };
            // Requests of a client that has not received the GOAWAY yet.
            let rejecting = async {
                while let Ok((send, recv)) = link.quic.accept_bi().await {
                    reject(send, recv);
                }
            };
            drop(tokio::time::timeout(LINGER, async { tokio::join!(closed, rejecting) }).await);
        }
    });
    let serving = pin!(async {
        match handshake {
            None => serving.await,
            Some(handshake) => before_and_after(&handshake, deadline, serving).await,
        }
    });
    while_trusted(judged, serving).await;
    link.close(Code::NO_ERROR, "");
}

/// Ends a connection whose client's certificate is not good any more, and records it.
fn refused(worker: &Worker, quic: &quinn::Connection, ends: &Addresses, error: &rustls::Error) {
    tracing::debug!(peer = %ends.peer, %error, "QUIC handshake failed");
    quic.close(Code::NO_ERROR.into(), b"");
    let session = Session::new(Arc::new(ends.client(None)));
    stream::refuse(worker.recorder().as_ref(), "http", session, "tls_certificate_error");
}

/// Whose connection it is. The address of ours is not known on every system.
fn ends(peer: SocketAddr, local: Option<IpAddr>, port: u16, settings: &Global) -> Addresses {
    let local = SocketAddr::new(local.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), port);
    Addresses::new(peer, local, settings)
}

/// Records a failed handshake. Its client's address is not proved.
fn failed(worker: &Worker, ends: &Addresses, error: &ConnectionError) {
    tracing::debug!(peer = %ends.peer, %error, "QUIC handshake failed");
    let Some(reason) = quic::handshake_failure(error) else { return };
    let mut session = Session::new(Arc::new(ends.client(None)));
    session.unproven = true;
    stream::refuse(worker.recorder().as_ref(), "http", session, reason);
}

/// A handshake that requests need not wait for.
struct Shaking {
    handshake: Arc<Handshake>,
    /// Ready when it is over, or the connection.
    over: quinn::ZeroRttAccepted,
}

/// Waits for the end of the handshake; where requests may come before, only until it is known who the client is.
async fn accept(
    incoming: quinn::Incoming,
    rules: Arc<quinn::ServerConfig>,
    early: bool,
) -> Result<(quinn::Connection, Option<Shaking>), ConnectionError> {
    let mut connecting = incoming.accept_with(rules)?;
    if !early {
        return Ok((connecting.await?, None));
    }
    connecting.handshake_data().await?;
    match connecting.into_0rtt() {
        Ok((quic, over)) => Ok((quic, Some(Shaking { handshake: Arc::default(), over }))),
        Err(connecting) => Ok((connecting.await?, None)),
    }
}

fn facts(quic: &quinn::Connection) -> ClientTls {
    let handshake = quic.handshake_data();
    let handshake = handshake.and_then(|data| data.downcast::<quic::Handshake>().ok());
    let chain = quic.peer_identity();
    let chain =
        chain.and_then(|chain| chain.downcast::<Vec<rustls_pki_types::CertificateDer<'static>>>().ok());
    ClientTls {
        cipher: handshake.as_ref().and_then(|data| data.suite).unwrap_or("unknown"),
        server_name: handshake.and_then(|data| data.server_name.as_deref().map(Arc::from)),
        version: "TLSv1.3",
        ..super::client_tls::shown(chain.as_deref().map_or(&[], |chain| chain))
    }
}

/// One connection.
struct Server<'w> {
    worker: &'w Arc<Worker>,
    entry: &'w ConnectionControl,
    client: Arc<Client>,
    link: Arc<H3Link>,
    end: IdleEnd,
    /// The number after the last request's stream.
    next: u64,
    /// Streams that the client may have open once it uses half of those that it was allowed at first.
    more_streams: Option<u32>,
    /// Until the handshake is over.
    shaking: Option<Shaking>,
}

/// How long a client of a gateway that drains has for its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(1);
/// How long a connection without requests keeps what the next ones would need again.
const REST: Duration = Duration::from_secs(1);

/// How far the end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    /// Told that we will go; requests that come are still taken.
    Announced,
    /// Requests that come are not looked at.
    Final,
}

/// Ends a connection that is drained, or has no requests for a while.
struct IdleEnd {
    leaving: Leaving,
    timer: Timer,
    timeout: Duration,
    /// Until memory is given back.
    rest: Timer,
    resting: bool,
}

impl IdleEnd {
    fn new(timeout: Duration) -> Self {
        let (timer, rest) = (Timer::default(), Timer::default());
        Self { leaving: Leaving::No, timer, timeout, rest, resting: false }
    }

    /// Ready once, when nothing has been under way for a while.
    fn poll_rest(&mut self, cx: &mut Context<'_>, is_idle: bool) -> Poll<()> {
        if !is_idle {
            self.rest.clear();
            self.resting = false;
            return Poll::Pending;
        }
        if self.resting {
            return Poll::Pending;
        }
        if !self.rest.is_set() {
            self.rest.set(REST);
        }
        let rest = self.rest.poll_elapsed(cx);
        self.resting = rest.is_ready();
        rest
    }
}

/// Rejects a request that the client may send again elsewhere (RFC 9114 §5.2).
fn reject(mut send: quinn::SendStream, mut recv: quinn::RecvStream) {
    drop(send.reset(Code::REQUEST_REJECTED.into()));
    drop(recv.stop(Code::REQUEST_REJECTED.into()));
}

impl Server<'_> {
    /// Serves until the connection is over; whether the client has to be left the time to take its answers.
    async fn run(mut self, others: &mut Aside<'_>) -> bool {
        let (link, worker) = (self.link.clone(), self.worker);
        let mut slots = Slots::new();
        let mut accepting = pin!(link.quic.accept_bi());
        poll_fn(|cx| {
            slots.attend();
            self.poll_shaken(cx);
            for _ in 0..MAX_TURNS {
                let mut moved = slots.run(|| worker.panicked());
                if others.poll(cx).is_ready() {
                    return Poll::Ready(false);
                }
                while let Poll::Ready(accepted) = accepting.as_mut().poll(cx) {
                    let Ok((send, recv)) = accepted else { return Poll::Ready(false) };
                    accepting.set(link.quic.accept_bi());
                    moved = true;
                    if let Some(arrival) = self.accept(send, recv) {
                        let link = &link;
                        slots.start(arrival, |job_slot| work(worker, link.clone(), self.entry, job_slot));
                        self.allow_streams(slots.busy());
                    }
                }
                match self.look_after(cx, slots.is_idle()) {
                    Poll::Ready(true) => return Poll::Ready(true),
                    Poll::Ready(false) => moved = true,
                    Poll::Pending => {}
                }
                if self.end.poll_rest(cx, slots.is_idle()).is_ready() {
                    slots.rest();
                }
                if !moved && slots.watch(cx) {
                    return Poll::Pending;
                }
                if !has_budget_remaining() {
                    break;
                }
            }
            // Others want their turn; there is more to do here.
            slots.watch(cx);
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    /// Looks whether the handshake is over.
    fn poll_shaken(&mut self, cx: &mut Context<'_>) {
        let Some(shaking) = &mut self.shaking else { return };
        if pin!(&mut shaking.over).poll(cx).is_pending() {
            return;
        }
        // A connection that failed looks the same, and proves nothing.
        if self.link.quic.close_reason().is_none() {
            shaking.handshake.finish();
            let Client { peer, local, trusted, .. } = *self.client;
            let withdrawn = self.client.tls.as_ref().and_then(|tls| tls.withdrawn.clone());
            let facts = ClientTls { withdrawn, ..facts(&self.link.quic) };
            self.client = Arc::new(Client::new(peer, local, trusted, Some(facts)));
        }
        self.shaking = None;
    }

    /// A request's stream, if it is looked at.
    fn accept(&mut self, send: quinn::SendStream, recv: quinn::RecvStream) -> Option<NewStream> {
        if self.end.leaving == Leaving::Final {
            reject(send, recv);
            return None;
        }
        self.next = self.next.max(u64::from(recv.id()) + 4);
        let peer = self.link.quic.remote_address();
        if peer != self.client.peer {
            // The client has moved; limits and logs go by where it is now.
            let Client { local, trusted, ref tls, .. } = *self.client;
            let mut client = Client::new(peer, local, trusted, tls.clone());
            client.handshake.clone_from(&self.client.handshake);
            self.client = Arc::new(client);
        }
        Some(NewStream { send, recv, client: self.client.clone() })
    }

    /// Allows the client more streams where it has so many open that it may want them.
    fn allow_streams(&mut self, open: usize) {
        if open >= FIRST_STREAMS as usize / 2
            && let Some(most) = self.more_streams.take()
        {
            self.link.quic.set_max_concurrent_bi_streams(most.into());
        }
    }

    /// Drains and silence. Ready with true when the connection is over, with false when it has come nearer to that.
    fn look_after(&mut self, cx: &mut Context<'_>, is_idle: bool) -> Poll<bool> {
        self.entry.watch(cx);
        let end = &mut self.end;
        if !is_idle {
            self.entry.is_in_use();
        }
        match end.leaving {
            Leaving::No if self.entry.is_draining() || (is_idle && self.entry.leaves_when_idle()) => {
                end.leaving = Leaving::Announced;
                self.link.goaway(MAX_VARINT - 3);
                // A client that has just come has not sent its first request.
                let least = if self.next == 0 { FIRST_REQUEST } else { Duration::ZERO };
                end.timer.set((self.link.quic.rtt() * GOAWAY_ROUND_TRIPS).max(least));
                Poll::Ready(false)
            }
            Leaving::No => {
                match is_idle {
                    false => end.timer.clear(),
                    true if !end.timer.is_set() => end.timer.set(end.timeout),
                    true => {}
                }
                if end.timer.poll_elapsed(cx).is_pending() {
                    return Poll::Pending;
                }
                end.leaving = Leaving::Announced;
                self.link.goaway(MAX_VARINT - 3);
                end.timer.set(self.link.quic.rtt() * GOAWAY_ROUND_TRIPS);
                Poll::Ready(false)
            }
            Leaving::Announced if end.timer.poll_elapsed(cx).is_ready() => {
                end.leaving = Leaving::Final;
                self.link.goaway(self.next);
                Poll::Ready(false)
            }
            Leaving::Final if is_idle => Poll::Ready(true),
            _ => Poll::Pending,
        }
    }
}
