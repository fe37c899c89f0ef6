//! Shared connections: choosing one, making another in time, waiting when all are full.

use std::sync::Arc;

use gateway_core::balance::ConnectionPlace;
use gateway_core::config::model::{BackendHttp, PoolRules};
use gateway_core::http::body::Body;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::downstream::Downstream;
use gateway_core::http::reply::Cause;
use gateway_core::http::upstream::{Call, Failure, TargetResponse};
use gateway_core::pool::Choice;
use gateway_core::pool::multiplex::{ConnectionId, Dial};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::dial::{Destination, Dialled};
use super::dial_error::DialError;
use super::{Inner, Version, h2, key, wanted};

/// What to do about a shared connection, decided without waiting.
enum Plan {
    Use(h2::H2Connection, h2::Stream, Option<Dial>),
    Dial(Dial),
    Wait,
}

/// Tells those who wait for a dial that it is over, however it ended: also when whoever dialled was dropped half-way.
struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

/// Whether HTTP/2 is spoken to the target only because the client's request is gRPC: no setting says so, and no handshake.
fn is_guessed(call: &Call<'_>) -> bool {
    call.dialect == Dialect::Grpc
        && !call.backend.scheme.is_encrypted()
        && matches!(call.backend.http_version, BackendHttp::Auto | BackendHttp::Same)
}

impl Inner {
    /// Sends over a shared connection, making one where there is none with room.
    pub(super) async fn share<D: Downstream>(
        self: &Arc<Self>,
        call: &Call<'_>,
        body: Body,
        downstream: &mut D,
    ) -> Result<TargetResponse, Failure> {
        match self.room(call).await {
            Ok((connection, stream)) => {
                let id = stream.connection();
                // Only the first calls of a connection can show that it was guessed wrong.
                let guessed = (is_guessed(call) && !connection.has_spoken()).then(|| connection.clone());
                let sent = h2::send(connection, stream, call, body, downstream).await;
                if let Err(failure) = &sent
                    && failure.cause == Cause::UpstreamTimeout
                {
                    self.retire(id);
                }
                let Some(connection) = guessed else { return sent };
                match sent {
                    Err(failure) if self.is_wrong_guess(call, &connection, failure.cause) => {
                        let said =
                            failure.source.as_ref().map_or_else(String::new, |said| format!(": {said}"));
                        let source = format!("the target does not speak HTTP/2, which gRPC needs{said}");
                        Err(Failure { cause: Cause::VersionUnsupported, ..failure }.source(source))
                    }
                    sent => {
                        if sent.is_ok() {
                            self.note_http2(call);
                        }
                        sent
                    }
                }
            }
            Err(error @ DialError::NoHttp2) if wanted(call) != BackendHttp::Http2 => {
                // The target spoke HTTP/2 when it was learned and doesn't any more: it is to be learned anew, at once.
                self.forget_version(call);
                Err(Failure { stale: true, ..error.into_failure(body) })
            }
            Err(error) => Err(error.into_failure(body)),
        }
    }

    /// Whether a target has never spoken HTTP/2. That it does not begin to when a client asks for gRPC says nothing about its
    /// health: otherwise clients could take targets out of use by a content type.
    fn is_wrong_guess(&self, call: &Call<'_>, connection: &h2::H2Connection, cause: Cause) -> bool {
        let has_spoken = || {
            self.pools.try_borrow().is_ok_and(|pools| pools.learned.get(&key(call)) == Some(&Version::Http2))
        };
        let is_foreign = matches!(cause, Cause::UpstreamClosed | Cause::UpstreamGarbage);
        is_foreign && !connection.has_spoken() && !has_spoken()
    }

    /// The target has spoken HTTP/2.
    fn note_http2(&self, call: &Call<'_>) {
        if let Ok(mut pools) = self.pools.try_borrow_mut() {
            pools.learned.entry(key(call)).or_insert(Version::Http2);
        }
    }

    /// A connection with room for one more stream; waits for one no longer than a dial may take.
    async fn room(self: &Arc<Self>, call: &Call<'_>) -> Result<(h2::H2Connection, h2::Stream), DialError> {
        let timeout = call.timeouts.connect;
        let deadline = (!timeout.is_zero()).then(|| Instant::now() + timeout);
        loop {
            match self.plan(call) {
                Plan::Use(connection, stream, dial) => {
                    if let Some(dial) = dial {
                        self.dial_aside(call, dial);
                    }
                    return Ok((connection, stream));
                }
                Plan::Dial(dial) => Box::pin(self.dial_shared(&Destination::of(call), dial)).await?,
                Plan::Wait => {
                    // Nothing was awaited since the plan was made, so nobody can have notified in between.
                    let waiters = self.waiters(key(call));
                    let notified = waiters.notified();
                    match deadline {
                        None => notified.await,
                        Some(deadline) => {
                            tokio::time::timeout_at(deadline, notified).await.map_err(|_| DialError::Full)?;
                        }
                    }
                }
            }
        }
    }

    /// A connection on which nothing came may lead nowhere any more, which TCP finds out only after many minutes: it
    /// gets no new streams.
    fn retire(&self, id: Option<ConnectionId>) {
        if let (Some(id), Ok(mut pools)) = (id, self.pools.try_borrow_mut()) {
            pools.multiplex.retire(id);
        }
    }

    fn plan(&self, call: &Call<'_>) -> Plan {
        let Ok(mut pools) = self.pools.try_borrow_mut() else { return Plan::Wait };
        // Where connections are counted, one is made at a time, and a further one only while there is a place for it: waiting
        // for that would cost others theirs, or this worker the one it has.
        let (key, room) = (key(call), call.target.connection_limit().map(|limit| limit.has_place()));
        let keeps_to_one = room
            .is_some_and(|room| pools.multiplex.is_dialling(key) || !room && pools.multiplex.count(key) > 0);
        let one;
        let rules = match keeps_to_one {
            true => {
                one = PoolRules { http2_connections: 1, ..*call.backend.pool };
                &one
            }
            false => &call.backend.pool,
        };
        loop {
            match pools.multiplex.choose(key, rules) {
                Choice::Use { connection, lease, dial } => {
                    if connection.is_open() {
                        let stream = h2::Stream::new(lease, connection.waiters.clone());
                        return Plan::Use(connection.clone(), stream, dial);
                    }
                    let id = lease.connection();
                    drop(lease);
                    drop(dial);
                    drop(pools.multiplex.remove(id));
                }
                Choice::Dial(dial) => return Plan::Dial(dial),
                Choice::Wait | Choice::Full => return Plan::Wait,
            }
        }
    }

    /// Makes one more connection without anybody waiting for it.
    fn dial_aside(self: &Arc<Self>, call: &Call<'_>, dial: Dial) {
        let (inner, to) = (self.clone(), Destination::of(call).at_leisure());
        tokio::spawn(async move {
            if let Err(error) = inner.dial_shared(&to, dial).await {
                tracing::debug!(%error, "one more shared connection could not be made");
            }
        });
    }

    async fn dial_shared(self: &Arc<Self>, to: &Destination, dial: Dial) -> Result<(), DialError> {
        // In this order, so that the leave to dial has been given back when others are told.
        let _notifies = NotifyOnDrop(self.waiters(to.key));
        let dial = dial;
        let made = match self.dialler.dial(to).await {
            Ok(dialled) if dialled.version == Version::Http1 => Err(DialError::NoHttp2),
            Ok(Dialled { link, resolved, place, .. }) => {
                self.note_counted(to.key, place.as_ref().map(ConnectionPlace::kept));
                let opened = h2::H2Connection::open_on(link, &to.rules.http2, self.waiters(to.key), place);
                Ok(opened.at(resolved))
            }
            Err(error) => Err(error),
        };
        made.map(|connection| {
            if let Ok(mut pools) = self.pools.try_borrow_mut() {
                let (room, watched) = (connection.max_streams(), connection.clone());
                let id = pools.multiplex.dialled(dial, connection, room, &to.rules);
                self.follow_limit(&watched, id);
            }
        })
    }

    /// Keeps to the number of streams a target allows at a time, also when it changes its mind.
    fn follow_limit(self: &Arc<Self>, connection: &h2::H2Connection, id: ConnectionId) {
        let inner = Arc::downgrade(self);
        connection.watch_limit(move |streams| {
            let Some(inner) = inner.upgrade() else { return };
            let Ok(mut pools) = inner.pools.try_borrow_mut() else { return };
            pools.multiplex.limit(id, streams);
            if let Some(waiters) = pools.waiters.get(&id.key()) {
                waiters.notify_waiters();
            }
        });
    }

    /// Takes a connection made by somebody who did not know that it would be shared.
    pub(super) fn adopt(self: &Arc<Self>, dialled: Dialled, call: &Call<'_>) {
        let rules = &call.backend.pool;
        let Dialled { link, resolved, mut place, .. } = dialled;
        if let Some(place) = &mut place {
            place.rest();
        }
        self.note_counted(key(call), place.as_ref().map(ConnectionPlace::kept));
        let opened = h2::H2Connection::open_on(link, &rules.http2, self.waiters(key(call)), place);
        let connection = opened.at(resolved);
        if let Ok(mut pools) = self.pools.try_borrow_mut() {
            let (room, watched) = (connection.max_streams(), connection.clone());
            // Refused where the pool is full of others; then this one simply closes.
            if let Ok(id) = pools.multiplex.adopt(key(call), connection, room, rules) {
                self.follow_limit(&watched, id);
            }
        }
    }

    fn waiters(&self, key: u64) -> Arc<Notify> {
        match self.pools.try_borrow_mut() {
            Ok(mut pools) => pools.waiters.entry(key).or_default().clone(),
            Err(_) => Arc::default(),
        }
    }
}
