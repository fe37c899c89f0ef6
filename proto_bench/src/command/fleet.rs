//! `fleet`: simulated edges behind a control plane that is started for the test.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::measure::Console;
use super::stand::Stand;
use super::{CommandError, output};
use crate::command::ExitStatus;
use crate::fleet::{self, ControlPlane, FleetOutcome, Options, Phase};
use crate::load_args::parse_duration;
use crate::peers::{Peer, gateway};
use crate::process::Server;
use crate::report::model::Latency;

/// Arguments of `fleet`.
///
/// A simulated edge enrols, holds a connection of its own, applies snapshots and deltas, compares the hash and reports, all over the
/// real protocol. It compiles nothing, so its `served` means that it has the configuration whole and right.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Simulated edges, all in this process.
    #[arg(short = 'e', long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=20_000))]
    edges: u32,
    /// Real gateways that are started as edges besides; their time is that of a poll of the control plane.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    real: u32,
    /// Proxies in the configuration.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    proxies: u32,
    /// Changes written one after the other, each when all edges serve the one before.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    changes: u32,
    /// Changes a second of a storm, in up to 50 calls a second; no storm without it.
    #[arg(short = 'r', long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// How long the storm lasts.
    #[arg(short = 'd', long, default_value = "10s", value_parser = parse_duration)]
    duration: Duration,
    /// Edges that are slow to serve what they received; the figures for all edges leave them out.
    #[arg(long, default_value_t = 0)]
    slow: u32,
    /// How long a slow edge takes.
    #[arg(long, default_value = "2s", value_parser = parse_duration)]
    slow_for: Duration,
    /// Connections cut a second during the storm, without a word to the control plane.
    #[arg(long, default_value_t = 0.0, value_name = "RATE")]
    cuts: f64,
    /// How long an edge stays away after a cut.
    #[arg(long, default_value = "500ms", value_parser = parse_duration)]
    away: Duration,
    /// How long edges may take to enrol, and to serve the newest configuration.
    #[arg(long, default_value = "2m", value_parser = parse_duration)]
    settle: Duration,
    /// The result is void if the 99th percentile of the time until all edges serve a change is longer.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    p99: Option<Duration>,
    /// The gateway's program; without it, `ferrum-edge` beside this program or in the search path.
    #[arg(long, value_name = "PROGRAM")]
    gateway: Option<PathBuf>,
    /// Empty database of the control plane; without it, a new SQLite file.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Prints JSON in place of text.
    #[arg(long)]
    json: bool,
    /// No progress on standard error.
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// Runs the test.
///
/// # Errors
/// No gateway's program, or a control plane that refuses or does not come so far in time.
pub fn run(args: &Args) -> Result<ExitStatus, CommandError> {
    if args.edges + args.real == 0 || args.slow > 0 && args.slow >= args.edges {
        return Err(CommandError::Usage("--edges: at least one edge has to be there and quick".to_owned()));
    }
    if !(0.0..=1e4).contains(&args.cuts) || args.cuts > 0.0 && (args.rate.is_none() || args.edges == 0) {
        return Err(CommandError::Usage("--cuts: a rate up to 10000, with --rate and --edges".to_owned()));
    }
    let program = Peer::Gateway.program(args.gateway.as_deref()).ok_or_else(|| {
        CommandError::Usage("no ferrum-edge program found; give one with --gateway".to_owned())
    })?;
    let stand = Stand::new()?;
    let (edges, admin) = (stand.port()?, stand.port()?);
    let token = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    let file = stand.directory.join("fleet.db");
    let database = args.database.clone().unwrap_or_else(|| format!("sqlite:{}", file.to_string_lossy()));
    let setup = gateway::control_plane_setup(&program, &stand.directory, edges, admin, &database, &token);
    for (path, text) in &setup.files {
        crate::text_files::write_file(path, text)?;
    }
    let mut server = Server::start("control-plane", &setup.command, &stand.directory, &[])?;
    server.wait_listening(admin)?;
    server.wait_listening(edges)?;
    let mut plane = ControlPlane::new(admin, token, Some(server.pid()));
    let mut console = Console::new(args.quiet);
    console.label("fleet");
    let mut real = Vec::new();
    let mut start_edge = |number: usize, invitation: &str| {
        real.push(start_real(&program, &stand, number, invitation)?);
        Ok(())
    };
    let outcome = fleet::run(&options(args), &mut plane, &mut start_edge, &mut |text| console.say(text));
    console.clear();
    // What the control plane wrote last explains more than a connection that ended.
    server.check_alive()?;
    if outcome.is_err() {
        real.iter_mut().try_for_each(Server::check_alive)?;
    }
    let outcome = outcome?;
    let text = match args.json {
        true => serde_json::to_string(&outcome).unwrap_or_default() + "\n",
        false => summary(args, &outcome),
    };
    output::print(&text)?;
    Ok(if outcome.void.is_empty() { ExitStatus::Valid } else { ExitStatus::Void })
}

/// Starts a gateway as an edge; it opens its listener once it has a configuration.
fn start_real(program: &Path, stand: &Stand, number: usize, invitation: &str) -> Result<Server, String> {
    let directory = stand.directory.join(format!("edge-{number}"));
    let setup = gateway::edge_setup(program, &directory, invitation);
    std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    for (path, text) in &setup.files {
        crate::text_files::write_file(path, text).map_err(|error| error.to_string())?;
    }
    Server::start("edge", &setup.command, &directory, &[]).map_err(|error| error.to_string())
}

fn options(args: &Args) -> Options {
    let size = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    Options {
        edges: size(args.edges),
        real: size(args.real),
        proxies: args.proxies.into(),
        changes: args.changes,
        rate: args.rate,
        duration: args.duration,
        slow: size(args.slow),
        slow_for: args.slow_for,
        cuts: args.cuts,
        away: args.away,
        settle: args.settle,
        limit: args.p99,
    }
}

fn summary(args: &Args, outcome: &FleetOutcome) -> String {
    let mut lines = vec![format!(
        "{} simulated edges, which compile nothing, and {} proxies; enrolled in {:.1} s, all served after {:.1} s",
        outcome.edges, outcome.proxies, outcome.enrolment_seconds, outcome.start_seconds
    )];
    if let Some(bytes) = outcome.bytes_an_edge {
        lines.push(format!("memory of the control plane: {:.1} KiB an edge", bytes / 1024.0));
    }
    if outcome.single.calls > 0 {
        lines.push(format!("{} changes, one after the other", outcome.single.calls));
        lines.extend(delays(&outcome.single));
    }
    if let Some(real) = &outcome.real {
        lines.push(format!(
            "{} real edges, which all served {:.1} s after the first was started",
            real.edges, real.start_seconds
        ));
        lines.push(line("served by every worker of all", &real.by_all));
    }
    if let Some(storm) = &outcome.storm {
        let cores = storm.control_plane_cores;
        let cores = cores.map(|cores| format!(", {cores:.2} cores of the control plane")).unwrap_or_default();
        lines.push(format!(
            "a storm of {:.0} changes a second for {:.1} s, {} revisions{cores}",
            storm.changes_a_second, storm.seconds, storm.phase.calls
        ));
        lines.extend(delays(&storm.phase));
        lines.push(format!("  all served the newest {:.3} s after the storm", storm.settled_seconds));
        if args.cuts > 0.0 {
            lines.push(format!(
                "  {} connections were cut and made again; delays of cut edges count from then on",
                storm.reconnections
            ));
        }
    }
    lines.push(format!(
        "{} hashes compared with the store's at revision {}",
        outcome.hashes_compared, outcome.revision
    ));
    lines.extend(outcome.void.iter().map(|why| format!("VOID: {why}")));
    lines.join("\n") + "\n"
}

fn delays(phase: &Phase) -> Vec<String> {
    let rows = [
        ("served by all", &phase.by_all),
        ("by an edge", &phase.by_each),
        ("by a slow edge", &phase.by_slow),
    ];
    let rows = rows.into_iter().filter(|(_, latency)| latency.count > 0);
    rows.map(|(name, latency)| line(name, latency)).collect()
}

fn line(name: &str, latency: &Latency) -> String {
    let [p50, p99, max] = [latency.p50_us, latency.p99_us, latency.max_us].map(|micros| micros / 1e3);
    format!("  {name}: p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms")
}
