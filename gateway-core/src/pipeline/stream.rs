//! The way of every session: chain, balance, open, relay. The twin of `pipeline/http.rs`.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use http::HeaderMap;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::balance::{Ask, AttemptOutcome, Flight, Target};
use crate::config::consumer::Consumers;
use crate::config::model::Traffic;
use crate::http::reply::Cause;
use crate::pipeline::between::Monitor;
use crate::pipeline::revocation::{Beside, Current, Metering, revoked};
use crate::pipeline::websocket;
use crate::plugin::Chain;
use crate::plugin::chain::{Panicked, guarded};
use crate::plugin::seat::Around;
use crate::record::{Recorder, SessionRecord};
use crate::snapshot::{ProxyState, Route};
use crate::stream::cut::Cut;
use crate::stream::drain::Drain;
use crate::stream::pacer::SessionMeters;
use crate::stream::relay::{Carried, RelayOutcome, RelayTimeouts, Switched};
use crate::stream::session::Session;
use crate::stream::sessions::About;

/// Opens streams or datagram flows to targets. Implemented by the worker, and by fakes in tests.
pub trait Opener: Send + Sync + 'static {
    /// The target's end.
    type Target: Send;
    /// Whether an opened way proves that the target is there; for datagrams it proves nothing.
    const CONNECTS: bool = true;

    /// Opens a stream to a target.
    fn open(
        &self,
        route: &Route,
        target: &Target,
        session: &Session,
    ) -> impl Future<Output = Result<Self::Target, OpenFailure>> + Send;
}

/// Why no stream or flow to a target was opened.
#[derive(Debug)]
pub struct OpenFailure {
    /// The row of the reply table that names it.
    pub cause: Cause,
    /// For operators; never for the client.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl From<Cause> for OpenFailure {
    fn from(cause: Cause) -> Self {
        Self { cause, source: None }
    }
}

/// Carries bytes between a client and the target opened for it.
pub trait Carrier: Opener {
    /// The client's end.
    type Client: Send;

    /// Carries bytes until the session ends, by way of the plugins that see them, as fast as its meters allow; `carried` counts
    /// along.
    fn carry(
        &self,
        route: &Route,
        client: &mut Self::Client,
        target: &mut Self::Target,
        monitor: &Monitor<'_>,
        carried: &mut Carried,
    ) -> impl Future<Output = RelayOutcome> + Send;
}

/// What a session is served by.
pub struct Serving<'s> {
    /// Its proxy.
    pub route: &'s Arc<Route>,
    /// Who may be named as a caller.
    pub consumers: &'s Consumers,
    /// The protocol, as records call it.
    pub protocol: &'static str,
    /// Says when the session has to end because its proxy or its caller is gone.
    pub current: Option<Arc<dyn Current>>,
}

/// Serves one session from its handshake to its record.
pub async fn serve<C: Carrier>(
    carrier: &C,
    recorder: &dyn Recorder,
    serving: Serving<'_>,
    session: Session,
    client: &mut C::Client,
) {
    let Serving { route, consumers, protocol, current } = serving;
    let around = Around { state: route, consumers, target: None };
    let mut ending = SessionEnding::new(recorder, Some((&route.chain, around)), protocol, session);
    if route.quarantine.is_some() {
        ending.reason = Cause::Quarantined.reason();
        return;
    }
    match guarded(std::pin::pin!(route.chain.connect(&mut ending.session, around))).await {
        Ok(Ok(())) => {}
        Ok(Err(refusal)) => {
            ending.reason = refusal.reason;
            return;
        }
        Err(Panicked) => {
            recorder.panicked();
            ending.reason = Cause::Internal.reason();
            return;
        }
    }
    // On the heap while it lasts: what is carried afterwards may last for hours.
    let mut target = match Box::pin(open(carrier, route, &ending.session)).await {
        Ok(opened) => {
            ending.target = Some(opened.picked);
            ending.flight = opened.flight;
            opened.end
        }
        Err(failed) => {
            ending.target = failed.picked;
            ending.reason = failed.cause.reason();
            return;
        }
    };
    let about = about(protocol, route, &ending.session);
    let around = around.with_target(ending.target);
    let meters = Arc::new(SessionMeters::new(route.chain.meters(&ending.session, around)));
    ending.meters = Some(meters.clone());
    let metering = Metering { session: &ending.session, chain: &route.chain, meters: &meters };
    let mut revoked = Beside::new(revoked(current, about, ending.session.identity.clone(), Some(metering)));
    let cut = Cut::default();
    let monitor =
        Monitor { chain: &route.chain, around, session: &ending.session, cut: &cut, meters: &meters };
    let mut carry = pin!(carrier.carry(route, client, &mut target, &monitor, &mut ending.carried));
    let carrying = poll_fn(|cx| match carry.as_mut().poll(cx) {
        Poll::Ready(end) => Poll::Ready(end.reason()),
        Poll::Pending => revoked.poll(cx).map(Cause::reason),
    });
    let ended = match monitor.sees_bytes() {
        false => carrying.await,
        // A plugin that panics costs the session that it was called for.
        true => guarded(pin!(carrying)).await.unwrap_or_else(|Panicked| {
            recorder.panicked();
            Cause::Internal.reason()
        }),
    };
    ending.reason = cut.reason().unwrap_or(ended);
}

/// What an exchange that switched protocols leaves to its session.
pub(crate) struct Tunnelled<'r> {
    pub(crate) recorder: &'r dyn Recorder,
    pub(crate) drain: &'r Drain,
    pub(crate) current: Option<Arc<dyn Current>>,
    pub(crate) chain: &'r Chain,
    pub(crate) around: Around<'r>,
    pub(crate) flight: Flight,
}

/// Carries an exchange that switched protocols to its end, as a session.
pub(crate) async fn tunnel<'r>(tunnelled: Tunnelled<'r>, session: Session, ends: Switched<'_>) {
    let Tunnelled { recorder, drain, current, chain, around, flight } = tunnelled;
    let mut ending = SessionEnding::new(recorder, Some((chain, around)), "websocket", session);
    ending.target = around.target;
    ending.flight = flight;
    let Traffic::Http(http) = &around.state.proxy.traffic else { return };
    let timeouts = RelayTimeouts { idle: http.websocket.idle, lifetime: http.websocket.lifetime };
    let max_message = http.websocket.max_message;
    // Both ends are told by the close handshake of a drain, also when only this session has to go.
    let (own, forced) = (Drain::default(), OnceLock::new());
    let meters = Arc::new(SessionMeters::new(chain.meters(&ending.session, around)));
    let cut = Cut::default();
    let rules =
        websocket::Rules { timeouts, max_message, chain, around, drain: &own, meters: &meters, cut: &cut };
    let about = about("websocket", around.state, &ending.session);
    ending.meters = Some(meters.clone());
    let metering = Metering { session: &ending.session, chain, meters: &meters };
    let mut revoked = Beside::new(revoked(current, about, ending.session.identity.clone(), Some(metering)));
    let mut told = pin!(drain.told());
    let mut drained = drain.watch(told.as_mut());
    let mut carry = pin!(websocket::carry(ends, &ending.session, rules, &mut ending.carried));
    let carrying = poll_fn(|cx| {
        if !own.has_begun() {
            if drained.poll(cx).is_ready() || cut.reason().is_some() {
                own.begin();
            } else if let Poll::Ready(cause) = revoked.poll(cx) {
                forced.get_or_init(|| cause);
                own.begin();
            }
        }
        carry.as_mut().poll(cx)
    });
    // A plugin that panics costs the WebSocket that it was called for, and nothing beside it on the same connection.
    ending.reason = match guarded(pin!(carrying)).await {
        Ok(end) => {
            let forced = forced.get().map(|cause| cause.reason());
            cut.reason().or(forced).unwrap_or_else(|| end.reason())
        }
        Err(Panicked) => {
            recorder.panicked();
            Cause::Internal.reason()
        }
    };
}

/// How a session is listed while it is open.
fn about(protocol: &'static str, route: &ProxyState, session: &Session) -> About {
    let consumer = session.identity.as_ref().map(|identity| identity.name.clone());
    let (client, port) = (session.client_address, session.client.port);
    let (proxy, owner) = (route.proxy.id.clone(), route.proxy.owner().cloned());
    About { protocol, proxy, owner, consumer, client, port }
}

/// Gets a request to switch protocols, or the answer that agrees, ready for a chain that reads messages.
pub(crate) fn make_readable(route: &Route, headers: &mut HeaderMap) {
    if route.chain.reads_messages() {
        websocket::without_extensions(headers);
    }
}

/// Records a session that ended before a proxy was found for it.
pub fn refuse(recorder: &dyn Recorder, protocol: &'static str, session: Session, reason: &'static str) {
    SessionEnding::new(recorder, None, protocol, session).reason = reason;
}

/// A target that took the session.
pub struct OpenedTarget<'r, T> {
    /// The target's end.
    pub end: T,
    /// Which target it is.
    pub picked: &'r Arc<Target>,
    /// Keeps the session counted.
    pub flight: Flight,
}

/// No target took the session.
#[derive(Debug)]
pub struct Failed<'r> {
    /// Why the last one did not.
    pub cause: Cause,
    /// The last one, if any was tried.
    pub picked: Option<&'r Target>,
}

/// How often a session looks for another target because others were quicker to take the last place at one.
const MAX_OVERTAKEN: u32 = 3;

/// Tries targets until one takes the session; nothing has been sent yet, so each may be tried. Once that has taken as long as one
/// target has to answer, no third one is tried: a client waits for at most two that do not answer.
///
/// # Errors
/// When each was tried, or none may be.
pub async fn open<'r, O: Opener>(
    opener: &O,
    route: &'r Route,
    session: &Session,
) -> Result<OpenedTarget<'r, O::Target>, Failed<'r>> {
    let mut tried: SmallVec<[usize; 4]> = SmallVec::new();
    let address = session.client_address.to_string();
    let hash_key = route.targets.hash_on().map(|_| address.as_bytes());
    let mut failed = Failed { cause: Cause::NoTarget, picked: None };
    let mut overtaken = 0;
    let begun = Instant::now();
    loop {
        let started = Instant::now();
        let breakers = route.breakers.as_deref();
        let ask =
            Ask { hash_key, tried: &tried, subset: route.subset.as_deref(), breakers, ..Ask::any(started) };
        let pick = match route.targets.pick(&ask) {
            Some(pick) => Some(pick),
            None => Box::pin(route.targets.wait(&ask)).await,
        };
        let Some(pick) = pick else { return Err(failed) };
        if tried.contains(&pick.index) {
            return Err(failed);
        }
        let picked = pick.target;
        let opened = opener.open(route, picked, session).await;
        let (now, index) = (Instant::now(), pick.index);
        match opened {
            Ok(end) => {
                let outcome = match O::CONNECTS {
                    true => AttemptOutcome::Connected { took: now - started },
                    false => AttemptOutcome::Cancelled,
                };
                let settled = pick.report(outcome, now);
                return Ok(OpenedTarget { end, picked, flight: settled.flight });
            }
            // Others took what was left of its connections in the meantime.
            Err(OpenFailure { cause: Cause::NoTarget, .. }) if overtaken < MAX_OVERTAKEN => overtaken += 1,
            Err(OpenFailure { cause: Cause::NoTarget, .. }) => return Err(failed),
            Err(OpenFailure { cause, source }) => {
                let detail = || source.as_ref().map(ToString::to_string).unwrap_or_default();
                picked.note_failure(cause.reason(), detail, now);
                drop(pick.report(AttemptOutcome::ConnectFailed, now));
                failed = Failed { cause, picked: Some(picked) };
                tried.push(index);
                let is_late = tried.len() > 1 && now - begun >= route.proxy.timeouts.connect;
                if is_late || tried.len() >= route.targets.list().len() {
                    return Err(failed);
                }
            }
        }
    }
}

/// What is known of a session so far; writes its record when it goes, however it goes.
struct SessionEnding<'r> {
    recorder: &'r dyn Recorder,
    session: Session,
    plugins: Option<(&'r Chain, Around<'r>)>,
    target: Option<&'r Target>,
    protocol: &'static str,
    reason: &'static str,
    carried: Carried,
    meters: Option<Arc<SessionMeters>>,
    flight: Flight,
}

impl<'r> SessionEnding<'r> {
    fn new(
        recorder: &'r dyn Recorder,
        plugins: Option<(&'r Chain, Around<'r>)>,
        protocol: &'static str,
        session: Session,
    ) -> Self {
        Self {
            recorder,
            session,
            plugins,
            target: None,
            protocol,
            // What it is called when the future is dropped: the worker ended it.
            reason: RelayOutcome::Drained.reason(),
            carried: Carried::default(),
            meters: None,
            flight: Flight::default(),
        }
    }
}

impl Drop for SessionEnding<'_> {
    fn drop(&mut self) {
        let duration: Duration = self.session.started.elapsed();
        if self.reason == RelayOutcome::Drained.reason() && self.session.client.is_withdrawn() {
            self.reason = Cause::Revoked.reason();
        }
        let carried = self.carried;
        let uncounted = self.meters.as_ref().map_or(carried, |meters| meters.live.uncounted_of(carried));
        let record = SessionRecord {
            session: &self.session,
            route: self.plugins.map(|(_, around)| around.state),
            target: self.target,
            protocol: self.protocol,
            reason: self.reason,
            duration,
            bytes_up: self.carried.up,
            bytes_down: self.carried.down,
            dropped: 0,
            uncounted,
        };
        if let Some((chain, around)) = self.plugins {
            let panics = chain.close(&record, around.with_target(self.target));
            (0..panics.0).for_each(|_| self.recorder.panicked());
        }
        drop(std::mem::take(&mut self.flight));
        self.recorder.session(&record);
    }
}

#[cfg(test)]
mod tests;
