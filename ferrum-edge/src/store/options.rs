//! What can be chosen about the store; every limit has a name and a default here.

use std::time::Duration;

/// How the store behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Longest time to get a connection. Default: 5 s.
    pub connect_timeout: Duration,
    /// Longest time without an answer to a statement or without the next row. Default: 30 s.
    pub statement_timeout: Duration,
    /// Longest wait for another writer; shorter than `statement_timeout`. Default: 5 s.
    pub busy_timeout: Duration,
    /// Longest time to learn how a commit ended when the connection was lost during it. Default: 10 s.
    pub settle_timeout: Duration,
    /// Connections at a time for reading. Following and writing have one more each. Default: 4.
    pub connections: usize,
    /// Revisions of which the history is kept. Default: 10,000.
    pub keep_revisions: u64,
    /// Changed objects of which the history is kept, over all revisions; the last revision is kept in any case.
    /// Default: 20,000,000.
    pub keep_changes: u64,
    /// Entries of the audit that are kept. Default: 100,000.
    pub keep_audit: u64,
    /// How long an entry of the audit is kept. Default: 365 days.
    pub keep_audit_for: Duration,
    /// Changed objects [`changed_since`](super::Store::changed_since) answers with; of more, loading anew is cheaper.
    /// Default: 200,000.
    pub max_delta: u64,
    /// Objects that `diff` and `undo_ops` hold in memory. Default: 5,000,000.
    pub max_diff: u64,
    /// Bytes SQLite's file may have; beyond it is as if the disk were full. Default: `None`, as much as the disk has.
    pub max_bytes: Option<u64>,
    /// Time between two looks at the revision; `None`: 250 ms for SQLite, 500 ms for MySQL, 5 s for PostgreSQL, which
    /// tells of changes by itself.
    pub poll_interval: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            busy_timeout: Duration::from_secs(5),
            settle_timeout: Duration::from_secs(10),
            connections: 4,
            keep_revisions: 10_000,
            keep_changes: 20_000_000,
            keep_audit: 100_000,
            keep_audit_for: Duration::from_secs(365 * 86_400),
            max_delta: 200_000,
            max_diff: 5_000_000,
            max_bytes: None,
            poll_interval: None,
        }
    }
}
