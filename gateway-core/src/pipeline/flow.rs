//! The account of one datagram session. Owned, unlike a stream's, since a table holds very many of them.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::time::Instant;

use crate::balance::{Flight, Target};
use crate::config::consumer::{Consumers, Identity};
use crate::health::passive::FailureKind;
use crate::http::reply::Cause;
use crate::limit::Meters;
use crate::limit::concurrency::Permit;
use crate::limit::meter::{self, Admitted};
use crate::pipeline::flow_session::FlowSession;
use crate::pipeline::stream::{Opener, open};
use crate::plugin::Decision;
use crate::plugin::chain::{Decided, Panicked, guarded};
use crate::plugin::seat::Around;
use crate::record::{Recorder, SessionRecord};
use crate::snapshot::{Route, Snapshot};
use crate::stream::relay::{Carried, RelayOutcome};
use crate::stream::session::{Direction, MessageKind, Session};

/// A datagram session from its first datagram to its record, which is written when this is dropped.
pub struct Flow {
    recorder: Arc<dyn Recorder>,
    route: Arc<Route>,
    target: Option<Arc<Target>>,
    session: FlowSession,
    protocol: &'static str,
    /// Why it ended; a stable word.
    pub reason: &'static str,
    /// Bytes so far.
    pub carried: Carried,
    flight: Flight,
    /// Only where something is counted.
    meters: Option<Box<Meters>>,
    /// Where the meters came from, once the configuration has changed.
    followed: Option<Arc<Route>>,
    /// Of `carried`, what metrics know of.
    counted: Carried,
    /// Datagrams that were too much.
    dropped: u64,
    /// Only where a plugin attends to sessions: there may be very many.
    consumers: Option<Box<Consumers>>,
    _permit: Permit,
}

impl Flow {
    /// A session that begins; `None` when the proxy has as many as it may.
    pub fn begin(
        recorder: Arc<dyn Recorder>,
        route: Arc<Route>,
        session: Session,
        protocol: &'static str,
        consumers: &Consumers,
    ) -> Option<Self> {
        let permit = route.sessions.permit()?;
        let consumers = route.chain.has_session_seats().then(|| Box::new(consumers.clone()));
        Some(Self {
            recorder,
            route,
            target: None,
            session: FlowSession::new(session),
            protocol,
            reason: "drained",
            carried: Carried::default(),
            flight: Flight::default(),
            meters: None,
            followed: None,
            counted: Carried::default(),
            dropped: 0,
            consumers,
            _permit: permit,
        })
    }

    /// The proxy that took it.
    pub fn route(&self) -> &Arc<Route> {
        &self.route
    }

    /// What carries it: `udp`, `dtls` or `quic`.
    pub fn protocol(&self) -> &'static str {
        self.protocol
    }

    /// The session as plugins see it.
    pub fn session(&mut self) -> &mut Session {
        self.session.whole()
    }

    /// Who the caller was recognised as.
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.session.identity()
    }

    /// The address that counts as the client's.
    pub fn client_address(&self) -> IpAddr {
        self.session.client_address()
    }

    /// The port of the gateway that the client sends to.
    pub fn port(&self) -> u16 {
        self.session.port()
    }

    /// When it began.
    pub fn started(&self) -> Instant {
        self.session.started()
    }

    /// The target turned out not to be there, which a datagram's sender learns only afterwards.
    pub fn target_failed(&self) {
        let Some(target) = &self.target else { return };
        let now = Instant::now();
        target.note_failure("target_refused", String::new, now);
        if let Some(change) = self.route.targets.failed(target, FailureKind::Connect, now) {
            self.recorder.health(target, change);
        }
    }

    /// Counts a datagram against the session's meters.
    #[inline]
    pub fn admit(&mut self, direction: Direction, bytes: usize) -> Admitted {
        let Some(meters) = &self.meters else { return Admitted::Yes };
        let meters = match direction {
            Direction::Up => &meters.up,
            Direction::Down => &meters.down,
        };
        let admitted = meter::admit(meters, bytes as u64, Instant::now());
        if admitted == Admitted::Dropped {
            self.count_dropped();
        }
        admitted
    }

    /// Counts a datagram that was dropped, for the record and at once for metrics.
    pub fn count_dropped(&mut self) {
        self.dropped += 1;
        self.recorder.session_dropped(self.protocol, 1);
    }

    /// Bytes that metrics have not counted yet; they are counted from now on.
    pub fn uncounted(&mut self) -> Carried {
        let counted = std::mem::replace(&mut self.counted, self.carried);
        Carried { up: self.carried.up - counted.up, down: self.carried.down - counted.down }
    }

    /// Takes the meters of the proxy as it is configured now.
    pub fn follow(&mut self, snapshot: &Snapshot) {
        let Some(route) = snapshot.by_id.get(&self.route.proxy.id) else { return };
        let known = self.followed.as_ref().unwrap_or(&self.route);
        if !Arc::ptr_eq(known, route) {
            self.take_meters(&route.clone(), &snapshot.consumers);
            self.followed = Some(route.clone());
            self.shrink();
        }
    }

    fn take_meters(&mut self, route: &Route, consumers: &Consumers) {
        let around = Around { state: route, consumers, target: self.target.as_deref() };
        let meters = route.chain.meters(self.session.whole(), around);
        self.meters = (!meters.is_empty()).then(|| Box::new(meters));
    }

    /// Forgets what no plugin will ask for before the record.
    fn shrink(&mut self) {
        if self.consumers.is_none() {
            self.session.shrink();
        }
    }

    /// Shows a datagram to the plugins that read messages, and hands on what they leave of it. What it returns is to be
    /// sent back to where the datagram came from.
    ///
    /// # Errors
    /// A word for the record, when one of them ends the session.
    pub fn message(
        &mut self,
        direction: Direction,
        payload: &[u8],
        forward: impl FnOnce(&[u8]),
    ) -> Result<Vec<Bytes>, &'static str> {
        let Self { route, consumers, target, session, recorder, .. } = self;
        let chain = &route.chain;
        let Some(consumers) = consumers.as_deref().filter(|_| chain.reads_messages()) else {
            forward(payload);
            return Ok(Vec::new());
        };
        let around = Around { state: route, consumers, target: target.as_deref() };
        let session = &*session.whole();
        let mut payload = Bytes::copy_from_slice(payload);
        let mut from = 0;
        loop {
            let kind = MessageKind::Datagram;
            let decided =
                guard(recorder, || chain.message(session, direction, kind, &mut payload, around, from))?;
            match decided {
                Decided::Forward => {
                    forward(&payload);
                    return Ok(Vec::new());
                }
                Decided::Drop => return Ok(Vec::new()),
                Decided::Answer(answers) => return Ok(answers.into_iter().map(|(_, bytes)| bytes).collect()),
                Decided::Close(_) => return Err(RelayOutcome::Refused.reason()),
                Decided::Wait(mut decision, next) => {
                    // One loop serves all sessions of a port: nothing may wait in it.
                    let polled =
                        guard(recorder, || decision.as_mut().poll(&mut Context::from_waker(Waker::noop())))?;
                    match polled {
                        Poll::Ready(Decision::Forward(changed)) => (payload, from) = (changed, next),
                        Poll::Ready(Decision::Answer(answers)) => {
                            return Ok(answers.into_iter().map(|(_, bytes)| bytes).collect());
                        }
                        Poll::Ready(Decision::Close(_)) => return Err(RelayOutcome::Refused.reason()),
                        Poll::Ready(Decision::Drop) | Poll::Pending => return Ok(Vec::new()),
                    }
                }
            }
        }
    }

    /// Asks the plugins, picks a target and opens a way to it.
    ///
    /// # Errors
    /// A word for the record.
    pub async fn open<O: Opener>(&mut self, opener: &O) -> Result<O::Target, &'static str> {
        let route = self.route.clone();
        if route.quarantine.is_some() {
            return Err(Cause::Quarantined.reason());
        }
        if let Some(consumers) = &self.consumers {
            let around = Around { state: &route, consumers, target: None };
            let connecting = std::pin::pin!(route.chain.connect(self.session.whole(), around));
            match guarded(connecting).await {
                Ok(admitted) => admitted.map_err(|refusal| refusal.reason)?,
                Err(Panicked) => {
                    self.recorder.panicked();
                    return Err(Cause::Internal.reason());
                }
            }
        }
        if let Some(consumers) = self.consumers.take() {
            self.take_meters(&route, &consumers);
            self.consumers = Some(consumers);
        }
        match open(opener, &route, self.session.whole()).await {
            Ok(opened) => {
                self.target = Some(opened.picked.clone());
                self.flight = opened.flight;
                self.shrink();
                Ok(opened.end)
            }
            Err(failed) => Err(failed.cause.reason()),
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let uncounted = self.uncounted();
        let (session, target) = (&*self.session.whole(), self.target.as_deref());
        let record = SessionRecord {
            session,
            route: Some(&self.route),
            target,
            protocol: self.protocol,
            reason: self.reason,
            duration: session.started.elapsed(),
            bytes_up: self.carried.up,
            bytes_down: self.carried.down,
            dropped: self.dropped,
            uncounted,
        };
        if let Some(consumers) = self.consumers.as_deref() {
            let around = Around { state: &self.route, consumers, target };
            let panics = self.route.chain.close(&record, around);
            (0..panics.0).for_each(|_| self.recorder.panicked());
        }
        drop(std::mem::take(&mut self.flight));
        self.recorder.session(&record);
    }
}

/// One loop serves all sessions of a port: a plugin that panics costs the session that it was called for.
fn guard<T>(recorder: &Arc<dyn Recorder>, hook: impl FnOnce() -> T) -> Result<T, &'static str> {
    catch_unwind(AssertUnwindSafe(hook)).map_err(|_| {
        recorder.panicked();
        Cause::Internal.reason()
    })
}
