//! Who a caller was recognised as.

use std::sync::Arc;

use crate::config::model::Consumer;

/// A recognised caller: a consumer of the configuration, or a name another party vouched for.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The consumer, when the caller is one.
    pub consumer: Option<Arc<Consumer>>,
    /// The name logs and upstreams see: the consumer's username, or the external subject.
    pub name: Arc<str>,
}

impl Identity {
    /// A consumer of the configuration.
    pub fn consumer(consumer: Arc<Consumer>) -> Self {
        Self { name: consumer.username.clone(), consumer: Some(consumer) }
    }
}
