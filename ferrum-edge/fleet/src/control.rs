//! The control plane's side of the protocol: takes messages, returns messages and effects. It does no I/O and reads no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::documents::{DocumentSet, Hash, Position};
use crate::message::{Abilities, Findings, Hello, ToControl, ToEdge, Verdict};
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
    pub abilities: Arc<Abilities>,
    /// What every worker of it serves.
    pub served: Option<Position>,
    /// What it could not use of that.
    pub findings: Findings,
    /// What it refuses, and why. It is not sent again until the edge is restarted.
    pub parked: Option<(Position, String)>,
    /// When it connected or disconnected, since the control plane's start.
    pub since: Duration,
    /// Differences of clocks beyond what certificates tolerate, in milliseconds; positive if the edge is ahead.
    pub skew: i64,
}

#[derive(Debug)]
struct Session {
    edge: Arc<str>,
    /// The view that it gets.
    view: Arc<str>,
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
    /// Connections by the view that they get.
    receivers: BTreeMap<Arc<str>, BTreeSet<SessionId>>,
    /// Edges, connected or not, by what they can do.
    kinds: BTreeMap<Arc<Abilities>, BTreeSet<Arc<str>>>,
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

    /// Whether a connected edge gets this view.
    pub fn is_received(&self, view: &str) -> bool {
        self.receivers.contains_key(view)
    }

    /// What edges can do, connected or not, each once.
    pub fn kinds(&self) -> impl Iterator<Item = &Arc<Abilities>> {
        self.kinds.keys()
    }

    /// The edges that can do exactly this.
    pub fn edges_of_kind(&self, kind: &Abilities) -> impl Iterator<Item = &Arc<str>> {
        self.kinds.get(kind).into_iter().flatten()
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
        let old = self.edges.get(edge).and_then(|state| state.session);
        if let Some(old) = old {
            // An edge has one connection: the older one has not noticed its end.
            self.close(old);
            effects.push(ControlEffect::Close(old, "the edge has connected again"));
        }
        let abilities = self.note_kind(edge, hello.abilities());
        let state = self.edges.entry(edge.clone()).or_default();
        state.session = Some(session);
        state.abilities = abilities;
        // An edge that was restarted refuses nothing yet: what kept it from serving a configuration may be mended.
        state.parked = hello.refused;
        state.view = view.clone();
        state.since = now;
        state.served = hello.served;
        state.findings = hello.findings;
        state.skew =
            i64::try_from(hello.clock).unwrap_or(i64::MAX) - i64::try_from(clock).unwrap_or(i64::MAX);
        let opened = Session { edge: edge.clone(), view: view.clone(), held: hello.held, in_flight: None };
        self.sessions.insert(session, opened);
        self.receivers.entry(view.clone()).or_default().insert(session);
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
                        // Said again of the same, it is only about what can't be used of it.
                        if state.served.as_ref() != Some(&position) {
                            state.served = Some(position.clone());
                            state.parked = None;
                        }
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
        let Some(closed) = self.close(session) else { return };
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
        let position = self.views.get(view).map(View::position);
        let is_same =
            |at: &Position| at.epoch == *epoch && at.revision == revision && at.hash == documents.hash();
        if position.is_some_and(is_same) {
            return Vec::new();
        }
        let is_epoch = position.is_none_or(|at| at.epoch != *epoch);
        match self.views.get_mut(view) {
            Some(view) => view.advance(epoch.clone(), revision, documents),
            None => {
                self.views.insert(view.clone(), View::new(epoch.clone(), revision, documents));
            }
        }
        self.offer_all(Some(view), is_epoch, now)
    }

    /// The store is not the one that it was: a backup was restored.
    pub fn begin_epoch(&mut self, epoch: &Arc<str>, now: Duration) -> Vec<ControlEffect> {
        for view in self.views.values_mut() {
            let (revision, documents) = (view.position().revision, view.documents().clone());
            view.advance(epoch.clone(), revision, documents);
        }
        self.offer_all(None, true, now)
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
            if let Some(open) = self.sessions.get_mut(&session) {
                let old = std::mem::replace(&mut open.view, view.clone());
                self.leave(session, &old);
                self.receivers.entry(view.clone()).or_default().insert(session);
            }
            self.offer(session, now, false, &mut effects);
        }
        effects
    }

    /// An edge is accepted no more.
    pub fn revoke(&mut self, edge: &str, reason: &str) -> Vec<ControlEffect> {
        let Some(state) = self.edges.remove(edge) else { return Vec::new() };
        self.forget_kind(edge, &state.abilities);
        let Some(session) = state.session else { return Vec::new() };
        self.close(session);
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

    fn close(&mut self, session: SessionId) -> Option<Session> {
        let closed = self.sessions.remove(&session)?;
        self.leave(session, &closed.view);
        Some(closed)
    }

    fn leave(&mut self, session: SessionId, view: &Arc<str>) {
        if let Some(receivers) = self.receivers.get_mut(view) {
            receivers.remove(&session);
            if receivers.is_empty() {
                self.receivers.remove(view);
            }
        }
    }

    /// Notes what an edge can do; edges that are alike share it.
    fn note_kind(&mut self, edge: &Arc<str>, abilities: Abilities) -> Arc<Abilities> {
        let old = self.edges.get(edge).map(|state| state.abilities.clone());
        if let Some(old) = old.filter(|old| **old != abilities) {
            self.forget_kind(edge, &old);
        }
        let known = self.kinds.get_key_value(&abilities).map(|(kind, _)| kind.clone());
        let kind = known.unwrap_or_else(|| Arc::new(abilities));
        self.kinds.entry(kind.clone()).or_default().insert(edge.clone());
        kind
    }

    fn forget_kind(&mut self, edge: &str, abilities: &Arc<Abilities>) {
        if let Some(edges) = self.kinds.get_mut(abilities) {
            edges.remove(edge);
            if edges.is_empty() {
                self.kinds.remove(abilities);
            }
        }
    }

    /// Offers a view, or every view, to the edges that get it.
    fn offer_all(&mut self, view: Option<&Arc<str>>, is_told: bool, now: Duration) -> Vec<ControlEffect> {
        let mut effects = Vec::new();
        if self.draining.is_some() {
            return effects;
        }
        let sessions: Vec<SessionId> = match view {
            Some(view) => self.receivers.get(view).into_iter().flatten().copied().collect(),
            None => self.sessions.keys().copied().collect(),
        };
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
        let Some(view) = self.views.get_mut(&open.view) else { return };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::DocumentKey;

    const NOW: Duration = Duration::ZERO;

    fn documents(text: &str) -> DocumentSet {
        let mut documents = DocumentSet::default();
        documents.apply([(DocumentKey::new("proxies", "a"), Some(text))]);
        documents
    }

    fn hello(version: &str) -> Hello {
        Hello {
            version: version.to_owned(),
            capabilities: vec!["plugin:cors".to_owned()],
            ..Hello::default()
        }
    }

    /// The connections that something is sent to.
    fn receivers(effects: &[ControlEffect]) -> Vec<SessionId> {
        let sent = effects.iter().filter_map(|effect| match effect {
            ControlEffect::Send(session, _) => Some(*session),
            _ => None,
        });
        sent.collect()
    }

    #[test]
    fn a_view_is_received_until_its_last_edge_disconnects_moves_or_is_revoked() {
        let (mut core, epoch): (_, Arc<str>) = (ControlCore::default(), "e".into());
        let (all, old): (Arc<str>, Arc<str>) = ("eu".into(), "eu@old".into());
        for view in [&all, &old] {
            core.advance(view, &epoch, 1, documents("{}"), NOW);
        }
        let edges: Vec<Arc<str>> = ["a", "b", "c"].map(Arc::from).to_vec();
        for (session, edge) in (1..).zip(&edges) {
            let view = if session == 1 { &all } else { &old };
            assert_eq!(receivers(&core.hello(session, edge, view, hello("1"), NOW, 0)), [session]);
        }
        // The same edge again, over another connection.
        core.hello(4, &edges[1], &old, hello("1"), NOW, 0);
        assert!(core.is_received("eu") && core.is_received("eu@old"));
        core.move_edge("c", &all, NOW);
        assert!(core.is_received("eu@old"));
        core.disconnect(2, NOW);
        assert!(core.is_received("eu@old"), "that connection had been replaced");
        core.disconnect(4, NOW);
        assert!(!core.is_received("eu@old"));
        core.revoke("a", "why");
        assert!(core.is_received("eu"));
        core.revoke("c", "why");
        assert!(!core.is_received("eu"));
    }

    #[test]
    fn a_change_is_sent_to_the_edges_of_its_view_and_a_repeated_one_to_none() {
        let (mut core, epoch): (_, Arc<str>) = (ControlCore::default(), "e".into());
        let views: [Arc<str>; 2] = ["eu".into(), "us".into()];
        for (session, view) in (1..).zip(&views) {
            core.hello(session, view, view, hello("1"), NOW, 0);
        }
        assert_eq!(receivers(&core.advance(&views[1], &epoch, 1, documents("{}"), NOW)), [2]);
        assert_eq!(receivers(&core.advance(&views[0], &epoch, 1, documents("{}"), NOW)), [1]);
        assert!(core.advance(&views[0], &epoch, 1, documents("{}"), NOW).is_empty());
        assert!(receivers(&core.begin_epoch(&"f".into(), NOW)).is_empty(), "something is under way");
    }

    #[test]
    fn a_refused_configuration_is_sent_again_once_the_edge_is_restarted() {
        let (mut core, view, epoch): (_, Arc<str>, Arc<str>) =
            (ControlCore::default(), "eu".into(), "e".into());
        core.advance(&view, &epoch, 1, documents("{}"), NOW);
        let edge: Arc<str> = "a".into();
        let newest = core.view("eu").map(|view| view.position().clone()).unwrap();
        let refused = Some((newest.clone(), "no room".to_owned()));
        core.hello(1, &edge, &view, hello("1"), NOW, 0);
        core.receive(1, ToControl::Verdict(newest, Verdict::Refused("no room".to_owned())), NOW);
        // The same process over another connection refuses it still; another one, of the same version, has not seen it.
        for (session, refused, is_sent) in [(2, refused, false), (3, None, true)] {
            let hello = Hello { refused, ..hello("1") };
            let sent = core.hello(session, &edge, &view, hello, NOW, 0);
            assert_eq!(receivers(&sent).contains(&session), is_sent, "connection {session}");
        }
    }

    #[test]
    fn findings_that_are_told_again_change_nothing_else() {
        let (mut core, view, epoch): (_, Arc<str>, Arc<str>) =
            (ControlCore::default(), "eu".into(), "e".into());
        core.advance(&view, &epoch, 1, documents("1"), NOW);
        let edge: Arc<str> = "a".into();
        let first = core.view("eu").map(|view| view.position().clone()).unwrap();
        core.hello(1, &edge, &view, hello("1"), NOW, 0);
        let served = |count| {
            ToControl::Verdict(first.clone(), Verdict::Served(Findings { count, ..Findings::default() }))
        };
        core.receive(1, served(0), NOW);
        core.advance(&view, &epoch, 2, documents("2"), NOW);
        let second = core.view("eu").map(|view| view.position().clone()).unwrap();
        core.receive(1, ToControl::Verdict(second, Verdict::Refused("why".to_owned())), NOW);
        assert!(core.receive(1, served(3), NOW).is_empty());
        let state = &core.edges()["a"];
        assert_eq!((state.findings.count, state.parked.is_some()), (3, true));
    }

    #[test]
    fn edges_that_are_alike_share_what_they_can_do() {
        let (mut core, view): (_, Arc<str>) = (ControlCore::default(), "eu".into());
        for (session, (edge, version)) in (1..).zip([("a", "1"), ("b", "1"), ("c", "2"), ("b", "2")]) {
            core.hello(session, &edge.into(), &view, hello(version), NOW, 0);
        }
        let kinds = |core: &ControlCore| -> Vec<(String, usize)> {
            core.kinds().map(|kind| (kind.version.clone(), core.edges_of_kind(kind).count())).collect()
        };
        assert_eq!(kinds(&core), [("1".to_owned(), 1), ("2".to_owned(), 2)]);
        assert!(Arc::ptr_eq(&core.edges()["b"].abilities, &core.edges()["c"].abilities));
        core.disconnect(3, NOW);
        core.revoke("a", "why");
        assert_eq!(kinds(&core), [("2".to_owned(), 2)]);
    }
}
