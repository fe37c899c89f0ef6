//! `compare`: proxies side by side, on a core of their own, generator and backend on another. All are up at once and are
//! measured in short slices in turns, so that whatever changes on the machine changes for each of them.

use std::path::{Path, PathBuf};

use super::matrix::entry;
use super::measure::Console;
use super::process::{BackendProcess, Server, find, pin_self};
use super::run::note_limits;
use super::stand::{ProxyPlacement, Stand, probe};
use super::{CommandError, output};
use crate::cli::{ExitStatus, LoadArgs, OutputArgs};
use crate::measure::{Role, Watched, counters, machine};
use crate::peers::{self, Peer, Test};
use crate::plan::Plan;
use crate::report::model::{Row, Verdict};
use crate::report::{Document, ReportKind};

mod callgrind;
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
    /// Counts each request's instructions and cache misses: by the processor's counters, where `perf` and the machine have them,
    /// or by callgrind, in further runs of a fixed number of requests.
    #[arg(long, value_enum, default_value_t = Instructions::Perf)]
    instructions: Instructions,
    /// Requests that callgrind counts for each subject and test.
    #[arg(long, default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    counted_requests: u64,
    /// Connections of HTTP/2, HTTP/3 and gRPC tests.
    #[arg(long, default_value_t = 20)]
    multiplexed_connections: u32,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// How instructions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Instructions {
    Perf,
    Callgrind,
    Off,
}

/// What a slice needs beside its test.
struct Bench<'a> {
    args: &'a Args,
    load: LoadArgs,
    stand: Stand,
    backend: BackendProcess,
    found: Vec<(Peer, PathBuf)>,
}

/// A proxy that is up for a test.
struct Subject {
    peer: Peer,
    server: Server,
    plan: Plan,
}

/// Requests in flight on each connection of HTTP/2, HTTP/3 and gRPC tests, unless told.
const STREAMS: u32 = 10;

/// Runs the comparison.
///
/// # Errors
/// A core that is not there, a backend that cannot be started, or a result that cannot be written.
pub fn run(args: &Args) -> Result<ExitStatus, CommandError> {
    let core = args.generator_core;
    pin_self(&[core]).map_err(|source| CommandError::Pin { core, source })?;
    let stand = Stand::new()?;
    let certificates = stand.directory.to_string_lossy().into_owned();
    let arguments = ["--threads", "1", "--write-certificate", &certificates];
    let backend = BackendProcess::start(&arguments, &[core])?;
    let program = |peer: &Peer| Some((*peer, peer.program(args.gateway.as_deref())?));
    let found: Vec<_> = args.peers.iter().filter_map(program).collect();
    let bench = Bench { args, load: args.load.in_slices(), stand, backend, found };
    let mut document = bench.begin();
    let counting = args.instructions == Instructions::Perf && can_count(&mut document);
    let mut console =
        Console::new(args.output.quiet).repeating(args.load.repeat_disturbed).counting(counting);
    check::rounds(&bench, &mut document, &console)?;
    for test in &args.tests {
        bench.measure(*test, &mut document, &mut console)?;
        if args.instructions == Instructions::Callgrind {
            callgrind::count(&bench, *test, &mut document, &console);
        }
    }
    document.rows.iter_mut().for_each(Row::conclude);
    console.note_repeats(&mut document);
    output::deliver(document, &args.output)
}

/// Whether the processor's counters can be read; says in the document if they can't.
fn can_count(document: &mut Document) -> bool {
    let Err(reason) = counters::available() else { return true };
    document.notes.push(format!(
        "Instructions and cache misses are not counted: {reason}. --instructions callgrind counts them without counters."
    ));
    false
}

impl Bench<'_> {
    fn begin(&self) -> Document {
        let (args, load) = (self.args, &self.load);
        let mut document = Document::begin(ReportKind::Compare);
        document.versions.extend(peers::versions(&self.found));
        for checker in &args.check_with {
            let (name, version) = checker.version_command();
            document.versions.extend(machine::versions(&[(name, name, version)]));
        }
        for peer in &args.peers {
            if !self.found.iter().any(|(present, _)| present == peer) {
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
                format!("{}; HTTP/2, HTTP/3 and gRPC {}", load.connections(), args.multiplexed_connections),
            ),
            (
                "slices",
                format!(
                    "{} of {:?} each after {:?} of warm-up, in turns, all proxies up at once",
                    load.rounds(),
                    load.duration(),
                    load.warm_up()
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

    /// All slices of a test.
    fn measure(
        &self,
        test: Test,
        document: &mut Document,
        console: &mut Console,
    ) -> Result<(), CommandError> {
        let mut subjects = Vec::new();
        for (peer, program) in &self.found {
            subjects.extend(self.start(test, *peer, program, document)?);
        }
        for slice in 0..test.slices(self.load.rounds()) {
            // Nobody is always the one behind the same other.
            let first = slice as usize % subjects.len().max(1);
            for at in 0..subjects.len() {
                let subject = &subjects[(first + at) % subjects.len()];
                self.slice(test, subject, document, console)?;
            }
        }
        Ok(())
    }

    /// Starts a proxy, unless it can't do the test.
    fn start(
        &self,
        test: Test,
        peer: Peer,
        program: &Path,
        document: &mut Document,
    ) -> Result<Option<Subject>, CommandError> {
        let listen = self.stand.port()?;
        let mut plan = self.load.plan(Stand::target(test, listen));
        plan.threads = 1;
        let streams = if self.load.streams > 1 { self.load.streams } else { STREAMS };
        test.shape(&mut plan, self.args.multiplexed_connections, streams);
        let core = Some(self.args.server_core);
        let place = ProxyPlacement { backend: &self.backend.ports, listen, workers: 1, core };
        let started = self.stand.start(peer, test, program, place);
        match started.and_then(|started| probe(&plan).map(|()| started)) {
            Ok((server, setup)) => {
                document.configurations.insert(format!("{} {}", peer.name(), test.id()), setup.text());
                note_limits(document, &plan);
                Ok(Some(Subject { peer, server, plan }))
            }
            Err(reason) => {
                entry(document, test, peer.name(), &plan).verdict = Verdict::Unavailable(reason.to_string());
                Ok(None)
            }
        }
    }

    fn slice(
        &self,
        test: Test,
        Subject { peer, server, plan }: &Subject,
        document: &mut Document,
        console: &mut Console,
    ) -> Result<(), CommandError> {
        console.label(format!("{} {}", test.label(), peer.name()));
        let watched = [
            Watched { role: Role::Subject, name: peer.name().to_owned(), pid: server.pid(), cores: 1.0 },
            Watched { role: Role::Backend, name: "backend".to_owned(), pid: self.backend.pid(), cores: 1.0 },
        ];
        let round = console.round(plan, &watched)?;
        entry(document, test, peer.name(), plan).rounds.push(round);
        Ok(())
    }

    /// nginx, if it takes part.
    fn nginx(&self) -> Option<PathBuf> {
        find("nginx")
    }
}
