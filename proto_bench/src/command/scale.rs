//! `scale`: load while the gateway's configuration grows through its admin API.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::measure::Console;
use super::stand::Stand;
use super::{CommandError, output};
use crate::command::ExitStatus;
use crate::load_args::{OutputArgs, parse_duration};
use crate::measure::{Role, Watched};
use crate::peers::{self, Peer, gateway};
use crate::process::{BackendProcess, Server};
use crate::report::{Document, ReportKind};
use crate::scale::{self, Options};

/// Arguments of `scale`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Proxies in the end.
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    proxies: u64,
    /// Proxies added in each batch.
    #[arg(long, default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,
    /// Proxies written with one call.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    chunk: u64,
    /// Connections, one request in flight on each.
    #[arg(short = 'c', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    workers: u32,
    /// Measured time after each batch.
    #[arg(short = 'd', long, default_value = "30s", value_parser = parse_duration)]
    duration: Duration,
    /// Load before the measured time that is not counted.
    #[arg(short = 'w', long, default_value = "2s", value_parser = parse_duration)]
    warm_up: Duration,
    /// Threads of the generator; one a core unless told.
    #[arg(short = 't', long)]
    threads: Option<usize>,
    /// Admin address of a running gateway; without it a gateway is started.
    #[arg(long, value_name = "ADDRESS", requires = "proxy")]
    admin: Option<SocketAddr>,
    /// HTTP address of the running gateway.
    #[arg(long, value_name = "ADDRESS", requires = "admin")]
    proxy: Option<SocketAddr>,
    /// Process of the running gateway, for CPU and memory.
    #[arg(long, requires = "admin")]
    pid: Option<u32>,
    /// Token of the admin API.
    #[arg(long, env = "FERRUM_ADMIN_TOKEN", default_value = "", hide_env_values = true)]
    token: String,
    /// The gateway's program to start; without it, `ferrum-edge` beside this program or in the search path.
    #[arg(long, value_name = "PROGRAM")]
    gateway: Option<PathBuf>,
    /// Database of the started gateway; without it, a new SQLite file.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Proxies of each batch whose refusals are checked, three requests each.
const REFUSALS: u64 = 200;
const VISIBLE_LIMIT: Duration = Duration::from_secs(30);

/// Runs the test.
///
/// # Errors
/// No gateway, or one whose admin API refuses.
pub fn run(args: &Args) -> Result<ExitStatus, CommandError> {
    let stand = Stand::new()?;
    let backend = BackendProcess::start(&["-p", "http"], &[])?;
    let mut document = Document::begin(ReportKind::Scale);
    let gateway = find_or_start(args, &stand, &mut document)?;
    let backend_address =
        backend.ports.http.ok_or_else(|| CommandError::Usage("the backend has no HTTP port".to_owned()))?;
    let options = Options {
        admin: gateway.admin,
        token: gateway.token.clone(),
        gateway: gateway.proxy,
        backend: backend_address,
        proxies: args.proxies,
        batch: args.batch,
        chunk: args.chunk,
        workers: args.workers,
        duration: args.duration,
        warm_up: args.warm_up,
        threads: args.threads.unwrap_or_else(cores),
        refusals: REFUSALS,
        visible_limit: VISIBLE_LIMIT,
    };
    describe(&mut document, &options);
    let mut watched = vec![watch(Role::Backend, "backend", backend.pid())];
    watched.extend(gateway.pid.map(|pid| watch(Role::Subject, "gateway", pid)));
    let mut console = Console::new(args.output.quiet);
    console.label("scale");
    let scale = scale::run(&options, &watched, &mut |text| console.say(text))?;
    console.clear();
    document.scale = Some(scale);
    output::deliver(document, &args.output)
}

/// A gateway to load; ends with this if it was started here.
struct Gateway {
    admin: SocketAddr,
    proxy: SocketAddr,
    pid: Option<u32>,
    token: String,
    _server: Option<Server>,
}

fn find_or_start(args: &Args, stand: &Stand, document: &mut Document) -> Result<Gateway, CommandError> {
    if let (Some(admin), Some(proxy)) = (args.admin, args.proxy) {
        return Ok(Gateway { admin, proxy, pid: args.pid, token: args.token.clone(), _server: None });
    }
    let program = Peer::Gateway.program(args.gateway.as_deref()).ok_or_else(|| {
        CommandError::Usage(
            "no ferrum-edge program found; give one with --gateway, or --admin and --proxy".to_owned(),
        )
    })?;
    document.versions.extend(peers::versions(&[(Peer::Gateway, program.clone())]));
    start(args, stand, &program)
}

fn start(args: &Args, stand: &Stand, program: &Path) -> Result<Gateway, CommandError> {
    let (proxy, admin) = (stand.port()?, stand.port()?);
    let token = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    let database = args
        .database
        .clone()
        .unwrap_or_else(|| format!("sqlite://{}", stand.directory.join("ferrum.db").to_string_lossy()));
    let setup = gateway::database_setup(program, &stand.directory, proxy, admin, &database, &token);
    for (path, text) in &setup.files {
        crate::text_files::write_file(path, text)?;
    }
    let mut server = Server::start("gateway", &setup.command, &stand.directory, &[])?;
    server.wait_listening(admin)?;
    server.wait_listening(proxy)?;
    Ok(Gateway { admin, proxy, pid: Some(server.pid()), token, _server: Some(server) })
}

fn describe(document: &mut Document, options: &Options) {
    let settings = [
        ("proxies", format!("{} in batches of {}, {} a call", options.proxies, options.batch, options.chunk)),
        (
            "each proxy",
            "key_auth, access_control for its own consumer, HTTP/1.1 to an echo backend".to_owned(),
        ),
        ("workers", format!("{} connections, closed loop", options.workers)),
        ("measured", format!("{:?} a batch after {:?} of warm-up", options.duration, options.warm_up)),
    ];
    document.settings.extend(settings.map(|(name, value)| (name.to_owned(), value)));
    document.notes.extend([
        "Every answer is checked to come from the proxy that was asked and to name its consumer. After each batch, \
         proxies are asked without a key, with a wrong one and with another consumer's; anything but 401, 401 and 403 \
         makes the batch void."
            .to_owned(),
        "\"During writes\" is the load on the proxies that were there before, from the first call of a batch to its \
         last. \"Visible\" is the time from the answer to a call until its last proxy answers on four connections."
            .to_owned(),
    ]);
}

fn watch(role: Role, name: &str, pid: u32) -> Watched {
    #[expect(clippy::cast_precision_loss, reason = "a number of cores")]
    let cores = cores() as f64;
    Watched { role, name: name.to_owned(), pid, cores }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
