//! Tells systemd what the gateway is doing (sd_notify(3)), where it asked for it.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// What a service manager is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceState {
    /// Start or reload is complete.
    Ready,
    /// A reload began.
    Reloading,
    /// A drain began.
    Stopping,
    /// The process works, in time for the watchdog.
    Alive,
}

/// Tells it, if `NOTIFY_SOCKET` names a socket. A failure is logged: the gateway works without.
pub(super) fn tell(state: ServiceState) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        _ => SocketAddr::from_pathname(&name),
    };
    let message = message(state);
    let sent = address.and_then(|to| UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &to));
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager could not be told");
    }
}

/// Tells the service manager's watchdog that the process works, as long as the result is kept; `None` where it has none
/// (`WatchdogSec`).
pub(super) fn keep_alive() -> Option<KeepAlive> {
    let micros: u64 = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    let is_ours = |pid: String| pid.parse() == Ok(std::process::id());
    if !std::env::var("WATCHDOG_PID").map_or(true, is_ours) {
        return None;
    }
    // Twice as often as it has to be, as sd_watchdog_enabled(3) recommends.
    let every = Duration::from_micros((micros / 2).max(1000));
    Some(KeepAlive(tokio::spawn(async move {
        let mut ticks = tokio::time::interval(every);
        loop {
            ticks.tick().await;
            tell(ServiceState::Alive);
        }
    })))
}

/// Ends with the process's work.
pub(super) struct KeepAlive(tokio::task::JoinHandle<()>);

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn message(state: ServiceState) -> String {
    match state {
        // The id, because this process may have taken the place of the one that systemd started.
        ServiceState::Ready => format!("READY=1\nMAINPID={}\n", std::process::id()),
        ServiceState::Stopping => "STOPPING=1\n".to_owned(),
        ServiceState::Alive => "WATCHDOG=1\n".to_owned(),
        // Type=notify-reload wants the moment, so that it can tell this reload from an older one.
        ServiceState::Reloading => {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
            format!("RELOADING=1\nMONOTONIC_USEC={micros}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_carries_its_moment() {
        let text = message(ServiceState::Reloading);
        let micros = text.trim().strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(micros.parse::<u64>().unwrap() > 0);
    }
}
