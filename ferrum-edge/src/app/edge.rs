//! A gateway whose configuration comes from a control plane, and a gateway that is one.

use std::io;
use std::sync::Arc;

use gateway_core::config::model::Settings;
use gateway_core::plugin::Registry;
use gateway_protocols::downstream::bind::Inherited;

use super::Gateway;
use crate::control::Control;
use crate::engine::error::StartError;
use crate::engine::listeners::Ports;
use crate::fleet::{ControlPlane, FleetOptions, FleetRole};
use crate::source::control_plane::{self, Applier, Edge, EdgeOptions};
use crate::source::database::Database;

impl Gateway {
    /// Starts serving what a control plane sends, or what it sent last. Settings of the gateway as a whole come from `settings`.
    ///
    /// # Errors
    /// When there is no configuration yet and no control plane sends one, and as [`Gateway::start`].
    pub(crate) fn start_edge_on(
        settings: Arc<Settings>,
        options: EdgeOptions,
        registry: Registry,
        inherited: Inherited,
    ) -> Result<Self, StartError> {
        let control = Control::new().map_err(StartError::Thread)?;
        let stopped = || StartError::Thread(io::ErrorKind::NotConnected.into());
        let opening = control_plane::open(options, settings, registry);
        let opened = control.wait(opening).ok_or_else(stopped)?;
        let (opened, loaded) = opened.map_err(|error| StartError::Fleet(error.to_string()))?;
        let (compiled, rest) = loaded.split();
        let mut gateway = Self::launch(rest.compiler, compiled, control, Ports::Possible, inherited)?;
        let engine = gateway.engine.clone();
        let (agent, documents, registry) = opened.split();
        let start = async move {
            let applier = Applier::new(engine.clone(), documents, registry, rest.catalog);
            control_plane::start(agent, &engine, applier)
        };
        let edge = gateway.control.wait(start).ok_or_else(stopped)?;
        gateway.fleet = Some(FleetRole::Edge(edge));
        Ok(gateway)
    }

    /// The settings that a control plane runs with: it carries no traffic.
    pub(super) fn without_traffic(settings: &Settings) -> Arc<Settings> {
        let mut settings = settings.clone();
        settings.carries_traffic = false;
        (settings.http, settings.https, settings.http_socket) = (None, None, None);
        (settings.additional_http, settings.additional_https) = (Box::default(), Box::default());
        settings.http3 = false;
        settings.workers = 1;
        Arc::new(settings)
    }

    /// Starts a control plane over a database. It carries no traffic.
    ///
    /// # Errors
    /// As [`Gateway::start_database`], and when edges can't be served.
    pub(crate) fn start_control_plane(
        settings: &Settings,
        database: Database,
        options: FleetOptions,
        registry: Registry,
    ) -> Result<Self, StartError> {
        let settings = Self::without_traffic(settings);
        let mut gateway = Self::start_for_edges(settings, database, registry.clone())?;
        let stopped = || StartError::Thread(io::ErrorKind::NotConnected.into());
        let engine = gateway.engine.clone();
        let reconciler = gateway.reconciler.clone().ok_or_else(stopped)?;
        let start = async move { ControlPlane::start(&engine, &reconciler, registry, options).await };
        let plane = gateway
            .control
            .wait(start)
            .ok_or_else(stopped)?
            .map_err(|error| StartError::Fleet(error.to_string()))?;
        gateway.fleet = Some(FleetRole::Control(plane));
        Ok(gateway)
    }

    /// The edge that this is.
    pub(crate) fn edge(&self) -> Option<&Edge> {
        match &self.fleet {
            Some(FleetRole::Edge(edge)) => Some(edge),
            _ => None,
        }
    }

    /// The control plane that this is.
    pub(crate) fn control_plane(&self) -> Option<&Arc<ControlPlane>> {
        match &self.fleet {
            Some(FleetRole::Control(plane)) => Some(plane),
            _ => None,
        }
    }

    /// Sends the edges of a control plane to another one.
    pub(crate) fn drain_fleet(&self) {
        if let Some(plane) = self.control_plane().cloned() {
            self.control.wait(async move { plane.drain().await });
        }
    }
}
