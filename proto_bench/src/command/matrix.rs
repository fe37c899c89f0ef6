//! `matrix`: all ten protocols, directly and through the gateway, doing the same work.

use std::path::{Path, PathBuf};

use super::measure::{Console, row};
use super::run::note_limits;
use super::stand::{ProxyPlacement, Stand, StandError, probe_test};
use super::{CommandError, output};
use crate::command::ExitStatus;
use crate::load_args::{LoadArgs, OutputArgs};
use crate::measure::{Role, Watched};
use crate::peers::{self, Peer, Test};
use crate::plan::Plan;
use crate::process::BackendProcess;
use crate::report::model::{Row, Verdict};
use crate::report::{Document, ReportKind};

/// Arguments of `matrix`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Tests to run, in this order.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Test::TEN)]
    tests: Vec<Test>,
    /// The gateway's program; without it, `ferrum-edge` beside this program or in the search path.
    #[arg(long, value_name = "PROGRAM")]
    gateway: Option<PathBuf>,
    /// Measures the direct rows alone.
    #[arg(long)]
    direct_only: bool,
    /// Workers of the gateway; one a core unless told.
    #[arg(long)]
    workers: Option<usize>,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the matrix, direct and gateway in turns.
///
/// # Errors
/// The backend cannot be started, or a result cannot be written.
pub fn run(args: &Args) -> Result<ExitStatus, CommandError> {
    let stand = Stand::new()?;
    let certificates = stand.directory.to_string_lossy().into_owned();
    let backend = BackendProcess::start(&["--write-certificate", &certificates], &[])?;
    let program = if args.direct_only { None } else { Peer::Gateway.program(args.gateway.as_deref()) };
    let mut document = begin(args, program.as_deref());
    let mut console = Console::new(args.output.quiet).repeating(args.load.repeat_disturbed);
    for _ in 0..args.load.rounds() {
        for test in &args.tests {
            direct_round(args, *test, &backend, &mut document, &mut console)?;
            if !args.direct_only {
                gateway_round(
                    args,
                    *test,
                    program.as_deref(),
                    &stand,
                    &backend,
                    &mut document,
                    &mut console,
                )?;
            }
        }
    }
    document.rows.iter_mut().for_each(Row::conclude);
    console.note_repeats(&mut document);
    output::deliver(document, &args.output)
}

fn begin(args: &Args, program: Option<&Path>) -> Document {
    let mut document = Document::begin(ReportKind::Matrix);
    if let Some(program) = program {
        document.versions.extend(peers::versions(&[(Peer::Gateway, program.to_owned())]));
    }
    let settings = [
        ("connections", args.load.connections().to_string()),
        ("requests in flight a connection", format!("{} (HTTP/2, HTTP/3, gRPC only)", args.load.streams)),
        ("payload", format!("{} bytes", args.load.size)),
        (
            "rounds",
            format!(
                "{} of {:?} after {:?} of warm-up",
                args.load.rounds(),
                args.load.duration(),
                args.load.warm_up()
            ),
        ),
        (
            "tls",
            "X25519, TLS 1.3 (DTLS 1.2), full handshakes; in front on both ways, never to the backend"
                .to_owned(),
        ),
    ];
    document.settings.extend(settings.map(|(name, value)| (name.to_owned(), value)));
    document.notes.push(
        "Direct rows ask the backend with the protocol, TLS, connections and payload of the gateway's row; the CPU \
         time of a direct row is the backend's. Generator, backend and gateway share the machine's cores, so rates \
         depend on all three; CPU time a request is the figure to compare."
            .to_owned(),
    );
    document
}

fn direct_round(
    args: &Args,
    test: Test,
    backend: &BackendProcess,
    document: &mut Document,
    console: &mut Console,
) -> Result<(), CommandError> {
    let Some(target) = test.direct(&backend.ports) else { return Ok(()) };
    let mut plan = args.load.plan(target);
    test.shape(&mut plan, args.load.connections(), args.load.streams);
    let watched = [watch(Role::Subject, "backend", backend.pid())];
    console.label(format!("{} direct", test.label()));
    let round = console.round(&plan, &watched)?;
    note_limits(document, &plan);
    entry(document, test, "direct", &plan).rounds.push(round);
    Ok(())
}

fn gateway_round(
    args: &Args,
    test: Test,
    program: Option<&Path>,
    stand: &Stand,
    backend: &BackendProcess,
    document: &mut Document,
    console: &mut Console,
) -> Result<(), CommandError> {
    let listen = stand.port()?;
    let mut plan = args.load.plan(Stand::target(test, listen));
    test.shape(&mut plan, args.load.connections(), args.load.streams);
    if matches!(entry(document, test, "gateway", &plan).verdict, Verdict::Unavailable(_)) {
        return Ok(());
    }
    console.label(format!("{} gateway", test.label()));
    let workers = args.workers.unwrap_or_else(cores);
    let started = match program {
        None => Err(StandError::NoGateway),
        Some(program) => stand.start(
            Peer::Gateway,
            test,
            program,
            ProxyPlacement { backend: &backend.ports, listen, workers, core: None },
        ),
    };
    let started = started.and_then(|(server, setup)| probe_test(test, &plan).map(|()| (server, setup)));
    let row = match started {
        Err(reason) => {
            entry(document, test, "gateway", &plan).verdict = Verdict::Unavailable(reason.to_string());
            return Ok(());
        }
        Ok((server, setup)) => {
            document.configurations.insert(format!("gateway {}", test.id()), setup.text());
            let watched = [
                watch(Role::Subject, "gateway", server.pid()),
                watch(Role::Backend, "backend", backend.pid()),
            ];
            console.round(&plan, &watched)?
        }
    };
    entry(document, test, "gateway", &plan).rounds.push(row);
    Ok(())
}

/// The row of this test and subject, made when it is first asked for.
pub(super) fn entry<'a>(document: &'a mut Document, test: Test, subject: &str, plan: &Plan) -> &'a mut Row {
    let found = document.rows.iter().position(|row| row.id == test.id() && row.subject == subject);
    let at = found.unwrap_or_else(|| {
        let mut made = row(test.id(), test.label(), subject, plan);
        made.path = test.path((subject != "direct").then_some(subject));
        document.rows.push(made);
        document.rows.len() - 1
    });
    &mut document.rows[at]
}

fn watch(role: Role, name: &str, pid: u32) -> Watched {
    #[expect(clippy::cast_precision_loss, reason = "a number of cores")]
    let cores = cores() as f64;
    Watched { role, name: name.to_owned(), pid, cores }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
