//! A gateway whose configuration comes from a database.

use std::io;
use std::sync::Arc;

use gateway_core::config::model::Settings;
use gateway_core::plugin::Registry;
use gateway_protocols::downstream::bind::Inherited;

use super::Gateway;
use crate::control::Control;
use crate::engine::error::StartError;
use crate::engine::listeners::Ports;
use crate::source::database::{Database, Reconciler};

/// What a process does with its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It carries traffic.
    Gateway,
    /// It answers for the database only, for a command.
    Command,
    /// Edges carry the traffic.
    #[cfg(feature = "fleet")]
    ControlPlane,
}

impl Role {
    fn keeps_usage(self) -> bool {
        matches!(self, Self::Gateway | Self::Command)
    }
}

impl Gateway {
    /// Starts serving what a database has. Settings of the gateway as a whole come from `settings`. Returns once every
    /// listener takes connections.
    ///
    /// # Errors
    /// When the database does not answer and there is no last good configuration, and as [`Gateway::start`].
    pub fn start_database(
        settings: Arc<Settings>,
        database: Database,
        registry: Registry,
    ) -> Result<Self, StartError> {
        Self::start_database_on(settings, database, registry, Inherited::default())
    }

    /// As [`Gateway::start_database`], on sockets of another process, as [`Gateway::start_on`].
    ///
    /// # Errors
    /// As [`Gateway::start_database`].
    pub fn start_database_on(
        settings: Arc<Settings>,
        database: Database,
        registry: Registry,
        inherited: Inherited,
    ) -> Result<Self, StartError> {
        Self::launch_database(settings, database, registry, Role::Gateway, inherited)
    }

    /// As [`Gateway::start_database`], without opening the ports of stream proxies: answers for the database only.
    pub(crate) fn start_closed(
        settings: Arc<Settings>,
        database: Database,
        registry: Registry,
    ) -> Result<Self, StartError> {
        Self::launch_database(settings, database, registry, Role::Command, Inherited::default())
    }

    /// As [`Gateway::start_closed`], and without a place for the usage of quotas: edges have no database.
    #[cfg(feature = "fleet")]
    pub(super) fn start_for_edges(
        settings: Arc<Settings>,
        database: Database,
        registry: Registry,
    ) -> Result<Self, StartError> {
        Self::launch_database(settings, database, registry, Role::ControlPlane, Inherited::default())
    }

    fn launch_database(
        settings: Arc<Settings>,
        database: Database,
        registry: Registry,
        role: Role,
        inherited: Inherited,
    ) -> Result<Self, StartError> {
        let ports = if role == Role::Gateway { Ports::Possible } else { Ports::Closed };
        let control = Control::new().map_err(StartError::Thread)?;
        let stopped = || StartError::Thread(io::ErrorKind::NotConnected.into());
        let opening = database.open(settings, registry, role.keeps_usage());
        let (opened, loaded) = control.wait(opening).ok_or_else(stopped)??;
        let (compiled, rest) = loaded.split();
        let mut gateway = Self::launch(rest.compiler, compiled, control, ports, inherited)?;
        let engine = gateway.engine.clone();
        let start = async move { Reconciler::start(engine, opened, rest.catalog, rest.mark) };
        let reconciler = gateway.control.wait(start).ok_or_else(stopped)?;
        gateway.reconciler = Some(reconciler);
        Ok(gateway)
    }

    /// Settings of a file as they are used here: a control plane carries no traffic.
    pub(crate) fn served_settings(&self, settings: Arc<Settings>) -> Arc<Settings> {
        #[cfg(feature = "fleet")]
        if self.control_plane().is_some() {
            return Self::without_traffic(&settings);
        }
        settings
    }

    /// What keeps the configuration equal to the database's, when it comes from one.
    pub(crate) fn reconciler(&self) -> Option<&Arc<Reconciler>> {
        self.reconciler.as_ref()
    }
}
