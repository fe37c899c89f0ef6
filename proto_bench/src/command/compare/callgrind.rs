//! Counts instructions and cache misses by simulation: each subject runs under callgrind twice, for so many requests and for
//! four times as many, and the difference is what the requests took. Start and end of the program cancel out.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Bench, STREAMS};
use crate::command::matrix::entry;
use crate::command::measure::Console;
use crate::command::stand::{ProxyPlacement, Stand, StandError};
use crate::driver::Fault;
use crate::engine::{self, Progress, Stop, Surroundings};
use crate::measure::counters::{self, CALLGRIND_FILE, Counts, TotalsError};
use crate::peers::{Peer, Test};
use crate::plan::{Pace, Plan, Protocol};
use crate::process::{Server, find};
use crate::report::Document;

/// How much longer the second run is.
const LONGER: u64 = 4;
/// A run that takes longer than this has met a fault.
const LONGEST: Duration = Duration::from_secs(600);
/// A run without a single answer for this long will not have another.
const STANDSTILL: Duration = Duration::from_secs(30);
/// Connections at most: each one's opening is in the counts, the more so the fewer requests it carries.
const CONNECTIONS: u32 = 100;

/// Counts for every subject of a test that was measured.
pub(super) fn count(bench: &Bench<'_>, test: Test, document: &mut Document, console: &Console) {
    let note = |document: &mut Document, text: String| {
        if !document.notes.contains(&text) {
            document.notes.push(text);
        }
    };
    if find("valgrind").is_none() {
        return note(document, "Instructions are not counted: valgrind is not installed here.".to_owned());
    }
    for (peer, program) in &bench.found {
        let Some(row) = document.row(test.id(), peer.name()) else { continue };
        if row.rounds.is_empty() {
            continue;
        }
        console.say(&format!("{} {}: callgrind", test.label(), peer.name()));
        let counted = difference(bench, test, *peer, program);
        console.clear();
        match counted {
            Ok((plan, counts)) => entry(document, test, peer.name(), &plan).simulated = Some(counts),
            Err(reason) => {
                let hint = if matches!(peer, Peer::Gateway | Peer::Relay) {
                    " (under valgrind our programs need to be built with --features rustix/use-libc-auxv)"
                } else {
                    ""
                };
                note(
                    document,
                    format!(
                        "{}, {}: instructions are not counted: {reason}{hint}.",
                        test.label(),
                        peer.name()
                    ),
                );
            }
        }
    }
    let way = format!(
        "Instructions and cache misses are callgrind's: {} requests over at most {CONNECTIONS} connections, all of the program in \
         user space, first caches of 32 KiB simulated, one request at a time. CPU times and rates are of other runs, without it.",
        bench.args.counted_requests * (LONGER - 1)
    );
    note(document, way);
}

/// Why instructions of a program are not counted.
#[derive(Debug, thiserror::Error)]
enum CallgrindError {
    #[error("programs in Go do not run under valgrind")]
    Go,
    #[error("the longer run had no more requests")]
    NoMoreRequests,
    #[error("it ended under callgrind")]
    Ended,
    /// The first example of a fault.
    #[error("{0}")]
    Fault(String),
    #[error(transparent)]
    Round(#[from] Fault),
    #[error(transparent)]
    Stand(#[from] StandError),
    #[error(transparent)]
    Directory(#[from] io::Error),
    #[error(transparent)]
    Totals(#[from] TotalsError),
}

fn difference(
    bench: &Bench<'_>,
    test: Test,
    peer: Peer,
    program: &Path,
) -> Result<(Plan, Counts), CallgrindError> {
    if matches!(peer, Peer::Caddy | Peer::Coraza) {
        return Err(CallgrindError::Go);
    }
    let requests = bench.args.counted_requests;
    let (_, short) = run(bench, test, peer, program, requests)?;
    let (plan, long) = run(bench, test, peer, program, requests * LONGER)?;
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    let more = long.requests.saturating_sub(short.requests) as f64;
    if more < 1.0 {
        return Err(CallgrindError::NoMoreRequests);
    }
    let each = |at: usize| (long.totals[at] - short.totals[at]) / more;
    let counts =
        Counts { instructions: each(0), instruction_misses: Some(each(1)), data_misses: Some(each(2)) };
    Ok((plan, counts))
}

/// What one life of a program took.
struct Life {
    requests: u64,
    totals: [f64; 3],
}

/// One life of a subject under callgrind.
fn run(
    bench: &Bench<'_>,
    test: Test,
    peer: Peer,
    program: &Path,
    requests: u64,
) -> Result<(Plan, Life), CallgrindError> {
    let directory = bench.stand.directory.join("callgrind");
    fs::create_dir_all(&directory)?;
    let file = directory.join(format!("{CALLGRIND_FILE}%p"));
    let under = [
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        "--cache-sim=yes".to_owned(),
        "--I1=32768,8,64".to_owned(),
        "--D1=32768,8,64".to_owned(),
        "--trace-children=yes".to_owned(),
        format!("--callgrind-out-file={}", file.to_string_lossy()),
    ];
    let listen = bench.stand.port()?;
    let place = ProxyPlacement {
        backend: &bench.backend.ports,
        listen,
        workers: 1,
        core: Some(bench.args.server_core),
    };
    let plan = bench.plan(test, listen);
    let started = bench.stand.start_under(peer, test, program, place, Some(&under));
    let (mut server, _) = started?;
    let completed = load(&plan, requests, &mut server);
    // Only when it has ended are its counts in the file.
    drop(server);
    let totals = counters::callgrind_totals(&directory);
    fs::remove_dir_all(&directory).ok();
    Ok((plan, Life { requests: completed?, totals: totals? }))
}

/// Sends so many requests, and returns how many there were in the end. Ends as well when the server has, or stands still.
fn load(plan: &Plan, requests: u64, server: &mut Server) -> Result<u64, CallgrindError> {
    let stop = Arc::new(Stop::default());
    let told = Arc::clone(&stop);
    let mut gone = None;
    let mut last = (0, Instant::now());
    let mut tell = |progress: Progress| {
        let Progress::Running { completed, .. } = progress else { return };
        if completed > last.0 {
            last = (completed, Instant::now());
        }
        gone = gone.take().or_else(|| server.check_alive().err());
        if completed >= requests || gone.is_some() || last.1.elapsed() > STANDSTILL {
            told.now();
        }
    };
    let around = Surroundings { watched: &[], tell: &mut tell, stop: Some(stop) };
    let outcome = engine::run_in(plan, around)?;
    if gone.is_some() {
        return Err(CallgrindError::Ended);
    }
    if let Some((_, example)) = outcome.tally.faults.values().next() {
        return Err(CallgrindError::Fault(example.clone()));
    }
    Ok(outcome.tally.completed)
}

impl Bench<'_> {
    /// A plan of as long as it takes.
    fn plan(&self, test: Test, listen: std::net::SocketAddr) -> Plan {
        let mut plan = self.load.plan(Stand::target(test, listen));
        plan.threads = 1;
        let streams = if self.load.streams > 1 { self.load.streams } else { STREAMS };
        test.shape(&mut plan, self.args.multiplexed_connections, streams);
        plan.load.connections = plan.load.connections.min(CONNECTIONS);
        plan.load.pace = Pace::Closed;
        plan.timing.warm_up = Duration::ZERO;
        plan.timing.duration = LONGEST;
        plan.timing.timeout = LONGEST;
        plan.timing.connect = STANDSTILL;
        // Datagrams that are dropped while the program is this slow would not come again.
        if matches!(plan.target.protocol, Protocol::Udp | Protocol::Dtls | Protocol::Http3) {
            plan.load.connections = plan.load.connections.min(8);
        }
        plan
    }
}
