//! A control plane's load: simulated edges that follow it, changes one by one and in a storm, slow edges and cut connections.
//!
//! A simulated edge speaks the real protocol (`specs/fleet.proto`): it enrols, holds a connection of its own over mutual TLS, applies
//! snapshots and deltas, compares the hash, and reports. It does not compile what it received, so a verdict of it means *received
//! whole and right*. The code here shares nothing with the gateway's.

mod admin_api;
mod control_plane_link;
mod error;
mod held_configuration;
mod messages;
mod served_revisions;
mod simulated_edge;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::{Notify, Semaphore, mpsc};

pub use admin_api::ControlPlane;
pub use error::FleetError;

use crate::measure::Tally;
use crate::measure::process::Usage;
use crate::report::model::Latency;
use admin_api::Written;
use served_revisions::{Commit, Ledger};
use simulated_edge::{Edge, Shared};

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// Simulated edges.
    pub edges: usize,
    /// Real gateways that are started as edges besides.
    pub real: usize,
    /// Proxies in the configuration.
    pub proxies: u64,
    /// Changes that are written one after the other, each when the one before is served.
    pub changes: u32,
    /// Changes a second of the storm; none without.
    pub rate: Option<u32>,
    /// How long the storm lasts.
    pub duration: Duration,
    /// Edges that take `slow_for` to serve what they received.
    pub slow: usize,
    pub slow_for: Duration,
    /// Connections cut a second during the storm, and how long an edge then stays away.
    pub cuts: f64,
    pub away: Duration,
    /// How long edges may take until all serve the newest configuration.
    pub settle: Duration,
    /// The 99th percentile of a change's delay, above which the result is void.
    pub limit: Option<Duration>,
}

/// What was measured.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FleetOutcome {
    pub edges: usize,
    pub proxies: u64,
    /// Until every edge was enrolled: an argon2id hash to make and one to verify for each.
    pub enrolment_seconds: f64,
    /// From the first connection until all edges served the configuration.
    pub start_seconds: f64,
    /// What the control plane's resident memory grew by, an edge.
    pub bytes_an_edge: Option<f64>,
    /// Changes one after the other.
    pub single: Phase,
    pub real: Option<RealEdges>,
    pub storm: Option<Storm>,
    /// Hashes of edges that were compared with the store's at the end.
    pub hashes_compared: usize,
    /// The store's revision then.
    pub revision: u64,
    /// Why this may not be quoted; empty if it may.
    pub void: Vec<String>,
}

/// What real edges served.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RealEdges {
    pub edges: usize,
    /// From the first one's start until all served the configuration.
    pub start_seconds: f64,
    /// Until every worker of the last one served a change, as the control plane was told and then asked.
    pub by_all: Latency,
}

/// How late edges served the changes of a phase.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Phase {
    /// Calls, each of which is a revision.
    pub calls: usize,
    /// Until the last edge that is not slow served a revision, or a newer one.
    pub by_all: Latency,
    /// For each edge that is not slow.
    pub by_each: Latency,
    /// For each slow edge.
    pub by_slow: Latency,
}

/// The storm.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Storm {
    pub seconds: f64,
    pub changes: u64,
    pub changes_a_second: f64,
    pub phase: Phase,
    /// From the storm's end until all edges served the newest revision.
    pub settled_seconds: f64,
    pub reconnections: u64,
    /// Cores that the control plane used during the storm.
    pub control_plane_cores: Option<f64>,
}

/// Starts a real edge of this number by an invitation.
pub type StartEdge<'a> = dyn FnMut(usize, &str) -> Result<(), String> + 'a;

/// How far the test is, for progress.
pub type Tell<'a> = dyn FnMut(&str) + 'a;

/// Calls of a storm a second at most; each writes several changes at higher rates.
const CALLS_A_SECOND: u32 = 50;
/// Enrolments at a time: the control plane checks two codes at a time.
const ENROLMENTS: usize = 2;
const HANDSHAKES: usize = 64;
/// Invitations that wait to be used; the control plane has room for 1,000.
const INVITATIONS: usize = 32;
const LOOK: Duration = Duration::from_millis(2);
/// An allocator gives memory back within this time.
const GIVEN_BACK: Duration = Duration::from_secs(15);
/// What the names of real edges begin with.
const REAL: &str = "real-";

/// Runs the whole test against an empty control plane.
///
/// # Errors
/// The control plane refuses, or edges don't come so far in time.
pub fn run(
    options: &Options,
    plane: &mut ControlPlane,
    start_edge: &mut StartEdge<'_>,
    tell: &mut Tell<'_>,
) -> Result<FleetOutcome, FleetError> {
    let mut written = Written::default();
    tell(&format!("writing {} proxies", options.proxies));
    let revision = plane.fill(&mut written, options.proxies)?;
    let fleet = Fleet::start(options)?;
    let mut outcome =
        FleetOutcome { edges: options.edges, proxies: options.proxies, ..FleetOutcome::default() };
    let before = settled(plane);
    let begun = Instant::now();
    fleet.enrol(plane, tell)?;
    outcome.enrolment_seconds = begun.elapsed().as_secs_f64();
    fleet.wait(options.settle, "served the configuration", |counts| counts[2], revision)?;
    outcome.start_seconds = begun.elapsed().as_secs_f64();
    let after = settled(plane);
    outcome.bytes_an_edge = before.zip(after).map(|(before, after)| {
        float(after.resident_bytes.saturating_sub(before.resident_bytes))
            / float(options.edges as u64).max(1.0)
    });
    outcome.single = fleet.one_by_one(plane, &mut written, tell)?;
    if options.real > 0 {
        outcome.real = Some(fleet.real(plane, &mut written, start_edge, tell)?);
    }
    if let Some(rate) = options.rate {
        tell(&format!("a storm of {rate} changes a second for {:?}", options.duration));
        outcome.storm = Some(fleet.storm(plane, &mut written, rate)?);
    }
    fleet.compare(plane, &written, &mut outcome)?;
    judge(options, &mut outcome);
    Ok(outcome)
}

/// What the control plane uses once it has given back what it needed for a moment, such as argon2id's memory.
fn settled(plane: &ControlPlane) -> Option<Usage> {
    plane.usage()?;
    thread::sleep(GIVEN_BACK);
    plane.usage()
}

/// Adds what is wrong with the figures.
fn judge(options: &Options, outcome: &mut FleetOutcome) {
    let phases = [
        ("a single change", Some(&outcome.single.by_all)),
        ("a change", outcome.real.as_ref().map(|real| &real.by_all)),
        ("a change of the storm", outcome.storm.as_ref().map(|storm| &storm.phase.by_all)),
    ];
    for (name, by_all) in phases.into_iter().filter_map(|(name, by_all)| Some((name, by_all?))) {
        let p99 = Duration::from_secs_f64(by_all.p99_us / 1e6);
        if let Some(limit) = options.limit.filter(|limit| p99 > *limit) {
            outcome
                .void
                .push(format!("{name} was served by all after {p99:.2?} (p99), not within {limit:?}"));
        }
    }
    let storm = outcome.storm.as_ref();
    if let Some((storm, rate)) =
        storm.zip(options.rate).filter(|(storm, rate)| storm.changes_a_second < f64::from(*rate) * 0.9)
    {
        outcome.void.push(format!(
            "the control plane committed {:.0} changes a second, not {rate}",
            storm.changes_a_second
        ));
    }
}

/// The running edges.
struct Fleet<'o> {
    options: &'o Options,
    shared: Arc<Shared>,
    cuts: Vec<Arc<Notify>>,
    /// Numbers of edges and their invitations. The thread of the edges ends when this is dropped.
    invitations: mpsc::Sender<(usize, String)>,
}

impl<'o> Fleet<'o> {
    fn start(options: &'o Options) -> Result<Self, FleetError> {
        let slow = options.slow;
        let shared = Arc::new(Shared {
            ledger: Ledger::new((0..options.edges).map(|number| number < slow)),
            states: held_configuration::States::default(),
            enrolments: Semaphore::new(ENROLMENTS),
            handshakes: Semaphore::new(HANDSHAKES),
            away: options.away,
        });
        let cuts: Vec<Arc<Notify>> = (0..options.edges).map(|_| Arc::default()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (invitations, mut invited) = mpsc::channel::<(usize, String)>(INVITATIONS);
        let (all, cuttable, slow_for) = (shared.clone(), cuts.clone(), options.slow_for);
        thread::spawn(move || {
            runtime.block_on(async move {
                while let Some((number, invitation)) = invited.recv().await {
                    let slow = (number < slow).then_some(slow_for);
                    let edge = Edge::new(number, all.clone(), cuttable[number].clone(), slow);
                    tokio::spawn(edge.run(invitation));
                }
            });
        });
        Ok(Self { options, shared, cuts, invitations })
    }

    /// Invites and enrols every edge; each connects at once.
    fn enrol(&self, plane: &mut ControlPlane, tell: &mut Tell<'_>) -> Result<(), FleetError> {
        for number in 0..self.options.edges {
            if number % 100 == 0 {
                tell(&format!("{number} of {} edges are invited", self.options.edges));
            }
            // An invitation is valid for ten minutes, so few of them wait.
            if self.invitations.blocking_send((number, plane.invite(&format!("edge-{number}"))?)).is_err() {
                break;
            }
        }
        self.wait(self.options.settle, "enrolled", |counts| counts[0], 0)
    }

    /// Waits until as many edges as there are have come so far.
    fn wait(
        &self,
        limit: Duration,
        what: &'static str,
        count: impl Fn([usize; 3]) -> usize,
        revision: u64,
    ) -> Result<(), FleetError> {
        let (begun, edges) = (Instant::now(), self.options.edges);
        loop {
            let done = count(self.shared.ledger.counts(revision));
            if done >= edges {
                return Ok(());
            }
            if begun.elapsed() > limit {
                let faults = self.shared.ledger.faults();
                let why = faults.first().map(|fault| format!(": {fault}")).unwrap_or_default();
                return Err(FleetError::Late { done, edges, what, limit, why });
            }
            thread::sleep(LOOK);
        }
    }

    fn wait_served(&self, revision: u64) -> Result<(), FleetError> {
        self.wait(self.options.settle, "served the newest revision", |counts| counts[2], revision)
    }

    /// Changes, each of which is served by all before the next.
    fn one_by_one(
        &self,
        plane: &mut ControlPlane,
        written: &mut Written,
        tell: &mut Tell<'_>,
    ) -> Result<Phase, FleetError> {
        self.shared.ledger.begin();
        let mut commits = Vec::new();
        for number in 0..self.options.changes {
            tell(&format!("change {} of {}", number + 1, self.options.changes));
            let sent = Instant::now();
            let revision = plane.change(written, 1)?;
            commits.push(Commit { revision, sent });
            self.wait_served(revision)?;
        }
        Ok(self.phase(&commits))
    }

    /// Starts real edges, and changes that each of them has to serve before the next.
    fn real(
        &self,
        plane: &mut ControlPlane,
        written: &mut Written,
        start_edge: &mut StartEdge<'_>,
        tell: &mut Tell<'_>,
    ) -> Result<RealEdges, FleetError> {
        let edges = self.options.real;
        let begun = Instant::now();
        for number in 0..edges {
            tell(&format!("{number} of {edges} real edges are started"));
            let invitation = plane.invite(&format!("{REAL}{number}"))?;
            start_edge(number, &invitation).map_err(FleetError::Edge)?;
        }
        let newest = plane.position()?.0;
        let until_served = |plane: &mut ControlPlane, revision: u64| {
            let begun = Instant::now();
            loop {
                let done = plane.serving(REAL, revision)?;
                if done >= edges {
                    return Ok(());
                }
                let limit = self.options.settle;
                if begun.elapsed() > limit {
                    let what = "served the newest revision";
                    let why = plane.behind(REAL, revision)?;
                    return Err(FleetError::Late { done, edges, what, limit, why });
                }
                thread::sleep(LOOK);
            }
        };
        until_served(plane, newest)?;
        let start_seconds = begun.elapsed().as_secs_f64();
        let mut by_all = Tally::default().latency;
        for number in 0..self.options.changes {
            tell(&format!("change {} of {}, real edges", number + 1, self.options.changes));
            let sent = Instant::now();
            let revision = plane.change(written, 1)?;
            until_served(plane, revision)?;
            by_all.saturating_record(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(RealEdges { edges, start_seconds, by_all: Latency::new(&by_all) })
    }

    fn storm(&self, plane: &mut ControlPlane, written: &mut Written, rate: u32) -> Result<Storm, FleetError> {
        self.shared.ledger.begin();
        let calls = rate.min(CALLS_A_SECOND);
        let (before, begun) = (plane.usage(), Instant::now());
        let (mut commits, mut changes, mut cut) = (Vec::new(), 0_u64, 0.0);
        let mut slot = 0_u32;
        while begun.elapsed() < self.options.duration {
            // Changes that were due by the end of this slot, so that odd rates come out even.
            let due = u64::from(rate) * u64::from(slot + 1) / u64::from(calls);
            let sent = Instant::now();
            let revision = plane.change(written, due - changes)?;
            commits.push(Commit { revision, sent });
            changes = due;
            slot += 1;
            let is_due = self.options.cuts * begun.elapsed().as_secs_f64();
            while cut < is_due.floor() {
                self.cuts[fastrand::usize(..self.cuts.len())].notify_one();
                cut += 1.0;
            }
            let next = Duration::from_secs_f64(f64::from(slot) / f64::from(calls));
            thread::sleep(next.saturating_sub(begun.elapsed()));
        }
        let (took, after) = (begun.elapsed(), plane.usage());
        let seconds = took.as_secs_f64();
        let cores = before
            .zip(after)
            .map(|(before, after)| after.cpu.saturating_sub(before.cpu).as_secs_f64() / seconds);
        self.wait_served(commits.last().map_or(0, |commit| commit.revision))?;
        Ok(Storm {
            seconds,
            changes,
            changes_a_second: float(changes) / seconds,
            phase: self.phase(&commits),
            settled_seconds: begun.elapsed().saturating_sub(took).as_secs_f64(),
            reconnections: self.shared.ledger.reconnections(),
            control_plane_cores: cores,
        })
    }

    fn phase(&self, commits: &[Commit]) -> Phase {
        let delays = self.shared.ledger.delays(commits, false);
        let slow = self.shared.ledger.delays(commits, true);
        for missing in [delays.missing, slow.missing].into_iter().filter(|missing| *missing > 0) {
            self.shared.ledger.fault(format!("{missing} changes were never served by an edge"));
        }
        Phase {
            calls: commits.len(),
            by_all: Latency::new(&delays.by_all),
            by_each: Latency::new(&delays.by_each),
            by_slow: Latency::new(&slow.by_each),
        }
    }

    /// Compares each edge's hash with the store's, and each distinct state with what was written.
    fn compare(
        &self,
        plane: &mut ControlPlane,
        written: &Written,
        outcome: &mut FleetOutcome,
    ) -> Result<(), FleetError> {
        let (revision, hash) = plane.position()?;
        let (same, states) = self.shared.ledger.states(&hash);
        (outcome.revision, outcome.hashes_compared) = (revision, self.options.edges);
        if same < self.options.edges {
            let differing = self.options.edges - same;
            outcome
                .void
                .push(format!("{differing} edges have another hash than the store at revision {revision}"));
        }
        let differing = states.iter().map(|state| written.difference(state)).filter(|count| *count > 0);
        for count in differing {
            outcome
                .void
                .push(format!("an edge serves {count} proxies that are not as they were written last"));
        }
        outcome.void.extend(self.shared.ledger.faults());
        Ok(())
    }
}

fn float(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    let number = number as f64;
    number
}
