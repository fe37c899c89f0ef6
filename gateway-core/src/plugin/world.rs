//! What a plugin may reach besides the traffic.

use std::sync::Arc;

/// The world a plugin is built in. Whatever reaches outside the gateway comes in through here, so that name
/// resolution, TLS policy and shutdown stay the gateway's, and a test hands in a fake.
#[derive(Debug, Clone)]
pub struct World {
    /// The gateway's name in headers it adds.
    pub gateway: Arc<str>,
}

impl Default for World {
    fn default() -> Self {
        Self { gateway: Arc::from("ferrum-edge") }
    }
}
