//! `compare`: proxies side by side, on a core of their own, generator and backend on another. All are up at once and are
//! measured in short slices in turns, so that whatever changes on the machine changes for each of them.

use std::path::{Path, PathBuf};

use super::matrix::entry;
use super::measure::Console;
use super::run::note_limits;
use super::stand::{ProxyPlacement, Stand, probe_test};
use super::{CommandError, output};
use crate::command::ExitStatus;
use crate::load_args::{LoadArgs, OutputArgs};
use crate::measure::{Role, Watched, counters, machine};
use crate::peers::firewall::CONNECTIONS;
use crate::peers::{self, Peer, Rules, Test};
use crate::plan::Plan;
use crate::process::{BackendProcess, Server, find, pin_self};
use crate::report::model::{Row, Verdict};
use crate::report::{Document, ReportKind};

mod callgrind;
mod check;

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Proxies to compare [default: all that have a part in one of the tests]; those that are not installed are left out, and
    /// the report says so.
    #[arg(long, value_enum, value_delimiter = ',')]
    peers: Vec<Peer>,
    /// Tests to run, in this order. Those named `waf-…` are the firewalls', of the gateway, nginx with ModSecurity and Coraza, and
    /// are run only when they are named.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Test::ALL)]
    tests: Vec<Test>,
    /// The gateway's program; without it, `ferrum-edge` beside this program or in the search path.
    #[arg(long, value_name = "PROGRAM")]
    gateway: Option<PathBuf>,
    /// Folder with the OWASP Core Rule Set 4, as `tests/waf/crs fetch` makes it: what all firewalls load for the tests waf-get,
    /// waf-form, waf-json and waf-attack.
    #[arg(long, value_name = "FOLDER")]
    crs: Option<PathBuf>,
    /// A reverse proxy with Coraza, as `tests/waf/crs coraza` builds it; without it, `coraza-proxy` beside this program or in the
    /// search path.
    #[arg(long, value_name = "PROGRAM")]
    coraza: Option<PathBuf>,
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
    peers: Vec<Peer>,
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
    let rules = args.rules()?;
    let core = args.generator_core;
    pin_self(&[core]).map_err(|source| CommandError::Pin { core, source })?;
    let mut stand = Stand::new()?;
    stand.rules = rules;
    let certificates = stand.directory.to_string_lossy().into_owned();
    let arguments = ["--threads", "1", "--write-certificate", &certificates];
    let backend = BackendProcess::start(&arguments, &[core])?;
    let peers = args.peers();
    let found: Vec<_> = peers.iter().filter_map(|peer| Some((*peer, args.program(*peer)?))).collect();
    let bench = Bench { args, load: args.load.in_slices(), stand, backend, peers, found };
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

impl Args {
    /// Whom to measure.
    fn peers(&self) -> Vec<Peer> {
        if !self.peers.is_empty() {
            return self.peers.clone();
        }
        let has_a_part = |peer: &Peer| self.tests.iter().any(|test| peer.takes_part(*test));
        Peer::ALL.into_iter().filter(has_a_part).collect()
    }

    fn program(&self, peer: Peer) -> Option<PathBuf> {
        let given = match peer {
            Peer::Gateway => self.gateway.as_deref(),
            Peer::Coraza => self.coraza.as_deref(),
            _ => None,
        };
        peer.program(given)
    }

    /// The rules, where a test needs them.
    fn rules(&self) -> Result<Option<Rules>, CommandError> {
        match (&self.crs, self.tests.iter().find(|test| test.needs_rules())) {
            (Some(folder), Some(_)) => Ok(Some(Rules::read(folder)?)),
            (None, None) => Ok(None),
            (None, Some(test)) => Err(CommandError::Usage(format!(
                "{} needs rules: give the folder of the OWASP Core Rule Set with --crs (`tests/waf/crs fetch` makes one)",
                test.id()
            ))),
            (Some(_), None) => Err(CommandError::Usage(
                "--crs is for the tests waf-get, waf-form, waf-json and waf-attack".to_owned(),
            )),
        }
    }
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
        for peer in &self.peers {
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
                format!(
                    "{}; HTTP/2, HTTP/3 and gRPC {}; firewalls {}",
                    load.connections(),
                    args.multiplexed_connections,
                    load.connections().min(CONNECTIONS)
                ),
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
        if let Some(rules) = &self.stand.rules {
            document.settings.insert("firewall rules".to_owned(), rules.text());
        }
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
        // Whoever was named is told what it can't do; the others have no row.
        let has_a_part = |peer: Peer| !self.args.peers.is_empty() || peer.takes_part(test);
        for (peer, program) in self.found.iter().filter(|(peer, _)| has_a_part(*peer)) {
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
        match started.and_then(|started| probe_test(test, &plan).map(|()| started)) {
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
