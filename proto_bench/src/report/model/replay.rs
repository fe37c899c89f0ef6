//! What a result of `replay` says beside its rows: the published figures, and what each program takes before it does anything.

use serde::{Deserialize, Serialize};

use crate::replay::{AtRest, Published};

/// The published side of a replay.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Replay {
    pub seed: String,
    pub title: String,
    pub source: String,
    pub conditions: String,
    pub rows: Vec<ReplayRow>,
    /// What the subjects took before the first request.
    pub starts: Vec<Start>,
    /// The same as it was published.
    pub at_rest: Vec<AtRest>,
}

/// A published row, with the id of the rows that replay it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReplayRow {
    pub id: String,
    pub label: String,
    /// As published, and as measured here.
    pub published_clients: u32,
    pub clients: u32,
    pub published_seconds: f64,
    pub seconds: f64,
    pub published: Vec<Published>,
    /// What we do otherwise, and why.
    pub differs: Option<String>,
    /// Why it was not run.
    pub skipped: Option<String>,
}

/// A program that has been started and was asked nothing yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    pub subject: String,
    pub program_bytes: u64,
    /// Until it accepted a connection.
    pub milliseconds: f64,
    pub resident_bytes: u64,
}
