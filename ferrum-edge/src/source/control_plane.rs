//! Configuration from a control plane, changed while traffic flows.
//!
//! The protocol is [`gateway_fleet::EdgeCore`]'s; here are the files, the connection and the engine around it. An edge starts from
//! the last good configuration on its disk, else from a first one that its operator names, else from its control plane.

mod agent;
mod apply;
mod enrolment;
mod first;
mod identity;
mod last_good;
mod options;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use gateway_core::config::model::Settings;
use gateway_core::plugin::Registry;
use gateway_fleet::{Findings, Position};
use thiserror::Error;

pub(crate) use agent::start;
pub(crate) use apply::Applier;
pub(crate) use options::EdgeOptions;

use crate::engine::error::ReloadError;
use crate::source::database::{Documents, LoadError, Loaded, compile};
use crate::store::seal::Keys;
use agent::Agent;
use identity::StateFolder;
use last_good::LastGood;

/// Why an edge can't start.
#[derive(Debug, Error)]
pub(crate) enum EdgeError {
    /// Its files.
    #[error("{0}")]
    State(String),
    /// It is not enrolled, and was not invited.
    #[error(
        "this edge is not enrolled; make an invitation by `ferrum-edge fleet invite` on the control plane, and start it with FERRUM_EDGE_INVITATION"
    )]
    NotEnrolled,
    /// The control plane did not take it in.
    #[error("this edge could not be enrolled: {0}")]
    Enrolment(String),
    /// There is no configuration anywhere.
    #[error("there is no configuration yet: {0}")]
    NoConfiguration(String),
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// How an edge stands with its control plane, for status.
#[derive(Debug, Clone, Default)]
pub(crate) struct EdgeStanding {
    pub(crate) edge: String,
    pub(crate) name: String,
    pub(crate) group: String,
    /// The control plane that it is connected to.
    pub(crate) connected: Option<String>,
    /// Since when it is, or is not.
    pub(crate) since: Option<SystemTime>,
    /// Why it is not.
    pub(crate) problem: Option<String>,
    pub(crate) served: Option<Position>,
    pub(crate) findings: Findings,
    pub(crate) refused: Option<(Position, String)>,
    pub(crate) revoked: Option<String>,
    /// Seconds since 1970.
    pub(crate) certificate_ends: u64,
    /// The last good configuration on the disk.
    pub(crate) kept: Option<Position>,
    /// Why a newer one could not be kept.
    pub(crate) unsaved: Option<String>,
}

/// Shared by the agent and the admin API.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedStanding(Arc<Mutex<EdgeStanding>>);

impl SharedStanding {
    /// As it is now.
    pub(crate) fn get(&self) -> EdgeStanding {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, change: impl FnOnce(&mut EdgeStanding)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A running edge.
#[derive(Clone)]
pub(crate) struct Edge {
    standing: SharedStanding,
    applier: Arc<tokio::sync::Mutex<Applier>>,
}

impl Edge {
    /// How it stands.
    pub(crate) fn standing(&self) -> EdgeStanding {
        self.standing.get()
    }

    /// Puts other settings of the gateway as a whole in use.
    ///
    /// # Errors
    /// When they can't be used.
    pub(crate) async fn reload(&self, settings: Arc<Settings>) -> Result<(), ReloadError> {
        self.applier.lock().await.reload(settings)
    }
}

/// An edge whose first configuration is compiled.
pub(crate) struct OpenedEdge {
    pub(crate) agent: Agent,
    documents: Documents,
    registry: Registry,
}

impl OpenedEdge {
    /// What applies further configurations, and what fetches them.
    pub(crate) fn split(self) -> (Agent, Documents, Registry) {
        (self.agent, self.documents, self.registry)
    }
}

/// Enrols the edge if it has to be, and compiles the first configuration that can be had.
///
/// # Errors
/// When there is none.
pub(crate) async fn open(
    options: EdgeOptions,
    settings: Arc<Settings>,
    registry: Registry,
) -> Result<(OpenedEdge, Loaded), EdgeError> {
    let folder = StateFolder::open(&options.state).map_err(EdgeError::State)?;
    let identity = enrolment::identity(&folder, &options).await?;
    let last_good = LastGood::new(folder.last_good(), identity.seal_key()?);
    let (configuration, keys) = match last_good.read() {
        Ok(Some((configuration, keys))) => (Some(configuration), keys),
        Ok(None) => (None, String::new()),
        Err(error) => {
            tracing::error!(error, "the last good configuration can't be read; another one is fetched");
            (None, String::new())
        }
    };
    let first = match (&configuration, &options.first) {
        (None, Some(place)) => Some(first::read(place).await.map_err(EdgeError::NoConfiguration)?),
        _ => None,
    };
    let from = match (&configuration, &first) {
        (Some(_), _) => "the disk",
        (None, Some(_)) => "the first configuration",
        (None, None) => "the control plane",
    };
    let mut agent = Agent::new(&registry, folder, identity, last_good, keys, options);
    let configuration = match configuration.or(first) {
        Some(configuration) => {
            agent.begin_with(configuration.clone());
            configuration
        }
        None => agent.fetch_first().await?,
    };
    let documents = Documents::new(&registry, parsed_keys(&agent.keys()), agent.references().clone());
    let (objects, unknown) = apply::objects(&configuration.documents);
    let revision = configuration.position.revision;
    let loaded = compile(objects, revision, &documents, settings, &registry).await?;
    let findings = apply::findings(loaded.catalog(), unknown);
    tracing::info!(
        revision,
        objects = configuration.documents.len(),
        broken = findings.count,
        from,
        "an edge's configuration is compiled"
    );
    agent.compiled_first(findings);
    Ok((OpenedEdge { agent, documents, registry }, loaded))
}

/// The keys that a control plane sent; it makes them, so they can be read.
pub(super) fn parsed_keys(text: &str) -> Keys {
    if text.is_empty() { Keys::default() } else { Keys::parse(text).unwrap_or_default() }
}
