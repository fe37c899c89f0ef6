//! The signals that a running gateway obeys.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals of a process.
pub(super) struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    user1: Signal,
    user2: Signal,
}

/// What a signal asks for.
pub(super) enum SignalAction {
    Reload,
    Reopen,
    Upgrade,
    Stop(&'static str),
}

/// Signals that came while nobody could act on them.
#[derive(Debug, Default)]
pub(super) struct Missed {
    pub(super) reload: bool,
    pub(super) reopen: bool,
    pub(super) upgrade: bool,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// The next signal to stop, and which others came before it.
    pub(super) async fn stopped(&mut self, missed: &mut Missed) -> &'static str {
        loop {
            match self.next().await {
                SignalAction::Stop(signal) => return signal,
                SignalAction::Reload => missed.reload = true,
                SignalAction::Reopen => missed.reopen = true,
                SignalAction::Upgrade => missed.upgrade = true,
            }
        }
    }

    pub(super) async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.hangup.recv() => SignalAction::Reload,
            _ = self.user1.recv() => SignalAction::Reopen,
            _ = self.user2.recv() => SignalAction::Upgrade,
            _ = self.terminate.recv() => SignalAction::Stop("SIGTERM"),
            _ = self.interrupt.recv() => SignalAction::Stop("SIGINT"),
            _ = self.quit.recv() => SignalAction::Stop("SIGQUIT"),
        }
    }
}
