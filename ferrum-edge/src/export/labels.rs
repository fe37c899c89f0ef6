//! The labels of metrics, and which of them an exchange counts under.

use http::Version;

/// Status classes, 1xx to 5xx.
pub(super) const CLASSES: usize = 5;
/// Their names as labels.
pub(super) const CLASS_NAMES: [&str; CLASSES] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
/// HTTP versions as labels.
pub(super) const VERSIONS: [&str; 3] = ["1.1", "2", "3"];
/// Protocols of sessions as labels.
pub(super) const SESSIONS: [&str; 6] = ["tcp", "udp", "dtls", "websocket", "http", "other"];

/// The place of a protocol among [`SESSIONS`].
pub(super) fn session_place(protocol: &str) -> usize {
    SESSIONS.iter().position(|name| *name == protocol).unwrap_or(SESSIONS.len() - 1)
}

/// The place of a status among the classes.
pub(super) fn class_of(status: u16) -> usize {
    usize::from(status / 100).clamp(1, CLASSES) - 1
}

/// The place of a version among [`VERSIONS`]; HTTP/1.0 counts as 1.1.
pub(super) fn version_of(version: Version) -> usize {
    match version {
        Version::HTTP_2 => 1,
        Version::HTTP_3 => 2,
        _ => 0,
    }
}
