//! Does to gateways what machines, networks, disks, databases and targets do, at random, and watches what must hold:
//! no acknowledged write is lost, nobody gets through without a valid key, and a gateway that says it is ready works.
//!
//! ```text
//! cargo test -p ferrum-edge --bench faults -- --minutes 8
//! cargo test -p ferrum-edge --bench faults -- --seed 1234 --runs 1 --engine postgres
//! ```
//!
//! A run is a gateway in database mode with a few faults one after the other, each beside writers and attackers. The seed
//! of a run says which faults it has; when something else happens inside is up to the machine, so a violation may take
//! several runs of its seed to show again. PostgreSQL is installed by `cargo xtask prepare`; a disk that can be filled and a name
//! server for the target take root, and a clock that jumps Debian's `libfaketime`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for developers"
)]

mod certificates;
#[path = "../../ferrum-edge/tests/all/support/client.rs"]
#[allow(dead_code, reason = "shared with tests that use more of it")]
mod client;
mod fault;
mod gateway;
mod model;
mod names;
mod relay;
mod rng;
mod run;
#[path = "../../ferrum-edge/tests/all/support/servers.rs"]
#[allow(dead_code, reason = "shared with tests that use more of it")]
mod servers;
mod target;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ferrum_edge::store::{Engine, Location, Options, Store};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::fault::Fault;
use crate::gateway::Plan;
use crate::names::Names;
use crate::relay::Relay;
use crate::rng::Rng;
use crate::run::{Counts, Folder, Run, Violation};
use crate::servers::Server;

const USAGE: &str = "faults [--minutes N] [--runs N] [--seed N] [--engine sqlite|postgres|both] [--lanes N]";
/// Faults of one run.
const FAULTS: u64 = 6;
/// Descriptors of a gateway that is to run out of them.
const FEW_DESCRIPTORS: u64 = 200;

/// What was asked for.
struct Asked {
    minutes: u64,
    runs: u64,
    seed: u64,
    engines: Vec<Engine>,
    lanes: u64,
}

fn asked() -> Option<Asked> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let both = vec![Engine::Sqlite, Engine::Postgres];
    let mut asked = Asked { minutes: 8, runs: u64::MAX, seed: since.as_secs(), engines: both, lanes: 2 };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--minutes" => asked.minutes = value.parse().ok()?,
            "--runs" => asked.runs = value.parse().ok()?,
            "--seed" => asked.seed = value.parse().ok()?,
            "--lanes" => asked.lanes = value.parse().ok().filter(|lanes| (1..=16).contains(lanes))?,
            "--engine" => match value.as_str() {
                "sqlite" => asked.engines = vec![Engine::Sqlite],
                "postgres" => asked.engines = vec![Engine::Postgres],
                "both" => {}
                _ => return None,
            },
            _ => return None,
        }
    }
    Some(asked)
}

/// What all lanes have in common.
struct Program {
    asked: Asked,
    until: Instant,
    next: AtomicU64,
    failed: AtomicBool,
    counts: Arc<Counts>,
    faults: Mutex<BTreeMap<Fault, u64>>,
    ended: AtomicU64,
}

fn main() -> ExitCode {
    let Some(asked) = asked() else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    println!("seed {}", asked.seed);
    let (until, lanes) = (Instant::now() + Duration::from_secs(60 * asked.minutes), asked.lanes);
    let program = Program {
        asked,
        until,
        next: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        counts: Arc::default(),
        faults: Mutex::default(),
        ended: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| program.lane());
        }
    });
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let Counts { acknowledged, refused, unknown, attacks } = &*program.counts;
    println!(
        "{} runs; writes: {} acknowledged, {} refused, {} open; {} requests without a valid key",
        count(&program.ended),
        count(acknowledged),
        count(refused),
        count(unknown),
        count(attacks)
    );
    for (fault, times) in &*program.faults.lock().unwrap() {
        println!("{times:8} {fault:?}");
    }
    match program.failed.load(Ordering::Relaxed) || count(&program.ended) == 0 {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

impl Program {
    /// Does one run after the other.
    fn lane(&self) {
        let mut server =
            self.asked.engines.contains(&Engine::Postgres).then(|| Server::start(Engine::Postgres));
        while Instant::now() < self.until && !self.failed.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.asked.runs {
                return;
            }
            let seed = self.asked.seed.wrapping_add(number);
            let mut struck = Vec::new();
            match self.run(seed, server.as_mut(), &mut struck) {
                Ok(()) => _ = self.ended.fetch_add(1, Ordering::Relaxed),
                Err(Violation(what)) => {
                    self.failed.store(true, Ordering::Relaxed);
                    println!("VIOLATION, seed {seed}, after {struck:?}: {what}");
                }
            }
        }
    }

    fn run(
        &self,
        seed: u64,
        mut server: Option<&mut Server>,
        struck: &mut Vec<Fault>,
    ) -> Result<(), Violation> {
        let mut rng = Rng::new(seed);
        let engine = *rng.pick(&self.asked.engines);
        let folder = Folder::new(&seed.to_string(), rng.once_in(2));
        let clock = gateway::fake_clock().filter(|_| rng.once_in(3)).map(|library| {
            let file = folder.path.join("clock");
            std::fs::write(&file, "+0s").unwrap();
            (library, file)
        });
        let relay = match (engine, server.as_deref()) {
            (Engine::Postgres, Some(server)) => Some(Relay::start(server.port)),
            _ => None,
        };
        let database = match (&relay, server.as_deref()) {
            (Some(relay), Some(server)) => {
                let name = format!("run_{seed}");
                create(server, &name);
                server.url_by(relay.at.port(), &name)
            }
            _ => format!("sqlite:{}", folder.path.join("f.db").display()),
        };
        let tls = "tls: { certificates: [{ cert_path: cert.pem, key_path: key.pem }] }";
        let listeners = "http: '127.0.0.1:0', https: '127.0.0.1:0', admin: '127.0.0.1:0'";
        let settings = format!("gateway: {{ {listeners}, workers: 2, {tls} }}\n");
        std::fs::write(folder.path.join("ferrum.yaml"), settings).unwrap();
        let names = Names::start(seed, &folder.path);
        let descriptors = if rng.once_in(2) { FEW_DESCRIPTORS } else { 0 };
        let own_names = names.is_some();
        let plan = Plan { folder: folder.path.clone(), database, descriptors, clock, own_names };
        let mut run = Run::start(rng, plan, relay, names, self.counts.clone())?;
        let possible = fault::possible(&run, folder.has_disk());
        for _ in 0..=run.rng.below(FAULTS) {
            let fault = *run.rng.pick(&possible);
            struck.push(fault);
            fault.strike(&mut run, server.as_deref_mut())?;
            run.settle()?;
            *self.faults.lock().unwrap().entry(fault).or_default() += 1;
        }
        run.end()
    }
}

/// A database with tables of its own.
fn create(server: &Server, name: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
        connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
        connection.close().await.unwrap();
        let location = Location::parse(Some(&server.url(name)), None).unwrap();
        Store::open(location, Options::default()).migrate().await.unwrap();
    });
}
