//! Who asks the admin API, as its connection tells.

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Peer {
    /// An address with a port, or the process behind a Unix socket.
    pub(super) address: Option<String>,
    /// The subject of the certificate that was shown.
    pub(super) certificate: Option<String>,
}
