//! The control plane's side of the protocol: takes messages, returns messages and effects. It does no I/O and reads no clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::documents::{DocumentSet, Hash, Position};
use crate::message::{Findings, Hello, ToControl, ToEdge, Verdict};
use crate::view::View;

/// One connection of an edge.
pub type SessionId = u64;

/// How long an edge may take to serve or refuse a configuration before its connection is closed.
pub const APPLY_TIMEOUT: Duration = Duration::from_secs(300);

/// What the control plane has to do.
#[derive(Debug)]
pub enum ControlEffect {
    /// Send this to an edge.
    Send(SessionId, ToEdge),
    /// End a connection.
    Close(SessionId, &'static str),
    /// An edge has this revision of the epoch, and the views don't: read the store again. If it has no such revision, either, a
    /// backup was restored: begin another epoch by [`ControlCore::begin_epoch`].
    Recheck(u64),
}

/// What is known of an edge, connected or not.
#[derive(Debug, Clone, Default)]
pub struct EdgeState {
    /// The view that it gets.
    pub view: Arc<str>,
    /// Its connection.
    pub session: Option<SessionId>,
    /// As it said at its last connection.
    pub hello: Hello,
    /// What every worker of it serves.
    pub served: Option<Position>,
    /// What it could not use of that.
    pub findings: Findings,
    /// What it has refused, and why. It is not sent again to the same version of the edge.
    pub parked: Option<(Position, String)>,
    /// When it connected or disconnected, since the control plane's start.
    pub since: Duration,
    /// Differences of clocks beyond what certificates tolerate, in milliseconds; positive if the edge is ahead.
    pub skew: i64,
    version: String,
}

#[derive(Debug)]
struct Session {
    edge: Arc<str>,
    held: Option<Position>,
    /// What was sent and is neither served nor refused yet, and when.
    in_flight: Option<(Position, Duration)>,
}

/// The control plane.
#[derive(Debug, Default)]
pub struct ControlCore {
    views: BTreeMap<Arc<str>, View>,
    edges: BTreeMap<Arc<str>, EdgeState>,
    sessions: BTreeMap<SessionId, Session>,
    draining: Option<Duration>,
}

impl ControlCore {
    /// What is known of edges, by id.
    pub const fn edges(&self) -> &BTreeMap<Arc<str>, EdgeState> {
        &self.edges
    }

    /// A view.
    pub fn view(&self, name: &str) -> Option<&View> {
        self.views.get(name)
    }

    /// Names of all views.
    pub fn views(&self) -> impl Iterator<Item = &Arc<str>> {
        self.views.keys()
    }

    /// Connections.
    pub fn connected(&self) -> usize {
        self.sessions.len()
    }

    /// Edges that have something under way.
    pub fn in_flight(&self) -> usize {
        self.sessions.values().filter(|session| session.in_flight.is_some()).count()
    }

    /// An edge has connected and said what it has; `clock` is the time of now, as [`Hello::clock`].
    pub fn hello(
        &mut self,
        session: SessionId,
        edge: &Arc<str>,
        view: &Arc<str>,
        hello: Hello,
        now: Duration,
        clock: u64,
    ) -> Vec<ControlEffect> {
        let mut effects = Vec::new();
        let state = self.edges.entry(edge.clone()).or_default();
        if let Some(old) = state.session.replace(session) {
            // An edge has one connection: the older one has not noticed its end.
            self.sessions.remove(&old);
            effects.push(ControlEffect::Close(old, "the edge has connected again"));
        }
        if state.version != hello.version {
            // Another version may accept what the one before refused.
            state.parked = None;
            state.version.clone_from(&hello.version);
        }
        if hello.refused.is_some() {
            state.parked.clone_from(&hello.refused);
        }
        state.view = view.clone();
        state.since = now;
        state.served.clone_from(&hello.served);
        state.findings.clone_from(&hello.findings);
        state.skew =
            i64::try_from(hello.clock).unwrap_or(i64::MAX) - i64::try_from(clock).unwrap_or(i64::MAX);
        self.sessions
            .insert(session, Session { edge: edge.clone(), held: hello.held.clone(), in_flight: None });
        state.hello = hello;
        if let Some(delay) = self.draining {
            effects.push(ControlEffect::Send(session, ToEdge::Drain(delay)));
            return effects;
        }
        self.offer(session, now, true, &mut effects);
        effects
    }

    /// Takes a message of an edge.
    pub fn receive(&mut self, session: SessionId, message: ToControl, now: Duration) -> Vec<ControlEffect> {
        let mut effects = Vec::new();
        let Some(open) = self.sessions.get_mut(&session) else { return effects };
        match message {
            ToControl::Hello(_) => {
                self.disconnect(session, now);
                return vec![ControlEffect::Close(session, "a second hello")];
            }
            ToControl::Resync(_) => {
                open.held = None;
                open.in_flight = None;
            }
            ToControl::Verdict(position, verdict) => {
                let Some(state) = self.edges.get_mut(&open.edge) else { return effects };
                let is_final = matches!(verdict, Verdict::Served(_) | Verdict::Refused(_));
                match verdict {
                    Verdict::Received => open.held = Some(position.clone()),
                    Verdict::Compiled(findings) => state.findings = findings,
                    Verdict::Served(findings) => {
                        state.findings = findings;
                        state.served = Some(position.clone());
                        state.parked = None;
                    }
                    Verdict::Refused(reason) => state.parked = Some((position.clone(), reason)),
                }
                if !is_final || open.in_flight.as_ref().is_none_or(|(sent, _)| sent.hash != position.hash) {
                    return effects;
                }
                open.in_flight = None;
            }
        }
        self.offer(session, now, false, &mut effects);
        effects
    }

    /// A connection has ended.
    pub fn disconnect(&mut self, session: SessionId, now: Duration) {
        let Some(closed) = self.sessions.remove(&session) else { return };
        if let Some(state) = self.edges.get_mut(&closed.edge)
            && state.session == Some(session)
        {
            state.session = None;
            state.since = now;
        }
    }

    /// A view has other documents, or another position.
    pub fn advance(
        &mut self,
        view: &Arc<str>,
        epoch: &Arc<str>,
        revision: u64,
        documents: DocumentSet,
        now: Duration,
    ) -> Vec<ControlEffect> {
        let is_epoch = self.views.get(view).is_none_or(|view| view.position().epoch != *epoch);
        match self.views.get_mut(view) {
            Some(view) => view.advance(epoch.clone(), revision, documents),
            None => {
                self.views.insert(view.clone(), View::new(epoch.clone(), revision, documents));
            }
        }
        self.offer_all(is_epoch, now, |of| of == view)
    }

    /// The store is not the one that it was: a backup was restored.
    pub fn begin_epoch(&mut self, epoch: &Arc<str>, now: Duration) -> Vec<ControlEffect> {
        for view in self.views.values_mut() {
            let (revision, documents) = (view.position().revision, view.documents().clone());
            view.advance(epoch.clone(), revision, documents);
        }
        self.offer_all(true, now, |_| true)
    }

    /// A view that no edge gets any more.
    pub fn forget_view(&mut self, view: &str) {
        self.views.remove(view);
    }

    /// An edge gets another view.
    pub fn move_edge(&mut self, edge: &str, view: &Arc<str>, now: Duration) -> Vec<ControlEffect> {
        let mut effects = Vec::new();
        let Some(state) = self.edges.get_mut(edge) else { return effects };
        state.view = view.clone();
        if let Some(session) = state.session {
            self.offer(session, now, false, &mut effects);
        }
        effects
    }

    /// An edge is accepted no more.
    pub fn revoke(&mut self, edge: &str, reason: &str) -> Vec<ControlEffect> {
        let session = self.edges.remove(edge).and_then(|state| state.session);
        let Some(session) = session else { return Vec::new() };
        self.sessions.remove(&session);
        let revoked = ControlEffect::Send(session, ToEdge::Revoked(reason.to_owned()));
        vec![revoked, ControlEffect::Close(session, "revoked")]
    }

    /// This control plane stops: edges go to another one within this time.
    pub fn drain(&mut self, delay: Duration) -> Vec<ControlEffect> {
        self.draining = Some(delay);
        let send = |session: &SessionId| ControlEffect::Send(*session, ToEdge::Drain(delay));
        self.sessions.keys().map(send).collect()
    }

    /// Closes connections of edges that take too long.
    pub fn tick(&mut self, now: Duration) -> Vec<ControlEffect> {
        let is_late = |session: &Session| {
            session.in_flight.as_ref().is_some_and(|(_, sent)| now.saturating_sub(*sent) >= APPLY_TIMEOUT)
        };
        let late: Vec<SessionId> =
            self.sessions.iter().filter(|(_, session)| is_late(session)).map(|(id, _)| *id).collect();
        for session in &late {
            self.disconnect(*session, now);
        }
        late.into_iter().map(|session| ControlEffect::Close(session, "no verdict in time")).collect()
    }

    fn offer_all(
        &mut self,
        is_told: bool,
        now: Duration,
        is_meant: impl Fn(&Arc<str>) -> bool,
    ) -> Vec<ControlEffect> {
        let mut effects = Vec::new();
        if self.draining.is_some() {
            return effects;
        }
        let edges = self.edges.values().filter(|edge| is_meant(&edge.view));
        let sessions: Vec<SessionId> = edges.filter_map(|edge| edge.session).collect();
        for session in sessions {
            self.offer(session, now, is_told, &mut effects);
        }
        effects
    }

    /// Sends an edge what it lacks, unless something is under way or it has refused just that. With `is_told` it also learns that
    /// it lacks nothing.
    fn offer(&mut self, session: SessionId, now: Duration, is_told: bool, effects: &mut Vec<ControlEffect>) {
        let Some(open) = self.sessions.get_mut(&session) else { return };
        let Some(state) = self.edges.get(&open.edge) else { return };
        let Some(view) = self.views.get_mut(&state.view) else { return };
        if open.in_flight.is_some() {
            return;
        }
        let position = view.position().clone();
        if let Some(held) = open.held.as_ref().filter(|held| !held.may_be_followed_by(&position)) {
            effects.push(ControlEffect::Recheck(held.revision));
            return;
        }
        if open.held.as_ref().is_some_and(|held| held.hash == position.hash) {
            if is_told {
                effects.push(ControlEffect::Send(session, ToEdge::Unchanged(position.clone())));
                open.held = Some(position);
            }
            return;
        }
        let is_parked = |hash: Hash| state.parked.as_ref().is_some_and(|(parked, _)| parked.hash == hash);
        if is_parked(position.hash) {
            return;
        }
        let transfer = view.transfer(open.held.as_ref().map(|held| held.hash));
        open.in_flight = Some((position, now));
        effects.push(ControlEffect::Send(session, ToEdge::Transfer(transfer)));
    }
}
