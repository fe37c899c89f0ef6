//! Who asks the admin API, as its connection tells.

#[cfg(feature = "console")]
use crate::access::Caller;

/// Whom a request of the console is from, once its session has been checked.
#[cfg(feature = "console")]
#[derive(Debug, Clone)]
pub(super) struct ConsoleCaller(pub(super) Caller);

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Peer {
    /// An address with a port, or the process behind a Unix socket.
    pub(super) address: Option<String>,
    /// The subject of the certificate that was shown.
    pub(super) certificate: Option<String>,
    /// The user id behind a Unix socket, when it is this gateway's user or root, and the process is not this gateway.
    pub(super) owner: Option<u32>,
}
