//! `compare`: proxies side by side, each alone on a core, generator and backend on another, in turns.

use std::path::PathBuf;

use super::matrix::entry;
use super::measure::Teller;
use super::process::{BackendProcess, find, pin_self};
use super::run::note_limits;
use super::stand::{Stand, probe};
use super::{CommandError, output};
use crate::cli::{Ending, LoadArgs, OutputArgs};
use crate::measure::{Role, Watched, machine};
use crate::peers::{self, Peer, Test};
use crate::report::model::{Row, Verdict};
use crate::report::{Document, Kind};

mod check;

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Proxies to compare; those that are not installed are left out, and the report says so.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Peer::ALL)]
    peers: Vec<Peer>,
    /// Tests to run, in this order.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Test::ALL)]
    tests: Vec<Test>,
    /// The gateway's program; without it, `ferrum-edge` beside this program or in the search path.
    #[arg(long, value_name = "PROGRAM")]
    gateway: Option<PathBuf>,
    /// Core of the proxy, with one worker.
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// Core of generator and backend.
    #[arg(long, default_value_t = 1)]
    generator_core: usize,
    /// Checks the generator against these programs first, on nginx in the same run.
    #[arg(long, value_enum, value_delimiter = ',')]
    check_with: Vec<check::Checker>,
    /// Connections of HTTP/2, HTTP/3 and gRPC tests.
    #[arg(long, default_value_t = 20)]
    multiplexed_connections: u32,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What a round needs beside its test.
struct Bench<'a> {
    args: &'a Args,
    stand: Stand,
    backend: BackendProcess,
    found: Vec<(Peer, PathBuf)>,
}

/// Requests in flight on each connection of HTTP/2, HTTP/3 and gRPC tests, unless told.
const STREAMS: u32 = 10;

/// Runs the comparison.
///
/// # Errors
/// A core that is not there, a backend that cannot be started, or a result that cannot be written.
pub fn run(args: &Args) -> Result<Ending, CommandError> {
    let core = args.generator_core;
    pin_self(core).map_err(|source| CommandError::Pin { core, source })?;
    let stand = Stand::new()?;
    let certificates = stand.directory.to_string_lossy().into_owned();
    let arguments = ["--threads", "1", "--write-certificate", &certificates];
    let backend = BackendProcess::start(&arguments, Some(core))?;
    let program = |peer: &Peer| Some((*peer, peer.program(args.gateway.as_deref())?));
    let found: Vec<_> = args.peers.iter().filter_map(program).collect();
    let mut document = begin(args, &found);
    let mut teller = Teller::new(args.output.quiet).repeating(args.load.repeat_disturbed);
    let bench = Bench { args, stand, backend, found };
    for _ in 0..args.load.rounds {
        check::rounds(&bench, &mut document, &teller)?;
        for test in &args.tests {
            for (peer, program) in &bench.found {
                bench.round(*test, (*peer, program), &mut document, &mut teller)?;
            }
        }
    }
    document.rows.iter_mut().for_each(Row::conclude);
    teller.confess(&mut document);
    output::deliver(document, &args.output)
}

fn begin(args: &Args, found: &[(Peer, PathBuf)]) -> Document {
    let mut document = Document::begin(Kind::Compare);
    document.versions.extend(peers::versions(found));
    for checker in &args.check_with {
        let (name, version) = checker.version_command();
        document.versions.extend(machine::versions(&[(name, name, version)]));
    }
    for peer in &args.peers {
        if !found.iter().any(|(present, _)| present == peer) {
            document.notes.push(format!("{} is not installed here.", peer.name()));
        }
    }
    let settings = [
        (
            "cores",
            format!(
                "proxy on core {}, generator and backend on core {}",
                args.server_core, args.generator_core
            ),
        ),
        ("workers", "one for each proxy".to_owned()),
        (
            "connections",
            format!("{}; HTTP/2, HTTP/3 and gRPC {}", args.load.connections, args.multiplexed_connections),
        ),
        (
            "rounds",
            format!(
                "{} of {:?} after {:?} of warm-up, proxies in turns",
                args.load.rounds, args.load.duration, args.load.warm_up
            ),
        ),
        ("tls", "X25519, full handshakes; in front, never to the backend".to_owned()),
    ];
    document.settings.extend(settings.map(|(name, value)| (name.to_owned(), value)));
    document.notes.push(
        "Generator and backend share a core, so the proxy is seldom at its limit: rates and latencies show the whole \
         chain, CPU time a request shows the proxy."
            .to_owned(),
    );
    document
}

impl Bench<'_> {
    fn round(
        &self,
        test: Test,
        (peer, program): (Peer, &std::path::Path),
        document: &mut Document,
        teller: &mut Teller,
    ) -> Result<(), CommandError> {
        let listen = self.stand.port()?;
        let mut plan = self.args.load.plan(Stand::target(test, listen));
        plan.threads = 1;
        let streams = if self.args.load.streams > 1 { self.args.load.streams } else { STREAMS };
        test.shape(&mut plan, self.args.multiplexed_connections, streams);
        if matches!(entry(document, test, peer.name(), &plan).verdict, Verdict::Unavailable(_)) {
            return Ok(());
        }
        teller.label(format!("{} {}", test.label(), peer.name()));
        let core = Some(self.args.server_core);
        let started = self.stand.start(peer, test, program, (&self.backend.ports, listen, 1, core));
        let (server, setup) = match started.and_then(|started| probe(&plan).map(|()| started)) {
            Ok(started) => started,
            Err(reason) => {
                entry(document, test, peer.name(), &plan).verdict = Verdict::Unavailable(reason.to_string());
                return Ok(());
            }
        };
        document.configurations.insert(format!("{} {}", peer.name(), test.id()), setup.text());
        note_limits(document, &plan);
        let watched = [
            Watched { role: Role::Subject, name: peer.name().to_owned(), pid: server.pid(), cores: 1.0 },
            Watched { role: Role::Backend, name: "backend".to_owned(), pid: self.backend.pid(), cores: 1.0 },
        ];
        let round = teller.round(&plan, &watched)?;
        entry(document, test, peer.name(), &plan).rounds.push(round);
        Ok(())
    }

    /// nginx, if it takes part.
    fn nginx(&self) -> Option<PathBuf> {
        find("nginx")
    }
}
