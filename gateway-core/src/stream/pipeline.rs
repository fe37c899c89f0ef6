//! The way of every session: chain, balance, open, relay. The twin of `http/pipeline.rs`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::relay::{Carried, End, Patience, Tunnel, relay};
use super::session::Session;
use crate::balance::{Ask, Flight, Outcome, Target};
use crate::config::model::Traffic;
use crate::config::snapshot::Route;
use crate::http::reply::Cause;
use crate::record::{Recorder, SessionRecord};

/// Opens streams to targets and carries bytes. Implemented by the worker, and by fakes in tests.
pub trait Carrier: Send + Sync + 'static {
    /// The client's end.
    type Client: Send;
    /// The target's end.
    type Target: Send;

    /// Opens a stream to a target.
    fn open(
        &self,
        route: &Route,
        target: &Target,
        session: &Session,
    ) -> impl Future<Output = Result<Self::Target, Cause>> + Send;

    /// Carries bytes until the session ends; `carried` counts along.
    fn carry(
        &self,
        route: &Route,
        ends: (&mut Self::Client, &mut Self::Target),
        carried: &mut Carried,
    ) -> impl Future<Output = End> + Send;
}

/// Serves one session from its handshake to its record.
pub async fn serve<C: Carrier>(
    carrier: &C,
    recorder: &dyn Recorder,
    (route, protocol): (&Arc<Route>, &'static str),
    session: Session,
    client: &mut C::Client,
) {
    let mut ending = Ending::new(recorder, Some(route), protocol, session);
    if route.quarantine.is_some() {
        ending.reason = Cause::Quarantined.reason();
        return;
    }
    if let Err(reason) = route.chain.connect(&mut ending.session).await {
        ending.reason = reason;
        return;
    }
    let mut target = match open(carrier, route, &mut ending).await {
        Ok(target) => target,
        Err(cause) => {
            ending.reason = cause.reason();
            return;
        }
    };
    let end = carrier.carry(route, (client, &mut target), &mut ending.carried).await;
    ending.reason = end.reason();
}

/// Carries an exchange that switched protocols to its end, as a session.
pub(crate) async fn tunnel<'r>(
    recorder: &'r dyn Recorder,
    (route, target): (&'r Route, &'r Target),
    session: Session,
    (client, far): (&mut Tunnel, &mut Tunnel),
    flight: Flight,
) {
    let mut ending = Ending::new(recorder, Some(route), "websocket", session);
    ending.target = Some(target);
    ending.flight = flight;
    let patience = match &route.proxy.traffic {
        Traffic::Http(rules) => Patience { idle: rules.websocket_idle, lifetime: rules.websocket_lifetime },
        Traffic::Stream(_) => return,
    };
    if let Err(reason) = route.chain.connect(&mut ending.session).await {
        ending.reason = reason;
        return;
    }
    let end = relay(client, far, patience, &mut ending.carried).await;
    ending.reason = end.reason();
}

/// Records a session that ended before a proxy was found for it.
pub fn refuse(recorder: &dyn Recorder, protocol: &'static str, session: Session, reason: &'static str) {
    Ending::new(recorder, None, protocol, session).reason = reason;
}

/// Tries targets until one takes the stream; nothing has been sent yet, so each may be tried.
async fn open<'r, C: Carrier>(
    carrier: &C,
    route: &'r Arc<Route>,
    ending: &mut Ending<'r>,
) -> Result<C::Target, Cause> {
    let mut tried: SmallVec<[usize; 4]> = SmallVec::new();
    let address = ending.session.client_address.to_string();
    let hash_key = route.targets.hash_on().map(|_| address.as_bytes());
    loop {
        let started = Instant::now();
        let ask = Ask { hash_key, tried: &tried, breakers: route.breakers.as_ref(), now: started };
        let pick = route.targets.pick(&ask).ok_or(Cause::NoTarget)?;
        if tried.contains(&pick.index) {
            return Err(Cause::ConnectFailed);
        }
        ending.target = Some(pick.target);
        let opened = carrier.open(route, pick.target, &ending.session).await;
        let (now, index) = (Instant::now(), pick.index);
        match opened {
            Ok(target) => {
                let settled = pick.report(Outcome::Connected { took: now - started }, now);
                ending.flight = settled.flight;
                return Ok(target);
            }
            Err(cause) => {
                drop(pick.report(Outcome::ConnectFailed, now));
                tried.push(index);
                if tried.len() >= route.targets.list().len() {
                    return Err(cause);
                }
            }
        }
    }
}

/// What is known of a session so far; writes its record when it goes, however it goes.
struct Ending<'r> {
    recorder: &'r dyn Recorder,
    session: Session,
    route: Option<&'r Route>,
    target: Option<&'r Target>,
    protocol: &'static str,
    reason: &'static str,
    carried: Carried,
    flight: Flight,
}

impl<'r> Ending<'r> {
    fn new(
        recorder: &'r dyn Recorder,
        route: Option<&'r Route>,
        protocol: &'static str,
        session: Session,
    ) -> Self {
        Self {
            recorder,
            session,
            route,
            target: None,
            protocol,
            // What it is called when the future is dropped: the worker ended it.
            reason: End::Drained.reason(),
            carried: Carried::default(),
            flight: Flight::default(),
        }
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let duration: Duration = self.session.started.elapsed();
        let record = SessionRecord {
            session: &self.session,
            route: self.route,
            target: self.target,
            protocol: self.protocol,
            reason: self.reason,
            duration,
            bytes_up: self.carried.up,
            bytes_down: self.carried.down,
        };
        if let Some(route) = self.route {
            route.chain.close(&record);
        }
        drop(std::mem::take(&mut self.flight));
        self.recorder.session(&record);
    }
}
