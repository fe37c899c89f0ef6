//! A copy of a request that goes on by itself, from the plugin that made it to the target: no client waits for its answer.

use std::sync::Arc;

use super::Exchange;
use crate::config::model::{PluginConfig, Proxy};

/// A copy of a request, and where it goes on. Made by [`Exchange::fork`], sent on by [`Exchange::detach`].
pub struct Fork {
    /// The request as it was when the copy was made, without its client's deadline and without other plugins' state.
    pub exchange: Box<Exchange>,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) plugin: Arc<PluginConfig>,
    pub(crate) place: u16,
}

impl std::fmt::Debug for Fork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fork")
            .field("proxy", &self.proxy.id)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}
