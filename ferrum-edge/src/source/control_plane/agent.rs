//! The task of an edge that keeps in touch with a control plane.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gateway_core::plugin::Registry;
use gateway_fleet::{
    Configuration, DocumentSet, EdgeCore, EdgeEffect, Findings, Link, LinkError, LinkReceiver, LinkSender,
    ToEdge, Welcome, clock,
};
use thiserror::Error;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::apply::Applier;
use super::edge::Edge;
use super::enrolment;
use super::error::{CertificateError, EdgeError};
use super::identity::{EdgeIdentity, StateFolder};
use super::last_good::{KeptConfiguration, LastGood};
use super::options::EdgeOptions;
use super::standing::SharedStanding;
use crate::engine::Engine;
use crate::source::database::{Documents, Permitted};
use crate::store::seal::Keys;

/// The version of the configuration's schema.
const SCHEMA: u32 = 1;
/// The shortest and longest pause between two connections; the pause is random up to a limit that doubles.
const MIN_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Between two attempts to serve what was refused, and two looks at the certificate.
const UPKEEP: Duration = Duration::from_secs(30);
/// Between two looks at what can't be used of what is served, such as ports in use.
const LOOK: Duration = Duration::from_secs(2);
/// Results of applying that wait.
const MAX_RESULTS: usize = 16;

/// What keeps in touch.
pub(crate) struct Agent {
    core: EdgeCore,
    folder: StateFolder,
    identity: EdgeIdentity,
    last_good: Option<LastGood>,
    kept: watch::Sender<Option<KeptConfiguration>>,
    /// The newest keys first.
    keys: Vec<String>,
    options: EdgeOptions,
    registry: Registry,
    standing: SharedStanding,
    pause: Duration,
    /// The control plane to try next.
    next: usize,
    /// What is applied is served in this one; `None` before the gateway runs.
    applier: Option<Arc<Mutex<Applier>>>,
    results: (mpsc::Sender<ApplyStep>, mpsc::Receiver<ApplyStep>),
    sender: Option<LinkSender>,
    /// Before the gateway runs: the first configuration.
    first: Option<Configuration>,
}

/// How applying goes on.
enum ApplyStep {
    Compiled(Findings),
    Ended(Result<Findings, String>),
}

/// Why a connection ended.
enum Ended {
    Lost(Option<String>),
    Revoked(String),
    Drained(Duration),
    /// The first configuration is there.
    First,
}

/// What the link knew is lost with it: it can't be started again.
#[derive(Debug, Error)]
#[error("the link to the control plane panicked; restart this gateway")]
struct LinkPanicked;

/// Begins to keep in touch, on the control runtime, within which it has to be called.
pub(crate) fn start(mut agent: Agent, engine: &Arc<Engine>, applier: Applier) -> Edge {
    let standing = agent.standing.clone();
    let applier = Arc::new(Mutex::new(applier));
    agent.applier = Some(applier.clone());
    // It is served from the first request on.
    let effects = agent.core.served().cloned().map(EdgeEffect::Keep);
    if let Some(last_good) = agent.last_good.take() {
        tokio::spawn(last_good.keep(agent.kept.subscribe(), standing.clone()));
    }
    let mut slot = Some((agent, effects));
    let tasks = engine.shared.tasks.clone();
    let again = standing.clone();
    tokio::spawn(tasks.supervise("control_plane_link", move || {
        let begun = slot.take();
        let standing = again.clone();
        async move {
            match begun {
                Some((mut agent, effects)) => {
                    agent.obey(effects.into_iter().collect());
                    agent.run().await
                }
                None => {
                    standing.set(|standing| standing.problem = Some(LinkPanicked.to_string()));
                    std::future::pending::<()>().await;
                    Err(LinkPanicked)
                }
            }
        }
    }));
    Edge { standing, applier }
}

impl Agent {
    pub(super) fn new(
        registry: &Registry,
        folder: StateFolder,
        identity: EdgeIdentity,
        last_good: LastGood,
        keys: String,
        options: EdgeOptions,
    ) -> Self {
        let standing = SharedStanding::default();
        standing.set(|standing| {
            standing.edge.clone_from(&identity.edge);
            standing.group.clone_from(&identity.group);
            standing.certificate_ends = enrolment::certificate(&identity).map_or(0, |read| read.not_after);
        });
        let capabilities: Vec<String> =
            registry.entries().iter().map(|entry| format!("plugin:{}", entry.name)).collect();
        Self {
            core: EdgeCore::new(env!("CARGO_PKG_VERSION"), SCHEMA, capabilities, None),
            folder,
            identity,
            last_good: Some(last_good),
            kept: watch::Sender::new(None),
            keys: split_keys(&keys),
            options,
            registry: registry.clone(),
            standing,
            pause: MIN_PAUSE,
            next: fastrand::usize(..),
            applier: None,
            results: mpsc::channel(MAX_RESULTS),
            sender: None,
            first: None,
        }
    }

    /// The keys for secrets, as they are written.
    pub(super) fn keys(&self) -> String {
        self.keys.join(",")
    }

    /// What objects may refer to.
    pub(super) const fn references(&self) -> &Permitted {
        &self.options.references
    }

    /// Serves this first.
    pub(super) fn begin_with(&mut self, configuration: Configuration) {
        self.core = self.core.begun_with(configuration);
    }

    /// What is served first can be used, but for these.
    pub(super) fn compiled_first(&mut self, findings: Findings) {
        self.core.note_findings(findings.clone());
        let served = self.core.served().map(|served| served.position.clone());
        self.standing.set(|standing| (standing.findings, standing.served) = (findings, served));
    }

    /// Waits for the first configuration of a control plane.
    ///
    /// # Errors
    /// When none comes in time.
    pub(super) async fn fetch_first(&mut self) -> Result<Configuration, EdgeError> {
        let limit = self.options.start_timeout;
        let first = timeout(limit, async {
            loop {
                match self.link_once().await {
                    Ended::First => return Ok(()),
                    Ended::Revoked(reason) => return Err(reason),
                    Ended::Lost(_) | Ended::Drained(_) => sleep(self.next_pause()).await,
                }
            }
        });
        let ended = first.await;
        let problem = || self.standing.get().problem.unwrap_or_default();
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => return Err(EdgeError::NoConfiguration(reason)),
            Err(_) => {
                let message =
                    format!("no control plane sent one within {} s; {}", limit.as_secs_f64(), problem());
                return Err(EdgeError::NoConfiguration(message));
            }
        }
        let first = self.first.take().ok_or_else(|| EdgeError::NoConfiguration(problem()))?;
        if let Some(last_good) = &self.last_good {
            last_good.keep_first((first.clone(), self.keys())).await;
        }
        Ok(first)
    }

    async fn run(mut self) -> Result<(), LinkPanicked> {
        loop {
            let ended = self.link_once().await;
            self.sender = None;
            let pause = match ended {
                Ended::Drained(delay) => delay.mul_f64(fastrand::f64()),
                Ended::Revoked(reason) => {
                    tracing::error!(
                        reason,
                        "this edge is revoked: it serves what it has, and gets nothing new"
                    );
                    self.standing.set(|standing| standing.revoked = Some(reason));
                    MAX_PAUSE
                }
                Ended::Lost(_) | Ended::First => self.next_pause(),
            };
            self.idle(pause).await;
        }
    }

    /// Random up to a limit, which doubles; a connection that works resets it.
    fn next_pause(&mut self) -> Duration {
        let pause = self.pause.mul_f64(fastrand::f64());
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        pause
    }

    /// Waits without a connection.
    async fn idle(&mut self, pause: Duration) {
        let until = Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                step = self.results.1.recv() => self.step(step),
            }
        }
    }

    /// Connects, and exchanges messages until the connection ends.
    async fn link_once(&mut self) -> Ended {
        let addresses = match self.options.control_planes.is_empty() {
            true => vec![self.identity.control_plane.clone()],
            false => self.options.control_planes.clone(),
        };
        let address = addresses.get(self.next % addresses.len()).cloned().unwrap_or_default();
        let opened = self.open(&address).await;
        let ended = match opened {
            Ok((link, receiver)) => {
                self.pause = MIN_PAUSE;
                self.standing.set(|standing| {
                    standing.connected = Some(address.clone());
                    standing.since = Some(SystemTime::now());
                    standing.problem = None;
                });
                tracing::info!(address, "connected to the control plane");
                self.exchange(&link, receiver).await
            }
            Err(LinkError::Revoked) => Ended::Revoked(LinkError::Revoked.to_string()),
            Err(error) => {
                let ended = enrolment::ended(&self.identity);
                Ended::Lost(Some(ended.unwrap_or_else(|| error.to_string())))
            }
        };
        self.next = self.next.wrapping_add(1);
        let problem = match &ended {
            Ended::Lost(problem) => problem.clone(),
            Ended::Revoked(reason) => Some(reason.clone()),
            Ended::Drained(_) => Some("the control plane stops".to_owned()),
            Ended::First => None,
        };
        self.standing.set(|standing| {
            if standing.connected.take().is_some() {
                standing.since = Some(SystemTime::now());
            }
            if problem.is_some() && standing.problem != problem {
                tracing::warn!(address, problem, "no control plane; the last configuration stays active");
            }
            standing.problem = problem;
        });
        ended
    }

    async fn open(&mut self, address: &str) -> Result<(Link, LinkReceiver), LinkError> {
        let tls = enrolment::tls(&self.identity).map_err(|error| LinkError::Failed(error.to_string()))?;
        // Whatever ends being applied meanwhile waits for the connection, so that its verdict is sent.
        let link = Link::connect(address, tls).await?;
        let (sender, receiver) = link.sync(&self.core.hello(clock())).await?;
        self.sender = Some(sender);
        Ok((link, receiver))
    }

    async fn exchange(&mut self, link: &Link, receiver: LinkReceiver) -> Ended {
        let (forwarded, mut messages) = mpsc::channel(1);
        let _forwarding = Forwarding(tokio::spawn(forward(receiver, forwarded)).abort_handle());
        let mut upkeep = interval(UPKEEP);
        upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = messages.recv() => {
                    let message = match message {
                        Some(Ok(Some(message))) => message,
                        Some(Err(error @ LinkError::Revoked)) => return Ended::Revoked(error.to_string()),
                        Some(Err(error)) => return Ended::Lost(Some(error.to_string())),
                        Some(Ok(None)) | None => return Ended::Lost(Some("the control plane ended the connection".to_owned())),
                    };
                    let effects = self.core.receive(message);
                    if let Some(ended) = self.obey(effects) {
                        return ended;
                    }
                }
                step = self.results.1.recv() => self.step(step),
                _ = looks.tick() => self.look(),
                _ = upkeep.tick() => {
                    self.renew(link).await;
                    let effects = self.core.retry();
                    self.obey(effects);
                }
            }
        }
    }

    /// Reports to the control plane which served objects this edge can no longer use, or can use again.
    fn look(&mut self) {
        // While something is applied, its verdict tells.
        let found = self.applier.as_ref().and_then(|applier| Some(applier.try_lock().ok()?.findings()));
        if let Some(findings) = found {
            let effects = self.core.findings_changed(findings);
            self.obey(effects);
        }
    }

    async fn renew(&mut self, link: &Link) {
        if !enrolment::certificate(&self.identity).is_ok_and(|certificate| enrolment::is_due(&certificate)) {
            return;
        }
        match self.renewed(link).await {
            Ok(identity) => {
                let ends = enrolment::certificate(&identity).map_or(0, |read| read.not_after);
                self.identity = identity;
                self.standing.set(|standing| standing.certificate_ends = ends);
                tracing::info!("this edge's certificate was renewed");
            }
            Err(error) => tracing::warn!(%error, "this edge's certificate could not be renewed yet"),
        }
    }

    async fn renewed(&self, link: &Link) -> Result<EdgeIdentity, CertificateError> {
        // What can't be written would be asked for in vain.
        self.folder.keep(&self.identity)?;
        let identity = enrolment::renewed(link, &self.identity).await?;
        self.folder.keep(&identity)?;
        Ok(identity)
    }

    fn step(&mut self, step: Option<ApplyStep>) {
        let effects = match step {
            Some(ApplyStep::Compiled(findings)) => self.core.compiled(findings),
            Some(ApplyStep::Ended(result)) => self.core.applied(result),
            None => return,
        };
        self.obey(effects);
    }

    fn obey(&mut self, effects: Vec<EdgeEffect>) -> Option<Ended> {
        let mut ended = None;
        for effect in effects {
            match effect {
                EdgeEffect::Send(message) => {
                    if self.sender.as_ref().is_some_and(|sender| !sender.send(&message)) {
                        ended = Some(Ended::Lost(Some("messages can't be sent".to_owned())));
                    }
                }
                EdgeEffect::Welcomed(welcome) => self.welcomed(welcome),
                EdgeEffect::Apply { from, to } => match &self.applier {
                    Some(applier) => self.apply(applier.clone(), from.unwrap_or_default(), to),
                    None => {
                        self.first = Some(to);
                        ended = Some(Ended::First);
                    }
                },
                EdgeEffect::Keep(configuration) => {
                    self.kept.send_replace(Some((configuration, self.keys())));
                }
                EdgeEffect::Revoked(reason) => ended = Some(Ended::Revoked(reason)),
                EdgeEffect::Reconnect(delay) => ended = Some(Ended::Drained(delay)),
            }
        }
        let core = &self.core;
        self.standing.set(|standing| {
            standing.served = core.served().map(|served| served.position.clone());
            standing.findings = core.findings().clone();
            standing.refused = core.refused().cloned();
        });
        if matches!(ended, Some(Ended::First)) {
            // The gateway begins with it: it is served when the gateway runs.
            self.core = self.core.begun_with(self.first.clone()?);
        }
        ended
    }

    fn apply(&self, applier: Arc<Mutex<Applier>>, from: DocumentSet, to: Configuration) {
        let results = self.results.0.clone();
        let documents =
            Documents::new(&self.registry, parsed_keys(&self.keys()), self.options.references.clone());
        tokio::spawn(async move {
            let told = results.clone();
            let applying = tokio::spawn(async move {
                let mut applier = applier.lock().await;
                applier.read_by(documents);
                let compiled = |findings| drop(told.try_send(ApplyStep::Compiled(findings)));
                let (findings, served) = applier.apply(&from, &to, compiled)?;
                served.everywhere().await;
                Ok(findings)
            });
            let panicked = |_| Err("applying it panicked; the log says where".to_owned());
            let result = applying.await.unwrap_or_else(panicked);
            if let Err(error) = &result {
                tracing::error!(
                    error,
                    "a configuration of the control plane is refused; the one before stays active"
                );
            }
            drop(results.send(ApplyStep::Ended(result)).await);
        });
    }

    fn welcomed(&mut self, welcome: Welcome) {
        let Welcome { name, group, keys, .. } = welcome;
        // What was sealed by earlier keys has to be opened until its documents come anew.
        let mut all = split_keys(&keys);
        all.extend(self.keys.iter().filter(|key| !keys.contains(key.as_str())).cloned());
        all.truncate(crate::store::seal::MAX_KEYS);
        self.keys = all;
        self.standing.set(|standing| (standing.name, standing.group, standing.revoked) = (name, group, None));
    }
}

fn split_keys(text: &str) -> Vec<String> {
    text.split(',').filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

/// The keys that a control plane sent; it makes them, so they can be read.
pub(super) fn parsed_keys(text: &str) -> Keys {
    if text.is_empty() { Keys::default() } else { Keys::parse(text).unwrap_or_default() }
}

/// Ends with the connection.
struct Forwarding(AbortHandle);

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reading a large message must not be given up in the middle, as `select!` would.
async fn forward(mut receiver: LinkReceiver, forwarded: mpsc::Sender<Result<Option<ToEdge>, LinkError>>) {
    loop {
        let message = receiver.next().await;
        let is_last = !matches!(message, Ok(Some(_)));
        if forwarded.send(message).await.is_err() || is_last {
            return;
        }
    }
}
