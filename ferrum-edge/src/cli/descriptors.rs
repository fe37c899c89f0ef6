//! The limit on file descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// No usual system has so low a hard limit; each exchange may need two descriptors, and the gateway some of its own.
const FEW_DESCRIPTORS: u64 = 4096;

/// Raises the soft limit on file descriptors to the hard one: the soft one is low for programs that use `select`.
pub(super) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(%error, "the limit on file descriptors can't be raised");
    }
    if let Some(limit) = limit.maximum.filter(|limit| *limit < FEW_DESCRIPTORS) {
        let remedy = "raise it with `LimitNOFILE` in the systemd unit or `ulimit -Hn`";
        tracing::warn!(limit, "the limit on file descriptors allows few connections; {remedy}");
    }
}
