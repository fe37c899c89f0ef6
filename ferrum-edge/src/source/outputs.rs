//! Files and sockets that the gateway makes: whether there is a folder for each, which is else found out when it starts.

use std::path::Path;

use gateway_core::config::model::{LogDestination, Settings};
use gateway_core::config::problem::Problems;

/// What is wrong with where these settings write.
pub(super) fn check(settings: &Settings) -> Problems {
    let mut problems = Problems::default();
    let mut look = |at: &str, path: &Path| {
        let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return };
        if path != Path::new("-") && !folder.is_dir() {
            let message = format!("there is no folder `{}`", folder.display());
            problems.add(at, message).remedy = Some("make it, or correct the path".to_owned());
        }
    };
    if let Some(log) = &settings.access_log {
        look("gateway.access_log.path", &log.path);
    }
    for (n, sink) in settings.log_sinks.iter().enumerate() {
        if let LogDestination::File(file) = &sink.destination {
            look(&format!("gateway.access_log.sinks[{n}].file.path"), &file.path);
        }
    }
    for (at, path) in [
        ("gateway.audit_log", &settings.audit_log),
        ("gateway.admin_socket", &settings.admin_socket),
        ("gateway.http_socket", &settings.http_socket.as_ref().map(|(path, _)| path.clone())),
    ] {
        if let Some(path) = path {
            look(at, path);
        }
    }
    problems
}
