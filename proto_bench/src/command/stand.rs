//! The test stand of `matrix` and `compare`: a directory, free ports, and proxies started for one test each.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::CommandError;
use crate::backend::Ports;
use crate::driver::Fault;
use crate::engine;
use crate::peers::{Peer, Rules, Setup, Site, Test, free_port};
use crate::plan::{Plan, Protocol, Target};
use crate::process::{ProcessError, Server};

/// Why a proxy cannot be measured in a test.
#[derive(Debug, thiserror::Error)]
pub enum StandError {
    #[error("{0} has no configuration that does this work")]
    NoConfiguration(&'static str),
    #[error("no ferrum-edge program found; give one with --gateway")]
    NoGateway,
    #[error("no free port: {0}")]
    NoPort(#[source] std::io::Error),
    #[error("cannot write {path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("{name} opened no UDP port within 5 s: {words}")]
    NoUdpPort { name: String, words: String },
    #[error("the first round trip failed: {0}")]
    Probe(String),
    #[error("the firewall does not tell attacks from clean requests: {0}")]
    NoFirewall(String),
    #[error("no round trip was completed")]
    NoAnswer,
    #[error(transparent)]
    Round(#[from] Fault),
}

/// Where a proxy runs, and what is behind it.
#[derive(Debug, Clone, Copy)]
pub struct ProxyPlacement<'a> {
    /// The ports of the backend.
    pub backend: &'a Ports,
    /// Where the proxy listens.
    pub listen: SocketAddr,
    /// Its worker threads or processes.
    pub workers: usize,
    /// The core it is bound to.
    pub core: Option<usize>,
}

/// A directory of its own that vanishes with it.
#[derive(Debug)]
pub struct Stand {
    pub directory: PathBuf,
    /// What firewalls are given.
    pub rules: Option<Rules>,
}

/// Round trips that a proxy must get right before it is measured.
const PROBE: Duration = Duration::from_millis(100);
const TRIES: u32 = 20;
/// How long a program may take to start and to end under another one.
const SLOW: Duration = Duration::from_secs(120);

impl Stand {
    /// Makes the directory.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> Result<Self, CommandError> {
        let name = format!("proto_bench-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory)
            .map_err(|source| CommandError::Directory { path: directory.clone(), source })?;
        Ok(Self { directory, rules: None })
    }

    /// A free port of loopback.
    ///
    /// # Errors
    /// None is left.
    pub fn port(&self) -> Result<SocketAddr, StandError> {
        free_port().map_err(StandError::NoPort)
    }

    /// What a client asks a proxy that listens there.
    #[must_use]
    pub fn target(test: Test, listen: SocketAddr) -> Target {
        let (protocol, tls) = test.front();
        Target::at(protocol, tls, listen)
    }

    /// Starts a proxy for a test and waits until it accepts.
    ///
    /// # Errors
    /// It has no configuration for the test, or refused the one it was given.
    pub fn start(
        &self,
        peer: Peer,
        test: Test,
        program: &Path,
        place: ProxyPlacement<'_>,
    ) -> Result<(Server, Setup), StandError> {
        self.start_under(peer, test, program, place, None)
    }

    /// The same under another program, such as valgrind, that makes it slow to start and to end.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_under(
        &self,
        peer: Peer,
        test: Test,
        program: &Path,
        place: ProxyPlacement<'_>,
        under: Option<&[String]>,
    ) -> Result<(Server, Setup), StandError> {
        let ProxyPlacement { backend, listen, workers, core } = place;
        let admin = self.port()?;
        let rules = self.rules.as_ref();
        let site = Site { listen, backend, directory: &self.directory, workers, admin, rules };
        let Some(setup) = peer.setup(test, program, &site) else {
            return Err(StandError::NoConfiguration(peer.name()));
        };
        for (path, text) in &setup.files {
            std::fs::write(path, text).map_err(|source| StandError::File { path: path.clone(), source })?;
        }
        let command = [under.unwrap_or_default(), &setup.command].concat();
        let mut server = Server::start(peer.name(), &command, &self.directory, core.as_slice())?;
        if under.is_some() {
            server = server.within(SLOW, SLOW);
        }
        let datagrams = matches!(test.front().0, Protocol::Http3 | Protocol::Udp | Protocol::Dtls);
        if datagrams {
            wait_bound(&mut server, listen)?;
        } else {
            server.wait_listening(listen)?;
        }
        Ok((server, setup))
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        // Left behind only if something in it cannot be deleted, which harms nobody.
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

/// Waits until somebody holds the UDP port: then binding it fails.
pub(super) fn wait_bound(server: &mut Server, listen: SocketAddr) -> Result<(), StandError> {
    for _ in 0..200 {
        server.check_alive()?;
        if std::net::UdpSocket::bind(listen).is_err() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    Err(StandError::NoUdpPort { name: server.name.clone(), words: server.last_lines() })
}

/// Runs a few round trips of a test; on a firewall also some that it must judge the other way.
///
/// # Errors
/// The first fault.
pub fn probe_test(test: Test, plan: &Plan) -> Result<(), StandError> {
    probe(plan)?;
    let Some(counterpart) = test.counterpart(plan) else { return Ok(()) };
    probe(&counterpart).map_err(|error| match error {
        StandError::Probe(words) => StandError::NoFirewall(words),
        other => other,
    })
}

/// Runs a few round trips over one connection; tells what is wrong with them.
///
/// # Errors
/// The first fault.
pub fn probe(plan: &Plan) -> Result<(), StandError> {
    let mut plan = plan.clone();
    (plan.load.connections, plan.load.streams, plan.threads) = (1, 1, 1);
    plan.timing.warm_up = Duration::ZERO;
    plan.timing.duration = PROBE;
    plan.timing.timeout = Duration::from_secs(5);
    plan.timing.connect = Duration::from_secs(5);
    // On a busy machine the first answer may come after so short a window.
    for _ in 0..TRIES {
        let outcome = engine::run(&plan, &[], &mut |_| {})?;
        if let Some((_, example)) = outcome.tally.faults.values().next() {
            return Err(StandError::Probe(example.clone()));
        }
        if outcome.tally.completed > 0 {
            return Ok(());
        }
    }
    Err(StandError::NoAnswer)
}
