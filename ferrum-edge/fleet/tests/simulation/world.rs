//! Control planes, edges, a store and the network between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gateway_fleet::{
    Configuration, ControlCore, ControlEffect, DocumentKey, DocumentSet, EdgeCore, EdgeEffect, Findings,
    Hello, ToControl, ToEdge, Transfer, Verdict,
};

use super::oracle::Oracle;

const EDGES: usize = 6;
const CONTROLS: usize = 2;
const GROUPS: [&str; 2] = ["a", "b"];
const IDS: usize = 12;

/// The database.
#[derive(Clone)]
struct Database {
    documents: DocumentSet,
    revision: u64,
    /// What each revision is known by; another history has others.
    tokens: BTreeMap<u64, u64>,
    epoch: Arc<str>,
}

struct Control {
    /// `None` while it is down.
    core: Option<ControlCore>,
    revision: u64,
    token: u64,
    epoch: Arc<str>,
}

struct Edge {
    /// `None` while it is down.
    core: Option<EdgeCore>,
    disk: Option<Configuration>,
    /// The control plane and the number of the connection.
    link: Option<(usize, u64)>,
    group: usize,
    version: u64,
    /// The number of its process: what was under way in an earlier one is gone.
    life: u64,
}

enum Event {
    Commit,
    /// A control plane looks at the store.
    Follow(usize),
    ToControl(usize, u64, usize, Box<ToControl>),
    ToEdge(usize, u64, ToEdge),
    Connect(usize, u64),
    /// The control plane notices that a connection has ended.
    Lost(usize, u64),
    Applied(usize, u64),
    Restart(usize),
    Return(usize),
    Trouble,
}

pub(crate) struct World {
    random: fastrand::Rng,
    now: u64,
    number: u64,
    events: BTreeMap<(u64, u64), Event>,
    database: Database,
    backup: Option<Database>,
    controls: Vec<Control>,
    edges: Vec<Edge>,
    /// When the last message of a connection arrives, by direction: messages don't overtake each other.
    arrivals: BTreeMap<(u64, bool), u64>,
    cut: BTreeSet<u64>,
    is_calm: bool,
    pub(crate) oracle: Oracle,
}

fn name(edge: usize) -> Arc<str> {
    format!("edge-{edge}").into()
}

fn of_group(documents: &DocumentSet, group: usize) -> DocumentSet {
    let mut set = DocumentSet::default();
    let mine = documents.iter().filter(|(key, _)| !key.id.starts_with(GROUPS[1 - group]));
    set.apply(mine.map(|(key, text)| (key.clone(), Some(text.clone()))));
    set
}

fn is_refused(documents: &DocumentSet) -> bool {
    documents.iter().any(|(_, text)| text.contains("poison"))
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let epoch: Arc<str> = "epoch-0".into();
        let database = Database {
            documents: DocumentSet::default(),
            revision: 0,
            tokens: BTreeMap::from([(0, 0)]),
            epoch: epoch.clone(),
        };
        let control = || Control { core: None, revision: 0, token: 0, epoch: epoch.clone() };
        let edge =
            |n| Edge { core: None, disk: None, link: None, group: n % GROUPS.len(), version: 0, life: 0 };
        let mut world = Self {
            random: fastrand::Rng::with_seed(seed),
            now: 0,
            number: 0,
            events: BTreeMap::new(),
            database,
            backup: None,
            controls: (0..CONTROLS).map(|_| control()).collect(),
            edges: (0..EDGES).map(edge).collect(),
            arrivals: BTreeMap::new(),
            cut: BTreeSet::new(),
            is_calm: false,
            oracle: Oracle::new(seed),
        };
        world.note_rendered();
        (0..CONTROLS).for_each(|control| world.after(1, Event::Return(control)));
        (0..EDGES).for_each(|edge| world.after(2, Event::Restart(edge)));
        world.after(3, Event::Commit);
        world.after(5, Event::Trouble);
        world
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.number += 1;
        self.events.insert((self.now + delay, self.number), event);
    }

    fn up_to(&mut self, most: u64) -> u64 {
        self.random.u64(1..=most)
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.now)
    }

    /// Runs so many events.
    pub(crate) fn run(&mut self, events: usize) {
        for _ in 0..events {
            let Some(((at, _), event)) = self.events.pop_first() else { return };
            self.now = at;
            self.handle(event);
        }
    }

    /// Heals everything, and runs until nothing happens any more.
    pub(crate) fn settle(&mut self) {
        self.is_calm = true;
        for control in 0..CONTROLS {
            if self.controls[control].core.is_none() {
                self.after(1, Event::Return(control));
            }
            self.after(50, Event::Follow(control));
        }
        for edge in 0..EDGES {
            if self.edges[edge].core.is_none() {
                self.after(1, Event::Restart(edge));
            }
        }
        self.run(20_000);
        assert!(self.events.is_empty(), "seed {}: the simulation still has events", self.oracle.seed);
    }

    pub(crate) fn check_end(&self) {
        let seed = self.oracle.seed;
        for (number, edge) in self.edges.iter().enumerate() {
            if self.oracle.is_revoked(number) {
                assert!(edge.link.is_none(), "seed {seed}: edge {number} is revoked and connected");
                continue;
            }
            let wanted = of_group(&self.database.documents, edge.group);
            let core = edge.core.as_ref().expect("it runs");
            let served = core.served().map(|served| served.position.hash);
            if is_refused(&wanted) {
                let (control, _) = edge.link.expect("connected");
                let state = &self.controls[control].core.as_ref().expect("it runs").edges()[&name(number)];
                let parked = state.parked.as_ref().map(|(position, _)| position.hash);
                assert_eq!(parked, Some(wanted.hash()), "seed {seed}: edge {number} says why not");
            } else {
                assert_eq!(
                    served,
                    Some(wanted.hash()),
                    "seed {seed}: edge {number} serves what the store has"
                );
                let on_disk = edge.disk.as_ref().map(|kept| kept.position.hash);
                assert_eq!(on_disk, served, "seed {seed}: edge {number} keeps it");
            }
        }
    }

    fn note_rendered(&mut self) {
        for (number, group) in GROUPS.iter().enumerate() {
            self.oracle.rendered(group, of_group(&self.database.documents, number).hash());
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Commit => self.commit(),
            Event::Follow(control) => self.follow(control),
            Event::ToControl(control, session, edge, message) => {
                self.deliver_to_control(control, session, edge, *message)
            }
            Event::ToEdge(edge, session, message) => self.deliver_to_edge(edge, session, message),
            Event::Connect(edge, life) => self.connect(edge, life),
            Event::Lost(control, session) => {
                let now = self.time();
                self.oracle.answered(control, session);
                if let Some(core) = &mut self.controls[control].core {
                    core.disconnect(session, now);
                }
            }
            Event::Applied(edge, life) => self.applied(edge, life),
            Event::Restart(edge) => self.restart(edge),
            Event::Return(control) => self.return_control(control),
            Event::Trouble => self.trouble(),
        }
    }

    fn commit(&mut self) {
        let mut changes = Vec::new();
        for _ in 0..self.up_to(3) {
            let group = ["a", "b", "s"][self.random.usize(0..3)];
            let key = DocumentKey::new("proxies", format!("{group}{}", self.random.usize(0..IDS)));
            let text = match self.random.u8(0..20) {
                0..4 => None,
                4 => Some("{\"poison\":1}".to_owned()),
                n => Some(format!("{{\"n\":{n}}}")),
            };
            changes.push((key, text));
        }
        self.database.documents.apply(changes);
        self.stored();
        if !self.is_calm {
            let pause = self.up_to(120);
            self.after(pause, Event::Commit);
        }
    }

    /// The store has something new, which control planes learn of sooner or later.
    fn stored(&mut self) {
        self.database.revision += 1;
        let token = self.random.u64(..);
        self.database.tokens.insert(self.database.revision, token);
        self.note_rendered();
        for control in 0..CONTROLS {
            let lag = self.up_to(40);
            self.after(lag, Event::Follow(control));
        }
    }

    fn follow(&mut self, number: usize) {
        let now = self.time();
        let control = &mut self.controls[number];
        let Some(core) = &mut control.core else { return };
        let database = &mut self.database;
        if database.tokens.get(&control.revision) != Some(&control.token) && database.epoch == control.epoch {
            // A backup was restored.
            database.epoch = format!("epoch-{}", self.random.u64(..)).into();
            self.oracle.coverage.forks += 1;
        }
        control.revision = database.revision;
        control.token = database.tokens[&database.revision];
        control.epoch = database.epoch.clone();
        let mut effects = Vec::new();
        for (group, view) in GROUPS.iter().enumerate() {
            let documents = of_group(&database.documents, group);
            let view: Arc<str> = (*view).into();
            effects.extend(core.advance(&view, &database.epoch, database.revision, documents, now));
        }
        self.carry_out(number, effects);
    }

    fn carry_out(&mut self, control: usize, effects: Vec<ControlEffect>) {
        for effect in effects {
            match effect {
                ControlEffect::Send(session, message) => self.send(control, session, message),
                ControlEffect::Close(session, _) => {
                    self.oracle.coverage.replaced += 1;
                    self.oracle.answered(control, session);
                    self.end_link(session);
                }
                ControlEffect::Recheck(revision) => {
                    self.oracle.coverage.rechecks += 1;
                    let known = &self.controls[control];
                    if self.database.revision < revision && self.database.epoch == known.epoch {
                        self.database.epoch = format!("epoch-{}", self.random.u64(..)).into();
                        self.oracle.coverage.forks += 1;
                    }
                    let pause = self.up_to(5);
                    self.after(pause, Event::Follow(control));
                }
            }
        }
    }

    fn send(&mut self, control: usize, session: u64, mut message: ToEdge) {
        let edge = self.edge_of(control, session);
        if let ToEdge::Transfer(transfer) = &message {
            self.oracle.sent(control, session, edge);
            match transfer.from {
                Some(from) => {
                    self.oracle.coverage.deltas += 1;
                    if self.random.u8(..) == 0 {
                        // Something is lost on the way that no lower layer notices.
                        let wrong = Transfer::new(Some(from), transfer.to.clone(), Vec::new(), Vec::new());
                        message = ToEdge::Transfer(Arc::new(wrong));
                    }
                }
                None => self.oracle.coverage.snapshots += 1,
            }
        }
        let at = self.arrival(session, false);
        self.after(at, Event::ToEdge(edge, session, message));
    }

    /// A connection's number says whose it is.
    fn edge_of(&self, _control: usize, session: u64) -> usize {
        usize::try_from(session).expect("small") % EDGES
    }

    fn arrival(&mut self, session: u64, is_up: bool) -> u64 {
        let at = self.now + self.random.u64(1..=30);
        let last = self.arrivals.entry((session, is_up)).or_default();
        *last = at.max(*last);
        *last - self.now
    }

    fn deliver_to_control(&mut self, control: usize, session: u64, edge: usize, message: ToControl) {
        if self.cut.contains(&session) {
            return;
        }
        let (now, clock) = (self.time(), self.now);
        let group: Arc<str> = GROUPS[self.edges[edge].group].into();
        if self.oracle.is_revoked(edge) {
            return self.end_link(session);
        }
        let Some(core) = &mut self.controls[control].core else { return };
        let effects = match message {
            ToControl::Hello(hello) => core.hello(session, &name(edge), &group, hello, now, clock),
            other => {
                match &other {
                    ToControl::Resync(_) => {
                        self.oracle.coverage.resyncs += 1;
                        self.oracle.answered(control, session);
                    }
                    ToControl::Verdict(_, Verdict::Served(_)) => self.oracle.answered(control, session),
                    ToControl::Verdict(_, Verdict::Refused(_)) => {
                        self.oracle.coverage.refusals += 1;
                        self.oracle.answered(control, session);
                    }
                    _ => {}
                }
                core.receive(session, other, now)
            }
        };
        self.carry_out(control, effects);
    }

    fn deliver_to_edge(&mut self, number: usize, session: u64, message: ToEdge) {
        let edge = &mut self.edges[number];
        if edge.link.is_none_or(|(_, open)| open != session) {
            return;
        }
        let Some(core) = &mut edge.core else { return };
        if matches!(message, ToEdge::Unchanged(_)) {
            self.oracle.coverage.unchanged += 1;
        }
        let effects = core.receive(message);
        self.obey(number, effects);
    }

    fn obey(&mut self, number: usize, effects: Vec<EdgeEffect>) {
        for effect in effects {
            match effect {
                EdgeEffect::Send(message) => {
                    let Some((control, session)) = self.edges[number].link else { continue };
                    let at = self.arrival(session, true);
                    self.after(at, Event::ToControl(control, session, number, Box::new(message)));
                }
                EdgeEffect::Apply { from, to } => {
                    let served = self.edges[number].core.as_ref().and_then(|core| core.served());
                    let served = served.map(|served| served.position.hash);
                    assert_eq!(from.map(|from| from.hash()), served, "the difference is to what is served");
                    assert_eq!(to.documents.hash(), to.position.hash);
                    let life = self.edges[number].life;
                    // Some edges are slow.
                    let takes = if number == 0 { self.up_to(400) } else { self.up_to(20) };
                    self.after(takes, Event::Applied(number, life));
                }
                EdgeEffect::Keep(configuration) => {
                    // What an edge serves may come from the group in which it was before.
                    self.oracle.serves(number, &GROUPS, &configuration.position);
                    self.edges[number].disk = Some(configuration);
                }
                EdgeEffect::Revoked(_) => self.edges[number].link = None,
                EdgeEffect::Welcomed(_) | EdgeEffect::Reconnect(_) => {}
            }
        }
    }

    fn applied(&mut self, number: usize, life: u64) {
        let edge = &mut self.edges[number];
        let Some(core) = edge.core.as_mut().filter(|_| edge.life == life) else { return };
        let text = format!("{core:?}");
        if text.contains("pending: Some") {
            self.oracle.coverage.coalesced += 1;
        }
        let target = core.target_documents().cloned();
        let result = match target {
            Some(documents) if is_refused(&documents) => Err("poison".to_owned()),
            _ => Ok(Findings::default()),
        };
        let effects = core.applied(result);
        self.obey(number, effects);
    }

    fn connect(&mut self, number: usize, life: u64) {
        let is_mine = self.edges[number].life == life && self.edges[number].link.is_none();
        if !is_mine || self.edges[number].core.is_none() || self.oracle.is_revoked(number) {
            return;
        }
        let control = self.random.usize(0..CONTROLS);
        if self.controls[control].core.is_none() {
            let pause = self.up_to(60);
            return self.after(pause, Event::Connect(number, life));
        }
        self.number += 1;
        let session = self.number * EDGES as u64 + number as u64;
        let edge = &mut self.edges[number];
        edge.link = Some((control, session));
        let Some(hello) = edge.core.as_ref().map(|core| core.hello(self.now)) else { return };
        let at = self.arrival(session, true);
        self.after(at, Event::ToControl(control, session, number, Box::new(hello)));
    }

    /// Cuts a connection; each side notices when it does.
    fn end_link(&mut self, session: u64) {
        let number = self.edge_of(0, session);
        let Some((control, _)) = self.edges[number].link.filter(|(_, open)| *open == session) else { return };
        self.cut.insert(session);
        self.edges[number].link = None;
        let (lost, again, life) = (self.up_to(200), self.up_to(60), self.edges[number].life);
        self.after(lost, Event::Lost(control, session));
        self.after(again, Event::Connect(number, life));
    }

    fn restart(&mut self, number: usize) {
        let edge = &mut self.edges[number];
        if edge.core.is_some() {
            return;
        }
        edge.life += 1;
        self.oracle.restarted(number);
        edge.core = Some(EdgeCore::new(format!("{}", edge.version), 1, Vec::new(), edge.disk.clone()));
        let (life, pause) = (edge.life, self.up_to(20));
        self.after(pause, Event::Connect(number, life));
    }

    fn return_control(&mut self, number: usize) {
        let control = &mut self.controls[number];
        if control.core.is_some() {
            return;
        }
        control.core = Some(ControlCore::default());
        control.epoch = self.database.epoch.clone();
        control.revision = self.database.revision;
        control.token = self.database.tokens[&self.database.revision];
        self.follow(number);
    }

    fn trouble(&mut self) {
        if self.is_calm {
            return;
        }
        let edge = self.random.usize(0..EDGES);
        match self.random.u8(0..12) {
            0..4 => {
                if let Some((_, session)) = self.edges[edge].link {
                    self.end_link(session);
                }
            }
            4 | 5 => self.crash_edge(edge),
            6 => self.crash_control(),
            7 => self.backup = Some(self.database.clone()),
            8 => {
                if let Some(backup) = self.backup.take() {
                    self.database = backup;
                    // Writers may add revisions before any control plane reads the restored store.
                    if self.random.bool() {
                        self.commit_once();
                    }
                    (0..CONTROLS)
                        .for_each(|control| self.after(1 + control as u64 * 30, Event::Follow(control)));
                }
            }
            9 => self.move_edge(edge),
            10 if self.random.u8(0..8) == 0 => self.revoke(edge),
            _ => {
                if let Some(core) = &mut self.edges[edge].core {
                    let effects = core.retry();
                    self.oracle.coverage.retried += effects.len();
                    self.obey(edge, effects);
                }
            }
        }
        let pause = self.up_to(60);
        self.after(pause, Event::Trouble);
    }

    fn commit_once(&mut self) {
        let key = DocumentKey::new("proxies", "s1");
        self.database.documents.apply([(key, Some(format!("{{\"r\":{}}}", self.random.u64(..))))]);
        self.stored();
    }

    fn crash_edge(&mut self, number: usize) {
        if let Some((_, session)) = self.edges[number].link {
            self.end_link(session);
        }
        let edge = &mut self.edges[number];
        edge.core = None;
        edge.life += 1;
        if self.random.bool() {
            edge.version += 1;
        }
        let pause = self.up_to(100);
        self.after(pause, Event::Restart(number));
    }

    fn crash_control(&mut self) {
        let number = self.random.usize(0..CONTROLS);
        self.controls[number].core = None;
        let sessions: Vec<u64> = self
            .edges
            .iter()
            .filter_map(|edge| edge.link.filter(|(of, _)| *of == number))
            .map(|(_, s)| s)
            .collect();
        for session in sessions {
            self.oracle.answered(number, session);
            self.end_link(session);
        }
        let pause = self.up_to(150);
        self.after(pause, Event::Return(number));
    }

    fn move_edge(&mut self, number: usize) {
        let edge = &mut self.edges[number];
        edge.group = 1 - edge.group;
        let (view, now): (Arc<str>, _) = (GROUPS[edge.group].into(), self.time());
        for control in 0..CONTROLS {
            let core = self.controls[control].core.as_mut();
            let effects = core.map(|core| core.move_edge(&name(number), &view, now)).unwrap_or_default();
            self.carry_out(control, effects);
        }
    }

    fn revoke(&mut self, number: usize) {
        for control in 0..CONTROLS {
            let core = self.controls[control].core.as_mut();
            let effects = core.map(|core| core.revoke(&name(number), "lost")).unwrap_or_default();
            self.carry_out(control, effects);
        }
        self.oracle.revoked(number);
    }
}

/// A hello without any state, for tests that need a value of the type.
#[test]
fn a_hello_of_a_new_edge_has_nothing() {
    let ToControl::Hello(hello) = EdgeCore::new("1", 1, Vec::new(), None).hello(7) else { panic!("a hello") };
    assert_eq!(hello, Hello { version: "1".to_owned(), schema: 1, clock: 7, ..Hello::default() });
}
