//! What is done to a gateway.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sqlx::{Connection, Executor, SqliteConnection};

use crate::client::Client;
use crate::relay::Line;
use crate::run::{Run, Violation};
use crate::servers::Server;
use crate::target::Mood;

/// Everything there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Kill,
    Terminate,
    Reload,
    Freeze,
    StalledLog,
    TargetDead,
    TargetStalled,
    TargetLying,
    Connections,
    /// SQLite alone, from here on.
    Locked,
    DiskFull,
    ClockJump,
    /// A database server alone, from here on.
    NetworkCut,
    NetworkRefuses,
    NetworkBlackHole,
    ServerRestart,
}

const EVERYWHERE: [Fault; 9] = [
    Fault::Kill,
    Fault::Terminate,
    Fault::Reload,
    Fault::Freeze,
    Fault::StalledLog,
    Fault::TargetDead,
    Fault::TargetStalled,
    Fault::TargetLying,
    Fault::Connections,
];
const SERVER: [Fault; 4] =
    [Fault::NetworkCut, Fault::NetworkRefuses, Fault::NetworkBlackHole, Fault::ServerRestart];

/// The faults that a run may have.
pub(crate) fn possible(run: &Run, has_disk: bool) -> Vec<Fault> {
    let mut faults = EVERYWHERE.to_vec();
    match run.relay {
        Some(_) => faults.extend(SERVER),
        None => faults.push(Fault::Locked),
    }
    if has_disk {
        faults.push(Fault::DiskFull);
    }
    if run.plan.clock.is_some() {
        faults.push(Fault::ClockJump);
    }
    faults
}

impl Fault {
    /// Does it to a gateway that is written to, and takes it back. `server` is the database's, where there is one.
    pub(crate) fn strike(self, run: &mut Run, server: Option<&mut Server>) -> Result<(), Violation> {
        let time = Duration::from_millis(50 + run.rng.below(900));
        run.beside_writes(|run| {
            thread::sleep(Duration::from_millis(run.rng.below(60)));
            match self {
                Self::Kill => {
                    run.gateway.kill();
                    run.restart()?;
                }
                Self::Terminate => {
                    run.gateway.stop()?;
                    run.restart()?;
                }
                Self::Reload => {
                    for _ in 0..=run.rng.below(5) {
                        run.gateway.signal(Signal::HUP);
                        thread::sleep(time / 20);
                    }
                }
                Self::Freeze => {
                    run.gateway.signal(Signal::STOP);
                    thread::sleep(time);
                    run.gateway.signal(Signal::CONT);
                }
                Self::StalledLog => stalled_log(run, time)?,
                Self::TargetDead => mood(run, Mood::Dead, time),
                Self::TargetStalled => mood(run, Mood::Stalled, time),
                Self::TargetLying => mood(run, Mood::Lying, time),
                Self::Connections => connections(run, time)?,
                Self::Locked => locked(run, time),
                Self::DiskFull => full_disk(run, time)?,
                Self::ClockJump => {
                    let jumps = ["+3600s", "-3600s", "+10d", "-10d", "+1s", "+0s"];
                    if let Some((_, file)) = &run.plan.clock {
                        drop(std::fs::write(file, *run.rng.pick(&jumps)));
                    }
                    thread::sleep(time);
                }
                Self::NetworkCut => {
                    for _ in 0..=run.rng.below(4) {
                        run.relay.iter().for_each(crate::relay::Relay::cut);
                        thread::sleep(time / 4);
                    }
                }
                Self::NetworkRefuses => line(run, Line::Refuses, time),
                Self::NetworkBlackHole => line(run, Line::BlackHole, time * 3),
                Self::ServerRestart => {
                    if let Some(server) = server {
                        server.kill();
                        thread::sleep(time);
                        if !server.run() {
                            return Err(Violation("the database server does not start again".to_owned()));
                        }
                    }
                }
            }
            Ok(())
        })
    }
}

/// The probes answer whatever else does not.
fn probe(run: &Run) -> Result<(), Violation> {
    let begun = Instant::now();
    let answer = Client::new(run.gateway.admin).try_ask("GET", "/livez", "", b"");
    if answer.is_none_or(|answer| answer.status != 200) || begun.elapsed() > Duration::from_secs(30) {
        return Err(run.gateway.said("/livez does not answer"));
    }
    Ok(())
}

/// Nobody reads the log, and there is much to say.
fn stalled_log(run: &Run, time: Duration) -> Result<(), Violation> {
    run.gateway.stall(true);
    // Something to say with each, until the pipe is full.
    for _ in 0..40 {
        run.gateway.signal(Signal::HUP);
        thread::sleep(time / 40);
    }
    probe(run)?;
    run.gateway.stall(false);
    Ok(())
}

/// More silent connections than the gateway has room for.
fn connections(run: &Run, time: Duration) -> Result<(), Violation> {
    let count = if run.plan.descriptors > 0 { 2 * run.plan.descriptors } else { 300 };
    let connect = |_| TcpStream::connect_timeout(&run.gateway.http, Duration::from_secs(1)).ok();
    let silent: Vec<_> = (0..count.min(600)).map(connect).collect();
    thread::sleep(time);
    probe(run)?;
    drop(silent);
    Ok(())
}

/// Nothing fits on the disk any more.
fn full_disk(run: &Run, time: Duration) -> Result<(), Violation> {
    let file = run.plan.folder.join("full");
    // Until nothing more fits.
    drop(std::fs::write(&file, vec![0; 64 << 20]));
    thread::sleep(time);
    probe(run)?;
    drop(std::fs::remove_file(&file));
    Ok(())
}

fn mood(run: &Run, mood: Mood, time: Duration) {
    run.target.set(mood);
    // Requests with a good key meet it as well.
    let model = run.shared.model.lock().unwrap();
    let good = model.consumers().into_iter().find_map(|consumer| {
        let version = model.of(consumer).into_iter().flatten().next()?;
        Some(crate::model::key(consumer, version))
    });
    drop(model);
    let until = Instant::now() + time;
    while Instant::now() < until {
        let head = good.as_deref().map(|key| format!("x-api-key: {key}\r\n")).unwrap_or_default();
        drop(Client::new(run.gateway.http).try_ask("GET", "/a", &head, b""));
        thread::sleep(Duration::from_millis(5));
    }
    run.target.set(Mood::Good);
}

fn line(run: &Run, line: Line, time: Duration) {
    let Some(relay) = &run.relay else { return };
    relay.set(line);
    if line == Line::Refuses {
        relay.cut();
    }
    thread::sleep(time);
    relay.set(Line::Good);
}

/// Somebody else holds the database's lock.
fn locked(run: &Run, time: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let Ok(mut holder) = SqliteConnection::connect(&run.plan.database).await else { return };
        if holder.execute("BEGIN IMMEDIATE").await.is_ok() {
            tokio::time::sleep(time).await;
            drop(holder.execute("ROLLBACK").await);
        }
        drop(holder.close().await);
    });
}
