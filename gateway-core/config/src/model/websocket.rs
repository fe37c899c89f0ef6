//! How WebSockets are treated.

use std::sync::Arc;
use std::time::Duration;

/// Bytes of a WebSocket message that a plugin is to read, where the proxy says nothing else.
pub const MAX_MESSAGE: usize = 1 << 20;

/// How a proxy's WebSockets are treated.
#[derive(Debug, PartialEq, Eq)]
pub struct WebSocketRules {
    /// Whether clients may open one at all. Default true.
    pub is_allowed: bool,
    /// Origins that may open a WebSocket; empty allows all.
    pub allowed_origins: Vec<Arc<str>>,
    /// Ends a WebSocket with no byte in either direction; zero never does. Default 1 h.
    pub idle: Duration,
    /// Ends a WebSocket after so long in all; zero never does. Default zero.
    pub lifetime: Duration,
    /// Bytes a WebSocket message may have that plugins are to read; a larger one ends it with 1009. Default 1 MiB.
    pub max_message: usize,
}

impl Default for WebSocketRules {
    fn default() -> Self {
        Self {
            is_allowed: true,
            allowed_origins: Vec::new(),
            // Long, because a quiet WebSocket is the rule; finite, because its client may be gone without a word.
            idle: Duration::from_secs(3600),
            lifetime: Duration::ZERO,
            max_message: MAX_MESSAGE,
        }
    }
}
