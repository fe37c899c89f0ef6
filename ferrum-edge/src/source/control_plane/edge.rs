//! A running edge, as the rest of the program sees it.

use std::sync::Arc;

use gateway_core::config::model::Settings;
use tokio::sync::Mutex;

use super::apply::Applier;
use super::standing::{EdgeStanding, SharedStanding};
use crate::engine::error::ReloadError;

/// A running edge.
#[derive(Clone)]
pub(crate) struct Edge {
    pub(super) standing: SharedStanding,
    pub(super) applier: Arc<Mutex<Applier>>,
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
