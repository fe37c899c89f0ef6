//! The way to targets: a kept connection, else a new one, in whichever HTTP version the target speaks.
//!
//! HTTP/1.1 connections carry one exchange at a time and wait in [`Idle`] between two; HTTP/2 connections are shared.
//! A target whose version only its handshake can tell is asked once ([`Inner::learn`]), and the answer remembered.

mod alternative;
pub mod dial;
mod dial_error;
pub(crate) mod fastcgi;
pub mod h1;
pub mod h2;
mod h3;
mod interim;
pub(crate) mod placed;
mod recall;
mod shared;
pub(crate) mod socket;
mod stream;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use atomic_refcell::AtomicRefCell;
use gateway_core::balance::{ConnectionPlace, KeptConnections};
use gateway_core::config::model::BackendHttp;
use gateway_core::http::body::Body;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::downstream::Downstream;
use gateway_core::http::upstream::{Call, Failure, TargetResponse, Upstream};
use gateway_core::pool::{Idle, Multiplex};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::dns::Dns;
use crate::recorder::ConnectionRecorder;
use crate::tls::client::ClientConfigs;
use alternative::Alternatives;
use dial::{Destination, Dialled, Dialler};
use dial_error::DialError;
pub(crate) use recall::Recall;
pub use stream::Inbound;

/// A worker's way out.
#[derive(Clone)]
pub struct Outbound {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    dialler: Dialler,
    pools: AtomicRefCell<Pools>,
    /// Whether connections that are wanted elsewhere are given up.
    gives_up: AtomicBool,
}

/// A worker's kept connections. Only its own thread touches them: the cell checks, it never waits.
#[derive(Default)]
struct Pools {
    idle: Idle<Box<h1::H1Connection>>,
    multiplex: Multiplex<h2::H2Connection>,
    /// Which version a target's TLS settled on last, or what it has offered since; without TLS, whether it has spoken HTTP/2
    /// before. By pool key.
    learned: HashMap<u64, Version>,
    /// Rung when a shared connection was made or one of its streams ended, by pool key.
    waiters: HashMap<u64, Arc<Notify>>,
    /// HTTP/3 connections, by pool key.
    quic: HashMap<u64, Vec<Quic>>,
    /// Targets that did not answer over QUIC, and until when they are not asked again, by pool key.
    no_quic: HashMap<u64, Instant>,
    /// Targets that offer HTTP/3.
    alternatives: Alternatives,
    /// Those of targets that may have only so many connections, by pool key.
    counted: HashMap<u64, KeptConnections>,
    /// Held by the one exchange that finds out a target's version, by pool key.
    learning: HashMap<u64, Arc<tokio::sync::Mutex<()>>>,
}

/// A kept HTTP/3 connection. It keeps itself alive, so it has to be let go when nobody uses it any more.
struct Quic {
    connection: h3::H3Connection,
    /// Until when it is kept without being used; `None` is for ever.
    until: Option<Instant>,
}

/// What an upstream connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
    /// Over a connection that stands because the target has offered it; never what a dial over TCP comes to.
    Http3,
}

impl Quic {
    /// Whether it is of use to anybody.
    fn is_kept(&self, now: Instant) -> bool {
        let is_wanted = self.until.is_none_or(|until| until > now);
        self.connection.is_open() && is_wanted && self.connection.is_current(now)
    }
}

/// How often kept connections are looked through.
pub(crate) const SWEEP: std::time::Duration = std::time::Duration::from_secs(5);
/// How long a target that did not answer over QUIC is spoken to over TLS instead.
const NO_QUIC: std::time::Duration = std::time::Duration::from_secs(60);
/// Targets whose version is remembered; beyond that everything is learned anew.
const MAX_LEARNED: usize = 100_000;

impl Outbound {
    /// A way out with empty pools.
    pub(crate) fn new(dns: Arc<Dns>, tls: Arc<ClientConfigs>, recall: Arc<Recall>) -> Self {
        Self::recorded(dns, tls, recall, None)
    }

    /// The same; each new connection is told of.
    pub(crate) fn recorded(
        dns: Arc<Dns>,
        tls: Arc<ClientConfigs>,
        recall: Arc<Recall>,
        recorder: Option<Arc<dyn ConnectionRecorder>>,
    ) -> Self {
        let dialler = Dialler { dns, tls, recall, recorder };
        let (pools, gives_up) = (AtomicRefCell::default(), AtomicBool::new(false));
        Self { inner: Arc::new(Inner { dialler, pools, gives_up }) }
    }

    /// Sweeps again and again, for as long as anybody has this way out.
    pub(crate) fn swept(&self) -> impl Future<Output = ()> + use<> {
        let inner = Arc::downgrade(&self.inner);
        async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(inner) = inner.upgrade() else { return };
                Self { inner }.sweep();
            }
        }
    }

    /// Closes kept connections that have waited too long. To be called every [`SWEEP`].
    pub fn sweep(&self) {
        let Ok(mut pools) = self.inner.pools.try_borrow_mut() else { return };
        let now = Instant::now();
        pools.idle.sweep(now, |kept| kept.is_open() && kept.is_current(now));
        pools.multiplex.sweep(now, |shared| shared.is_open() && shared.is_current(now));
        pools.quic.retain(|_, several| {
            several.retain(|kept| kept.is_kept(now));
            !several.is_empty()
        });
        pools.sweep_alternatives(now);
        pools.sweep_counted();
        pools.no_quic.retain(|_, until| *until > now);
        pools.waiters.retain(|_, waiters| Arc::strong_count(waiters) > 1);
        pools.learning.retain(|_, lock| Arc::strong_count(lock) > 1);
        if pools.learned.len() > MAX_LEARNED {
            pools.learned.clear();
        }
    }

    /// Kept connections, idle and shared.
    pub fn kept(&self) -> usize {
        self.inner.pools.try_borrow().map_or(0, |pools| pools.idle.len() + pools.multiplex.len())
    }
}

impl Upstream for Outbound {
    async fn send<D: Downstream>(
        &self,
        call: &Call<'_>,
        body: &mut Body,
        downstream: &mut D,
    ) -> Result<TargetResponse, Failure> {
        if call.backend.http_version == BackendHttp::FastCgi {
            return Box::pin(fastcgi::send(&self.inner, call, body)).await;
        }
        if wanted(call) == BackendHttp::Http3
            && call.dialect != Dialect::Upgrade
            && let Some(connection) = Box::pin(self.inner.quic(call)).await
        {
            return Box::pin(h3::send(connection, call, std::mem::take(body), downstream)).await;
        }
        // What is rare is on the heap of its own: every exchange moves and holds the room that its longest way takes.
        let sent = match self.inner.version(call) {
            Some(Version::Http3) => {
                Box::pin(self.inner.send_alternative(call, std::mem::take(body), downstream)).await
            }
            version => self.inner.send_over_tcp(version, call, body, downstream).await,
        };
        if call.backend.alt_svc
            && let Ok(answer) = &sent
        {
            self.inner.note_alt_svc(call, answer);
        }
        sent
    }
}

/// Until when an HTTP/3 connection used now is kept.
fn kept_until(call: &Call<'_>) -> Option<Instant> {
    let idle = call.backend.pool.idle_timeout;
    (!idle.is_zero()).then(|| Instant::now() + idle)
}

impl Pools {
    /// What is known about a target and QUIC: a connection, or that it does not answer; `None` is nothing yet, or that
    /// one more is to be made because those there are carry all that the target allows.
    fn known_quic(&mut self, call: &Call<'_>) -> Option<Option<h3::H3Connection>> {
        let key = key(call);
        let rests = self.no_quic.get(&key).is_some_and(|until| *until > Instant::now());
        if let Some(several) = self.quic.get_mut(&key) {
            several.retain(|kept| kept.connection.is_open());
            let most = call.backend.pool.http3_connections.max(1);
            let kept = match several.iter().position(|kept| kept.connection.has_room()) {
                Some(at) => several.get_mut(at),
                None if several.len() < most && !rests => None,
                None => several.iter_mut().min_by_key(|kept| kept.connection.load()),
            };
            if let Some(kept) = kept {
                kept.until = kept_until(call);
                return Some(Some(kept.connection.clone()));
            }
            if !several.is_empty() {
                return None;
            }
        }
        rests.then_some(None)
    }
}

/// The trust domain a call's connection must belong to.
fn key(call: &Call<'_>) -> u64 {
    let number = call.pool_key;
    match call.backend.tls {
        None => number,
        // Numbers of keys never come near the upper half.
        Some(_) => number | crate::tls::client::edition() << 40,
    }
}

/// The connection, for one exchange alone. Where connections are counted, an exchange that waits for its place goes first.
fn occupied(
    mut kept: Box<h1::H1Connection>,
    call: &Call<'_>,
    body: &mut Body,
) -> Result<Box<h1::H1Connection>, Failure> {
    match kept.occupy(call.target.rules.max_connections) {
        true => Ok(kept),
        false => Err(DialError::ALL_BUSY.into_failure(std::mem::take(body))),
    }
}

/// The version to ask a new connection for.
fn wanted(call: &Call<'_>) -> BackendHttp {
    match call.backend.http_version {
        BackendHttp::Same if call.dialect == Dialect::Upgrade => BackendHttp::Http1,
        BackendHttp::Same => match call.client_version {
            http::Version::HTTP_3 if call.backend.scheme.is_encrypted() => BackendHttp::Http3,
            http::Version::HTTP_3 | http::Version::HTTP_2 => BackendHttp::Http2,
            _ if call.dialect == Dialect::Grpc => BackendHttp::Http2,
            _ => BackendHttp::Http1,
        },
        BackendHttp::Auto if call.dialect == Dialect::Grpc => BackendHttp::Http2,
        // An upgrade is an HTTP/1.1 affair unless the target is told to speak HTTP/2.
        BackendHttp::Auto if call.dialect == Dialect::Upgrade => BackendHttp::Http1,
        other => other,
    }
}

impl Inner {
    /// The version to use without asking; `None` when only a handshake can tell.
    fn version(&self, call: &Call<'_>) -> Option<Version> {
        match wanted(call) {
            // An adapter of its own asks for neither.
            BackendHttp::Http1 | BackendHttp::FastCgi => Some(Version::Http1),
            BackendHttp::Http2 => Some(Version::Http2),
            BackendHttp::Auto | BackendHttp::Http3 | BackendHttp::Same
                if !call.backend.scheme.is_encrypted() =>
            {
                Some(Version::Http1)
            }
            BackendHttp::Auto | BackendHttp::Http3 | BackendHttp::Same => {
                let (pools, key) = (self.pools.try_borrow().ok()?, key(call));
                match pools.learned.get(&key).copied() {
                    // Another proxy with the same target takes what it offers.
                    Some(Version::Http3) if !call.backend.alt_svc => pools.over_tcp(key),
                    version => version,
                }
            }
        }
    }

    /// Sends over TCP, to a target of this version.
    async fn send_over_tcp<D: Downstream>(
        self: &Arc<Self>,
        version: Option<Version>,
        call: &Call<'_>,
        body: &mut Body,
        downstream: &mut D,
    ) -> Result<TargetResponse, Failure> {
        match version {
            Some(Version::Http1) => {
                if let Some(kept) = self.take(key(call), call.begun) {
                    let kept = occupied(kept, call, body)?;
                    return h1::send(kept, self, call, body, downstream).await;
                }
                Box::pin(self.dial_and_send(call, std::mem::take(body), downstream)).await
            }
            // What a stream of a shared connection takes beyond a connection of one's own is not held by those who have one.
            Some(Version::Http2) => Box::pin(self.share(call, std::mem::take(body), downstream)).await,
            None | Some(Version::Http3) => Box::pin(self.learn(call, std::mem::take(body), downstream)).await,
        }
    }

    /// The target is to be asked again which version it speaks.
    fn forget_version(&self, call: &Call<'_>) {
        if let Ok(mut pools) = self.pools.try_borrow_mut() {
            pools.learned.remove(&key(call));
        }
    }

    /// An HTTP/3 connection; `None` when the target does not answer over QUIC, and TLS is to be tried.
    async fn quic(self: &Arc<Self>, call: &Call<'_>) -> Option<h3::H3Connection> {
        let key = key(call);
        let lock = {
            let mut pools = self.pools.try_borrow_mut().ok()?;
            match pools.known_quic(call) {
                Some(known) => return known,
                None => pools.learning.entry(key).or_default().clone(),
            }
        };
        let _turn = lock.lock().await;
        // Whoever had the turn before found out, one way or the other.
        let to = {
            let mut pools = self.pools.try_borrow_mut().ok()?;
            if let Some(known) = pools.known_quic(call) {
                return known;
            }
            // Where connections are counted, a further one is not worth the one that there is.
            let is_first = pools.quic.get(&key).is_none_or(Vec::is_empty);
            if is_first { Destination::of(call) } else { Destination::of(call).at_leisure() }
        };
        let dialled = self.dialler.dial_quic(&to).await;
        let mut pools = self.pools.try_borrow_mut().ok()?;
        match dialled {
            Ok(connection) => {
                drop(pools);
                self.note_counted(key, connection.place().map(ConnectionPlace::kept));
                pools = self.pools.try_borrow_mut().ok()?;
                let until = kept_until(call);
                pools.quic.entry(key).or_default().push(Quic { connection: connection.clone(), until });
                Some(connection)
            }
            Err(error) => {
                let several = pools.quic.get(&key).into_iter().flatten();
                let kept = several.min_by_key(|kept| kept.connection.load());
                let kept = kept.map(|kept| kept.connection.clone());
                if matches!(error, DialError::NoPlace { .. }) {
                    // Without one the request goes over TCP, waits for a place as well, and says so where there is none.
                    return kept;
                }
                if let Some(connection) = kept {
                    // One more could not be made; those there are will have room again.
                    tracing::debug!(%error, target = %call.target.authority(), "no other HTTP/3 connection");
                    pools.no_quic.insert(key, Instant::now() + NO_QUIC);
                    return Some(connection);
                }
                tracing::info!(%error, target = %call.target.authority(), "no HTTP/3; trying TLS for a while");
                pools.no_quic.insert(key, Instant::now() + NO_QUIC);
                None
            }
        }
    }

    /// A kept HTTP/1.1 connection that is still open.
    fn take(&self, key: u64, now: Instant) -> Option<Box<h1::H1Connection>> {
        let mut pools = self.pools.try_borrow_mut().ok()?;
        while let Some(mut kept) = pools.idle.take(key, now) {
            if kept.is_open() {
                kept.since = now;
                return Some(kept);
            }
        }
        None
    }

    /// Keeps a connection for the next exchange.
    fn keep(&self, mut connection: Box<h1::H1Connection>, home: &h1::Home) {
        let now = connection.since;
        if connection.is_current(now)
            && connection.may_stay(home.max_connections)
            && let Ok(mut pools) = self.pools.try_borrow_mut()
        {
            drop(pools.idle.put(home.key, connection, &home.rules, now));
        }
    }

    /// Sends over a connection of its own.
    async fn dial_and_send<D: Downstream>(
        self: &Arc<Self>,
        call: &Call<'_>,
        body: Body,
        downstream: &mut D,
    ) -> Result<TargetResponse, Failure> {
        match self.dialler.dial(&Destination::of(call).alone()).await {
            Ok(dialled) => self.send_over(dialled, call, body, downstream).await,
            Err(error) => Err(error.into_failure(body)),
        }
    }

    /// Sends over a connection just made, in the version it turned out to speak.
    async fn send_over<D: Downstream>(
        self: &Arc<Self>,
        dialled: Dialled,
        call: &Call<'_>,
        mut body: Body,
        downstream: &mut D,
    ) -> Result<TargetResponse, Failure> {
        let phases = Box::new(dialled.phases);
        let sent = if dialled.version == Version::Http2 {
            if let (None | Some(Version::Http1), Ok(mut pools)) =
                (self.version(call), self.pools.try_borrow_mut())
            {
                // It spoke HTTP/1.1 only when it was learned; a handshake a request would be the price of not noticing.
                pools.learned.insert(key(call), Version::Http2);
            }
            self.adopt(dialled, call);
            self.share(call, body, downstream).await
        } else {
            self.note_counted(key(call), dialled.place.as_ref().map(ConnectionPlace::kept));
            let made = h1::H1Connection::new(dialled.link, dialled.resolved, dialled.place);
            let made = occupied(Box::new(made), call, &mut body)?;
            h1::send(made, self, call, &mut body, downstream).await
        };
        sent.map(|mut answer| {
            answer.reused = false;
            answer.response.extensions_mut().insert(*phases);
            answer
        })
    }

    /// Sends to a target whose version is not known yet: one exchange finds out, the others wait for it.
    async fn learn<D: Downstream>(
        self: &Arc<Self>,
        call: &Call<'_>,
        mut body: Body,
        downstream: &mut D,
    ) -> Result<TargetResponse, Failure> {
        let lock = match self.pools.try_borrow_mut() {
            Ok(mut pools) => pools.learning.entry(key(call)).or_default().clone(),
            Err(_) => Arc::default(),
        };
        // Whoever has the turn may be waiting for a target that does not answer, and so would each one after it: nobody
        // waits for longer than connecting may take.
        let timeout = call.timeouts.connect;
        let turn = match timeout.is_zero() {
            true => lock.lock().await,
            false => match tokio::time::timeout(timeout, lock.lock()).await {
                Ok(turn) => turn,
                Err(_) => return Err(DialError::Timeout(timeout).into_failure(body)),
            },
        };
        let dialled = match self.version(call) {
            Some(Version::Http2) => {
                drop(turn);
                return self.share(call, body, downstream).await;
            }
            Some(Version::Http1) => {
                drop(turn);
                return match self.take(key(call), call.begun) {
                    Some(kept) => {
                        let kept = occupied(kept, call, &mut body)?;
                        h1::send(kept, self, call, &mut body, downstream).await
                    }
                    None => self.dial_and_send(call, body, downstream).await,
                };
            }
            None | Some(Version::Http3) => self.dialler.dial(&Destination::of(call)).await,
        };
        let dialled = match dialled {
            Ok(dialled) => dialled,
            Err(error) => return Err(error.into_failure(body)),
        };
        if let Ok(mut pools) = self.pools.try_borrow_mut() {
            pools.learn(key(call), dialled.version);
        }
        drop(turn);
        self.send_over(dialled, call, body, downstream).await
    }
}
