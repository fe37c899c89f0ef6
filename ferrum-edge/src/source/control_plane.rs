//! Configuration from a control plane, changed while traffic flows.
//!
//! The protocol is [`gateway_fleet::EdgeCore`]'s; here are the files, the connection and the engine around it. An edge starts from
//! the last good configuration on its disk, else from a first one that its operator names, else from its control plane.

mod agent;
mod apply;
mod edge;
mod enrolment;
mod error;
mod first;
mod identity;
mod last_good;
mod options;
mod standing;

use std::sync::Arc;

use gateway_core::config::model::Settings;
use gateway_core::plugin::Registry;

pub(crate) use agent::start;
pub(crate) use apply::Applier;
pub(crate) use edge::Edge;
use error::EdgeError;
pub(crate) use options::EdgeOptions;

use crate::source::database::{Documents, Loaded, compile};
use agent::{Agent, parsed_keys};
use identity::StateFolder;
use last_good::LastGood;

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
    let folder = StateFolder::open(&options.state)?;
    let identity = enrolment::identity(&folder, &options).await?;
    let last_good = LastGood::new(folder.last_good(), identity.seal_key()?);
    let (configuration, keys) = match last_good.read() {
        Ok(Some((configuration, keys))) => (Some(configuration), keys),
        Ok(None) => (None, String::new()),
        Err(error) => {
            tracing::error!(%error, "the last good configuration can't be read; another one is fetched");
            (None, String::new())
        }
    };
    let first = match (&configuration, &options.first) {
        (None, Some(place)) => Some(first::read(place).await?),
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
    let findings = apply::findings(loaded.catalog(), &unknown);
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
