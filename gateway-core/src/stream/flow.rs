//! The account of one datagram session. Owned, unlike a stream's, since a table holds very many of them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::pipeline::{Opener, open};
use super::relay::{Carried, End};
use super::session::{Direction, Kind, Message, Passage, Session};
use crate::balance::{Flight, Target};
use crate::config::snapshot::Route;
use crate::http::reply::Cause;
use crate::limit::concurrency::Permit;
use crate::record::{Recorder, SessionRecord};

/// A datagram session from its first datagram to its record, which is written when this is dropped.
pub struct Flow {
    recorder: Arc<dyn Recorder>,
    route: Arc<Route>,
    target: Option<Arc<Target>>,
    session: Session,
    protocol: &'static str,
    /// Why it ended; a stable word.
    pub reason: &'static str,
    /// Bytes so far.
    pub carried: Carried,
    flight: Flight,
    _permit: Permit,
}

impl Flow {
    /// A session that begins; `None` when the proxy has as many as it may.
    pub fn begin(
        recorder: Arc<dyn Recorder>,
        route: Arc<Route>,
        session: Session,
        protocol: &'static str,
    ) -> Option<Self> {
        let permit = route.sessions.permit()?;
        Some(Self {
            recorder,
            route,
            target: None,
            session,
            protocol,
            reason: "drained",
            carried: Carried::default(),
            flight: Flight::default(),
            _permit: permit,
        })
    }

    /// The proxy that took it.
    pub fn route(&self) -> &Arc<Route> {
        &self.route
    }

    /// The session as plugins see it.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// The target turned out not to be there, which a datagram's sender learns only afterwards.
    pub fn target_failed(&self) {
        let Some(target) = &self.target else { return };
        if let Some(change) = target.failed(Instant::now()) {
            self.recorder.health(target, change);
        }
    }

    /// Shows a datagram to the plugins that read messages, and hands on what they leave of it.
    ///
    /// # Errors
    /// A word for the record, when one of them ends the session.
    pub fn message(
        &self,
        direction: Direction,
        payload: &[u8],
        forward: impl FnOnce(&[u8]),
    ) -> Result<(), &'static str> {
        let chain = &self.route.chain;
        if !chain.reads_messages() {
            forward(payload);
            return Ok(());
        }
        let mut payload = Bytes::copy_from_slice(payload);
        let message = Message { direction, kind: Kind::Datagram, payload: &mut payload };
        match chain.message(&self.session, message) {
            Passage::Forward => forward(&payload),
            Passage::Drop => {}
            Passage::Close(_) => return Err(End::Refused.reason()),
        }
        Ok(())
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
        route.chain.connect(&mut self.session).await?;
        match open(opener, &route, &self.session).await {
            Ok(opened) => {
                self.target = Some(opened.picked.clone());
                self.flight = opened.flight;
                Ok(opened.end)
            }
            Err(failed) => Err(failed.cause.reason()),
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let record = SessionRecord {
            session: &self.session,
            route: Some(&self.route),
            target: self.target.as_deref(),
            protocol: self.protocol,
            reason: self.reason,
            duration: self.session.started.elapsed(),
            bytes_up: self.carried.up,
            bytes_down: self.carried.down,
        };
        self.route.chain.close(&record);
        drop(std::mem::take(&mut self.flight));
        self.recorder.session(&record);
    }
}
