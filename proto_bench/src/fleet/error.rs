//! Why the test can't go on.

use std::time::Duration;

use crate::scale::http::HttpError;

/// Why the test can't go on.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("the admin API: {0}")]
    Admin(#[source] HttpError),
    #[error("the admin API answered {status}: {body}")]
    Refused { status: u16, body: String },
    #[error("the control plane: {0}")]
    Link(String),
    #[error("the control plane is busy")]
    Busy,
    #[error("the control plane sent {0}")]
    Protocol(String),
    #[error("{done} of {edges} edges {what} within {limit:?}{why}")]
    Late { done: usize, edges: usize, what: &'static str, limit: Duration, why: String },
    #[error("a real edge could not be started: {0}")]
    Edge(String),
    #[error("the edges can't run: {0}")]
    Runtime(#[from] std::io::Error),
}
